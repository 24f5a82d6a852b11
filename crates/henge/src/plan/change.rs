//! What is proposed: changes of a recorded scenario.

use crate::recording::{self, About};
use anyhow::{Context, Result, anyhow, bail};
use henge_core::{Params, Value};
use henge_sim::edit;
use henge_study::sim::value_of;
use henge_study::study::Study;
use std::collections::BTreeSet;
use std::path::Path;

/// Keys of an added disk that are no terms of its contract.
const OWN: [&str; 6] = ["capacity", "pool", "pools", "like", "workload", "leeway"];

/// A disk that would be added.
#[derive(Clone, Debug, PartialEq)]
pub struct Added {
    pub name: String,
    keys: Vec<(String, String)>,
}

/// A term that would change; an empty value takes it away.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    pub disk: String,
    key: String,
    value: String,
}

/// Everything that is proposed.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub add: Vec<Added>,
    pub remove: Vec<String>,
    pub set: Vec<Term>,
    /// `web=2`
    pub times: Vec<String>,
    pub scheduler: Option<String>,
    pub device: Option<String>,
}

impl Added {
    /// `mail capacity=15GB rate=128/s like=web`
    pub fn parse(text: &str) -> Result<Added, String> {
        let mut words = words(text).into_iter();
        let name = words.next().filter(|name| !name.contains('=')).ok_or_else(|| {
            format!("\"{text}\" names no disk; write \"mail capacity=15GB rate=128/s like=web\"")
        })?;
        let pair = |word: String| match word.split_once('=') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => {
                Ok((key.to_owned(), value.to_owned()))
            }
            _ => Err(format!("\"{word}\" is not KEY=VALUE, like rate=128/s")),
        };
        let keys: Vec<(String, String)> = words.map(pair).collect::<Result<_, _>>()?;
        let has = |key: &str| keys.iter().any(|(k, _)| k == key);
        if has("like") == has("workload") {
            return Err(format!(
                "{name}: say what it would ask: like=DISK for a recorded disk's load, or workload={{ preset = \"tpc-c\" }}"
            ));
        }
        Ok(Added { name, keys })
    }

    fn key(&self, wanted: &str) -> Option<&str> {
        self.keys.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.as_str())
    }
}

impl Term {
    /// `web.limit=600/s`
    pub fn parse(text: &str) -> Result<Term, String> {
        let wrong = || format!("\"{text}\" is not DISK.TERM=VALUE, like web.limit=600/s");
        let (path, value) = text.split_once('=').ok_or_else(wrong)?;
        let (disk, key) = path.rsplit_once('.').ok_or_else(wrong)?;
        if disk.is_empty() || key.is_empty() {
            return Err(wrong());
        }
        Ok(Term { disk: disk.to_owned(), key: key.to_owned(), value: value.to_owned() })
    }
}

