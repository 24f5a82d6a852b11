//! Pools that give less than is promised on them.
//!
//! **Problem.** Rates are admitted by what a pool did once, when `henge profile` measured it. A device that has become slower keeps few of them, and each missed
//! promise looks like a matter of one disk.
//!
//! **Rule.** The ledger says which disks wanted their rates in a second, and what each received. A pool is *short* once these received less than
//! [`ENOUGH`] of their rates together at [`LOOKS`] looks in a row. What one has beyond its rate makes up for nothing. It is short no more after as many looks of
//! another kind. A disk on several pools counts at each with its part.
//!
//! **Bound.** What is said names [`NAMED`] disks, those first that lack the largest part of their rates.

use crate::events::Events;
use crate::ledger::Wanted;
use henge_api::{EventKind, Status};
use std::collections::BTreeMap;

/// Looks in a row.
const LOOKS: u32 = 5;
/// Who has so much of a rate has it.
const ENOUGH: f64 = 0.97;
/// Disks that are named.
const NAMED: usize = 3;

/// Who wants a rate there has it.
const AGAIN: &str = "gives what is promised again";
/// That a pool is quick again cannot be said while nobody wants it to be.
const NOBODY: &str = "no disk is seen to want its rate now";

/// What is remembered of a pool.
#[derive(Default)]
struct Seen {
    /// Looks in a row that differ from what was said.
    looks: u32,
    /// What was said, as it is now.
    said: Option<String>,
    /// For how long it was said, in ns.
    short: u64,
}

/// All pools'.
#[derive(Default)]
pub(crate) struct Shortages {
    pools: BTreeMap<String, Seen>,
    /// When the last look was, in ns since the node began.
    looked: u64,
}

impl Shortages {
    /// Tells each pool of the status what it lacks, and the log when that begins and ends.
    pub(crate) fn see(&mut self, status: &mut Status, wanted: &[Wanted], events: &Events) {
        let mut wanted_of: BTreeMap<&str, Vec<&Wanted>> = BTreeMap::new();
        for disk in wanted {
            disk.pools.iter().for_each(|pool| wanted_of.entry(pool).or_default().push(disk));
        }
        self.pools.retain(|name, _| status.pools.iter().any(|pool| pool.name == *name));
        let passed = status.uptime.saturating_sub(self.looked);
        self.looked = status.uptime;
        for pool in &mut status.pools {
            let disks = wanted_of.get(pool.name.as_str());
            let short = disks.and_then(|disks| lacks(disks));
            let seen = self.pools.entry(pool.name.clone()).or_default();
            seen.short += if seen.said.is_some() { passed } else { 0 };
            seen.looks = if short.is_some() == seen.said.is_some() { 0 } else { seen.looks + 1 };
            if seen.looks == LOOKS {
                seen.looks = 0;
                let over = if disks.is_some() { AGAIN } else { NOBODY };
                events.note(EventKind::Drifted, &pool.name, short.as_deref().unwrap_or(over));
                seen.said = short;
            } else if seen.said.is_some() && short.is_some() {
                seen.said = short;
            }
            pool.short.clone_from(&seen.said);
            (pool.short_ms, pool.received) = (seen.short / 1_000_000, disks.map(|disks| received(disks)));
        }
    }
}

/// What these disks received of their rates, and the rates, together: of bytes, and of commands.
fn together(disks: &[&Wanted]) -> BTreeMap<bool, [f64; 2]> {
    let mut rates = BTreeMap::<bool, [f64; 2]>::new();
    for disk in disks {
        let parts = disk.pools.len() as f64;
        let [got, rate] = rates.entry(disk.bytes).or_default();
        *got += disk.got.min(disk.rate) / parts;
        *rate += disk.rate / parts;
    }
    rates
}

/// The part of their rates that they received, of the unit of which that is less.
fn received(disks: &[&Wanted]) -> f64 {
    together(disks).values().map(|[got, rate]| got / rate).fold(1.0, f64::min)
}

/// What these disks' pool lacks of their rates.
fn lacks(disks: &[&Wanted]) -> Option<String> {
    let part = |disk: &Wanted| (disk.got / disk.rate).min(1.0);
    let rates = together(disks);
    let mut all: Vec<(f64, &Wanted)> = disks.iter().map(|disk| (part(disk), *disk)).collect();
    let short: Vec<String> = { rates.iter().filter(|(_, [got, rate])| *got < ENOUGH * rate) }
        .map(|(bytes, [got, rate])| {
            let less = 100.0 * (1.0 - got / rate);
            format!(
                "{} of the {} promised and wanted, {less:.0} % less",
                show(*got, *bytes),
                show(*rate, *bytes)
            )
        })
        .collect();
    if short.is_empty() {
        return None;
    }
    all.retain(|(part, _)| *part < ENOUGH);
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.name.cmp(&b.1.name)));
    let more = all.len().saturating_sub(NAMED);
    let named: Vec<String> = { all.iter().take(NAMED) }
        .map(|(_, d)| format!("{} ({} of {})", d.name, show(d.got, d.bytes), show(d.rate, d.bytes)))
        .collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("gives {}; short first: {}{more}", short.join(", and "), named.join(", ")))
}

