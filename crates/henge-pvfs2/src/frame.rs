//! Framing: a 24-byte header, then the payload. A connection is fully delimited by these headers alone.
//!
//! Source: `src/io/bmi/bmi_tcp/bmi-tcp.c`, `struct tcp_msg_header`.

/// Length of a header on the wire.
pub const HEADER_LEN: usize = 24;
/// First word of every header.
pub const MAGIC: u32 = 51_903;
/// Longest payload of any message (16 MiB).
pub const PAYLOAD_MAX: u64 = 16 << 20;
/// Longest payload of an unexpected message, that is, of a request.
pub const UNEXPECTED_MAX: u64 = 16_384;

/// How a message was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Never seen on TCP.
    Immediate,
    /// A new request, towards a server only.
    Unexpected,
    /// At most 16 384 bytes: a response, or bulk data.
    Eager,
    /// Longer than that.
    Rendezvous,
}

/// A message's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// How it was sent.
    pub mode: Mode,
    /// Ties requests, responses and bulk data together, per connection.
    pub tag: i64,
    /// Payload bytes that follow.
    pub size: u64,
}

impl Header {
    /// From the wire; `None` when this is no such header.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Option<Header> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let mode = match word(4) {
            1 => Mode::Immediate,
            2 => Mode::Unexpected,
            4 => Mode::Eager,
            8 => Mode::Rendezvous,
            _ => return None,
        };
        let most = if mode == Mode::Unexpected { UNEXPECTED_MAX } else { PAYLOAD_MAX };
        let size = long(16);
        (word(0) == MAGIC && size <= most).then_some(Header { mode, tag: long(8) as i64, size })
    }

    /// To the wire.
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mode: u32 = match self.mode {
            Mode::Immediate => 1,
            Mode::Unexpected => 2,
            Mode::Eager => 4,
            Mode::Rendezvous => 8,
        };
        let mut bytes = [0; HEADER_LEN];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&mode.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.tag.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_le_bytes());
        bytes
    }

    /// The header of an expected message (a response, or bulk data): its size decides the mode.
    pub fn expected(tag: i64, size: u64) -> Header {
        let mode = if size > UNEXPECTED_MAX { Mode::Rendezvous } else { Mode::Eager };
        Header { mode, tag, size }
    }
}
