//! Who looks on: the record of requests, the tap on commands, and whoever is told what an administrator is to know.

use super::failed::Notice;
use super::pools::GateState;
use crate::record::Recorder;
use crate::tap::Tap;
use henge_api::{Taken, Tapped};
use henge_backend::Store;
use henge_core::Instant;
use std::sync::mpsc::Sender;

/// All of them; each may be nobody.
#[derive(Default)]
pub(crate) struct Observers {
    /// Writes a row for each request.
    pub(super) recorder: Option<Recorder>,
    pub(super) tap: Option<Tap>,
    /// Who is told what an administrator is to know.
    pub(super) notices: Option<Sender<Notice>>,
    /// Meters of disks count from then on, or from a disk's beginning.
    pub metered_since: Instant,
}

impl Observers {
    pub(super) fn new(recorder: Option<Recorder>) -> Observers {
        Observers { recorder, ..Observers::default() }
    }

    /// Opens the tap, or empties it.
    pub(crate) fn tap(&mut self, buffer: Vec<Tapped>, now: Instant) -> Taken {
        match &mut self.tap {
            Some(tap) => tap.empty(buffer, now),
            None => {
                self.tap = Some(Tap::open(buffer, now));
                Taken { now: now.as_nanos(), ..Taken::default() }
            }
        }
    }

    /// Closes the tap.
    pub(crate) fn untap(&mut self) {
        self.tap = None;
    }

    /// An administrator is to know this of a disk or pool.
    pub(crate) fn notice(&self, name: &str, text: String) {
        if let Some(to) = &self.notices {
            // Whoever listened may have ended before the loop.
            let _ = to.send((name.to_owned(), text));
        }
    }

    /// Passes on what a gate's store has to say.
    pub(super) fn hear(&self, gate: &mut GateState) {
        while let Some(text) = gate.pipeline.backend_mut().notice() {
            self.notice(&gate.name, text);
        }
    }
}
