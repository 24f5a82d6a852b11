//! What is to be sent: header bytes of our own, and payload that lies in the driver's buffers.

use crate::wire::{BHS, Header, padding};
use henge_core::RequestId;
use std::collections::VecDeque;
use std::ops::Range;

/// A stretch of the outgoing stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    /// So many of the output's own bytes.
    Own(usize),
    /// Bytes of this command's buffer: the first one, and their number.
    Buffer(RequestId, usize, usize),
    /// Nothing to send: this command's buffer is not needed any more.
    Release(RequestId),
    /// Nothing to send: a piece of this command is sent.
    Over(RequestId),
}

/// A stretch, with its bytes where they are the output's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segment<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// These of the command's buffer.
    Buffer(RequestId, usize, usize),
}

/// The outgoing stream of a session.
#[derive(Debug, Default)]
pub struct Output {
    own: VecDeque<u8>,
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that are sent already.
    sent: usize,
    header_digest: bool,
    data_digest: bool,
}

impl Output {
    /// From now on each PDU is followed by the digests that were agreed on.
    pub(crate) fn set_digests(&mut self, header: bool, data: bool) {
        (self.header_digest, self.data_digest) = (header, data);
    }

    /// Whether all is sent.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes of our own that wait.
    pub(crate) fn own_len(&self) -> usize {
        self.own.len()
    }

    fn push_own(&mut self, bytes: &[u8]) {
        self.own.extend(bytes);
        match self.pieces.back_mut() {
            Some(Piece::Own(len)) => *len += bytes.len(),
            _ => self.pieces.push_back(Piece::Own(bytes.len())),
        }
    }

    fn push_header(&mut self, header: &Header) {
        self.push_own(&header.0);
        if self.header_digest {
            self.push_own(&crc32c::crc32c(&header.0).to_le_bytes());
        }
    }

    /// A PDU with data of our own, which may be empty.
    pub(crate) fn pdu(&mut self, mut header: Header, data: &[u8]) {
        header.put_data_len(data.len());
        self.push_header(&header);
        if !data.is_empty() {
            self.push_own(data);
            self.tail(data);
        }
    }

    /// A PDU whose data are `data`, bytes `range` of the command's buffer.
    pub(crate) fn pdu_of_buffer(
        &mut self,
        mut header: Header,
        task: RequestId,
        range: Range<usize>,
        data: &[u8],
    ) {
        header.put_data_len(range.len());
        self.push_header(&header);
        self.pieces.push_back(Piece::Buffer(task, range.start, range.len()));
        self.tail(data);
    }

    /// Padding and digest after `data`.
    fn tail(&mut self, data: &[u8]) {
        let zeroes = [0; 3];
        let padding = &zeroes[..padding(data.len())];
        if !padding.is_empty() {
            self.push_own(padding);
        }
        if self.data_digest {
            let crc = crc32c::crc32c_append(crc32c::crc32c(data), padding);
            self.push_own(&crc.to_le_bytes());
        }
    }

    /// After what was pushed so far is sent, the command's buffer is free.
    pub(crate) fn release(&mut self, task: RequestId) {
        self.pieces.push_back(Piece::Release(task));
    }

    /// After what was pushed so far is sent, the command goes on.
    pub(crate) fn piece(&mut self, task: RequestId) {
        self.pieces.push_back(Piece::Over(task));
    }

    /// What is to be sent next, in order. The output's own bytes may come in two segments.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let mut at = 0;
        let mut skip = self.sent;
        self.pieces
            .iter()
            .flat_map(move |&piece| {
                let already = std::mem::take(&mut skip);
                match piece {
                    Piece::Own(len) => {
                        let range = at..at + len - already;
                        at = range.end;
                        let (front, back) = slices(&self.own, range);
                        [Segment::Bytes(front), Segment::Bytes(back)]
                    }
                    Piece::Buffer(task, from, len) => {
                        [Segment::Buffer(task, from + already, len - already), Segment::Bytes(&[])]
                    }
                    Piece::Release(_) | Piece::Over(_) => [Segment::Bytes(&[]), Segment::Bytes(&[])],
                }
            })
            .filter(|segment| !matches!(segment, Segment::Bytes([])))
    }

    /// `count` bytes have been sent. Calls `sent` for each command whose buffer is free now (true), or of which a piece is sent.
    pub(crate) fn advance(&mut self, mut count: usize, mut sent: impl FnMut(RequestId, bool)) {
        while let Some(&piece) = self.pieces.front() {
            let len = match piece {
                Piece::Own(len) | Piece::Buffer(_, _, len) => len,
                Piece::Release(task) => {
                    sent(task, true);
                    0
                }
                Piece::Over(task) => {
                    sent(task, false);
                    0
                }
            };
            let step = count.min(len - self.sent);
            if let Piece::Own(_) = piece {
                self.own.drain(..step);
            }
            count -= step;
            self.sent += step;
            if self.sent < len {
                return;
            }
            self.sent = 0;
            self.pieces.pop_front();
        }
        assert_eq!(count, 0, "no more can be sent than there was to send");
    }
}

fn slices(ring: &VecDeque<u8>, range: Range<usize>) -> (&[u8], &[u8]) {
    let (front, back) = ring.as_slices();
    let split = front.len();
    (
        &front[range.start.min(split)..range.end.min(split)],
        &back[range.start.saturating_sub(split)..range.end.saturating_sub(split)],
    )
}

/// Room that a header and its digest take.
pub const HEADER_MAX: usize = BHS + 255 * 4 + 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(output: &Output, buffer: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for segment in output.segments() {
            match segment {
                Segment::Bytes(own) => bytes.extend_from_slice(own),
                Segment::Buffer(_, from, len) => bytes.extend_from_slice(&buffer[from..from + len]),
            }
        }
        bytes
    }

    #[test]
    fn the_stream_is_the_same_however_it_is_sent() {
        let id = RequestId { slot: 0, generation: 0 };
        let buffer: Vec<u8> = (0..10).collect();
        let mut output = Output::default();
        output.set_digests(true, true);
        output.pdu(Header::reply(0x20), b"abc");
        output.pdu_of_buffer(Header::reply(0x25), id, 2..9, &buffer[2..9]);
        output.release(id);
        let whole = all(&output, &buffer);
        assert_eq!(whole.len(), (48 + 4 + 4 + 4) + (48 + 4 + 8 + 4));
        // CRC32C of "abc\0", least significant byte first (RFC 7143 13.1)
        assert_eq!(whole[56..60], crc32c::crc32c(b"abc\0").to_le_bytes());
        let mut sent = Vec::new();
        let mut freed = Vec::new();
        while !output.is_empty() {
            let rest = all(&output, &buffer);
            let step = rest.len().min(7);
            sent.extend_from_slice(&rest[..step]);
            output.advance(step, |task, _| freed.push(task));
        }
        assert_eq!(sent, whole);
        assert_eq!(freed, [id]);
    }
}
