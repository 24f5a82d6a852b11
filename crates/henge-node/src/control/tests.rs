//! What is asked at once, of a loop that answers when the test says so.

use super::*;
use crate::config::NodeConfig;
use crate::shards::Division;
use crate::state::StateDir;
use std::time::Duration;

/// Longer than it takes, and an end where it never comes.
const PATIENCE: Duration = Duration::from_secs(20);

fn control(dir: &std::path::Path) -> (Control, Receiver<Message>) {
    let pool = "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"8MiB\"\n";
    let config = NodeConfig::parse(Source::new("node.toml", pool)).unwrap();
    let (shards, mut receivers) = Shards::new(1, vec!["p".into()]).unwrap();
    let routes = Routes::new(&config, Division::of(&config, Vec::new()).unwrap());
    let memory = Memory::open(StateDir::of(dir), Default::default(), Vec::new()).unwrap();
    (Control::new(Arc::new(shards), routes, Events::open(None), memory), receivers.remove(0))
}

/// Asks from another thread.
fn asks(control: &Control, request: Request) -> std::thread::JoinHandle<Result<(), ControlError>> {
    let control = control.clone();
    std::thread::spawn(move || control.ask(request).map(drop))
}

/// What the loop is asked next. That it serves a disk it says by itself.
fn hear(told: &Receiver<Message>, serves: bool) -> (Request, Sender<Reply>) {
    loop {
        match told.recv_timeout(PATIENCE) {
            Ok(Message::Ask(request, reply)) => return (request, reply),
            Ok(Message::Serves(_, reply)) => drop(reply.send(serves)),
            _ => panic!("nothing was asked"),
        }
    }
}

fn remember(control: &Control, disk: Table) {
    let (name, add) = (disk.name().unwrap().to_owned(), Request::Add { disk });
    let change = control.memory().prepare(&add, Some(&name), Origin::Here).unwrap();
    control.memory().commit(change).unwrap();
}

/// A removed disk's storage hangs: other disks are changed all the same, and remembered, and neither change undoes the other.
#[test]
fn a_removal_that_hangs_keeps_no_other_change_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let (control, told) = control(dir.path());
    remember(&control, Table::of_disk("web"));
    let removal = asks(&control, Request::Remove { name: "web".into() });
    let (request, hangs) = hear(&told, true);
    assert_eq!(request, Request::Remove { name: "web".into() });
    let contract = [("weight".into(), "2".into())].into();
    let set = asks(&control, Request::Set { name: "mail".into(), contract });
    let (request, reply) = hear(&told, true);
    assert!(matches!(request, Request::Set { .. }));
    reply.send(Reply::done()).unwrap();
    set.join().unwrap().unwrap();
    assert!(control.memory().disks.contains_key("web"), "until it is removed");
    hangs.send(Reply::done()).unwrap();
    removal.join().unwrap().unwrap();
    let remembered: Vec<String> = control.memory().disks.keys().cloned().collect();
    assert_eq!(remembered, ["mail"]);
}

/// An added disk's storage hangs when its parts are to become its own: other disks are changed all the same.
#[test]
fn an_addition_that_hangs_keeps_no_other_change_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let (control, told) = control(dir.path());
    let web = || Request::Add { disk: Table::of_disk("web").with("pool", "p").with("capacity", "1MiB") };
    let addition = asks(&control, web());
    let name = "web.part0".to_owned();
    let part = PartOf { gate: 0, name, len: 1, adopt: false, origin: Default::default(), claim: None };
    match told.recv_timeout(PATIENCE) {
        Ok(Message::Prepare(_, reply)) => reply.send(Ok(vec![part])).unwrap(),
        _ => panic!("its parts are made"),
    }
    let Ok(Message::Claim(_, _, hangs)) = told.recv_timeout(PATIENCE) else { panic!("they become its own") };
    for request in [web(), Request::Remove { name: "web".into() }] {
        let why = control.ask(request).unwrap_err().to_string();
        assert!(why.contains("is being added"), "{why}");
    }
    let contract = [("weight".into(), "2".into())].into();
    let set = asks(&control, Request::Set { name: "mail".into(), contract });
    let (_, reply) = hear(&told, true);
    reply.send(Reply::done()).unwrap();
    set.join().unwrap().unwrap();
    hangs.send(Ok(Vec::new())).unwrap();
    let (request, reply) = hear(&told, true);
    assert_eq!(request, web());
    reply.send(Reply::done()).unwrap();
    addition.join().unwrap().unwrap();
    let memory = control.memory();
    assert!(
        memory.coming.is_empty() && memory.disks["web"].added.is_some() && memory.disks.contains_key("mail")
    );
}

