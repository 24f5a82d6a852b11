//! PDUs, submission and completion entries as they stand on the wire (NVMe/TCP Transport 1.0, section 3.6;
//! NVMe Base 2.0, sections 3.3.3 and 4.6). All numbers are little-endian.

/// PDU types (Transport, figure 20).
pub mod pdu {
    /// Initialize connection request.
    pub const IC_REQ: u8 = 0x00;
    /// Initialize connection response.
    pub const IC_RESP: u8 = 0x01;
    /// The host ends the connection.
    pub const H2C_TERM: u8 = 0x02;
    /// The controller ends the connection.
    pub const C2H_TERM: u8 = 0x03;
    /// Command capsule.
    pub const COMMAND: u8 = 0x04;
    /// Response capsule.
    pub const RESPONSE: u8 = 0x05;
    /// Data from the host.
    pub const H2C_DATA: u8 = 0x06;
    /// Data to the host.
    pub const C2H_DATA: u8 = 0x07;
    /// Ready to transfer.
    pub const R2T: u8 = 0x09;

    /// Flag: a header digest follows the header.
    pub const HEADER_DIGEST: u8 = 0x01;
    /// Flag: a data digest follows the data.
    pub const DATA_DIGEST: u8 = 0x02;
    /// Flag: the last data PDU of a transfer.
    pub const LAST: u8 = 0x04;
    /// Flag: no response capsule follows, the command has succeeded.
    pub const SUCCESS: u8 = 0x08;
}

/// Bytes of the header that all PDUs begin with.
pub const COMMON: usize = 8;
/// Bytes of ICReq and ICResp.
pub const IC_LEN: usize = 128;
/// Bytes of a submission entry.
pub const SQE: usize = 64;
/// Bytes of a completion entry.
pub const CQE: usize = 16;
/// Bytes of a command capsule's header.
pub const COMMAND_HEADER: usize = COMMON + SQE;
/// Bytes of the header of a data PDU, R2T, response or termination.
pub const SHORT_HEADER: usize = 24;
/// Longest header with its digest. Of this number of bytes a session always takes some.
pub const HEADER_MAX: usize = IC_LEN + 4;
/// Most bytes of a faulty PDU that a termination repeats (Transport 3.6.2.4).
const TERM_DATA: usize = 128;

/// 16 bits at a place.
pub fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}
/// 32 bits at a place.
pub fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from(le16(bytes, at)) | u32::from(le16(bytes, at + 2)) << 16
}
/// 64 bits at a place.
pub fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}
/// Puts a number of any width at a place.
pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// What every PDU begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Common {
    /// One of [`pdu`].
    pub kind: u8,
    /// Flags of [`pdu`].
    pub flags: u8,
    /// Bytes of the header.
    pub header: u8,
    /// Where data begin.
    pub data_at: u8,
    /// Bytes of the whole PDU.
    pub len: u32,
}

impl Common {
    /// `None` until there are eight bytes.
    pub fn read(bytes: &[u8]) -> Option<Common> {
        let b = bytes.first_chunk::<COMMON>()?;
        Some(Common { kind: b[0], flags: b[1], header: b[2], data_at: b[3], len: le32(b, 4) })
    }
    /// As one word.
    #[inline]
    pub(crate) fn word(&self) -> u64 {
        let first = u32::from_le_bytes([self.kind, self.flags, self.header, self.data_at]);
        u64::from(first) | u64::from(self.len) << 32
    }
    /// Puts it in front of a header.
    pub fn write(&self, to: &mut [u8]) {
        put(to, 0, self.word().to_le_bytes());
    }
    /// Bytes that the header of such a PDU must have; `None` for what a host never sends, or ends the connection by.
    pub fn header_len(kind: u8) -> Option<usize> {
        match kind {
            pdu::IC_REQ => Some(IC_LEN),
            pdu::COMMAND => Some(COMMAND_HEADER),
            pdu::H2C_DATA => Some(SHORT_HEADER),
            _ => None,
        }
    }
}

/// Why a connection is ended (Transport, figure 29).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fatal {
    /// A field of a header is wrong; where it begins.
    Header(u32),
    /// A PDU came that was not to come now.
    Sequence,
    /// A header is not what its digest says.
    HeaderDigest,
    /// Data outside of what was asked for.
    Range,
    /// More data than may be sent at once.
    TooMuch,
    /// A parameter of the connection that is not supported; where it is.
    Unsupported(u32),
}

impl Fatal {
    /// Fatal error status, and information about it.
    pub fn code(self) -> (u16, u32) {
        match self {
            Fatal::Header(at) => (1, at),
            Fatal::Sequence => (2, 0),
            Fatal::HeaderDigest => (3, 0),
            Fatal::Range => (4, 0),
            Fatal::TooMuch => (5, 0),
            Fatal::Unsupported(at) => (6, at),
        }
    }
    /// The PDU that tells the host, which repeats the faulty header.
    pub(crate) fn pdu(self, faulty: &[u8]) -> Vec<u8> {
        let (status, information) = self.code();
        let faulty = &faulty[..faulty.len().min(TERM_DATA)];
        let mut out = vec![0; SHORT_HEADER];
        let len = (SHORT_HEADER + faulty.len()) as u32;
        let header = SHORT_HEADER as u8;
        Common { kind: pdu::C2H_TERM, flags: 0, header, data_at: header, len }.write(&mut out);
        put(&mut out, 8, status.to_le_bytes());
        put(&mut out, 10, information.to_le_bytes());
        out.extend_from_slice(faulty);
        out
    }
}

/// Where a command's data are to be (Base 4.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the capsule, from this byte of its data on.
    Capsule(u64),
    /// At the host, which sends them when asked, or takes them.
    Host,
    /// What is not supported over TCP.
    Other,
}

/// A submission entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sqe(pub [u8; SQE]);

impl Sqe {
    /// Opcode.
    pub fn opcode(&self) -> u8 {
        self.0[0]
    }
    /// 0: alone; 1, 2: first, second of two; 3 is reserved.
    pub fn fuse(&self) -> u8 {
        self.0[1] & 3
    }
    /// The host's name for the command.
    pub fn cid(&self) -> u16 {
        le16(&self.0, 2)
    }
    /// Namespace.
    pub fn nsid(&self) -> u32 {
        le32(&self.0, 4)
    }
    /// Command dword 10 to 15.
    pub fn dword(&self, n: usize) -> u32 {
        debug_assert!((10..16).contains(&n), "a command's own dwords");
        le32(&self.0, n * 4)
    }
    /// 16 bits at a byte, for Fabrics commands.
    pub fn u16_at(&self, at: usize) -> u16 {
        le16(&self.0, at)
    }
    /// First block of a command for the disk.
    pub fn block(&self) -> u64 {
        le64(&self.0, 40)
    }
    /// Whether the data are described by one SGL, as is always so over fabrics.
    pub fn has_sgl(&self) -> bool {
        matches!(self.0[1] >> 6, 1 | 2)
    }
    /// Bytes that the host has for data, or has of data.
    pub fn data_len(&self) -> u32 {
        le32(&self.0, 32)
    }
    /// Where its data are.
    pub fn place(&self) -> Place {
        match self.0[39] {
            0x01 => Place::Capsule(le64(&self.0, 24)),
            0x5a => Place::Host,
            _ => Place::Other,
        }
    }
}

/// A completion entry, as two words.
#[inline]
pub(crate) fn cqe(result: u64, head: u16, cid: u16, status: u16) -> [u64; 2] {
    [result, u64::from(head) | u64::from(cid) << 32 | u64::from(status << 1) << 48]
}
