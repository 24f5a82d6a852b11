//! Records that are received where their data belongs.
//!
//! # The problem
//! Data that is opened in a buffer of the connection is copied from there to the memory of its command. Of a write of 128 KiB by TLS that is a fifteenth
//! of a node's processor time.
//!
//! # The rule
//! Nearly every client cuts a payload into records of 16 KiB: a header of 5 bytes, 16,384 bytes of ciphertext, and 17 more for the kind and
//! the tag. So the bytes of the socket are scattered as if they were such records. Of each the header and the first 17 bytes of ciphertext, its
//! *edge*, go beside. The rest goes to its own place in the payload, and its last 17 bytes into the first 17 of the next one's place. Then the
//! records are opened where they lie, in their order: each after the bytes of its edge have been put in front.
//!
//! ```text
//! socket    [edge 0][...... 16,384 ......][edge 1][...... 16,384 ......][bounce: whatever follows]
//! payload     |17|...... 16,384 ......|......... 16,384 ......|
//! ```
//!
//! Example: of a payload of 131,072 bytes seven records are opened in their places. The last one, whose tag would be behind the payload's end, is in the bounce
//! with the next command's header. It is opened in the connection's buffer and copied.
//!
//! # Its guarantee
//! Whatever comes is opened as the same bytes would have been in the buffer. Where a record is another than was assumed, it and what is behind it go to
//! the buffer, and this is not tried again for [`PAUSE`] reads.
//!
//! # Its price
//! The beginning of a record is copied into its place, and to the buffer again if the rest has not come. A client with other records costs a copy more,
//! once in so many reads.

use crate::records::{FRAGMENT, HEADER};
use std::io::IoSliceMut;

/// Bytes of a record behind its data: its kind, and the tag.
const BEHIND: usize = 17;
/// A record's bytes that go beside.
const EDGE: usize = HEADER + BEHIND;
/// A record of the length that is assumed, and its header.
const WHOLE: usize = FRAGMENT + EDGE;
const HEAD: [u8; HEADER] = [23, 3, 3, ((FRAGMENT + BEHIND) >> 8) as u8, (FRAGMENT + BEHIND) as u8];
/// Most records at once.
const MOST: usize = 8;
/// The payload's last record, and messages behind it.
pub(crate) const BOUNCE: usize = WHOLE + 1024;
/// Reads for which it is not tried again.
pub(crate) const PAUSE: u8 = 64;

/// One read.
pub(crate) struct Landing {
    edges: [[u8; EDGE]; MOST],
    /// Records that are assumed.
    count: usize,
    /// Bytes of them that are there.
    got: usize,
}

/// What a record is in: its edge beside, and a place that has room for what goes behind its data, too.
pub(crate) struct Place<'a> {
    pub header: [u8; HEADER],
    pub sealed: &'a mut [u8],
}

impl Landing {
    /// For so long a payload, behind bytes that came before: the beginning of a record. `None` where it is not worth while, or cannot be.
    pub(crate) fn begin(payload: &mut [u8], held: &[u8]) -> Option<Landing> {
        let count = (payload.len().checked_sub(BEHIND)? / FRAGMENT).min(MOST);
        let known = held.len().min(HEADER);
        if count < 2 || held.len() >= WHOLE || held[..known] != HEAD[..known] {
            return None;
        }
        let mut landing = Landing { edges: [[0; EDGE]; MOST], count, got: held.len() };
        let (edge, body) = held.split_at(held.len().min(EDGE));
        landing.edges[0][..edge.len()].copy_from_slice(edge);
        payload[BEHIND..BEHIND + body.len()].copy_from_slice(body);
        Some(landing)
    }

    /// Where the next bytes of the socket belong, in their order. What is behind the records goes to the bounce.
    pub(crate) fn pieces<'a>(
        &'a mut self,
        payload: &'a mut [u8],
        bounce: &'a mut [u8],
    ) -> [IoSliceMut<'a>; 2 * MOST + 1] {
        let mut skip = self.got;
        let bodies = payload[BEHIND..].chunks_exact_mut(FRAGMENT);
        let records = self.edges.iter_mut().zip(bodies).take(self.count);
        let both = records.flat_map(|(edge, body)| [&mut edge[..], body]);
        let mut rest = both.chain([bounce]).map(|piece| {
            let here = skip.min(piece.len());
            skip -= here;
            &mut piece[here..]
        });
        std::array::from_fn(|_| IoSliceMut::new(rest.next().unwrap_or_default()))
    }

    /// So many bytes came.
    pub(crate) fn came(&mut self, bytes: usize) {
        self.got += bytes;
    }

    /// The record of this number, if all of it is there and it is as long as was assumed. It is asked for in their order.
    pub(crate) fn record<'a>(&self, number: usize, payload: &'a mut [u8]) -> Option<Place<'a>> {
        let (header, first) = self.edges.get(number)?.split_first_chunk::<HEADER>()?;
        if number >= self.count || self.got < (number + 1) * WHOLE || *header != HEAD {
            return None;
        }
        let sealed = &mut payload[number * FRAGMENT..][..FRAGMENT + BEHIND];
        sealed[..BEHIND].copy_from_slice(first);
        Some(Place { header: *header, sealed })
    }

    /// Bytes that came into the bounce.
    pub(crate) fn bounced(&self) -> usize {
        self.got.saturating_sub(self.count * WHOLE)
    }

    /// What came before the bounce and is no record before this one, as it came.
    pub(crate) fn rest<'a>(&'a self, from: usize, payload: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut left = self.got.saturating_sub(from * WHOLE);
        let bodies = payload[BEHIND..].chunks_exact(FRAGMENT);
        let records = self.edges.iter().zip(bodies).take(self.count).skip(from);
        records.flat_map(|(edge, body)| [&edge[..], body]).map(move |piece| {
            let here = left.min(piece.len());
            left -= here;
            &piece[..here]
        })
    }

    /// Whether no record that was assumed is left, from this number on.
    pub(crate) fn is_all(&self, number: usize) -> bool {
        number == self.count
    }

    /// Whether all of a record of this number came.
    pub(crate) fn has(&self, number: usize) -> bool {
        number < self.count && self.got >= (number + 1) * WHOLE
    }
}
