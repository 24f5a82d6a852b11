//! `henge vd propose`: the cheapest contract that what was recorded would have kept.

use super::admit::table_of;
use crate::plan::{Came, Change, Judged, Need, Recorded, Term, scheduler_of};
use anyhow::{Context, Result, bail};
use henge_core::{CostUnit, Duration};
use henge_study::study::Study;
use henge_workload::{Trace, TraceOptions};
use serde_json::json;
use std::fs::File;
use std::path::{Path, PathBuf};

const ABOUT: &str = "\
The rate is the smallest at which the recorded commands are answered in time if the disk gets that rate and nothing more. Then the \
contract is tried on the recording, neighbours included.";

/// Percentiles that are compared.
const PERCENTILES: [f64; 6] = [100.0, 99.9, 99.0, 95.0, 90.0, 50.0];
/// Most commands of a recording: 16 bytes each, twice.
const COMMANDS_MAX: usize = 30_000_000;
/// A command counts once for each started so many bytes.
const COMMAND_BYTES: u64 = 256 << 10;

/// Arguments of `henge vd propose`.
#[derive(clap::Args)]
#[command(after_help = ABOUT)]
pub struct Args {
    /// The disk's name
    name: String,
    /// What `henge record` wrote, with or without --keep
    #[arg(long, value_name = "DIR", default_value = "recording")]
    from: PathBuf,
    /// Within this. Where it is not said: the contract's latency, else the latency in the recording, rounded up
    #[arg(long, value_name = "TIME", value_parser = time)]
    latency: Option<Duration>,
    /// For so many percent of the commands. Where it is not said: the contract's, else 95
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    percentile: Option<f64>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    henge_core::parse_duration(text).map_err(|e| e.to_string())
}

fn percent(text: &str) -> Result<f64, String> {
    let good = text.parse::<f64>().ok().filter(|p| *p > 0.0 && *p <= 100.0);
    good.ok_or_else(|| format!("\"{text}\" is not a percentile; write it like 95"))
}

