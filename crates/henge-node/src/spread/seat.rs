//! The seat of a disk whose image several gateways can open: who has it now, and how it goes from one to another.
//!
//! # The problem
//! A gateway keeps nothing of a disk: its bytes are with the cluster behind. So another one can go on where it ended. But one at a time has
//! the locks, the order of writes and the contract, or limits would hold twice and COMPARE AND WRITE not at all.
//!
//! # The rule
//! A shared disk is a disk over nodes with one extent. Its owner is at the gateway that has the image's lock. That one has the *seat*. Every
//! gateway takes clients, and passes what it has not the seat for over a link, as for any disk over nodes. Seats move:
//!
//! | what happens | what is done |
//! |---|---|
//! | nobody says that it has the disk | the thread of [`crate::seats`] finds out whose turn it is; that one claims the image and makes its owner |
//! | the gateway is drained | once another one is linked and takes disks, its owner takes nothing more; once nothing is under way there the image is closed, and the next one claims it |
//! | nobody else takes what a drained gateway has let go of | that gateway has it again, and keeps it until it is drained anew |
//! | the gateway was shut out of the storage | the same; what was under way fails at once, and is handed out again elsewhere |
//! | a link is lost | what was under way there is handed out again once somebody has the seat; it may be the same one |
//!
//! What is handed out again was not answered, so doing it twice does no harm; what compares is not handed out again, and fails. A change that was
//! with a lost gateway is handed out once that one cannot do it any more: it was shut out, or has ended the old link.
//!
//! # Example
//! `n1` has `web`; a client of `n2` has a write on its way there when `n1` dies. `n2` holds the write. Some 3 s later it has shut `n1` out and
//! has the image, and the write is done there. The client has waited, and sees no error.
//!
//! # Guarantee
//! No client sees an error for a seat that moves, but for COMPARE AND WRITE. An answered write is in the storage, whoever answered it.
//!
//! # Price
//! Clients of a gateway without the seat pay for a link. They wait, and are told nothing, while nobody has the seat.

use super::At;
use henge_core::{Duration, Instant};
use henge_vdisk::Part;
use std::collections::{BTreeSet, VecDeque};

/// What a gateway knows of a shared disk's seat, beside where it is.
#[derive(Debug)]
pub(crate) struct Seat {
    /// The other gateways: peers, and the number of the extent there.
    pub(super) others: Vec<(usize, u32)>,
    /// Parts whose gateway was lost.
    pub(super) held: VecDeque<Part>,
    /// An owner that takes nothing more.
    pub(super) leaving: Option<usize>,
    /// The image is being claimed.
    pub(super) claiming: bool,
    /// Nobody has it, as far as is known here, since then.
    pub(super) since: Instant,
    /// It is not claimed before.
    pub(super) not_before: Instant,
    /// Some gateway had it, so its image is not to be made.
    pub(super) had: bool,
    /// Why it could not be claimed.
    pub(super) why: String,
    /// Nobody else took it when this drained gateway had let go of it.
    pub(super) untaken: bool,
    /// Why this drained gateway has it still.
    pub(super) stays: String,
    /// By which table of reservations commands go.
    pub(super) acts: Acts,
}

impl Seat {
    /// The next part to be handed out again, where somebody has the seat.
    pub(super) fn next_held(&mut self, at: At) -> Option<Part> {
        if at == At::Nowhere { None } else { self.held.pop_front() }
    }

    /// Where its parts may be.
    pub(super) fn extents(&self) -> impl Iterator<Item = At> {
        let others = self.others.iter().map(|(peer, toward)| At::There(*peer, *toward));
        others.chain(self.leaving.map(At::Here))
    }

    /// Why nobody has it, for people.
    pub(super) fn trouble(&self, at: At) -> Option<String> {
        let why = match at {
            At::Nowhere if !self.why.is_empty() => self.why.as_str(),
            At::Nowhere => "it is looked for",
            _ => return None,
        };
        Some(format!("no gateway has it: {why}"))
    }
}

/// The seats of all shared disks here.
#[derive(Default)]
pub(crate) struct Seats {
    /// Disks that nobody has.
    pub(super) vacant: BTreeSet<usize>,
    /// Disks whose owners are to go.
    pub(super) leaving: BTreeSet<usize>,
    /// Disks that came or went just now: peers are to hear of it.
    pub(super) moved: Vec<usize>,
    /// Disks that another gateway has now: initiators and hosts are to hear of it.
    pub(super) found: Vec<usize>,
    /// This node takes no seats.
    pub drained: bool,
    /// Disks whose commands may go on.
    pub(super) acting: Vec<usize>,
}

impl Seats {
    pub(super) fn forget(&mut self, number: usize) {
        self.vacant.remove(&number);
        self.leaving.remove(&number);
    }
}

/// A disk that nobody has.
#[derive(Clone, Debug)]
pub(crate) struct Vacant {
    pub name: String,
    pub gateways: Vec<String>,
    /// For so long.
    pub time: Duration,
}

/// By which table commands go.
#[derive(Debug, Default)]
pub(crate) struct Acts {
    /// Counts the seat's moves, as they are known here.
    pub(super) turn: u64,
    /// This gateway acts by the table of whoever has the seat now.
    pub(super) here: bool,
    /// Peers that do, while the seat is here.
    pub(super) peers: Vec<usize>,
}

impl Acts {
    /// Whether commands go on.
    pub(super) fn here(&self) -> bool {
        self.here
    }
}
