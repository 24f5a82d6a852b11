//! Requests and responses.
//!
//! Source: `src/proto/pvfs2-req-proto.h`, `src/proto/PINT-reqproto-encode.c`. Payload offsets of the I/O body are those of
//! `struct PVFS_servreq_io` and `struct PVFS_servreq_small_io`.

use crate::capability::{Capability, Credential, Hints};
use crate::distribution::Distribution;
use crate::file_request::{FileRequest, STEPS_MAX, STEPS_QUICK};
use crate::op::{Op, UNSTUFF};
use crate::sound;
use crate::wire::{Malformed, Reader};
use henge_core::Duration;

/// Wire protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// PVFS2 2.8: user and group id in every request.
    V6000,
    /// OrangeFS 2.9 and later: a capability in every request.
    V7000,
}

impl Version {
    /// The generic header's first word.
    pub const fn number(self) -> i32 {
        match self {
            Version::V6000 => 6000,
            Version::V7000 => 7000,
        }
    }
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        // Releases differ in the last three digits only (7000 + minor), and agree on what is read here.
        let version = match r.i32("protocol version")? {
            6000..=6999 => Version::V6000,
            7000..=7999 => Version::V7000,
            _ => return Err(Malformed { what: "protocol version", at: 0 }),
        };
        match r.i32("encoding")? {
            2 => Ok(version),
            _ => Err(Malformed { what: "encoding", at: 4 }),
        }
    }
}

/// Where an access may end, in the file and in its data: servers add to either, in 64 bits.
const END_MAX: u64 = 1 << 62;
/// Bytes of an access. Meters add them up in 64 bits.
const LENGTH_MAX: u64 = 1 << 48;
/// Pieces that a server may pass over before an access: it does nothing else meanwhile, for a second or more.
const TURNS_MAX: u64 = 1 << 26;
/// Times that a server goes round for a strip in the time of a piece: some 50 ns each, beside 52 µs.
const ROUNDS_OF_A_PIECE: u64 = 1024;
/// Bytes beside whose own time a round is nothing.
const BYTES_OF_A_ROUND: u64 = 4096;
/// Pieces that are passed over in the time of one such: 12 to 20 ns each.
const TURNS_OF_A_ROUND: u64 = 2;
/// Bytes that a request or an answer has room for.
const SMALL_MAX: u64 = 16 << 10;

/// Which way the data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the server.
    Read,
    /// To the server.
    Write,
}

/// A read or write of a file's part on this server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IoRequest {
    /// Whether the data is inside the request or its response.
    pub small: bool,
    /// Which way.
    pub direction: Direction,
    /// The data file on this server.
    pub handle: u64,
    /// The file system.
    pub fs_id: i32,
    /// Which server of the file this is.
    pub server_nr: u32,
    /// How many servers hold the file.
    pub server_ct: u32,
    /// How the file is spread.
    pub distribution: Distribution,
    /// Which bytes.
    pub file_request: FileRequest,
    /// First data byte of the file request.
    pub file_req_offset: u64,
    /// Bytes over *all* servers.
    pub aggregate_size: u64,
    /// Small writes: bytes inside, for this server.
    pub total_bytes: u64,
}

/// Requests of servers alone: BATCH_REMOVE, MIRROR, IMM_COPIES, MGMT_CREATE_ROOT_DIR, MGMT_SPLIT_DIRENT. And DSPACE_INFO_LIST, by which servers of 2.9
/// and 2.10 end.
const OF_SERVERS: [Op; 6] =
    [Op::Other(36), Op::Other(39), Op::Other(40), Op::Other(46), Op::Other(47), Op::Other(22)];
/// Clients make one object by it, for a symbolic link; servers make thousands.
const BATCH_CREATE: Op = Op::Other(35);
/// Requests for lists of objects: LISTATTR, TREE_REMOVE, TREE_GET_FILE_SIZE, TREE_SETATTR, TREE_GETATTR.
const LISTS: [Op; 5] = [Op::Other(34), Op::Other(41), Op::Other(42), Op::Other(44), Op::Other(49)];
/// Bytes of an object's handle.
const HANDLE: usize = 8;
/// Parameters of SETPARAM that change nothing: `pvfs2-ping` asks whether a file system and its root are there.
const CHECKS: [i32; 2] = [2, 3];

const ONE: RequestBody = RequestBody::Other { objects: 0 };

/// What an access asks of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Bytes that move at this server.
    pub bytes: u64,
    /// Contiguous pieces of the file; each server goes through all of them.
    pub pieces: u64,
}

