//! Pools and what is left in them: `henge pool`, `--check`, disks that come back, and those that cannot.

use crate::support::{Node, have, qemu_io};
use std::path::Path;
use std::process::{Command, Output};

const MIB: u64 = 1 << 20;

fn henge(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_henge")).args(args).output().unwrap()
}

fn good(args: &[&str]) -> String {
    let output = henge(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// One line on stderr.
fn bad(args: &[&str]) -> String {
    let output = henge(args);
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Every name below, and every byte.
fn everything(dir: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut entries: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    let below = |p: &std::path::PathBuf| match p.is_dir() {
        true => [vec![(p.clone(), Vec::new())], everything(p)].concat(),
        false => vec![(p.clone(), std::fs::read(p).unwrap_or_default())],
    };
    entries.iter().flat_map(below).collect()
}

fn config(dir: &Path, pool: &str, medium: &str) -> String {
    let file = dir.join("node.toml");
    let text = format!(
        "control = \"{0}/c.sock\"\nstate_dir = \"{0}/state\"\n[[pool]]\nname = \"{pool}\"\n{medium}\n\
         [[disk]]\nname = \"web\"\ncapacity = \"4MiB\"\n",
        dir.display()
    );
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn check_makes_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let device = dir.path().join("device");
    std::fs::File::create(&device).unwrap().set_len(16 * MIB).unwrap();
    let device = device.to_str().unwrap();
    let of_device = format!("device = \"{device}\"");
    let untouched = |file: &str| {
        let before = everything(dir.path());
        let output = henge(&["node", "-c", file, "--check"]);
        assert!(everything(dir.path()) == before, "something was made or written");
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let file =
        config(dir.path(), "p", &format!("path = \"{}/pool\"\ncapacity = \"8MiB\"", dir.path().display()));
    assert!(untouched(&file).0);
    let file = config(dir.path(), "p", &of_device);
    let (ok, why) = untouched(&file);
    assert!(!ok && why.contains("is blank") && why.contains("henge pool format"), "{why}");
    good(&["pool", "format", device, "--name", "p"]);
    assert!(untouched(&file).0);
    let (ok, why) = untouched(&config(dir.path(), "renamed", &of_device));
    assert!(!ok && why.contains("is the pool \"p\""), "{why}");
    std::fs::write(device, [vec![0; 1080], vec![0x53, 0xef], vec![0; 16 << 20]].concat()).unwrap();
    let (ok, why) = untouched(&file);
    assert!(!ok && why.contains("an ext2 file system"), "{why}");
    let why = bad(&["pool", "format", device, "--name", "p"]);
    assert!(why.contains("--force"), "{why}");
}

#[test]
fn a_pool_is_shown_renamed_and_mended() {
    let dir = tempfile::tempdir().unwrap();
    let device = dir.path().join("device");
    std::fs::File::create(&device).unwrap().set_len(16 * MIB).unwrap();
    let path = device.to_str().unwrap();
    good(&["pool", "format", path, "--name", "p"]);
    good(&["pool", "rename", path, "q"]);
    assert!(good(&["pool", "show", path]).contains("pool     q"));
    let json: serde_json::Value = serde_json::from_str(&good(&["pool", "show", path, "--json"])).unwrap();
    assert_eq!((&json["name"], &json["room"]), (&"q".into(), &(14 * MIB).into()));
    let mut bytes = std::fs::read(path).unwrap();
    bytes[200] ^= 1;
    std::fs::write(path, bytes).unwrap();
    assert!(good(&["pool", "show", path]).contains("henge pool repair"));
    assert!(good(&["pool", "repair", path]).contains("written again"));
    assert!(good(&["pool", "repair", path]).contains("nothing is wrong"));
    assert!(bad(&["pool", "show", "/dev/null"]).contains("not a pool"));
}

/// A loop device of a file, while it lives; none where that is not allowed.
struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Option<Loop> {
        let made = Command::new("losetup").args(["-f", "--show"]).arg(file).output().ok()?;
        made.status.success().then(|| Loop(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).output();
    }
}

#[test]
fn the_second_of_two_processes_on_one_medium_says_at_once_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("device");
    std::fs::File::create(&file).unwrap().set_len(16 * MIB).unwrap();
    let image = dir.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(16 * MIB).unwrap();
    let folder = format!("path = \"{}/pool\"\ncapacity = \"8MiB\"", dir.path().display());
    let block = Loop::new(&image);
    if block.is_none() {
        crate::support::skip("a block device among the media of two processes", "a loop device");
    }
    let devices = [Some(file.display().to_string()), block.as_ref().map(|device| device.0.clone())];
    for device in devices.into_iter().flatten().map(Some).chain([None]) {
        let medium = device.as_ref().map_or(folder.clone(), |device| format!("device = \"{device}\""));
        device.iter().for_each(|device| drop(good(&["pool", "format", device, "--name", "p"])));
        let pool =
            format!("[[pool]]\nname = \"p\"\n{medium}\n[[disk]]\nname = \"web\"\ncapacity = \"4MiB\"\n");
        let first = Node::start(&pool);
        let all = || -> Vec<_> {
            let of_device = device.iter().map(|device| std::fs::read(device).unwrap());
            of_device.chain(everything(dir.path()).into_iter().map(|(_, bytes)| bytes)).collect()
        };
        let before = all();
        let second = tempfile::tempdir().unwrap();
        let text =
            format!("control = \"{0}/c.sock\"\nstate_dir = \"{0}/state\"\n{pool}", second.path().display());
        let config = second.path().join("node.toml");
        std::fs::write(&config, text).unwrap();
        let who = format!("in use by another node: process {}", first.pid());
        let mut asked = vec![vec!["node", "-c", config.to_str().unwrap()]];
        if let Some(device) = &device {
            asked.push(vec!["pool", "format", device, "--name", "q", "--force"]);
            asked.push(vec!["pool", "rename", device, "q"]);
        }
        for command in asked {
            let why = bad(&command);
            assert!(why.contains(&who) && !why.contains("waiting"), "{command:?} on {medium}: {why}");
            assert!(all() == before, "{command:?} on {medium}: something was written");
        }
        first.stop();
    }
}

const POOL: &str = "[[pool]]\nname = \"p\"\npath = \"DIR/pool\"\ncapacity = \"64MiB\"\n";

fn disk(name: &str, more: &str) -> String {
    format!("[[disk]]\nname = \"{name}\"\ncapacity = \"8MiB\"\n{more}\n")
}

#[test]
fn one_bad_disk_fails_alone() {
    if !have("one_bad_disk_fails_alone", &["qemu-io"]) {
        return;
    }
    let both = format!("{POOL}{}{}", disk("web", ""), disk("db", ""));
    let node = Node::start(&both);
    qemu_io(&node.uri("web"), &["write -P 7 0 8M", "flush"]);
    let dir = node.stop();
    // Somebody wrote less than it has into the file; and one's part is a folder.
    let smaller = format!("{POOL}{}{}", disk("web", "").replace("8MiB", "4MiB"), disk("db", ""));
    let node = Node::start_in(dir, &smaller, &[]);
    qemu_io(&node.uri("db"), &["write -P 8 0 8M"]);
    let show = String::from_utf8(node.vd(&["show", "web"]).stdout).unwrap();
    assert!(
        show.contains("not served") && show.contains("not shrunk") && show.contains("what to do"),
        "{show}"
    );
    let list = String::from_utf8(node.vd(&["list"]).stdout).unwrap();
    assert!(list.contains("not served: web: ") && list.contains("not shrunk"), "{list}");
    assert_eq!(node.status()["failed"][0]["name"], "web");
    let events = String::from_utf8(node.vd(&["events"]).stdout).unwrap();
    assert!(events.contains("1 disks; not served: web"), "{events}");
    let add = String::from_utf8(node.vd(&["add", "web", "pool=p", "capacity=4MiB"]).stderr).unwrap();
    assert!(add.contains("not served") && add.contains("not shrunk"), "{add}");
    let dir = node.stop();
    let node = Node::start_in(dir, &both, &[]);
    let read = qemu_io(&node.uri("web"), &["read -P 7 0 8M"]);
    assert!(!read.contains("failed"), "{read}");
    let dir = node.stop();
    std::fs::remove_file(dir.path().join("pool/db.part0")).unwrap();
    std::fs::create_dir(dir.path().join("pool/db.part0")).unwrap();
    let node = Node::start_in(dir, &both, &[]);
    let read = qemu_io(&node.uri("web"), &["read -P 7 0 8M"]);
    assert!(!read.contains("failed"), "{read}");
    node.stop();
}

#[test]
fn a_disk_comes_back_only_when_told_to() {
    if !have("a_disk_comes_back_only_when_told_to", &["qemu-io"]) {
        return;
    }
    let node = Node::start(&format!("{POOL}{}{}", disk("web", ""), disk("db", "")));
    qemu_io(&node.uri("web"), &["write -P 7 0 8M", "flush"]);
    // Taken out of the file, and added again: by whom nobody knows.
    let node = Node::start_in(node.stop(), &format!("{POOL}{}", disk("db", "")), &[]);
    let why = String::from_utf8(node.vd(&["add", "web", "pool=p", "capacity=8MiB"]).stderr).unwrap();
    assert!(why.contains("keeps a part") && why.contains("adopt = true"), "{why}");
    let dir = node.stop();
    let pool = dir.path().join("pool").to_str().unwrap().to_owned();
    assert!(good(&["pool", "show", &pool]).contains("kept"));
    let node = Node::start_in(dir, &format!("{POOL}{}", disk("web", "adopt = true")), &[]);
    let read = qemu_io(&node.uri("web"), &["read -P 7 0 8M"]);
    assert!(!read.contains("failed"), "{read}");
    // A disk that was added, and what it had, are there after the node began again.
    assert!(node.vd(&["add", "more", "pool=p", "capacity=8MiB"]).status.success());
    qemu_io(&node.uri("more"), &["write -P 9 0 8M", "flush"]);
    let node = Node::start_in(node.stop(), &format!("{POOL}{}", disk("web", "adopt = true")), &[]);
    let read = qemu_io(&node.uri("more"), &["read -P 9 0 8M"]);
    assert!(!read.contains("failed"), "{read}");
    node.stop();
}

#[test]
fn a_refused_disk_takes_no_room() {
    let dir = tempfile::tempdir().unwrap();
    let pool = format!("path = \"{}/pool\"\ncapacity = \"64MiB\"", dir.path().display());
    let file = config(dir.path(), "p", &pool);
    let text = std::fs::read_to_string(&file).unwrap() + "contract = { latency = \"1ms\" }\n";
    std::fs::write(&file, text).unwrap();
    let why = bad(&["node", "-c", &file]);
    assert!(why.contains("disk \"web\""), "{why}");
    let pool = dir.path().join("pool");
    assert!(pool.join(".henge.pool").exists() && !pool.join("web.part0").exists());
}

/// Who asks for a disk is told that it is there when it will be there for good, or that it is not: nothing is left of one that could not
/// be remembered, and nobody has to adopt or to discard anything.
#[test]
fn a_disk_that_could_not_be_remembered_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let device = dir.path().join("device").to_str().unwrap().to_owned();
    std::fs::File::create(&device).unwrap().set_len(16 * MIB).unwrap();
    good(&["pool", "format", &device, "--name", "p"]);
    let pool = "[[pool]]\nname = \"p\"\ndevice = \"DIR/device\"\n";
    let node = Node::start_in(dir, pool, &[]);
    // What is to be remembered can be written, but does not get its name.
    std::fs::create_dir_all(node.path("state/disks.json/taken")).unwrap();
    let add = node.vd(&["add", "web", "pool=p", "capacity=4MiB"]);
    let why = String::from_utf8(add.stderr).unwrap();
    assert!(!add.status.success() && why.contains("could not be remembered"), "{why}");
    assert!(node.status()["disks"].as_array().unwrap().is_empty(), "nobody is served what may be forgotten");
    std::fs::remove_dir_all(node.path("state/disks.json")).unwrap();
    let dir = node.stop();
    assert!(!good(&["pool", "show", &device]).contains("web"), "no part is left");
    let node = Node::start_in(dir, pool, &[]);
    let add = node.vd(&["add", "web", "pool=p", "capacity=4MiB"]);
    assert!(add.status.success(), "{}", String::from_utf8_lossy(&add.stderr));
    let node = Node::start_in(node.stop(), pool, &[]);
    assert_eq!(node.status()["disks"][0]["name"], "web");
    node.stop();
}
