//! Messages as clients and servers write them; for test doubles and probes. What a proxy forwards are the bytes that came. It writes one
//! message itself: that a request is refused.

use crate::frame::{HEADER_LEN, Header, Mode};
use crate::message::{Direction, IoRequest, Request, RequestBody, Version};
use crate::op::Op;
use crate::wire::Writer;

fn generic(w: &mut Writer, version: Version, op: Op) {
    w.i32(version.number()).i32(2).i32(op.number());
}

fn framed(mode: Mode, tag: i64, payload: Vec<u8>) -> Vec<u8> {
    let header = Header { mode, tag, size: payload.len() as u64 };
    let mut message = header.to_bytes().to_vec();
    message.extend_from_slice(&payload);
    message
}

fn request_head(w: &mut Writer, request: &Request, op: Op) {
    generic(w, request.version, op);
    w.pad(4);
    match request.user {
        Some(user) => {
            w.u32(user.uid).u32(user.gid.unwrap_or(0));
        }
        None => request.capability.write(w),
    }
    request.hints.write(w);
}

fn io_of(request: &Request) -> &IoRequest {
    match &request.body {
        RequestBody::Io(io) => io,
        _ => panic!("the caller builds an I/O request"),
    }
}

fn direction(io: &IoRequest) -> i32 {
    match io.direction {
        Direction::Read => 1,
        Direction::Write => 2,
    }
}

/// A framed IO request.
///
/// # Panics
/// When the request's body is no I/O.
pub fn encode_io(tag: i64, request: &Request) -> Vec<u8> {
    let io = io_of(request);
    let mut w = Writer::new();
    request_head(&mut w, request, Op::Io);
    w.u64(io.handle).i32(io.fs_id).pad(4).i32(direction(io)).i32(3).u32(io.server_nr).u32(io.server_ct);
    io.distribution.write(&mut w);
    io.file_request.write(&mut w);
    w.i64(io.file_req_offset as i64).i64(io.aggregate_size as i64);
    framed(Mode::Unexpected, tag, w.into_bytes())
}

/// A framed SMALL_IO request; `data` is what a write carries.
///
/// # Panics
/// When the request's body is no I/O.
pub fn encode_small_io(tag: i64, request: &Request, data: &[u8]) -> Vec<u8> {
    let io = io_of(request);
    let mut w = Writer::new();
    request_head(&mut w, request, Op::SmallIo);
    w.u64(io.handle).i32(io.fs_id).i32(direction(io)).u32(io.server_nr).u32(io.server_ct);
    io.distribution.write(&mut w);
    io.file_request.write(&mut w);
    w.i64(io.file_req_offset as i64).i64(io.aggregate_size as i64).i64(data.len() as i64).pad(4).bytes(data);
    framed(Mode::Unexpected, tag, w.into_bytes())
}

/// A framed response to a request of which this is the message, header included: it failed with a PVFS error, which is negative. A client takes no answer
/// of an older protocol than its own, so it has that of the request. `None` where the message is too short for one.
pub fn encode_failure(request: &[u8], error: i32) -> Option<Vec<u8>> {
    let header = Header::parse(request.first_chunk()?)?;
    let generic = request.get(HEADER_LEN..HEADER_LEN + 12)?;
    let mut w = Writer::new();
    w.bytes(generic).i32(error);
    Some(framed(Mode::Eager, header.tag, w.into_bytes()))
}

/// A framed IO response; an error has a negative status.
pub fn encode_io_response(tag: i64, version: Version, result: Result<u64, i32>) -> Vec<u8> {
    let mut w = Writer::new();
    generic(&mut w, version, Op::Io);
    match result {
        Ok(bstream_size) => w.i32(0).i64(bstream_size as i64),
        Err(status) => w.i32(status),
    };
    framed(Mode::Eager, tag, w.into_bytes())
}

/// A framed WRITE_COMPLETION.
pub fn encode_write_completion(tag: i64, version: Version, result: Result<u64, i32>) -> Vec<u8> {
    let mut w = Writer::new();
    generic(&mut w, version, Op::WriteCompletion);
    match result {
        Ok(total) => w.i32(0).i64(total as i64),
        Err(status) => w.i32(status),
    };
    framed(Mode::Eager, tag, w.into_bytes())
}

/// A framed SMALL_IO response; `data` is what a read returns, `written` what a write moved.
pub fn encode_small_io_response(
    tag: i64,
    version: Version,
    io: &IoRequest,
    bstream_size: u64,
    data: &[u8],
    written: u64,
) -> Vec<u8> {
    let mut w = Writer::new();
    generic(&mut w, version, Op::SmallIo);
    let moved = if io.direction == Direction::Read { data.len() as u64 } else { written };
    w.i32(0).i32(direction(io)).pad(4).i64(bstream_size as i64).i64(moved as i64).bytes(data);
    framed(Mode::Eager, tag, w.into_bytes())
}

/// A framed GETCONFIG request.
pub fn encode_get_config(tag: i64) -> Vec<u8> {
    let mut w = Writer::new();
    generic(&mut w, Version::V7000, Op::GetConfig);
    w.pad(4);
    crate::Capability::default().write(&mut w);
    crate::Hints::default().write(&mut w);
    framed(Mode::Unexpected, tag, w.into_bytes())
}

/// A framed GETCONFIG response.
pub fn encode_config(tag: i64, text: &str) -> Vec<u8> {
    let mut w = Writer::new();
    generic(&mut w, Version::V7000, Op::GetConfig);
    w.i32(0).u32(text.len() as u32 + 1).pad(4).string(text.as_bytes());
    framed(Mode::Eager, tag, w.into_bytes())
}
