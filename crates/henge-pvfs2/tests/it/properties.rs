//! What must hold for any request and any bytes.

use henge_pvfs2::*;
use proptest::prelude::*;

fn request(io: IoRequest) -> Request {
    let capability =
        Capability { issuer: b"S:s0".to_vec(), fs_id: 7, handles: vec![1, 2, 3], ..Capability::default() };
    let hints = Hints { handle: Some(99), ..Hints::default() };
    let op = if io.small { Op::SmallIo } else { Op::Io };
    Request {
        version: Version::V7000,
        op,
        capability,
        user: None,
        hints,
        body: RequestBody::Io(Box::new(io)),
    }
}

fn io(
    file_request: FileRequest,
    stripe: (u64, u32, u32),
    offset: u64,
    len: u64,
    direction: Direction,
) -> IoRequest {
    IoRequest {
        small: false,
        direction,
        handle: 5,
        fs_id: 7,
        server_nr: stripe.1,
        server_ct: stripe.2,
        distribution: Distribution::SimpleStripe { strip_size: stripe.0 },
        file_request,
        file_req_offset: offset,
        aggregate_size: len,
        total_bytes: 0,
    }
}

fn stripes() -> impl Strategy<Value = (u64, u32, u32)> {
    (1u64..40, 1u32..6).prop_flat_map(|(strip, ct)| (Just(strip), 0..ct, Just(ct)))
}

