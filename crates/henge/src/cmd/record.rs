//! `henge record`: a node's live requests as a scenario, and what would be if.

use crate::recording::{self, Bounds, Recording};
use anyhow::{Context, Result, bail};
use henge_core::Duration;
use henge_node::Signals;
use henge_study::study::{Options, Study};
use henge_study::{compare, sim};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Records what is asked of a node, without any data, and the node goes on undisturbed. Some what-ifs, each in one command:

    henge record --for 30s                                   # into the directory recording/
    henge record --for 30s --compare sfq,cvc --report page   # what if CVC instead of SFQ(D)? page/index.html shows it
    henge record --for 30s --times web=2 --report page       # what if the tenant web doubled?
    henge record --from recording --times web=3              # the same load again, another question
    henge sim recording/scenario.toml --set flow.web.contract.limit=900/s
    henge trace info recording/web.trace

Over days, the busiest minutes are kept, for `henge plan`:

    henge record --for 7d --keep 12 -o week                  # 12 windows of 1 min, at most 1GiB";

/// The longest recording.
const DAYS_MAX: u64 = 31;

/// Arguments of `henge record`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The node's control socket
    #[arg(long, value_name = "SOCKET", env = "HENGE_NODE", default_value = "/run/henge/node.sock")]
    node: PathBuf,
    /// How long
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = time)]
    time: Duration,
    /// Cut the time into windows, and keep so many: those in which most commands were pending
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000), conflicts_with = "from")]
    keep: Option<u64>,
    /// With --keep: how long a window is, 1s to 1h; it ends early at 2 million commands
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = window, requires = "keep")]
    window: Duration,
    /// With --keep: most bytes on disk; while a window is written, 256 MB more
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = room, requires = "keep")]
    room: u64,
    /// Only the disks that lie on this pool
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Where to
    #[arg(short, long, value_name = "DIR", default_value = "recording")]
    output: PathBuf,
    /// Record nothing: ask what-ifs of an earlier recording
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "pool", "time"])]
    from: Option<PathBuf>,
    /// What if under these schedulers? The same load under each: sfq,cvc
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    compare: Vec<String>,
    /// What if these disks' loads were multiplied? web=2
    #[arg(long, value_name = "DISK=N", value_delimiter = ',')]
    times: Vec<String>,
    /// What if this were different? flow.web.contract.rate=300/s
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A page that shows the outcome, with its figures as SVG, PNG and CSV
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    let time = henge_core::parse_duration(text).map_err(|e| e.to_string())?;
    let allowed = Duration::from_secs(1)..=Duration::from_secs(DAYS_MAX * 24 * 3600);
    if allowed.contains(&time) { Ok(time) } else { Err("record for 1s to 31d".into()) }
}

fn window(text: &str) -> Result<Duration, String> {
    let time = henge_core::parse_duration(text).map_err(|e| e.to_string())?;
    let allowed = Duration::from_secs(1)..=Duration::from_secs(3600);
    if allowed.contains(&time) { Ok(time) } else { Err("a window is 1s to 1h long".into()) }
}

fn room(text: &str) -> Result<u64, String> {
    let room = henge_core::parse_size(text).map_err(|e| e.to_string())?;
    if room >= 1 << 20 { Ok(room) } else { Err("room is at least 1MiB".into()) }
}

/// Runs it.
pub fn run(args: Args) -> Result<ExitCode> {
    let asked = !(args.compare.is_empty() && args.times.is_empty() && args.set.is_empty());
    if let Some(keep) = args.keep {
        if asked || args.report.is_some() {
            bail!("--keep records windows; ask what-ifs of one of them by --from, or of all by `henge plan`");
        }
        windows(&args, keep as usize)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.time > Duration::from_secs(24 * 3600) {
        bail!(
            "more than 24h in one piece is too much to simulate; add --keep 12 to keep the busiest minutes"
        );
    }
    let dir = match &args.from {
        Some(dir) => dir.clone(),
        None => {
            let recording = listen(&args)?;
            recording.write(&args.output)?;
            eprintln!("{}: {}", args.output.join("scenario.toml").display(), recording.about());
            args.output.clone()
        }
    };
    if asked || args.report.is_some() || args.from.is_some() {
        what_if(&dir, &args)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(args: &Args, request: henge_api::Request) -> Result<henge_api::Reply> {
    let reply = henge_api::ask(&args.node, &request)?;
    match reply.error {
        Some(why) => bail!("{why}"),
        None => Ok(reply),
    }
}

/// The busiest windows of a long time.
fn windows(args: &Args, keep: usize) -> Result<()> {
    let signals = Signals::block();
    let bar = ProgressBar::new(1000);
    let style = ProgressStyle::with_template("recording {wide_bar} {msg}").expect("a sound template");
    bar.set_style(style);
    let bounds = Bounds { window: args.window, keep, room: args.room };
    let ask = |request| ask(args, request);
    let tick = |share: f64| {
        bar.set_position((share * 1000.0) as u64);
        !signals.wait(std::time::Duration::ZERO)
    };
    let said = |what: &str| bar.set_message(what.to_owned());
    let done = recording::rotate((&ask, args.pool.as_deref()), args.time, bounds, &args.output, tick, said);
    bar.finish_and_clear();
    done.with_context(|| format!("recording {}", args.node.display()))?;
    let kept = recording::of_windows(&args.output)?;
    eprintln!("{}: {} windows; `henge plan {0}` asks them", args.output.display(), kept.len());
    Ok(())
}

fn listen(args: &Args) -> Result<Recording> {
    let ask = |request| ask(args, request);
    let signals = Signals::block();
    let bar = ProgressBar::new(1000);
    let style =
        ProgressStyle::with_template("recording {wide_bar} {msg} commands").expect("a sound template");
    bar.set_style(style);
    let recording = recording::record(&ask, args.pool.as_deref(), args.time, |share, commands| {
        bar.set_position((share * 1000.0) as u64);
        bar.set_message(commands.to_string());
        // Ctrl-C ends the recording, not what comes after it.
        !signals.wait(std::time::Duration::ZERO)
    });
    bar.finish_and_clear();
    recording.with_context(|| format!("recording {}", args.node.display()))
}

/// Of the schedulers that are to be compared those that take the contracts; says which do not, and why.
fn possible(dir: &Path, args: &Args) -> Result<Vec<String>> {
    let mut possible = Vec::new();
    for name in &args.compare {
        let mut study = Study::read(&dir.join("scenario.toml"))?;
        sim::change(&mut study, &args.set)?;
        compare::compare(&mut study, std::slice::from_ref(name))?;
        match study.world(None) {
            Ok(_) => possible.push(name.clone()),
            Err(why) => eprintln!("{name} is left out: {why:#}"),
        }
    }
    if possible.is_empty() && !args.compare.is_empty() {
        bail!("none of these schedulers takes the contracts that were recorded; change them by --set");
    }
    Ok(possible)
}

fn what_if(dir: &Path, args: &Args) -> Result<()> {
    let mut study = Study::read(&dir.join("scenario.toml"))?;
    sim::change(&mut study, &args.set)?;
    if !args.times.is_empty() {
        study.experiment.vary(recording::times(dir, &args.times)?);
    }
    for dropped in compare::compare(&mut study, &possible(dir, args)?)? {
        eprintln!("{dropped}");
    }
    let measured = study.run(&Options { quiet: args.json, ..Options::default() })?;
    sim::show(&study, &measured, args.json, args.report.as_deref())
}
