//! `henge manager`: decide over virtual disks on many nodes.

use anyhow::Result;
use henge_manager::{Leadership, Manager, ManagerConfig};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const EXAMPLE: &str = "\
A manager's configuration:

    listen = \"127.0.0.1:7100\"            # the API: `henge vd`, `henge nodes`, /api/v1/openapi.json
    nodes = \"0.0.0.0:7101\"               # where nodes dial
    state_dir = \"/var/lib/henge-manager\" # what it remembers; admin.token is made there
    cluster = \"demo\"                    # it signs certificates, and speaks TLS: henge ca --help; or, in clear:
    # secret_file = \"/etc/henge/secret\"  # what all nodes know: openssl rand -hex 32

    audit = \"file\"                     # who changed what: state_dir/audit.jsonl; or \"stderr\", \"syslog\", \"none\", { keep = \"90d\" }
    page = \"127.0.0.1:7180\"             # the web page, and /metrics for Prometheus
    admission = \"measured\"               # or \"worst-case\"
    tags = \"local\"                      # or \"central\": finish times of disks over several nodes, made here by the whole rate
    period = \"60s\"                       # nodes tell what they saw so often
    window = \"24h\"                       # what a measurement covers
    settle = \"1h\"                        # after an admission, until measurements are believed again

The state is a file in state_dir. Where the manager itself must not be missed, run several and keep it in etcd
(3.4 or newer): one of them leads, the others answer 503 and say who does; when it is away for as long as the
lease, another one takes over, and nodes go there. Each has its own listen and nodes:

    advertise = \"http://10.0.0.1:7100\"   # where this one's API is, for those who ask another one
    [etcd]
    endpoints = [\"http://10.0.0.1:2379\", \"http://10.0.0.2:2379\", \"http://10.0.0.3:2379\"]
    prefix = \"henge/\"                    # what all keys begin with
    lease = \"5s\"
    user = \"henge\"                      # where etcd has users; its role needs readwrite on the prefix
    password_file = \"/etc/henge/etcd-password\"
    ca_file = \"/etc/henge/etcd-ca.pem\"  # for endpoints that begin with https://
    cert_file = \"/etc/henge/etcd.pem\"   # where etcd asks for a certificate, without a CommonName if it has users
    key_file = \"/etc/henge/etcd-key.pem\"

Start etcd with --auto-compaction-retention=1h, else it keeps every change. The first administrator's token lies in
the state_dir of the manager that led first; HENGE_MANAGER may name several: http://10.0.0.1:7100,http://10.0.0.2:7100

And in each node's:

    state_dir = \"/var/lib/henge\"
    [manager]
    address = \"10.0.0.1:7101\"           # several: [\"10.0.0.1:7101\", \"10.0.0.2:7101\"]
    name = \"node1\"                     # and at the top: identity = \"/etc/henge/identity\", from `henge join`
    [[pool]]
    profile = { iops = \"500/s\", service = \"14ms\" }   # measured at saturation

Then: henge vd create web capacity=96GB rate=675/s latency=120ms percentile=95";

/// Arguments of `henge manager`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    /// The configuration, a TOML file
    #[arg(short, long, value_name = "FILE", required_unless_present = "openapi")]
    config: Option<PathBuf>,
    /// Say what the configuration means, and end
    #[arg(long)]
    check: bool,
    /// Print the API's OpenAPI document, and end
    #[arg(long)]
    openapi: bool,
    #[command(flatten)]
    log: super::log::LogArgs,
}

/// Serves until it is told to end.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.openapi {
        print!("{}", henge_manager::openapi());
        return Ok(ExitCode::SUCCESS);
    }
    let file = args.config.unwrap_or_default();
    let config = ManagerConfig::read(&file)?;
    super::bare::tell(&file);
    if args.check {
        check(&config);
        return Ok(ExitCode::SUCCESS);
    }
    args.log.start();
    for why in &config.open {
        eprintln!("henge: insecure: {why}");
    }
    super::keep_files_private();
    let runtime = henge_web::runtime().build()?;
    runtime.block_on(async {
        let mut interrupt = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let mut hang_up = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?;
        let manager = Manager::start(config).await?;
        println!("the API is at {}/api/v1", manager.url()?);
        if let Some(dir) = manager.identity() {
            println!("who signs for it: {}", dir.join("ca.pem").display());
        }
        println!("nodes dial {}", manager.nodes()?);
        if let Some(page) = manager.page() {
            println!("web page {page}");
        }
        if let Some(path) = manager.first_token().await? {
            println!("the administrator's token is in {}", path.display());
        }
        match manager.leadership() {
            Leadership::Ours => {}
            Leadership::Theirs(Some(leader)) => println!("{leader} leads; this one waits to take over"),
            Leadership::Theirs(None) => println!("nobody leads yet"),
        }
        let stop = async move {
            let mut said: Option<Instant> = None;
            loop {
                tokio::select! {
                    _ = interrupt.recv() => break,
                    _ = terminate.recv() => break,
                    // Whoever sends it to all programs of Henge must not end this one.
                    Some(()) = hang_up.recv() => if said.is_none_or(|at| at.elapsed() >= Duration::from_secs(1)) {
                        eprintln!("henge: SIGHUP: a manager reads its file when it starts; it goes on as it is");
                        said = Some(Instant::now());
                    }
                }
            }
        };
        manager.serve(stop).await?;
        Ok(ExitCode::SUCCESS)
    })
}

fn check(config: &ManagerConfig) {
    let settings = &config.settings;
    let scheme = if config.cluster.is_some() || config.tls.is_some() { "https" } else { "http" };
    println!("API       {scheme}://{}/api/v1", config.listen);
    if let Some(cluster) = &config.cluster {
        let hosts = cluster.hosts.join(", ");
        println!("authority of the cluster {}, as manager {}, reached as {hosts}", cluster.name, cluster.own);
    }
    println!("nodes     dial {}", config.nodes);
    match &config.etcd {
        None => println!("state     {}", config.state_dir.join("state.redb").display()),
        Some(etcd) => println!(
            "state     in etcd at {}{}, below {}; a lease of {} s; others find the API at {}",
            etcd.endpoints.join(", "),
            etcd.login.as_ref().map_or_else(String::new, |login| format!(" as {}", login.user)),
            etcd.prefix,
            etcd.lease,
            etcd.advertise
        ),
    }
    let seconds = |ms: u64| henge_core::Duration::from_millis(ms);
    match settings.rules {
        Some(_) => println!(
            "admission by worst case, and by measurement where that admits more: periods of {}, a window of {}, \
             {} to settle",
            seconds(settings.period_ms),
            seconds(settings.window_ms),
            seconds(settings.settle_ms)
        ),
        None => println!("admission by worst case alone"),
    }
}