/// Words apart by blanks; a blank in quotes or braces parts nothing.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut depth, mut quoted) = (Vec::new(), String::new(), 0i32, false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '{' | '[' if !quoted => depth += 1,
            '}' | ']' if !quoted => depth -= 1,
            _ => {}
        }
        if c.is_whitespace() && !quoted && depth <= 0 {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
        } else {
            word.push(c);
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// The disks of a scenario.
pub fn flows(study: &mut Study) -> BTreeSet<String> {
    let Some(Value::List(items)) = study.experiment.base.get_mut("flow") else { return BTreeSet::new() };
    items.iter_mut().filter_map(|(item, _)| name_of(item)).collect()
}

fn name_of(value: &mut Value) -> Option<String> {
    match value {
        Value::Table(table) => match table.get_mut("name") {
            Some(Value::Text(name)) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn flow<'a>(study: &'a mut Study, name: &str) -> Option<&'a mut Params> {
    let Some(Value::List(items)) = study.experiment.base.get_mut("flow") else { return None };
    items.iter_mut().find_map(|(item, _)| {
        let found = name_of(item).as_deref() == Some(name);
        match item {
            Value::Table(table) if found => Some(table),
            _ => None,
        }
    })
}

impl Change {
    /// Whether anything is proposed at all.
    pub fn is_empty(&self) -> bool {
        self.add.is_empty()
            && self.remove.is_empty()
            && self.set.is_empty()
            && self.times.is_empty()
            && self.scheduler.is_none()
            && self.device.is_none()
    }

    /// Disks whose promise is another one afterwards.
    pub fn promises(&self, disk: &str) -> bool {
        self.add.iter().any(|added| added.name == disk) || self.set.iter().any(|term| term.disk == disk)
    }

    /// Says which disk is not among those that were recorded in any window.
    pub fn check(&self, known: &BTreeSet<String>) -> Result<()> {
        let all = || known.iter().cloned().collect::<Vec<_>>().join(", ");
        let likes = self.add.iter().filter_map(|added| added.key("like"));
        let times = self.times.iter().map(|wish| wish.split('=').next().unwrap_or_default());
        let named = self.remove.iter().map(String::as_str).chain(self.set.iter().map(|t| t.disk.as_str()));
        for name in named.chain(likes).chain(times) {
            if !known.contains(name) {
                bail!("no disk \"{name}\" was recorded; there are: {}", all());
            }
        }
        if let Some(added) = self.add.iter().find(|added| known.contains(&added.name)) {
            bail!("there is a disk \"{}\" already; change it by --set", added.name);
        }
        Ok(())
    }

    /// Changes the scenario of one window. A disk that asked for nothing in it is not there.
    pub fn apply(&self, study: &mut Study, dir: &Path) -> Result<()> {
        let about = About::read(dir)?;
        let here = flows(study);
        let is_here = |wish: &&String| here.contains(wish.split('=').next().unwrap_or_default());
        let times: Vec<String> = self.times.iter().filter(is_here).cloned().collect();
        for (path, value) in recording::times(dir, &times)?.values.into_iter().flat_map(|v| v.sets) {
            edit::set(&mut study.experiment.base, &path, value).map_err(|e| anyhow!("--times: {e}"))?;
        }
        for added in &self.add {
            self.add(study, added, &about)?;
        }
        for term in &self.set {
            if let Some(flow) = flow(study, &term.disk) {
                set(flow, term)?;
            }
        }
        if let Some(Value::List(items)) = study.experiment.base.get_mut("flow") {
            items.retain_mut(|(item, _)| name_of(item).is_none_or(|name| !self.remove.contains(&name)));
        }
        for (key, value) in [("node.scheduler", &self.scheduler), ("node.device", &self.device)] {
            if let Some(value) = value {
                edit::set(&mut study.experiment.base, key, value_of(value))
                    .map_err(|e| anyhow!("{key}: {e}"))?;
            }
        }
        Ok(())
    }

    fn add(&self, study: &mut Study, added: &Added, about: &About) -> Result<()> {
        let workload = match (added.key("like"), added.key("workload")) {
            (Some(like), _) => match flow(study, like).and_then(|flow| flow.get_mut("workload")) {
                Some(workload) => workload.clone(),
                None => return Ok(()),
            },
            (None, Some(workload)) => value_of(workload),
            (None, None) => unreachable!("one of them was asked for"),
        };
        let mut table = Params::new("flow")
            .with("name", Value::Text(added.name.clone()))
            .with("workload", workload)
            .with("nodes", nodes(added, about)?);
        let mut contract = Params::new("contract");
        for (key, value) in &added.keys {
            match key.as_str() {
                "capacity" | "leeway" => table = table.with(key, value_of(value)),
                key if OWN.contains(&key) => {}
                key => contract = contract.with(key, value_of(value)),
            }
        }
        table = table.with("contract", Value::Table(contract));
        match study.experiment.base.get_mut("flow") {
            Some(Value::List(items)) => items.push((Value::Table(table), 0..0)),
            _ => bail!("the recording has no disks"),
        }
        Ok(())
    }
}

/// Where an added disk lies: the numbers of its pools.
fn nodes(added: &Added, about: &About) -> Result<Value> {
    let named: Vec<String> = match (added.key("pool"), added.key("pools")) {
        (Some(pool), None) => vec![pool.to_owned()],
        (None, Some(pools)) => pools.split(',').map(str::to_owned).collect(),
        (Some(_), Some(_)) => bail!("{}: pool or pools, not both", added.name),
        (None, None) if about.pools.len() <= 1 => return Ok(Value::List(vec![(Value::Integer(0), 0..0)])),
        (None, None) => {
            bail!("{}: on which pool? pool=, one of {}", added.name, about.pools.join(", "))
        }
    };
    let number = |pool: &String| {
        let found = about.pools.iter().position(|p| p == pool);
        let found = found.with_context(|| {
            format!("{}: pool \"{pool}\" was not recorded; there are: {}", added.name, about.pools.join(", "))
        })?;
        Ok((Value::Integer(found as i64), 0..0))
    };
    Ok(Value::List(named.iter().map(number).collect::<Result<_>>()?))
}

fn set(flow: &mut Params, term: &Term) -> Result<()> {
    if !term.value.is_empty() {
        let path = format!("contract.{}", term.key);
        return edit::set(flow, &path, value_of(&term.value))
            .map_err(|e| anyhow!("--set {}.{}: {e}", term.disk, term.key));
    }
    if let Some(Value::Table(contract)) = flow.get_mut("contract") {
        contract.take(&term.key);
        *contract = contract.clone().rest();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_in_braces_and_quotes_part_nothing() {
        let text = "mail  rate=5/s workload={ preset = \"tpc c\", n = [1, 2] } pool=a";
        assert_eq!(
            words(text),
            ["mail", "rate=5/s", "workload={ preset = \"tpc c\", n = [1, 2] }", "pool=a"]
        );
        assert!(words("  ").is_empty());
    }

    #[test]
    fn what_is_no_change_is_refused_with_what_would_be_one() {
        for (text, says) in [
            ("capacity=1GB like=web", "names no disk"),
            ("mail like=web rate", "KEY=VALUE"),
            ("mail rate=5/s", "like=DISK"),
            ("mail like=web workload={}", "like=DISK"),
        ] {
            let why = Added::parse(text).unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
        }
        let term = Term::parse("node1.web.limit=600/s").unwrap();
        assert_eq!(
            (term.disk.as_str(), term.key.as_str(), term.value.as_str()),
            ("node1.web", "limit", "600/s")
        );
        assert_eq!(Term::parse("web.limit=").unwrap().value, "");
        for text in ["web=3", "weblimit", ".limit=3", "web.=3"] {
            assert!(Term::parse(text).unwrap_err().contains("web.limit=600/s"), "{text}");
        }
    }

    #[test]
    fn a_disk_that_nobody_recorded_is_named() {
        let known: BTreeSet<String> = ["db".to_owned(), "web".to_owned()].into();
        let change = |remove: &str, times: &str| Change {
            remove: vec![remove.to_owned()],
            times: vec![times.to_owned()],
            ..Change::default()
        };
        assert!(change("db", "web=2").check(&known).is_ok());
        for wrong in [change("mail", "web=2"), change("db", "mail=2")] {
            let why = wrong.check(&known).unwrap_err().to_string();
            assert!(why.contains("\"mail\"") && why.contains("there are: db, web"), "{why}");
        }
        let twice = Change { add: vec![Added::parse("web like=db").unwrap()], ..Change::default() };
        assert!(twice.check(&known).unwrap_err().to_string().contains("already"));
    }
}
