//! `henge node`: serve virtual disks.

use super::anew::{self, HangUps};
use crate::compare::Compares;
use crate::page::NodeSource;
use anyhow::{Context, Result};
use henge_node::{Address, Handover, Node, NodeConfig, Signal, Signals};
use henge_tls::{Clients, Tls, TlsConfig};
use henge_web::{Access, Serving, serve};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SIGNALS: &str = "\
Signals: SIGTERM and SIGINT end it, with every disk flushed. SIGHUP reads the file and starts the program anew in the same process: clients by
NBD without TLS keep their connections. A node with a pool in memory, or with a file that is wrong, says so and goes on as it is. It looks at
the file once a second at most.";

/// Arguments of `henge node`.
#[derive(clap::Args)]
#[command(after_help = SIGNALS)]
pub struct Args {
    /// The configuration, a TOML file
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Say what it would do here, and end
    #[arg(long)]
    check: bool,
    /// Write one row per request to this file, with the simulator's columns
    #[arg(long, value_name = "FILE")]
    requests: Option<PathBuf>,
    #[command(flatten)]
    log: super::log::LogArgs,
}

/// Serves until it is told to end.
pub fn run(args: Args) -> Result<ExitCode> {
    let begun = Instant::now();
    // A signal that comes while the file is read is about what it says later. Who only checks ends at once.
    let signals = (!args.check).then(|| Signals::block().and_hang_up());
    let mut left = Handover::inherited();
    let again = left.configuration.is_some();
    let mut config = NodeConfig::parse(anew::source(&args.config, left.configuration.take())?)?;
    super::bare::tell(&args.config);
    for (pool, hint) in
        config.pools.iter().filter_map(|pool| Some((&pool.name, pool.scheduler.hint.as_ref()?)))
    {
        eprintln!("henge: pool \"{pool}\": {hint}");
    }
    let Some(signals) = signals else {
        for line in henge_node::check(&config)? {
            println!("{line}");
        }
        return Ok(ExitCode::SUCCESS);
    };
    args.log.start();
    super::keep_files_private();
    for why in config.open_doors() {
        eprintln!("henge: insecure: {why}");
    }
    let told = config.manager.as_ref().is_some_and(|manager| manager.proof.files().is_some());
    if let (false, Some(folder)) = (told, config.tls.as_ref().and_then(|files| files.identity.clone())) {
        // No manager speaks to it by certificates: it asks by itself who is revoked, and renews.
        super::ca::follow(folder)?;
    }
    let mut hang_ups = HangUps::default();
    loop {
        config.requests = args.requests.clone().or(config.requests);
        if again && anew::has_changed(&args.config, &config.source) {
            hang_ups.ask();
        }
        let since = again.then_some(begun);
        (left, config) = match serve_until(&signals, (&mut hang_ups, since), config, left, &args.config)? {
            Some(next) => next,
            None => return Ok(ExitCode::SUCCESS),
        };
        eprintln!("henge: begins anew, with {} clients", left.clients());
        left.configuration = Some(config.source.text().to_owned());
        // Where the program cannot be executed, this one goes on.
        eprintln!("henge: the program cannot be started anew: {}", left.exec());
    }
}

/// Serves until a signal asks it to end, or to begin anew: then, with what is left to the program that comes next, and what that one is to be.
fn serve_until(
    signals: &Signals,
    (hang_ups, since): (&mut HangUps, Option<Instant>),
    config: NodeConfig,
    left: Handover,
    file: &Path,
) -> Result<Option<(Handover, NodeConfig)>> {
    let http = config.http.clone();
    let tls = match (&http, &config.tls) {
        (Some(http), Some(tls)) if http.secure => Some(certificates(tls)?),
        _ => None,
    };
    let access = access(&config)?;
    let disks: Vec<String> = config.disks.iter().map(|disk| disk.name.clone()).collect();
    let lost = Node::cannot_be_handed_over(&config);
    let now = config.clone();
    let node = Node::go_on(config, left)?;
    let failed = node.control().status()?.failed;
    let served: Vec<String> =
        disks.into_iter().filter(|name| !failed.iter().any(|f| f.name == *name)).collect();
    for address in node.addresses() {
        announce(address, &served);
    }
    for disk in failed {
        eprintln!("henge: disk \"{}\" is not served: {}", disk.name, disk.why);
    }
    if let Some(since) = since {
        hang_ups.have_begun(since.elapsed(), Instant::now());
    }
    let page = match http {
        Some(http) => Some(page(&node, http.listen, tls, access)?),
        None => None,
    };
    let next = loop {
        match signals.next(hang_ups.patience(Duration::from_secs(1), Instant::now())) {
            _ if node.has_ended() => break None,
            Some(Signal::Anew) => hang_ups.ask(),
            Some(Signal::End) => break None,
            None => {}
        }
        if hang_ups.is_due(Instant::now()) {
            match may_begin_anew(file, lost.as_deref(), &now) {
                Ok(next) => break Some(next),
                Err(why) => eprintln!("henge: SIGHUP: it goes on as it is: {why:#}"),
            }
        }
    };
    drop(page);
    match next {
        Some(next) => Ok(Some((node.hand_over().context("the node did not end well")?, next))),
        None => node.stop().context("the node did not end well").map(|()| None),
    }
}

