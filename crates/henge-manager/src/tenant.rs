//! How much a tenant may have, what it has, and what is left.
//!
//! # The rule
//! The administrator sets a ceiling for a tenant; the tenant may set itself a quota below it. Of both the lower one counts. What is counted
//! is what its disks hold: also of one that is being removed, until its nodes have said that it is gone. What is not stated has no bound.
//!
//! | term | counted |
//! |---|---|
//! | `disks` | disks |
//! | `bytes` | their capacities |
//! | `rate` | of each disk the larger of the rate that was asked for and what is reserved for it (a latency takes a reservation, too) |
//! | `limit` | their limits; where it is stated, every disk states one |
//! | `weight` | their weights; a disk that states none has 1 |
//! | `latency` | nothing: it is the shortest that any disk may be promised |
//! | `burst` | their bursts |
//! | `share` | their shares of disk time, at each pool that a disk lies on; the least share of one node counts where it is larger |
//!
//! A promised `throughput` counts as a rate. Bursts and shares are a tenant's to give where its ceiling states `burst` or `share`; elsewhere
//! the administrator alone gives them.
//!
//! For example: ann may have 10 disks of 1 TB in all with a rate of 5000/s in all. She has 9 disks, 960 GB, 4800/s. A disk of 96 GB with
//! 100/s is refused, as 40 GB are left; one of 40 GB with 200/s is taken, and is her last.
//!
//! A quota that is lowered below what there is takes nothing away; only less is given.
//!
//! # Names
//! Tenants name their disks as they like: `web` of ann is `ann.web` for nodes, their clients and the administrator, `web` of bob is
//! `bob.web`. A dot in a tenant's name is doubled, so that no two tenants' disks can have one name: no disk's name begins with a dot.

use crate::model::{BadSpec, DiskSpec, rate_text};
use henge_core::{CostUnit, Duration, format_size, parse_duration, parse_rate, parse_share, parse_size};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How much all disks of a tenant may have together; what is not stated has no bound.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 10)]
    pub disks: Option<u32>,
    /// Their capacities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1TB", max_length = 64)]
    pub bytes: Option<String>,
    /// Requests a second that are reserved for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "5000/s", max_length = 64)]
    pub rate: Option<String>,
    /// Their limits; every disk states one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "20000/s", max_length = 64)]
    pub limit: Option<String>,
    /// Their weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 100)]
    pub weight: Option<u32>,
    /// The shortest latency that a disk may be promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "5ms", max_length = 64)]
    pub latency: Option<String>,
    /// Requests that may come at once on top of rates and limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 64)]
    pub burst: Option<u32>,
    /// Shares of disk time, at each pool that a disk lies on: more than 100% is several pools' time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "50%", max_length = 64)]
    pub share: Option<String>,
}

/// What is said of one term, where null takes it away (RFC 7396).
type Said<T> = Option<Option<T>>;

fn said<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(term: D) -> Result<Said<T>, D::Error> {
    Option::deserialize(term).map(Some)
}

/// Terms of a quota to be changed; null takes one away, what is not mentioned stays.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaPatch {
    /// Disks.
    #[serde(default, deserialize_with = "said")]
    #[schema(value_type = Option<u32>)]
    pub disks: Said<u32>,
    /// Their capacities.
    #[serde(default, deserialize_with = "said")]
    #[schema(value_type = Option<String>)]
    pub bytes: Said<String>,
    /// Requests a second that are reserved for them.
    #[serde(default, deserialize_with = "said")]
    #[schema(value_type = Option<String>)]
    pub rate: Said<String>,
    /// Their limits; every disk states one.
    #[serde(default, deserialize_with = "said")]
    #[schema(value_type = Option<String>)]
    pub limit: Said<String>,
    /// Their weights.
    #[serde(default, deserialize_with = "said")]
    #[schema(value_type = Option<u32>)]
    pub weight: Said<u32>,
    /// The shortest latency that a disk may be promised.
    #[serde(default, deserialize_with = "said")]
    #[schema(value_type = Option<String>)]
    pub latency: Said<String>,
    /// Requests that may come at once on top of rates and limits.
    #[serde(default, deserialize_with = "said")]
    #[schema(value_type = Option<u32>)]
    pub burst: Said<u32>,
    /// Shares of disk time, at each pool that a disk lies on.
    #[serde(default, deserialize_with = "said")]
    #[schema(value_type = Option<String>)]
    pub share: Said<String>,
}

