//! Tokens that are remembered, and forgotten.

use super::{Failure, Machine, shorten};
use crate::model::TokenRecord;

impl Machine {
    /// Remembers a token.
    pub fn put_token(&mut self, token: TokenRecord) {
        self.put(format!("token/{}", token.id), Some(&token));
        self.tokens.insert(token.id.clone(), token);
    }

    /// Forgets a token.
    pub fn remove_token(&mut self, id: &str) -> Result<(), Failure> {
        let Some(token) = self.tokens.get(id) else {
            return Err(Failure::Missing(format!("there is no token \"{}\"", shorten(id))));
        };
        let others = self.tokens.values().filter(|t| t.tenant.is_none() && t.id != id).count();
        if token.tenant.is_none() && others == 0 {
            return Err(Failure::Conflict(
                "the last administrator's token stays; make another one first".into(),
            ));
        }
        self.tokens.remove(id);
        self.put::<TokenRecord>(format!("token/{id}"), None);
        Ok(())
    }
}
