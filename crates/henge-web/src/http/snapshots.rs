//! Snapshots as text: for all who may see the same, each is made once between two looks at the source.
//!
//! A snapshot of thousands of disks takes tens of milliseconds. Where each request made its own, and had the [`Hub`] meanwhile, whoever asked without
//! a pause kept the next look from it: pages that are told live heard nothing for 8 s.

use crate::hub::Hub;
use crate::source::Viewer;
use axum::body::Bytes;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most that are kept. The oldest makes way.
const KEPT: usize = 8;

/// Of a viewer, without its token; with the generation of disks that it shows.
type Kept = (Viewer, Bytes, u64);

/// Those since the last look.
#[derive(Default)]
pub(super) struct Snapshots(Mutex<Vec<Kept>>);

impl Snapshots {
    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this viewer may see, as JSON, and the generation of disks in it.
    pub(super) fn of(&self, hub: &Mutex<Hub>, viewer: &Viewer) -> (Bytes, u64) {
        // One that is being made is not forgotten before it is kept: `forget` waits.
        let mut kept = self.kept();
        let viewer = Viewer { token: String::new(), ..viewer.clone() };
        if let Some((_, text, generation)) = kept.iter().find(|(whose, ..)| *whose == viewer) {
            return (text.clone(), *generation);
        }
        let (snapshot, generation) = {
            let hub = hub.lock().expect("nobody panics while figuring");
            (hub.snapshot(&viewer), hub.generation)
        };
        let text = Bytes::from(serde_json::to_vec(&snapshot).expect("a snapshot is plain data"));
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push((viewer, text.clone(), generation));
        (text, generation)
    }

    /// The hub has seen something newer. Nobody who calls this has the hub.
    pub(super) fn forget(&self) {
        self.kept().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn viewer(tenant: &str, token: &str) -> Viewer {
        Viewer { tenant: Some(tenant.into()), token: token.into(), ..Viewer::default() }
    }

    #[test]
    fn who_sees_the_same_is_told_the_same_text_until_the_next_look() {
        let (snapshots, hub) = (Snapshots::default(), Mutex::new(Hub::default()));
        let of = |tenant, token| snapshots.of(&hub, &viewer(tenant, token)).0;
        let first = of("ann", "1");
        assert_eq!(of("ann", "2").as_ptr(), first.as_ptr(), "another token of the same tenant");
        assert_ne!(of("bob", "1").as_ptr(), first.as_ptr());
        snapshots.forget();
        assert_ne!(of("ann", "1").as_ptr(), first.as_ptr());
    }

    #[test]
    fn few_are_kept() {
        let (snapshots, hub) = (Snapshots::default(), Mutex::new(Hub::default()));
        for tenant in 0..3 * KEPT {
            snapshots.of(&hub, &viewer(&tenant.to_string(), ""));
        }
        assert_eq!(snapshots.kept().len(), KEPT);
    }
}
