//! A fresh disk reads zeroes, and the space of a removed one never shows its data to another.

use crate::support::{Node, have, qemu_io, skip, try_run};

/// Room for one disk of 16 MiB and half of another: the second must take space of the first.
const POOLS: [(&str, &str); 3] = [
    ("file", "path = \"DIR/pool\"\ncapacity = \"24MiB\""),
    ("device", "device = \"MEDIUM\"\ncapacity = \"24MiB\""),
    ("memory", "memory = true\ncapacity = \"24MiB\""),
];

fn check(pool: &str, medium: &str, what: &str) {
    if pool.contains("MEDIUM") {
        let henge = env!("CARGO_BIN_EXE_henge");
        assert!(try_run(henge, ["pool", "format", medium, "--name", "p", "--force"]).status.success());
    }
    let pool = pool.replace("MEDIUM", medium);
    let node = Node::start(&format!("[[pool]]\nname = \"p\"\n{pool}\n"));
    let vd = |args: &[&str]| {
        let output = node.vd(args);
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    };
    // Unaligned ends, so that the blocks around them are looked at, too.
    for (round, name) in ["first", "second", "third"].into_iter().enumerate() {
        vd(&["add", name, "pool=p", "capacity=16MiB"]);
        let pattern = format!("write -P {} 0 16M", 0xa0 + round);
        let said = qemu_io(&node.uri(name), &["read -P 0 0 16M", "read -P 0 1000 9999", &pattern, "flush"]);
        assert!(!said.contains("verification failed"), "{what}: {name} shows what it never wrote: {said}");
        vd(&["remove", name]);
    }
    node.stop();
}

#[test]
fn nobody_reads_what_another_wrote() {
    if !have("nobody_reads_what_another_wrote", &["qemu-io"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("medium");
    let full = vec![0xee; 26 << 20]; // what the medium held before anybody's disk
    std::fs::write(&file, &full).unwrap();
    for (what, pool) in POOLS {
        check(pool, file.to_str().unwrap(), what);
    }
}

/// The same on a block device of the kernel's, where this may make one.
#[test]
fn nobody_reads_what_another_wrote_to_a_block_device() {
    const TEST: &str = "nobody_reads_what_another_wrote_to_a_block_device";
    if !have(TEST, &["qemu-io", "losetup"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("medium");
    std::fs::write(&file, vec![0xee; 26 << 20]).unwrap();
    let made = try_run("losetup", ["--show", "-f", file.to_str().unwrap()]);
    if !made.status.success() {
        return skip(TEST, "the right to make loop devices");
    }
    let device = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let checked = std::panic::catch_unwind(|| check(POOLS[1].1, &device, "loop device"));
    assert!(try_run("losetup", ["-d", &device]).status.success());
    if let Err(why) = checked {
        std::panic::resume_unwind(why);
    }
}
