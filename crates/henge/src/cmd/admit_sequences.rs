//! `henge admit --sequences N`: how many disks of random sequences each rule admits, beside an oracle, and what became of
//! their guarantees.

use super::admit::table_of;
use anyhow::Result;
use henge_config::Source;
use henge_sim::admission::{Admitted, Rule, Verdict};
use henge_study::study::{Study, on_all_cores};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::json;
use std::fmt::Write;
use std::path::Path;

/// One array, simulated; 280 GB hold sixty disks.
const NODE: &str = r#"
warmup = "5s"
[node]
device = { raid0 = 4, stripe = "64KiB", disk = "dtla-307075" }
scheduler = { cvc = { per = "spindle" } }
[admission]
disks = 56
"#;
const DISKS: usize = 56;

/// Sequences of one kind.
struct Family {
    name: &'static str,
    /// Disks may ask more after they were measured.
    sleepers: bool,
    disk: fn(&mut Pcg64Mcg, usize) -> String,
}

const FAMILIES: [Family; 6] = [
    Family { name: "financial", sleepers: false, disk: financial },
    Family { name: "random mix", sleepers: false, disk: mixed },
    Family { name: "light beside heavy", sleepers: false, disk: light_and_heavy },
    Family { name: "correlated bursts", sleepers: false, disk: correlated },
    Family { name: "lockstep", sleepers: false, disk: lockstep },
    Family { name: "sleepers", sleepers: true, disk: sleepers },
];

fn one_of<T: Copy>(rng: &mut Pcg64Mcg, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

/// A contract with a bound, and what is asked under it.
fn bounded(declared: f64, bound_ms: u32, percentile: u32, workload: &str) -> String {
    format!(
        "contract = {{ rate = \"{declared:.3}/s\", latency = \"{bound_ms}ms\", percentile = {percentile}, pending = 7 }}\nworkload = {workload}\n"
    )
}

fn preset(name: &str, rate: f64) -> String {
    format!("{{ preset = \"{name}\", rate = \"{rate:.3}/s\" }}")
}

/// On-line transactions, each disk asking 60 to 80 % of what it declared.
fn financial(rng: &mut Pcg64Mcg, _: usize) -> String {
    let declared = rng.random_range(12.0..28.0);
    let rate = declared * rng.random_range(0.6..0.8);
    bounded(declared, 120, 95, &preset("financial", rate))
}

/// Several loads, bounds and percentiles; a third promises a rate alone.
fn mixed(rng: &mut Pcg64Mcg, _: usize) -> String {
    let declared = rng.random_range(5.0..40.0);
    let rate = declared * rng.random_range(0.5..0.9);
    let workload = preset(one_of(rng, &["financial", "websearch", "tpc-c"]), rate);
    if rng.random_bool(1.0 / 3.0) {
        return format!("contract = {{ rate = \"{declared:.3}/s\" }}\nworkload = {workload}\n");
    }
    bounded(declared, one_of(rng, &[100, 120, 200, 400]), one_of(rng, &[90, 95, 99]), &workload)
}

/// One in four asks thirty times as much as the others.
fn light_and_heavy(rng: &mut Pcg64Mcg, i: usize) -> String {
    let heavy = i % 4 == 1;
    let declared = if heavy { rng.random_range(50.0..90.0) } else { rng.random_range(1.5..3.5) };
    let rate = declared * rng.random_range(0.6..0.9);
    bounded(declared, 120, 95, &preset(if heavy { "websearch" } else { "financial" }, rate))
}

/// All are on at the same time, 3 of 10 s.
fn correlated(rng: &mut Pcg64Mcg, _: usize) -> String {
    let high = rng.random_range(15.0..40.0);
    let declared = high * rng.random_range(0.6..1.0);
    let workload = format!(
        "{{ pattern = \"random\", size = \"8KiB\", read = 0.6, rate = {{ on-off = {{ high = \"{high:.3}/s\", on = \"3s\", off = \"7s\" }} }} }}"
    );
    bounded(declared, 120, 95, &workload)
}

/// The same load at the same instants on every disk.
fn lockstep(rng: &mut Pcg64Mcg, _: usize) -> String {
    let declared = rng.random_range(12.0..28.0);
    format!("stream = 0\n{}", bounded(declared, 120, 95, &preset("financial", 13.0)))
}

/// Every other disk asks a tenth of what it declared while it is measured, and as the others afterwards.
fn sleepers(rng: &mut Pcg64Mcg, i: usize) -> String {
    if i.is_multiple_of(2) {
        return financial(rng, i);
    }
    let declared = rng.random_range(12.0..28.0);
    let asleep = preset("financial", declared * 0.1);
    let awake = preset("financial", declared * rng.random_range(0.6..0.8));
    format!("{}later = {awake}\n", bounded(declared, 120, 95, &asleep))
}

/// The i-th sequence of a family, as a scenario.
fn scenario(family: &Family, seed: u64, i: u64, window: &str) -> String {
    let own = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i);
    let mut rng = Pcg64Mcg::seed_from_u64(own);
    let mut text = format!("seed = {}\nduration = \"{window}\"\n{NODE}", own >> 1);
    for disk in 0..DISKS {
        let flow = (family.disk)(&mut rng, disk);
        write!(text, "[[flow]]\nname = \"disk\"\ncapacity = \"5GB\"\n{flow}").expect("a string takes all");
    }
    text
}