/// What the file says, if a node can be that, and nothing would be lost.
fn may_begin_anew(file: &Path, lost: Option<&str>, now: &NodeConfig) -> Result<NodeConfig> {
    if let Some(why) = lost {
        anyhow::bail!("{why}");
    }
    let config = NodeConfig::read(file)?;
    henge_node::could_follow(&config, now)?;
    // Files that it names, too: by then the clients would be let go.
    access(&config)?;
    config.tls.as_ref().map_or(Ok(()), |files| open(files, Clients::Required).map(drop))?;
    Ok(config)
}

/// Who may see the page.
fn access(config: &NodeConfig) -> Result<Access> {
    match config.http.as_ref().and_then(|http| http.token_file.as_deref()) {
        Some(path) => Ok(Access::read(path)?),
        None => Ok(Access::default()),
    }
}

fn open(files: &TlsConfig, clients: Clients) -> Result<Tls> {
    Tls::open(files, clients).map_err(|e| anyhow::anyhow!(e.message))
}

/// The node's certificate, for browsers, which show none of their own.
fn certificates(files: &TlsConfig) -> Result<Arc<Tls>> {
    let tls = Arc::new(open(files, Clients::Offered)?);
    tls.follow(|| ())?;
    Ok(tls)
}

/// Serves a node's web page, under this machine's name, and says where.
pub fn page(node: &Node, address: SocketAddr, tls: Option<Arc<Tls>>, access: Access) -> Result<Serving> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let comparer = Arc::new(Compares::new(node.control().clone()));
    let (control, addresses) = (node.control().clone(), node.addresses().to_vec());
    let source = NodeSource { name, control, addresses, access, comparer: Some(comparer) };
    let serving = serve(address, tls, Arc::new(source), henge_io::give_way)?;
    eprintln!("web page {}", serving.url());
    Ok(serving)
}

fn announce(address: &Address, disks: &[String]) {
    match (disks, address) {
        ([], address) if address.scheme.attaches => println!("listening on {address}"),
        // Not an address but what attaches it.
        (disks, address) if address.scheme.attaches => {
            disks.iter().for_each(|disk| println!("serving {disk}: {}", address.uri(disk)))
        }
        ([], _) => println!("listening on {}", address.uri("")),
        (disks, _) => disks.iter().for_each(|disk| println!("serving {}", address.uri(disk))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the file names is missing, or is no certificate: the program that is there goes on.
    #[test]
    fn a_node_begins_anew_only_where_it_can_begin() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("no.pem"), "no certificate").unwrap();
        let config = path("node.toml");
        for (lines, may) in [
            ("", true),
            ("http = { listen = \"127.0.0.1:0\", token_file = \"no.token\" }\n", false),
            (
                "listen = \"nbds://127.0.0.1:0\"\n\
                 tls = { certificate = \"no.pem\", key = \"no.pem\", ca = \"no.pem\" }\n",
                false,
            ),
        ] {
            let pool =
                "state_dir = \"no.state\"\n[[pool]]\nname = \"p\"\npath = \"p\"\ncapacity = \"1MiB\"\n";
            let lines = format!("{lines}{pool}");
            let text = lines.replace("no.", &format!("{}/no.", dir.path().display()));
            std::fs::write(&config, text).unwrap();
            let now = NodeConfig::read(&config).unwrap_or_else(|e| panic!("the file itself is right: {e}"));
            assert_eq!(may_begin_anew(&config, None, &now).is_ok(), may, "{lines}");
            assert!(may_begin_anew(&config, Some("a pool in memory"), &now).is_err());
        }
    }

    /// Whatever its name leads to, the program that is there goes on, and says why in one line.
    #[test]
    fn a_node_begins_anew_from_nothing_but_a_file() {
        use rustix::fs::{CWD, Mode, mkfifoat};
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let text = format!(
            "state_dir = \"{0}/state\"\n[[pool]]\nname = \"p\"\npath = \"{0}/p\"\ncapacity = \"1MiB\"\n",
            dir.path().display()
        );
        std::fs::write(path("right"), &text).unwrap();
        let now = NodeConfig::read(&path("right")).unwrap();
        mkfifoat(CWD, path("pipe"), Mode::RUSR).unwrap();
        std::os::unix::fs::symlink(path("loop"), path("loop")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("zero")).unwrap();
        std::fs::File::create(path("huge")).unwrap().set_len(1 << 30).unwrap();
        std::fs::write(path("bytes"), b"\xff").unwrap();
        for (name, says) in [
            (".", "a directory"),
            ("pipe", "a pipe"),
            ("loop", "symbolic links"),
            ("zero", "a device"),
            ("huge", "longer than"),
            ("bytes", "not UTF-8"),
            ("none", "No such file"),
        ] {
            let why = format!("{:#}", may_begin_anew(&path(name), None, &now).unwrap_err());
            assert!(why.contains(says) && !why.contains('\n'), "{why}");
        }
        for (name, text) in [
            ("half", text[..text.len() - 3].to_owned()),
            ("twice", format!("{text}[[pool]]\nname = \"p\"\npath = \"q\"\ncapacity = \"1MiB\"\n")),
            ("deep", format!("x = {}", "[".repeat(10_000))),
        ] {
            std::fs::write(path(name), text).unwrap();
            assert!(may_begin_anew(&path(name), None, &now).is_err(), "{name}");
        }
        assert!(may_begin_anew(&path("right"), None, &now).is_ok());
    }
}
