//! What is to be sent: PDUs of our own, and payload that lies in the driver's buffers.

use crate::wire::{Common, SHORT_HEADER, pdu};
use henge_core::RequestId;
use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Item {
    /// So many of our own bytes.
    Own(usize),
    /// So many of [`ZEROES`].
    Zeroes(usize),
    /// Bytes `at..end` of a command's buffer, which is free behind them.
    Buffer { task: RequestId, at: usize, end: usize },
}

/// What zeroes are sent from, so many at a time.
static ZEROES: [u8; 16 << 10] = [0; 16 << 10];

/// So many zeroes, piece by piece: the length of each.
fn pages(len: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(ZEROES.len()).map(move |at| ZEROES.len().min(len - at))
}

/// A stretch of the outgoing stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segment<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Bytes of this command's buffer: the first one, and their number.
    Buffer(RequestId, usize, usize),
}

/// What both ends agreed on about PDUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Digests {
    /// CRC32C of headers.
    pub header: bool,
    /// CRC32C of data.
    pub data: bool,
}

/// The outgoing stream of a session. Its memory is kept and used again.
#[derive(Debug, Default)]
pub(crate) struct Output {
    own: Vec<u8>,
    /// How many of `own` are sent.
    sent: usize,
    /// Zeroes that wait beside them.
    zeroes: usize,
    items: VecDeque<Item>,
    digests: Digests,
    /// Data begin at a multiple of this (a power of two, at least 4); 0: nobody has asked for it.
    align: usize,
}

impl Output {
    pub fn agree(&mut self, digests: Digests, align: usize) {
        (self.digests, self.align) = (digests, align);
    }
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
    /// Bytes of our own that wait.
    pub fn own_len(&self) -> usize {
        self.own.len() - self.sent + self.zeroes
    }

    /// Bytes as they are.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.own.extend_from_slice(bytes);
        self.count(bytes.len());
    }

    /// So many bytes more of our own are to be sent.
    #[inline]
    fn count(&mut self, more: usize) {
        match self.items.back_mut() {
            Some(Item::Own(len)) => *len += more,
            _ => self.items.push_back(Item::Own(more)),
        }
    }

    /// A header of 24 bytes: what all have in common, and two words of its own. It is made of words, since a processor waits when it reads
    /// as one what was just written in parts.
    #[inline]
    fn header(&mut self, common: Common, own: [u64; 2]) {
        let words = [common.word(), own[0], own[1]].map(u64::to_le_bytes);
        self.own.reserve(SHORT_HEADER);
        for word in &words {
            self.own.extend_from_slice(word);
        }
        self.count(SHORT_HEADER);
        if self.digests.header {
            let sum = crc32c::crc32c(words.as_flattened());
            self.raw(&sum.to_le_bytes());
        }
    }

    /// A PDU without data.
    #[inline]
    fn short(&mut self, kind: u8, own: [u64; 2]) {
        let digest = if self.digests.header { 4 } else { 0 };
        let flags = if self.digests.header { pdu::HEADER_DIGEST } else { 0 };
        let len = (SHORT_HEADER + digest) as u32;
        self.header(Common { kind, flags, header: SHORT_HEADER as u8, data_at: 0, len }, own);
    }

    /// A response capsule, with the two words of a completion.
    #[inline]
    pub fn response(&mut self, cqe: [u64; 2]) {
        self.short(pdu::RESPONSE, cqe);
    }

    /// Asks for `len` bytes of a command's data, from `offset` on.
    pub fn r2t(&mut self, cid: u16, tag: u16, offset: u32, len: u32) {
        let first = u64::from(cid) | u64::from(tag) << 16 | u64::from(offset) << 32;
        self.short(pdu::R2T, [first, u64::from(len)]);
    }

    /// Data of a command: `data`, which are our own, or lie in a command's buffer from byte 0 on. Once they are sent, that buffer is free.
    /// So many zeroes follow them. `alone`: no response follows.
    pub fn data(&mut self, cid: u16, (data, zeroes): (&[u8], usize), from: Option<RequestId>, alone: bool) {
        let data_len = data.len() + zeroes;
        let digest = |has: bool| if has { 4 } else { 0 };
        let after_header = SHORT_HEADER + digest(self.digests.header);
        let at = if self.align > 0 { after_header.next_multiple_of(self.align) } else { after_header };
        let mut flags = pdu::LAST;
        flags |= if alone { pdu::SUCCESS } else { 0 };
        flags |= if self.digests.header { pdu::HEADER_DIGEST } else { 0 };
        flags |= if self.digests.data { pdu::DATA_DIGEST } else { 0 };
        let len = (at + data_len + digest(self.digests.data)) as u32;
        let common =
            Common { kind: pdu::C2H_DATA, flags, header: SHORT_HEADER as u8, data_at: at as u8, len };
        self.header(common, [u64::from(cid), data_len as u64]);
        const PADDING: [u8; 128] = [0; 128];
        if at > after_header {
            self.raw(&PADDING[..at - after_header]);
        }
        match from {
            Some(task) => self.items.push_back(Item::Buffer { task, at: 0, end: data.len() }),
            None => self.raw(data),
        }
        if zeroes > 0 {
            self.zeroes += zeroes;
            self.items.extend(pages(zeroes).map(Item::Zeroes));
        }
        if self.digests.data {
            let crc = pages(zeroes)
                .fold(crc32c::crc32c(data), |crc, len| crc32c::crc32c_append(crc, &ZEROES[..len]));
            self.raw(&crc.to_le_bytes());
        }
    }

    /// What is to be sent next, in order.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let mut from = self.sent;
        self.items.iter().map(move |item| match *item {
            Item::Own(len) => {
                from += len;
                Segment::Bytes(&self.own[from - len..from])
            }
            Item::Zeroes(len) => Segment::Bytes(&ZEROES[..len]),
            Item::Buffer { task, at, end } => Segment::Buffer(task, at, end - at),
        })
    }

    /// `count` bytes have been sent; `released` hears of each buffer that is free now.
    pub fn advance(&mut self, mut count: usize, mut released: impl FnMut(RequestId)) {
        while let Some(item) = self.items.front_mut() {
            let left = match item {
                Item::Own(len) => {
                    let step = count.min(*len);
                    (*len, count, self.sent) = (*len - step, count - step, self.sent + step);
                    *len
                }
                Item::Zeroes(len) => {
                    let step = count.min(*len);
                    (*len, count, self.zeroes) = (*len - step, count - step, self.zeroes - step);
                    *len
                }
                Item::Buffer { task, at, end } => {
                    let step = count.min(*end - *at);
                    (*at, count) = (*at + step, count - step);
                    if *at == *end {
                        released(*task);
                    }
                    *end - *at
                }
            };
            if left > 0 {
                break;
            }
            self.items.pop_front();
        }
        assert_eq!(count, 0, "no more can be sent than there was to send");
        self.reclaim();
    }

    /// Forgets what is sent when that is cheap: all of it, or most of a long queue.
    fn reclaim(&mut self) {
        if self.sent == self.own.len() {
            self.own.clear();
            self.sent = 0;
        } else if self.sent > 4096 && self.sent * 2 > self.own.len() {
            self.own.drain(..self.sent);
            self.sent = 0;
        }
    }
}
