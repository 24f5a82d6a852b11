//! Input that no initiator should send: the session at fault is answered as RFC 7143 says, and ends where it must; an initiator
//! and an NBD client beside it notice nothing, and no memory stays behind.

use super::*;
use henge_iscsi::chap::Algorithm;

/// What becomes of a session that has sent something wrong.
#[derive(PartialEq, Eq, Debug)]
enum End {
    /// Reject with this reason, then the connection is closed.
    Rejected(u8),
    /// The connection is closed without a word.
    Closed,
    /// CHECK CONDITION with this sense; the session goes on.
    Failed(u8, [u8; 2]),
    /// Nothing; the session goes on.
    Ignored,
}

/// Two sessions' worth of I/O that must not notice.
struct Bystanders {
    initiator: Initiator,
    nbd: Nbd,
    round: u8,
}

impl Bystanders {
    fn look(&mut self, what: &str) {
        self.round = self.round.wrapping_add(1);
        let (here, there) = ([self.round; 4096], [!self.round; 4096]);
        assert_eq!(self.initiator.write(2048, &here), 0, "after {what}");
        self.nbd.ask(1, 4 << 20, 4096, &there);
        assert_eq!(self.nbd.read(1 << 20, 4096), here, "after {what}");
        assert_eq!(self.initiator.read(8192, 4096), there, "after {what}");
    }
}

/// A WRITE(10) of blocks from the first one on, at the session's next number; data are still to come, or are within it.
fn write_header(to: &mut Initiator, expected: u32, blocks: usize, last: bool) -> Header {
    let mut header = Header::reply(request::SCSI);
    header.put(1, 0x20 | u8::from(last) << 7).put_u32(16, to.number).put_u32(20, expected);
    header.put_u32(24, to.number);
    header.0[32..42].copy_from_slice(&cdb10(0x2a, 0, blocks * 512));
    to.number += 1;
    header
}

/// Answers R2T wrongly: Data-Out with this number, at this offset, so long.
fn answer_r2t(to: &mut Initiator, number: u32, offset: u32, len: usize) {
    let header = write_header(to, 4096, 8, true);
    to.send(header, &[]);
    let (ask, _) = to.receive();
    assert_eq!((ask.opcode(), ask.u32_at(40), ask.u32_at(44)), (response::R2T, 0, 4096));
    let mut data = Header::reply(request::DATA);
    data.put(1, 0x80).put_u32(16, ask.itt()).put_u32(20, ask.ttt());
    data.put_u32(36, number).put_u32(40, offset);
    to.send(data, &vec![9; len]);
}

/// Sends what is wrong; the next thing that comes is judged by [`judge`].
type Wrong = fn(&mut Initiator);