proptest! {
    /// Byte by byte: strip k belongs to server k mod ct, at (k div ct)·strip + o mod strip.
    #[test]
    fn a_servers_share_is_what_counting_bytes_gives(
        stripe in stripes(), offset in 0u64..500, len in 0u64..500, size in 0u64..300, blocks in 1i32..6, block in 1i32..30, gap in 0i64..50,
        strided: bool,
    ) {
        let (strip, nr, ct) = stripe;
        let tree = if strided { FileRequest::vector(blocks, block, i64::from(block) + gap) } else { FileRequest::contiguous() };
        let place = |data: u64| {
            if !strided {
                return data;
            }
            let whole = (blocks * block) as u64;
            let extent = (i64::from(blocks - 1) * (i64::from(block) + gap) + i64::from(block)) as u64;
            let (tile, rest) = (data / whole, data % whole);
            tile * extent + rest / block as u64 * (block as u64 + gap as u64) + rest % block as u64
        };
        let mut expected = 0;
        for data in offset..offset + len {
            let o = place(data);
            let k = o / strip;
            let local = k / u64::from(ct) * strip + o % strip;
            expected += u64::from(k % u64::from(ct) == u64::from(nr) && local < size);
        }
        let request = io(tree, stripe, offset, len, Direction::Read);
        prop_assert_eq!(request.bytes_here(size), Some(expected));
    }

    /// The parts of all servers add up to the whole.
    #[test]
    fn nothing_is_charged_twice_or_lost(strip in 1u64..1 << 40, ct in 1u32..2000, offset in 0u64..1 << 60, len in 0u64..1 << 50) {
        let sum: u64 = (0..ct).map(|nr| {
            io(FileRequest::contiguous(), (strip, nr, ct), offset, len, Direction::Write).estimate().bytes
        }).sum();
        prop_assert_eq!(sum, len);
    }

    #[test]
    fn what_is_written_is_read_back(
        stripe in stripes(), offset in 0u64..1 << 26, len in 0u64..1 << 48, write: bool, small: bool, user in proptest::option::of(any::<u32>()),
        data in proptest::collection::vec(any::<u8>(), 0..200), tag: i32,
    ) {
        let direction = if write { Direction::Write } else { Direction::Read };
        let len = if small { len % (16 << 10) } else { len }.max(1); // an answer has room for no more
        let mut body = io(FileRequest::vector(3, 4, 9), stripe, offset, len, direction);
        body.small = small;
        let data = if write { data } else { Vec::new() };
        body.total_bytes = if small { data.len() as u64 } else { 0 };
        let mut wanted = request(body);
        if let Some(uid) = user {
            wanted.version = Version::V6000;
            wanted.user = Some(Credential { uid, gid: Some(4) });
            wanted.capability = Capability::default();
        }
        let tag = i64::from(tag);
        let message = if small { encode_small_io(tag, &wanted, &data) } else { encode_io(tag, &wanted) };
        let mut connection = Connection::new();
        let step = connection.from_client(&message);
        prop_assert_eq!(step.len, message.len());
        match step.what {
            ConnectionEvent::Hold { tag: held, request } => {
                prop_assert_eq!(held, tag);
                prop_assert_eq!(*request, wanted);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    /// Whatever comes, every byte goes on, nothing panics, and no progress is refused for ever.
    #[test]
    fn garbage_passes_unharmed(mut pieces in proptest::collection::vec(piece(), 0..20), towards_server: bool) {
        pieces.push(vec![0; 200_000]); // what stays incomplete is flushed by more
        let mut connection = Connection::new();
        let (mut unread, mut passed, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            unread.extend_from_slice(&piece);
            all.extend_from_slice(&piece);
            while !unread.is_empty() {
                let (len, needs) = if towards_server {
                    let step = connection.from_client(&unread);
                    let needs = if let ConnectionEvent::NeedMore(n) = step.what { Some(n) } else { None };
                    match step.what {
                        ConnectionEvent::Hold { tag, .. } => connection.release(tag),
                        ConnectionEvent::Refuse => return Ok(()),
                        _ => {}
                    }
                    (step.len, needs)
                } else {
                    let (step, _) = connection.from_server(&unread);
                    (step.len, if let ConnectionEvent::NeedMore(n) = step.what { Some(n) } else { None })
                };
                if let Some(n) = needs {
                    prop_assert!(n > unread.len() && n <= 200_000 && len == 0);
                    break;
                }
                prop_assert!(len > 0);
                passed.extend(unread.drain(..len));
            }
        }
        prop_assert!(unread.len() < 24 + (128 << 10));
        passed.extend_from_slice(&unread);
        prop_assert_eq!(passed, all);
    }
}

/// Random bytes, valid headers before random bytes, and damaged requests.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..300);
    let framed = (bytes.clone(), any::<i8>(), 0usize..3).prop_map(|(payload, tag, mode)| {
        let mode = [Mode::Unexpected, Mode::Eager, Mode::Rendezvous][mode];
        let mut message =
            Header { mode, tag: i64::from(tag), size: payload.len() as u64 }.to_bytes().to_vec();
        message.extend(payload);
        message
    });
    let damaged = (any::<i8>(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(tag, at, value)| {
        let io = io(FileRequest::vector(5, 7, 11), (64, 0, 2), 0, 1000, Direction::Read);
        let mut message = encode_io(i64::from(tag), &request(io));
        let at = 24 + at.index(message.len() - 24);
        message[at] = value;
        message
    });
    prop_oneof![1 => bytes, 4 => framed, 4 => damaged]
}

#[test]
fn a_hostile_tree_costs_bounded_time() {
    let vast = io(FileRequest::vector(i32::MAX, 1, 2), (64, 0, 2), 0, u64::MAX >> 2, Direction::Read);
    assert_eq!(vast.bytes_here(u64::MAX), None);
    assert_eq!(vast.estimate().bytes, (u64::MAX >> 2).div_ceil(2));
}

/// Anybody may send such requests without a pause, and each would be gone through as it comes.
#[test]
fn long_lists_are_not_gone_through_before_the_server_has_answered() {
    let long = |blocks, len| io(FileRequest::vector(blocks, 1, 2), (65_536, 0, 4), 0, len, Direction::Read);
    assert_eq!(long(65_000, 65_000).estimate(), Load { bytes: 16_250, pieces: 65_000 });
    assert_eq!(long(65_000, 65_000).bytes_here(u64::MAX), Some(32_768), "afterwards they are");
    assert_eq!(long(500, 500).estimate(), Load { bytes: 500, pieces: 500 });
    // Not more pieces than its tiles can have.
    let wide = io(FileRequest::vector(600, 1000, 2000), (65_536, 0, 4), 0, 1_200_000, Direction::Read);
    assert_eq!(wide.estimate(), Load { bytes: 300_000, pieces: 1800 });
    let plain = io(FileRequest::contiguous(), (65_536, 0, 4), 0, 1 << 40, Direction::Read);
    assert_eq!(plain.estimate(), Load { bytes: 1 << 38, pieces: 1 });
}

#[test]
fn a_read_that_finds_nothing_is_over_with_its_response() {
    let body = io(FileRequest::contiguous(), (65536, 1, 2), 1 << 20, 10 << 20, Direction::Read);
    let mut connection = Connection::new();
    let ConnectionEvent::Hold { tag, .. } = connection.from_client(&encode_io(3, &request(body))).what else {
        panic!("held")
    };
    connection.release(tag);
    let (_, news) = connection.from_server(&encode_io_response(3, Version::V7000, Ok(1024)));
    assert_eq!(news, Some(News::Over { tag: 3, result: Ok(0), moved: 0 }));
}

#[test]
fn an_error_ends_a_request() {
    let body = io(FileRequest::contiguous(), (65536, 0, 2), 0, 1 << 20, Direction::Write);
    let mut connection = Connection::new();
    connection.from_client(&encode_io(3, &request(body.clone())));
    connection.release(3);
    let (_, news) = connection.from_server(&encode_io_response(3, Version::V7000, Err(-2)));
    assert_eq!(news, Some(News::Over { tag: 3, result: Err(-2), moved: 0 }));
    connection.from_client(&encode_io(4, &request(body)));
    connection.release(4);
    connection.from_server(&encode_io_response(4, Version::V7000, Ok(0)));
    let (_, news) = connection.from_server(&encode_write_completion(4, Version::V7000, Ok(524_288)));
    assert_eq!(news, Some(News::Over { tag: 4, result: Ok(524_288), moved: 0 }));
}

#[test]
fn one_that_fails_says_what_moved_before() {
    let body = io(FileRequest::contiguous(), (65536, 0, 2), 0, 1 << 20, Direction::Write);
    let mut connection = Connection::new();
    connection.from_client(&encode_io(3, &request(body)));
    connection.release(3);
    connection.from_server(&encode_io_response(3, Version::V7000, Ok(0)));
    assert!(awaits_client(&connection));
    let data = Header::expected(3, 1000).to_bytes();
    connection.from_client(&data);
    connection.from_client(&[0; 400]);
    let (_, news) = connection.from_server(&encode_write_completion(3, Version::V7000, Err(-28)));
    assert_eq!(news, Some(News::Over { tag: 3, result: Err(-28), moved: 400 }));
    assert!(awaits_client(&connection), "the rest of a message");
    connection.from_client(&[0; 600]);
    assert!(!awaits_client(&connection));
}

#[test]
fn limits_are_read_from_the_configuration() {
    let text = "<Defaults>\n\tServerJobFlowTimeoutSecs 30\n\tClientJobBMITimeoutSecs 120\n\tUnexpectedRequests 50\n</Defaults>\n";
    let limits = ServerLimits::from_config(text);
    assert_eq!(limits.server_flow, henge_core::Duration::from_secs(30));
    assert_eq!(limits.client_message, henge_core::Duration::from_secs(120));
    assert_eq!(limits.client_flow, henge_core::Duration::from_secs(300));
}

/// Every distribution survives the wire, with the file request behind it.
#[test]
fn distributions_are_read_as_they_were_written() {
    let strips = vec![Strip { server_nr: 1, size: 70_000 }, Strip { server_nr: 0, size: 3 }];
    for (distribution, here) in [
        (Distribution::Basic, 300_000),
        (Distribution::VarStrip { strips }, 12),
        (Distribution::TwoD { groups: 2, strip_size: 65_536, factor: 2 }, 131_072 + 37_856),
    ] {
        let body = IoRequest {
            distribution,
            ..io(FileRequest::contiguous(), (1, 0, 2), 0, 300_000, Direction::Write)
        };
        assert_eq!(body.estimate().bytes, here, "{body:?}");
        let wanted = request(body);
        let message = encode_io(1, &wanted);
        let ConnectionEvent::Hold { request: read, .. } = Connection::new().from_client(&message).what else {
            panic!("{wanted:?} is not held");
        };
        assert_eq!(*read, wanted);
    }
}

/// Servers read every hint that they know, also those that clients do not send. What only servers could read was charged 4 MiB, however much it
/// moved.
#[test]
fn hints_are_read_as_servers_read_them() {
    let body = io(FileRequest::contiguous(), (65_536, 0, 2), 0, 1 << 30, Direction::Read);
    let wanted = Request { hints: Hints { rank: Some(1), ..Hints::default() }, ..request(body) };
    let message = encode_io(1, &wanted);
    let hint =
        message.windows(12).position(|w| w == [1, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0]).expect("one hint") + 4;
    for kind in [1, 2, 4, 7, 8, 9, 10, 11, 12, 13, 14u8] {
        let mut other = message.clone();
        other[hint] = kind;
        let ConnectionEvent::Hold { request, .. } = Connection::new().from_client(&other).what else {
            panic!("hint {kind} is not read");
        };
        assert_eq!(request.hints, Hints::default());
    }
}

/// A read of which nobody can tell how much it moves here is not free.
#[test]
fn a_read_too_intricate_to_follow_costs_an_equal_part() {
    let tree = FileRequest::vector(100_000, 1, 3);
    let wanted = request(io(tree, (65_536, 0, 2), 0, 100_000, Direction::Read));
    let mut connection = Connection::new();
    let ConnectionEvent::Hold { tag, .. } = connection.from_client(&encode_io(1, &wanted)).what else {
        panic!("it is held");
    };
    connection.release(tag);
    let (_, news) = connection.from_server(&encode_io_response(1, Version::V7000, Ok(1 << 30)));
    assert_eq!(news, Some(News::Over { tag, result: Ok(50_000), moved: 0 }));
}

/// Whoever must not cut a connection needs to know whether an answer is to come.
#[test]
fn metadata_requests_are_awaited_until_they_are_answered() {
    let mut connection = Connection::new();
    let mut message = encode_get_config(3);
    let op = HEADER_LEN + 8;
    message[op..op + 4].copy_from_slice(&17i32.to_le_bytes()); // some other request without a body
    let step = connection.from_client(&message);
    assert_eq!((step.what, connection.metadata.unanswered()), (ConnectionEvent::Pass, 1));
    connection.from_server(&encode_config(4, ""));
    assert_eq!(connection.metadata.unanswered(), 1, "the answer to another one");
    connection.from_server(&encode_config(3, ""));
    assert_eq!(connection.metadata.unanswered(), 0);
}

/// Where only clients come, all wait their turn, and an answer ends each. Whoever cuts a connection looks at those that the server has.
#[test]
fn metadata_of_clients_is_held_until_it_is_answered() {
    let mut connection = Connection::of_clients();
    let ask = |connection: &mut Connection, tag| connection.from_client(&encode_get_config(tag)).what;
    for tag in [3, 4] {
        let ConnectionEvent::Hold { request, .. } = ask(&mut connection, tag) else { panic!("it is held") };
        assert!(request.is_metadata() && !request.may_sync());
    }
    assert_eq!(connection.metadata.unanswered(), 0);
    connection.release(3);
    assert_eq!(connection.metadata.unanswered(), 1);
    // The answer to one that is still held is another one's.
    connection.from_server(&encode_config(4, ""));
    assert_eq!((connection.metadata.take_answered(), connection.metadata.unanswered()), (None, 1));
    let (_, news) = connection.from_server(&encode_config(3, "ClientJobBMITimeoutSecs 7"));
    assert!(
        matches!(news, Some(News::Limits(limits)) if limits.client_message == henge_core::Duration::from_secs(7))
    );
    assert_eq!(connection.metadata.take_answered(), Some(News::Over { tag: 3, result: Ok(0), moved: 0 }));
    assert_eq!((connection.metadata.take_answered(), connection.metadata.unanswered()), (None, 0));
    // A tag is free again, once it is answered.
    assert!(matches!(ask(&mut connection, 3), ConnectionEvent::Hold { .. }));
    assert_eq!((ask(&mut connection, 4), connection.stats().unfollowed), (ConnectionEvent::Refuse, 1));
}

/// What passed, and was not answered, is not what is held by the same tag.
#[test]
fn an_io_request_may_have_the_tag_of_metadata_that_passed() {
    let body = io(FileRequest::contiguous(), (65536, 0, 2), 0, 1 << 20, Direction::Write);
    let mut connection = Connection::new();
    assert_eq!(connection.from_client(&encode_get_config(3)).what, ConnectionEvent::Pass);
    assert!(matches!(
        connection.from_client(&encode_io(3, &request(body))).what,
        ConnectionEvent::Hold { tag: 3, .. }
    ));
    connection.release(3);
    assert_eq!(connection.io_state(3), Some(IoState::Released));
}

/// A client takes no answer of an older protocol than its own, nor of another operation.
#[test]
fn a_refusal_answers_the_request_that_it_is_for() {
    let wanted = io(FileRequest::contiguous(), (65_536, 0, 1), 0, 100, Direction::Read);
    let mut message = encode_io(7, &request(wanted));
    message[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&7003i32.to_le_bytes());
    let answer = encode_failure(&message, -5).expect("it is a request");
    let header = Header::parse(answer.first_chunk().expect("a header")).expect("it is one");
    assert_eq!((header.tag, header.mode, header.size), (7, Mode::Eager, 16));
    assert_eq!(answer[HEADER_LEN..HEADER_LEN + 12], message[HEADER_LEN..HEADER_LEN + 12]);
    let said = Response::parse(&answer[HEADER_LEN..]).expect("it is read");
    assert_eq!(said, Response::Failed { op: Op::Io, status: -5 });
    assert_eq!(encode_failure(&message[..HEADER_LEN + 11], -5), None);
}

/// A server with a whole file looks at neither number: what it moves is no secret.
#[test]
fn a_server_of_any_number_is_followed() {
    let distribution = Distribution::Basic;
    let body =
        IoRequest { distribution, ..io(FileRequest::contiguous(), (1, 7, 1), 0, 1 << 30, Direction::Read) };
    let message = encode_io(1, &request(body));
    let ConnectionEvent::Hold { request: read, .. } = Connection::new().from_client(&message).what else {
        panic!("it is held");
    };
    let RequestBody::Io(io) = read.body else { panic!("it is read") };
    assert_eq!(io.estimate().bytes, 1 << 30);
    let far = SimpleStripe { strip_size: u64::MAX >> 1, server_nr: u32::MAX, server_ct: 1 };
    assert_eq!(far.local(1 << 40), 0);
}

/// By each a server of 2.10 was seen to end, or to serve nobody.
#[test]
fn accesses_that_no_server_ends_are_answered_here() {
    let asked = |body: IoRequest| {
        let wanted = request(body);
        let RequestBody::Io(io) = &wanted.body else { panic!("it is one") };
        let message = if io.small { encode_small_io(1, &wanted, &[]) } else { encode_io(1, &wanted) };
        Connection::of_clients().from_client(&message).what
    };
    let stripe = (65_536, 0, 1);
    let plain = |offset, len| io(FileRequest::contiguous(), stripe, offset, len, Direction::Read);
    let list = |offset| io(FileRequest::vector(1000, 1, 2), stripe, offset, 1000, Direction::Read);
    let small = |len| IoRequest { small: true, ..plain(0, len) };
    for good in [plain(1 << 61, 1 << 48), plain(0, 0), list(1 << 25), small(16 << 10)] {
        assert!(matches!(asked(good.clone()), ConnectionEvent::Hold { .. }), "{good:?}");
    }
    let beyond = [plain(0, i64::MAX as u64), plain(i64::MAX as u64, 1), plain(0, 1 << 63), plain(1 << 63, 5)];
    let wide = IoRequest {
        distribution: Distribution::SimpleStripe { strip_size: 1 << 62 },
        server_ct: 4,
        ..plain(0, 5)
    };
    // A server of another number takes all for its own, and what is not followed may all be here.
    let write = IoRequest { direction: Direction::Write, ..small(1 << 20) };
    let elsewhere = IoRequest { server_nr: 5, ..small(1 << 16) };
    let tree = FileRequest::vector(20_000, 1, 2);
    let many = IoRequest { small: true, server_ct: 8, ..io(tree, stripe, 0, 20_000, Direction::Read) };
    let bad = [
        list(1 << 36),
        list(1 << 60),
        small(0),
        small(1 << 20),
        plain(0, 1 << 49),
        write,
        small(1 << 61),
        elsewhere,
        many,
        wide,
    ];
    for bad in beyond.into_iter().chain(bad) {
        assert!(matches!(asked(bad.clone()), ConnectionEvent::Answer { .. }), "{bad:?}");
    }
    let mut shorter = encode_io(1, &request(plain(0, 5)));
    shorter.truncate(shorter.len() - 8);
    let size = (shorter.len() - HEADER_LEN) as u64;
    shorter[..HEADER_LEN].copy_from_slice(&Header { mode: Mode::Unexpected, tag: 1, size }.to_bytes());
    assert!(matches!(Connection::new().from_client(&shorter).what, ConnectionEvent::Answer { .. }));
}

/// Strips are as small as whoever asks says. A read of 64 KiB by a list of 200 strips kept a server for 0.9 s, and counted as any other.
#[test]
fn a_server_goes_round_for_each_strip() {
    let pieces = |distribution, ct, len| {
        let plain = io(FileRequest::contiguous(), (1, 0, ct), 0, len, Direction::Read);
        IoRequest { distribution, ..plain }.estimate().pieces
    };
    let simple = |strip_size| Distribution::SimpleStripe { strip_size };
    let list = |strips: u64| Distribution::VarStrip {
        strips: (0..strips).map(|n| Strip { server_nr: n as u32 % 2, size: 1 }).collect(),
    };
    assert_eq!((pieces(simple(65_536), 4, 1 << 40), pieces(Distribution::Basic, 1, 1 << 40)), (1, 1));
    assert_eq!((pieces(simple(1), 2, 2 << 20), pieces(simple(16), 2, 2 << 20)), (1024, 64 + 1 - 1));
    assert!((15_000..25_000).contains(&pieces(list(200), 2, 65_536)), "{}", pieces(list(200), 2, 65_536));
    // The pieces before those that are wanted.
    let list = |offset| io(FileRequest::vector(1000, 1, 2), (65_536, 0, 1), offset, 100, Direction::Read);
    assert_eq!((list(0).estimate().pieces, list(1_024_000).estimate().pieces), (100, 600));
}
