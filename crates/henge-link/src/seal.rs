//! Seals: nobody on the way adds, drops, changes or repeats a message unseen.
//!
//! **Rule.** Each end has a key for what it sends and one for what it receives, both of this connection alone. A message is followed
//! by its seal: the first 16 bytes of keyed BLAKE3 over its number (from 0 on), its header, its body, and the seal of its data, if it has
//! any. Data are sealed by themselves, since they are taken where they lie, in pieces, and before all of them have come.
//!
//! **Guarantee.** Each message is acted by once, in the order in which it was sent; data before they were checked only lie in the
//! memory that they are meant for, and the link ends where they do not fit. A forged seal fits once in 2^128.
//!
//! **Price.** 16 bytes a message and 16 more with data; each end reads the data once more.

use blake3::Hasher;
use subtle::ConstantTimeEq;

/// Bytes of a seal.
pub const SEAL: usize = 16;

const MESSAGE: u8 = 0;
const DATA: u8 = 1;

/// One direction.
pub struct Sealer {
    key: [u8; 32],
    /// Of the next message.
    number: u64,
}

/// Data whose seal is known, as they come.
pub(crate) struct Coming {
    hasher: Hasher,
    seal: [u8; SEAL],
    left: usize,
}

/// Both directions.
pub struct Keys {
    /// What this end sends.
    pub ours: Sealer,
    /// What this end receives.
    pub theirs: Sealer,
}

impl Keys {
    /// A key for each direction, fresh for this connection.
    pub fn new(ours: [u8; 32], theirs: [u8; 32]) -> Keys {
        Keys { ours: Sealer { key: ours, number: 0 }, theirs: Sealer { key: theirs, number: 0 } }
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealer({} so far)", self.number)
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({} sent, {} received)", self.ours.number, self.theirs.number)
    }
}

fn first_bytes(hasher: &Hasher) -> [u8; SEAL] {
    let mut seal = [0; SEAL];
    seal.copy_from_slice(&hasher.finalize().as_bytes()[..SEAL]);
    seal
}

impl Sealer {
    fn hasher(&self, kind: u8) -> Hasher {
        let mut hasher = Hasher::new_keyed(&self.key);
        let mut head = [kind; 9];
        head[1..].copy_from_slice(&self.number.to_le_bytes());
        hasher.update(&head);
        hasher
    }

    /// The seal of the next message's data.
    pub(crate) fn data(&self, data: &[u8]) -> [u8; SEAL] {
        let mut hasher = self.hasher(DATA);
        hasher.update(data);
        first_bytes(&hasher)
    }

    /// The seal of the next message: everything before it in its frame.
    pub fn message(&mut self, frame: &[u8]) -> [u8; SEAL] {
        let mut hasher = self.hasher(MESSAGE);
        hasher.update(frame);
        self.number += 1;
        first_bytes(&hasher)
    }

    /// So many data of the next message; their seal is in it.
    pub(crate) fn coming(&self, len: usize) -> Coming {
        Coming { hasher: self.hasher(DATA), seal: [0; SEAL], left: len }
    }

    /// Whether the next message is the one that was sent next.
    pub fn fits(&mut self, frame: &[u8], seal: &[u8]) -> bool {
        self.message(frame).ct_eq(seal).into()
    }
}

impl Coming {
    /// The seal that they are to fit.
    pub(crate) fn with(self, seal: [u8; SEAL]) -> Coming {
        Coming { seal, ..self }
    }

    /// The next of them; once they are all there, whether they fit.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Option<bool> {
        self.hasher.update(bytes);
        self.left = self.left.checked_sub(bytes.len()).expect("no more data is taken than was announced");
        (self.left == 0).then(|| first_bytes(&self.hasher).ct_eq(&self.seal).into())
    }
}

impl std::fmt::Debug for Coming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Coming({} bytes)", self.left)
    }
}
