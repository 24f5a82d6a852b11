//! Who has no disk yet: how many come, and what they may ask.

use super::*;

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
        assert!(u64::from(messages) <= ROUND / 1_000 + u64::from(COMMANDS), "{messages} in a round");
    }
    assert!(asked > 400, "{asked}");
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
