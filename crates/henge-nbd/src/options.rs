//! Option haggling, the server's side (proto: "Fixed newstyle negotiation", "Option types").

use crate::proto::{BASE_ALLOCATION, BASE_ALLOCATION_ID, Fields, OPTION_REPLY_MAGIC, Put, info, opt, rep};
use crate::{Closed, Export, Exports, Output, Tls};

/// Most exports that LIST shows; more are too big a reply.
const LIST_MAX: usize = 16_384;
/// Exports that are named at once; then it is looked whether the client has read enough of those before.
const LIST_PIECE: usize = 16;

/// What is settled so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Handshake {
    /// The client speaks fixed newstyle, so options may be answered with errors.
    pub fixed: bool,
    /// No 124 zeroes after EXPORT_NAME.
    pub no_zeroes: bool,
    pub structured: bool,
    pub tls: Tls,
    /// TLS has begun.
    pub encrypted: bool,
    /// For which export base:allocation was selected last.
    pub allocation: Option<usize>,
}

/// What becomes of the handshake.
pub(crate) enum Step {
    Next,
    /// LIST is answered piece by piece.
    List,
    Enter(usize),
    /// STARTTLS is acknowledged.
    Tls,
    Close(Closed),
}

/// A refusal: the reply's type, and why, for people.
type Refusal = (u32, &'static str);

impl Handshake {
    /// Answers one option.
    pub(crate) fn option<E: Exports + ?Sized>(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &E,
        out: &mut Output,
    ) -> Step {
        // "the server MUST NOT … reply … before TLS": a client learns nothing but that TLS is needed.
        let in_clear = self.tls == Tls::Require && !self.encrypted;
        if option == opt::EXPORT_NAME && in_clear {
            return Step::Close(Closed::TlsRequired);
        }
        if option == opt::EXPORT_NAME {
            return self.export_name(data, exports, out);
        }
        if !self.fixed {
            return Step::Close(Closed::Garbage("an option without fixed newstyle"));
        }
        if option == opt::ABORT {
            reply(out, option, rep::ACK, |_| {});
            return Step::Close(Closed::Abort);
        }
        let answer = match option {
            opt::STARTTLS => match self.may_begin_tls(data) {
                Ok(()) => {
                    reply(out, option, rep::ACK, |_| {});
                    return Step::Tls;
                }
                refused => refused,
            },
            _ if in_clear => Err((rep::ERR_TLS_REQD, "this server requires TLS")),
            opt::LIST => match may_list(data, exports) {
                Ok(()) => return Step::List,
                refused => refused,
            },
            opt::INFO | opt::GO => match self.info(option, data, exports, out) {
                Ok(index) if option == opt::GO => {
                    reply(out, option, rep::ACK, |_| {});
                    return Step::Enter(index);
                }
                other => other.map(|_| ()),
            },
            opt::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                Ok(())
            }
            opt::STRUCTURED_REPLY => Err((rep::ERR_INVALID, "this option has no data")),
            opt::LIST_META_CONTEXT => contexts(option, data, exports, out).map(|_| ()),
            opt::SET_META_CONTEXT => self.set_context(data, exports, out),
            opt::EXTENDED_HEADERS => Err((rep::ERR_UNSUP, "extended headers are not supported")),
            _ => Err((rep::ERR_UNSUP, "unknown option")),
        };
        match answer {
            Ok(()) => reply(out, option, rep::ACK, |_| {}),
            Err((kind, why)) => refuse(out, option, kind, why),
        }
        Step::Next
    }

    fn may_begin_tls(&self, data: &[u8]) -> Result<(), Refusal> {
        match self.tls {
            Tls::No => Err((rep::ERR_UNSUP, "TLS is not supported")),
            _ if self.encrypted => Err((rep::ERR_INVALID, "TLS has begun already")),
            _ if !data.is_empty() => Err((rep::ERR_INVALID, "this option has no data")),
            Tls::Allow | Tls::Require => Ok(()),
        }
    }

    /// TLS has begun: whatever was settled before may have been somebody's on the way, and is forgotten.
    pub(crate) fn encrypted(&mut self) {
        let Handshake { fixed, no_zeroes, tls, .. } = *self;
        *self = Handshake { fixed, no_zeroes, tls, encrypted: true, ..Handshake::default() };
    }

    fn export_name<E: Exports + ?Sized>(&self, data: &[u8], exports: &E, out: &mut Output) -> Step {
        // It cannot be refused but by closing.
        let index = std::str::from_utf8(data).ok().and_then(|n| exports.find(n));
        let index = index.filter(|index| exports.refusal(*index).is_none());
        let found = index.and_then(|index| Some((index, exports.get(index)?)));
        let Some((index, export)) = found else { return Step::Close(Closed::UnknownExport) };
        out.bytes(|b| {
            b.u64(export.size);
            b.u16(export.flags(self.structured));
            if !self.no_zeroes {
                b.raw(&[0; 124]);
            }
        });
        Step::Enter(index)
    }

    fn info<E: Exports + ?Sized>(
        &self,
        option: u32,
        data: &[u8],
        exports: &E,
        out: &mut Output,
    ) -> Result<usize, Refusal> {
        const SHAPE: Refusal = (rep::ERR_INVALID, "not a name and a list of information requests");
        let mut f = Fields(data);
        let name = f.string().ok_or(SHAPE)?;
        let wanted = usize::from(f.u16().ok_or(SHAPE)?);
        if f.0.len() != wanted * 2 {
            return Err(SHAPE);
        }
        let wants = |kind: u16| f.0.chunks_exact(2).any(|w| w == kind.to_be_bytes());
        let found = exports.find(name).and_then(|index| Some((index, exports.get(index)?)));
        let (index, export) = found.ok_or((rep::ERR_UNKNOWN, "there is no such export"))?;
        if let Some(why) = exports.refusal(index) {
            return Err((rep::ERR_POLICY, why));
        }
        let Export { size, block, .. } = *export;
        reply(out, option, rep::INFO, |b| {
            b.u16(info::EXPORT);
            b.u64(size);
            b.u16(export.flags(self.structured));
        });
        if wants(info::NAME) {
            reply(out, option, rep::INFO, |b| {
                b.u16(info::NAME);
                b.raw(export.name.as_bytes());
            });
        }
        if wants(info::DESCRIPTION) && !export.description.is_empty() {
            reply(out, option, rep::INFO, |b| {
                b.u16(info::DESCRIPTION);
                b.raw(export.description.as_bytes());
            });
        }
        // Clients that do not ask may not understand it, but then cannot hold us to it either.
        if wants(info::BLOCK_SIZE) || block.least > 1 {
            reply(out, option, rep::INFO, |b| {
                b.u16(info::BLOCK_SIZE);
                b.u32(block.least);
                b.u32(block.preferred);
                b.u32(block.most);
            });
        }
        Ok(index)
    }

    fn set_context<E: Exports + ?Sized>(
        &mut self,
        data: &[u8],
        exports: &E,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        // Whatever comes of it, what was selected before no longer is.
        self.allocation = None;
        if !self.structured {
            return Err((rep::ERR_INVALID, "metadata contexts need structured replies"));
        }
        self.allocation = contexts(opt::SET_META_CONTEXT, data, exports, out)?;
        Ok(())
    }
}

