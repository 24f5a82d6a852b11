//! A node in a directory of its own, and tools run against it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest that a tool may take before the test fails instead of hanging.
const PATIENCE: &str = "60";

/// Whether every tool is there; says which is not.
pub fn have(test: &str, tools: &[&str]) -> bool {
    let found = |tool: &&&str| {
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
            .any(|dir| dir.join(tool).is_file())
    };
    match tools.iter().find(|tool| !found(tool)) {
        None => true,
        Some(missing) => {
            skip(test, missing);
            false
        }
    }
}

/// Says that a test was not done; past the test harness, which shows only what failing tests print.
pub fn skip(test: &str, missing: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "skipped: {test} needs {missing}");
}

/// A running node; killed when it is dropped.
pub struct Node {
    pub dir: tempfile::TempDir,
    child: Child,
}

impl Node {
    /// Starts one with `config` after the addresses; `DIR` in it stands for the node's directory.
    pub fn start(config: &str) -> Node {
        Node::start_in(tempfile::tempdir().expect("a directory"), config, &[])
    }

    /// The same in a directory that exists, with more arguments.
    pub fn start_in(dir: tempfile::TempDir, config: &str, args: &[&str]) -> Node {
        let file = dir.path().join("node.toml");
        let text = format!(
            "listen = \"nbd+unix://DIR/nbd.sock\"\ncontrol = \"DIR/control.sock\"\nstate_dir = \"DIR/state\"\n{config}"
        );
        std::fs::write(&file, text.replace("DIR", dir.path().to_str().expect("a name in ASCII")))
            .expect("written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_henge"))
            .args(["node", "-c"])
            .arg(&file)
            .args(args)
            .stdout(Stdio::null())
            .spawn()
            .expect("the node starts");
        let start = Instant::now();
        while !dir.path().join("control.sock").exists() {
            assert!(start.elapsed() < Duration::from_secs(30), "the node does not begin to serve");
            if let Some(status) = child.try_wait().expect("a child") {
                panic!("the node ended: {status}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Node { dir, child }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    /// The URI of an export.
    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.path("nbd.sock").display())
    }
    /// `henge vd …` on this node; its output.
    pub fn vd(&self, args: &[&str]) -> Output {
        let node = self.path("control.sock");
        Command::new(env!("CARGO_BIN_EXE_henge"))
            .arg("vd")
            .args(args)
            .arg("--node")
            .arg(node)
            .output()
            .expect("henge vd runs")
    }
    pub fn status(&self) -> serde_json::Value {
        let output = self.vd(&["list", "--json"]);
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
    /// SIGTERM, and a clean end.
    pub fn ends_well(&mut self) -> bool {
        run("kill", ["-TERM", &self.child.id().to_string()]);
        self.child.wait().expect("a child").success()
    }

    pub fn stop(mut self) -> tempfile::TempDir {
        assert!(self.ends_well(), "the node did not end well");
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().expect("a directory"));
        drop(self);
        dir
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a tool to its end.
pub fn try_run<S: AsRef<std::ffi::OsStr>>(tool: &str, args: impl IntoIterator<Item = S>) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", PATIENCE, tool]).args(args);
    command.output().unwrap_or_else(|e| panic!("{tool}: {e}"))
}

/// The same, and it must succeed; what it printed.
#[track_caller]
pub fn run<S: AsRef<std::ffi::OsStr>>(tool: &str, args: impl IntoIterator<Item = S>) -> String {
    let output = try_run(tool, args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{tool}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// `qemu-io` commands on an export; what it printed.
#[track_caller]
pub fn qemu_io(uri: &str, commands: &[&str]) -> String {
    let mut args = vec!["-f", "raw"];
    commands.iter().for_each(|c| args.extend(["-c", c]));
    args.push(uri);
    run("qemu-io", args)
}

/// Bytes that nobody would write by chance.
pub fn noise(len: usize) -> Vec<u8> {
    let mut x = 0x1234_5678_9abc_def1u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    };
    (0..len.div_ceil(8)).flat_map(|_| next()).take(len).collect()
}

/// A file of noise.
pub fn image(path: &Path, len: usize) -> Vec<u8> {
    let bytes = noise(len);
    std::fs::write(path, &bytes).expect("an image");
    bytes
}
