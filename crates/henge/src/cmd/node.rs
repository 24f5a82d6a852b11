//! `henge node`: serve virtual disks.

use crate::compare::Compares;
use crate::page::NodeSource;
use anyhow::{Context, Result};
use henge_node::{Address, Node, NodeConfig, Signals};
use henge_tls::{Clients, Tls, TlsConfig};
use henge_web::{Access, Serving, serve};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Arguments of `henge node`.
#[derive(clap::Args)]
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
    for why in &config.open {
        eprintln!("henge: insecure: {why}");
    }
    let http = config.http.clone();
    let tls = match (&http, &config.tls) {
        (Some(http), Some(tls)) if http.secure => Some(certificates(tls)?),
        _ => None,
    };
    let access = match http.as_ref().and_then(|http| http.token_file.as_deref()) {
        Some(path) => Access::read(path)?,
        None => Access::default(),
    };
    let disks: Vec<String> = config.disks.iter().map(|disk| disk.name.clone()).collect();
    let signals = Signals::block();
    let node = Node::start(config)?;
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
    while !signals.wait(Duration::from_secs(1)) && !node.has_ended() {}
    drop(page);
    node.stop().context("the node did not end well")?;
    Ok(ExitCode::SUCCESS)
}

/// The node's certificate, for browsers, which show none of their own.
fn certificates(files: &TlsConfig) -> Result<Arc<Tls>> {
    let tls = Arc::new(Tls::open(files, Clients::Offered).map_err(|e| anyhow::anyhow!(e.message))?);
    tls.follow()?;
    Ok(tls)
}

/// Serves a node's web page, under this machine's name, and says where.
pub fn page(node: &Node, address: SocketAddr, tls: Option<Arc<Tls>>, access: Access) -> Result<Serving> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let comparer = Arc::new(Compares::new(node.control().clone()));
    let source = NodeSource { name, control: node.control().clone(), access, comparer: Some(comparer) };
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
