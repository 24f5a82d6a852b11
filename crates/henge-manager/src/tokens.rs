//! Bearer tokens: 256 random bits, of which only a hash is remembered.

use crate::machine::{Caller, Machine};
use crate::model::TokenRecord;
use henge_api::manager::hex;
use sha2::{Digest, Sha256};
use std::io;
use subtle::ConstantTimeEq;

/// What tokens begin with, so that a leaked one is recognized.
const PREFIX: &str = "henge_";

/// Why a token opens nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadToken {
    /// It is not known.
    #[error("this token is not known; ask the administrator for one (`henge token create TENANT`)")]
    Unknown,
    /// It was.
    #[error("this token has expired; ask the administrator for a new one")]
    Expired,
}

/// 256 random bits as text.
pub(crate) fn random_text() -> io::Result<String> {
    let mut bytes = [0u8; 32];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(hex(&bytes))
}

fn hash(token: &str) -> String {
    hex(&Sha256::digest(token.as_bytes()))
}

/// A hash of anything, to compare requests by.
pub(crate) fn fingerprint(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Whom a token is for, and what for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Scope {
    /// None: the administrator.
    pub tenant: Option<String>,
    /// It may look, and change nothing.
    pub read: bool,
    /// It opens this disk alone, as nodes call it.
    pub disk: Option<String>,
}

/// A new token: what its owner is told once, and what is remembered.
pub(crate) fn create(scope: Scope, now: u64, expires: Option<u64>) -> io::Result<(String, TokenRecord)> {
    let token = format!("{PREFIX}{}", random_text()?);
    let id = random_text()?[..12].to_owned();
    let Scope { tenant, read, disk } = scope;
    let record = TokenRecord { id, tenant, hash: hash(&token), created: now, expires, read, disk };
    Ok((token, record))
}

/// A token that opens something.
#[derive(Clone)]
pub(crate) struct Known {
    /// Whose it is.
    pub caller: Caller,
    /// Names it.
    pub id: String,
    /// It may look, and change nothing.
    pub read: bool,
}

impl Known {
    /// Who asks, as the audit log has it.
    pub(crate) fn name(&self) -> String {
        self.caller.tenant().unwrap_or("administrator").to_owned()
    }
}

/// Whose token it is. Takes equally long wherever a wrong one differs.
pub(crate) fn known(machine: &Machine, token: &str) -> Result<Known, BadToken> {
    let hashed = hash(token);
    let mut found = None;
    for record in machine.tokens.all() {
        if bool::from(record.hash.as_bytes().ct_eq(hashed.as_bytes())) {
            found = Some(record);
        }
    }
    let record = found.ok_or(BadToken::Unknown)?;
    if record.expires.is_some_and(|at| at <= machine.journal.now()) {
        return Err(BadToken::Expired);
    }
    let caller = match (&record.tenant, &record.disk) {
        (tenant, Some(name)) => Caller::Disk { tenant: tenant.clone(), name: name.clone() },
        (None, None) => Caller::Administrator,
        (Some(tenant), None) => Caller::Tenant(tenant.clone()),
    };
    Ok(Known { caller, id: record.id.clone(), read: record.read })
}
