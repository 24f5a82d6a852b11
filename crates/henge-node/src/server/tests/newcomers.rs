//! Who has no disk yet: how many come, and what they may ask.

use super::*;
use crate::beside::Beside;
use crate::client::Client as Comer;
use crate::connection::{Connection, OPTIONS};
use crate::link::Link;
use crate::pump::Pump;
use crate::tls_tests::{Files, ann, ca, client, go, issue, moves};
use henge_tls::{Shake, Shaken};
use std::sync::{Mutex, PoisonError};

/// Four clients ask without end, and begin nothing: their questions take the round's time as commands do.
#[test]
fn questions_that_begin_nothing_take_their_part_of_a_round() {
    let mut bench = Bench::new(&disk("web", "a", "weight = 1"));
    let mut options = 3u32.to_be_bytes().to_vec(); // fixed newstyle, no zeroes
    for _ in 0..500 {
        options.extend(0x4948_4156_454f_5054u64.to_be_bytes());
        options.extend(3u32.to_be_bytes()); // NBD_OPT_LIST
        options.extend([0; 4]);
    }
    let sockets: Vec<UnixStream> = (0..4).map(|_| UnixStream::connect(&bench.path).unwrap()).collect();
    sockets.iter().for_each(|mut socket| socket.write_all(&options).unwrap());
    let mut asked = 0;
    for _ in 0..40 {
        let before = bench.server.plane.taken_in;
        bench.round();
        let (_, messages) = bench.server.plane.taken_in.since(before);
        asked += messages;
        // As many as fit, and the piece by which it ends.
        assert!(u64::from(messages) <= ROUND / 1_000 + u64::from(OPTIONS), "{messages} in a round");
    }
    assert!(asked > 400, "{asked}");

    // What an answer takes has no fixed price. Where a round's time is over, it ends after one piece, of questions or of answers.
    bench.server.plane.round.ends_at(std::time::Instant::now());
    let mut asked = 0;
    for _ in 0..20 {
        let before = bench.server.plane.taken_in;
        bench.round();
        let (_, messages) = bench.server.plane.taken_in.since(before);
        assert!(messages <= OPTIONS, "{messages} in a round that is over");
        asked += messages;
    }
    assert!(asked > 0);
}

/// A hundred wait at the door at any time, and go as soon as they are greeted.
#[test]
fn clients_are_let_in_no_faster_than_they_may() {
    let mut bench = Bench::new(&disk("web", "a", "weight = 1"));
    let (mut waiting, mut came) = (Vec::new(), 0);
    let begun = bench.server.now;
    while bench.server.now.since(begun) < Duration::from_millis(20) {
        while waiting.len() < 100 {
            let socket = UnixStream::connect(&bench.path).unwrap();
            socket.set_nonblocking(true).unwrap();
            waiting.push(socket);
        }
        bench.round();
        bench.server.now += Duration::from_micros(10);
        waiting.retain(|mut socket| !socket.read(&mut [0; 64]).is_ok_and(|n| n > 0));
        came += 100 - waiting.len();
    }
    // 64 at once, and 4,000 a second.
    assert!((140..=145).contains(&came), "{came} in 20 ms");
    (0..3).for_each(|_| _ = bench.round());
    assert!(bench.server.due() > Some(bench.server.now), "those who wait do not keep the loop awake");
}

/// Its other tests have descriptors, too: it runs itself again.
#[test]
fn clients_that_no_descriptor_is_left_for_do_not_wake_the_loop_without_end() {
    let name =
        "server::tests::newcomers::clients_that_no_descriptor_is_left_for_do_not_wake_the_loop_without_end";
    if !crate::children::is_alone(name) {
        return;
    }
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::os::fd::AsRawFd;
    let mut bench = Bench::new(&disk("web", "a", "weight = 1"));
    let _client = UnixStream::connect(&bench.path).unwrap();
    let limit = getrlimit(Resource::Nofile);
    let free = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(free), ..limit }).unwrap();
    let (mut woken, mut events) = (0, Vec::with_capacity(EVENTS));
    for _ in 0..20 {
        bench.server.events(&mut events, Some(Duration::ZERO)).unwrap();
        woken += usize::from(!events.is_empty());
        events.iter().for_each(|event| bench.server.happened(event));
        bench.server.turn();
    }
    setrlimit(Resource::Nofile, limit).unwrap();
    let here = |bench: &Bench| bench.server.clients.all.len();
    assert_eq!((woken, here(&bench)), (1, 0));
    bench.server.now += Duration::from_secs(1);
    (0..2).for_each(|_| _ = bench.round());
    assert_eq!(here(&bench), 1, "it is let in once there is room");
}

/// While it is held, no step of a handshake is taken.
static SHAKES: Mutex<()> = Mutex::new(());

fn when_it_may(shake: Shake) -> Shaken {
    let _now = SHAKES.lock().unwrap_or_else(PoisonError::into_inner);
    shake.run()
}

/// Whoever is served does not wait for a stranger's key exchange and signature.
#[test]
fn handshakes_are_computed_beside_the_loop() {
    let root = ca("ours");
    let files = Files::new(&root);
    let mut bench = Bench::new(&disk("web", "a", "weight = 1"));
    let mut victim = bench.client("web", 4096, 0);
    bench.server.clients.shakes = Beside::new("henge-test", when_it_may, bench.server.ways.own.waker());
    let held = SHAKES.lock().unwrap_or_else(PoisonError::into_inner);

    let (ours, mut socket) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    let session = Connection::new(None, Limits::default(), Instant::ZERO);
    let session = session.with_tls(henge_nbd::Tls::Require, Some(files.open()));
    assert!(bench.server.entrance.slots.admit(None));
    bench.server.take_in(Comer::new(Link::new(ours.into()), Box::new(Pump::new(session))));
    socket.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0").unwrap();
    (0..4).for_each(|_| _ = bench.round());
    assert_eq!(socket.read(&mut [0; 256]).unwrap(), 18 + 20, "greeted, and told to begin");

    let mut stranger = client(&root, Some(&issue(&root, ann)));
    stranger.writer().write_all(&go("web")).unwrap();
    moves(&mut stranger, &mut socket).unwrap();
    victim.ask();
    (0..4).for_each(|_| _ = bench.round());
    assert_eq!(victim.heard(), Some(16 + 4096));
    assert!(stranger.wants_read() && socket.read(&mut [0; 1]).is_err(), "nothing is signed yet");
    drop(held);
    let mut answer = [0; 256];
    while stranger.is_handshaking() || stranger.reader().read(&mut answer).is_err() {
        if !bench.server.clients.shakes.is_idle() {
            // The thread wakes the loop.
            bench.server.events(&mut Vec::with_capacity(EVENTS), None).unwrap();
        }
        bench.round();
        moves(&mut stranger, &mut socket).unwrap();
    }
    assert!(answer.starts_with(&0x3_e889_0455_65a9u64.to_be_bytes()), "it is answered");
}