impl IoRequest {
    /// How many bytes move at this server; for a read, `size` is the data file's present size there (from the
    /// response), for a write `u64::MAX`. `None` if the request is too intricate.
    pub fn bytes_here(&self, size: u64) -> Option<u64> {
        self.follow(size, STEPS_MAX).map(|load| load.bytes)
    }

    /// What to charge before the answer is known: the exact bytes of a write, and what a read would
    /// move if the file were long enough; where that cannot be known, an equal part of the whole.
    pub fn estimate(&self) -> Load {
        let load = self.follow(u64::MAX, STEPS_QUICK).unwrap_or_else(|| Load {
            bytes: self.aggregate_size.div_ceil(u64::from(self.server_ct)),
            pieces: self.file_request.pieces_most(self.aggregate_size),
        });
        Load { pieces: load.pieces.saturating_add(self.rounds(load.bytes) / ROUNDS_OF_A_PIECE), ..load }
    }

    /// How often its server goes round beside the pieces and the bytes themselves: for each strip of a few bytes, and for the pieces before those wanted.
    fn rounds(&self, bytes: u64) -> u64 {
        let turns = self.file_request.turns(self.file_req_offset);
        let strips = self.distribution.rounds(self.server_nr, bytes).saturating_sub(bytes / BYTES_OF_A_ROUND);
        strips.saturating_add(turns / TURNS_OF_A_ROUND)
    }

    /// The access piece by piece, in at most `most` steps.
    fn follow(&self, size: u64, most: u32) -> Option<Load> {
        let local = |o| self.distribution.local(self.server_nr, self.server_ct, o);
        let (mut load, mut steps) = (Load::default(), 0);
        self.file_request.pieces(self.file_req_offset, self.aggregate_size, most, |offset, len| {
            steps += self.distribution.steps();
            load.pieces += 1;
            if steps <= most {
                let (from, to) = (local(offset), local(offset.saturating_add(len)));
                load.bytes = load.bytes.saturating_add(to.min(size).saturating_sub(from.min(size)));
            }
        })?;
        (steps <= most).then_some(load)
    }

    fn read(r: &mut Reader<'_>, small: bool) -> Result<Self, Malformed> {
        let handle = r.u64("I/O handle")?;
        let fs_id = r.i32("I/O fs_id")?;
        if !small {
            r.pad(4)?;
        }
        let direction = match r.i32("io_type")? {
            1 => Direction::Read,
            2 => Direction::Write,
            _ => return Err(r.malformed("io_type")),
        };
        if !small {
            r.i32("flow_type")?;
        }
        let server_nr = r.u32("server_nr")?;
        let server_ct = r.u32("server_ct")?;
        // Servers look at neither: whoever has one server only may call it the fifth.
        if server_ct == 0 {
            return Err(r.malformed("server_ct"));
        }
        let distribution = Distribution::read(r)?;
        let file_request = FileRequest::read(r)?;
        let file_req_offset = non_negative(r, "file_req_offset")?;
        let aggregate_size = non_negative(r, "aggregate_size")?;
        let total_bytes = if small { non_negative(r, "total_bytes")? } else { 0 };
        if small {
            r.pad(4)?;
        }
        if small && direction == Direction::Write {
            r.take(usize::try_from(total_bytes).unwrap_or(usize::MAX), "small write data")?;
        }
        let io = IoRequest {
            small,
            direction,
            handle,
            fs_id,
            server_nr,
            server_ct,
            distribution,
            file_request,
            file_req_offset,
            aggregate_size,
            total_bytes,
        };
        io.check().map_err(|what| r.malformed(what))?;
        Ok(io)
    }

    /// Whether a server can compute with it, and ends.
    fn check(&self) -> Result<(), &'static str> {
        let end = self.file_req_offset.saturating_add(self.aggregate_size);
        let reach = self
            .file_request
            .reach(end)
            .filter(|reach| *reach.max(&end) <= END_MAX)
            .ok_or("the end of an access")?;
        self.distribution.check(self.server_nr, self.server_ct, reach)?;
        if self.file_request.turns(self.file_req_offset) > TURNS_MAX {
            return Err("an access far into a list");
        }
        // Servers answer some of these, and end: they free what each of them did not have.
        if self.small && self.aggregate_size == 0 {
            return Err("a small access to nothing");
        }
        if self.small && self.most_here() > SMALL_MAX {
            return Err("a small access to so much");
        }
        if self.aggregate_size > LENGTH_MAX {
            return Err("an access of such a length");
        }
        Ok(())
    }

    /// Bytes that may move at this server, where it takes itself for the one that is named: no estimate, and all where it is none of those that there are.
    fn most_here(&self) -> u64 {
        let followed = self.follow(u64::MAX, STEPS_QUICK).filter(|_| self.server_nr < self.server_ct);
        followed.map_or(self.aggregate_size, |load| load.bytes)
    }
}

