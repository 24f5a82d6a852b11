//! The text that lies with a part: in the metadata of its image, so that it goes where the image goes.
//!
//! It is written under the image's lock. Whoever breaks that lock has its holder blocklisted first. So the header's OSD takes nothing more from
//! the former holder by the time the next one reads.

use super::cluster::{Image, RESERVATIONS};
use crate::Beside;
use std::io;
use std::sync::Arc;

pub(super) struct InMetadata {
    image: Arc<dyn Image>,
    place: String,
}

impl InMetadata {
    /// `called`: the image, for people.
    pub(super) fn new(image: Arc<dyn Image>, called: &str) -> InMetadata {
        InMetadata { image, place: format!("{called}, {RESERVATIONS} in its metadata") }
    }

    fn named<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", self.place)))
    }
}

/// No time ends a call: one that was let go on alone could overtake a later one, and leave an older text there.
impl Beside for InMetadata {
    fn read(&self) -> io::Result<Option<String>> {
        self.named(self.image.note(RESERVATIONS))
    }
    fn write(&self, text: &str) -> io::Result<()> {
        self.named(self.image.set_note(RESERVATIONS, text))
    }
    fn place(&self) -> &str {
        &self.place
    }
}