/// That a disk goes is written before its first part goes. Where it stays, that is taken back; where it is half gone, it is not.
#[test]
fn a_removal_is_remembered_while_it_is_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let (control, told) = control(dir.path());
    remember(&control, Table::of_disk("web").with("pool", "p").with("capacity", "1MiB"));
    let written = || std::fs::read_to_string(dir.path().join("disks.json")).unwrap();
    for stays in [true, false] {
        let removal = asks(&control, Request::Remove { name: "web".into() });
        let (_, reply) = hear(&told, true);
        assert!(written().contains("\"going\": true"), "{}", written());
        reply.send(Reply::failed("its storage has not answered")).unwrap();
        match told.recv_timeout(PATIENCE) {
            Ok(Message::Serves(_, reply)) => reply.send(stays).unwrap(),
            _ => panic!("whether it is served is asked"),
        }
        assert!(removal.join().unwrap().is_err());
        assert_eq!(written().contains("going"), !stays);
    }
    assert_eq!(control.memory().replay(), [], "what is left is not served when the node begins again");
}

/// That it goes cannot be written: it stays, and a later change does not write that it goes.
#[test]
fn a_removal_that_could_not_be_remembered_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let (control, told) = control(dir.path());
    remember(&control, Table::of_disk("web").with("pool", "p").with("capacity", "1MiB"));
    let (file, aside) = (dir.path().join("disks.json"), dir.path().join("aside"));
    std::fs::rename(&file, &aside).unwrap();
    // What is to be remembered can be written, and does not get its name.
    std::fs::create_dir_all(file.join("taken")).unwrap();
    let removal = asks(&control, Request::Remove { name: "web".into() });
    match told.recv_timeout(PATIENCE) {
        Ok(Message::Serves(_, reply)) => reply.send(true).unwrap(),
        _ => panic!("whether it is served is asked"),
    }
    let why = removal.join().unwrap().unwrap_err().to_string();
    assert!(why.contains("could not be remembered") && why.contains("it may go"), "{why}");
    std::fs::remove_dir_all(&file).unwrap();
    remember(&control, Table::of_disk("db"));
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.contains("web") && !written.contains("going"), "{written}");
    assert!(told.try_recv().is_err(), "no loop was asked to remove it");
}

#[test]
fn who_tells_the_manager_waits_for_no_change() {
    let dir = tempfile::tempdir().unwrap();
    let pool = "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"4MiB\"\nscheduler = \"sfq\"\n";
    let text = format!("listen = \"nbd://127.0.0.1:0\"\nstate_dir = {:?}\n{pool}", dir.path());
    let node = crate::Node::start(NodeConfig::parse(Source::new("node.toml", text)).unwrap()).unwrap();
    let control = node.control();
    let disk = Table::of_disk("web").with("pool", "p").with("capacity", "1MiB");
    control.ask_as(Request::Add { disk }, Origin::Manager(1)).unwrap();
    assert!(!control.was_changed_here());
    control.set("web", &[("weight", "3")]).unwrap();
    assert!(control.was_changed_here());
    let being_changed = control.memory();
    assert!(!control.was_changed_here(), "it is asked again a second later");
    drop(being_changed);
    node.stop().unwrap();
}

/// A node of two directories and a device, one disk of its file on each directory, and one that is added on a directory and one on the device.
struct Kept {
    dir: tempfile::TempDir,
    file: String,
}

