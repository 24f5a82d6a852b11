//! `henge node --requests` writes the simulator's columns.

use crate::support::{Node, have, qemu_io};
use henge_core::RequestRow;

#[test]
fn a_row_per_request() {
    if !have("a_row_per_request", &["qemu-io"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("live.csv");
    let config = "[[pool]]\nname = \"m\"\nmemory = true\ncapacity = \"64MiB\"\n[[disk]]\nname = \"web\"\ncapacity = \"8MiB\"\n";
    let node = Node::start_in(dir, config, &["--requests", record.to_str().unwrap()]);
    qemu_io(&node.uri("web"), &["write 4k 8k", "read 8k 4k", "flush"]);
    let _dir = node.stop();
    let text = std::fs::read_to_string(record).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(RequestRow::HEADER));
    let rows: Vec<_> = lines.map(|line| RequestRow::parse(line).unwrap()).collect();
    let what: Vec<_> = rows.iter().map(|r| (r.op.as_str(), r.offset, r.len)).collect();
    assert_eq!(what[..2], [("write", 4096, 8192), ("read", 8192, 4096)]);
    assert!(what[2..].iter().all(|w| w.0 == "flush") && what.len() > 2);
    assert!(rows.iter().all(|r| r.flow == "web" && r.arrival <= r.dispatch && r.dispatch <= r.completion));
    assert_eq!(rows.iter().map(|r| r.seq).collect::<Vec<_>>(), (1..=rows.len() as u64).collect::<Vec<_>>());
}
