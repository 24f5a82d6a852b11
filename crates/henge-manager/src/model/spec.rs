//! What a tenant asks of a disk: terms as they are written, and the specification that they mean.

mod json;
#[cfg(test)]
mod tests;

pub(crate) use json::describe;

use super::rate_text;
use henge_admission::Specification;
use henge_api::typed;
use henge_core::{Contract, CostUnit, Params, Rate, TERMS, Term, Value, parse_rate, parse_size};
use std::collections::BTreeMap;

/// Terms of a contract as they are written.
pub type Terms = BTreeMap<String, String>;

/// What a tenant asks for: availability, bandwidth, capacity, delay, elasticity. Quantities carry their units.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DiskSpec {
    /// C: how large.
    pub capacity: String,
    /// B: requests a second that it is promised.
    pub rate: Option<String>,
    /// D: how long a request may take.
    pub latency: Option<String>,
    /// E: how many percent of the requests are within the latency; 95 if not stated.
    pub percentile: Option<f64>,
    /// Most requests queued at once for which the latency is promised; 16 if not stated.
    pub pending: Option<u32>,
    /// A: copies that the storage behind it keeps; 1 if not stated.
    pub copies: Option<u32>,
    /// Over how many nodes it is striped; 1 if not stated.
    pub parts: Option<u32>,
    /// f: room for uneven load over the parts; 1 if not stated.
    pub leeway: Option<f64>,
    /// Its share of what nobody reserved, relative to others.
    pub weight: Option<u32>,
    /// The most it gets, even when nobody else wants anything.
    pub limit: Option<String>,
    /// Requests that may come at once on top of rate or limit.
    pub burst: Option<String>,
    /// A share of disk time, in place of a rate.
    pub disk_time: DiskTime,
    /// Terms that are one amount, by key: henge-core's table has them, and the API's description by that.
    pub amounts: Terms,
}

/// A share of disk time, and what goes with it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DiskTime {
    /// Of the disk time of each pool it lies on.
    pub share: Option<String>,
    /// "rent", "latency" or "throughput"; rent if not stated.
    pub kind: Option<String>,
    /// What a share of kind "throughput" promises.
    pub throughput: Option<String>,
    /// How far below its throughput lending may go.
    pub tolerance: Option<String>,
}

/// The specification is wrong, whoever should keep it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadSpec(pub String);

impl DiskSpec {
    /// A term as it is written, of a contract or of where the disk lies.
    pub fn term(&self, key: &str) -> Option<String> {
        match serde_json::to_value(self).ok()?.get(key)? {
            serde_json::Value::String(text) => Some(text.clone()),
            number => number.as_f64().map(|x| x.to_string()),
        }
    }

