//! Who asks: capabilities, credentials and hints.

use crate::wire::{Malformed, Reader, Writer};

/// Most handles a capability may list before we take it for garbage (a file has one per server).
const HANDLES_MAX: u32 = 1 << 16;

/// What a request may touch (`PVFS_capability`, `include/pvfs2-types.h`). It holds no user: two users
/// who open the same file within the same second carry identical ones.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Capability {
    /// `S:` and the alias of the metadata server that issued it.
    pub issuer: Vec<u8>,
    /// The file system.
    pub fs_id: i32,
    /// Signature, on sites with keys.
    pub signature: Vec<u8>,
    /// When it expires, seconds since 1970.
    pub timeout: i64,
    /// What it allows.
    pub op_mask: u32,
    /// The metafile, then its data files in the order of the distribution.
    pub handles: Vec<u64>,
}

impl Capability {
    /// Reads one, the alignment behind it included.
    pub fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let issuer = r.string("capability issuer")?.to_vec();
        let fs_id = r.i32("capability fs_id")?;
        r.pad(4)?;
        let sig_at = r.clone();
        let sig_size = r.u32("capability signature size")? as usize;
        if sig_size > r.rest().len() {
            return Err(sig_at.malformed("capability signature size"));
        }
        let signature = r.take(sig_size, "capability signature")?.to_vec();
        r.align8()?;
        let timeout = r.i64("capability timeout")?;
        let op_mask = r.u32("capability op_mask")?;
        let count = r.u32("capability handles")?;
        if count > HANDLES_MAX || count as usize * 8 > r.rest().len() {
            return Err(r.malformed("capability handles"));
        }
        let handles = (0..count).map(|_| r.u64("capability handle")).collect::<Result<_, _>>()?;
        r.align8()?;
        Ok(Capability { issuer, fs_id, signature, timeout, op_mask, handles })
    }

    /// The reverse.
    pub fn write(&self, w: &mut Writer) {
        w.string(&self.issuer)
            .i32(self.fs_id)
            .pad(4)
            .u32(self.signature.len() as u32)
            .bytes(&self.signature)
            .align8();
        w.i64(self.timeout).u32(self.op_mask).u32(self.handles.len() as u32);
        for handle in &self.handles {
            w.u64(*handle);
        }
        w.align8();
    }

    /// Whether it names nobody (requests that need none carry such a one).
    pub fn is_null(&self) -> bool {
        self.issuer.is_empty() && self.handles.is_empty()
    }
}

/// The user behind a request, where the request has one (`PVFS_credential`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credential {
    /// User id.
    pub uid: u32,
    /// Primary group id, where there is one.
    pub gid: Option<u32>,
}

impl Credential {
    /// Reads the part that matters.
    pub fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        r.pad(8)?;
        let uid = r.u32("credential uid")?;
        let groups = r.u32("credential groups")?;
        let gid = if groups > 0 { Some(r.u32("credential gid")?) } else { None };
        Ok(Credential { uid, gid })
    }
}

/// What clients tell on the side (`src/common/misc/pint-hint.c`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hints {
    /// The metafile, that is, the logical file.
    pub handle: Option<u64>,
    /// The rank of an MPI process.
    pub rank: Option<u32>,
    /// Set by servers: a request between servers, never to be held.
    pub server_id: Option<u32>,
}

impl Hints {
    /// Reads them all; the position behind them may be 4 modulo 8.
    pub fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut hints = Hints::default();
        let count = r.u32("hint count")?;
        for _ in 0..count {
            match r.u32("hint type")? {
                3 => hints.handle = Some(r.u64("hint handle")?),
                5 => hints.rank = Some(r.u32("hint rank")?),
                6 => hints.server_id = Some(r.u32("hint server_id")?),
                // Clients send some of these alone, but servers read them all.
                1 | 2 | 4 | 7..=14 => r.pad(4)?,
                _ => {
                    r.string("hint name")?;
                    r.string("hint value")?;
                }
            }
        }
        Ok(hints)
    }

    /// The reverse, of what we know.
    pub fn write(&self, w: &mut Writer) {
        let count = u32::from(self.handle.is_some())
            + u32::from(self.rank.is_some())
            + u32::from(self.server_id.is_some());
        w.u32(count);
        if let Some(handle) = self.handle {
            w.u32(3).u64(handle);
        }
        if let Some(rank) = self.rank {
            w.u32(5).u32(rank);
        }
        if let Some(server) = self.server_id {
            w.u32(6).u32(server);
        }
    }
}
