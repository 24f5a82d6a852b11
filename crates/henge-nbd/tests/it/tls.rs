//! TLS is asked for and required as doc/proto.md has it: "TLS support", "NBD_OPT_STARTTLS". Bytes are written by hand from that text.

use crate::common::{NOW, Server, h};
use henge_nbd::{Closed, Export, Limits, SessionEvent, Tls, Wants};

const OPT: &str = "49484156454F5054";
const REP: &str = "0003e889045565a9";

fn haggling(tls: Tls) -> Server {
    let mut s = Server::new(vec![Export::new("disk", 1 << 20)], Limits::default());
    s.session = henge_nbd::Session::new(Limits::default(), NOW).with_tls(tls);
    s.talk("00000003", "'NBDMAGIC' 'IHAVEOPT' 0003");
    s
}

/// STARTTLS, acknowledged; the driver has begun TLS.
fn begin(s: &mut Server) {
    s.feed(&h(&format!("{OPT} 00000005 00000000")));
    assert_eq!(s.event(), SessionEvent::StartTls);
    // Not before the acknowledgement is out, and nothing is read in clear until then.
    assert!(!s.session.is_ready_for_tls());
    assert_eq!(s.session.wants(), Wants::Nothing);
    assert_eq!(s.take(), h(&format!("{REP} 00000005 00000001 00000000")));
    assert!(s.session.is_ready_for_tls());
    s.session.encrypted();
    assert_eq!(s.session.wants(), Wants::Bytes);
}

#[test]
fn where_tls_is_required_nothing_is_told_before() {
    // LIST, STRUCTURED_REPLY, INFO, GO, LIST_META_CONTEXT, SET_META_CONTEXT, and an option that nobody knows.
    for option in ["00000003", "00000008", "00000006", "00000007", "00000009", "0000000a", "0000abcd"] {
        let mut s = haggling(Tls::Require);
        s.talk(
            &format!("{OPT} {option} 0000000a 00000004 'disk' 0000"),
            &format!("{REP} {option} 80000005 00000018 'this server requires TLS'"),
        );
        assert_eq!(s.events, []);
        // It may still begin.
        begin(&mut s);
        s.talk(&format!("{OPT} 00000001 00000004 'disk'"), "0000000000100000 0d6d");
    }
    // "if the client sends NBD_OPT_EXPORT_NAME, the server MUST terminate": the export that is there as that which is not.
    for name in ["disk", "disc"] {
        let mut s = haggling(Tls::Require);
        s.talk(&format!("{OPT} 00000001 00000004 '{name}'"), "");
        assert_eq!(s.event(), SessionEvent::Closed(Closed::TlsRequired));
    }
    let mut s = haggling(Tls::Require);
    s.talk(&format!("{OPT} 00000002 00000000"), &format!("{REP} 00000002 00000001 00000000"));
    assert_eq!(s.event(), SessionEvent::Closed(Closed::Abort));
}

#[test]
fn what_was_settled_in_clear_is_forgotten() {
    let mut s = haggling(Tls::Allow);
    s.talk(&format!("{OPT} 00000008 00000000"), &format!("{REP} 00000008 00000001 00000000"));
    begin(&mut s);
    // Without structured replies: flags without DF, 0x80.
    s.talk(&format!("{OPT} 00000001 00000004 'disk'"), "0000000000100000 0d6d");
}

#[test]
fn tls_begins_once_and_with_nothing_behind_its_question() {
    let mut s = haggling(Tls::Allow);
    s.talk(
        &format!("{OPT} 00000005 00000001 00"),
        &format!("{REP} 00000005 80000003 00000017 'this option has no data'"),
    );
    begin(&mut s);
    s.talk(
        &format!("{OPT} 00000005 00000000"),
        &format!("{REP} 00000005 80000003 00000015 'TLS has begun already'"),
    );
    // Somebody on the way puts an option behind the question, to be taken for an encrypted one.
    let mut s = haggling(Tls::Require);
    s.feed(&h(&format!("{OPT} 00000005 00000000 {OPT} 00000001 00000004 'disk'")));
    let SessionEvent::Closed(Closed::Garbage(why)) = s.event() else { panic!("it goes on") };
    assert!(why.contains("STARTTLS"), "{why}");
    // Newstyle that is not fixed has no answer but the end.
    let mut s = Server::new(vec![], Limits::default());
    s.session = henge_nbd::Session::new(Limits::default(), NOW).with_tls(Tls::Require);
    s.feed(&h(&format!("00000000 {OPT} 00000005 00000000")));
    assert!(matches!(s.event(), SessionEvent::Closed(Closed::Garbage(_))));
}

#[test]
fn a_handshake_that_never_comes_ends_in_time() {
    let mut s = haggling(Tls::Require);
    begin(&mut s);
    let deadline = s.session.wake_at().expect("the handshake has a deadline still");
    assert_eq!(s.session.tick(deadline), Some(Closed::Late));
}
