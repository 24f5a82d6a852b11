//! `henge trace` as a person uses it.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn henge(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_henge")).arg("trace").args(args).output().expect("henge runs")
}
fn good(args: &[&str]) -> String {
    let out = henge(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}
fn bad(args: &[&str]) -> String {
    let out = henge(args);
    assert!(!out.status.success(), "{args:?} succeeds");
    String::from_utf8(out.stderr).expect("text")
}

/// A thousand requests, one each millisecond, reads and writes in turn, out of order at the end.
fn sample(dir: &Path) -> String {
    let path = dir.join("sample.spc");
    let line = |i: u64| {
        format!("{},{},4096,{},{}.{:03}\n", i % 2, i * 8, ["r", "w"][i as usize % 2], i / 1000, i % 1000)
    };
    std::fs::write(&path, (0..1000).map(line).collect::<String>()).expect("written");
    path.display().to_string()
}

#[test]
fn info_says_what_a_trace_is_like_and_draws_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = sample(dir.path());
    let text = good(&["info", &trace]);
    assert!(
        text.contains("spc") && text.contains("1000 over 999.000 ms") && text.contains("50.00 %"),
        "{text}"
    );
    let out = dir.path().join("plots");
    let json = good(&["info", &trace, "--json", "-o", &out.display().to_string()]);
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON alone on the standard output");
    assert_eq!((value["requests"].as_u64(), value["devices"].as_u64()), (Some(1000), Some(2)));
    let png = std::fs::read(out.join("sample.spc.png")).expect("a picture");
    assert!(
        png.starts_with(b"\x89PNG")
            && out.join("sample.spc.svg").exists()
            && out.join("sample.spc.json").exists()
    );
}

#[test]
fn converting_there_and_back_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = sample(dir.path());
    let path = |name: &str| dir.path().join(name).display().to_string();
    good(&["convert", &trace, &path("a.zst")]);
    good(&["convert", &path("a.zst"), &path("b.gz"), "--to", "ssdsim"]);
    good(&["convert", &path("b.gz"), &path("c.spc"), "--to", "spc"]);
    let figures = |file: &str| {
        let mut value: serde_json::Value =
            serde_json::from_str(&good(&["info", "--json", file])).expect("JSON");
        for key in ["name", "format"] {
            value[key] = serde_json::Value::Null;
        }
        value
    };
    assert_eq!(figures(&trace), figures(&path("c.spc")));
    good(&["cut", &trace, &path("cut"), "--from", "100ms", "--until", "200ms", "--device", "1", "--rebase"]);
    let cut = figures(&path("cut"));
    assert_eq!((cut["requests"].as_u64(), cut["reads"].as_u64()), (Some(50), Some(0)));
    assert!(bad(&["convert", &trace, &trace]).contains("overwritten"));
    assert!(bad(&["convert", &trace, &path("d"), "--to", "srt"]).contains("cannot be written"));
}

#[test]
fn damage_is_named_and_passed_over_on_demand() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("t.spc");
    std::fs::write(&path, "0,1,512,r,0.0\n0,2,many,r,0.1\n0,3,512,r,0.2\n").expect("written");
    let path = path.display().to_string();
    assert!(bad(&["info", &path]).contains("t.spc:2: Size: not a whole number"));
    let text = good(&["info", &path, "--skip-damaged"]);
    assert!(text.contains("1 damaged lines were passed over") && text.contains("2 over"), "{text}");
    assert!(bad(&["info", &path, "--format", "disksim"]).contains("this is not disksim; it looks like spc"));
}

