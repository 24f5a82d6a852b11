//! What promises rest on: `henge node --check` says where nobody has measured what a pool can do, and refuses what it cannot.
//!
//! A scheduler divides what there is; how much that is only a measurement says (`profile`, which `henge profile` writes). So
//! a rate, a latency or a share of time on a pool without a profile is a *warning*: it may be kept, nobody knows. Rates that
//! are together more than the pool was measured to do are *refused*: they cannot all be kept. A weight promises a part of what there
//! is, and a limit nothing; both rest on nothing. On a slow device with neighbours nothing is kept in each second, which is a warning.
//! A fixed depth of more than a few on a device with neighbours is one, too: what they have there already decides.
//! So is a disk that lies on other nodes and does not name this one: they let nobody in by it.

use crate::config::{DiskConfig, NodeConfig, PoolConfig, SchedulerConfig};
use henge_core::{Contract, CostUnit, Duration, ParamError, Value};
use henge_sched::DefaultDepth;

/// What was found.
#[derive(Default)]
pub(crate) struct Grounds {
    /// What can be promised yet, a line for each pool.
    pub lines: Vec<String>,
    /// What may be or not.
    pub warnings: Vec<String>,
    /// What cannot.
    pub refused: Vec<ParamError>,
}

/// Looks at all pools of a node.
pub(crate) fn look(config: &NodeConfig) -> Grounds {
    let mut found = Grounds::default();
    for (number, pool) in config.pools.iter().enumerate() {
        let promised: Vec<&DiskConfig> = { config.disks.iter() }
            .filter(|disk| disk.pools.contains(&number) && !disk.contract.is_best_effort())
            .collect();
        match pool.profile {
            None => unmeasured(pool, &promised, &mut found),
            Some(profile) => measured(pool, profile.iops, profile.service, &promised, &mut found),
        }
        let disks = config.disks.iter().filter(|disk| disk.pools.contains(&number)).count();
        if disks > 1 {
            loose(pool, &promised, &mut found);
        }
        if disks > 1 && !promised.is_empty() {
            fixed_depth(pool, &promised, &mut found);
            long_turns(pool, &promised, &mut found);
        }
    }
    let here = config.link.iter().flat_map(|link| config.disks.iter().map(move |disk| (&link.name, disk)));
    for (here, disk) in here.filter(|(here, disk)| !disk.places.is_empty() && !disk.names(here)) {
        found.warnings.push(format!(
            "warning  disk {}: it lies on other nodes, and does not name this one, {here}, so they let nobody in by it; \
             state through = [\"{here}\"] there and here",
            disk.name
        ));
    }
    found
}

fn unmeasured(pool: &PoolConfig, promised: &[&DiskConfig], found: &mut Grounds) {
    for disk in promised {
        found.warnings.push(format!(
            "warning  disk {}: {} on pool {} rests on no measurement; `henge profile` measures what the pool can do and writes its profile",
            disk.name,
            terms(&disk.contract),
            pool.name,
        ));
    }
    if promised.is_empty() {
        found
            .lines
            .push(format!("grounds  pool {}: not measured; nothing but shares is promised on it", pool.name));
    }
}

fn measured(pool: &PoolConfig, iops: f64, service: f64, promised: &[&DiskConfig], found: &mut Grounds) {
    let mut sum = 0.0;
    for disk in promised {
        // A pool reserves its part as many times as the leeway says.
        let part = disk.contract.part(disk.leeway, disk.pools.len() as u64);
        // These two reserve what a latency takes for the requests that may be pending.
        let reserves = matches!(pool.scheduler.name.as_str(), "vc" | "cvc");
        let rate = |c: &Contract| c.rate.or_else(|| c.rate_of_latency().filter(|_| reserves));
        match &rate(&disk.contract) {
            Some(rate_of) if rate_of.unit == CostUnit::Requests => {
                sum += rate(&part).map_or(0.0, |rate| rate.per_second as f64 / 1e6);
            }
            Some(rate) => found.warnings.push(format!(
                "warning  disk {}: a rate of {rate} counts {}; pool {} was measured in requests a second, so nobody knows whether it fits",
                disk.name, rate.unit, pool.name,
            )),
            None => {}
        }
        if let Some(latency) = &disk.contract.latency
            && (latency.bound.as_nanos() as f64) < service * 1e9
        {
            found.warnings.push(format!(
                "warning  disk {}: a latency of {} is less than the {} that pool {} takes for 95 % of its requests when it is saturated",
                disk.name,
                latency.bound,
                Duration::from_nanos((service * 1e9) as u64),
                pool.name,
            ));
        }
    }
    let name = &pool.name;
    if sum > iops {
        found.refused.push(ParamError {
            message: format!("the disks of pool {name} are promised {sum:.0}/s together, and it was measured to do {iops:.0}/s"),
            help: Some("lower their rates, or move one to another pool".into()),
            span: pool.spans.whole.clone(),
        });
        return;
    }
    let left = iops - sum;
    found.lines.push(format!(
        "grounds  pool {name}: measured {iops:.0}/s, promised {sum:.0}/s; {left:.0}/s may still be promised"
    ));
}

