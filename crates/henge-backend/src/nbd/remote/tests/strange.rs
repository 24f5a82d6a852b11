//! Servers that come back, and do not do what they did.

use super::*;

/// Each time it is back it takes the same request, and is lost by it: it dies of it, or answers what nobody asked.
#[test]
fn a_request_by_which_the_server_is_lost_again_and_again_fails_and_is_not_sent_without_end() {
    for lies in [false, true] {
        let mut bench = Bench::new(ALL, terms(2, false));
        bench.ask(Op::Read, 0, 4096, false, 0);
        let (mut sent, mut over) = (0, Vec::new());
        while over.is_empty() && sent < 1000 {
            bench.turn();
            if let Some(asked) = bench.server.asked.pop() {
                sent += 1;
                match &mut bench.server.wires[asked.wire] {
                    Some((stream, _)) if lies => stream.write_all(&[7; 16]).unwrap(),
                    _ => bench.server.cut(asked.wire),
                }
            } else {
                bench.dial();
            }
            over = bench.over();
        }
        assert_eq!(over, [(0, Err(Fault::Unreachable))], "sent {sent} times");
        assert!((5..30).contains(&sent), "sent {sent} times");
        assert!(bench.now < Instant::ZERO + Duration::from_secs(40));
        // Others are served, and dialled for at once.
        bench.now += Duration::from_secs(10);
        bench.ask(Op::Write, 0, 4096, false, 1);
        bench.dial();
        assert_eq!(bench.all(), [(1, Ok(()))]);
        bench.now += Duration::from_secs(10);
        bench.server.kill();
        bench.turn();
        assert!(bench.remote.is_to_dial(bench.now));
    }
}

#[test]
fn what_a_server_cannot_do_any_more_when_it_is_back_is_said() {
    let mut bench = Bench::new(ALL, terms(1, false));
    let mut back = |change: fn(&mut Server)| {
        bench.server.kill();
        bench.turn();
        change(&mut bench.server);
        bench.now = bench.remote.dials_at().unwrap_or(bench.now).max(bench.now);
        assert!(bench.remote.is_to_dial(bench.now));
        let dialed = bench.server.dial();
        bench.remote.dialed(Ok(dialed), bench.now);
        (bench.remote.links.alive(), bench.notices().join("; "))
    };
    let (alive, said) = back(|server| server.flags &= !flag::SEND_FLUSH);
    assert!(alive == 1 && said.contains("knows no FLUSH"), "{said}");
    let (alive, said) = back(|server| server.flags |= flag::READ_ONLY);
    assert!(alive == 1 && said.contains("read-only") && !said.contains("FLUSH"), "{said}");
    // The node has told its clients of blocks of one byte.
    let (alive, said) = back(|server| server.least = 4096);
    assert!(alive == 0 && said.contains("its blocks have 4096 bytes, and had 1"), "{said}");
}