impl Kept {
    fn new() -> Kept {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        let pool = |name: &str| {
            let medium = if name == "d" { "device" } else { "path" };
            format!("[[pool]]\nname = \"{name}\"\n{medium} = \"{at}/{name}\"\ncapacity = \"8MiB\"\n")
        };
        let disk = "[[disk]]\nname = \"web\"\npool = \"p\"\ncapacity = \"1MiB\"\n";
        let file = format!("state_dir = \"{at}/state\"\n{}{}{}{disk}", pool("p"), pool("q"), pool("d"));
        let kept = Kept { dir, file };
        kept.format();
        kept
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn format(&self) {
        std::fs::File::create(self.path("d")).unwrap().set_len(12 << 20).unwrap();
        henge_backend::pools::format(&self.path("d"), "d", true).unwrap();
    }

    fn start(&self) -> crate::Node {
        crate::Node::start(NodeConfig::parse(Source::new("node.toml", self.file.clone())).unwrap()).unwrap()
    }
}

/// Disks that are served, and those that are not, and why.
fn found(node: &crate::Node) -> (Vec<String>, Vec<(String, String)>) {
    let status = node.control().status().unwrap();
    let mut served: Vec<String> = status.disks.iter().map(|disk| disk.name.clone()).collect();
    served.sort();
    (served, status.failed.into_iter().map(|failed| (failed.name, failed.why)).collect())
}

fn add_to(node: &crate::Node, name: &str, pools: &[&str]) {
    let disk = Table::of_disk(name).with("capacity", "1MiB").with("pools", pools);
    node.control().ask(Request::Add { disk }).unwrap();
}

/// A part that a disk had is gone: the device was formatted anew, somebody deleted a file. What is served is not what was written, so it is not
/// served, and nothing is made in its place.
#[test]
fn a_part_that_is_lost_is_not_made_anew() {
    let kept = Kept::new();
    let node = kept.start();
    add_to(&node, "db", &["d"]);
    add_to(&node, "mail", &["p", "q"]);
    add_to(&node, "well", &["q"]);
    node.stop().unwrap();
    kept.start().stop().unwrap();
    kept.format();
    let (part, aside) = (kept.path("q/mail.part1"), kept.path("aside"));
    std::fs::rename(&part, &aside).unwrap();
    let web = kept.path("p/web.part0");
    std::fs::remove_file(&web).unwrap();
    let looked = crate::check(&NodeConfig::parse(Source::new("node.toml", kept.file.clone())).unwrap());
    assert!(looked.unwrap_err().to_string().contains("and is not there"));
    let node = kept.start();
    let (served, failed) = found(&node);
    assert_eq!(served, ["well"]);
    assert_eq!(failed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["db", "mail", "web"]);
    for ((name, why), part) in
        failed.iter().zip(["db.part0\" was on the pool \"d", "mail.part1", "web.part0"])
    {
        assert!(why.contains(part) && why.contains(&format!("vd remove {name}")), "{why}");
    }
    assert!(!web.exists() && !part.exists(), "nothing is made");
    // Who gives a disk up begins anew; who has found its storage again has it.
    node.control().ask(Request::Remove { name: "web".into() }).unwrap();
    node.control().ask(Request::Remove { name: "db".into() }).unwrap();
    add_to(&node, "db", &["d"]);
    node.stop().unwrap();
    std::fs::rename(&aside, &part).unwrap();
    let node = kept.start();
    assert_eq!(found(&node), (["db", "mail", "web", "well"].map(String::from).to_vec(), Vec::new()));
    node.stop().unwrap();
    // What is cut off was lost, too.
    let file = std::fs::File::options().write(true).open(&part).unwrap();
    for (len, is_served) in [(4096, false), (512 << 10, true)] {
        file.set_len(len).unwrap();
        let node = kept.start();
        let failed = found(&node).1;
        assert_eq!(failed.is_empty(), is_served);
        assert!(failed.iter().all(|(_, why)| why.contains("has 4096 of its 524288 bytes")), "{failed:?}");
        node.stop().unwrap();
    }
    // Another pool in the file is another place.
    let moved = kept.file.replace("pool = \"p\"", "pool = \"q\"");
    let kept = Kept { file: moved, ..kept };
    let node = kept.start();
    assert_eq!(found(&node).0, ["db", "mail", "web", "well"]);
    node.stop().unwrap();
}

/// The node ends before a disk that it has remembered has its parts: it has them made when it begins again.
#[test]
fn a_disk_that_was_remembered_without_its_parts_gets_them() {
    let kept = Kept::new();
    let disk = r#"{ "disks": { "db": { "added": { "name": "db", "capacity": "1MiB", "pools": ["d"] } } } }"#;
    std::fs::create_dir(kept.path("state")).unwrap();
    std::fs::write(kept.path("state/disks.json"), disk).unwrap();
    let node = kept.start();
    assert_eq!(found(&node).0, ["db", "web"]);
    node.stop().unwrap();
    kept.format();
    let node = kept.start();
    assert_eq!(found(&node).0, ["web"], "from then on it has them");
    node.stop().unwrap();
}

/// The node ends in the midst of a removal: the first part is gone, the second is there. What is left is served by nobody, and goes.
#[test]
fn a_removal_that_was_cut_short_is_gone_on_with() {
    let kept = Kept::new();
    let both = kept.file.replace("pool = \"p\"\n", "pools = [\"p\", \"d\"]\n");
    let kept = Kept { file: both, ..kept };
    let node = kept.start();
    add_to(&node, "mail", &["p", "d"]);
    add_to(&node, "db", &["p", "q"]);
    node.stop().unwrap();
    let memory = kept.path("state/disks.json");
    let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(&memory).unwrap()).unwrap();
    ["mail", "db"].iter().for_each(|name| state["disks"][name]["going"] = true.into());
    state["disks"]["web"] = serde_json::json!({ "file": {}, "going": true });
    std::fs::write(&memory, state.to_string()).unwrap();
    ["mail", "db", "web"]
        .iter()
        .for_each(|name| std::fs::remove_file(kept.path(&format!("p/{name}.part0"))).unwrap());
    // One of its pools is not there: neither is the disk, and it is to go all the same.
    let start = kept.file.find("[[pool]]\nname = \"q\"").unwrap();
    let end = kept.file.find("[[pool]]\nname = \"d\"").unwrap();
    let less = Kept { file: kept.file[..start].to_owned() + &kept.file[end..], dir: kept.dir };
    let node = less.start();
    let goes = |node: &crate::Node, all: &[&str], served: &[&str]| {
        let begun = std::time::Instant::now();
        let going = || node.control().memory().going().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        while going() != all {
            assert!(begun.elapsed() < PATIENCE, "{:?}", going());
            std::thread::yield_now();
        }
        assert_eq!(found(node).0, served);
    };
    goes(&node, &["db"], &[]);
    let by_manager = node.control().ask_as(Request::Remove { name: "db".into() }, Origin::Manager(9));
    assert!(by_manager.unwrap_err().to_string().contains("cannot go on"));
    node.stop().unwrap();
    assert!(std::fs::read_to_string(&memory).unwrap().contains("\"going\": true"));
    let kept = Kept { file: kept.file, dir: less.dir };
    let node = kept.start();
    goes(&node, &[], &["web"]);
    node.stop().unwrap();
    assert!(!std::fs::read_to_string(&memory).unwrap().contains("going"));
    let node = kept.start();
    assert_eq!(found(&node), (vec!["web".into()], Vec::new()), "the file's begins anew");
    node.stop().unwrap();
    let files: Vec<_> =
        ["p", "q"].iter().flat_map(|pool| std::fs::read_dir(kept.path(pool)).unwrap()).collect();
    let names = files.into_iter().map(|file| file.unwrap().file_name().into_string().unwrap());
    let parts: Vec<String> = names.filter(|name| name.contains("part")).collect();
    assert_eq!(parts, ["web.part0"]);
    let shown = henge_backend::pools::show(&kept.path("d")).unwrap();
    assert_eq!(
        shown.parts.iter().map(|part| (part.name.as_str(), part.used)).collect::<Vec<_>>(),
        [("web.part1", true)]
    );
}