/// A latency for any amount is kept for no more than the disk's weight's share, where the depth follows promises; and elsewhere at the price of others' promises.
fn loose(pool: &PoolConfig, promised: &[&DiskConfig], found: &mut Grounds) {
    for disk in promised {
        let DiskConfig { name, contract, .. } = disk;
        let Some(latency) =
            contract.latency.filter(|_| contract.rate.is_none() && contract.pending.is_none())
        else {
            continue;
        };
        found.warnings.push(format!(
            "warning  disk {name}: a latency of {} on pool {} says nothing of how much it is for; beyond the disk's share by weight it is \
             not kept, or breaks others' promises: state a rate",
            latency.bound, pool.name,
        ));
    }
}

/// On a device with many requests at once, whoever floods it decides what a promise is worth, unless the depth gives way. An emulated one is no
/// other device, and nothing is left out of its scheduler's table for it.
fn fixed_depth(pool: &PoolConfig, promised: &[&DiskConfig], found: &mut Grounds) {
    let remedy = match (pool.scheduler.device, &pool.emulated) {
        (true, _) => "leave depth out, or write depth = \"kept\"",
        (false, Some(_)) => "write depth = \"kept\"",
        (false, None) => return,
    };
    let Some(depth) = fixed(&pool.scheduler).filter(|depth| *depth > FEW) else { return };
    for disk in promised {
        found.warnings.push(format!(
            "warning  disk {}: {} on pool {} may be broken by requests that others have at the device, {depth} at once; {remedy}",
            disk.name,
            terms(&disk.contract),
            pool.name,
        ));
    }
}

/// Whoever breaks a promise has turns of 16 times what its requests take, of half a second at most. Where they are that long, a pace that was too
/// much costs a promise most of a second, and what is had beyond at other times makes it good.
fn long_turns(pool: &PoolConfig, promised: &[&DiskConfig], found: &mut Grounds) {
    let mut knobs = pool.scheduler.knobs.clone();
    let follows = match knobs.get_mut("depth") {
        Some(Value::Text(depth)) => depth == "kept",
        Some(Value::Table(depth)) => depth.get_mut("kept").is_some(),
        _ => false,
    };
    let Some(profile) = pool.profile.filter(|profile| follows && profile.service >= SLOW) else { return };
    for disk in promised {
        found.warnings.push(format!(
            "warning  disk {}: {} on pool {} is kept over some 20 seconds, and not in each of them: its requests take up to {} when it is \
             saturated, so others have turns of half a second",
            disk.name,
            terms(&disk.contract),
            pool.name,
            Duration::from_nanos((profile.service * 1e9) as u64),
        ));
    }
}

/// In seconds: 16 of these are half a second.
const SLOW: f64 = 0.031;

