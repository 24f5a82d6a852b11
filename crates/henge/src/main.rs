//! The one command.

mod cmd;
mod compare;
mod nbd;
mod page;
mod plan;
mod recording;
mod when;

use clap::{Parser, Subcommand};
use std::sync::OnceLock;

/// Storage that performs as promised, whatever the neighbours do.
#[derive(Parser)]
#[command(version = version(), about, propagate_version = true)]
struct Henge {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// See it work: three tenants on emulated disk arrays, under three schedulers
    Demo(cmd::demo::Args),
    /// Serve virtual disks
    Node(cmd::node::Args),
    /// Start several linked nodes on this machine, on emulated disks
    Cluster(cmd::cluster::Args),
    /// Stand before a server of a parallel file system and share it between applications
    Proxy(cmd::proxy::Args),
    /// Decide over virtual disks on many nodes: admit, place, remember
    Manager(cmd::manager::Args),
    /// Nodes of a manager
    Nodes(cmd::nodes::Args),
    /// A cluster's authority: invite, revoke, exchange its root
    Ca(cmd::ca::Args),
    /// Join a cluster by a one-time token: a key, a certificate, and whom to believe
    Join(cmd::ca::JoinArgs),
    /// Exchange a certificate that `henge join` fetched for a new one
    Renew(cmd::ca::RenewArgs),
    /// Tenants of a manager: what each may have, has, and has left
    Tenant(cmd::tenant::Args),
    /// Who may ask a manager
    Token(cmd::nodes::TokenArgs),
    /// Virtual disks of a manager, or of one running node
    Vd(cmd::vd::Args),
    /// Pools while no node serves them: format a device, look, mend, rename, adopt what a disk left
    Pool(cmd::pool::Args),
    /// Measure a device, an export or a model, and write the lines of its pool
    Profile(cmd::profile::Args),
    /// Plan: what fits on this hardware?
    Admit(cmd::admit::Args),
    /// Run a scenario in simulated time
    Sim(henge_study::sim::Args),
    /// Who is promised what and gets what, live in a terminal
    Top(cmd::top::Args),
    /// Would a change break a promise? Tried on what was recorded
    Plan(cmd::plan::Args),
    /// Record a node's live requests, and ask what would be if
    Record(cmd::record::Args),
    /// Repeat the papers' experiments and compare
    Reproduce(henge_study::reproduce::Args),
    /// Look at traces of requests, change them, replay them, compare runs
    Trace(Box<cmd::trace::Args>),
    /// What a disk attached by NVMe tells of its service
    Nvme(cmd::nvme::Args),
    /// Look at disk models
    Disk(cmd::disk::Args),
    /// Write the manual pages
    Man(cmd::manual::ManArgs),
    /// Write completions for a shell
    Completions(cmd::manual::CompletionsArgs),
    /// Say whether a command line or a file is understood, and do nothing
    #[command(hide = true)]
    Parse(cmd::parse::Args),
}

/// The version, and the commit where the build was told of it (`make build` does).
fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| match option_env!("HENGE_COMMIT") {
        Some(commit) if !commit.is_empty() => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        _ => env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Whether words are a command line, terms of disks and tenants included.
fn understood(words: Vec<std::ffi::OsString>) -> anyhow::Result<()> {
    match Henge::try_parse_from(words)?.command {
        Command::Vd(args) => cmd::vd::understood(&args),
        Command::Tenant(args) => cmd::tenant::understood(args),
        _ => Ok(()),
    }
}

/// Whoever reads our output and has seen enough (`henge vd list | head -3`) ends us without a word, as other tools do.
fn end_with_our_reader() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or_default();
        if text.starts_with("failed printing to stdout") && text.contains("Broken pipe") {
            std::process::exit(141); // 128 + SIGPIPE
        }
        usual(panic);
    }));
}

fn main() -> std::process::ExitCode {
    end_with_our_reader();
    let result = match Henge::parse().command {
        Command::Demo(args) => cmd::demo::run(args),
        Command::Pool(args) => cmd::pool::run(args),
        Command::Profile(args) => cmd::profile::run(args),
        Command::Admit(args) => cmd::admit::run(args),
        Command::Proxy(args) => cmd::proxy::run(args),
        Command::Sim(args) => henge_study::sim::run(args),
        Command::Nvme(args) => cmd::nvme::run(args),
        Command::Disk(args) => cmd::disk::run(args),
        Command::Top(args) => cmd::top::run(args),
        Command::Plan(args) => Ok(cmd::plan::run(args)),
        Command::Record(args) => cmd::record::run(args),
        Command::Reproduce(args) => henge_study::reproduce::run(args),
        Command::Trace(args) => cmd::trace::run(*args),
        Command::Node(args) => cmd::node::run(args),
        Command::Cluster(args) => cmd::cluster::run(args),
        Command::Vd(args) => cmd::vd::run(args),
        Command::Manager(args) => cmd::manager::run(args),
        Command::Nodes(args) => cmd::nodes::run(args),
        Command::Ca(args) => cmd::ca::run(args),
        Command::Join(args) => cmd::ca::join(args),
        Command::Renew(args) => cmd::ca::renew(args),
        Command::Tenant(args) => cmd::tenant::run(args),
        Command::Token(args) => cmd::nodes::run_token(args),
        Command::Man(args) => cmd::manual::man::<Henge>(args),
        Command::Completions(args) => Ok(cmd::manual::completions::<Henge>(args)),
        Command::Parse(args) => cmd::parse::run(args, understood),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("henge: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
