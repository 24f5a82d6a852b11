//! `henge manager`: decide over virtual disks on many nodes.

use anyhow::Result;
use henge_manager::{Manager, ManagerConfig};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLE: &str = "\
A manager's configuration:

    listen = \"127.0.0.1:7100\"            # the API: `henge vd`, `henge nodes`, /api/v1/openapi.json
    nodes = \"0.0.0.0:7101\"               # where nodes dial
    state_dir = \"/var/lib/henge-manager\" # what it remembers; admin.token is made there
    secret_file = \"/etc/henge/secret\"    # what all nodes know: openssl rand -hex 32

    page = \"127.0.0.1:7180\"             # the web page, and /metrics for Prometheus
    admission = \"measured\"               # or \"worst-case\"
    period = \"60s\"                       # nodes tell what they saw so often
    window = \"24h\"                       # what a measurement covers
    settle = \"1h\"                        # after an admission, until measurements are believed again

And in each node's:

    state_dir = \"/var/lib/henge\"
    [manager]
    address = \"10.0.0.1:7101\"
    name = \"node1\"
    secret_file = \"/etc/henge/secret\"
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
}

/// Serves until it is told to end.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.openapi {
        print!("{}", henge_manager::openapi());
        return Ok(ExitCode::SUCCESS);
    }
    let config = ManagerConfig::read(&args.config.unwrap_or_default())?;
    if args.check {
        check(&config);
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let manager = Manager::start(config).await?;
        println!("the API is at http://{}/api/v1", manager.api()?);
        println!("nodes dial {}", manager.nodes()?);
        if let Some(page) = manager.page() {
            println!("web page http://{page}");
        }
        if let Some(path) = manager.new_token() {
            println!("the administrator's token is in {}", path.display());
        }
        let stop = async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        manager.serve(stop).await?;
        Ok(ExitCode::SUCCESS)
    })
}

fn check(config: &ManagerConfig) {
    let settings = &config.settings;
    println!("API       http://{}/api/v1", config.listen);
    println!("nodes     dial {}", config.nodes);
    println!("state     {}", config.state_dir.join("state.redb").display());
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