/// `depth = 32` and `depth = { fixed = { depth = 32 } }` say the same. Where there is no word of it, the scheduler has a depth of its own.
fn fixed(scheduler: &SchedulerConfig) -> Option<i64> {
    let mut knobs = scheduler.knobs.clone();
    let Some(depth) = knobs.get_mut("depth") else {
        return match henge_sched::find(&scheduler.name)?.depth {
            DefaultDepth::Fixed(depth) => Some(depth.into()),
            DefaultDepth::Controller(_) => None,
        };
    };
    match depth {
        Value::Integer(depth) => Some(*depth),
        Value::Table(depth) => match depth.get_mut("fixed")? {
            Value::Table(fixed) => match fixed.get_mut("depth")? {
                Value::Integer(depth) => Some(*depth),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// So many requests of others at the device slow nobody down for long.
const FEW: i64 = 4;

/// The terms that promise something.
fn terms(contract: &Contract) -> String {
    let rate = contract.rate.map(|rate| format!("a rate of {rate}"));
    let latency = contract.latency.map(|latency| format!("a latency of {}", latency.bound));
    let share = contract.disk_time.map(|time| format!("{} % of its time", f64::from(time.share) / 1e4));
    let all: Vec<String> = [rate, latency, share].into_iter().flatten().collect();
    all.join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_config::Source;

    fn grounds(profile: &str, disks: &str) -> Grounds {
        let pool = format!(
            "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"1GiB\"\nscheduler = \"mclock\"\n{profile}\n"
        );
        let config = NodeConfig::parse(Source::new("node.toml", format!("{pool}{disks}")));
        look(&config.unwrap_or_else(|e| panic!("{e}")))
    }

    fn disk(name: &str, contract: &str) -> String {
        format!("[[disk]]\nname = \"{name}\"\ncapacity = \"1MiB\"\ncontract = {{ {contract} }}\n")
    }

    #[test]
    fn a_promise_without_a_measurement_is_a_warning() {
        let disks = disk("web", "rate = \"100/s\", latency = \"5ms\"")
            + &disk("bulk", "weight = 9, limit = \"10/s\"");
        let found = grounds("", &disks);
        assert_eq!(
            found.warnings,
            ["warning  disk web: a rate of 100/s and a latency of 5ms on pool p rests on no measurement; \
              `henge profile` measures what the pool can do and writes its profile"]
        );
        assert!(found.refused.is_empty() && found.lines.is_empty());
        let found = grounds("", &disk("bulk", "weight = 9"));
        assert!(found.warnings.is_empty() && found.lines[0].contains("not measured"), "{:?}", found.lines);
    }

    #[test]
    fn a_depth_that_gives_no_way_is_a_warning_on_a_device_with_neighbours() {
        let warned = |medium: &str, scheduler: &str, disks: &str| {
            let text = format!(
                "[[pool]]\nname = \"p\"\n{medium}\ncapacity = \"1GiB\"\nscheduler = {scheduler}\n\
                 profile = {{ iops = \"1000/s\", service = \"10ms\" }}\n{disks}"
            );
            let config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
            look(&config).warnings
        };
        let (device, deep) = ("path = \"/srv/henge\"", "{ mclock = { depth = 32 } }");
        let web = disk("web", "rate = \"100/s\"");
        let both = web.clone() + &disk("bulk", "weight = 9");
        let found = warned(device, deep, &both);
        assert!(
            found.len() == 1 && found[0].contains("disk web") && found[0].contains("32 at once"),
            "{found:?}"
        );
        let found = warned(device, "{ mclock = { depth = { fixed = { depth = 32 } } } }", &both);
        assert!(found.len() == 1 && found[0].contains("32 at once"), "{found:?}");
        let emulated = "memory = true\nemulated = \"nvme-dc\"";
        for scheduler in [deep, "\"mclock\""] {
            let found = warned(emulated, scheduler, &both);
            assert!(
                found.len() == 1 && found[0].ends_with("32 at once; write depth = \"kept\""),
                "{found:?}"
            );
        }
        for (medium, scheduler, disks) in [
            (emulated, "{ mclock = { depth = \"kept\" } }", &both),
            (emulated, "\"two-level\"", &both),
            (device, "\"mclock\"", &both),
            (device, "{ mclock = { depth = { kept = { most = 64 } } } }", &both),
            (device, "{ mclock = { depth = 2 } }", &both),
            (device, deep, &web),
            ("memory = true", deep, &both),
        ] {
            assert_eq!(warned(medium, scheduler, disks), [""; 0], "{medium} {scheduler}");
        }
    }

    #[test]
    fn a_promise_beside_others_on_a_slow_device_is_a_warning() {
        let warned = |service: &str, depth: &str, disks: &str| {
            let text = format!(
                "[[pool]]\nname = \"p\"\npath = \"/srv/henge\"\ncapacity = \"1GiB\"\nscheduler = {{ mclock = {{ {depth} }} }}\n\
                 profile = {{ iops = \"1000/s\", service = \"{service}\" }}\n{disks}"
            );
            let config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
            look(&config).warnings
        };
        let web = disk("web", "rate = \"100/s\"");
        let both = web.clone() + &disk("bulk", "weight = 9");
        for depth in ["", "depth = \"kept\"", "depth = { kept = { most = 64 } }"] {
            let found = warned("200ms", depth, &both);
            assert!(
                found.len() == 1
                    && found[0].contains("disk web: a rate of 100/s")
                    && found[0].contains("200ms"),
                "{depth}: {found:?}"
            );
        }
        for (service, depth, disks) in
            [("30ms", "", &both), ("200ms", "", &web), ("200ms", "depth = 4", &both)]
        {
            assert_eq!(warned(service, depth, disks), [""; 0], "{service} {depth}");
        }
    }

    #[test]
    fn a_latency_for_any_amount_is_a_warning_beside_others() {
        let warned_by = |scheduler: &str, disks: &str| {
            let text = format!(
                "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"1GiB\"\nscheduler = \"{scheduler}\"\n\
                 profile = {{ iops = \"1000/s\", service = \"1ms\" }}\n{disks}"
            );
            let config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
            look(&config)
        };
        let warned = |disks: &str| warned_by("edf", disks);
        let (loose, bulk) = (disk("web", "latency = \"5ms\""), disk("bulk", "weight = 1"));
        let found = warned(&(loose.clone() + &bulk)).warnings;
        assert!(
            found.len() == 1 && found[0].contains("disk web") && found[0].contains("state a rate"),
            "{found:?}"
        );
        assert_eq!(warned(&loose).warnings, [""; 0], "it has no neighbours");
        let rated = disk("web", "latency = \"5ms\", rate = \"10/s\"");
        assert_eq!(warned(&(rated + &bulk)).warnings, [""; 0]);
        // Nine within 20 ms are 500 a second and one more at each time.
        let text = disk("web", "latency = \"20ms\", pending = 9") + &bulk;
        assert!(warned(&text).lines[0].contains("promised 0/s"), "it reserves nothing");
        let pending = warned_by("cvc", &text);
        assert!(pending.lines[0].contains("promised 500/s"), "{:?}", pending.lines);
        assert_eq!(warned_by("cvc", &disk("web", "latency = \"8ms\", pending = 9")).refused.len(), 1);
    }

    #[test]
    fn a_disk_that_does_not_name_this_node_is_a_warning() {
        let warned = |pools: &str, more: &str| {
            let text = format!(
                "[link]\nname = \"n2\"\nlisten = \"127.0.0.1:0\"\nsecret = \"sixteen bytes and more\"\n\
                 [[peer]]\nname = \"n1\"\naddress = \"127.0.0.1:1\"\n\
                 [[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"1GiB\"\n\
                 [[disk]]\nname = \"d\"\npools = [{pools}]\ncapacity = \"1MiB\"\n{more}"
            );
            let config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
            look(&config).warnings
        };
        let found = warned("\"n1/p\"", "");
        assert!(
            found.len() == 1 && found[0].contains("disk d") && found[0].contains("[\"n2\"]"),
            "{found:?}"
        );
        assert_eq!(warned("\"n1/p\"", "through = [\"n2\"]\n"), [""; 0]);
        assert_eq!(warned("\"n1/p\", \"n2/p\"", ""), [""; 0]);
    }

    /// Of a disk on two pools each reserves half of its rate, and as many times that as its leeway says.
    #[test]
    fn leeway_counts() {
        let pool = |name| {
            format!(
                "[[pool]]\nname = \"{name}\"\nmemory = true\ncapacity = \"1GiB\"\nscheduler = \"mclock\"\n\
                 profile = {{ iops = \"1000/s\", service = \"10ms\" }}\n"
            )
        };
        let found = |rate: u32, leeway: &str| {
            let disk = format!(
                "[[disk]]\nname = \"d\"\npools = [\"p\", \"q\"]\ncapacity = \"1MiB\"\nleeway = {leeway}\n\
                 contract = {{ rate = \"{rate}/s\" }}\n"
            );
            let text = pool("p") + &pool("q") + &disk;
            look(&NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}")))
        };
        assert_eq!(
            found(1000, "1.5").lines[1],
            "grounds  pool q: measured 1000/s, promised 750/s; 250/s may still be promised"
        );
        assert_eq!((found(1400, "1.5").refused.len(), found(1400, "1").refused.len()), (2, 0));
    }

    #[test]
    fn more_than_was_measured_is_refused_and_the_rest_is_said() {
        let profile = "profile = { iops = \"1000/s\", service = \"10ms\" }";
        let fits = disk("a", "rate = \"600/s\"") + &disk("b", "rate = \"400/s\"");
        let found = grounds(profile, &fits);
        assert!(found.refused.is_empty() && found.warnings.is_empty());
        assert_eq!(
            found.lines,
            ["grounds  pool p: measured 1000/s, promised 1000/s; 0/s may still be promised"]
        );
        let found = grounds(profile, &(fits + &disk("c", "rate = \"1/s\"")));
        assert_eq!(
            found.refused[0].message,
            "the disks of pool p are promised 1001/s together, and it was measured to do 1000/s"
        );
        let found = grounds(profile, &disk("a", "rate = \"4MB/s\", latency = \"5ms\""));
        assert_eq!(found.warnings.len(), 2, "{:?}", found.warnings);
    }
}
