//! What strangers can make a target do with few bytes.

use crate::host::*;
use henge_iscsi::chap::{Access, Algorithm, Secret};
use henge_iscsi::wire::{Header, Reason, request, response};
use henge_iscsi::{Limits, Want};

/// A text of 64 KiB has room for four thousand questions, each of which all targets would answer.
#[test]
fn a_text_asks_for_the_targets_once() {
    let mut targets = targets(Access::default());
    let mut host = Host::new(&mut targets, Limits::default());
    host.feed(&mut targets, &login(0x87, &["InitiatorName=iqn.a", "SessionType=Discovery"]));
    host.replies();
    let mut ask = Header::reply(request::TEXT);
    ask.put_u32(16, 5).put_u32(20, u32::MAX).put_u32(24, 1);
    host.feed(&mut targets, &pdu(ask, &b"SendTargets=All\0".repeat(4000)));
    let (header, _) = host.replies().remove(0);
    assert_eq!((header.opcode(), header.0[2]), (response::REJECT, Reason::Protocol as u8));
    assert_eq!(host.session.want(), Want::Nothing);
}

/// Lists of parameters are held beside the memory for data, as many as there may be commands.
#[test]
fn lists_of_parameters_are_short() {
    let mut targets = targets(Access::default());
    let mut host = ready(&mut targets, Limits::default(), &[]);
    host.feed(&mut targets, &scsi(0xa0, 5, 2, 0xffff, &[0x42, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0], &[]));
    let (asks, _) = host.replies().remove(0);
    assert_eq!((asks.opcode(), asks.u32_at(44)), (response::R2T, 8 + 257 * 16));
    host.feed(&mut targets, &scsi(0xa0, 6, 3, 0xffff, &[0x55, 0x10, 0, 0, 0, 0, 0, 0xff, 0xff, 0], &[]));
    let (ends, sense) = host.replies().remove(0);
    assert_eq!(
        (ends.opcode(), ends.0[3], sense[14]),
        (response::SCSI, 2, 0x1a),
        "the list's length is wrong"
    );
}

/// A command that reads has no use for data. Nothing is held for it while they come.
#[test]
fn who_announces_data_for_a_command_that_reads_gets_none() {
    let mut targets = targets(Access::default());
    let mut host = ready(&mut targets, Limits::default(), &["InitialR2T=No"]);
    let inquiry = [0x12, 0, 0, 0, 96, 0];
    host.feed(&mut targets, &scsi(0x20, 5, 2, 512, &inquiry, &[]));
    assert!(host.replies().is_empty(), "its data are to come");
    host.feed(&mut targets, &data_out(true, 5, u32::MAX, 0, 0, &[7; 512]));
    let (ends, sense) = host.replies().remove(0);
    assert_eq!((ends.opcode(), ends.0[3], sense[14]), (response::SCSI, 2, 0x24), "a field of the command");
}

/// What is held for a discovery session that takes no answers: one text, and answers of about as many bytes.
#[test]
fn who_uses_no_target_is_held_little_for() {
    let mut targets = targets(Access::default());
    let mut host = Host::new(&mut targets, Limits::default());
    let hello = ["InitiatorName=iqn.a", "SessionType=Discovery", "MaxRecvDataSegmentLength=262144"];
    host.feed(&mut targets, &login(0x87, &hello));
    host.deaf = true;
    let mut ping = Header::reply(request::NOP | 0x40);
    ping.put_u32(16, 5).put_u32(20, u32::MAX);
    host.feed(&mut targets, &pdu(ping, &[7; 40_000]));
    assert_eq!(host.session.want(), Want::Later);
    host.deaf = false;
    host.work(&mut targets);
    ping.put_data_len(70_000);
    host.feed(&mut targets, &ping.0);
    assert_eq!(host.session.want(), Want::Nothing, "longer than a text may be");
}

/// Each key is compared with all before it: a hundred thousand of them would be some seconds of work.
#[test]
fn a_login_offers_a_bounded_number_of_keys() {
    let mut targets = targets(Access::default());
    let mut host = Host::new(&mut targets, Limits::default());
    let mut requests = 0;
    while host.session.want() != Want::Nothing {
        let keys: Vec<String> = (0..100).map(|n| format!("X-{requests}-{n}=1")).collect();
        let mut pairs: Vec<&str> = keys.iter().map(String::as_str).collect();
        let name = format!("TargetName={TARGET}");
        pairs.extend(["InitiatorName=iqn.a", &name]);
        host.feed(&mut targets, &login(0x04, &pairs)); // CSG 1
        requests += 1;
    }
    assert_eq!((requests, host.replies().pop().map(|(header, _)| header.u16_at(36))), (3, Some(0x0200)));
}

