//! Whoever compares a live run with a simulation must know how late the emulated disk was: the record says it.

use crate::support::{Node, have, qemu_io, run};

const CONFIG: &str = r#"
requests = "DIR/requests.csv"
[[pool]]
name = "p"
memory = true
capacity = "64MiB"
emulated = { constant = { rate = "400MB/s", time = "1ms", capacity = "64MiB" } }
[[disk]]
name = "d"
capacity = "16MiB"
"#;

#[test]
fn a_record_ends_with_how_late_the_emulated_disk_was() {
    if !have("a_record_ends_with_how_late_the_emulated_disk_was", &["qemu-io"]) {
        return;
    }
    let node = Node::start(CONFIG);
    qemu_io(&node.uri("d"), &["write -P 1 0 64k", "read -P 1 0 64k", "read -P 1 0 4k"]);
    let dir = node.stop();
    let record = dir.path().join("requests.csv");
    let text = std::fs::read_to_string(&record).unwrap();
    let last = text.lines().last().unwrap();
    let late: u64 = last.strip_prefix("# lateness_p99_ns=").expect(last).parse().expect(last);
    // Whether that is too much for a comparison is `henge trace diff`'s to say: it reads it there.
    let record = record.to_str().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_henge"))
        .args(["trace", "diff", record, record, "--json"])
        .output()
        .unwrap();
    let diff: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let said = diff["lateness_p99_ms"].as_f64().expect("the lateness was read");
    assert!((said - late as f64 / 1e6).abs() < 1e-6, "{said} ms, recorded were {late} ns");
    // Too late, and nothing is proven by an agreement.
    let later = dir.path().join("later.csv");
    std::fs::write(&later, text.replace(last, "# lateness_p99_ns=5000000")).unwrap();
    let diff = ["trace", "diff", record, later.to_str().unwrap()];
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_henge")).args(diff).output().unwrap();
    assert!(!output.status.success(), "5 ms late, and called valid: {output:?}");
    // A disk that is not emulated is never late, and says nothing.
    let node = Node::start(&CONFIG.replace("emulated", "# emulated"));
    qemu_io(&node.uri("d"), &["write -P 1 0 64k"]);
    let text = run("cat", [node.stop().path().join("requests.csv")]);
    assert!(!text.contains("lateness"), "{text}");
}
