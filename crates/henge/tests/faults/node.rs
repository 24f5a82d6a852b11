//! The real node as a process: started, asked over its control socket, and seen to serve or to say why not.

use serde_json::{Value, json};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What every wait ends with.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a node has its sockets and its storage.
pub struct Folders {
    pub sockets: PathBuf,
    pub mounted: PathBuf,
    config: String,
}

impl Folders {
    /// A node that listens for all kinds of clients, with what else its configuration says.
    pub fn new(sockets: PathBuf, mounted: PathBuf, more: &str) -> Folders {
        let config = format!(
            "listen = [\"nbd+unix://{0}/nbd.sock\", \"iscsi://127.0.0.1:0\", \"nvme://127.0.0.1:0\"]\n\
             control = \"{0}/control.sock\"\nstate_dir = \"{1}/state\"\n{more}",
            sockets.display(),
            mounted.display(),
        );
        Folders { sockets, mounted, config }
    }

    /// A node alone, with one disk; `keys` of both pools.
    pub fn alone(sockets: PathBuf, mounted: PathBuf, keys: &str, loops: usize) -> Folders {
        let link = "[link]\nname = \"n1\"\nlisten = \"127.0.0.1:0\"\nsecret = \"sixteen bytes and more\"\n";
        let base = "[[disk]]\nname = \"base\"\npool = \"folder\"\ncapacity = \"1MiB\"\n";
        let text = format!("cores = {loops}\n{link}{}{base}", Folders::pools(&mounted, keys, loops));
        Folders::new(sockets, mounted, &text)
    }

    /// A pool in a folder and one on a device, each at a loop of its own where there are two; links are at the device's.
    pub fn pools(mounted: &Path, keys: &str, loops: usize) -> String {
        let shard = |shard: usize| if loops > 1 { format!("shard = {shard}\n") } else { String::new() };
        let (one, other) = (shard(1), shard(0));
        format!(
            "[[pool]]\nname = \"folder\"\npath = \"{0}/pool\"\ncapacity = \"16MiB\"\n{one}{keys}\
             [[pool]]\nname = \"device\"\ndevice = \"{0}/device\"\n{other}{keys}",
            mounted.display()
        )
    }

    pub fn nbd(&self) -> PathBuf {
        self.sockets.join("nbd.sock")
    }
}

pub struct Node {
    child: Child,
    control: PathBuf,
    errors: PathBuf,
    said: PathBuf,
    /// Where it listens for iSCSI and NVMe.
    pub ports: (u16, u16),
}

/// Why there is no node.
#[derive(Debug)]
pub enum NoNode {
    /// It ended by itself and said this.
    Said(String),
    /// It was killed while it began.
    Killed,
    /// It does neither.
    Silent,
}

/// An answer over the control socket.
#[derive(Debug)]
pub enum Answer {
    Done(Value),
    Refused(String),
    /// Done, and perhaps not to be remembered.
    Unremembered,
    Gone,
}

impl Node {
    /// Starts it with the wall clock so many days off; waits until it serves. `begun` is told its process first.
    pub fn start(folders: &Folders, days: i64, begun: impl FnOnce(u32)) -> (Result<Node, NoNode>, Duration) {
        let file = folders.sockets.join("node.toml");
        fs::write(&file, &folders.config).expect("written");
        let errors = folders.sockets.join("node.log");
        for socket in ["nbd.sock", "control.sock"] {
            let _ = fs::remove_file(folders.sockets.join(socket));
        }
        let mut command = henge();
        command.args(["node", "-c"]).arg(&file).stdin(Stdio::null());
        let said = folders.sockets.join("node.out");
        command.stdout(fs::File::create(&said).expect("a file"));
        command.stderr(fs::File::create(&errors).expect("a log"));
        if let Some(library) = clock() {
            command.env("LD_PRELOAD", library).env("FAKETIME", format!("{days:+}d"));
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        }
        let since = Instant::now();
        let child = command.spawn().expect("the node starts");
        begun(child.id());
        let mut node =
            Node { child, control: folders.sockets.join("control.sock"), errors, said, ports: (0, 0) };
        let outcome = node.wait_until_it_serves(&folders.nbd());
        (outcome.map(|()| node), since.elapsed())
    }

    fn wait_until_it_serves(&mut self, nbd: &Path) -> Result<(), NoNode> {
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().expect("a child") {
                let said = fs::read_to_string(&self.errors).unwrap_or_default();
                return Err(if status.code().is_some() { NoNode::Said(said) } else { NoNode::Killed });
            }
            // The control socket is the last thing that a node opens; then it says where it listens.
            if nbd.exists() && matches!(self.status(), Answer::Done(_)) && self.find_ports().is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill();
        Err(NoNode::Silent)
    }

    fn find_ports(&mut self) -> Option<()> {
        let said = fs::read_to_string(&self.said).ok()?;
        let after = |what: &str| {
            let digits = said.split(what).nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse().ok()
        };
        let nvme = || after("nvme://127.0.0.1:").or_else(|| after(" -s "));
        self.ports = (after("iscsi://127.0.0.1:")?, nvme()?);
        Some(())
    }

    pub fn kill(&mut self) {
        // It may have been killed already.
        let _ = self.child.kill();
        self.child.wait().expect("a child");
    }

    /// An orderly end; whether it went well.
    pub fn stop(&mut self) -> bool {
        let id = rustix::process::Pid::from_raw(self.child.id() as i32).expect("a process");
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.success();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill();
        false
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default()
    }

    pub fn status(&self) -> Answer {
        self.ask(&json!({ "op": "status" }))
    }

    pub fn ask(&self, request: &Value) -> Answer {
        let answer = || -> io::Result<Value> {
            let mut stream = UnixStream::connect(&self.control)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            writeln!(stream, "{request}")?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line)?;
            serde_json::from_str(&line).map_err(io::Error::other)
        };
        let Ok(answer) = answer() else { return Answer::Gone };
        match (answer["ok"].as_bool(), answer["error"].as_str()) {
            (Some(true), _) => Answer::Done(answer),
            (_, Some(why)) if why.contains("may be forgotten") => Answer::Unremembered,
            (_, why) => Answer::Refused(why.unwrap_or_default().to_owned()),
        }
    }
}

/// The command that is tested: the one just built, or `$HENGE`.
pub fn henge() -> Command {
    Command::new(std::env::var_os("HENGE").unwrap_or_else(|| env!("CARGO_BIN_EXE_henge").into()))
}

/// What sets the clock off for one process: Debian's libfaketime, where it is.
pub fn clock() -> Option<PathBuf> {
    let name = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
    [name, "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1"]
        .iter()
        .map(PathBuf::from)
        .find(|p| p.exists())
}

/// Makes the device a pool.
pub fn format(folders: &Folders, name: &str) -> Result<(), String> {
    let device = folders.mounted.join("device");
    let mut command = henge();
    command.args(["pool", "format"]).arg(device).args(["--name", name, "--force"]);
    let output = command.stdin(Stdio::null()).output().expect("the command starts");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
