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
use henge_api::is_name;
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
                .max(micro(spec.disk_time.throughput.as_ref()))
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
    of(spec.disk_time.share.as_ref()).max(of(spec.amounts.get("min_share"))).unwrap_or(0).into()
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
            share: spec.disk_time.share.as_ref().map(|_| share_text(share(spec))),
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
            (&mut self.share, &before.disk_time.share, &now.disk_time.share),
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
        if self.rate != u64::MAX && spec.disk_time.throughput.as_ref().is_some_and(|text| !counts(text)) {
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
                    "{term}: {most} are allowed and {used} in use; {left} are left, and this takes {asked}: \
                     ask for less, or ask the administrator for more"
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
    if own(tenant, name).is_some() { name.to_owned() } else { prefix(tenant) + name }
}

/// What stands behind the tenant's name in a whole name of its disks. Behind the name of another tenant that begins alike stands a dot.
fn own<'a>(tenant: &str, full: &'a str) -> Option<&'a str> {
    full.strip_prefix(&prefix(tenant)).filter(|name| is_name(name))
}

/// A disk as its tenant calls it. Disks of earlier releases have no more than that name.
pub(crate) fn called<'a>(tenant: Option<&str>, full: &'a str) -> &'a str {
    tenant.and_then(|tenant| own(tenant, full)).unwrap_or(full)
}

#[cfg(test)]
mod tests;
