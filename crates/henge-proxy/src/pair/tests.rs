use super::*;
use henge_pvfs2::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

/// A pair with the client's and the server's ends of its connections.
fn pair() -> (Pair, TcpStream, TcpStream) {
    let connected = || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let theirs = TcpStream::connect(listener.local_addr().expect("its address")).expect("connected");
        let (ours, _) = listener.accept().expect("it came");
        ours.set_nonblocking(true).expect("a socket");
        theirs.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        (ours, theirs)
    };
    let ((ours, client), (twin, server)) = (connected(), connected());
    (Pair::new(ours, twin, None), client, server)
}

pub(crate) fn io(tag: i64, direction: Direction, len: u64) -> Vec<u8> {
    hinted(tag, direction, len, Hints::default())
}

/// Every other byte.
pub(crate) fn strided(tag: i64, len: u64) -> Vec<u8> {
    let pieces = FileRequest::vector(len as i32, 1, 2);
    request(tag, Direction::Read, len, (Hints::default(), Capability::default()), pieces)
}

pub(crate) fn hinted(tag: i64, direction: Direction, len: u64, hints: Hints) -> Vec<u8> {
    request(tag, direction, len, (hints, Capability::default()), FileRequest::contiguous())
}

/// A read by whoever was given this.
pub(crate) fn allowed(tag: i64, len: u64, by: &Capability) -> Vec<u8> {
    request(tag, Direction::Read, len, (Hints::default(), by.clone()), FileRequest::contiguous())
}

fn request(
    tag: i64,
    direction: Direction,
    len: u64,
    (hints, capability): (Hints, Capability),
    file_request: FileRequest,
) -> Vec<u8> {
    let io = IoRequest {
        small: false,
        direction,
        handle: 1,
        fs_id: 9,
        server_nr: 0,
        server_ct: 1,
        distribution: Distribution::SimpleStripe { strip_size: 65_536 },
        file_request,
        file_req_offset: 0,
        aggregate_size: len,
        total_bytes: 0,
    };
    let request = Request {
        version: Version::V7000,
        op: Op::Io,
        capability,
        user: None,
        hints,
        body: RequestBody::Io(Box::new(io)),
    };
    encode_io(tag, &request)
}

fn message(tag: i64, len: usize) -> Vec<u8> {
    let mut bytes = Header::expected(tag, len as u64).to_bytes().to_vec();
    bytes.extend((0..len).map(|i| (i * 7 + tag as usize) as u8));
    bytes
}

/// What is sent there is there when this returns.
fn send(from: &mut TcpStream, to: &Side, bytes: &[u8]) {
    let there = || rustix::io::ioctl_fionread(&to.socket).expect("Linux says");
    let all = there() + bytes.len() as u64;
    from.write_all(bytes).expect("sent");
    while there() < all {
        std::thread::yield_now();
    }
}

fn receive(socket: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    socket.read_exact(&mut bytes).expect("it comes");
    bytes
}

/// A request goes through: held, released, and the server has it.
fn release(pair: &mut Pair, client: &mut TcpStream, server: &mut TcpStream, c: &mut Conduit, request: &[u8]) {
    send(client, &pair.client, request);
    let held = pair.move_from_client(c).expect("moved").expect("held");
    pair.release(held.tag, held.message).expect("released");
    assert_eq!(receive(server, request.len()), request);
}

#[test]
fn a_request_released_within_a_message_goes_when_that_has_passed_through_the_pipe() {
    let (mut pair, mut client, mut server) = pair();
    let (mut c, mut news) = (Conduit::new().expect("a pipe"), Vec::new());
    const LEN: usize = 64 << 10;
    release(&mut pair, &mut client, &mut server, &mut c, &io(1, Direction::Write, LEN as u64));
    send(&mut server, &pair.server, &encode_io_response(1, Version::V7000, Ok(0)));
    pair.move_from_server(&mut c, &mut news).expect("moved");
    let second = io(2, Direction::Write, 1 << 20);
    send(&mut client, &pair.client, &second);
    let held = pair.move_from_client(&mut c).expect("moved").expect("held");
    let data = message(1, LEN);
    send(&mut client, &pair.client, &data[..LEN / 2]);
    pair.move_from_client(&mut c).expect("moved");
    pair.release(held.tag, held.message).expect("released");
    send(&mut client, &pair.client, &data[LEN / 2..]);
    pair.move_from_client(&mut c).expect("moved");
    assert_eq!(receive(&mut server, data.len()), data);
    assert_eq!(receive(&mut server, second.len()), second);
}

#[test]
fn data_of_several_messages_passes_the_pipe_with_its_headers() {
    let (mut pair, mut client, mut server) = pair();
    let (mut c, mut news) = (Conduit::new().expect("a pipe"), Vec::new());
    const LEN: usize = 40 << 10;
    release(&mut pair, &mut client, &mut server, &mut c, &io(1, Direction::Read, 2 * LEN as u64));
    release(&mut pair, &mut client, &mut server, &mut c, &io(2, Direction::Read, 5000));
    // The second read's data is too short for the pipe, and stands between the first's.
    let mut bytes = encode_io_response(1, Version::V7000, Ok(1 << 30));
    bytes.extend(encode_io_response(2, Version::V7000, Ok(1 << 30)));
    for piece in [message(1, LEN), message(2, 5000), message(1, LEN)] {
        bytes.extend(piece);
    }
    for piece in bytes.chunks(LEN + 100) {
        send(&mut server, &pair.server, piece);
        pair.move_from_server(&mut c, &mut news).expect("moved");
    }
    pair.move_from_server(&mut c, &mut news).expect("moved");
    assert_eq!(receive(&mut client, bytes.len()), bytes);
    let over: Vec<_> = news.iter().filter(|n| matches!(n, News::Over { .. })).cloned().collect();
    let all = |tag, bytes| News::Over { tag, result: Ok(bytes), moved: bytes };
    assert_eq!(over, [all(2, 5000), all(1, 2 * LEN as u64)]);
}
