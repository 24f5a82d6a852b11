//! The numbers of the protocol (proto: "Values").

use henge_core::Fault;
use std::fmt;

/// First bytes of a server: `NBDMAGIC`.
pub const INIT_PASSWD: u64 = 0x4e42_444d_4147_4943;
/// Then, for newstyle, and before every option: `IHAVEOPT`.
pub const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// Before every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Before every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Before every simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Before every chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// Longest name or message (proto: "strings").
pub const STRING_MAX: usize = 4096;

/// Handshake flags, the server's and the client's.
pub mod handshake {
    /// Fixed newstyle.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// No 124 zeroes after EXPORT_NAME.
    pub const NO_ZEROES: u16 = 2;
}

/// Option types.
pub mod opt {
    #![allow(missing_docs, reason = "the names are the documentation")]
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Option reply types.
pub mod rep {
    #![allow(missing_docs, reason = "the names are the documentation")]
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERROR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR + 1;
    pub const ERR_POLICY: u32 = ERROR + 2;
    pub const ERR_INVALID: u32 = ERROR + 3;
    pub const ERR_TLS_REQD: u32 = ERROR + 5;
    pub const ERR_UNKNOWN: u32 = ERROR + 6;
    pub const ERR_SHUTDOWN: u32 = ERROR + 7;
    pub const ERR_TOO_BIG: u32 = ERROR + 9;
}

/// Information types of INFO and GO.
pub mod info {
    #![allow(missing_docs, reason = "the names are the documentation")]
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags.
pub mod flag {
    #![allow(missing_docs, reason = "the names are the documentation")]
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const ROTATIONAL: u16 = 1 << 4;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Request types and their flags.
pub mod cmd {
    #![allow(missing_docs, reason = "the names are the documentation")]
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
    pub const FLAG_FUA: u16 = 1;
    pub const FLAG_NO_HOLE: u16 = 1 << 1;
    pub const FLAG_DF: u16 = 1 << 2;
    pub const FLAG_REQ_ONE: u16 = 1 << 3;
    pub const FLAG_FAST_ZERO: u16 = 1 << 4;
}

/// Chunks of structured replies.
pub mod chunk {
    #![allow(missing_docs, reason = "the names are the documentation")]
    pub const FLAG_DONE: u16 = 1;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR_BIT: u16 = 1 << 15;
    pub const ERROR: u16 = ERROR_BIT + 1;
    pub const ERROR_OFFSET: u16 = ERROR_BIT + 2;
}

/// The one metadata context there is.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The id it gets; any would do.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// `base:allocation`: not allocated.
pub const STATE_HOLE: u32 = 1;
/// `base:allocation`: reads as zeroes.
pub const STATE_ZERO: u32 = 2;

/// The errors of the protocol (proto: "Error values").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Error {
    /// NBD_EPERM: a write to a read-only export.
    NotPermitted = 1,
    /// NBD_EIO
    Io = 5,
    /// NBD_ENOMEM
    NoMemory = 12,
    /// NBD_EINVAL
    Invalid = 22,
    /// NBD_ENOSPC
    NoSpace = 28,
    /// NBD_EOVERFLOW: a read that is too long.
    Overflow = 75,
    /// NBD_ENOTSUP: zeroes that would not be fast.
    NotSupported = 95,
    /// NBD_ESHUTDOWN
    Shutdown = 108,
}

impl Error {
    /// On the wire.
    pub const fn code(self) -> u32 {
        self as u32
    }
    /// From the wire; what is unknown counts as invalid (proto: "Error values").
    pub const fn from_code(code: u32) -> Error {
        match code {
            1 => Error::NotPermitted,
            5 => Error::Io,
            12 => Error::NoMemory,
            28 => Error::NoSpace,
            75 => Error::Overflow,
            95 => Error::NotSupported,
            108 => Error::Shutdown,
            _ => Error::Invalid,
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        match fault {
            Fault::Io | Fault::Unreachable | Fault::Cancelled => Error::Io,
            Fault::NoSpace => Error::NoSpace,
            // ENOTSUP is reserved for zeroes that would not be fast.
            Fault::Unsupported | Fault::OutOfRange => Error::Invalid,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::NotPermitted => "operation not permitted",
            Error::Io => "input/output error",
            Error::NoMemory => "out of memory",
            Error::Invalid => "invalid argument",
            Error::NoSpace => "no space left",
            Error::Overflow => "value too large",
            Error::NotSupported => "operation not supported",
            Error::Shutdown => "server is shutting down",
        })
    }
}
impl std::error::Error for Error {}

/// Reads big-endian fields off the front of `bytes`; the caller has checked the length.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }
    /// A string with its length before it.
    pub(crate) fn string(&mut self) -> Option<&'a str> {
        let len = self.u32()? as usize;
        std::str::from_utf8(self.bytes(len)?).ok().filter(|s| s.len() <= STRING_MAX)
    }
}

/// Appends big-endian fields.
pub(crate) trait Put {
    fn raw(&mut self, bytes: &[u8]);
    fn u16(&mut self, x: u16) {
        self.raw(&x.to_be_bytes());
    }
    fn u32(&mut self, x: u32) {
        self.raw(&x.to_be_bytes());
    }
    fn u64(&mut self, x: u64) {
        self.raw(&x.to_be_bytes());
    }
}
impl Put for Vec<u8> {
    fn raw(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Takes the next `need` bytes off the stream whatever its pieces: gathers what is incomplete in `partial`.
///
/// `None` when `input` ends before; all of it is kept then. A complete item is returned where it lies.
pub(crate) fn gather<'a>(
    partial: &'a mut Vec<u8>,
    input: &'a [u8],
    need: usize,
    consumed: &mut usize,
) -> Option<&'a [u8]> {
    let rest = &input[*consumed..];
    if partial.is_empty() && rest.len() >= need {
        *consumed += need;
        return Some(&rest[..need]);
    }
    let more = (need - partial.len()).min(rest.len());
    partial.extend_from_slice(&rest[..more]);
    *consumed += more;
    (partial.len() == need).then_some(partial)
}
