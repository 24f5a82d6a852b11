//! The text that lies with a part: in the metadata of its image, so that it goes where the image goes.
//!
//! It is written under the image's lock. Whoever breaks that lock has its holder blocklisted first. So the header's OSD takes nothing more from
//! the former holder by the time the next one reads.

use super::cluster::{Image, RESERVATIONS};
use crate::ImageMetadata;
use std::io;
use std::sync::Arc;

pub(super) struct OfImage {
    image: Arc<dyn Image>,
    place: String,
}

impl OfImage {
    /// `called`: the image, for people.
    pub(super) fn new(image: Arc<dyn Image>, called: &str) -> OfImage {
        OfImage { image, place: format!("{called}, {RESERVATIONS} in its metadata") }
    }

    fn named<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", self.place)))
    }
}

/// No time ends a call: one that was let go on alone could overtake a later one, and leave an older text there.
impl ImageMetadata for OfImage {
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
