//! Tokens that are remembered, and forgotten.

use super::{Failure, Journal};
use crate::model::TokenRecord;
use crate::shorten::shorten;
use std::collections::BTreeMap;

/// Whether it opens everything, and may change it.
fn is_administrators(token: &TokenRecord) -> bool {
    token.tenant.is_none() && token.disk.is_none() && !token.read
}

/// Tokens by id.
#[derive(Default)]
pub(crate) struct Tokens {
    by_id: BTreeMap<String, TokenRecord>,
}

impl Tokens {
    pub(super) fn restore(&mut self, name: &str, value: &[u8]) -> serde_json::Result<()> {
        self.by_id.insert(name.to_owned(), serde_json::from_slice(value)?);
        Ok(())
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &TokenRecord> {
        self.by_id.values()
    }

    /// A tenant's.
    pub(super) fn of(&self, tenant: &str) -> impl Iterator<Item = &TokenRecord> {
        self.all().filter(move |t| t.tenant.as_deref() == Some(tenant))
    }

    /// Remembers a token.
    pub(crate) fn put(&mut self, journal: &mut Journal, token: TokenRecord) {
        journal.put(format!("token/{}", token.id), Some(&token));
        self.by_id.insert(token.id.clone(), token);
    }

    /// Forgets a token.
    pub(crate) fn remove(&mut self, journal: &mut Journal, id: &str) -> Result<(), Failure> {
        let Some(token) = self.by_id.get(id) else {
            return Err(Failure::Missing(format!("there is no token \"{}\"", shorten(id))));
        };
        let now = journal.now();
        let lasts = |token: &TokenRecord| token.expires.unwrap_or(u64::MAX);
        let replaces = |t: &TokenRecord| t.id != id && is_administrators(t) && lasts(t) >= lasts(token);
        if is_administrators(token) && lasts(token) > now && !self.all().any(replaces) {
            let why = "the last administrator's token stays; make another one first, that may change everything and lasts as long";
            return Err(Failure::Conflict(why.into()));
        }
        self.by_id.remove(id);
        journal.put::<TokenRecord>(format!("token/{id}"), None);
        Ok(())
    }

    /// Forgets those of a tenant that ends; how many they were.
    pub(super) fn forget_tenant(&mut self, journal: &mut Journal, name: &str) -> usize {
        self.forget(journal, |token| token.tenant.as_deref() == Some(name))
    }

    /// Forgets those of a disk that is gone: one of the same name that is made later is another one.
    pub(super) fn forget_disk(&mut self, journal: &mut Journal, name: &str) -> usize {
        self.forget(journal, |token| token.disk.as_deref() == Some(name))
    }

    fn forget(&mut self, journal: &mut Journal, which: impl Fn(&TokenRecord) -> bool) -> usize {
        let ids: Vec<String> = self.all().filter(|token| which(token)).map(|t| t.id.clone()).collect();
        for id in &ids {
            self.by_id.remove(id);
            journal.put::<TokenRecord>(format!("token/{id}"), None);
        }
        ids.len()
    }
}

#[cfg(test)]
mod tests {
    use crate::machine::{Machine, Settings};
    use crate::tokens::{Scope, create};

    #[test]
    fn a_token_that_opens_everything_is_always_left() {
        let mut machine = Machine::load(Settings::default(), Vec::new()).unwrap();
        machine.at(1000);
        let mut give = |scope: Scope, expires: Option<u64>| {
            let (_, record) = create(scope, 1000, expires).unwrap();
            let id = record.id.clone();
            machine.tokens.put(&mut machine.journal, record);
            id
        };
        let first = give(Scope::default(), None);
        give(Scope { read: true, ..Scope::default() }, None);
        give(Scope { disk: Some("web".into()), ..Scope::default() }, None);
        give(Scope { tenant: Some("ann".into()), ..Scope::default() }, None);
        let (soon, late) = (give(Scope::default(), Some(2000)), give(Scope::default(), Some(3000)));
        let mut removes = |id: &str, now: u64| {
            machine.at(now);
            machine.tokens.remove(&mut machine.journal, id).is_ok()
        };
        assert!(!removes(&first, 1000), "those that are left look, open one disk, or expire");
        assert!(removes(&soon, 1000) && removes(&late, 4000), "what has expired is nobody's way in");
        let mut give = |expires: Option<u64>| {
            let (_, record) = create(Scope::default(), 1000, expires).unwrap();
            machine.tokens.put(&mut machine.journal, record);
        };
        give(None);
        assert!(machine.tokens.remove(&mut machine.journal, &first).is_ok());
    }
}
