//! READs of a hot disk by a loop without its gate: they have their turn there, and are read here.

use super::*;
use crate::turns::Of;

/// Disk y, whose gate is at shard 1: a client at shard 0, and one at shard 1. Its first 64 KiB are ones.
fn both() -> (Pair, UnixStream, UnixStream) {
    let mut pair = Pair::of(64, "every_core = true", "");
    let mut clients = [pair.nbd(), pair.nbd()];
    for client in &mut clients {
        client.write_all(&go("y")).unwrap();
        assert_eq!(pair.until(client, SAID).len(), SAID);
    }
    assert_eq!(pair.connected(), [1, 1]);
    let [away, mut near] = clients;
    near.write_all(&write(1, 0, 1, 65_536)).unwrap();
    pair.until(&mut near, 16);
    (pair, away, near)
}

/// Requests that the gate of y has served.
fn served(pair: &Pair) -> u64 {
    let gate = pair.servers[1].plane.pools.gates[0].pipeline.gate();
    gate.flows().filter_map(|flow| gate.flow_meters(flow)).map(|meters| meters.completed.requests).sum()
}

/// The client's READ of some bytes has had its turn at the gate, and its own loop has not looked since.
fn had_its_turn(pair: &mut Pair, away: &mut UnixStream, at: u64, len: u32) {
    let before = served(pair);
    away.write_all(&command(0, 2, at, len)).unwrap();
    pair.round(0);
    pair.round(1);
    assert_eq!(served(pair), before + 1);
}

#[test]
fn bytes_are_read_by_the_loop_of_their_client_after_their_turn() {
    let (mut pair, mut away, mut near) = both();
    had_its_turn(&mut pair, &mut away, 0, 8192);
    // A write that begins before the READ is answered may be seen by it.
    near.write_all(&write(3, 0, 2, 4096)).unwrap();
    (0..3).for_each(|_| pair.round(1));
    let got = pair.until(&mut away, 16 + 8192);
    assert!(got[16..16 + 4096] == [2; 4096] && got[16 + 4096..] == [1; 4096], "{}", got[16]);
    // At any address, and longer ones as before.
    for (at, len) in [(1, 1), (4000, 200), (100, 60_000), (0, 300_000)] {
        away.write_all(&command(0, 4, at, len)).unwrap();
        let got = pair.until(&mut away, 16 + len as usize);
        let byte = |at: u64| if at < 4096 { 2 } else { u8::from(at < 65_536) };
        assert!(got[16..].iter().zip(at..).all(|(got, at)| *got == byte(at)), "{len} at {at}");
    }
    assert_eq!([0, 1].map(|shard| pair.servers[shard].plane.memory.buffers.out()), [0, 0]);
}

#[test]
fn what_was_asked_before_a_part_went_is_asked_for_again() {
    let (mut pair, mut away, _near) = both();
    had_its_turn(&mut pair, &mut away, 4096, 4096);
    let replies = [1, 0].map(|shard| {
        let (reply, answer) = mpsc::channel();
        removal::begin_removing(&mut pair.servers[shard], "z".into(), reply, None);
        answer
    });
    let before = served(&pair);
    let got = pair.until(&mut away, 16 + 4096);
    assert!(got[16..] == [1; 4096] && served(&pair) == before + 1, "the gate's loop has read it");
    drop(replies);
}

/// To copy is work for the disk whose bytes they are, and a round has an end.
#[test]
fn a_round_reads_so_much_and_its_disk_is_charged() {
    let (mut pair, mut away, _near) = both();
    let number = pair.servers[0].plane.disks.number("y").unwrap();
    let asks: Vec<u8> = (0..16).flat_map(|n| command(0, n, n * 65_536, 65_536)).collect();
    away.write_all(&asks).unwrap();
    pair.round(0);
    (0..8).for_each(|_| pair.round(1));
    let (used, inside) = (pair.servers[0].turns.used(Of::Disk(number)), pair.servers[0].plane.inner.len());
    assert_eq!(inside, 16);
    pair.round(0);
    let left = pair.servers[0].plane.inner.len();
    assert!((8..16).contains(&left), "{left} are left");
    assert!(pair.servers[0].turns.used(Of::Disk(number)) >= used + (16 - left as u64) * 65_536 / 8);
    pair.until(&mut away, 16 * (16 + 65_536));
}
