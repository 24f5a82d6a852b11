//! `henge plan`: would a change break a promise?

use super::admit::table_of;
use crate::plan::{Added, Change, Judged, Recorded, Term};
use anyhow::{Result, bail};
use henge_core::Duration;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
The recording is simulated twice: as it was, and with the change. Every second is judged as the promise ledger judges it.

    henge record --for 7d --keep 12 -o week                        # the 12 busiest minutes of a week
    henge plan week --add \"mail capacity=15GB rate=128/s latency=120ms like=web\"
    henge plan week --set web.limit=600/s --set db.latency=        # another limit; no latency bound any more
    henge plan week --remove backup --times web=2                  # without one disk, and another asks twice as much
    henge plan week --scheduler mclock
    henge plan week --device \"{ constant = { time = '2ms', slots = 4, capacity = '1TB' } }\"

Exit code: 0 if no promise would break, 1 if one would, 2 if the question cannot be answered. A promise breaks if the disk misses
more seconds than --allow, and more than it missed before.";

/// Arguments of `henge plan`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What `henge record` wrote, with or without --keep
    #[arg(value_name = "DIR", default_value = "recording")]
    recording: PathBuf,
    /// Add a disk: its name, capacity, pool, terms, and what it asks: like=DISK or workload={ … }
    #[arg(long, value_name = "DISK KEY=VALUE…", value_parser = Added::parse)]
    add: Vec<Added>,
    /// Remove a disk
    #[arg(long, value_name = "DISK")]
    remove: Vec<String>,
    /// Change a term; an empty value takes it away
    #[arg(long, value_name = "DISK.TERM=VALUE", value_parser = Term::parse)]
    set: Vec<Term>,
    /// Multiply a disk's load: web=2
    #[arg(long, value_name = "DISK=N", value_delimiter = ',')]
    times: Vec<String>,
    /// Another scheduler, as a pool's configuration writes it: mclock, or "{ cvc = { depth = 16 } }"
    #[arg(long, value_name = "SCHEDULER")]
    scheduler: Option<String>,
    /// Another device, as a scenario writes it
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Share of the wanted seconds that a promise may miss
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = allow)]
    allow: u32,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

fn allow(text: &str) -> Result<u32, String> {
    henge_core::parse_share(text).map_err(|e| e.to_string())
}

/// Runs it.
pub fn run(args: Args) -> ExitCode {
    match answer(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("henge: {why:#}");
            ExitCode::from(2)
        }
    }
}

fn answer(args: Args) -> Result<bool> {
    let recorded = Recorded::read(&args.recording)?;
    let change = Change {
        add: args.add,
        remove: args.remove,
        set: args.set,
        times: args.times,
        scheduler: args.scheduler,
        device: args.device,
    };
    if change.is_empty() {
        bail!("nothing is proposed; say --add, --remove, --set, --times, --scheduler or --device");
    }
    change.check(&recorded.disks)?;
    let before = recorded.judge(&Change::default())?;
    let after = recorded.judge(&change)?;
    let rows = rows(&before, &after, &change, args.allow);
    let kept = rows.iter().all(|row| row.verdict != Verdict::Breaks);
    match args.json {
        true => println!("{:#}", as_json(&rows, kept, recorded.windows.len())),
        false => show(&rows, recorded.windows.len()),
    }
    Ok(kept)
}

/// What becomes of one disk's promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// Nothing is promised to it.
    NoPromise,
    Kept,
    Breaks,
    /// It misses seconds, and not more than before.
    MissedBefore,
    Removed,
}

impl Verdict {
    fn of(before: Option<&Judged>, after: Option<&Judged>, new: bool, allow: u32) -> Verdict {
        let Some(after) = after else { return Verdict::Removed };
        if after.contract.is_best_effort() {
            return Verdict::NoPromise;
        }
        if after.missed() * 1_000_000 <= after.wanted * u64::from(allow) {
            return Verdict::Kept;
        }
        match before {
            Some(before) if !new && after.missed() <= before.missed() => Verdict::MissedBefore,
            _ => Verdict::Breaks,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Verdict::NoPromise => "nothing promised",
            Verdict::Kept => "kept",
            Verdict::Breaks => "BREAKS",
            Verdict::MissedBefore => "missed before as well",
            Verdict::Removed => "removed",
        }
    }
}

struct Row<'a> {
    disk: &'a str,
    before: Option<&'a Judged>,
    after: Option<&'a Judged>,
    verdict: Verdict,
}

fn rows<'a>(
    before: &'a BTreeMap<String, Judged>,
    after: &'a BTreeMap<String, Judged>,
    change: &Change,
    allow: u32,
) -> Vec<Row<'a>> {
    let mut disks: Vec<&str> = before.keys().chain(after.keys()).map(String::as_str).collect();
    disks.sort_unstable();
    disks.dedup();
    let row = |disk| {
        let (before, after) = (before.get(disk), after.get(disk));
        Row { disk, before, after, verdict: Verdict::of(before, after, change.promises(disk), allow) }
    };
    disks.into_iter().map(row).collect()
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_millis_f64())
}

