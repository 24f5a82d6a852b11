//! What is to be written to a socket: bytes made here, and bytes that lie in commands' buffers.

use henge_core::RequestId;
use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Item {
    Bytes { len: usize },
    Payload { id: RequestId, at: u64, len: usize, end: End },
}

/// What a payload is the end of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Nothing,
    /// A buffer that is no longer needed; the command goes on with another one.
    Window,
    /// What needs the command's buffer.
    Command,
}

/// A stretch of output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segment<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// `len` bytes of the buffer of command `id`, from its byte `at` on (counted from the command's own first byte).
    Payload {
        /// Whose buffer.
        id: RequestId,
        /// From where.
        at: u64,
        /// How many.
        len: usize,
    },
}

/// A queue of bytes to write. Its memory is kept and used again.
#[derive(Debug, Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// How many of `bytes` are written.
    written: usize,
    items: VecDeque<Item>,
    /// Total, payload included.
    len: u64,
}

impl Output {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Bytes to write, payload included.
    pub fn len(&self) -> u64 {
        self.len
    }
    /// Bytes held here, payload not included.
    pub fn held(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// What is to be written, in order.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let mut from = self.written;
        self.items.iter().map(move |item| match *item {
            Item::Bytes { len } => {
                from += len;
                Segment::Bytes(&self.bytes[from - len..from])
            }
            Item::Payload { id, at, len, .. } => Segment::Payload { id, at, len },
        })
    }

    /// Makes bytes with `write`.
    pub(crate) fn bytes(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        write(&mut self.bytes);
        let added = self.bytes.len() - before;
        self.len += added as u64;
        match self.items.back_mut() {
            Some(Item::Bytes { len }) => *len += added,
            _ => self.items.push_back(Item::Bytes { len: added }),
        }
    }

    /// Then bytes of a command's buffer; `last` if that is the end of what needs the buffer.
    pub(crate) fn payload(&mut self, id: RequestId, at: u64, len: usize, last: bool) {
        assert!(len > 0, "an empty payload is none");
        self.len += len as u64;
        let end = if last { End::Command } else { End::Nothing };
        self.items.push_back(Item::Payload { id, at, len, end });
    }

    /// Then bytes of a buffer that holds no more than these of a command's; `last` if they are the last of the command's.
    pub(crate) fn window(&mut self, id: RequestId, at: u64, len: usize, last: bool) {
        self.len += len as u64;
        let end = if last { End::Command } else { End::Window };
        self.items.push_back(Item::Payload { id, at, len, end });
    }

    /// `n` bytes were written; `released` hears of each command a buffer of which is no longer needed, and
    /// whether that was all of it.
    pub(crate) fn advance(&mut self, mut n: usize, mut released: impl FnMut(RequestId, bool)) {
        assert!(n as u64 <= self.len, "more is written than there was");
        self.len -= n as u64;
        while n > 0 {
            let step = match self.items.front_mut().expect("as many items as bytes") {
                Item::Bytes { len } => {
                    let step = n.min(*len);
                    *len -= step;
                    self.written += step;
                    if *len > 0 {
                        break;
                    }
                    step
                }
                Item::Payload { id, at, len, end } => {
                    let step = n.min(*len);
                    *at += step as u64;
                    *len -= step;
                    if *len > 0 {
                        break;
                    }
                    if *end != End::Nothing {
                        released(*id, *end == End::Command);
                    }
                    step
                }
            };
            self.items.pop_front();
            n -= step;
        }
        // Reclaim what is written when that is cheap: everything, or most of a long queue.
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
        } else if self.written > 4096 && self.written * 2 > self.bytes.len() {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn contents(output: &Output, into: &mut Vec<u8>, most: usize) -> usize {
        let mut left = most;
        for segment in output.segments() {
            let bytes = match segment {
                Segment::Bytes(bytes) => bytes.to_vec(),
                // A buffer whose byte i is the command's number plus i.
                Segment::Payload { id, at, len } => {
                    (at..at + len as u64).map(|i| (id.slot as u64 + i) as u8).collect()
                }
            };
            let n = left.min(bytes.len());
            into.extend_from_slice(&bytes[..n]);
            left -= n;
        }
        most - left
    }

    proptest! {
        /// Written in pieces of any size, what comes out is what went in, and each buffer is released once, when its
        /// last byte is out. Long queues are compacted on the way.
        #[test]
        fn in_order_and_released_once(steps in proptest::collection::vec((0usize..1500, 0usize..30, 0usize..1600), 1..80)) {
            let mut output = Output::default();
            let (mut expected, mut got, mut released) = (vec![], vec![], vec![]);
            for (i, &(header, payload, written)) in steps.iter().enumerate() {
                let id = RequestId { slot: i as u32, generation: 0 };
                output.bytes(|b| b.extend((0..header).map(|n| (n ^ i) as u8)));
                expected.extend((0..header).map(|n| (n ^ i) as u8));
                if payload > 0 {
                    output.payload(id, 0, payload, true);
                    expected.extend((0..payload).map(|n| (i + n) as u8));
                }
                let n = contents(&output, &mut got, written);
                output.advance(n, |id, _| released.push(id.slot));
                prop_assert!(output.held() as u64 <= output.len());
            }
            let n = contents(&output, &mut got, usize::MAX);
            output.advance(n, |id, _| released.push(id.slot));
            prop_assert!(output.is_empty());
            prop_assert_eq!(output.held(), 0);
            prop_assert_eq!(got, expected);
            let with_payload: Vec<_> = (0..steps.len() as u32).filter(|i| steps[*i as usize].1 > 0).collect();
            prop_assert_eq!(released, with_payload);
        }
    }
}
