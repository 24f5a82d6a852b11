//! Managers: disks that grow by their hand, and two of them over etcd, of which one is killed.

use crate::ports::free;
use crate::support::{have, run};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const HENGE: &str = env!("CARGO_BIN_EXE_henge");

/// A process; killed when it is dropped.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Process {
        Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for something that other processes do.
#[track_caller]
fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "gave up waiting: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

struct Manager {
    api: SocketAddr,
    nodes: SocketAddr,
    config: std::path::PathBuf,
    process: Option<Process>,
}

impl Manager {
    fn new(dir: &Path, name: &str, more: &str) -> Manager {
        let (api, nodes) = (free(), free());
        let config = dir.join(format!("{name}.toml"));
        let text = format!(
            "listen = \"{api}\"\nnodes = \"{nodes}\"\nstate_dir = \"{}\"\nsecret = \"0123456789abcdef\"\nperiod = \"1s\"\n{more}",
            dir.join(name).display()
        );
        std::fs::write(&config, text).expect("written");
        Manager { api, nodes, config, process: None }
    }

    /// One that leads already, and where its token is.
    fn alone(dir: &Path, more: &str) -> (Manager, PathBuf) {
        let mut manager = Manager::new(dir, "m", more);
        manager.start();
        until("the manager", || manager.leads());
        (manager, dir.join("m/admin.token"))
    }

    fn start(&mut self) {
        let mut command = Command::new(HENGE);
        self.process = Some(Process::start(command.arg("manager").arg("-c").arg(&self.config)));
    }

    /// GET with a token; status and body. None while nobody listens.
    fn get(&self, path: &str, token: &str) -> Option<(u16, Value)> {
        let mut stream = TcpStream::connect(self.api).ok()?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, serde_json::from_str(body).ok()?))
    }

    fn leads(&self) -> Option<bool> {
        self.get("/api/v1/health", "")?.1["leads"].as_bool()
    }
}

/// A node with a directory of its own as its pool.
fn node(dir: &Path, managers: &[&Manager]) -> Process {
    named_node(dir, "n1", managers, "")
}

/// `more`: tables in front of its pool's.
fn named_node(dir: &Path, name: &str, managers: &[&Manager], more: &str) -> Process {
    let config = dir.join("node.toml");
    let addresses: Vec<String> = managers.iter().map(|m| format!("\"{}\"", m.nodes)).collect();
    let text = format!(
        "listen = \"nbd+unix://D/nbd.sock\"\ncontrol = \"D/node.sock\"\nstate_dir = \"D/node\"\n\
         [manager]\naddress = [{}]\nname = \"{name}\"\nsecret = \"0123456789abcdef\"\n{more}\
         [[pool]]\nname = \"p\"\npath = \"D/pool\"\ncapacity = \"1GB\"\nscheduler = \"cvc\"\n\
         profile = {{ iops = \"5000/s\", service = \"2ms\" }}\n",
        addresses.join(", ")
    );
    let text = text.replace("D/", &format!("{}/", dir.display()));
    std::fs::write(&config, text).expect("written");
    Process::start(Command::new(HENGE).arg("node").arg("-c").arg(&config))
}