#[test]
fn diff_judges_two_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = |name: &str, latency: u64| {
        let header = "flow,op,offset,len,arrival,dispatch,completion,gate,seq,parts\n";
        let row = |i: u64| {
            format!("web,read,{},4096,{i}000000,{i}000000,{},0,{i},1\n", i * 4096, i * 1_000_000 + latency)
        };
        let path = dir.path().join(name);
        std::fs::write(&path, header.to_owned() + &(0..100).map(row).collect::<String>()).expect("written");
        path.display().to_string()
    };
    let (a, b, c) = (log("a.csv", 5_000_000), log("b.csv", 5_400_000), log("c.csv", 6_000_000));
    assert!(good(&["diff", &a, &b]).contains("verdict: holds"));
    let out = henge(&["diff", &a, &c, "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(
        (out.status.code(), value["agrees"].as_bool(), value["same_order"].as_bool()),
        (Some(1), Some(false), Some(true))
    );
    let late = henge(&["diff", &a, &a, "--lateness", "2ms"]);
    assert!(!late.status.success() && String::from_utf8_lossy(&late.stdout).contains("verdict: invalid"));
}

/// A server that goes when the test does.
struct Server(Child);
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn nbdkit(socket: &Path, args: &[&str]) -> Option<Server> {
    let mut command = Command::new("nbdkit");
    command.args(["-f", "-U"]).arg(socket).args(args).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Server(command.spawn().ok()?);
    let begun = Instant::now();
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nbdkit does not begin to serve");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(server)
}

#[test]
fn replay_sends_what_the_trace_says_when_it_says() {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = sample(dir.path());
    let socket = dir.path().join("s");
    let Some(_server) = nbdkit(&socket, &["memory", "16M"]) else {
        return println!("skipped: replay_sends_what_the_trace_says_when_it_says needs nbdkit");
    };
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let rows = dir.path().join("rows.csv").display().to_string();
    let json = good(&["replay", &trace, &uri, "--speed", "2", "--requests", &rows, "--json"]);
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((value["latency"]["requests"].as_u64(), value["failed"].as_u64()), (Some(1000), Some(0)));
    assert_eq!((value["reads"]["requests"].as_u64(), value["bytes"].as_u64()), (Some(500), Some(4_096_000)));
    // 999 ms at twice the speed, and whatever the machine adds.
    assert!(value["seconds"].as_f64().expect("a number") >= 0.499, "{value}");
    assert_eq!(std::fs::read_to_string(&rows).expect("rows").lines().count(), 1001);
    assert!(good(&["diff", &rows, &rows, "--order"]).contains("holds"));
    // A closed loop forgets the times; a small export refuses what lies beyond it.
    good(&["replay", &trace, &uri, "--outstanding", "8"]);
    // One for each: nbdkit 1.32 may end when a client leaves before its answers (connections.c, `sock >= 0`).
    let small = |name: &str| {
        let socket = dir.path().join(name);
        let server = nbdkit(&socket, &["memory", "1M"]).expect("as before");
        (server, format!("nbd+unix:///?socket={}", socket.display()))
    };
    let (_first, uri) = small("small");
    let error = bad(&["replay", &trace, &uri]);
    assert!(error.contains("beyond the disk of 1048576 bytes"), "{error}");
    let (_second, uri) = small("again");
    good(&["replay", &trace, &uri, "--place", "wrap", "--speed", "100"]);
}

#[test]
fn a_server_that_vanishes_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = sample(dir.path());
    let socket = dir.path().join("s");
    let log = dir.path().join("log");
    let logfile = format!("logfile={}", log.display());
    let Some(mut server) = nbdkit(&socket, &["--filter=log", "memory", "16M", &logfile]) else {
        return println!("skipped: a_server_that_vanishes_is_an_error needs nbdkit");
    };
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let mut replay = Command::new(env!("CARGO_BIN_EXE_henge"));
    // At a hundredth of the speed it would take 100 s.
    replay
        .args(["trace", "replay", &trace, &uri, "--speed", "0.01"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let replay = replay.spawn().expect("henge runs");
    let begun = Instant::now();
    while !std::fs::read_to_string(&log)
        .is_ok_and(|log| log.contains(" Read id=") || log.contains(" Write id="))
    {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is replayed");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.0.kill().expect("the server ends");
    let out = replay.wait_with_output().expect("henge ends");
    assert!(!out.status.success());
    assert!(
        String::from_utf8_lossy(&out.stderr).contains("server"),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(bad(&["replay", &trace, &uri]).contains("nbd+unix"));
}