const WRONGS: [(&str, &str, Wrong, End); 13] = [
    ("an unknown opcode", "", |to| to.send(Header::reply(0x1f), &[]), End::Rejected(5)),
    ("garbage", "", |to| to.stream.write_all(&[0xaa; 4096]).unwrap(), End::Rejected(9)),
    (
        "a segment longer than was agreed",
        "",
        |to| to.stream.write_all(&Header::reply(request::NOP).put(5, 0xff).0).unwrap(),
        End::Rejected(9),
    ),
    (
        "a second login",
        "",
        |to| to.send(*Header::reply(0x40 | request::LOGIN).put(1, 0x87), b"InitiatorName=iqn.a\0"),
        End::Rejected(4),
    ),
    (
        "data with a tag that was never given",
        "",
        |to| {
            let header = write_header(to, 4096, 8, true);
            to.send(header, &[]);
            to.receive();
            let itt = to.number - 1;
            to.send(*Header::reply(request::DATA).put(1, 0x80).put_u32(16, itt).put_u32(20, 77), &[0; 4096]);
        },
        End::Rejected(4),
    ),
    (
        "more data within a command than it announces",
        "",
        |to| {
            let header = write_header(to, 512, 1, true);
            to.send(header, &[0; 1024]);
        },
        End::Rejected(4),
    ),
    (
        "a tag that is in use",
        "",
        |to| {
            let header = write_header(to, 4096, 8, true);
            to.send(header, &[]);
            to.receive();
            to.number -= 1;
            let mut again = write_header(to, 4096, 8, true);
            again.put_u32(24, to.number);
            to.send(again, &[]);
        },
        End::Rejected(7),
    ),
    (
        "data with a wrong digest",
        "DataDigest=CRC32C\0",
        |to| {
            let mut header = write_header(to, 512, 1, true);
            header.put_data_len(512);
            to.stream.write_all(&[&header.0[..], &[5; 516]].concat()).unwrap();
        },
        End::Rejected(2),
    ),
    (
        "a header with a wrong digest",
        "HeaderDigest=CRC32C\0",
        |to| to.stream.write_all(&[&Header::reply(request::NOP).0[..], &[5; 4]].concat()).unwrap(),
        End::Closed,
    ),
    ("DataSN 1 before 0", "", |to| answer_r2t(to, 1, 0, 4096), End::Failed(0x0b, [0x0c, 0x0d])),
    ("data at another offset", "", |to| answer_r2t(to, 0, 512, 3584), End::Failed(0x0b, [0x0c, 0x0d])),
    ("data beyond what was asked for", "", |to| answer_r2t(to, 0, 0, 8192), End::Failed(0x0b, [0x0c, 0x0d])),
    (
        "a command number beyond the window, and one that was used",
        "",
        |to| {
            for number in [to.number.wrapping_add(100_000), to.number.wrapping_sub(1)] {
                let mut header = Header::reply(request::SCSI);
                header.put(1, 0x80).put_u32(16, 999).put_u32(24, number);
                to.send(header, &[]);
            }
        },
        End::Ignored,
    ),
];

/// What comes next on a session that has done wrong.
fn judge(of: &mut Initiator, header_digest: bool) -> End {
    let closed = |stream: &mut TcpStream| {
        // Behind a digest; and whatever else was sent there may make the end a reset.
        let end =
            std::iter::from_fn(|| Some(stream.read(&mut [0; 64]))).find(|read| !matches!(read, Ok(1..)));
        let reset = |e: &std::io::Error| e.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(end.is_some_and(|end| end.as_ref().map_or_else(reset, |n| *n == 0)), "it is closed");
    };
    if header_digest {
        closed(&mut of.stream);
        return End::Closed;
    }
    let mut ping = Header::reply(0x40 | request::NOP);
    ping.put_u32(16, 4321).put_u32(20, u32::MAX).put_u32(24, of.number);
    ping.put_data_len(0);
    // A session that is over does not answer it; the socket may be closed already.
    let _ = of.stream.write_all(&ping.0);
    let (reply, data) = of.receive();
    match reply.opcode() {
        response::REJECT => {
            closed(&mut of.stream);
            End::Rejected(reply.0[2])
        }
        response::SCSI => {
            assert_eq!((reply.0[3], of.receive().0.itt()), (2, 4321), "the session goes on");
            End::Failed(data[4] & 0xf, [data[14], data[15]])
        }
        response::NOP => End::Ignored,
        other => panic!("{other:#x}"),
    }
}

#[test]
fn what_is_wrong_ends_its_own_session_and_disturbs_nobody() {
    if !children::is_alone("bad::what_is_wrong_ends_its_own_session_and_disturbs_nobody") {
        return;
    }
    let (node, _state) = start("");
    let mut others =
        Bystanders { initiator: Initiator::connect(&node, 1), nbd: Nbd::connect(&node), round: 0 };
    others.look("nothing");
    let mut before = 0;
    for round in 0..20 {
        for (n, (what, keys, send, end)) in WRONGS.iter().enumerate() {
            let mut wrong =
                Initiator::log_in(&node, 2 + n as u8, &format!("InitialR2T=Yes\0ImmediateData=Yes\0{keys}"));
            let digested = !keys.is_empty();
            if !digested {
                assert_eq!(wrong.scsi(&[0; 6], 0, &[]).0, 2, "the unit attention of a new session");
            }
            send(&mut wrong);
            assert_eq!(judge(&mut wrong, *end == End::Closed), *end, "{what}");
            if round == 0 {
                others.look(what);
                assert_eq!(others.nbd.read(0, 4096), [0; 4096], "nothing of it was written: {what}");
            }
        }
        if round == 1 {
            before = resident();
        }
    }
    others.look("all of it");
    settles(&node);
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes more after {} sessions", 18 * WRONGS.len());
    drop(others);
    node.stop().unwrap();
}