fn may_list<E: Exports + ?Sized>(data: &[u8], exports: &E) -> Result<(), Refusal> {
    if !data.is_empty() {
        return Err((rep::ERR_INVALID, "this option has no data"));
    }
    if exports.count() > LIST_MAX {
        return Err((rep::ERR_TOO_BIG, "too many exports to list"));
    }
    Ok(())
}

/// A piece of the answer to LIST, from the export of number `from` on: the number with which the next piece begins. `None` when
/// that was all, and is acknowledged.
pub(crate) fn list<E: Exports + ?Sized>(from: usize, exports: &E, out: &mut Output) -> Option<usize> {
    let mut last = None;
    for (number, export) in exports.list(from).take(LIST_PIECE) {
        reply(out, opt::LIST, rep::SERVER, |b| {
            b.u32(export.name.len() as u32);
            b.raw(export.name.as_bytes());
            b.raw(export.description.as_bytes());
        });
        last = Some(number);
    }
    if last.is_none() {
        reply(out, opt::LIST, rep::ACK, |_| {});
    }
    last.map(|number| number + 1)
}

/// Answers LIST_META_CONTEXT or SET_META_CONTEXT; the export for which base:allocation is meant, if it is.
fn contexts<E: Exports + ?Sized>(
    option: u32,
    data: &[u8],
    exports: &E,
    out: &mut Output,
) -> Result<Option<usize>, Refusal> {
    const SHAPE: Refusal = (rep::ERR_INVALID, "not a name and a list of queries");
    let setting = option == opt::SET_META_CONTEXT;
    let mut f = Fields(data);
    let name = f.string().ok_or(SHAPE)?;
    let queries = f.u32().ok_or(SHAPE)?;
    // Without queries LIST means all, SET means none.
    let mut found = !setting && queries == 0;
    for _ in 0..queries {
        let query = f.string().ok_or(SHAPE)?;
        // "base:" is a wildcard for listing and ignored for setting; other namespaces are ignored.
        found |= query == BASE_ALLOCATION || (!setting && query == "base:");
    }
    if !f.0.is_empty() {
        return Err(SHAPE);
    }
    let index = exports.find(name).ok_or((rep::ERR_UNKNOWN, "there is no such export"))?;
    if found {
        reply(out, option, rep::META_CONTEXT, |b| {
            b.u32(if setting { BASE_ALLOCATION_ID } else { 0 });
            b.raw(BASE_ALLOCATION.as_bytes());
        });
    }
    Ok(found.then_some(index))
}

/// One reply packet: magic, option, type, length, data.
pub(crate) fn reply(out: &mut Output, option: u32, kind: u32, data: impl FnOnce(&mut Vec<u8>)) {
    out.bytes(|b| {
        b.u64(OPTION_REPLY_MAGIC);
        b.u32(option);
        b.u32(kind);
        b.u32(0);
        let start = b.len();
        data(b);
        let len = (b.len() - start) as u32;
        b[start - 4..start].copy_from_slice(&len.to_be_bytes());
    });
}

/// An error reply with its reason.
pub(crate) fn refuse(out: &mut Output, option: u32, kind: u32, why: &str) {
    reply(out, option, kind, |b| b.raw(why.as_bytes()));
}
