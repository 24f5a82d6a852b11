//! `henge node`: serve virtual disks.

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
use std::time::Duration;

const SIGNALS: &str = "\
Signals: SIGTERM and SIGINT end it, with every disk flushed. SIGHUP reads the file and starts the program anew in the same process: clients by
NBD without TLS keep their connections. A node with a pool in memory, or with a file that is wrong, says so and goes on as it is.";

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
    let mut config = NodeConfig::read(&args.config)?;
    super::bare::tell(&args.config);
    for (pool, hint) in
        config.pools.iter().filter_map(|pool| Some((&pool.name, pool.scheduler.hint.as_ref()?)))
    {
        eprintln!("henge: pool \"{pool}\": {hint}");
    }
    if args.check {
        for line in henge_node::check(&config)? {
            println!("{line}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    args.log.start();
    super::keep_files_private();
    config.requests = args.requests.or(config.requests);
    for why in config.open_doors() {
        eprintln!("henge: insecure: {why}");
    }
    let told = config.manager.as_ref().is_some_and(|manager| manager.proof.files().is_some());
    if let (false, Some(folder)) = (told, config.tls.as_ref().and_then(|files| files.identity.clone())) {
        // No manager speaks to it by certificates: it asks by itself who is revoked, and renews.
        super::ca::follow(folder)?;
    }
    let signals = Signals::block().and_hang_up();
    let mut left = Handover::inherited();
    loop {
        left = match serve_until(&signals, config, left, &args.config)? {
            Some(left) => left,
            None => return Ok(ExitCode::SUCCESS),
        };
        eprintln!("henge: begins anew, with {} clients", left.clients());
        // Where the program cannot be executed, this one goes on.
        eprintln!("henge: the program cannot be started anew: {}", left.exec());
        config = NodeConfig::read(&args.config)?;
    }
}

/// Serves until a signal asks it to end, or to begin anew: then, with what is left to the program that comes next.
fn serve_until(
    signals: &Signals,
    config: NodeConfig,
    left: Handover,
    file: &Path,
) -> Result<Option<Handover>> {
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
    let page = match http {
        Some(http) => Some(page(&node, http.listen, tls, access)?),
        None => None,
    };
    let asked = loop {
        match signals.next(Duration::from_secs(1)) {
            _ if node.has_ended() => break Signal::End,
            Some(Signal::Anew) => match may_begin_anew(file, lost.as_deref(), &now) {
                Ok(()) => break Signal::Anew,
                Err(why) => eprintln!("henge: SIGHUP: it goes on as it is: {why:#}"),
            },
            Some(Signal::End) => break Signal::End,
            None => {}
        }
    };
    drop(page);
    match asked {
        Signal::Anew => Ok(Some(node.hand_over().context("the node did not end well")?)),
        Signal::End => node.stop().context("the node did not end well").map(|()| None),
    }
}

/// Whether the file says what a node can be, and nothing would be lost.
fn may_begin_anew(file: &Path, lost: Option<&str>, now: &NodeConfig) -> Result<()> {
    if let Some(why) = lost {
        anyhow::bail!("{why}");
    }
    let config = NodeConfig::read(file)?;
    henge_node::could_follow(&config, now)?;
    // Files that it names, too: by then the clients would be let go.
    access(&config)?;
    config.tls.as_ref().map_or(Ok(()), |files| open(files, Clients::Required).map(drop))
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
    let serving = serve(address, tls, Arc::new(source))?;
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
}
