//! What goes wrong is said, and stays with whom it concerns.

use crate::support::{Node, have, qemu_io, try_run};
use std::process::{Command, Output};

fn henge(config: &str, args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("node.toml");
    let config = format!("state_dir = \"DIR/state\"\n{config}");
    std::fs::write(&file, config.replace("DIR", dir.path().to_str().unwrap())).unwrap();
    Command::new(env!("CARGO_BIN_EXE_henge")).args(["node", "-c"]).arg(&file).args(args).output().unwrap()
}

#[test]
fn check_says_what_would_be_done() {
    let config = "[[pool]]\nname = \"p\"\npath = \"DIR/p\"\ncapacity = \"64MiB\"\n[[disk]]\nname = \"a\"\ncapacity = \"8MiB\"\ncontract = { weight = 4 }\n";
    let output = henge(config, &["--check"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(text.contains("io_uring") || text.contains("threads"), "{text}");
    assert!(text.contains("O_DIRECT") || text.contains("page cache"), "{text}");
    assert!(text.contains("accepted: weight = 4"), "{text}");
}

#[test]
fn errors_point_into_the_file() {
    let config = "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"8MiB\"\n[[disk]]\nname = \"a\"\ncapacity = \"9MiB\"\n";
    let output = henge(config, &["--check"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(text.contains("node.toml:8:12") && text.contains("^^^^^^"), "{text}");
}

#[test]
fn an_io_error_reaches_its_client_and_nobody_else() {
    if !have("an_io_error_reaches_its_client_and_nobody_else", &["qemu-io"]) {
        return;
    }
    let mut node = Node::start(
        "[[pool]]\nname = \"bad\"\nmemory = true\ncapacity = \"64MiB\"\nfaults = { errors = \"100%\" }\n\
         [[pool]]\nname = \"good\"\nmemory = true\ncapacity = \"64MiB\"\n\
         [[disk]]\nname = \"bad\"\npool = \"bad\"\ncapacity = \"8MiB\"\n[[disk]]\nname = \"good\"\npool = \"good\"\ncapacity = \"8MiB\"\n",
    );
    let output = try_run("qemu-io", ["-f", "raw", "-c", "write 0 64k", &node.uri("bad")]);
    let text =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Input/output error"), "{text}");
    qemu_io(&node.uri("good"), &["write -P 7 0 64k", "read -P 7 0 64k"]);
    let output = try_run("qemu-io", ["-f", "raw", "-c", "read 8M 1k", &node.uri("good")]);
    let text =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Invalid argument") || text.contains("Input/output error"), "{text}");
    assert!(!node.ends_well(), "the bad pool's last FLUSH fails, too");
}

#[test]
fn vd_names_what_there_is() {
    let node = Node::start(
        "[[pool]]\nname = \"m\"\nmemory = true\ncapacity = \"64MiB\"\n[[disk]]\nname = \"web\"\ncapacity = \"8MiB\"\n",
    );
    let wrong = node.vd(&["set", "wbe", "weight=2"]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("there are: web"));
    let wrong = node.vd(&["set", "web", "latency=20"]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("20ms"), "{wrong:?}");
    assert!(node.vd(&["add", "more", "capacity=8MiB"]).status.success());
    assert!(node.vd(&["set", "more", "weight=2"]).status.success());
    let list = String::from_utf8(node.vd(&["list"]).stdout).unwrap();
    assert!(list.contains("more") && list.contains("weight=2"), "{list}");
    assert!(node.vd(&["remove", "more"]).status.success());
    assert!(!node.vd(&["show", "more"]).status.success());
}
