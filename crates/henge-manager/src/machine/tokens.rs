//! Tokens that are remembered, and forgotten.

use super::{Failure, Journal};
use crate::model::TokenRecord;
use crate::shorten::shorten;
use std::collections::BTreeMap;

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
        let others = self.all().filter(|t| t.tenant.is_none() && t.id != id).count();
        if token.tenant.is_none() && others == 0 {
            return Err(Failure::Conflict(
                "the last administrator's token stays; make another one first".into(),
            ));
        }
        self.by_id.remove(id);
        journal.put::<TokenRecord>(format!("token/{id}"), None);
        Ok(())
    }

    /// Forgets those of a tenant that ends; how many they were.
    pub(super) fn forget_tenant(&mut self, journal: &mut Journal, name: &str) -> usize {
        let ids: Vec<String> = self.of(name).map(|t| t.id.clone()).collect();
        for id in &ids {
            self.by_id.remove(id);
            journal.put::<TokenRecord>(format!("token/{id}"), None);
        }
        ids.len()
    }
}
