//! A request of the transmission phase, checked.

use crate::proto::{Error, Fields, REQUEST_MAGIC, cmd};
use crate::{Export, proto};
use henge_core::{Instant, RequestId};

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandKind {
    /// Bytes.
    Read {
        /// In one piece.
        df: bool,
    },
    /// Bytes changed.
    Write,
    /// What was answered before made durable.
    Flush,
    /// Bytes given back.
    Trim,
    /// A range that will be read soon.
    Cache,
    /// Bytes that read as zeroes.
    WriteZeroes {
        /// The space stays provisioned.
        no_hole: bool,
        /// Refused (not supported) unless quicker than writing.
        fast: bool,
    },
    /// Which bytes are holes or zeroes.
    BlockStatus {
        /// One extent is enough.
        one: bool,
    },
}

/// A client's command, in flight until it is replied to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// Its name until then.
    pub id: RequestId,
    /// What.
    pub kind: CommandKind,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// Durable before it is answered.
    pub fua: bool,
    /// When its last byte came.
    pub arrival: Instant,
}

/// A request header as it stands on the wire (proto: "Request message").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub flags: u16,
    pub kind: u16,
    pub cookie: u64,
    pub offset: u64,
    pub len: u32,
}

/// Bytes of a request header.
pub(crate) const HEADER: usize = 28;

impl Header {
    /// `None` if the magic number is wrong.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Header> {
        let mut f = Fields(bytes);
        if f.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Header { flags: f.u16()?, kind: f.u16()?, cookie: f.u64()?, offset: f.u64()?, len: f.u32()? })
    }
}

/// What is wrong with a request.
pub(crate) type Wrong = (Error, &'static str);

/// What the handshake settled, as far as requests are concerned.
pub(crate) struct Terms<'a> {
    pub export: &'a Export,
    pub structured: bool,
    pub allocation: bool,
}

/// The command that a header means, or the error to answer. In the protocol's terms a command may only use what the
/// transmission flags expose, so everything else is invalid.
pub(crate) fn check(h: &Header, terms: &Terms<'_>) -> Result<CommandKind, Wrong> {
    let export = terms.export;
    let exposed = |bit: u16| export.flags(terms.structured) & bit != 0;
    let has = |bit: u16| h.flags & bit != 0;
    let writes = matches!(h.kind, cmd::WRITE | cmd::TRIM | cmd::WRITE_ZEROES);
    if writes && export.read_only {
        return Err((Error::NotPermitted, "the export is read-only"));
    }
    let (kind, flags) = match h.kind {
        cmd::READ => {
            let df = if exposed(proto::flag::SEND_DF) { cmd::FLAG_DF } else { 0 };
            (CommandKind::Read { df: has(cmd::FLAG_DF) }, df)
        }
        cmd::WRITE => (CommandKind::Write, 0),
        cmd::FLUSH => (CommandKind::Flush, 0),
        cmd::TRIM if exposed(proto::flag::SEND_TRIM) => (CommandKind::Trim, 0),
        cmd::CACHE if exposed(proto::flag::SEND_CACHE) => (CommandKind::Cache, 0),
        cmd::WRITE_ZEROES if exposed(proto::flag::SEND_WRITE_ZEROES) => {
            let fast = if exposed(proto::flag::SEND_FAST_ZERO) { cmd::FLAG_FAST_ZERO } else { 0 };
            let kind =
                CommandKind::WriteZeroes { no_hole: has(cmd::FLAG_NO_HOLE), fast: has(cmd::FLAG_FAST_ZERO) };
            (kind, cmd::FLAG_NO_HOLE | fast)
        }
        cmd::BLOCK_STATUS if terms.allocation => {
            (CommandKind::BlockStatus { one: has(cmd::FLAG_REQ_ONE) }, cmd::FLAG_REQ_ONE)
        }
        cmd::BLOCK_STATUS => return Err((Error::Invalid, "no metadata context was selected")),
        _ => return Err((Error::Invalid, "unknown command")),
    };
    // FUA is accepted on every command (proto: "Command flags").
    if h.flags & !(flags | cmd::FLAG_FUA) != 0 {
        return Err((Error::Invalid, "a flag that this command does not have"));
    }
    range(h, kind, terms)?;
    Ok(kind)
}

fn range(h: &Header, kind: CommandKind, terms: &Terms<'_>) -> Result<(), Wrong> {
    let Export { size, block, .. } = *terms.export;
    if kind == CommandKind::Flush {
        return match (h.offset, h.len) {
            (0, 0) => Ok(()),
            _ => Err((Error::Invalid, "offset and length of a flush are zero")),
        };
    }
    if h.offset.checked_add(u64::from(h.len)).is_none_or(|end| end > size) {
        let error = match kind {
            CommandKind::Write | CommandKind::WriteZeroes { .. } => Error::NoSpace,
            _ => Error::Invalid,
        };
        return Err((error, "beyond the end of the export"));
    }
    if !h.offset.is_multiple_of(u64::from(block.least)) || !h.len.is_multiple_of(block.least) {
        return Err((Error::Invalid, "not a multiple of the smallest block"));
    }
    match kind {
        CommandKind::Read { .. } if h.len > block.most && terms.structured => {
            Err((Error::Overflow, "longer than the export's largest read"))
        }
        CommandKind::Read { .. } if h.len > block.most => {
            Err((Error::Invalid, "longer than the export's largest read"))
        }
        CommandKind::Write if h.len > block.most => {
            Err((Error::Invalid, "longer than the export's largest write"))
        }
        CommandKind::BlockStatus { .. } if h.len == 0 => Err((Error::Invalid, "status of nothing")),
        _ => Ok(()),
    }
}