    /// Sets a term as somebody typed it; an empty text takes it away.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), BadSpec> {
        let mut all = serde_json::to_value(&*self).expect("it is texts and numbers");
        let object = all.as_object_mut().expect("it is an object");
        if text.is_empty() && key != "capacity" && Term::of_disk(key).is_some() {
            object.remove(key);
        } else {
            object.insert(key.to_owned(), typed(key, text).map_err(BadSpec)?);
        }
        *self = serde_json::from_value(all).map_err(|e| BadSpec(format!("{key}: {e}")))?;
        Ok(())
    }

    /// The terms of its contract as they are written.
    fn written(&self) -> Terms {
        let all = serde_json::to_value(self).expect("it is texts and numbers");
        let text = |term: &Term| match all.get(term.key)? {
            serde_json::Value::String(text) => Some(text.clone()),
            number => number.as_f64().map(|x| x.to_string()),
        };
        TERMS.iter().filter_map(|term| Some((term.key.to_owned(), text(term)?))).collect()
    }

    /// What it means.
    pub fn read(&self) -> Result<Specification, BadSpec> {
        let mut p = Params::new("the disk").with("capacity", Value::Text(self.capacity.clone()));
        let texts = [("rate", &self.rate), ("latency", &self.latency)];
        for (key, text) in texts.into_iter().filter_map(|(k, t)| t.as_ref().map(|t| (k, t))) {
            p = p.with(key, Value::Text(text.clone()));
        }
        let numbers = [("pending", self.pending), ("copies", self.copies)];
        for (key, number) in numbers.into_iter().filter_map(|(k, n)| n.map(|n| (k, n))) {
            p = p.with(key, Value::Integer(i64::from(number)));
        }
        let floats = [("percentile", self.percentile), ("leeway", self.leeway)];
        for (key, number) in floats.into_iter().filter_map(|(k, n)| n.map(|n| (k, n))) {
            p = p.with(key, Value::Float(number));
        }
        let mut specification = Specification::from_params(&mut p).map_err(|e| BadSpec(e.to_string()))?;
        if self.parts().is_none_or(|n| n > 1000) {
            return Err(BadSpec("a disk has between 1 and 1000 parts".into()));
        }
        if self.percentile.is_some() && self.latency.is_none() && self.rate.is_none() {
            return Err(BadSpec(
                "a percentile says how often a latency or a rate is kept; state one of them".into(),
            ));
        }
        if specification.elasticity * 1e6 < 1.0 {
            return Err(BadSpec("a percentile is at least 0.0001".into()));
        }
        self.check_contract()?;
        if self.disk_time.share.is_some() {
            // Its promise is a share of the device, which the node's scheduler sums up: admission reserves no rate beside it.
            specification.delay = None;
        }
        Ok(specification)
    }

    /// Whether its terms make a contract, and one that a manager can give.
    fn check_contract(&self) -> Result<(), BadSpec> {
        let mut p = Params::new("the disk");
        // Beside a rate without a latency the percentile is admission's alone.
        let all = self.written().into_iter().filter(|(key, _)| key != "percentile" || self.latency.is_some());
        for (key, text) in all {
            p = p.with(&key, Term::value(&key, &text).map_err(BadSpec)?);
        }
        let contract = Contract::from_params(&mut p).map_err(|e| BadSpec(e.to_string()))?;
        let counts = |rate: Option<Rate>| rate.is_none_or(|rate| rate.unit == CostUnit::Requests);
        if !counts(contract.limit) {
            return Err(BadSpec("a limit counts requests; write it like \"2000/s\"".into()));
        }
        if let Some(burst) = &self.burst {
            if !counts(parse_rate(&format!("{burst}/s")).ok()) {
                return Err(BadSpec("a burst counts requests; write it like \"64\"".into()));
            }
            if self.rate.is_none() && self.limit.is_none() && self.latency.is_none() {
                return Err(BadSpec("a burst comes on top of a rate or a limit; state one of them".into()));
            }
        }
        if self.disk_time.share.is_some() && self.rate.is_some() {
            return Err(BadSpec("a disk has a rate or a share of disk time; state one of them".into()));
        }
        Ok(())
    }

    /// Over how many nodes; `None` for zero.
    pub fn parts(&self) -> Option<u32> {
        Some(self.parts.unwrap_or(1)).filter(|n| *n > 0)
    }

    /// Bytes; for a specification that was read.
    pub fn bytes(&self) -> u64 {
        parse_size(&self.capacity).unwrap_or(0)
    }

    /// The contract that a node is given when it reserves `reserved_micro` millionths of a request a second.
    pub fn terms(&self, reserved_micro: u64) -> Terms {
        let mut terms = self.written();
        terms.remove("rate");
        if reserved_micro > 0 {
            terms.insert("rate".into(), rate_text(reserved_micro));
        }
        if self.latency.is_some() {
            terms.entry("percentile".into()).or_insert_with(|| "95".into());
            terms.entry("pending".into()).or_insert_with(|| "16".into());
        } else {
            terms.remove("percentile"); // the rate's, which admission has turned into a reservation
        }
        terms
    }

    /// In one line, for people.
    pub fn describe(&self) -> String {
        let mut words = vec![self.capacity.clone()];
        words.extend(self.rate.clone());
        if let Some(latency) = &self.latency {
            words.push(format!("{latency} for {} %", self.percentile.unwrap_or(95.0)));
        }
        words.extend(self.disk_time.share.as_ref().map(|share| format!("{share} of the disk time")));
        words.join(", ")
    }
}
