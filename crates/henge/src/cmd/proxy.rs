//! `henge proxy`: before a server of a parallel file system.

use super::anew::{self, HangUps};
use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use henge_node::{Signal, Signals};
use henge_proxy::{Config, Handover, Proof, Proxy, Status, Stop, check};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const FOREVER: Duration = Duration::from_secs(3600);

/// Arguments of `henge proxy`.
#[derive(clap::Args)]
pub struct Args {
    /// The configuration, a TOML file
    #[arg(short, long, value_name = "FILE", required_unless_present = "status")]
    config: Option<PathBuf>,

    /// Say what would work here and what is misconfigured, and do nothing
    #[arg(long)]
    check: bool,

    /// Ask a running proxy, by its control socket, what each application gets
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["config", "check"])]
    status: Option<PathBuf>,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    log: super::log::LogArgs,
}

/// Runs it.
pub fn run(args: Args) -> Result<ExitCode> {
    if let Some(control) = &args.status {
        return status(control, args.json);
    }
    let file = args.config.context("a configuration is needed")?;
    let begun = Instant::now();
    // A signal that comes while the file is read is about what it says later. Who only checks ends at once.
    let signals = (!args.check).then(|| Signals::block().and_hang_up());
    let mut left = Handover::inherited().unwrap_or_default();
    let again = left.configuration.is_some();
    let config = Config::parse(anew::source(&file, left.configuration.take())?)?;
    super::bare::tell(&file);
    if let Some(hint) = &config.hint {
        eprintln!("henge: {hint}");
    }
    let Some(signals) = signals else { return Ok(report(&config)) };
    args.log.start();
    if let Some(Proof::Identity(files)) = config.peers.as_ref().map(|peers| &peers.proof) {
        super::keep_files_private();
        files.identity.clone().map_or(Ok(()), super::ca::follow)?;
    }
    let server = config.server;
    let mut proxy = Proxy::adopt(config.clone(), left)?;
    let mut hang_ups = HangUps::default();
    if again {
        hang_ups.have_begun(begun.elapsed(), Instant::now());
    }
    if again && anew::has_changed(&file, &config.source) {
        hang_ups.ask();
    }
    for address in proxy.addresses() {
        println!("henge proxy: {address} in front of {server}");
    }
    let running = Arc::new(Mutex::new(Running { stop: proxy.stopper(), config, next: None }));
    let asked = running.clone();
    // It ends with the process: the loop may also end by itself.
    std::thread::spawn(move || {
        loop {
            obey(&signals, &mut hang_ups, &asked, &file);
        }
    });
    loop {
        proxy.run()?;
        let mut running = running.lock().expect("no panic while held");
        let ends = running.stop.is_asked_to_leave();
        let Some(mut handover) = proxy.handover().filter(|_| !ends) else { return Ok(ExitCode::SUCCESS) };
        if let Some(next) = running.next.take() {
            running.config = next;
        }
        handover.configuration = Some(running.config.source.text().to_owned());
        handover.exec();
        proxy = Proxy::adopt(running.config.clone(), handover)?;
        running.stop = proxy.stopper();
    }
}

/// The proxy that runs, and what the next one is to be.
struct Running {
    stop: Stop,
    config: Config,
    next: Option<Config>,
}

/// Does what a signal asks for.
fn obey(signals: &Signals, hang_ups: &mut HangUps, running: &Mutex<Running>, file: &Path) {
    let asked = signals.next(hang_ups.patience(FOREVER, Instant::now()));
    let mut running = running.lock().expect("no panic while held");
    match asked {
        Some(Signal::End) if running.stop.is_asked_to_leave() => running.stop.stop(),
        Some(Signal::End) => running.stop.leave(),
        Some(Signal::Anew) => hang_ups.ask(),
        None => {}
    }
    if hang_ups.is_due(Instant::now())
        && let Some(next) = running.stop.begin_anew(file, &running.config)
    {
        running.next = Some(next);
    }
}

fn report(config: &Config) -> ExitCode {
    let findings = check(config);
    for finding in &findings {
        println!("{} {}", if finding.good { "ok     " } else { "WRONG  " }, finding.text);
    }
    if findings.iter().all(|f| f.good) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn status(control: &std::path::Path, json: bool) -> Result<ExitCode> {
    let status = Status::ask(control)?;
    if json {
        println!("{status:#}");
        return Ok(ExitCode::SUCCESS);
    }
    let ms =
        |v: &serde_json::Value| v.as_f64().map_or_else(|| "-".to_owned(), |ns| format!("{:.1} ms", ns / 1e6));
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "application",
        "requests",
        "MB moved",
        "waiting",
        "at server",
        "p50",
        "p95",
        "p99",
        "late",
        "waits for",
    ]);
    for flow in status["flows"].as_array().into_iter().flatten() {
        let number = |key: &str| flow[key].as_u64().unwrap_or(0);
        table.add_row([
            flow["name"].as_str().unwrap_or_default().to_owned(),
            number("requests").to_string(),
            format!("{:.1}", number("bytes") as f64 / 1e6),
            (number("pending") - number("in_flight")).to_string(),
            number("in_flight").to_string(),
            ms(&flow["latency_p50_ns"]),
            ms(&flow["latency_p95_ns"]),
            ms(&flow["latency_p99_ns"]),
            number("late").to_string(),
            flow["waiting"].as_str().unwrap_or("-").to_owned(),
        ]);
    }
    println!("{table}");
    println!(
        "{} connections, {} of {} requests at the server; not as others: {} malformed, {} unfollowed, {} between servers, {} \
         refused, {} too long, {} unsound, {} opaque connections; {} ambiguous to `other`; given up as their clients had: {} waiting, {} unanswered",
        status["connections"],
        status["in_flight"],
        status["depth"],
        status["malformed"],
        status["unfollowed"],
        status["between_servers"],
        status["refused"],
        status["too_long"],
        status["unsound"],
        status["opaque"],
        status["ambiguous"],
        status["expired"],
        status["unanswered"]
    );
    if status["peers"].as_u64().is_some_and(|peers| peers > 0) {
        println!(
            "{} of {} peers linked; {} messages to them in {} bytes, {} from them",
            status["linked"],
            status["peers"],
            status["messages_sent"],
            status["link_bytes_sent"],
            status["messages_received"]
        );
    }
    Ok(ExitCode::SUCCESS)
}