fn non_negative(r: &mut Reader<'_>, what: &'static str) -> Result<u64, Malformed> {
    let value = r.i64(what)?;
    u64::try_from(value).map_err(|_| r.malformed(what))
}

/// What follows the generic part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestBody {
    /// A read or write.
    Io(Box<IoRequest>),
    /// A read or write that could not be decoded, or that no server can go through: what it moves is not known.
    UnreadIo(Malformed),
    /// Attributes of an object, asked for by a user (GETATTR, UNSTUFF): the one place where a data path meets user ids.
    GetAttr {
        /// The object.
        handle: u64,
        /// Who asks.
        credential: Credential,
    },
    /// It changes how the server works, for everybody.
    Administers,
    /// What servers ask of each other.
    OfServers,
    /// Not looked into further.
    Other {
        /// Objects that it may name, where it has a list of them.
        objects: u32,
    },
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Wire protocol.
    pub version: Version,
    /// What it asks for.
    pub op: Op,
    /// What it may touch (7000).
    pub capability: Capability,
    /// User and group (6000).
    pub user: Option<Credential>,
    /// What the client tells on the side.
    pub hints: Hints,
    /// The rest.
    pub body: RequestBody,
}

impl Request {
    /// Reads the payload of an unexpected message. Some are requests however little of them can be decoded.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(payload);
        let version = Version::read(&mut r)?;
        let op = Op::from_number(r.i32("operation")?);
        let why = match Request::read(&mut r, version, op) {
            Ok(request) => return Ok(request),
            Err(why) => why,
        };
        let body = match op {
            Op::Io | Op::SmallIo => RequestBody::UnreadIo(why),
            Op::SetParam => RequestBody::Administers,
            BATCH_CREATE => RequestBody::OfServers,
            op if OF_SERVERS.contains(&op) => RequestBody::OfServers,
            _ => return Err(why),
        };
        Ok(Request { body, ..Request::unread(version, op) })
    }

    /// One of which nothing more could be read than this.
    pub(crate) fn unread(version: Version, op: Op) -> Self {
        let (capability, hints) = (Capability::default(), Hints::default());
        Request { version, op, capability, user: None, hints, body: ONE }
    }

    fn read(r: &mut Reader<'_>, version: Version, op: Op) -> Result<Self, Malformed> {
        r.pad(4)?;
        let (capability, user) = match version {
            Version::V7000 => (Capability::read(r)?, None),
            Version::V6000 => {
                let (uid, gid) = (r.u32("uid")?, r.u32("gid")?);
                (Capability::default(), Some(Credential { uid, gid: Some(gid) }))
            }
        };
        let hints = Hints::read(r)?;
        let body = match op {
            Op::Io | Op::SmallIo => {
                let io = Box::new(IoRequest::read(r, op == Op::SmallIo)?);
                sound::end(r)?;
                RequestBody::Io(io)
            }
            Op::GetAttr | UNSTUFF if version == Version::V7000 => {
                let handle = r.u64("GETATTR handle")?;
                r.pad(8)?; // fs_id, mask
                RequestBody::GetAttr { handle, credential: Credential::read(r)? }
            }
            Op::SetParam => {
                r.pad(4)?; // fs_id
                let checks = CHECKS.contains(&r.i32("SETPARAM parameter")?);
                if checks { ONE } else { RequestBody::Administers }
            }
            BATCH_CREATE => {
                r.pad(8)?; // fs_id, kind
                let one = r.u32("BATCH_CREATE objects")? == 1;
                if one { ONE } else { RequestBody::OfServers }
            }
            op if LISTS.contains(&op) => RequestBody::Other { objects: (r.rest().len() / HANDLE) as u32 },
            op if OF_SERVERS.contains(&op) => RequestBody::OfServers,
            _ => ONE,
        };
        Ok(Request { version, op, capability, user, hints, body })
    }

    /// Whether it is no I/O: it asks about objects, or changes them.
    pub fn is_metadata(&self) -> bool {
        !matches!(self.body, RequestBody::Io(_) | RequestBody::UnreadIo(_))
    }

    /// Whether a server may await its disk before it answers: it is no I/O, and changes something or makes it durable.
    pub fn may_sync(&self) -> bool {
        self.op.may_sync()
    }

    /// What it asks of a server beside I/O, in requests: as much as one more for each 32 objects.
    pub fn weight(&self) -> u64 {
        match self.body {
            RequestBody::Other { objects } => 1 + u64::from(objects) / 32,
            _ => 1,
        }
    }

    /// Whether another server sent it, or whoever says so; such requests are never held.
    pub fn is_between_servers(&self) -> bool {
        self.hints.server_id.is_some()
    }
}