/// Ten thousand targets, of which somebody asks for the names, and takes them in the longest pieces that there are.
#[test]
fn a_long_list_is_made_as_it_is_taken() {
    let mut targets = targets(Access::default());
    for i in 0..10_000 {
        targets.add_target(&format!("iqn.2026-11.example:disk-{i:05}"), Access::default());
    }
    let mut host = Host::new(&mut targets, Limits::default());
    let hello = ["InitiatorName=iqn.a", "SessionType=Discovery", "MaxRecvDataSegmentLength=16777215"];
    host.feed(&mut targets, &login(0x87, &hello));
    host.replies();
    let (mut text, mut ttt, mut number) = (Vec::new(), u32::MAX, 1);
    while number == 1 || ttt != u32::MAX {
        let mut ask = Header::reply(request::TEXT);
        ask.put_u32(16, 5).put_u32(20, ttt).put_u32(24, number);
        let data: &[u8] = if number == 1 { b"SendTargets=All\0" } else { b"" };
        host.feed(&mut targets, &pdu(ask, data));
        let (header, data) = host.replies().remove(0);
        assert!(data.len() <= 256 << 10, "{} bytes at once", data.len());
        text.extend_from_slice(&data);
        if number == 1 {
            // The rest is not made yet.
            targets.add_target("iqn.2026-11.example:later", Access::default());
        }
        (ttt, number) = (header.ttt(), number + 1);
    }
    let names = text.split(|&b| b == 0).filter_map(|pair| pair.strip_prefix(b"TargetName="));
    let names: Vec<&[u8]> = names.collect();
    assert_eq!((names.len(), number), (10_002, 4), "each once, in three pieces");
    assert!(names.is_sorted());
}

/// Ten thousand disks of one user, each with a secret of its own. A stranger names the user, and proves something.
#[test]
fn a_proof_is_compared_with_some_secrets_in_a_turn() {
    let mut targets = targets(Access::default());
    let secret =
        |i: usize| Secret { name: "ann".into(), secret: format!("secret number {i:05}").into_bytes() };
    for i in 0..10_000 {
        let access = Access { users: vec![secret(i)], ..Access::default() };
        targets.add_target(&format!("iqn.2026-11.example:disk-{i:05}"), access);
    }
    for (known, shows) in [(Some(7_777), 2), (None, 1)] {
        let mut host = Host::new(&mut targets, Limits::default());
        let hello = ["InitiatorName=iqn.a", "SessionType=Discovery", "AuthMethod=CHAP"];
        host.feed(&mut targets, &login(0x01, &hello));
        host.feed(&mut targets, &login(0x01, &["CHAP_A=5"]));
        let challenge: Vec<u8> = (1..17).collect();
        let word = known.map_or_else(|| b"a guess".to_vec(), |i| secret(i).secret);
        let answer = Algorithm::Md5.response(0, &word, &challenge);
        let answer: String = answer.iter().map(|byte| format!("{byte:02x}")).collect();
        let proof = login(0x81, &["CHAP_N=ann", &format!("CHAP_R=0x{answer}")]);
        host.replies();
        // Byte for byte, so that each call is counted for itself.
        let (mut at, mut turns, mut tries) = (0, 0, 0);
        while at < proof.len() || host.session.is_trying() {
            if host.session.is_trying() {
                assert_eq!(host.session.want(), Want::Later);
                host.session.go_on(&mut targets, NOW);
            } else {
                at += host.session.receive(&mut targets, &proof[at..], NOW);
            }
            let now = host.session.take_tries();
            assert!(now <= 64, "{now} secrets at once");
            (turns, tries) = (turns + usize::from(now > 0), tries + now);
        }
        // Whether one is right shows in nothing that takes time.
        assert_eq!((turns, tries), (10_000usize.div_ceil(64), 10_000));
        host.work(&mut targets);
        assert_eq!(host.replies()[0].0.u16_at(36), 0, "a discovery session begins whatever is proven in it");
        host.feed(&mut targets, &login(0x87, &[]));
        host.replies();
        let mut ask = Header::reply(request::TEXT);
        ask.put_u32(16, 5).put_u32(20, u32::MAX).put_u32(24, 1);
        host.feed(&mut targets, &pdu(ask, b"SendTargets=All\0"));
        let (_, names) = host.replies().remove(0);
        let names = names.split(|&b| b == 0).filter(|pair| pair.starts_with(b"TargetName="));
        assert_eq!(names.count(), shows);
    }
}