fn decide(family: &Family, seed: u64, i: u64, window: &str) -> Result<Admitted> {
    let source = Source::new(family.name, scenario(family, seed, i, window));
    let study = Study::new(source, Path::new("."))?;
    let outcome = study.sequence(study.experiment.base.clone(), None)?;
    Ok(outcome.admission.expect("a sequence was decided"))
}

/// One rule over the sequences of a family.
struct Tally {
    admitted: f64,
    /// Mean of admitted/oracle.
    of_oracle: f64,
    missed: usize,
    worst: f64,
}

fn tally(all: &[Admitted], rule: Rule) -> Tally {
    let verdicts =
        || all.iter().flat_map(|a| a.verdicts.iter().filter(|v| v.rule == rule).map(move |v| (a, v)));
    let mean = |of: fn(&Admitted, &Verdict) -> f64| {
        verdicts().map(|(a, v)| of(a, v)).sum::<f64>() / all.len() as f64
    };
    Tally {
        admitted: mean(|_, v| v.admitted as f64),
        of_oracle: mean(|a, v| v.admitted as f64 / a.oracle.max(1) as f64),
        missed: verdicts().filter(|(_, v)| v.violation > 1.0).count(),
        worst: verdicts().map(|(_, v)| v.violation).fold(0.0, f64::max),
    }
}

const fn name_of(rule: Rule) -> &'static str {
    match rule {
        Rule::Deterministic => "worst case",
        Rule::Paper => "the paper's measurement",
        Rule::Measured => "ours, measured (a manager's)",
        Rule::Replay => "ours, replay",
    }
}

/// Runs and prints it.
pub fn run(sequences: u64, only: Option<&str>, window: &str, seed: u64, as_json: bool) -> Result<()> {
    henge_core::parse_duration(window).map_err(|e| anyhow::anyhow!("--window: {e}"))?;
    let chosen: Vec<&Family> = FAMILIES.iter().filter(|f| only.is_none_or(|o| f.name == o)).collect();
    if chosen.is_empty() {
        let known: Vec<&str> = FAMILIES.iter().map(|f| f.name).collect();
        anyhow::bail!("there is no family \"{}\"; there are: {}", only.unwrap_or_default(), known.join(", "));
    }
    let jobs: Vec<(usize, u64)> =
        (0..chosen.len()).flat_map(|f| (0..sequences).map(move |i| (f, i))).collect();
    let decided = on_all_cores(jobs.clone(), |(f, i)| decide(chosen[f], seed, i, window));
    let decided = decided.into_iter().collect::<Result<Vec<Admitted>>>()?;
    let mut table =
        table_of(&["family", "rule", "disks", "of the oracle's", "missed in", "largest violation"]);
    let mut list = Vec::new();
    for (f, family) in chosen.iter().enumerate() {
        let here = jobs.iter().zip(&decided).filter(|((of, _), _)| *of == f);
        let all: Vec<Admitted> = here.map(|(_, a)| a.clone()).collect();
        let oracle = all.iter().map(|a| a.oracle as f64).sum::<f64>() / all.len().max(1) as f64;
        for rule in Rule::ALL {
            let t = tally(&all, rule);
            list.push(json!({
                "family": family.name, "rule": rule.as_str(), "sleepers": family.sleepers, "sequences": all.len(),
                "admitted": t.admitted, "of_oracle": t.of_oracle, "missed": t.missed, "worst": t.worst,
            }));
            table.add_row([
                family.name.to_owned(),
                name_of(rule).to_owned(),
                format!("{:.1}", t.admitted),
                format!("{:.1} %", t.of_oracle * 100.0),
                format!("{} of {}", t.missed, all.len()),
                format!("{:.2}", t.worst),
            ]);
        }
        table.add_row([family.name, "oracle", &format!("{oracle:.1}"), "100 %", "-", "-"]);
    }
    if as_json {
        println!("{:#}", serde_json::Value::from(list));
    } else {
        println!("{table}\n{sequences} random sequences a family, windows of {window}, seed {seed}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_is_a_scenario_that_a_sequence_reads() {
        for family in &FAMILIES {
            let source = Source::new(family.name, scenario(family, 1, 0, "10s"));
            let study = Study::new(source, Path::new(".")).unwrap();
            henge_sim::admission::Sequence::read(study.experiment.base.clone())
                .unwrap_or_else(|e| panic!("{}: {e}", family.name));
        }
    }
}