impl QuotaPatch {
    /// A quota with what is said.
    pub fn on(self, quota: Quota) -> Quota {
        Quota {
            disks: self.disks.unwrap_or(quota.disks),
            bytes: self.bytes.unwrap_or(quota.bytes),
            rate: self.rate.unwrap_or(quota.rate),
            limit: self.limit.unwrap_or(quota.limit),
            weight: self.weight.unwrap_or(quota.weight),
            latency: self.latency.unwrap_or(quota.latency),
            burst: self.burst.unwrap_or(quota.burst),
            share: self.share.unwrap_or(quota.share),
        }
    }
}

/// A tenant, remembered.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TenantRecord {
    /// What the administrator allows.
    pub ceiling: Quota,
    /// What the tenant allows itself.
    #[serde(default)]
    pub own: Quota,
}

/// A quota in numbers: requests in millionths. What has no bound is at the type's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Amounts {
    pub disks: u64,
    pub bytes: u64,
    pub rate: u64,
    pub limit: u64,
    pub weight: u64,
    /// The shortest; none: any.
    pub latency: Option<Duration>,
    pub burst: u64,
    /// Millionths.
    pub share: u64,
}

/// What disks hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Used {
    pub disks: u64,
    pub bytes: u64,
    pub rate: u64,
    pub limit: u64,
    pub weight: u64,
    pub burst: u64,
    pub share: u64,
}

impl Used {
    /// One disk, with what is reserved for it.
    pub(crate) fn of(spec: &DiskSpec, reserved_micro: u64) -> Used {
        Used {
            disks: 1,
            bytes: spec.bytes(),
            rate: micro(spec.rate.as_ref())
                .max(micro(spec.throughput.as_ref()))
                .unwrap_or(0)
                .max(reserved_micro),
            limit: micro(spec.limit.as_ref()).unwrap_or(0),
            weight: u64::from(spec.weight.unwrap_or(1)),
            burst: burst(spec).unwrap_or(0),
            share: share(spec).saturating_mul(u64::from(spec.parts().unwrap_or(1))),
        }
    }

    pub(crate) fn and(self, more: Used) -> Used {
        Used {
            disks: self.disks.saturating_add(more.disks),
            bytes: self.bytes.saturating_add(more.bytes),
            rate: self.rate.saturating_add(more.rate),
            limit: self.limit.saturating_add(more.limit),
            weight: self.weight.saturating_add(more.weight),
            burst: self.burst.saturating_add(more.burst),
            share: self.share.saturating_add(more.share),
        }
    }
}

fn micro(text: Option<&String>) -> Option<u64> {
    parse_rate(text?).ok().filter(|rate| rate.unit == CostUnit::Requests).map(|rate| rate.per_second)
}

/// Requests of a disk's burst, rounded up.
fn burst(spec: &DiskSpec) -> Option<u64> {
    let micro = parse_rate(&format!("{}/s", spec.burst.as_ref()?)).ok()?.per_second;
    Some(micro.div_ceil(1_000_000))
}

/// Millionths of the time of each pool that a disk lies on.
fn share(spec: &DiskSpec) -> u64 {
    let of = |text: Option<&String>| text.and_then(|text| parse_share(text).ok());
    of(spec.share.as_ref()).max(of(spec.amounts.get("min_share"))).unwrap_or(0).into()
}

/// Shares together may be more than one pool's time.
fn read_shares(text: &str) -> Result<u64, BadSpec> {
    let wrong = || {
        BadSpec(format!(
            "share: \"{text}\" is not a share; write it like \"50%\", or \"250%\" of several pools"
        ))
    };
    let percent: f64 = text.trim().strip_suffix('%').and_then(|n| n.trim().parse().ok()).ok_or_else(wrong)?;
    let known = percent.is_finite() && (0.0..=1e9).contains(&percent);
    known.then(|| (percent * 10_000.0).round() as u64).ok_or_else(wrong)
}