/// A contract, and what it rests on.
struct Proposal {
    terms: Vec<(&'static str, String)>,
    scheduler: String,
    reserves: bool,
    unit: CostUnit,
    bound: Duration,
    percentile: f64,
    need: Need,
    /// By percentile, the rate that it needs.
    rates: Vec<(f64, Option<f64>)>,
    /// The disk with the contract, simulated; and neighbours whose promises it would break.
    tried: Judged,
    broken: Vec<String>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<()> {
    let proposal = propose(args)?;
    match args.json {
        true => println!("{:#}", as_json(&args.name, &proposal)),
        false => show(&args.name, &proposal),
    }
    Ok(())
}

fn propose(args: &Args) -> Result<Proposal> {
    let name = &args.name;
    let recorded = Recorded::read(&args.from)?;
    if !recorded.disks.contains(name) {
        let known = recorded.disks.iter().cloned().collect::<Vec<_>>().join(", ");
        bail!("no disk \"{name}\" was recorded; there are: {known}");
    }
    let before = recorded.judge(&Change::default())?;
    let judged = before.get(name).context("a recorded disk is simulated")?;
    let (scheduler, cost) = scheduler_of(&recorded.windows[0])?;
    let unit = judged.contract.units().next().unwrap_or(match cost.as_deref() {
        Some("bytes") => CostUnit::Bytes,
        _ => CostUnit::Requests,
    });
    if unit == CostUnit::DiskTime || judged.contract.disk_time.is_some() {
        bail!("{name} is promised disk time; this finds rates in commands or bytes");
    }
    let percentile = args.percentile.unwrap_or_else(|| judged.percentile());
    let recorded_latency = || judged.latency_at(percentile).map(round_up);
    let bound = args.latency.or(judged.contract.latency.map(|l| l.bound)).or_else(recorded_latency);
    let bound = bound.with_context(|| format!("nothing was answered to {name} in the recording"))?;
    let need = need(&recorded, name, unit, judged)?;
    let rates: Vec<(f64, Option<f64>)> = percentiles(percentile).map(|p| (p, need.rate(bound, p))).collect();
    let chosen = rates.iter().find(|(p, _)| *p == percentile).and_then(|(_, rate)| *rate);
    let rate = chosen.with_context(|| {
        format!("no rate keeps {bound}: the device alone takes {}; allow more by --latency", need.alone)
    })?;
    let (terms, reserves) = terms(&recorded, name, unit, (rate, bound, percentile), &need, &scheduler)?;
    let after = recorded.judge(&with(name, &terms))?;
    let worse = |(other, after): &(&String, &Judged)| {
        *other != name && before.get(*other).is_some_and(|before| after.missed() > before.missed())
    };
    let broken = after.iter().filter(worse).map(|(other, _)| other.clone()).collect();
    let tried = after.get(name).context("a recorded disk is simulated")?.clone();
    Ok(Proposal { terms, scheduler, reserves, unit, bound, percentile, need, rates, tried, broken })
}

fn percentiles(wanted: f64) -> impl Iterator<Item = f64> {
    let mut all: Vec<f64> = PERCENTILES.into_iter().chain([wanted]).collect();
    all.sort_by(|a, b| b.total_cmp(a));
    all.dedup();
    all.into_iter()
}

/// To two digits: 4.13 ms is 4.2 ms.
fn round_up(time: Duration) -> Duration {
    let ns = time.as_nanos().max(1);
    let step = 10u64.pow(ns.ilog10().saturating_sub(1));
    Duration::from_nanos(ns.div_ceil(step) * step)
}

/// The disk's promise is these terms, and no other.
fn with(name: &str, terms: &[(&'static str, String)]) -> Change {
    let gone = ["rate", "limit", "burst", "latency", "percentile"].map(|key| format!("{name}.{key}="));
    let set = terms.iter().map(|(key, value)| format!("{name}.{key}={value}"));
    let set = gone.into_iter().chain(set).map(|text| Term::parse(&text).expect("a name, a key and a value"));
    Change { set: set.collect(), ..Change::default() }
}

/// Of all terms those that the scheduler in force keeps; and whether the rate is reserved.
fn terms(
    recorded: &Recorded,
    name: &str,
    unit: CostUnit,
    (rate, bound, percentile): (f64, Duration, f64),
    need: &Need,
    scheduler: &str,
) -> Result<(Vec<(&'static str, String)>, bool)> {
    let keeps = |terms: &[(&'static str, String)]| recorded.fits(&with(name, terms)).is_ok();
    let amount = |amount: f64| match unit {
        CostUnit::Bytes => format!("{}kB", (amount / 1e3).ceil()),
        _ => format!("{}", amount.ceil()),
    };
    let per_second = format!("{}/s", amount(rate));
    let mut terms = Vec::new();
    let reserves = keeps(&[("rate", per_second.clone())]);
    let first = if reserves { "rate" } else { "limit" };
    terms.push((first, per_second));
    if !keeps(&terms) {
        bail!("{scheduler} keeps neither a rate nor a limit; `henge plan --scheduler mclock` tries another");
    }
    for more in [
        vec![("burst", amount(need.burst(rate, percentile)))],
        vec![("latency", bound.to_string()), ("percentile", percentile.to_string())],
    ] {
        let longer = [terms.clone(), more].concat();
        if keeps(&longer) {
            terms = longer;
        }
    }
    Ok((terms, reserves))
}

fn need(recorded: &Recorded, name: &str, unit: CostUnit, judged: &Judged) -> Result<Need> {
    let alone = judged.latency.quantile(0.01).unwrap_or_default();
    let mut need = Need { alone, ..Need::default() };
    for window in &recorded.windows {
        let path = window.join(format!("{name}.trace"));
        if path.is_file() {
            let time = time_of(window)?;
            let came = came(&path, unit, time, COMMANDS_MAX - need.commands())?;
            need.windows.push((came, time));
        }
    }
    Ok(need)
}

fn time_of(window: &Path) -> Result<Duration> {
    let mut study = Study::read(&window.join("scenario.toml"))?;
    let time = study.experiment.base.duration("duration").map_err(|e| study.source.point(e))?;
    time.context("a recording has a duration")
}

fn came(path: &Path, unit: CostUnit, time: Duration, most: usize) -> Result<Vec<Came>> {
    let named = || path.display().to_string();
    let file = File::open(path).with_context(named)?;
    let trace = Trace::open(&named(), Box::new(file), &TraceOptions::default()).with_context(named)?;
    let mut came = Vec::new();
    for record in trace {
        let record = record.with_context(named)?;
        // A closed loop's trace is written several times, one after another.
        if record.at.as_nanos() >= time.as_nanos() {
            break;
        }
        let counts = match unit {
            CostUnit::Bytes => record.len,
            _ => record.len.div_ceil(COMMAND_BYTES).max(1),
        };
        came.push(Came { at: record.at.as_nanos(), counts: u32::try_from(counts).unwrap_or(u32::MAX) });
        if came.len() > most {
            bail!("{}: more than {COMMANDS_MAX} commands in all; record fewer windows by --keep", named());
        }
    }
    Ok(came)
}

fn line(name: &str, terms: &[(&'static str, String)]) -> String {
    let terms: Vec<String> = terms.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("henge vd set {name} {}", terms.join(" "))
}

fn amount(unit: CostUnit, rate: f64) -> String {
    match unit {
        CostUnit::Bytes => format!("{:.2} MB/s", rate / 1e6),
        _ => format!("{rate:.1}/s"),
    }
}

fn show(name: &str, p: &Proposal) {
    println!("{}\n", line(name, &p.terms));
    let (window, second) = p.need.busiest();
    println!(
        "Rests on {} commands in {} window(s): {} in the busiest window's mean, {} in the busiest second; {:.2} ms for one command alone.",
        p.need.commands(),
        p.need.windows.len(),
        amount(p.unit, window),
        amount(p.unit, second),
        p.need.alone.as_millis_f64()
    );
    let chosen =
        p.rates.iter().find(|(at, _)| *at == p.percentile).and_then(|(_, rate)| *rate).unwrap_or(1.0);
    let bound = format!("within {}", p.bound);
    let mut table = table_of(&["percent of the commands", &bound, "compared"]);
    for (percentile, rate) in &p.rates {
        let compared = match rate {
            _ if *percentile == p.percentile => "proposed".to_owned(),
            Some(rate) => format!("{:+.0} %", (rate / chosen - 1.0) * 100.0),
            None => "–".to_owned(),
        };
        let needed = rate.map_or("no rate".to_owned(), |rate| amount(p.unit, rate));
        table.add_row([format!("{percentile}"), needed, compared]);
    }
    println!("{table}");
    if !p.reserves {
        println!(
            "{} reserves no rate: the limit is what the disk would have needed, and nobody promises it. mclock, pclock, vc, cvc reserve.",
            p.scheduler
        );
    }
    let at =
        p.tried.latency_at(p.percentile).map_or("–".to_owned(), |t| format!("{:.2} ms", t.as_millis_f64()));
    println!(
        "Tried on the recording: {} of {} wanted seconds kept, p{} {at}.",
        p.tried.kept, p.tried.wanted, p.percentile
    );
    if !p.broken.is_empty() {
        println!("Others would miss more than before: {}.", p.broken.join(", "));
    }
}

fn as_json(name: &str, p: &Proposal) -> serde_json::Value {
    let (window, second) = p.need.busiest();
    let terms: serde_json::Map<_, _> = p.terms.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
    let rate =
        |(percentile, rate): &(f64, Option<f64>)| json!({"percentile": percentile, "per_second": rate});
    json!({
        "disk": name, "command": line(name, &p.terms), "terms": terms,
        "scheduler": p.scheduler, "reserves": p.reserves, "unit": p.unit.to_string(),
        "latency_ms": p.bound.as_millis_f64(), "percentile": p.percentile,
        "commands": p.need.commands(), "busiest_window_per_second": window, "busiest_second": second,
        "alone_ms": p.need.alone.as_millis_f64(),
        "rates": p.rates.iter().map(rate).collect::<Vec<_>>(),
        "tried": {"seconds_wanted": p.tried.wanted, "seconds_kept": p.tried.kept}, "others_worse": p.broken,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_rounded_up_to_two_digits() {
        for (ns, rounded) in
            [(4_130_000, 4_200_000), (4_200_000, 4_200_000), (99_100_000, 100_000_000), (7, 7)]
        {
            assert_eq!(round_up(Duration::from_nanos(ns)), Duration::from_nanos(rounded));
        }
    }

    #[test]
    fn a_rate_is_proposed_that_the_load_does_with_and_that_can_be_pasted() {
        let dir = tempfile::tempdir().unwrap();
        let _ = crate::plan::tests::recorded(dir.path(), 20);
        let args = |latency, name: &str| Args {
            name: name.into(),
            from: dir.path().to_owned(),
            latency: Some(Duration::from_millis(latency)),
            percentile: None,
            json: false,
        };
        // One read every 25 ms, 10 ms for one alone: within 30 ms each is due 20 ms after it came, 50 a second.
        let found = propose(&args(30, "web")).unwrap();
        let said = line("web", &found.terms);
        assert!(
            ["rate=50/s", "rate=51/s"]
                .iter()
                .any(|rate| said.starts_with(&format!("henge vd set web {rate}"))),
            "{said}"
        );
        assert!(found.reserves && found.need.commands() == 400 && found.broken.is_empty());
        // With more time the mean is enough, and no less is proposed.
        assert!(line("web", &propose(&args(200, "web")).unwrap().terms).contains(" rate=40/s"));
        let why = |latency, name: &str| format!("{:#}", propose(&args(latency, name)).err().unwrap());
        assert!(why(5, "web").contains("the device alone takes"), "{}", why(5, "web"));
        assert!(why(5, "mail").contains("there are: backup, web"));
    }

    #[test]
    fn percentiles_are_said_once_and_the_wished_is_among_them() {
        assert_eq!(percentiles(95.0).collect::<Vec<_>>(), PERCENTILES);
        assert_eq!(percentiles(97.5).nth(3), Some(97.5));
    }
}
