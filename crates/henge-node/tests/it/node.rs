//! A node as a library: started, asked, changed and stopped by its handle, with raw clients on its sockets.

use crate::common::{self, Client, address, cores, until};
use henge_config::Source;
use henge_node::{ControlError, Node, NodeConfig};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

fn start(pool: &str, disks: &str) -> Node {
    let (cores, shard) = cores();
    let text = format!(
        "listen = \"nbd://127.0.0.1:0\"\n{cores}[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"1GiB\"\n{shard}{pool}\n{disks}"
    );
    let mut config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
    config.state.forgets = true;
    Node::start(config).unwrap_or_else(|e| panic!("{e}"))
}

const WEB: &str = "[[disk]]\nname = \"web\"\ncapacity = \"64MiB\"\n";

#[test]
fn serves_and_stops() {
    let node = start("", WEB);
    let mut client = Client::connect(&node, "web");
    assert_eq!(client.write(1_000_001, b"unaligned"), 0);
    assert_eq!(client.read(1_000_000, 11).unwrap(), b"\0unaligned\0");
    assert_eq!(client.read(64 << 20, 1), Err(22), "beyond the end");
    assert_eq!(client.write((64 << 20) - 1, b"xy"), 28, "beyond the end");
    client.send(0, 3, 0, 0, &[]);
    assert_eq!(client.reply(), 0, "flush");
    let status = node.control().status().unwrap();
    let web = status.disk("web").unwrap();
    assert_eq!((web.meters.commands, web.meters.reads, web.connections), (3, 1, 1));
    assert_eq!(status.buffers_out, 0);
    node.stop().unwrap();
}

