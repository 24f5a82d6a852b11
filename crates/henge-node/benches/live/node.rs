//! A node in a process of its own, and what the system says of it.

use henge_api::{DiskStatus, Request, Status, ask};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub struct Node {
    pub dir: tempfile::TempDir,
    child: Child,
}

impl Node {
    /// `config` after the addresses.
    pub fn start(config: &str) -> Node {
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path().display();
        let text = format!(
            "listen = \"nbd+unix://{at}/nbd.sock\"\ncontrol = \"{at}/control.sock\"\nstate_dir = \"{at}/state\"\n{config}"
        );
        let file = dir.path().join("node.toml");
        std::fs::write(&file, text).expect("a file is written");
        let child = Command::new(
            std::env::var_os("HENGE").expect("HENGE names the command, as `make bench-live` does"),
        )
        .args(["node", "-c"])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the node starts");
        let node = Node { dir, child };
        let begin = Instant::now();
        while ask(&node.dir.path().join("control.sock"), &Request::Reset).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(20), "the node does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        node
    }
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("nbd.sock")
    }
    /// How long the node takes to answer, in ms.
    pub fn order(&self, request: &Request) -> f64 {
        let asked = Instant::now();
        let reply = ask(&self.dir.path().join("control.sock"), request).expect("the node answers");
        assert!(reply.error.is_none(), "{:?}", reply.error);
        asked.elapsed().as_secs_f64() * 1e3
    }
    pub fn status(&self) -> Status {
        let reply = ask(&self.dir.path().join("control.sock"), &Request::Status).expect("the node answers");
        reply.status.expect("with its status")
    }
    /// What the clients of each disk were answered a second, over so long: commands and bytes.
    pub fn rates(&self, disks: &[&str], over: Duration) -> Vec<(f64, f64)> {
        let before = self.status();
        std::thread::sleep(over);
        let after = self.status();
        let seconds = (after.uptime - before.uptime) as f64 / 1e9;
        let of = |status: &Status, name: &str| {
            let disk: &DiskStatus = status.disk(name).expect("a disk of ours");
            (disk.meters.commands as f64, disk.meters.bytes as f64)
        };
        let rate = |name: &&str| {
            let ((c0, b0), (c1, b1)) = (of(&before, name), of(&after, name));
            ((c1 - c0) / seconds, (b1 - b0) / seconds)
        };
        disks.iter().map(rate).collect()
    }
    /// CPU time of the whole process, its workers in the kernel included, in seconds.
    pub fn cpu(&self) -> f64 {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let ns = |thread: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            stat.split(' ').next()?.parse::<f64>().ok()
        };
        threads.filter_map(ns).sum::<f64>() / 1e9
    }
    /// `VmRSS` or `VmHWM`, in MiB.
    pub fn memory(&self, key: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find(|l| l.starts_with(key)).expect("Linux tells the size");
        line.split_whitespace().nth(1).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