fn show(rate: f64, bytes: bool) -> String {
    if bytes { format!("{}/s", henge_core::format_size(rate as u64)) } else { format!("{rate:.0}/s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_api::PoolStatus;

    fn disk(name: &str, got: f64, rate: f64) -> Wanted {
        Wanted { name: name.into(), pools: vec!["ssd".into()], got, rate, bytes: false }
    }

    fn status() -> Status {
        Status {
            pools: vec![PoolStatus { name: "ssd".into(), ..PoolStatus::default() }],
            ..Status::default()
        }
    }

    #[test]
    fn a_pool_that_gives_less_than_is_promised_is_told_of_once_and_when_that_is_over() {
        let (events, mut shortages) = (Events::open(None), Shortages::default());
        let mut see = |wanted: &[Wanted], looks: u32| {
            let mut last = None;
            for _ in 0..looks {
                let mut now = status();
                shortages.see(&mut now, wanted, &events);
                last = now.pools[0].short.clone();
            }
            (last, events.after(None, 0, 100).len())
        };
        let short = [disk("a", 500.0, 500.0), disk("b", 200.0, 500.0), disk("c", 1.0, 10.0)];
        let kept = [disk("a", 900.0, 500.0), disk("b", 500.0, 500.0)];
        assert_eq!(see(&short, LOOKS - 1), (None, 0));
        assert_eq!(see(&kept, 1), (None, 0));
        let text = "gives 701/s of the 1010/s promised and wanted, 31 % less; short first: c (1/s of 10/s), b (200/s of 500/s)";
        assert_eq!(see(&short, LOOKS), (Some(text.into()), 1));
        assert_eq!(see(&short, 50).1, 1);
        assert_eq!(
            see(&[disk("b", 100.0, 500.0)], 1).0.unwrap().split(';').next().unwrap(),
            "gives 100/s of the 500/s promised and wanted, 80 % less"
        );
        assert_eq!(see(&kept, LOOKS - 1).1, 1);
        assert_eq!(see(&kept, 1), (None, 2));
        assert_eq!(see(&[], 50), (None, 2));
        let said: Vec<String> = events.after(Some("ssd"), 0, 9).into_iter().map(|e| e.detail).collect();
        assert_eq!(said, [text, AGAIN]);
        assert_eq!((see(&short, LOOKS).1, see(&[], LOOKS)), (3, (None, 4)));
        assert_eq!(events.after(Some("ssd"), 0, 9).pop().expect("the last").detail, NOBODY);
    }

    /// The time counts from the look at which a pool is found short to the one at which it is so no more.
    #[test]
    fn how_long_a_pool_was_short_and_what_it_gives_is_counted() {
        let (events, mut shortages) = (Events::open(None), Shortages::default());
        let mut at = 0;
        let mut see = |wanted: &[Wanted], looks: u32| {
            let mut now = status();
            for _ in 0..looks {
                at += 1_000_000_000;
                now = Status { uptime: at, ..status() };
                shortages.see(&mut now, wanted, &events);
            }
            (now.pools[0].short_ms, now.pools[0].received)
        };
        let bytes = Wanted { bytes: true, ..disk("b", 30.0, 40.0) };
        let short = [disk("a", 800.0, 500.0), disk("c", 400.0, 500.0), bytes];
        assert_eq!(see(&short, LOOKS), (0, Some(0.75)));
        assert_eq!(see(&short, 10), (10_000, Some(0.75)));
        assert_eq!(see(&[disk("a", 500.0, 500.0)], LOOKS), (15_000, Some(1.0)));
        assert_eq!(see(&[], 20), (15_000, None));
    }

    /// What one has beyond its rate is nothing that another was promised; and one disk's miss among many that are kept is its own.
    #[test]
    fn what_is_beyond_a_rate_makes_up_for_nothing() {
        assert!(lacks(&[&disk("a", 5000.0, 500.0), &disk("b", 100.0, 500.0)]).is_some());
        assert!(lacks(&[&disk("a", 5000.0, 5000.0), &disk("b", 10.0, 100.0)]).is_none());
        let two = Wanted { pools: vec!["ssd".into(), "hd".into()], bytes: true, ..disk("a", 1e6, 4e6) };
        let text = lacks(&[&two, &disk("b", 9.0, 9.0)]).unwrap();
        assert!(text.ends_with("75 % less; short first: a (1MB/s of 4MB/s)"), "{text}");
    }
}