/// A table is an object, on the control socket too; texts of the configuration are not read there.
#[test]
fn the_control_socket_takes_tables_and_says_so_to_who_sends_texts() {
    let node = start("", WEB);
    let ask = |line: &str| henge_node::answer_line(line.as_bytes(), node.control());
    let done = |line: &str| assert_eq!(ask(line), henge_api::Reply::done(), "{line}");
    done(r#"{"op":"add","disk":{"name":"1e5","capacity":"1MiB","contract":{"weight":4},"nbd":"nobody"}}"#);
    done(r#"{"op":"access","name":"1e5","doors":{"nbd":"anyone"}}"#);
    assert_eq!(Client::connect(&node, "1e5").write(0, b"yes"), 0);
    done(r#"{"op":"scheduler","pool":"p","scheduler":{"mclock":{"cost":"requests"}}}"#);
    done(r#"{"op":"scheduler","pool":"p","scheduler":"sfq"}"#);
    for (line, says) in [
        (r#"{"op":"add","disk":"name = \"db\"\ncapacity = \"1MiB\"\n"}"#, "one release at both ends"),
        (r#"{"op":"access","name":"1e5","doors":"nbd = \"anyone\"\n"}"#, "one release at both ends"),
        (r#"{"op":"scheduler","pool":"p","scheduler":"{ edf = {} }"}"#, "one release at both ends"),
        (r#"{"op":"add","disk":{"name":"db","capacity":1}}"#, "has no unit"),
        (r#"{"op":"add","disk":{"name":7,"capacity":"1MiB"}}"#, "name is a text"),
        (r#"{"op":"add","disk":{"name":"db","capacity":"1MiB","pool":"q"}}"#, "there is no pool \"q\""),
        (
            r#"{"op":"add","disk":{"name":"db","capacity":"1MiB","contract":{"weight":"4"}}}"#,
            "weight is a whole",
        ),
        (r#"{"op":"add","disk":{"name":"db","capacity":"1MiB","capactiy":null}}"#, "capactiy is null"),
        (r#"{"op":"add","disk":{"name":"db","capacity":"1MiB","strip":"4KiB"}}"#, "did you mean \"stripe\""),
    ] {
        let why = ask(line).error.unwrap_or_default();
        assert!(why.contains(says), "{line}: {why}");
    }
    let events = node.control().ask(henge_api::Request::Events { name: None, after: 0, most: 100 });
    let events = events.unwrap().events.unwrap();
    let noted = events.iter().find(|e| e.name == "1e5").map(|e| e.detail.as_str());
    assert_eq!(noted, Some("capacity = \"1MiB\" contract = { weight = 4 } nbd = \"nobody\""));
    node.stop().unwrap();
}

#[test]
fn whoever_breaks_the_rules_breaks_only_their_own_connection() {
    let node = start("", WEB);
    let mut good = Client::connect(&node, "web");
    good.write(0, &[1; 4096]);
    // Garbage from the start.
    let mut garbage = TcpStream::connect(address(&node)).unwrap();
    garbage.write_all(&[0xAA; 4096]).unwrap();
    // Garbage later on.
    let mut late = Client::connect(&node, "web");
    late.stream.write_all(&[0x55; 64]).unwrap();
    assert!(late.is_closed());
    // Half a header, half a payload, and away.
    let mut half = Client::connect(&node, "web");
    half.stream.write_all(&[0x25, 0x60]).unwrap();
    drop(half);
    let mut half = Client::connect(&node, "web");
    half.send(0, 1, 0, 1 << 20, &[9; 1000]);
    drop(half);
    // Many requests, and away before the first reply.
    let mut rude = Client::connect(&node, "web");
    for i in 0..200 {
        rude.send(0, 0, i * 65536, 65536, &[]);
    }
    drop(rude);
    // An export that is not there.
    let mut lost = TcpStream::connect(address(&node)).unwrap();
    lost.write_all(&[0, 0, 0, 3]).unwrap();
    lost.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\x04nope").unwrap();
    until("everybody else is gone, and their memory back", || {
        let status = node.control().status().unwrap();
        status.buffers_out == 0 && status.disk("web").unwrap().connections == 1
    });
    assert_eq!(good.read(0, 4096).unwrap(), [1; 4096], "half a write was not done");
    node.stop().unwrap();
}

#[test]
fn a_contract_changes_under_a_connected_client() {
    // A block takes 51 s, which is longer than the client waits for an answer.
    let node = start(
        "scheduler = { sfq = { depth = 4 } }",
        "[[disk]]\nname = \"web\"\ncapacity = \"64MiB\"\ncontract = { limit = \"10B/s\", burst = \"512B\" }\n",
    );
    let mut client = Client::connect(&node, "web");
    let ask = |client: &mut Client| (0..10).for_each(|i| client.send(0, 0, i * 4096, 512, &[]));
    let hear = |client: &mut Client, answers: u64| {
        for _ in 0..answers {
            assert_eq!(client.reply(), 0);
            client.stream.read_exact(&mut [0; 512]).unwrap();
        }
    };
    ask(&mut client);
    // One by its burst, and then one at once.
    hear(&mut client, 2);
    let queued = || node.control().status().unwrap().pools[0].gates[0].queued;
    until("the limit is kept", || queued() == 8);
    let refused = node.control().set("web", &[("latency", "20ms")]).unwrap_err();
    assert!(matches!(&refused, ControlError::Refused(why) if why.contains("latency")), "{refused}");
    node.control().set("web", &[("limit", "1MB/s")]).unwrap();
    hear(&mut client, 8);
    assert!(node.control().set("nope", &[("limit", "1/s")]).is_err());
    node.control().set("web", &[("limit", ""), ("burst", "")]).unwrap();
    assert!(node.control().status().unwrap().disk("web").unwrap().contract.is_empty());
    node.control().exchange("p", "fifo").unwrap();
    assert_eq!(node.control().status().unwrap().pools[0].scheduler, "fifo");
    ask(&mut client);
    hear(&mut client, 10);
    assert!(node.control().exchange("p", "{ fifo = { depht = 3 } }").is_err());
    node.control().reset().unwrap();
    assert_eq!(node.control().status().unwrap().disk("web").unwrap().meters.commands, 0);
}

#[test]
fn faults_reach_the_client_as_errors() {
    let node = start("faults = { errors = \"100%\" }", WEB);
    let mut client = Client::connect(&node, "web");
    assert_eq!(client.read(0, 4096), Err(5));
    assert_eq!(client.write(0, &[0; 4096]), 5);
    assert_eq!(node.control().status().unwrap().disk("web").unwrap().meters.failed, 2);
}

#[test]
fn a_client_that_reads_nothing_holds_a_bounded_amount_and_nobody_else() {
    let node = start(
        "",
        "[[disk]]\nname = \"web\"\ncapacity = \"64MiB\"\n[[disk]]\nname = \"other\"\ncapacity = \"64MiB\"\n",
    );
    let mut hogs: Vec<Client> = (0..8).map(|_| Client::connect(&node, "web")).collect();
    for hog in &mut hogs {
        for _ in 0..30 {
            hog.send(0, 0, 0, 32 << 20, &[]);
        }
    }
    let mut other = Client::connect(&node, "other");
    for i in 0..200u32 {
        assert_eq!(other.write(u64::from(i) * 4096, &[i as u8; 4096]), 0);
        assert_eq!(other.read(u64::from(i) * 4096, 4096).unwrap(), [i as u8; 4096]);
    }
    let status = node.control().status().unwrap();
    assert!(status.buffers_out <= status.buffers, "{} of {}", status.buffers_out, status.buffers);
    drop(hogs);
    until("their memory is back", || node.control().status().unwrap().buffers_out == 0);
    node.stop().unwrap();
}

#[test]
fn a_client_that_reads_late_gets_it_all() {
    let node = start("", "[[disk]]\nname = \"web\"\ncapacity = \"64MiB\"\n");
    let mut late = Client::connect(&node, "web");
    // Far more than the socket's buffers hold, twice: the loop has to hear of room in the socket, and to hear of it again.
    for _ in 0..2 {
        (0..4).for_each(|_| late.send(0, 0, 0, 8 << 20, &[]));
        std::thread::sleep(Duration::from_millis(100));
        for _ in 0..4 {
            assert_eq!(late.reply(), 0);
            late.stream.read_exact(&mut vec![0; 8 << 20]).unwrap();
        }
    }
    node.stop().unwrap();
}

#[test]
fn schedulers_are_exchanged_under_load_and_nothing_is_lost() {
    let disks = (0..600).map(|i| format!("[[disk]]\nname = \"d{i}\"\ncapacity = \"64KiB\"\n"));
    let node = start("", &disks.collect::<String>());
    let mut clients: Vec<Client> =
        (0..600).step_by(20).map(|i| Client::connect(&node, &format!("d{i}"))).collect();
    for name in ["vc", "fifo", "edf", "sfq"] {
        clients.iter_mut().for_each(|c| (0..4).for_each(|i| c.send(0, 0, i * 4096, 4096, &[])));
        node.control().exchange("p", name).unwrap();
        for client in &mut clients {
            for _ in 0..4 {
                assert_eq!(client.reply(), 0, "{name}");
                client.stream.read_exact(&mut [0; 4096]).unwrap();
            }
        }
        assert_eq!(node.control().status().unwrap().pools[0].scheduler, name);
    }
    // A refusal leaves the one that is there: sfq, which promises no latency.
    node.control().exchange("p", "{ edf = { cost = \"requests\" } }").unwrap();
    node.control().set("d599", &[("latency", "20ms"), ("rate", "10/s")]).unwrap();
    let refused = node.control().exchange("p", "sfq").unwrap_err();
    assert!(matches!(&refused, ControlError::Refused(why) if why.contains("d599")), "{refused}");
    assert_eq!(node.control().status().unwrap().pools[0].scheduler, "edf");
    assert_eq!(clients[0].read(0, 4096).unwrap(), [0; 4096]);
    node.stop().unwrap();
}

#[test]
fn disks_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let config = format!(
        "listen = \"nbd://127.0.0.1:0\"\nstate_dir = \"{0}/state\"\n\
         [[pool]]\nname = \"p\"\npath = \"{0}/pool\"\ncapacity = \"64MiB\"\n\
         [[disk]]\nname = \"web\"\ncapacity = \"4MiB\"\n",
        dir.path().display()
    );
    let node = Node::start(NodeConfig::parse(Source::new("node.toml", config)).unwrap()).unwrap();
    let add = |text: &str| node.control().ask(common::add(text));
    add("name = \"scratch\"\ncapacity = \"8MiB\"\n").unwrap();
    assert!(add("name = \"scratch\"\ncapacity = \"8MiB\"\n").is_err(), "twice");
    assert!(add("name = \"big\"\ncapacity = \"8TiB\"\n").is_err(), "too large");
    let mut client = Client::connect(&node, "scratch");
    assert_eq!(client.write(0, &[7; 8192]), 0);
    node.control().ask(henge_api::Request::Remove { name: "scratch".into() }).unwrap();
    assert!(client.is_closed());
    add("name = \"scratch2\"\ncapacity = \"8MiB\"\n").unwrap();
    let mut client = Client::connect(&node, "scratch2");
    assert_eq!(client.read(0, 8192).unwrap(), [0; 8192], "another's former data");
    node.stop().unwrap();
}

#[test]
fn a_preview_says_what_a_change_would_say_and_changes_nothing() {
    let disk = |name: &str, rate: &str| {
        format!("[[disk]]\nname = \"{name}\"\ncapacity = \"1MiB\"\ncontract = {{ rate = \"{rate}/s\" }}\n")
    };
    let node =
        start("scheduler = { mclock = { capacity = \"100/s\" } }", &(disk("a", "40") + &disk("b", "30")));
    let preview = |rate: &str| {
        let contract = [("rate".to_owned(), rate.to_owned())].into();
        node.control().ask(henge_api::Request::Preview { name: "a".into(), contract })
    };
    let said = |rate: &str| preview(rate).unwrap().lines.unwrap();
    assert_eq!(said("70/s"), ["promised on p: 70/s before, 100/s after"]);
    assert_eq!(said(""), ["promised on p: 70/s before, 30/s after"]);
    for rate in ["71/s", "1MB/s"] {
        let told = preview(rate).unwrap_err().to_string();
        assert_eq!(told, node.control().set("a", &[("rate", rate)]).unwrap_err().to_string(), "{rate}");
    }
    node.control().set("a", &[("rate", "60/s")]).unwrap();
    assert_eq!(said("60/s"), ["promised on p: 90/s before, 90/s after"]);
    node.control().ask(henge_api::Request::Remove { name: "b".into() }).unwrap();
    assert_eq!(said("100/s"), ["promised on p: 60/s before, 100/s after"]);
}

/// A node that keeps what it remembers in `dir/state`.
fn in_folder(dir: &std::path::Path, more: &str) -> Result<Node, henge_node::StartError> {
    let text = format!(
        "listen = \"nbd://127.0.0.1:0\"\nstate_dir = \"{0}/state\"\n{more}\n\
         [[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"64MiB\"\ncost = \"requests\"\n{WEB_SMALL}",
        dir.display()
    );
    Node::start(NodeConfig::parse(Source::new("node.toml", text)).unwrap())
}

const WEB_SMALL: &str = "[[disk]]\nname = \"web\"\ncapacity = \"4MiB\"\n";

fn limit_of(node: &Node) -> Option<String> {
    node.control().status().unwrap().disk("web").unwrap().contract.get("limit").cloned()
}

#[test]
fn what_cannot_be_remembered_is_refused_and_neither_done_nor_logged_as_done() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let node = in_folder(dir.path(), "").unwrap();
    node.control().set("web", &[("limit", "700/s")]).unwrap();
    // Somebody's folder stands where the file is to be, and then nothing can be written at all.
    std::fs::rename(&state, dir.path().join("away")).unwrap();
    std::fs::write(&state, "").unwrap();
    let set = node.control().set("web", &[("limit", "9/s")]).unwrap_err();
    assert!(matches!(&set, ControlError::Refused(why) if why.contains("disks.json")), "{set}");
    let add = common::add("name = \"db\"\ncapacity = \"1MiB\"\n");
    assert!(matches!(node.control().ask(add).unwrap_err(), ControlError::Refused(_)));
    let remove = henge_api::Request::Remove { name: "web".into() };
    assert!(matches!(node.control().ask(remove).unwrap_err(), ControlError::Refused(_)));
    let grow = henge_api::Request::Grow { name: "web".into(), capacity: "8MiB".into() };
    assert!(matches!(node.control().ask(grow).unwrap_err(), ControlError::Refused(_)));
    let status = node.control().status().unwrap();
    let sizes: Vec<_> = status.disks.iter().map(|d| (d.name.as_str(), d.capacity)).collect();
    assert_eq!(sizes, [("web", 4 << 20)]);
    assert_eq!(limit_of(&node).as_deref(), Some("700/s"));
    let events = henge_api::Request::Events { name: None, after: 0, most: 100 };
    let events = node.control().ask(events).unwrap().events.unwrap();
    let kinds: Vec<_> = events.iter().rev().take(4).map(|e| e.kind.as_str()).collect();
    assert_eq!(kinds, ["refused"; 4], "{events:?}");
    node.stop().unwrap();
    std::fs::remove_file(&state).unwrap();
    std::fs::rename(dir.path().join("away"), &state).unwrap();
    let node = in_folder(dir.path(), "").unwrap();
    assert_eq!(limit_of(&node).as_deref(), Some("700/s"), "as it was acknowledged");
    node.stop().unwrap();
}

#[test]
fn what_is_remembered_is_its_owners_alone_and_one_nodes_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let link = "[link]\nname = \"n1\"\nlisten = \"127.0.0.1:0\"\nsecret = \"sixteen bytes and more\"\n";
    let node = in_folder(dir.path(), link).unwrap();
    node.control().set("web", &[("limit", "700/s")]).unwrap();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir.path().join("state")).unwrap().map(Result::unwrap) {
        names.push(entry.file_name().into_string().unwrap());
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{names:?}");
    }
    names.sort();
    assert_eq!(names, ["disks.json", "epoch", "events.jsonl"]);
    let error = in_folder(dir.path(), "").err().unwrap().to_string();
    assert!(error.contains("state is in use by another node"), "{error}");
    node.stop().unwrap();
    in_folder(dir.path(), "").unwrap().stop().unwrap();
}

#[test]
fn each_start_has_a_larger_epoch_also_where_the_clock_was_set_back_since() {
    let dir = tempfile::tempdir().unwrap();
    let link = "[link]\nname = \"n1\"\nlisten = \"127.0.0.1:0\"\nsecret = \"sixteen bytes and more\"\n";
    let file = dir.path().join("state/epoch");
    let epoch = || std::fs::read_to_string(&file).unwrap().trim().parse::<u64>().unwrap();
    in_folder(dir.path(), link).unwrap().stop().unwrap();
    assert!(epoch() > 0);
    // As it would be, had the clock said the year 2100 then.
    let before = 4_102_444_800_000_000_000;
    std::fs::write(&file, format!("{before}\n")).unwrap();
    in_folder(dir.path(), link).unwrap().stop().unwrap();
    assert!(epoch() > before);
    std::fs::write(&file, "").unwrap();
    let error = in_folder(dir.path(), link).err().unwrap().to_string();
    assert!(error.contains("state/epoch: no epoch"), "{error}");
}

/// Its storage takes its time for what is under way, and its client comes again and again: it goes all the same, at the first asking.
#[test]
fn a_disk_goes_although_its_client_comes_again() {
    let faults = "faults = { stalls = \"100%\", stall = \"200ms\" }";
    let node = start(
        faults,
        "[[disk]]\nname = \"web\"\ncapacity = \"4MiB\"\n[[disk]]\nname = \"other\"\ncapacity = \"4MiB\"\n",
    );
    let mut client = Client::connect(&node, "web");
    client.send(0, 0, 0, 4096, &[]);
    let (at, over) = (address(&node), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let Ok(mut again) = TcpStream::connect(at) else { continue };
                let _ = again.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x03web");
                let _ = again.read(&mut [0; 64]);
                let _ =
                    again.write_all(b"\x25\x60\x95\x13\0\0\0\0\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\x10\0");
            }
        });
        let removed = node.control().ask(henge_api::Request::Remove { name: "web".into() });
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        removed.unwrap();
    });
    assert!(node.control().status().unwrap().disk("web").is_none());
    node.stop().unwrap();
}

/// A disk has so many places for connections; the node's others are for other disks. A place that becomes free is free.
#[test]
fn a_disk_has_its_places_and_no_more() {
    let text = "connections_per_disk = 3\nlisten = \"nbd://127.0.0.1:0\"\n[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"64MiB\"\n\
                [[disk]]\nname = \"web\"\ncapacity = \"4MiB\"\n[[disk]]\nname = \"other\"\ncapacity = \"4MiB\"\n";
    let mut config = NodeConfig::parse(Source::new("node.toml", text.to_owned())).unwrap();
    config.state.forgets = true;
    let node = Node::start(config).unwrap();
    let come = |name: &str| {
        let mut stream = TcpStream::connect(address(&node)).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0").unwrap();
        stream.write_all(&[name.len() as u8]).unwrap();
        stream.write_all(name.as_bytes()).unwrap();
        stream.read_exact(&mut [0; 10]).map(|()| stream)
    };
    let mut there: Vec<_> = (0..3).map(|_| come("web").unwrap()).collect();
    assert!(come("web").is_err() && come("web").is_err(), "all three places are taken");
    assert!(come("other").is_ok());
    there.pop();
    until("a place is free", || come("web").is_ok());
    node.stop().unwrap();
}
