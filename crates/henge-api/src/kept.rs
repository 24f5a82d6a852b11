//! How much of the time a promise was kept.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// The seconds in which a disk wanted what it is promised, in milliseconds of them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Seconds {
    /// All of them.
    #[serde(default)]
    pub wanted_ms: u64,
    /// Those in which it got it.
    #[serde(default)]
    pub kept_ms: u64,
    /// The others, by what held its requests up most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missed_ms: BTreeMap<String, u64>,
}

impl Seconds {
    /// Of the seconds in which it wanted it, those in which it got it; `None` while there was none.
    pub fn ratio(&self) -> Option<f64> {
        (self.wanted_ms > 0).then(|| self.kept_ms as f64 / self.wanted_ms as f64)
    }

    /// Takes others in.
    pub fn add(&mut self, others: &Seconds) {
        // What another node says may be anything.
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.wanted_ms, others.wanted_ms);
        add(&mut self.kept_ms, others.kept_ms);
        for (why, ms) in &others.missed_ms {
            add(self.missed_ms.entry(why.clone()).or_default(), *ms);
        }
    }

    /// For people: `kept in 99.97 % of 86400 s; missed because of device busy (20 s), turn (6 s)`.
    pub fn line(&self) -> Option<String> {
        // Cut off, not rounded: 100 % means all of them.
        let percent = (self.ratio()? * 10_000.0).floor() / 100.0;
        let mut text = format!("kept in {percent:.2} % of {} s", show(self.wanted_ms));
        let mut missed: Vec<(&String, &u64)> = self.missed_ms.iter().collect();
        missed.sort_by_key(|(_, ms)| std::cmp::Reverse(**ms));
        let missed: Vec<String> =
            missed.iter().map(|(why, ms)| format!("{why} ({} s)", show(**ms))).collect();
        if !missed.is_empty() {
            text += &format!("; missed because of {}", missed.join(", "));
        }
        Some(text)
    }
}

fn show(ms: u64) -> String {
    if ms < 10_000 { format!("{:.1}", ms as f64 / 1e3) } else { (ms / 1000).to_string() }
}

impl Kept {
    /// What all nodes counted of a disk; `None` where none of them counts.
    pub fn sum<'a>(counted: impl IntoIterator<Item = &'a Kept>) -> Option<Kept> {
        counted.into_iter().fold(None, |sum, kept| {
            let mut sum: Kept = sum.unwrap_or_default();
            sum.add(kept);
            Some(sum)
        })
    }

    fn add(&mut self, other: &Kept) {
        self.day.add(&other.day);
        self.month.add(&other.month);
        self.ever.add(&other.ever);
        for (day, seconds) in &other.days {
            self.days.entry(*day).or_default().add(seconds);
        }
    }
}

/// The same for several times.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    /// The last 24 hours, this one included.
    pub day: Seconds,
    /// The last 30 days, this one included.
    pub month: Seconds,
    /// Since the disk was made, or counting began.
    pub ever: Seconds,
    /// Each of the last 30 days (UTC) in which it wanted it, by the number of the day since 1970. A node tells of some disks' days in
    /// each second, in turns.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "by_number")]
    pub days: BTreeMap<u64, Seconds>,
}

/// JSON's keys are texts. Where a message says by a key what it is, serde keeps the rest as it stands, and would read no number from a text.
fn by_number<'de, D: Deserializer<'de>>(days: D) -> Result<BTreeMap<u64, Seconds>, D::Error> {
    let number = |(day, seconds): (String, Seconds)| {
        let day =
            day.parse().map_err(|_| D::Error::custom(format!("\"{day}\" is not the number of a day")))?;
        Ok((day, seconds))
    };
    BTreeMap::<String, Seconds>::deserialize(days)?.into_iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_nodes_of_a_disk_count_adds_up() {
        let node = |wanted_ms, kept_ms, why: &str| {
            let missed_ms = BTreeMap::from([(why.to_owned(), wanted_ms - kept_ms)]);
            let counted = Seconds { wanted_ms, kept_ms, missed_ms };
            Kept { day: counted.clone(), month: counted.clone(), ever: counted, ..Kept::default() }
        };
        assert_eq!(Kept::sum(&[]), None, "nothing is promised");
        let sum =
            Kept::sum(&[node(9000, 8000, "turn"), node(5000, 3000, "turn"), node(1000, 0, "node")]).unwrap();
        let missed_ms = BTreeMap::from([("turn".to_owned(), 3000), ("node".to_owned(), 1000)]);
        let all = Seconds { wanted_ms: 15_000, kept_ms: 11_000, missed_ms };
        assert_eq!((&sum.day, &sum.month, &sum.ever), (&all, &all, &all));
    }

    #[test]
    fn a_line_says_how_much_and_why_not() {
        assert_eq!(Seconds::default().line(), None);
        let missed = BTreeMap::from([("turn".into(), 6_000), ("device busy".into(), 20_000)]);
        let seconds = Seconds { wanted_ms: 86_400_000, kept_ms: 86_374_000, missed_ms: missed };
        assert_eq!(
            seconds.line().unwrap(),
            "kept in 99.96 % of 86400 s; missed because of device busy (20 s), turn (6.0 s)"
        );
        // One millisecond of a year is not rounded away.
        let almost = Seconds { wanted_ms: 31_536_000_000, kept_ms: 31_535_999_999, ..Seconds::default() };
        assert!(almost.line().unwrap().starts_with("kept in 99.99 %"));
        let all = Seconds { wanted_ms: 1500, kept_ms: 1500, ..Seconds::default() };
        assert_eq!(all.line().unwrap(), "kept in 100.00 % of 1.5 s");
    }
}
