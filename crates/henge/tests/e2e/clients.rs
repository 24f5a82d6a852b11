//! libnbd's, QEMU's and fio's clients.

use crate::support::{Node, have, image, qemu_io, run, skip};

/// One disk on each kind of medium, and one striped over two pools.
const CONFIG: &str = r#"
[[pool]]
name = "a"
path = "DIR/a"
capacity = "256MiB"
[[pool]]
name = "b"
path = "DIR/b"
capacity = "256MiB"
engine = "threads"
[[pool]]
name = "m"
memory = true
capacity = "256MiB"
[[disk]]
name = "file"
pool = "a"
capacity = "48MiB"
[[disk]]
name = "striped"
pools = ["a", "b"]
capacity = "48MiB"
[[disk]]
name = "memory"
pool = "m"
capacity = "48MiB"
"#;
const DISKS: [&str; 3] = ["file", "striped", "memory"];

#[test]
fn nbdinfo_sees_what_is_offered() {
    if !have("nbdinfo_sees_what_is_offered", &["nbdinfo"]) {
        return;
    }
    let node = Node::start(CONFIG);
    let all: serde_json::Value =
        serde_json::from_str(&run("nbdinfo", ["--json", "--list", &node.uri("")])).unwrap();
    let names: Vec<&str> =
        all["exports"].as_array().unwrap().iter().map(|e| e["export-name"].as_str().unwrap()).collect();
    assert_eq!(names, DISKS);
    let one: serde_json::Value =
        serde_json::from_str(&run("nbdinfo", ["--json", &node.uri("file")])).unwrap();
    let one = &one["exports"][0];
    for can in ["can_flush", "can_fua", "can_trim", "can_zero", "can_cache", "can_df", "can_multi_conn"] {
        assert_eq!(one[can], true, "{can}");
    }
    assert_eq!(one["export-size"], 48 << 20);
    assert_eq!(one["contexts"][0], "base:allocation");
    node.stop();
}

/// What takes room, as clients that skip holes ask for it.
#[test]
fn clients_see_which_bytes_take_room() {
    if !have("clients_see_which_bytes_take_room", &["nbdinfo", "qemu-img", "qemu-io"]) {
        return;
    }
    let node = Node::start(CONFIG);
    for disk in DISKS {
        let uri = node.uri(disk);
        qemu_io(&uri, &["write -P 1 1M 2M", "write -P 2 5M 64k", "discard 2M 512k", "flush"]);
        let map: serde_json::Value =
            serde_json::from_str(&run("nbdinfo", ["--map", "--json", &uri])).unwrap();
        let stretch = |e: &serde_json::Value| (e["offset"].as_u64().unwrap(), e["length"].as_u64().unwrap());
        let (data, holes): (Vec<_>, Vec<_>) = map.as_array().unwrap().iter().partition(|e| e["type"] == 0);
        let data: Vec<_> = data.into_iter().map(stretch).collect();
        const K: u64 = 1 << 10;
        assert_eq!(data, [(K * K, K * K), (2560 * K, 512 * K), (5 * K * K, 64 * K)], "{disk}");
        assert!(holes.iter().all(|e| e["type"] == 3), "what takes no room reads as zeroes: {map}");
        let map = run("qemu-img", ["map", "--output=json", "-f", "raw", &uri]);
        let map: serde_json::Value = serde_json::from_str(&map).unwrap();
        let data: u64 = map
            .as_array()
            .unwrap()
            .iter()
            .filter(|e| e["data"] == true)
            .map(|e| e["length"].as_u64().unwrap())
            .sum();
        assert_eq!(data, (1024 + 512 + 64) * K, "{disk}: {map}");
    }
    node.stop();
}

#[test]
fn nbdcopy_in_and_out() {
    if !have("nbdcopy_in_and_out", &["nbdcopy"]) {
        return;
    }
    let node = Node::start(CONFIG);
    let bytes = image(&node.path("in.img"), 48 << 20);
    let (source, target) = (node.path("in.img"), node.path("out.img"));
    for disk in DISKS {
        run("nbdcopy", ["--flush", source.to_str().unwrap(), &node.uri(disk)]);
        run("nbdcopy", [&node.uri(disk), target.to_str().unwrap()]);
        assert!(std::fs::read(&target).unwrap() == bytes, "{disk}: what came out is what went in");
    }
    // What was flushed is there after a restart.
    let dir = node.stop();
    let node = Node::start_in(dir, CONFIG, &[]);
    run("nbdcopy", [&node.uri("striped"), node.path("again.img").to_str().unwrap()]);
    assert!(std::fs::read(node.path("again.img")).unwrap() == bytes, "kept over a restart");
}

#[test]
fn qemu_img_converts_and_compares() {
    if !have("qemu_img_converts_and_compares", &["qemu-img"]) {
        return;
    }
    let node = Node::start(CONFIG);
    image(&node.path("in.img"), 48 << 20);
    let source = node.path("in.img").display().to_string();
    for disk in DISKS {
        let uri = node.uri(disk);
        run("qemu-img", ["convert", "-n", "-f", "raw", "-O", "raw", &source, &uri]);
        run("qemu-img", ["compare", "-f", "raw", "-F", "raw", &source, &uri]);
    }
    let qcow = node.path("out.qcow2").display().to_string();
    run("qemu-img", ["convert", "-f", "raw", "-O", "qcow2", &node.uri("striped"), &qcow]);
    run("qemu-img", ["compare", "-f", "raw", "-F", "qcow2", &source, &qcow]);
}

#[test]
fn qemu_io_patterns() {
    if !have("qemu_io_patterns", &["qemu-io"]) {
        return;
    }
    let node = Node::start(CONFIG);
    for disk in DISKS {
        let out = qemu_io(
            &node.uri(disk),
            &[
                "read -P 0 0 48M",
                "write -P 0xa1 0 1M",
                "write -P 0xb2 1000001 70001",
                "write -f -P 0xc3 65535 2",
                "flush",
                "read -P 0xa1 0 65535",
                "read -P 0xc3 65535 2",
                "read -P 0xa1 65537 934464",
                "read -P 0xb2 1000001 70001",
                "write -z 4097 100000",
                "read -P 0 4097 61000",
                "read -P 0 65535 2",
                "read -P 0xa1 104097 1000",
                "discard 512k 64k",
                "read -P 0 512k 64k",
                "write -z -u 10M 20M",
                "read -P 0 10M 20M",
                "aio_write -P 0xd4 20M 1M",
                "aio_write -P 0xe5 21M 1M",
                "aio_flush",
                "read -P 0xd4 20M 1M",
                "read -P 0xe5 21M 1M",
            ],
        );
        assert!(!out.contains("Pattern verification failed"), "{disk}:\n{out}");
    }
}

#[test]
fn fio_verifies() {
    if !have("fio_verifies", &["fio"]) {
        return;
    }
    if !run("fio", ["--enghelp"]).contains("nbd") {
        skip("fio_verifies", "fio's nbd engine");
        return;
    }
    let node = Node::start(CONFIG);
    for disk in DISKS {
        let uri = format!("--uri={}", node.uri(disk));
        let common = ["--name=verify", "--ioengine=nbd", "--rw=randwrite", "--bsrange=512-64k", "--size=48m"];
        let more = ["--io_size=48m", "--iodepth=16", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1"];
        run("fio", common.iter().chain(&more).copied().chain([uri.as_str(), "--bs_unaligned=0"]));
    }
}
