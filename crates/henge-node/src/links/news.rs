//! News of links: for the operator, and for others of this node than the parts' coordinators.

use henge_backend::ImageMetadata;
use henge_link::Message;
use std::sync::Arc;

/// What others than the parts' coordinators want to know of links.
pub(crate) enum News {
    /// A peer is linked, perhaps anew.
    Up(usize),
    /// Its link is lost.
    Down(usize),
    /// It has said something about reservations.
    Said(usize, Message),
    /// A shared disk's seat has moved, the so many-th time: in the order in which that was heard among what peers say.
    Seat { disk: String, turn: u64, seated: Seated },
}

/// Where a shared disk's seat is.
#[derive(Clone)]
pub(crate) enum Seated {
    /// Here, and the image's metadata.
    Here(Option<Arc<dyn ImageMetadata>>),
    /// At a peer.
    There(usize),
    /// Nobody has it, as far as is known here.
    Nowhere,
}

/// The operator's last notice, which is not repeated.
#[derive(Default)]
pub(crate) struct Notices(String);

impl Notices {
    /// Tells the operator, once.
    pub(crate) fn say(&mut self, what: String) {
        if self.0 != what {
            eprintln!("henge node: {what}");
            self.0 = what;
        }
    }

    /// The next notice is printed, whichever it is.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}
