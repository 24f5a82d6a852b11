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

/// A removed disk's storage hangs: other disks are changed all the same, and remembered, and neither change undoes the other.
#[test]
fn a_removal_that_hangs_keeps_no_other_change_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let (control, told) = control(dir.path());
    let add = Request::Add { disk: Table::of_disk("web") };
    let change = control.memory().prepare(&add, Some("web"), Origin::Here).unwrap();
    control.memory().commit(change).unwrap();
    let asks = |request: Request| {
        let control = control.clone();
        std::thread::spawn(move || control.ask(request).map(drop))
    };
    let hear = || match told.recv_timeout(PATIENCE) {
        Ok(Message::Ask(request, reply)) => (request, reply),
        _ => panic!("nothing was asked"),
    };
    let removal = asks(Request::Remove { name: "web".into() });
    let (request, hangs) = hear();
    assert_eq!(request, Request::Remove { name: "web".into() });
    let set = asks(Request::Set { name: "mail".into(), contract: [("weight".into(), "2".into())].into() });
    let (request, reply) = hear();
    assert!(matches!(request, Request::Set { .. }));
    reply.send(Reply::done()).unwrap();
    set.join().unwrap().unwrap();
    assert!(control.memory().disks.contains_key("web"), "until it is removed");
    hangs.send(Reply::done()).unwrap();
    removal.join().unwrap().unwrap();
    let remembered: Vec<String> = control.memory().disks.keys().cloned().collect();
    assert_eq!(remembered, ["mail"]);
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