/// A response, as far as a proxy looks into it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Response {
    /// The request failed; nothing follows.
    Failed {
        /// Of the request.
        op: Op,
        /// A negative PVFS error.
        status: i32,
    },
    /// I/O may begin.
    Io {
        /// Size of the data file before the operation.
        bstream_size: u64,
    },
    /// A write is over.
    WriteCompletion {
        /// Bytes that moved.
        total_completed: u64,
    },
    /// A small read or write is over.
    SmallIo {
        /// Which way.
        direction: Direction,
        /// Size of the data file before the operation.
        bstream_size: u64,
        /// Bytes that moved.
        result_size: u64,
    },
    /// Not looked into.
    Other {
        /// Of the request.
        op: Op,
    },
}

impl Response {
    /// How many bytes of a response's payload [`Response::parse`] looks at.
    pub const HEAD_MAX: usize = 40;

    /// Reads the first [`HEAD_MAX`](Self::HEAD_MAX) bytes of a response's payload.
    pub fn parse(head: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(head);
        Version::read(&mut r)?;
        let op = Op::from_number(r.i32("operation")?);
        let status = r.i32("status")?;
        if status != 0 {
            return Ok(Response::Failed { op, status });
        }
        Ok(match op {
            Op::Io => Response::Io { bstream_size: non_negative(&mut r, "bstream_size")? },
            Op::WriteCompletion => {
                Response::WriteCompletion { total_completed: non_negative(&mut r, "total_completed")? }
            }
            Op::SmallIo => {
                let direction = match r.i32("io_type")? {
                    1 => Direction::Read,
                    2 => Direction::Write,
                    _ => return Err(r.malformed("io_type")),
                };
                r.pad(4)?;
                let bstream_size = non_negative(&mut r, "bstream_size")?;
                Response::SmallIo {
                    direction,
                    bstream_size,
                    result_size: non_negative(&mut r, "result_size")?,
                }
            }
            op => Response::Other { op },
        })
    }
}

/// The time limits of clients and servers, as the server's configuration file states them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerLimits {
    /// Request sent to response received; the client gives up after it (`ClientJobBMITimeoutSecs`).
    pub client_message: Duration,
    /// Longest pause of a client's bulk data (`ClientJobFlowTimeoutSecs`).
    pub client_flow: Duration,
    /// Longest pause of a server's bulk data (`ServerJobFlowTimeoutSecs`).
    pub server_flow: Duration,
    /// Bytes of a bulk-data message (`FlowBufferSizeBytes`).
    pub flow_buffer: u64,
}

impl Default for ServerLimits {
    /// As compiled into clients and servers.
    fn default() -> Self {
        let five_minutes = Duration::from_secs(300);
        ServerLimits {
            client_message: five_minutes,
            client_flow: five_minutes,
            server_flow: five_minutes,
            flow_buffer: 262_144,
        }
    }
}

impl ServerLimits {
    /// From the text of the configuration file; what it does not state keeps its default. Later lines win, as at the
    /// server itself.
    pub fn from_config(text: &str) -> Self {
        let mut limits = ServerLimits::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(key), Some(value)) = (words.next(), words.next()) else { continue };
            let Ok(value) = value.parse::<u64>() else { continue };
            match key {
                "ClientJobBMITimeoutSecs" => limits.client_message = Duration::from_secs(value),
                "ClientJobFlowTimeoutSecs" => limits.client_flow = Duration::from_secs(value),
                "ServerJobFlowTimeoutSecs" => limits.server_flow = Duration::from_secs(value),
                "FlowBufferSizeBytes" => limits.flow_buffer = value,
                _ => {}
            }
        }
        limits
    }

    /// From the whole payload of a GETCONFIG response; `None` when it is none, or refused.
    pub fn from_response(payload: &[u8]) -> Option<Self> {
        read_config(payload).map(|text| Self::from_config(&text))
    }
}

/// The configuration file in the payload of a GETCONFIG response; `None` when it is none, or refused.
pub fn read_config(payload: &[u8]) -> Option<String> {
    let Ok(Response::Other { op: Op::GetConfig }) = Response::parse(payload) else { return None };
    let mut r = Reader::new(payload);
    r.pad(24).ok()?; // generic header, op, status, size with its NUL, padding
    let text = r.string("configuration").ok()?;
    Some(String::from_utf8_lossy(text).into_owned())
}