fn share_text(ppm: u64) -> String {
    format!("{}%", ppm as f64 / 1e4)
}

fn number(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl Quota {
    /// What it means.
    pub(crate) fn read(&self) -> Result<Amounts, BadSpec> {
        let rate = |key: &str, text: &Option<String>| -> Result<u64, BadSpec> {
            let Some(text) = text else { return Ok(u64::MAX) };
            let rate = parse_rate(text).map_err(|e| BadSpec(format!("{key}: {}", e.0)))?;
            match rate.unit {
                CostUnit::Requests => Ok(rate.per_second),
                _ => Err(BadSpec(format!("{key} counts requests, like \"5000/s\", not \"{text}\""))),
            }
        };
        let bytes = self.bytes.as_ref().map(|text| parse_size(text));
        let latency = self.latency.as_ref().map(|text| parse_duration(text));
        Ok(Amounts {
            disks: self.disks.map_or(u64::MAX, u64::from),
            bytes: bytes.transpose().map_err(|e| BadSpec(format!("bytes: {}", e.0)))?.unwrap_or(u64::MAX),
            rate: rate("rate", &self.rate)?,
            limit: rate("limit", &self.limit)?,
            weight: self.weight.map_or(u64::MAX, u64::from),
            latency: latency.transpose().map_err(|e| BadSpec(format!("latency: {}", e.0)))?,
            burst: self.burst.map_or(u64::MAX, u64::from),
            share: self.share.as_ref().map_or(Ok(u64::MAX), |text| read_shares(text))?,
        })
    }

    /// Whether it bounds what this term counts.
    pub(crate) fn states(&self, term: &str) -> bool {
        match term {
            "burst" => self.burst.is_some(),
            "share" => self.share.is_some(),
            _ => false,
        }
    }

    /// The terms that are above a ceiling, and the ceiling's.
    pub(crate) fn above(&self, ceiling: &Quota) -> Vec<(&'static str, String)> {
        let (Ok(ours), Ok(top)) = (self.read(), ceiling.read()) else { return Vec::new() };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let count = |n: Option<u32>| n.map(|n| n.to_string()).unwrap_or_default();
        let sooner = top.latency.zip(ours.latency).is_some_and(|(top, ours)| ours < top);
        [
            (self.disks.is_some() && ours.disks > top.disks, "disks", count(ceiling.disks)),
            (self.bytes.is_some() && ours.bytes > top.bytes, "bytes", text(&ceiling.bytes)),
            (self.rate.is_some() && ours.rate > top.rate, "rate", text(&ceiling.rate)),
            (self.limit.is_some() && ours.limit > top.limit, "limit", text(&ceiling.limit)),
            (self.weight.is_some() && ours.weight > top.weight, "weight", count(ceiling.weight)),
            (sooner, "latency", text(&ceiling.latency)),
            (self.burst.is_some() && ours.burst > top.burst, "burst", count(ceiling.burst)),
            (self.share.is_some() && ours.share > top.share, "share", text(&ceiling.share)),
        ]
        .into_iter()
        .filter_map(|(above, term, most)| above.then_some((term, most)))
        .collect()
    }

    /// What was used, in the words of a quota.
    pub(crate) fn used(used: &Used) -> Quota {
        Quota {
            disks: Some(number(used.disks)),
            bytes: Some(format!("{}B", used.bytes)),
            rate: Some(rate_text(used.rate)),
            limit: Some(rate_text(used.limit)),
            weight: Some(number(used.weight)),
            latency: None,
            burst: Some(number(used.burst)),
            share: Some(share_text(used.share)),
        }
    }

    /// In one line, for people.
    pub(crate) fn words(&self) -> String {
        let count = |key, n: Option<u32>| n.map(|n| format!("{key} {n}"));
        let text = |key, text: &Option<String>| text.as_ref().map(|text| format!("{key} {text}"));
        let words = [
            count("disks", self.disks),
            text("bytes", &self.bytes),
            text("rate", &self.rate),
            text("limit", &self.limit),
            count("weight", self.weight),
            text("latency", &self.latency),
            count("burst", self.burst),
            text("share", &self.share),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        if words.is_empty() { "no quota".into() } else { words.join(", ") }
    }

    /// As the ceiling of one disk: in which terms what is asked for is above it.
    pub(crate) fn above_disk(&self, spec: &DiskSpec) -> Vec<(&'static str, String)> {
        let asked = Quota {
            rate: spec.rate.clone(),
            limit: spec.limit.clone(),
            weight: Some(spec.weight.unwrap_or(1)),
            latency: spec.latency.clone(),
            burst: burst(spec).map(number),
            share: spec.share.as_ref().map(|_| share_text(share(spec))),
            ..Quota::default()
        };
        let mut above = asked.above(self);
        if let (Some(limit), None) = (&self.limit, &spec.limit) {
            // No limit is more than any.
            above.push(("limit", limit.clone()));
        }
        above
    }

    /// As the ceiling of one disk, once the administrator has changed it: of each term that differs, what it is now.
    pub(crate) fn follow(&mut self, before: Option<&DiskSpec>, now: &DiskSpec) {
        let none = DiskSpec::default();
        let before = before.unwrap_or(&none);
        let texts = [
            (&mut self.rate, &before.rate, &now.rate),
            (&mut self.limit, &before.limit, &now.limit),
            (&mut self.latency, &before.latency, &now.latency),
            (&mut self.share, &before.share, &now.share),
        ];
        for (top, before, now) in texts {
            if before != now {
                top.clone_from(now);
            }
        }
        if before.weight != now.weight {
            self.weight = now.weight;
        }
        if before.burst != now.burst {
            self.burst = burst(now).map(number);
        }
    }
}

impl TenantRecord {
    /// Of both the lower.
    pub(crate) fn amounts(&self) -> Amounts {
        let read = |quota: &Quota| quota.read().expect("only quotas that were read are stored");
        let (a, b) = (read(&self.ceiling), read(&self.own));
        Amounts {
            disks: a.disks.min(b.disks),
            bytes: a.bytes.min(b.bytes),
            rate: a.rate.min(b.rate),
            limit: a.limit.min(b.limit),
            weight: a.weight.min(b.weight),
            latency: a.latency.max(b.latency),
            burst: a.burst.min(b.burst),
            share: a.share.min(b.share),
        }
    }
}

impl Amounts {
    /// What is left beside what is used, in the words of a quota; what has no bound is not stated.
    pub(crate) fn left(&self, used: &Used) -> Quota {
        let left = |most: u64, used: u64| (most != u64::MAX).then(|| most.saturating_sub(used));
        Quota {
            disks: left(self.disks, used.disks).map(number),
            bytes: left(self.bytes, used.bytes).map(|n| format!("{n}B")),
            rate: left(self.rate, used.rate).map(rate_text),
            limit: left(self.limit, used.limit).map(rate_text),
            weight: left(self.weight, used.weight).map(number),
            latency: self.latency.map(|latency| latency.to_string()),
            burst: left(self.burst, used.burst).map(number),
            share: left(self.share, used.share).map(share_text),
        }
    }

    /// Why a disk is more than what is left beside `others`, if it is.
    pub(crate) fn refuses(&self, others: &Used, spec: &DiskSpec, reserved_micro: u64) -> Option<String> {
        let asked = Used::of(spec, reserved_micro);
        if self.limit != u64::MAX && spec.limit.is_none() {
            let left = rate_text(self.limit.saturating_sub(others.limit));
            return Some(format!("every disk states a limit there; {left} are left: write limit={left}"));
        }
        if let Some(shortest) = self.latency {
            let asked = spec.latency.as_ref().and_then(|text| parse_duration(text).ok());
            if let Some(asked) = asked.filter(|asked| *asked < shortest) {
                return Some(format!("a latency is at least {shortest}, and this asks for {asked}"));
            }
        }
        let counts = |text: &String| parse_rate(text).is_ok_and(|rate| rate.unit == CostUnit::Requests);
        if self.rate != u64::MAX && spec.throughput.as_ref().is_some_and(|text| !counts(text)) {
            return Some(
                "a throughput counts as a rate there: write it in requests, like throughput=900/s".into(),
            );
        }
        type Text = fn(u64) -> String;
        let (plain, size, rate): (Text, Text, Text) = (|n| n.to_string(), format_size, rate_text);
        let terms = [
            ("disks", self.disks, others.disks, asked.disks, plain),
            ("bytes", self.bytes, others.bytes, asked.bytes, size),
            ("rate", self.rate, others.rate, asked.rate, rate),
            ("limit", self.limit, others.limit, asked.limit, rate),
            ("weight", self.weight, others.weight, asked.weight, plain),
            ("burst", self.burst, others.burst, asked.burst, plain),
            ("share", self.share, others.share, asked.share, share_text),
        ];
        let beyond = |(term, most, used, asked, text): &(&str, u64, u64, u64, Text)| {
            let left = most.saturating_sub(*used);
            (*asked > left).then(|| {
                let (most, used, left, asked) = (text(*most), text(*used), text(left), text(*asked));
                format!(
                    "{term}: {most} are allowed and {used} in use; {left} are left, and this takes {asked}"
                )
            })
        };
        terms.iter().find_map(beyond)
    }
}

/// What a tenant's disks begin with for nodes and their clients.
fn prefix(tenant: &str) -> String {
    format!("{}.", tenant.replace('.', ".."))
}

/// A disk as nodes and the administrator call it. Who gives the whole name means the same disk.
pub(crate) fn full_name(tenant: &str, name: &str) -> String {
    let prefix = prefix(tenant);
    if name.starts_with(&prefix) { name.to_owned() } else { prefix + name }
}

/// A disk as its tenant calls it. Disks of earlier releases have no more than that name.
pub(crate) fn called<'a>(tenant: Option<&str>, full: &'a str) -> &'a str {
    tenant
        .and_then(|tenant| full.strip_prefix(&prefix(tenant)))
        .filter(|name| !name.is_empty())
        .unwrap_or(full)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn no_two_tenants_disks_have_one_name() {
        let names = ["a", "b", "a.b", "a..b", "b.a", "a.", "a..", "_", "-.a", "a.b.c"];
        let mut seen = BTreeMap::new();
        for tenant in names {
            for name in names {
                let full = full_name(tenant, name);
                let plain = called(Some(tenant), name);
                assert_eq!(called(Some(tenant), &full), plain, "{tenant} {name}");
                // Who gives the whole name means the same.
                assert_eq!(full_name(tenant, &full), full);
                if let Some(other) = seen.insert(full.clone(), (tenant, plain)) {
                    assert_eq!(other, (tenant, plain), "{full}");
                }
            }
        }
    }

    fn quota() -> Quota {
        Quota {
            disks: Some(10),
            bytes: Some("1TB".into()),
            rate: Some("5000/s".into()),
            limit: Some("9000/s".into()),
            weight: Some(20),
            latency: Some("5ms".into()),
            burst: Some(64),
            share: Some("150%".into()),
        }
    }

    #[test]
    fn the_example_of_the_rule() {
        let quota = Quota { limit: None, weight: None, latency: None, ..quota() };
        let amounts = TenantRecord { ceiling: quota, own: Quota::default() }.amounts();
        let (bytes, rate) = (960_000_000_000, 4_800_000_000);
        let others = Used { disks: 9, bytes, rate, weight: 9, ..Used::default() };
        let disk = |capacity: &str, rate: &str| DiskSpec {
            capacity: capacity.into(),
            rate: Some(rate.into()),
            ..DiskSpec::default()
        };
        let why = amounts.refuses(&others, &disk("96GB", "100/s"), 0).unwrap();
        assert!(why.starts_with("bytes: ") && why.contains("40GB are left"), "{why}");
        assert_eq!(amounts.refuses(&others, &disk("40GB", "200/s"), 200_000_000), None);
        // What is reserved counts where it is more than what was asked for.
        let why = amounts.refuses(&others, &disk("1GB", "1/s"), 200_000_001).unwrap();
        assert!(why.contains("200/s are left, and this takes 200.000001/s"), "{why}");
        let left = amounts.left(&others);
        assert_eq!((left.disks, left.bytes.as_deref()), (Some(1), Some("40000000000B")));
        assert_eq!((left.rate.as_deref(), left.limit), (Some("200/s"), None));
        let full = Used { disks: 10, ..others };
        assert!(amounts.refuses(&full, &disk("1GB", "1/s"), 0).unwrap().starts_with("disks: "));
        // Lowered below what there is: nothing is left, and nothing wraps around.
        assert_eq!(amounts.left(&Used { disks: 12, ..others }).disks, Some(0));
    }

    #[test]
    fn of_ceiling_and_own_quota_the_lower_counts() {
        let own = Quota { disks: Some(3), latency: Some("9ms".into()), ..Quota::default() };
        let amounts = TenantRecord { ceiling: quota(), own: own.clone() }.amounts();
        assert_eq!((amounts.disks, amounts.bytes, amounts.rate), (3, 1_000_000_000_000, 5_000_000_000));
        assert_eq!(amounts.latency, Some(Duration::from_millis(9)));
        assert_eq!(own.above(&quota()), []);
        for (above, term) in [
            (Quota { disks: Some(11), ..Quota::default() }, "disks"),
            (Quota { bytes: Some("1001GB".into()), ..Quota::default() }, "bytes"),
            (Quota { rate: Some("5001/s".into()), ..Quota::default() }, "rate"),
            (Quota { limit: Some("9001/s".into()), ..Quota::default() }, "limit"),
            (Quota { weight: Some(21), ..Quota::default() }, "weight"),
            (Quota { latency: Some("4ms".into()), ..Quota::default() }, "latency"),
            (Quota { burst: Some(65), ..Quota::default() }, "burst"),
            (Quota { share: Some("150.1%".into()), ..Quota::default() }, "share"),
        ] {
            assert_eq!(above.above(&quota()).iter().map(|(term, _)| *term).collect::<Vec<_>>(), [term]);
            assert_eq!(above.above(&Quota::default()), [], "without a ceiling nothing is above it");
        }
        for (bad, says) in [
            (Quota { bytes: Some("1".into()), ..Quota::default() }, "bytes"),
            (Quota { rate: Some("5MB/s".into()), ..Quota::default() }, "requests"),
            (Quota { latency: Some("fast".into()), ..Quota::default() }, "latency"),
            (Quota { share: Some("half".into()), ..Quota::default() }, "250%"),
            (Quota { share: Some("-5%".into()), ..Quota::default() }, "250%"),
        ] {
            assert!(bad.read().unwrap_err().0.contains(says));
        }
    }

    #[test]
    fn bursts_and_shares_of_disk_time_add_up() {
        let amounts =
            TenantRecord { ceiling: Quota { limit: None, ..quota() }, own: Quota::default() }.amounts();
        let disk = |terms: &[(&str, &str)]| {
            let mut spec = DiskSpec { capacity: "1GB".into(), ..DiskSpec::default() };
            terms.iter().for_each(|(key, text)| spec.set(key, text).unwrap());
            spec
        };
        let first = Used::of(&disk(&[("rate", "9/s"), ("burst", "40.5"), ("share", "")]), 0);
        assert_eq!((first.burst, first.share), (41, 0));
        let of = |terms: &[(&str, &str)]| amounts.refuses(&first, &disk(terms), 0);
        assert_eq!(of(&[("rate", "9/s"), ("burst", "23")]), None);
        let why = of(&[("rate", "9/s"), ("burst", "24")]).unwrap();
        assert!(why.starts_with("burst: 64 are allowed and 41 in use; 23 are left"), "{why}");
        // A share is held on each of a disk's pools, and the least share of a node counts where it is more.
        assert_eq!(of(&[("share", "75%"), ("parts", "2")]), None);
        let why = of(&[("share", "75.5%"), ("parts", "2")]).unwrap();
        assert!(
            why.contains("share: 150% are allowed and 0% in use; 150% are left, and this takes 151%"),
            "{why}"
        );
        assert!(of(&[("min_share", "80%"), ("parts", "2")]).unwrap().starts_with("share: "));
        assert_eq!(amounts.left(&first).share.as_deref(), Some("150%"));
        // A throughput is a rate by another name.
        let throughput = |text| of(&[("share", "5%"), ("kind", "throughput"), ("throughput", text)]);
        assert_eq!(throughput("4991/s"), None);
        assert!(
            throughput("4992/s").unwrap().starts_with("rate: ")
                && throughput("1MB/s").unwrap().contains("900/s")
        );
    }

    #[test]
    fn a_limit_and_a_latency_class_are_asked_of_every_disk() {
        let amounts = TenantRecord { ceiling: quota(), own: Quota::default() }.amounts();
        let spec = DiskSpec { capacity: "1GB".into(), ..DiskSpec::default() };
        let none = Used::default();
        assert!(amounts.refuses(&none, &spec, 0).unwrap().contains("write limit=9000/s"));
        let limited = DiskSpec { limit: Some("9000/s".into()), ..spec.clone() };
        assert_eq!(amounts.refuses(&none, &limited, 0), None);
        assert!(amounts.refuses(&Used { limit: 1, ..none }, &limited, 0).unwrap().starts_with("limit: "));
        let fast = DiskSpec { latency: Some("4ms".into()), ..limited.clone() };
        assert!(amounts.refuses(&none, &fast, 0).unwrap().contains("at least 5ms"));
        let heavy = DiskSpec { weight: Some(21), ..limited };
        assert!(amounts.refuses(&none, &heavy, 0).unwrap().starts_with("weight: "));
    }

    #[test]
    fn what_the_administrator_stated_of_a_disk_is_its_ceiling() {
        let mut ceiling = Quota::default();
        let spec = |limit: Option<&str>, weight| DiskSpec {
            capacity: "1GB".into(),
            limit: limit.map(str::to_owned),
            weight,
            ..DiskSpec::default()
        };
        let first = spec(Some("500/s"), None);
        ceiling.follow(None, &first);
        assert_eq!(ceiling.above_disk(&spec(Some("400/s"), None)), []);
        assert_eq!(ceiling.above_disk(&spec(Some("501/s"), None)), [("limit", "500/s".into())]);
        assert_eq!(
            ceiling.above_disk(&spec(None, None)),
            [("limit", "500/s".into())],
            "none is more than any"
        );
        // The tenant has moved below; the administrator changes another term: the ceiling of the limit stays.
        let moved = spec(Some("100/s"), None);
        ceiling.follow(Some(&moved), &spec(Some("100/s"), Some(4)));
        assert_eq!((ceiling.limit.as_deref(), ceiling.weight), (Some("500/s"), Some(4)));
        assert_eq!(ceiling.above_disk(&spec(Some("500/s"), Some(5))), [("weight", "4".into())]);
        // Bursts and shares likewise.
        let shared = |burst: Option<&str>, share: Option<&str>| DiskSpec {
            burst: burst.map(str::to_owned),
            share: share.map(str::to_owned),
            ..spec(Some("100/s"), Some(4))
        };
        let mut given = Quota::default();
        given.follow(None, &shared(Some("7"), Some("25%")));
        assert_eq!(given.above_disk(&shared(Some("7"), Some("25%"))), []);
        let above = given.above_disk(&shared(Some("8"), Some("26%")));
        assert_eq!(above, [("burst", "7".into()), ("share", "25%".into())]);
        // Taken away by the administrator, it is no ceiling any more.
        ceiling.follow(Some(&spec(Some("100/s"), Some(4))), &spec(None, Some(4)));
        assert_eq!(ceiling.above_disk(&spec(None, Some(4))), []);
    }
}
