//! What a pool's scheduler keeps of contracts, as a node says it of its pools: [`henge_core::Keeps`] on the wire.
//!
//! Who does not know a term or a unit passes it over: nobody can ask it for one. A need of which it knows nothing beside the term is never
//! met, so that it refuses rather than admit what the node refuses.

use henge_core::{CostUnit, Duration, Rate, Term, WORDS};
use serde::{Deserialize, Serialize};

/// What a pool's scheduler keeps.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Keeps {
    /// Its name.
    pub scheduler: String,
    /// Gates of the pool: each is given a part of a contract, and the bounds below are of one.
    pub gates: u32,
    /// Keys of the terms that it keeps.
    pub terms: Vec<String>,
    /// Terms that go with others there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// In which units it counts rates and limits.
    pub units: Vec<Unit>,
    /// The most that rates may be together; none: it has no bound of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Most>,
    /// The most that shares of the device's time may be together, in millionths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
    /// Of so many millionths of the requests each takes at most so many nanoseconds on the device: no latency is below.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub service: Vec<(u32, u64)>,
    /// Curves of rate, burst and latency are held against `rate` together. A rate without a latency has this one, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curves: Option<u64>,
}

/// A term that goes with one of several others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Need {
    /// Its key.
    pub term: String,
    /// One of them is stated beside it.
    pub with: Vec<With>,
}

/// A term that another one goes with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct With {
    /// Its key.
    pub term: String,
    /// The one word that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
}

/// What a rate counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Client commands; millionths of them in a [`Most`].
    Requests,
    /// Bytes.
    Bytes,
    /// Nanoseconds of the device.
    DiskTime,
    /// What a later version counts.
    #[serde(other)]
    Later,
}

/// Most of something in a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Most {
    /// How much.
    pub per_second: u64,
    /// Of what.
    pub unit: Unit,
}

impl Unit {
    fn of(unit: CostUnit) -> Unit {
        match unit {
            CostUnit::Requests => Unit::Requests,
            CostUnit::Bytes => Unit::Bytes,
            CostUnit::DiskTime => Unit::DiskTime,
        }
    }
    fn read(self) -> Option<CostUnit> {
        match self {
            Unit::Requests => Some(CostUnit::Requests),
            Unit::Bytes => Some(CostUnit::Bytes),
            Unit::DiskTime => Some(CostUnit::DiskTime),
            Unit::Later => None,
        }
    }
}

impl Keeps {
    /// Of a pool with so many gates.
    pub fn of(keeps: &henge_core::Keeps, gates: usize) -> Keeps {
        let with =
            |with: &henge_core::With| With { term: with.term.to_owned(), word: with.word.map(str::to_owned) };
        let need = |need: &henge_core::Need| Need {
            term: need.term.to_owned(),
            with: need.with.iter().map(with).collect(),
        };
        Keeps {
            scheduler: keeps.scheduler.clone().into_owned(),
            gates: u32::try_from(gates).unwrap_or(u32::MAX),
            terms: keeps.terms.iter().map(|term| (*term).to_owned()).collect(),
            needs: keeps.needs.iter().map(need).collect(),
            units: keeps.units.iter().map(|unit| Unit::of(*unit)).collect(),
            rate: keeps.rate.map(|rate| Most { per_second: rate.per_second, unit: Unit::of(rate.unit) }),
            share: keeps.share,
            service: keeps.service.iter().map(|(share, time)| (*share, time.as_nanos())).collect(),
            curves: keeps.curves.map(Duration::as_nanos),
        }
    }

    /// As it is asked.
    pub fn read(&self) -> henge_core::Keeps {
        let key = |key: &String| Term::of(key).map(|term| term.key);
        let with = |with: &With| {
            let known = |word: &String| WORDS.into_iter().find(|known| known == word);
            let word = with.word.as_ref().map(|word| known(word).ok_or(())).transpose().ok()?;
            Some(henge_core::With { term: key(&with.term)?, word })
        };
        let need = |need: &Need| {
            let with: Vec<_> = need.with.iter().filter_map(with).collect();
            Some(henge_core::Need { term: key(&need.term)?, with: with.into() })
        };
        let rate = |most: Most| Some(Rate { per_second: most.per_second, unit: most.unit.read()? });
        henge_core::Keeps {
            scheduler: self.scheduler.clone().into(),
            terms: self.terms.iter().filter_map(key).collect(),
            needs: self.needs.iter().filter_map(need).collect(),
            units: self.units.iter().filter_map(|unit| unit.read()).collect(),
            rate: self.rate.and_then(rate),
            share: self.share,
            service: self.service.iter().map(|(share, ns)| (*share, Duration::from_nanos(*ns))).collect(),
            curves: self.curves.map(Duration::from_nanos),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_later_version_says_is_passed_over_and_never_met() {
        let text = r#"{"scheduler":"new","gates":2,"terms":["rate","mood"],"units":["requests","joules"],
            "needs":[{"term":"latency","with":[{"term":"mood"}]},{"term":"mood","with":[]}],"sings":true}"#;
        let read: Keeps = serde_json::from_str(text).unwrap();
        let keeps = read.read();
        assert_eq!(
            (keeps.terms.as_slice(), keeps.units.as_slice()),
            (&["rate"][..], &[CostUnit::Requests][..])
        );
        assert_eq!(keeps.needs.len(), 1);
        assert!(keeps.needs[0].with.is_empty(), "a latency goes with nothing that is known here");
    }

    #[test]
    fn what_is_said_is_what_is_heard() {
        let keeps = henge_core::Keeps {
            scheduler: "some".into(),
            terms: vec!["rate", "min_share"],
            needs: vec![henge_core::Need::of(
                "latency",
                const { &[henge_core::With::word("kind", "latency")] },
            )],
            units: vec![CostUnit::DiskTime, CostUnit::Bytes],
            rate: Some(Rate::bytes(7)),
            share: Some(9),
            service: vec![(950_000, Duration::from_millis(5))],
            curves: Some(Duration::from_millis(100)),
        };
        let sent = serde_json::to_vec(&Keeps::of(&keeps, 4)).unwrap();
        let heard: Keeps = serde_json::from_slice(&sent).unwrap();
        assert_eq!((heard.read(), heard.gates), (keeps, 4));
    }
}