fn pair(row: &Row<'_>, cell: impl Fn(&Judged) -> String) -> String {
    let cell = |side: Option<&Judged>| side.map_or("–".to_owned(), &cell);
    format!("{} → {}", cell(row.before), cell(row.after))
}

fn least(judged: &Judged) -> Option<String> {
    let unit = henge_api::Promise::of(&judged.contract).unit;
    let least = judged.least?;
    Some(match unit.as_str() {
        "bytes" => format!("{}/s", henge_core::format_size(least as u64)),
        "disk time" => format!("{:.1} ms/s", least / 1e6),
        _ => format!("{least:.1}/s"),
    })
}

fn worst(judged: &Judged) -> String {
    let slowest = format!("p95 {}", millis(judged.slowest));
    least(judged).map_or(slowest.clone(), |least| format!("{least}, {slowest}"))
}

fn show(rows: &[Row<'_>], windows: usize) {
    let mut table =
        table_of(&["disk", "promised", "received", "seconds kept", "worst second", "latency", ""]);
    for row in rows {
        let promised = [row.before, row.after]
            .map(|side| side.map(|j| henge_study::report::table::promise(&j.contract)));
        let promised = match promised {
            [Some(before), Some(after)] if before != after => format!("{before} → {after}"),
            [Some(one), _] | [None, Some(one)] => one,
            [None, None] => String::new(),
        };
        let latency = |j: &Judged| {
            let at = j.percentile();
            j.latency_at(at).map_or("–".to_owned(), |time| format!("p{at} {}", millis(time)))
        };
        table.add_row([
            row.disk.to_owned(),
            promised,
            pair(row, |j| format!("{:.1}/s", j.answered as f64 / j.seconds)),
            pair(row, |j| format!("{} of {}", j.kept, j.wanted)),
            pair(row, worst),
            pair(row, latency),
            row.verdict.as_str().to_owned(),
        ]);
    }
    println!("{table}");
    let seconds = rows.iter().flat_map(|row| [row.before, row.after]).flatten().map(|j| j.seconds);
    println!(
        "{windows} recorded window(s), {:.0} s in all, simulated before → after. Seconds are those in which the disk wanted its promise.",
        seconds.fold(0.0, f64::max)
    );
}

fn as_json(rows: &[Row<'_>], kept: bool, windows: usize) -> Value {
    let side = |judged: Option<&Judged>| {
        judged.map(|j| {
            let ms = |time: Option<Duration>| time.map(Duration::as_millis_f64);
            json!({
                "promised": henge_study::report::table::promise(&j.contract),
                "received_per_second": j.answered as f64 / j.seconds,
                "seconds_wanted": j.wanted, "seconds_kept": j.kept,
                "worst_second": {"least_per_second": j.least, "p95_ms": j.slowest.as_millis_f64()},
                "latency_ms": {
                    "p50": ms(j.latency_at(50.0)), "p95": ms(j.latency_at(95.0)), "p99": ms(j.latency_at(99.0)),
                },
            })
        })
    };
    let row = |row: &Row<'_>| json!({"disk": row.disk, "before": side(row.before), "after": side(row.after), "verdict": row.verdict.as_str()});
    json!({"kept": kept, "windows": windows, "disks": rows.iter().map(row).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::{Contract, Rate};

    fn judged(wanted: u64, kept: u64) -> Judged {
        Judged { contract: Contract::reserved(Rate::requests(100)), wanted, kept, ..Judged::default() }
    }

    #[test]
    fn a_promise_breaks_if_more_is_missed_than_allowed_and_than_before() {
        let verdict = |before: (u64, u64), after: (u64, u64), new, allow| {
            Verdict::of(Some(&judged(before.0, before.1)), Some(&judged(after.0, after.1)), new, allow)
        };
        assert_eq!(verdict((60, 60), (60, 60), false, 0), Verdict::Kept);
        assert_eq!(verdict((60, 60), (60, 59), false, 0), Verdict::Breaks);
        assert_eq!(verdict((60, 60), (100, 99), false, 10_000), Verdict::Kept, "1 % is allowed");
        assert_eq!(verdict((60, 50), (60, 50), false, 0), Verdict::MissedBefore);
        assert_eq!(verdict((60, 50), (60, 49), false, 0), Verdict::Breaks);
        assert_eq!(verdict((60, 50), (60, 51), true, 0), Verdict::Breaks, "a new promise has no before");
        assert_eq!(Verdict::of(None, Some(&judged(1, 0)), true, 0), Verdict::Breaks);
        assert_eq!(Verdict::of(Some(&judged(1, 0)), None, false, 0), Verdict::Removed);
        let nothing = Judged::default();
        assert_eq!(Verdict::of(None, Some(&nothing), false, 0), Verdict::NoPromise);
    }
}
