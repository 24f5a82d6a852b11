//! `henge cluster`: several nodes on this machine, linked, on emulated disks: to try things out.

use anyhow::{Context, Result, bail, ensure};
use comfy_table::{Table, presets};
use henge_api::{Request, Status};
use henge_node::Signals;
use rustix::process::{Pid, Signal};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Nodes get this long to come up, or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Arguments of `henge cluster`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Start nodes that serve one disk together; Ctrl-C ends them
    Up(Up),
    /// End the nodes that `up --detach` has started
    Down {
        /// The cluster's directory
        dir: PathBuf,
    },
}

#[derive(clap::Args)]
struct Up {
    /// How many
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: u16,
    /// Where configurations, sockets, logs and data are; without it a new one that is removed in the end
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The disk that every node's pool pretends to be, as the configuration writes it
    #[arg(long, default_value = "{ disk = \"dtla-307075\" }", value_name = "DEVICE")]
    emulated: String,
    /// Who goes next on each pool
    #[arg(long, default_value = "{ sfq = { depth = 8 } }", value_name = "SCHEDULER")]
    scheduler: String,
    /// Bytes of the disk "demo", striped over all nodes
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    capacity: String,
    /// Leave the nodes running and return; needs --dir
    #[arg(long, requires = "dir")]
    detach: bool,
}

/// Starts or ends a cluster.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.action {
        Action::Up(up) => bring_up(&up),
        Action::Down { dir } => take_down(&dir),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// One node.
struct Member {
    name: String,
    child: Child,
    uri: String,
    dir: PathBuf,
}

impl Member {
    fn control(&self) -> PathBuf {
        self.dir.join(format!("{}.sock", self.name))
    }
}

/// All of them; whoever lets go of it ends them.
struct Members {
    members: Vec<Member>,
    /// They stay when this process ends.
    detached: bool,
}

