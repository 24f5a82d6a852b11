//! What a loop that has ended leaves.

use crate::handover::Guest;
use crate::listen::Listener;
use std::sync::Arc;

/// What a loop that has ended leaves.
#[derive(Default)]
pub(crate) struct Left {
    /// Requests that storage never finished.
    pub abandoned: usize,
    /// Disks whose last FLUSH failed, or was not over in time.
    pub unflushed: Vec<String>,
    /// Where clients come, if somebody else goes on there.
    pub listeners: Vec<Arc<Listener>>,
    /// Clients that have an answer to everything they asked.
    pub guests: Vec<Guest>,
}

impl Left {
    /// The end of a connection is the sign that what was not flushed may be lost. A disk's extents are other loops' as well.
    pub(crate) fn part_with_unflushed(&mut self) {
        self.guests.retain(|guest| !self.unflushed.contains(&guest.disk));
    }

    /// What may be lost, for people.
    pub(crate) fn lost(&self) -> Option<String> {
        let disks = self.unflushed.join(", ");
        (!self.unflushed.is_empty()).then(|| {
            format!("the storage has not done the last FLUSH of {disks}: what was answered since the FLUSH before may be lost")
        })
    }
}
