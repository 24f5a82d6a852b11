//! Sessions, byte by byte, as RFC 7143 has them.

use crate::host::*;
use henge_core::Duration;
use henge_iscsi::chap::{Access, Algorithm, Secret};
use henge_iscsi::scsi::Outcome;
use henge_iscsi::wire::{Header, request, response};
use henge_iscsi::{Limits, Want};

#[test]
fn a_login_is_answered_as_the_rfc_says() {
    let mut targets = targets(Access::default());
    let mut host = Host::new(&mut targets, Limits::default());
    host.feed(&mut targets, &plain_login(&["MaxBurstLength=16776192", "InitialR2T=No", "X-other=1"]));
    let (header, text) = &host.replies()[0];
    // RFC 7143 11.13: T, CSG 1, NSG 3; version 0; ISID; a TSIH; StatSN 0, ExpCmdSN 1, MaxCmdSN 128; success
    let expected = [
        0x23, 0x87, 0, 0, 0, 0, 0, 138, 0x80, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 1, 0, 0, 0, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let keys = "TargetPortalGroupTag=1\0MaxBurstLength=1048576\0InitialR2T=No\0X-other=NotUnderstood\0\
                MaxRecvDataSegmentLength=262144\0";
    assert_eq!(std::str::from_utf8(text), Ok(keys));
    let mut header = header.0;
    header[7] = 138; // the text's length, which its content shows
    assert_eq!(header, expected);
    assert!(host.session.is_logged_in());
}

#[test]
fn logins_that_cannot_be_end_with_their_status() {
    let name = format!("TargetName={TARGET}");
    let initiator = "InitiatorName=iqn.2026-11.example:host";
    let cases: [(u8, &[&str], u16); 8] = [
        (0x87, &[&name], 0x0207),                                // no InitiatorName
        (0x87, &[initiator], 0x0207),                            // no TargetName
        (0x87, &[initiator, "TargetName=iqn.none"], 0x0203),     // no such target
        (0x87, &[initiator, &name, "SessionType=Boot"], 0x0209), // no such session type
        (0x87, &[initiator, &name, "InitialR2T=No", "InitialR2T=No"], 0x0200), // offered twice
        (0x86, &[initiator, &name], 0x0200),                     // NSG 2 does not exist
        (0xc7, &[initiator, &name], 0x0200),                     // T and C at once
        (0x81, &[initiator, &name, "AuthMethod=KRB5"], 0x0201),  // no method in common
    ];
    for (flags, pairs, status) in cases {
        let mut targets = targets(Access::default());
        let mut host = Host::new(&mut targets, Limits::default());
        host.feed(&mut targets, &login(flags, pairs));
        let replies = host.replies();
        assert_eq!(replies[0].0.u16_at(36), status, "{pairs:?}");
        assert_eq!(host.session.want(), Want::Nothing);
    }
}

fn secret_of(name: &str, secret: &str) -> Secret {
    Secret { name: name.into(), secret: secret.into() }
}

/// Runs CHAP with the secret that the initiator has; the statuses of the responses, and the last text.
fn chap(theirs: &str, algorithm: Algorithm) -> (Vec<u16>, String) {
    let access = Access {
        users: vec![secret_of("alice", "in")],
        target: Some(secret_of("disk", "out")),
        initiators: vec![],
    };
    let mut targets = targets(access);
    let mut host = Host::new(&mut targets, Limits::default());
    let name = format!("TargetName={TARGET}");
    let first = ["InitiatorName=iqn.2026-11.example:host", &name, "AuthMethod=CHAP,None"];
    host.feed(&mut targets, &login(0x01, &first));
    host.feed(&mut targets, &login(0x01, &[&format!("CHAP_A={}", algorithm.number())]));
    // The host's entropy is 0, 1, 2 …: identifier 0, challenge 1, 2 …
    let challenge: Vec<u8> = (1..=algorithm.challenge_len() as u8).collect();
    let answer = algorithm.response(0, theirs.as_bytes(), &challenge);
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let answer = format!("CHAP_R=0x{}", hex(&answer));
    host.feed(&mut targets, &login(0x81, &["CHAP_N=alice", &answer, "CHAP_I=9", "CHAP_C=0xfeed"]));
    let replies = host.replies();
    let last = String::from_utf8(replies[replies.len() - 1].1.clone()).expect("text");
    (replies.iter().map(|(header, _)| header.u16_at(36)).collect(), last)
}

#[test]
fn both_sides_prove_themselves() {
    for algorithm in [Algorithm::Md5, Algorithm::Sha256, Algorithm::Sha3] {
        let (statuses, last) = chap("in", algorithm);
        assert_eq!(statuses, [0, 0, 0]);
        let proof = algorithm.response(9, b"out", &[0xfe, 0xed]);
        let hex: String = proof.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(last, format!("CHAP_N=disk\0CHAP_R=0x{hex}\0"));
        assert_eq!(chap("guess", algorithm).0, [0, 0, 0x0201]);
    }
}

#[test]
fn who_must_prove_itself_cannot_skip_it() {
    let access = Access { users: vec![secret_of("alice", "in")], ..Access::default() };
    let name = format!("TargetName={TARGET}");
    let cases: [(u8, Vec<&str>); 3] = [(0x87, vec![]), (0x81, vec![]), (0x81, vec!["AuthMethod=None"])];
    for (flags, extra) in cases {
        let mut targets = targets(access.clone());
        let mut host = Host::new(&mut targets, Limits::default());
        let mut pairs = vec!["InitiatorName=iqn.2026-11.example:host", name.as_str()];
        pairs.extend(extra);
        host.feed(&mut targets, &login(flags, &pairs));
        assert_eq!(host.replies()[0].0.u16_at(36), 0x0201, "{pairs:?}");
    }
}

/// What a target answers to a login in these steps, byte by byte.
fn answers(
    targets: &mut henge_iscsi::Targets,
    name: &str,
    steps: &[(u8, Vec<String>)],
) -> Vec<(Header, Vec<u8>)> {
    let mut host = Host::new(targets, Limits::default());
    for (i, (flags, pairs)) in steps.iter().enumerate() {
        let name = format!("TargetName={name}");
        let first = ["InitiatorName=iqn.2026-11.example:host", &name];
        let mut all: Vec<&str> = if i == 0 { first.to_vec() } else { Vec::new() };
        all.extend(pairs.iter().map(String::as_str));
        host.feed(targets, &login(*flags, &all));
    }
    host.replies()
}

#[test]
fn what_is_not_there_answers_as_what_is_forbidden() {
    let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let response = |secret: &str| {
        let challenge: Vec<u8> = (1..=16).collect();
        let answer = Algorithm::Md5.response(0, secret.as_bytes(), &challenge);
        format!("CHAP_R=0x{}", answer.iter().map(|b| format!("{b:02x}")).collect::<String>())
    };
    let offers =
        ["AuthMethod=CHAP,None", "AuthMethod=CHAP", "AuthMethod=None", "AuthMethod=KRB5", "X-other=1"];
    for offer in offers {
        for (name, secret) in [("alice", "guess"), ("", ""), ("bob", "in"), ("alice", "\0")] {
            for last in [vec![], texts(&["CHAP_I=9", "CHAP_C=0xfeed"])] {
                for first in [0x01, 0x81, 0x87] {
                    let proof =
                        [texts(&[&format!("CHAP_N={name}"), &response(secret)]), last.clone()].concat();
                    let steps = [(first, texts(&[offer])), (0x01, texts(&["CHAP_A=5"])), (0x81, proof)];
                    let guarded = Access { users: vec![secret_of("alice", "in")], ..Access::default() };
                    let (mut targets, _) = target(guarded);
                    let named = Access { initiators: vec!["iqn.else".into()], ..Access::default() };
                    targets.add_target("iqn.named", named).expect("a name");
                    let forbidden = answers(&mut targets, TARGET, &steps);
                    assert!(forbidden.iter().all(|(header, _)| header.0[1] & 0x80 == 0), "nobody is let in");
                    for other in ["iqn.none", "iqn.named"] {
                        assert_eq!(forbidden, answers(&mut targets, other, &steps), "{other}, {steps:?}");
                    }
                }
            }
        }
    }
}

/// A discovery session of who says this, and answers CHAP so.
fn discovers(targets: &mut henge_iscsi::Targets, offer: &str, user: &str, secret: &str) -> Host {
    let mut host = Host::new(targets, Limits::default());
    let initiator = "InitiatorName=iqn.2026-11.example:host";
    host.feed(targets, &login(0x81, &[initiator, "SessionType=Discovery", offer]));
    let chosen = String::from_utf8(host.replies()[0].1.clone()).expect("text");
    if chosen.contains("CHAP") {
        host.feed(targets, &login(0x01, &["CHAP_A=5"]));
        let challenge: Vec<u8> = (1..=16).collect();
        let answer = Algorithm::Md5.response(0, secret.as_bytes(), &challenge);
        let answer = format!("CHAP_R=0x{}", answer.iter().map(|b| format!("{b:02x}")).collect::<String>());
        host.feed(targets, &login(0x81, &[&format!("CHAP_N={user}"), &answer]));
    }
    host.feed(targets, &login(0x87, &[]));
    assert!(host.session.is_logged_in(), "discovery lets in whoever comes");
    host.replies();
    host
}

/// The names that its question of that number is answered by.
fn names(targets: &mut henge_iscsi::Targets, host: &mut Host, number: u32) -> Vec<String> {
    let mut ask = Header::reply(request::TEXT);
    ask.put_u32(16, 5).put_u32(20, u32::MAX).put_u32(24, number);
    host.feed(targets, &pdu(ask, b"SendTargets=All\0"));
    let text = String::from_utf8(host.replies()[0].1.clone()).expect("text");
    text.split('\0').filter_map(|pair| pair.strip_prefix("TargetName=")).map(str::to_owned).collect()
}

fn discovered(targets: &mut henge_iscsi::Targets, offer: &str, user: &str, secret: &str) -> Vec<String> {
    let mut host = discovers(targets, offer, user, secret);
    names(targets, &mut host, 1)
}

/// A session may stay for long. What it has proven is worth nothing once the secret is another.
#[test]
fn discovery_tells_no_names_by_a_secret_that_is_no_longer_right() {
    let (mut targets, _) = target(Access::default());
    let of = |user, word| Access { users: vec![secret_of(user, word)], ..Access::default() };
    let id = targets.add_target("iqn.a", of("alice", "in")).expect("a name");
    targets.add_target("iqn.b", of("alice", "in")).expect("a name");
    let mut host = discovers(&mut targets, "AuthMethod=CHAP,None", "alice", "in");
    assert_eq!(names(&mut targets, &mut host, 1), [TARGET, "iqn.a", "iqn.b"]);
    targets.set_access(id, of("alice", "other"), true);
    assert_eq!(names(&mut targets, &mut host, 2), [TARGET, "iqn.b"]);
}

#[test]
fn discovery_tells_names_to_who_proves_to_know_their_secret() {
    let (mut targets, _) = target(Access::default());
    let of = |user, word| Access { users: vec![secret_of(user, word)], ..Access::default() };
    for (name, access) in
        [("iqn.a", of("alice", "in")), ("iqn.b", of("bob", "in")), ("iqn.c", of("alice", "other"))]
    {
        targets.add_target(name, access).expect("a name");
    }
    let both = "AuthMethod=CHAP,None";
    assert_eq!(discovered(&mut targets, both, "alice", "in"), [TARGET, "iqn.a"]);
    assert_eq!(discovered(&mut targets, both, "alice", "other"), [TARGET, "iqn.c"]);
    for (offer, user, word) in
        [(both, "alice", "guess"), (both, "", ""), (both, "carol", "in"), ("AuthMethod=None", "", "")]
    {
        assert_eq!(discovered(&mut targets, offer, user, word), [TARGET], "{offer} {user} {word}");
    }
}

#[test]
fn sessions_end_when_it_is_said_anew_who_may_log_in() {
    let (mut targets, id) = target(Access::default());
    let mut host = ready(&mut targets, Limits::default(), &[]);
    targets.set_access(id, Access::default(), true);
    assert!(targets.next_poked().is_none(), "nothing has changed");
    targets.set_access(id, Access { users: vec![secret_of("alice", "in")], ..Access::default() }, true);
    while targets.next_poked().is_some() {
        host.session.poke(&mut targets);
    }
    assert_eq!(host.session.want(), Want::Nothing);
}

/// A login that was let in by what was said before does not end in a session by it.
#[test]
fn a_login_under_way_ends_when_it_is_said_anew_who_may_log_in() {
    for (users, shown) in [(vec![secret_of("alice", "in")], true), (Vec::new(), false)] {
        let (mut targets, id) = target(Access::default());
        let mut host = Host::new(&mut targets, Limits::default());
        let name = format!("TargetName={TARGET}");
        host.feed(&mut targets, &login(0x04, &["InitiatorName=iqn.2026-11.example:host", &name]));
        assert_eq!(host.replies()[0].0.u16_at(36), 0, "it may go on");
        targets.set_access(id, Access { users, ..Access::default() }, shown);
        host.feed(&mut targets, &login(0x87, &["MaxBurstLength=512"]));
        assert_eq!((host.replies()[0].0.u16_at(36), host.session.want()), (0x0201, Want::Nothing));
    }
}

#[test]
fn discovery_names_targets_and_portals() {
    let mut targets = targets(Access::default());
    let mut host = Host::new(&mut targets, Limits::default());
    host.feed(&mut targets, &login(0x87, &["InitiatorName=iqn.a", "SessionType=Discovery"]));
    let mut ask = Header::reply(request::TEXT);
    ask.put_u32(16, 5).put_u32(20, u32::MAX).put_u32(24, 1);
    host.feed(&mut targets, &pdu(ask, b"SendTargets=All\0"));
    let replies = host.replies();
    let (header, text) = &replies[1];
    assert_eq!(
        (header.opcode(), header.0[1], header.itt(), header.ttt()),
        (response::TEXT, 0x80, 5, u32::MAX)
    );
    let expected = format!("TargetName={TARGET}\0TargetAddress=192.0.2.1:3260,1\0");
    assert_eq!(std::str::from_utf8(text), Ok(expected.as_str()));
}

#[test]
fn long_text_comes_in_pieces() {
    let mut targets = targets(Access::default());
    for i in 0..200 {
        targets.add_target(&format!("iqn.2026-11.example:disk-{i:03}"), Access::default());
    }
    let mut host = Host::new(&mut targets, Limits::default());
    let login =
        login(0x87, &["InitiatorName=iqn.a", "SessionType=Discovery", "MaxRecvDataSegmentLength=4096"]);
    host.feed(&mut targets, &login);
    host.replies();
    let (mut text, mut ttt, mut number) = (Vec::new(), u32::MAX, 1);
    loop {
        let mut ask = Header::reply(request::TEXT);
        ask.put_u32(16, 5).put_u32(20, ttt).put_u32(24, number);
        let data: &[u8] = if number == 1 { b"SendTargets=All\0" } else { b"" };
        host.feed(&mut targets, &pdu(ask, data));
        let (header, data) = host.replies().remove(0);
        assert!(data.len() <= 4096);
        text.extend_from_slice(&data);
        (ttt, number) = (header.ttt(), number + 1);
        if header.is_final() {
            break;
        }
        assert_eq!(header.0[1], 0x40, "C, and not F");
    }
    assert_eq!(text.split(|&b| b == 0).filter(|pair| pair.starts_with(b"TargetName=")).count(), 201);
}

#[test]
fn immediate_data_are_written_and_read_back() {
    let mut targets = targets(Access::default());
    let mut host =
        ready(&mut targets, Limits::default(), &["MaxRecvDataSegmentLength=512", "MaxBurstLength=1024"]);
    let data: Vec<u8> = (0..2048).map(|i| (i / 7) as u8).collect();
    host.feed(&mut targets, &scsi(0xa0, 10, 2, 1024, &cdb10(0x2a, 4, 2), &data[..1024]));
    let (header, _) = &host.replies()[0];
    assert_eq!((header.opcode(), header.0[1], header.0[2], header.0[3]), (0x21, 0x80, 0, 0));
    assert_eq!(host.disk[2048..3072], data[..1024]);
    host.disk[2048..4096].copy_from_slice(&data);
    host.feed(&mut targets, &scsi(0xc0, 11, 3, 2048, &cdb10(0x28, 4, 4), &[]));
    // Data-In PDUs of 512 bytes; F ends each burst of 1024; the last one has S, status GOOD and the StatSN.
    let replies = host.replies();
    let seen: Vec<(u8, u32, u32, usize)> =
        replies.iter().map(|(h, d)| (h.0[1], h.u32_at(36), h.u32_at(40), d.len())).collect();
    assert_eq!(seen, [(0, 0, 0, 512), (0x80, 1, 512, 512), (0, 2, 1024, 512), (0x81, 3, 1536, 512)]);
    let read: Vec<u8> = replies.into_iter().flat_map(|(_, data)| data).collect();
    assert_eq!(read, data);
    assert!(host.buffers.is_empty(), "every buffer is released");
}

#[test]
fn data_are_asked_for_in_bursts() {
    let mut targets = targets(Access::default());
    let mut host = ready(
        &mut targets,
        Limits::default(),
        &["InitialR2T=Yes", "ImmediateData=No", "MaxBurstLength=1024"],
    );
    let data: Vec<u8> = (0..2048).map(|i| (i / 5) as u8).collect();
    host.feed(&mut targets, &scsi(0xa0, 10, 2, 2048, &cdb10(0x2a, 0, 4), &[]));
    for burst in 0..2_u32 {
        let (ask, _) = host.replies().remove(0);
        // R2T: R2TSN, offset, length
        assert_eq!((ask.opcode(), ask.itt()), (response::R2T, 10));
        assert_eq!((ask.u32_at(36), ask.u32_at(40), ask.u32_at(44)), (burst, burst * 1024, 1024));
        for half in 0..2 {
            let at = burst * 1024 + half * 512;
            let part = &data[at as usize..at as usize + 512];
            host.feed(&mut targets, &data_out(half == 1, 10, ask.ttt(), half, at, part));
        }
    }
    assert_eq!(host.replies()[0].0.0[3], 0);
    assert_eq!(host.disk[..2048], data);
}

#[test]
fn data_out_of_order_fail_the_command_and_not_the_session() {
    let mut targets = targets(Access::default());
    let mut host = ready(&mut targets, Limits::default(), &["ImmediateData=No"]);
    host.feed(&mut targets, &scsi(0xa0, 10, 2, 1024, &cdb10(0x2a, 0, 2), &[]));
    let ttt = host.replies()[0].0.ttt();
    host.feed(&mut targets, &data_out(false, 10, ttt, 1, 0, &[1; 512])); // DataSN 1 before 0
    host.feed(&mut targets, &data_out(true, 10, ttt, 0, 512, &[1; 512]));
    let (header, sense) = &host.replies()[0];
    assert_eq!((header.0[3], sense[4], sense[14], sense[15]), (2, 0x0b, 0x0c, 0x0d));
    assert_eq!(host.disk[..1024], [0; 1024]);
    host.feed(&mut targets, &scsi(0x80, 11, 3, 0, &[0; 6], &[]));
    assert_eq!(host.replies()[0].0.0[3], 0);
}

#[test]
fn data_beyond_what_was_asked_for_fail_the_command_and_are_dropped() {
    let mut targets = targets(Access::default());
    let mut host = ready(&mut targets, Limits::default(), &["ImmediateData=No", "MaxBurstLength=1024"]);
    host.feed(&mut targets, &scsi(0xa0, 10, 2, 2048, &cdb10(0x2a, 0, 4), &[]));
    let (ask, _) = host.replies().remove(0);
    assert_eq!(ask.u32_at(44), 1024, "the first burst");
    host.feed(&mut targets, &data_out(false, 10, ask.ttt(), 0, 0, &[1; 512]));
    host.feed(&mut targets, &data_out(true, 10, ask.ttt(), 1, 512, &[1; 1024]));
    let (header, sense) = host.replies().remove(0);
    assert_eq!((header.0[3], sense[4] & 0xf, &sense[14..16]), (2, 0x0b, &[0x0c, 0x0d][..]));
    assert!(host.disk.iter().all(|byte| *byte == 0) && host.buffers.is_empty());
    host.feed(&mut targets, &scsi(0x80, 11, 3, 0, &[0; 6], &[]));
    assert_eq!(host.replies()[0].0.0[3], 0, "the session goes on");
}

#[test]
fn residuals_tell_what_was_missing() {
    let mut targets = targets(Access::default());
    let mut host = ready(&mut targets, Limits::default(), &[]);
    let mut residual = |number: u32, expected: u32| {
        host.feed(&mut targets, &scsi(0xc0, number, number, expected, &cdb10(0x28, 0, 2), &[]));
        let (header, data) = host.replies().remove(0);
        (header.0[1] & 0x06, header.u32_at(44), data.len())
    };
    assert_eq!(residual(2, 1024), (0, 0, 1024));
    assert_eq!(residual(3, 1500), (0x02, 476, 1024), "underflow");
    assert_eq!(residual(4, 200), (0x04, 824, 200), "overflow");
    assert_eq!(residual(5, 0), (0x04, 1024, 0));
}

#[test]
fn an_aborted_write_has_left_the_storage_before_the_answer() {
    let mut targets = targets(Access::default());
    let mut host = ready(&mut targets, Limits::default(), &[]);
    host.hold = true;
    host.feed(&mut targets, &scsi(0xa0, 10, 2, 512, &cdb10(0x2a, 0, 1), &[7; 512]));
    host.feed(&mut targets, &manage(1, 11, 3, 10)); // ABORT TASK
    assert_eq!(host.cancelled.len(), 1);
    assert!(host.replies().is_empty(), "the write may still happen");
    host.finish(&mut targets, Outcome::Failed(henge_core::Fault::Cancelled));
    let replies = host.replies();
    assert_eq!(replies.len(), 1, "no status for the write");
    assert_eq!((replies[0].0.opcode(), replies[0].0.0[2], replies[0].0.itt()), (response::TASK, 0, 11));
    host.feed(&mut targets, &manage(1, 12, 4, 10));
    assert_eq!(host.replies()[0].0.0[2], 1, "task does not exist");
    assert!(host.buffers.is_empty());
}

#[test]
fn a_reset_waits_for_the_writes_of_all_sessions() {
    let mut targets = targets(Access::default());
    let mut one = ready(&mut targets, Limits::default(), &[]);
    let mut other = Host::new(&mut targets, Limits::default());
    let mut bytes = plain_login(&[]);
    bytes[13] = 2; // another ISID
    other.feed(&mut targets, &bytes);
    other.feed(&mut targets, &scsi(0x80, 1, 1, 0, &[0; 6], &[]));
    other.replies();
    other.hold = true;
    other.feed(&mut targets, &scsi(0xa0, 10, 2, 512, &cdb10(0x2a, 0, 1), &[7; 512]));
    one.feed(&mut targets, &manage(5, 11, 2, u32::MAX)); // LOGICAL UNIT RESET
    assert!(one.replies().is_empty());
    assert_eq!(targets.next_poked(), Some(other.session.nexus()));
    other.session.poke(&mut targets);
    other.work(&mut targets);
    assert_eq!(other.cancelled.len(), 1);
    other.finish(&mut targets, Outcome::Failed(henge_core::Fault::Cancelled));
    assert!(other.replies().is_empty());
    while let Some(nexus) = targets.next_poked() {
        if nexus == one.session.nexus() {
            one.session.poke(&mut targets);
        }
    }
    one.work(&mut targets);
    assert_eq!((one.replies()[0].0.opcode(), other.session.is_logged_in()), (response::TASK, true));
    // Both are told: BUS DEVICE RESET FUNCTION OCCURRED
    for host in [&mut one, &mut other] {
        host.hold = false;
        host.feed(&mut targets, &scsi(0x80, 20, 3, 0, &[0; 6], &[]));
        let sense = host.replies().remove(0).1;
        assert_eq!(sense[14..16], [0x29, 0x03]);
    }
}

#[test]
fn the_same_port_logs_in_again_and_the_old_session_ends() {
    let mut targets = targets(Access::default());
    let old = ready(&mut targets, Limits::default(), &[]);
    let mut new = Host::new(&mut targets, Limits::default());
    new.feed(&mut targets, &plain_login(&[]));
    assert!(new.session.is_logged_in());
    let mut old = old;
    assert_eq!(targets.next_poked(), Some(old.session.nexus()));
    old.session.poke(&mut targets);
    assert_eq!(old.session.want(), Want::Nothing);
    // A second connection for the new session: refused, the session stays.
    let mut second = Host::new(&mut targets, Limits::default());
    let mut bytes = plain_login(&[]);
    bytes[14..16].copy_from_slice(&new.replies()[0].0.0[14..16]);
    second.feed(&mut targets, &bytes);
    assert_eq!(second.replies()[0].0.u16_at(36), 0x0206);
    assert!(new.session.is_logged_in());
}

#[test]
fn commands_outside_the_window_are_ignored() {
    let mut targets = targets(Access::default());
    let limits = Limits { window: 4, ..Limits::default() };
    let mut host = ready(&mut targets, limits, &[]);
    host.hold = true;
    for i in 2..10_u32 {
        host.feed(&mut targets, &scsi(0xc0, 10 + i, i, 512, &cdb10(0x28, 0, 1), &[]));
    }
    assert_eq!(host.pending.len(), 4, "MaxCmdSN was 5");
    host.finish(&mut targets, Outcome::Done);
    assert_eq!(host.replies().len(), 4);
}

#[test]
fn data_beyond_the_budget_wait_or_are_refused_for_now() {
    let mut targets = targets(Access::default());
    let limits = Limits { held: 4096, ..Limits::default() };
    let mut host = ready(&mut targets, limits, &[]);
    host.hold = true;
    host.feed(&mut targets, &scsi(0xc0, 10, 2, 4096, &cdb10(0x28, 0, 8), &[]));
    host.feed(&mut targets, &scsi(0xc0, 11, 3, 4096, &cdb10(0x28, 0, 8), &[])); // waits
    host.feed(&mut targets, &scsi(0xa0, 12, 4, 512, &cdb10(0x2a, 0, 1), &[1; 512])); // its data are here
    assert_eq!(host.pending.len(), 1);
    assert_eq!(host.replies()[0].0.0[3], 0x28, "TASK SET FULL");
    host.finish(&mut targets, Outcome::Done);
    assert_eq!(host.pending.len(), 1, "the second read has its buffer now");
    host.finish(&mut targets, Outcome::Done);
    assert_eq!(host.replies().len(), 2);
}

#[test]
fn malformed_pdus_are_rejected_and_the_session_ends() {
    let unknown = Header::reply(0x1f);
    let snack = Header::reply(request::SNACK);
    let mut huge = Header::reply(request::NOP);
    huge.put(5, 0xff);
    let bad_ttt = data_out(true, 10, 77, 0, 0, &[0; 512]);
    let too_much = scsi(0xa0, 20, 3, 512, &cdb10(0x2a, 0, 1), &[0; 1024]);
    let again = scsi(0x80, 10, 3, 0, &[0; 6], &[]);
    let login = plain_login(&[]);
    let cases: [(&[u8], u8); 7] = [
        (&unknown.0, 0x05),
        (&snack.0, 0x03),
        (&huge.0, 0x09),
        (&bad_ttt, 0x04),
        (&too_much, 0x04),
        (&again, 0x07),
        (&login, 0x04),
    ];
    for (bytes, reason) in cases {
        let mut targets = targets(Access::default());
        let mut host = ready(&mut targets, Limits::default(), &[]);
        host.hold = true;
        host.feed(&mut targets, &scsi(0xa0, 10, 2, 512, &cdb10(0x2a, 0, 1), &[0; 512]));
        host.feed(&mut targets, bytes);
        let replies = host.replies();
        let (header, data) = replies.last().expect("a Reject");
        assert_eq!((header.opcode(), header.0[2]), (response::REJECT, reason), "{:x}", bytes[0]);
        assert_eq!(data[..], bytes[..48], "it carries the header");
        assert_eq!(host.session.want(), Want::Nothing);
        host.finish(&mut targets, Outcome::Done);
        assert!(host.session.is_over() && host.buffers.is_empty());
    }
}

#[test]
fn digests_are_checked_and_made() {
    let digests = ["HeaderDigest=CRC32C", "DataDigest=CRC32C"];
    for flip in [None, Some(40), Some(60)] {
        let mut targets = targets(Access::default());
        let mut host = Host::new(&mut targets, Limits::default());
        host.feed(&mut targets, &plain_login(&digests));
        host.sent.clear();
        let test = pdu_digested(scsi_header(0x80, 1, 1, 0, &[0; 6]), &[]);
        host.feed(&mut targets, &test);
        host.sent.clear();
        let mut write = pdu_digested(scsi_header(0xa0, 10, 2, 512, &cdb10(0x2a, 0, 1)), &[9; 512]);
        if let Some(at) = flip {
            write[at] ^= 1;
        }
        host.feed(&mut targets, &write);
        let replies = split(&host.sent, true);
        match flip {
            None => {
                assert_eq!((replies[0].0.opcode(), replies[0].0.0[3]), (response::SCSI, 0));
                let crc = crc32c::crc32c(&host.sent[..48]).to_le_bytes();
                assert_eq!(host.sent[48..52], crc);
            }
            // In a header nothing can be believed; data that are damaged are rejected.
            Some(40) => assert!(replies.is_empty()),
            _ => assert_eq!((replies[0].0.opcode(), replies[0].0.0[2]), (response::REJECT, 0x02)),
        }
        assert_eq!(host.session.is_logged_in(), flip.is_none());
    }
}

#[test]
fn silence_is_asked_about_and_then_ends_the_session() {
    let mut targets = targets(Access::default());
    let mut host = Host::new(&mut targets, Limits::default());
    assert_eq!(host.session.wake_at(), Some(NOW + Duration::from_secs(15)), "a login has this long");
    host.feed(&mut targets, &plain_login(&[]));
    host.replies();
    let at = host.session.wake_at().expect("a session that lives has a next moment");
    host.session.tick(&mut targets, at);
    host.work(&mut targets);
    let (ping, _) = host.replies().remove(0);
    assert_eq!((ping.opcode(), ping.itt()), (response::NOP, u32::MAX));
    assert_ne!(ping.ttt(), u32::MAX);
    let at = host.session.wake_at().expect("it waits for the answer");
    host.session.tick(&mut targets, at);
    assert_eq!(host.session.want(), Want::Nothing);
}

#[test]
fn pings_and_logout_are_answered() {
    let mut targets = targets(Access::default());
    let mut host = ready(&mut targets, Limits::default(), &[]);
    let mut ping = Header::reply(0x40 | request::NOP);
    ping.put_u32(16, 5).put_u32(20, u32::MAX).put_u32(24, 2);
    host.feed(&mut targets, &pdu(ping, b"hello"));
    let (header, data) = host.replies().remove(0);
    assert_eq!((header.opcode(), header.itt(), data.as_slice()), (response::NOP, 5, &b"hello"[..]));
    let mut logout = Header::reply(request::LOGOUT);
    logout.put_u32(16, 6).put_u32(24, 2);
    host.feed(&mut targets, &pdu(logout, &[]));
    let (header, _) = host.replies().remove(0);
    assert_eq!((header.opcode(), header.0[2], header.itt()), (response::LOGOUT, 0, 6));
    assert!(host.session.is_over());
}

#[test]
fn shutting_down_asks_for_logout() {
    let mut targets = targets(Access::default());
    let mut host = ready(&mut targets, Limits::default(), &[]);
    host.session.shutdown(&mut targets, 10);
    host.work(&mut targets);
    let (header, _) = host.replies().remove(0);
    assert_eq!((header.opcode(), header.0[36], header.u16_at(42)), (response::ASYNC, 1, 10));
}
