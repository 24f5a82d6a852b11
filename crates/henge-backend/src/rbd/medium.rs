//! `rbd = { … }` of a pool: how it is read, and how the pool is opened.

use super::Rbd;
use super::ceph::{Ceph, Reach};
use super::in_flight::Completions;
use super::steps::within;
use crate::Store;
use crate::registry::{Medium, Wanted};
use henge_core::{Duration, ParamError, Params};
use std::io;
use std::sync::Arc;

/// How long monitors may be silent when a pool is opened.
const SILENCE_S: u32 = 15;

/// `rbd = { pool = … }`
#[derive(Clone, Debug)]
struct OfCeph(Reach);

/// Reads `rbd = { pool = "henge", conf = "/etc/ceph/ceph.conf", user = "henge", keyring = "…" }`.
pub(crate) fn read(p: &mut Params) -> Result<Option<Arc<dyn Medium>>, ParamError> {
    let Some(mut table) = p.table("rbd")? else { return Ok(None) };
    let pool = table.text("pool")?;
    let pool = table.required("pool", pool)?;
    let user = table.text("user")?.unwrap_or_else(|| "henge".into());
    if let Some(name) = user.strip_prefix("client.") {
        return Err(table.error("user", format!("a user is named without client., like user = \"{name}\"")));
    }
    let reach = Reach {
        pool,
        user,
        conf: table.text("conf")?.unwrap_or_else(|| "/etc/ceph/ceph.conf".into()),
        keyring: table.text("keyring")?,
    };
    table.finish()?;
    Ok(Some(Arc::new(OfCeph(reach))))
}

impl Medium for OfCeph {
    fn key(&self) -> &'static str {
        "rbd"
    }
    fn open(&self, wanted: &Wanted<'_>) -> io::Result<Box<dyn Store>> {
        let completions = Completions::new()?;
        let reach = self.0.clone();
        let what = format!("Ceph pool {}", reach.pool);
        let ceph = within(what, move || Ceph::connect(&reach, SILENCE_S))?;
        let user = format!("as client.{} of {}", self.0.user, self.0.conf);
        Ok(Box::new(Rbd::new(Arc::new(ceph), completions, wanted, user)))
    }
    fn has_images(&self) -> bool {
        true
    }
    fn patience(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }
    fn is_shared(&self) -> bool {
        true
    }
}
