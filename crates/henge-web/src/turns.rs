//! Turns of those who look: one thread serves a page or an API, and a list of thousands of disks has all of it while it is made.

use axum::http::Method;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most requests that look and are answered at once, of one tenant, or of one token that is no tenant's. The others of it wait, so whoever
/// else asks waits behind no more than these.
pub const LOOKS_MAX: usize = 2;

/// Whether a request changes nothing, whoever sends it. The page and the API ask what would be by requests with a body.
pub fn only_looks(method: &Method, path: &str) -> bool {
    let path = path.strip_prefix("/api/v1/").unwrap_or_default();
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS => true,
        Method::POST => {
            let preview = path.strip_prefix("live/disks/").and_then(|of| of.split_once('/'));
            matches!(path, "admit" | "live/offer") || preview.is_some_and(|(_, what)| what == "preview")
        }
        _ => false,
    }
}

/// Turns, by whose they are.
#[derive(Clone, Default, Debug)]
pub struct Turns(Arc<Mutex<BTreeMap<String, Arc<Semaphore>>>>);

impl Turns {
    /// One for this one, until it is dropped.
    pub async fn take(&self, whose: String) -> Turn {
        let new = || Arc::new(Semaphore::new(LOOKS_MAX));
        let looks = Arc::clone(self.all().entry(whose.clone()).or_insert_with(new));
        let permit = Arc::clone(&looks).try_acquire_owned().ok();
        let waited = permit.is_none();
        let mut turn = Turn { all: self.clone(), whose, permit, waited };
        if waited {
            turn.permit = looks.acquire_owned().await.ok();
        }
        turn
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Semaphore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are whose turns these are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.all().len()
    }
}

/// A turn, or the wait for one.
#[derive(Debug)]
pub struct Turn {
    all: Turns,
    whose: String,
    permit: Option<OwnedSemaphorePermit>,
    waited: bool,
}

impl Turn {
    /// Whether it was waited for: what was known before may be so no more.
    pub fn waited(&self) -> bool {
        self.waited
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut all = self.all.all();
        drop(self.permit.take());
        // Whoever has a turn, or waits for one, has a share of it.
        if all.get(&self.whose).is_some_and(|looks| Arc::strong_count(looks) == 1) {
            all.remove(&self.whose);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name is no question, whatever it is.
    #[test]
    fn what_asks_and_what_changes_is_told_apart() {
        let looks = |line: &str| {
            let (method, path) = line.split_once(' ').unwrap();
            only_looks(&method.parse().unwrap(), path)
        };
        for line in [
            "GET /api/v1/disks",
            "HEAD /metrics",
            "OPTIONS /",
            "POST /api/v1/admit",
            "POST /api/v1/live/offer",
            "POST /api/v1/live/disks/web/preview",
            "POST /api/v1/live/disks/preview/preview",
        ] {
            assert!(looks(line), "{line}");
        }
        for line in [
            "DELETE /api/v1/live/disks/preview",
            "DELETE /api/v1/live/disks/offer",
            "PUT /api/v1/disks/admit",
            "PATCH /api/v1/tenants/offer",
            "POST /api/v1/disks",
            "POST /api/v1/live/disks",
            "POST /api/v1/live/disks/preview",
            "POST /api/v1/disks/preview/access",
            "POST /api/v1/nodes/admit/drain",
            "POST /admit",
        ] {
            assert!(!looks(line), "{line}");
        }
    }
}