/// Memory and connections of sessions that are over come back.
fn settles(node: &Node) {
    let begin = Instant::now();
    loop {
        let status = node.control().status().unwrap();
        if status.disk("web").unwrap().connections == 2 && status.buffers_out == 0 {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "memory of those that left does not come back");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// CHAP with this secret, at a disk: the status of the last answer.
fn prove(node: &Node, isid: u8, secret: &[u8]) -> (Initiator, u16) {
    prove_for(node, isid, "TargetName=iqn.2026-11.local.henge:web", secret)
}

fn prove_for(node: &Node, isid: u8, what: &str, secret: &[u8]) -> (Initiator, u16) {
    let mut initiator = Initiator { stream: connect(addresses(node).1), number: 1 };
    let mut login = Header::reply(0x40 | request::LOGIN);
    login.put(1, 0x01).put(8, 0x80).put(13, isid).put_u32(24, 1);
    initiator.send(login, format!("InitiatorName=iqn.a\0{what}\0AuthMethod=CHAP\0").as_bytes());
    assert_eq!(initiator.receive().0.u16_at(36), 0);
    initiator.send(login, b"CHAP_A=5\0");
    let (_, text) = initiator.receive();
    let text = String::from_utf8(text).unwrap();
    let value = |key: &str| text.split('\0').find_map(|pair| pair.strip_prefix(key)).unwrap().to_owned();
    let challenge = value("CHAP_C=0x");
    let bytes =
        (0..challenge.len() / 2).map(|i| u8::from_str_radix(&challenge[2 * i..2 * i + 2], 16).unwrap());
    let bytes: Vec<u8> = bytes.collect();
    let proof = Algorithm::Md5.response(value("CHAP_I=").parse().unwrap(), secret, &bytes);
    let proof: String = proof.iter().map(|b| format!("{b:02x}")).collect();
    initiator.send(*login.put(1, 0x87 & !0x0c), format!("CHAP_N=alice\0CHAP_R=0x{proof}\0").as_bytes());
    let status = initiator.receive().0.u16_at(36);
    (initiator, status)
}

#[test]
fn a_wrong_secret_is_told_so_and_lets_nobody_in() {
    let (node, _state) = start("iscsi = { user = \"alice\", secret = \"twelve bytes\" }\n");
    let (_good, status) = prove(&node, 1, b"twelve bytes");
    assert_eq!(status, 0);
    for guess in [&b"twelve bytez"[..], b"", b"twelve bytes\0"] {
        let (mut wrong, status) = prove(&node, 2, guess);
        assert_eq!(status, 0x0201, "authentication failure");
        assert_eq!(wrong.stream.read(&mut [0; 1]).unwrap(), 0, "and the connection is closed");
    }
    assert_eq!(node.control().status().unwrap().disk("web").unwrap().connections, 1);
    node.stop().unwrap();
}

/// A proof that is compared with more secrets than there are in one turn is answered all the same.
#[test]
fn a_proof_for_one_of_many_secrets_is_answered() {
    let disk = |i: usize| {
        let access = format!("iscsi = {{ user = \"alice\", secret = \"secret number {i:03}\" }}");
        format!("[[disk]]\nname = \"d{i:03}\"\ncapacity = \"1MiB\"\n{access}\n")
    };
    let (node, _state) = start(&(0..150).map(disk).collect::<String>());
    let (mut host, status) = prove_for(&node, 1, "SessionType=Discovery", b"secret number 140");
    assert_eq!(status, 0);
    let mut ask = Header::reply(request::TEXT);
    ask.put(1, 0x80).put_u32(16, 5).put_u32(20, u32::MAX).put_u32(24, 1);
    host.send(ask, b"SendTargets=All\0");
    let names = String::from_utf8(host.receive().1).unwrap();
    let shown: Vec<&str> = names.split('\0').filter_map(|pair| pair.strip_prefix("TargetName=")).collect();
    assert_eq!(shown, ["iqn.2026-11.local.henge:web", "iqn.2026-11.local.henge:d140"]);
    node.stop().unwrap();
}