impl Drop for Members {
    fn drop(&mut self) {
        if self.detached {
            return;
        }
        for member in &self.members {
            signal(member.child.id(), Signal::TERM);
        }
        for member in &mut self.members {
            let _ = member.child.wait();
        }
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // Gone already is as good.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn bring_up(up: &Up) -> Result<()> {
    let temporary = up.dir.is_none();
    let dir = match &up.dir {
        Some(dir) => dir.clone(),
        None => std::env::temp_dir().join(format!("henge-cluster-{}", std::process::id())),
    };
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let dir = dir.canonicalize()?;
    ensure!(
        running(&dir)?.is_empty(),
        "a cluster runs in {0}; end it with henge cluster down {0}",
        dir.display()
    );
    let signals = Signals::block();
    let result = serve(up, &dir, &signals);
    if temporary {
        fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
    }
    result
}

fn serve(up: &Up, dir: &Path, signals: &Signals) -> Result<()> {
    let mut members = start(up, dir)?;
    until_linked(&mut members.members)?;
    show(&members.members);
    if up.detach {
        let pids: Vec<String> =
            members.members.iter().map(|m| format!("{} {}\n", m.name, m.child.id())).collect();
        fs::write(dir.join("pids"), pids.concat())?;
        members.detached = true;
        println!("\nend it with: henge cluster down {}", dir.display());
        return Ok(());
    }
    println!("\nin {}; Ctrl-C ends it", dir.display());
    while !signals.wait(Duration::from_millis(500)) {
        for member in &mut members.members {
            if let Some(status) = member.child.try_wait()? {
                println!("node {} has ended: {status}; the others go on", member.name);
            }
        }
        members.members.retain_mut(|m| matches!(m.child.try_wait(), Ok(None)));
        ensure!(!members.members.is_empty(), "all nodes have ended; see the logs in {}", dir.display());
    }
    Ok(())
}

/// Ports that were free a moment ago.
fn ports(count: usize) -> Result<Vec<u16>> {
    let held: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<_>>()?;
    held.iter().map(|socket| Ok(socket.local_addr()?.port())).collect()
}

fn start(up: &Up, dir: &Path) -> Result<Members> {
    let count = usize::from(up.nodes);
    let names: Vec<String> = (1..=count).map(|n| format!("n{n}")).collect();
    let ports = ports(2 * count)?;
    let (links, clients) = ports.split_at(count);
    let pools: Vec<String> = names.iter().map(|name| format!("\"{name}/disk\"")).collect();
    let secret = dir.join("secret");
    if !secret.exists() {
        let mut random = [0; 16];
        fs::File::open("/dev/urandom").and_then(|mut f| std::io::Read::read_exact(&mut f, &mut random))?;
        let text: String = random.iter().map(|b| format!("{b:02x}")).collect();
        write_private(&secret, &text)?;
    }
    let mut members = Members { members: Vec::new(), detached: false };
    for (i, name) in names.iter().enumerate() {
        let at = |file: &str| dir.join(file).display().to_string();
        let mut text = format!(
            "listen = \"nbd://127.0.0.1:{}\"\ncontrol = {:?}\nstate_dir = {:?}\n\n\
             [link]\nname = \"{name}\"\nlisten = \"127.0.0.1:{}\"\nsecret_file = {:?}\n",
            clients[i],
            at(&format!("{name}.sock")),
            at(&format!("{name}.state")),
            links[i],
            at("secret"),
        );
        for (j, peer) in names.iter().enumerate().filter(|(j, _)| *j != i) {
            text += &format!("\n[[peer]]\nname = \"{peer}\"\naddress = \"127.0.0.1:{}\"\n", links[j]);
        }
        text += &format!(
            "\n[[pool]]\nname = \"disk\"\npath = {:?}\nemulated = {}\nscheduler = {}\n\n\
             [[disk]]\nname = \"demo\"\npools = [{}]\nstripe = \"64KiB\"\ncapacity = {:?}\n",
            at(&format!("{name}.data")),
            up.emulated,
            up.scheduler,
            pools.join(", "),
            up.capacity,
        );
        let file = dir.join(format!("{name}.toml"));
        fs::write(&file, text)?;
        let log = fs::File::create(dir.join(format!("{name}.log")))?;
        let child = Command::new(std::env::current_exe()?)
            .args(["node", "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let uri = format!("nbd://127.0.0.1:{}/demo", clients[i]);
        members.members.push(Member { name: name.clone(), child, uri, dir: dir.to_owned() });
    }
    Ok(members)
}

fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}

fn until_linked(members: &mut [Member]) -> Result<()> {
    let begun = Instant::now();
    loop {
        let mut waiting = None;
        for member in members.iter_mut() {
            if let Some(status) = member.child.try_wait()? {
                let log = fs::read_to_string(member.dir.join(format!("{}.log", member.name)))?;
                bail!("node {} has ended: {status}\n{}", member.name, log.trim_end());
            }
            match status(&member.control()) {
                Some(status) => {
                    let down = status.peers.iter().find(|peer| !peer.linked);
                    let down = down.map(|peer| format!("{} is not linked to {}", member.name, peer.name));
                    let trouble = status.disks.iter().find_map(|disk| disk.layout.trouble.first().cloned());
                    waiting = waiting.or(down).or(trouble);
                }
                None => waiting = waiting.or(Some(format!("{} does not answer", member.name))),
            }
        }
        match waiting {
            None => return Ok(()),
            Some(what) if begun.elapsed() > PATIENCE => bail!("{what}"),
            Some(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn status(control: &Path) -> Option<Status> {
    henge_api::ask(control, &Request::Status).ok()?.status
}

fn show(members: &[Member]) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["NODE", "PID", "URI", "CONTROL SOCKET"]);
    for member in members {
        table.add_row([
            member.name.clone(),
            member.child.id().to_string(),
            member.uri.clone(),
            member.control().display().to_string(),
        ]);
    }
    println!("{table}");
}

/// The nodes of a directory that run: their names and process ids.
fn running(dir: &Path) -> Result<Vec<(String, u32)>> {
    let Ok(text) = fs::read_to_string(dir.join("pids")) else { return Ok(Vec::new()) };
    let member = |line: &str| -> Option<(String, u32)> {
        let (name, pid) = line.split_once(' ')?;
        let pid = pid.parse().ok()?;
        // Another process may have the number by now.
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let file = dir.join(format!("{name}.toml")).display().to_string();
        command.split(|b| *b == 0).any(|word| word == file.as_bytes()).then(|| (name.to_owned(), pid))
    };
    Ok(text.lines().filter_map(member).collect())
}

fn take_down(dir: &Path) -> Result<()> {
    let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
    ensure!(dir.join("pids").exists(), "{} has no cluster that was started with --detach", dir.display());
    let members = running(&dir)?;
    for (_, pid) in &members {
        signal(*pid, Signal::TERM);
    }
    let begun = Instant::now();
    while !running(&dir)?.is_empty() {
        ensure!(begun.elapsed() < PATIENCE, "some nodes do not end; see the logs in {}", dir.display());
        std::thread::sleep(Duration::from_millis(50));
    }
    fs::remove_file(dir.join("pids"))?;
    println!("{} nodes ended; configurations, logs and data are in {}", members.len(), dir.display());
    Ok(())
}
