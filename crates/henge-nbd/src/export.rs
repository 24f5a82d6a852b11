//! What a server offers, and what it puts up with.

use crate::proto::flag;
use henge_core::{Duration, ParamError, Params};

/// Sizes that a client is told (proto: "Size constraints").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSize {
    /// Every offset and length is a multiple of it. A power of two up to 64 KiB.
    pub least: u32,
    /// Requests of multiples of it are quick. A power of two from 512 on.
    pub preferred: u32,
    /// Longest read or write.
    pub most: u32,
}

impl Default for BlockSize {
    fn default() -> Self {
        BlockSize { least: 1, preferred: 4096, most: 32 << 20 }
    }
}

/// A virtual disk as a client sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// Its name.
    pub name: String,
    /// For people; may be empty.
    pub description: String,
    /// Bytes.
    pub size: u64,
    /// Nobody may write.
    pub read_only: bool,
    /// Seeks cost time.
    pub rotational: bool,
    /// TRIM does something.
    pub trim: bool,
    /// WRITE_ZEROES is done.
    pub zeroes: bool,
    /// WRITE_ZEROES with FAST_ZERO is done where it is fast, refused elsewhere.
    pub fast_zero: bool,
    /// CACHE is understood.
    pub cache: bool,
    /// A FLUSH covers what any connection wrote, so clients may open several.
    pub multi_conn: bool,
    /// Sizes.
    pub block: BlockSize,
}

impl Export {
    /// An export that can do everything.
    pub fn new(name: &str, size: u64) -> Self {
        Export {
            name: name.to_owned(),
            description: String::new(),
            size,
            read_only: false,
            rotational: false,
            trim: true,
            zeroes: true,
            fast_zero: true,
            cache: true,
            multi_conn: true,
            block: BlockSize::default(),
        }
    }

    /// The transmission flags (proto: "Transmission flags").
    pub fn flags(&self, structured: bool) -> u16 {
        let writable = !self.read_only;
        [
            (true, flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA),
            (self.read_only, flag::READ_ONLY),
            (self.rotational, flag::ROTATIONAL),
            (writable && self.trim, flag::SEND_TRIM),
            (writable && self.zeroes, flag::SEND_WRITE_ZEROES),
            (writable && self.zeroes && self.fast_zero, flag::SEND_FAST_ZERO),
            (structured, flag::SEND_DF),
            (self.multi_conn, flag::CAN_MULTI_CONN),
            (self.cache, flag::SEND_CACHE),
        ]
        .into_iter()
        .filter(|(on, _)| *on)
        .fold(0, |all, (_, bits)| all | bits)
    }
}

/// The exports of a server, numbered. An export keeps its number as long as it is there, whatever others come and go.
pub trait Exports {
    /// How many LIST shows at most; it costs the same however many there are.
    fn count(&self) -> usize;
    /// Exports from number `from` on, with their numbers, in the order of LIST.
    fn list(&self, from: usize) -> impl Iterator<Item = (usize, &Export)>;
    /// Export `index`, if there is one.
    fn get(&self, index: usize) -> Option<&Export>;
    /// Why nobody may come to export `index` now, if so.
    fn refusal(&self, _index: usize) -> Option<&'static str> {
        None
    }
    /// Which one a client means; `""` is the default export, if there is one.
    fn find(&self, name: &str) -> Option<usize>;
}

/// In order; a sole export is also the default one.
impl Exports for [Export] {
    fn count(&self) -> usize {
        self.len()
    }
    fn list(&self, from: usize) -> impl Iterator<Item = (usize, &Export)> {
        self.iter().enumerate().skip(from)
    }
    fn get(&self, index: usize) -> Option<&Export> {
        <[Export]>::get(self, index)
    }
    fn find(&self, name: &str) -> Option<usize> {
        let sole = (name.is_empty() && self.len() == 1).then_some(0);
        self.iter().position(|e| e.name == name).or(sole)
    }
}

/// Whether a server encrypts (proto: "TLS support").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tls {
    /// It does not (NOTLS).
    #[default]
    No,
    /// Where the client asks for it (SELECTIVETLS).
    Allow,
    /// Before anything else (FORCEDTLS).
    Require,
}

/// Bounds on what one connection can make a server hold or do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Commands in flight (`commands`).
    pub commands: u32,
    /// Bytes of their buffers (`bytes`). One command more is taken in while there is room for any of it.
    pub bytes: u64,
    /// Header bytes not yet read by the client (`output`).
    pub output: usize,
    /// Longest data of an option (`option`).
    pub option: u32,
    /// Longest data that is read and thrown away, of an option or a write that is refused, before the
    /// connection is closed instead (`skip`).
    pub skip: u32,
    /// Time for the handshake (`handshake`).
    pub handshake: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            commands: 256,
            bytes: 64 << 20,
            output: 64 << 10,
            option: 16 << 10,
            skip: 64 << 20,
            handshake: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// Takes the knobs that are written in `params`; the others keep their defaults.
    pub fn take(params: &mut Params) -> Result<Self, ParamError> {
        let mut limits = Limits::default();
        if let Some(commands) = params.integer("commands", 1, 65_536)? {
            limits.commands = commands as u32;
        }
        limits.bytes = params.size("bytes")?.unwrap_or(limits.bytes);
        for (key, value, least) in [("option", &mut limits.option, 4200), ("skip", &mut limits.skip, 0)] {
            if let Some(bytes) = params.size(key)? {
                *value = u32::try_from(bytes).ok().filter(|b| *b >= least).ok_or_else(|| {
                    params.error(
                        key,
                        format!("{key} is from {least}B (an option holds a name of 4096B) to 4GiB"),
                    )
                })?;
            }
        }
        if let Some(bytes) = params.size("output")? {
            limits.output = usize::try_from(bytes).unwrap_or(usize::MAX).max(4096);
        }
        limits.handshake = params.duration("handshake")?.unwrap_or(limits.handshake);
        Ok(limits)
    }
}