fn henge(managers: &[&Manager], token_file: &Path, args: &[&str]) -> Output {
    let urls: Vec<String> = managers.iter().map(|m| format!("http://{}", m.api)).collect();
    let mut command = Command::new(HENGE);
    command.args(args).env("HENGE_MANAGER", urls.join(",")).env("HENGE_TOKEN_FILE", token_file);
    command.env_remove("HENGE_NODE").output().expect("henge runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Name, specification and place of every disk, if all of them are served.
fn disks(managers: &[&Manager], token: &Path) -> Option<Vec<(String, Value, Value)>> {
    let output = henge(managers, token, &["vd", "list", "--json"]);
    let list: Value = serde_json::from_slice(&output.stdout).ok()?;
    let one = |d: &Value| {
        let served = d["phase"] == "ready" && d["away"] == false && !d["received"].is_null();
        served.then(|| (d["name"].as_str().unwrap_or("").to_owned(), d["spec"].clone(), d["places"].clone()))
    };
    list["disks"].as_array()?.iter().map(one).collect()
}

#[test]
fn when_the_leader_is_killed_another_manager_goes_on_and_nothing_is_lost() {
    if !have("when_the_leader_is_killed", &["etcd"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (client, peer) = (format!("http://{}", free()), format!("http://{}", free()));
    let _etcd = Process::start(
        Command::new("etcd")
            .arg("--data-dir")
            .arg(dir.path().join("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")]),
    );
    let etcd = format!("[etcd]\nendpoints = [\"http://127.0.0.1:1\", \"{client}\"]\nlease = \"8s\"\n");
    let (mut a, mut b) = (Manager::new(dir.path(), "a", &etcd), Manager::new(dir.path(), "b", &etcd));
    until("the first manager to lead", || {
        if a.process.as_mut().is_none_or(|p| p.0.try_wait().is_ok_and(|ended| ended.is_some())) {
            a.start(); // etcd may not be there yet, which a manager says and ends
        }
        a.leads().filter(|leads| *leads)
    });
    let token_file = dir.path().join("a/admin.token");
    let token =
        until("the token", || std::fs::read_to_string(&token_file).ok().filter(|t| t.ends_with('\n')));
    b.start();
    until("the second manager to follow", || b.leads().filter(|leads| !leads));
    let _node = node(dir.path(), &[&b, &a]);
    until("the node", || {
        let output = henge(&[&a], &token_file, &["nodes", "list", "--json"]);
        said(&output).contains("\"connected\":true").then_some(())
    });

    // Who does not lead says who does; the command goes there if that manager was named, too, for it carries a token.
    let (status, body) = b.get("/api/v1/disks", token.trim()).unwrap();
    let leader = format!("http://{}", a.api);
    assert_eq!((status, body["leader"].as_str()), (503, Some(leader.as_str())), "{body}");
    assert!(body["detail"].as_str().unwrap().contains(&leader), "{body}");
    let create = ["vd", "create", "by-b", "capacity=10MB", "rate=5/s"];
    let output = henge(&[&b], &token_file, &create);
    assert!(!output.status.success() && said(&output).contains(&leader), "{}", said(&output));
    let output = henge(&[&b, &a], &token_file, &create);
    assert!(output.status.success(), "{}", said(&output));

    // Killed while disks are created: what was acknowledged is there.
    let mut acknowledged = vec!["by-b".to_owned()];
    for i in 0..8 {
        let name = format!("d{i}");
        let output = henge(&[&a], &token_file, &["vd", "create", &name, "capacity=10MB", "rate=5/s"]);
        assert!(output.status.success(), "{}", said(&output));
        acknowledged.push(name);
    }
    let before = until("all disks", || disks(&[&a, &b], &token_file));
    assert_eq!(before.len(), acknowledged.len());
    run("kill", ["-9", &a.process.as_ref().unwrap().0.id().to_string()]);
    let began = Instant::now();
    let after = until("the second manager", || disks(&[&a, &b], &token_file).filter(|d| !d.is_empty()));
    println!(
        "the second manager serves {:.1} s after the first was killed (a lease of 8 s)",
        began.elapsed().as_secs_f64()
    );
    assert_eq!(before, after);
    assert_eq!(b.leads(), Some(true));
    // It decides, and the one that comes back follows.
    let output = henge(&[&b], &token_file, &["vd", "set", "d0", "rate=7/s"]);
    assert!(output.status.success(), "{}", said(&output));
    a.start();
    until("the first manager to follow", || a.leads().filter(|leads| !leads));
    let output = henge(&[&a, &b], &token_file, &["vd", "show", "d0"]);
    assert!(said(&output).contains("7/s"), "{}", said(&output));
}

#[test]
fn a_disk_of_a_manager_grows_while_it_is_served_and_stays_so() {
    if !have("a_disk_of_a_manager_grows", &["nbdinfo", "qemu-io"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (manager, token_file) = Manager::alone(dir.path(), "");
    let mut process = node(dir.path(), &[&manager]);
    let vd = |args: &[&str]| henge(&[&manager], &token_file, &[&["vd"], args].concat());
    let create = |name: &str| vd(&["create", name, "capacity=64MiB", "--nbd", "anyone"]);
    until("the node", || create("web").status.success().then_some(()));
    assert!(create("neighbour").status.success());
    let uri = format!("nbd+unix:///web?socket={}", dir.path().join("nbd.sock").display());
    let size = || run("nbdinfo", ["--size", &uri]).trim().parse::<u64>().unwrap();
    run("qemu-io", ["-f", "raw", "-c", "write -P 7 63M 1M", &uri]);
    let output = vd(&["set", "web", "capacity=128MiB"]);
    assert!(output.status.success(), "{}", said(&output));
    until("the larger size", || (size() == 128 << 20).then_some(()));
    let check = ["read -P 7 63M 1M", "read -P 0 64M 64M", "write -P 9 127M 1M"];
    run("qemu-io", ["-f", "raw", "-c", check[0], "-c", check[1], "-c", check[2], &uri]);
    // Smaller, more than there is, and no size at all.
    for (capacity, says) in [("64MiB", "does not shrink"), ("2GB", "capacity of"), ("much", "much")] {
        let output = vd(&["set", "web", &format!("capacity={capacity}")]);
        assert!(!output.status.success() && said(&output).contains(says), "{}", said(&output));
    }
    // A term that its node's scheduler does not keep: the manager says so before the node is asked.
    for args in [&["create", "capped", "capacity=1MiB", "limit=9/s"][..], &["set", "web", "limit=9/s"]] {
        let (output, why) = (vd(args), "the scheduler cvc does not promise a limit; schedulers that do: sfq");
        assert!(!output.status.success() && said(&output).contains(why), "{}", said(&output));
    }
    assert!(said(&henge(&[&manager], &token_file, &["nodes", "list"])).contains("rate, latency"));
    // At the node alone, and after both have begun anew.
    let socket = dir.path().join("node.sock");
    let own = |args: &[&str]| {
        let mut command = Command::new(HENGE);
        command.arg("vd").args(args).arg("--node").arg(&socket).env_remove("HENGE_MANAGER").output().unwrap()
    };
    let output = own(&["set", "web", "capacity=192MiB"]);
    assert!(output.status.success() && size() == 192 << 20, "{}", said(&output));
    until("the manager to know", || {
        let text = said(&vd(&["show", "web"]));
        (text.contains("201326592B") && text.contains("ready")).then_some(())
    });
    run("kill", ["-9", &process.0.id().to_string()]);
    let _ = process.0.wait();
    process = node(dir.path(), &[&manager]);
    until("the disk", || {
        let output = Command::new("nbdinfo").args(["--size", &uri]).output().unwrap();
        output.status.success().then_some(())
    });
    assert_eq!(size(), 192 << 20);
    run("qemu-io", ["-f", "raw", "-c", "read -P 9 127M 1M", "-c", "read -P 0 128M 64M", &uri]);
    drop(process);
}

/// A node that tells of kept promises stays connected, and what it tells is the manager's to show.
#[test]
fn a_manager_shows_how_a_disk_under_load_is_kept_and_never_loses_its_node() {
    if !have("a_manager_shows_how_a_disk_under_load_is_kept", &["fio"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (manager, token_file) = Manager::alone(dir.path(), "");
    let _node = node(dir.path(), &[&manager]);
    let vd = |args: &[&str]| henge(&[&manager], &token_file, &[&["vd"], args].concat());
    let create = ["create", "web", "capacity=64MiB", "rate=20/s", "--nbd", "anyone"];
    until("the node", || vd(&create).status.success().then_some(()));
    let uri = format!("--uri=nbd+unix:///web?socket={}", dir.path().join("nbd.sock").display());
    // By a thread: a process of fio's own would outlive it, and spin on what is no more there.
    let _load = Process::start(
        Command::new("fio")
            .current_dir(dir.path())
            .args([
                "--thread",
                "--name=load",
                "--ioengine=nbd",
                &uri,
                "--rw=randread",
                "--bs=4k",
                "--size=32m",
            ])
            .args(["--iodepth=4", "--rate_iops=200", "--time_based", "--runtime=120"]),
    );
    // A node tells of its days with the first second in which the rate was wanted.
    let shown = until("a second of a promise", || {
        let disk: Value = serde_json::from_slice(&vd(&["show", "web", "--json"]).stdout).ok()?;
        let kept = disk["received"]["kept"].clone();
        (kept["month"]["wanted_ms"].as_u64()? > 0).then_some(kept)
    });
    for span in ["day", "month", "ever"] {
        assert_eq!(shown[span]["wanted_ms"], shown["ever"]["wanted_ms"], "{shown}");
    }
    let text = said(&vd(&["show", "web"]));
    assert!(text.contains("last month  kept in "), "{text}");
    let events: Value =
        serde_json::from_slice(&henge(&[&manager], &token_file, &["vd", "events", "--json"]).stdout).unwrap();
    let kinds: Vec<&str> =
        events["events"].as_array().unwrap().iter().filter_map(|e| e["kind"].as_str()).collect();
    let times = |what: &str| kinds.iter().filter(|kind| **kind == what).count();
    assert_eq!((times("node_up"), times("node_down")), (1, 0), "{events}");
}

/// Two nodes, each in a directory of its own, that have a link to each other.
fn two_nodes(dir: &Path, manager: &Manager) -> Vec<Process> {
    let start = |name: &str| {
        let own = dir.join(name);
        std::fs::create_dir(&own).expect("a directory");
        let link =
            format!("[link]\nname = \"{name}\"\nlisten = \"{}\"\nsecret = \"0123456789abcdef\"\n", free());
        named_node(&own, name, &[manager], &link)
    };
    vec![start("n1"), start("n2")]
}

#[test]
fn a_disk_over_two_nodes_grows_by_its_managers_hand_and_has_its_tags_from_there() {
    if !have("a_disk_over_two_nodes_grows", &["nbdinfo", "qemu-io"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (manager, token_file) = Manager::alone(dir.path(), "tags = \"central\"\n");
    let _nodes = two_nodes(dir.path(), &manager);
    let vd = |args: &[&str]| henge(&[&manager], &token_file, &[&["vd"], args].concat());
    let create = || vd(&["create", "web", "capacity=64MiB", "parts=2", "rate=500/s", "--nbd", "anyone"]);
    until("the nodes", || create().status.success().then_some(()));
    let uri =
        |node: &str| format!("nbd+unix:///web?socket={}", dir.path().join(node).join("nbd.sock").display());
    let io = |node: &str, commands: &[&str]| {
        let each = commands.iter().flat_map(|command| ["-c", command]);
        let all: Vec<&str> = ["-f", "raw"].into_iter().chain(each).collect();
        let uri = uri(node);
        Command::new("qemu-io").args(all).arg(&uri).output().is_ok_and(|output| output.status.success())
    };
    until("the places", || io("n1", &["write -P 7 63M 1M"]).then_some(()));
    let output = vd(&["set", "web", "capacity=32MiB"]);
    assert!(said(&output).contains("does not shrink"), "{}", said(&output));
    let output = vd(&["set", "web", "capacity=128MiB"]);
    assert!(output.status.success(), "{}", said(&output));
    for node in ["n1", "n2"] {
        until("the larger size", || {
            (run("nbdinfo", ["--size", &uri(node)]).trim() == "134217728").then_some(())
        });
        assert!(io(node, &["read -P 7 63M 1M", "write -P 9 127M 1M", "read -P 9 127M 1M"]), "{node}");
    }
    // Each part was told to the manager; what it answered in time was taken, what came late is counted.
    let status = |node: &str| -> Value {
        let mut socket =
            std::os::unix::net::UnixStream::connect(dir.path().join(node).join("node.sock")).unwrap();
        socket.write_all(b"{\"op\":\"status\"}\n").unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(socket), &mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()["status"]["tags"].clone()
    };
    for node in ["n1", "n2"] {
        let tags = until("the answers", || {
            let tags = status(node);
            let count = |key: &str| tags[key].as_u64().unwrap_or(0);
            (count("asked") > 0 && count("taken") + count("late") == count("asked")).then_some(tags)
        });
        assert_eq!(tags["untold"], 0, "{tags}");
    }
}

#[test]
fn a_manager_that_lost_its_store_has_a_disk_over_two_nodes_from_both() {
    let dir = tempfile::tempdir().unwrap();
    let (mut manager, token_file) = Manager::alone(dir.path(), "");
    let mut nodes = two_nodes(dir.path(), &manager);
    let vd = |manager: &Manager, args: &[&str]| henge(&[manager], &token_file, &[&["vd"], args].concat());
    let create = ["create", "web", "capacity=64MiB", "parts=2", "rate=500/s", "--nbd", "anyone"];
    until("the nodes", || vd(&manager, &create).status.success().then_some(()));
    let served = |manager: &Manager| disks(&[manager], &token_file).filter(|disks| !disks.is_empty());
    let before = until("the disk", || served(&manager));
    manager.process = None;
    let second = nodes.pop();
    drop(second);
    std::fs::remove_dir_all(dir.path().join("m")).unwrap();
    manager.start();
    until("the manager", || manager.leads());
    let events = |manager: &Manager| said(&vd(manager, &["events", "--json"]));
    until("what is waited for", || events(&manager).contains("does not").then_some(()));
    assert_eq!(disks(&[&manager], &token_file), Some(Vec::new()), "one node alone says it");
    assert!(said(&vd(&manager, &create)).contains("in use"), "its name is taken");
    let config = dir.path().join("n2/node.toml");
    nodes.push(Process::start(Command::new(HENGE).arg("node").arg("-c").arg(&config)));
    let after = until("the disk again", || served(&manager));
    assert_eq!((&after[0].0, &after[0].2), (&before[0].0, &before[0].2), "{}", events(&manager));
}

/// Disks too large for one pool, so that each loop of the node has one.
#[test]
fn a_manager_has_all_loops_of_a_node() {
    if !have("a_manager_has_all_loops", &["nbdinfo", "qemu-io"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (manager, token_file) = Manager::alone(dir.path(), "");
    let pool = |name: &str| {
        let table = format!("[[pool]]\nname = \"{name}\"\npath = \"D/{name}\"\ncapacity = \"100MiB\"\n");
        table + "scheduler = \"cvc\"\nprofile = { iops = \"5000/s\", service = \"2ms\" }\n"
    };
    let text = format!(
        "listen = \"nbd+unix://D/nbd.sock\"\ncontrol = \"D/node.sock\"\nstate_dir = \"D/node\"\ncores = 2\n\
         [manager]\naddress = \"{}\"\nname = \"n1\"\nsecret = \"0123456789abcdef\"\n{}{}",
        manager.nodes,
        pool("p"),
        pool("q")
    );
    let config = dir.path().join("node.toml");
    std::fs::write(&config, text.replace("D/", &format!("{}/", dir.path().display()))).unwrap();
    let start = || Process::start(Command::new(HENGE).arg("node").arg("-c").arg(&config));
    let mut process = start();
    let vd = |args: &[&str]| henge(&[&manager], &token_file, &[&["vd"], args].concat());
    let create = |name: &str| vd(&["create", name, "capacity=64MiB", "--nbd", "anyone"]);
    until("the node", || create("a").status.success().then_some(()));
    let output = create("b");
    assert!(output.status.success(), "{}", said(&output));
    let places: Vec<Value> = until("both", || disks(&[&manager], &token_file).filter(|all| all.len() == 2))
        .into_iter()
        .map(|(_, _, places)| places)
        .collect();
    assert_ne!(places[0], places[1]);
    let check = run(HENGE, ["node", "-c", config.to_str().unwrap(), "--check"]);
    assert!(check.contains("shard 0 has p; shard 1 has q"), "{check}");
    let uri = |disk: &str| format!("nbd+unix:///{disk}?socket={}", dir.path().join("nbd.sock").display());
    let size = |disk: &str| run("nbdinfo", ["--size", &uri(disk)]).trim().to_owned();
    for (disk, pattern) in [("a", "7"), ("b", "9")] {
        run("qemu-io", ["-f", "raw", "-c", &format!("write -P {pattern} 63M 1M"), &uri(disk)]);
        let output = vd(&["set", disk, "capacity=80MiB", "rate=50/s"]);
        assert!(output.status.success(), "{}", said(&output));
        until("the larger size", || (size(disk) == "83886080").then_some(()));
    }
    run("kill", ["-9", &process.0.id().to_string()]);
    let _ = process.0.wait();
    process = start();
    for (disk, pattern) in [("a", "7"), ("b", "9")] {
        until("the disk", || {
            let output = Command::new("nbdinfo").args(["--size", &uri(disk)]).output().unwrap();
            output.status.success().then_some(())
        });
        let check = [format!("read -P {pattern} 63M 1M"), "read -P 0 64M 16M".to_owned()];
        run("qemu-io", ["-f", "raw", "-c", &check[0], "-c", &check[1], &uri(disk)]);
    }
    until("both again", || disks(&[&manager], &token_file).filter(|all| all.len() == 2));
    until("the client to be gone", || vd(&["rm", "b"]).status.success().then_some(()));
    assert!(!Command::new("nbdinfo").args(["--size", &uri("b")]).output().unwrap().status.success());
    assert_eq!(size("a"), "83886080");
    drop(process);
}
