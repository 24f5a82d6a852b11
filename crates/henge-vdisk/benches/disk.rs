//! What a virtual disk costs: submit, hand out, join and answer of one command.
//!
//! `cargo bench -p henge-vdisk` prints ns per command, the best of several rounds.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use henge_core::{FlowId, Instant};
use henge_vdisk::{Array, Command, Extent, GateId, Kind, Layout, Settings, Target, VirtualDisk};
use std::hint::black_box;
use std::sync::Arc;

const DEPTH: u64 = 32;

fn batch(disk: &mut VirtualDisk, parts: &mut Vec<henge_vdisk::PartId>, kind: Kind, offset: u64, len: u64) {
    for i in 0..DEPTH {
        let at = (offset + i * 7_340_032) % (1 << 39);
        disk.submit(Command::new(kind, at, len, Instant::ZERO, i)).expect("far below the bound");
    }
    while let Some(part) = disk.next_part(&mut ()) {
        black_box(&part.request);
        parts.push(part.id);
    }
    for part in parts.drain(..) {
        disk.part_done(part, Ok(()));
    }
    while let Some(done) = disk.next_finished() {
        black_box(done.outcome).expect("nothing fails here");
    }
}

fn main() {
    let gate = |g| Target::Gate(GateId(g));
    let extent = |target| Extent { target, base: 0, len: 1 << 40 };
    let spindles = Target::Array(Arc::new(Array { unit: 64 << 10, spindles: (0..4).map(GateId).collect() }));
    let single = || Layout::single(GateId(0), 0, 1 << 40);
    let striped = || Layout::new(1 << 40, 64 << 10, (0..4).map(|g| extent(gate(g))).collect());
    let array = || Layout::new(1 << 40, 64 << 10, vec![extent(spindles.clone())]);
    let cases = [
        ("read 4KiB, one extent", single(), Kind::Read, 4096),
        ("write 4KiB, one extent", single(), Kind::Write, 4096),
        ("read 4KiB, four extents", striped().expect("sound"), Kind::Read, 4096),
        ("read 4KiB, four spindles", array().expect("sound"), Kind::Read, 4096),
        ("read 256KiB, four extents (4 parts)", striped().expect("sound"), Kind::Read, 256 << 10),
    ];
    for (name, layout, kind, len) in cases {
        let mut disk = VirtualDisk::new(FlowId(0), layout, Settings::default()).expect("aligned to 1");
        let mut parts = Vec::new();
        let rounds = 5000;
        let best = (0..7)
            .map(|_| {
                let start = std::time::Instant::now();
                for round in 0..rounds {
                    batch(&mut disk, &mut parts, kind, round << 20, len);
                }
                start.elapsed().as_nanos() as f64 / (rounds * DEPTH) as f64
            })
            .fold(f64::INFINITY, f64::min);
        println!("{name}: {best:.0} ns per command");
    }
}
