//! However the stream is cut, the session says the same; and whatever comes, it stays within its bounds.

use crate::host::*;
use henge_nvme::{Limits, Subsystems};
use proptest::prelude::*;

/// A conversation on an I/O queue, whose controller is there already. Data that have to be asked for are in it where the
/// session, which asks at once and in order, will have asked for them.
fn conversation(choices: &[(u8, u8, u8)], wire: Wire, cntlid: u16) -> Vec<u8> {
    let mut bytes = wire.hello();
    let (entry, data) = connect(1, cntlid, NQN, choices.len().is_multiple_of(2));
    bytes.extend(wire.command(entry, &data));
    let mut tag = 0;
    for (i, &(what, first, blocks)) in choices.iter().enumerate() {
        let (cid, blocks) = (1 + i as u16, u32::from(blocks % 9) + 1);
        let len = blocks as usize * 512;
        let data: Vec<u8> = (0..len).map(|b| b as u8 ^ first).collect();
        let first = u64::from(first);
        match what % 8 {
            0 => bytes.extend(wire.command(Entry::new(1, cid).blocks(first, blocks).in_capsule(len), &data)),
            1 => bytes.extend(wire.command(Entry::new(2, cid).blocks(first, blocks).at_host(len), &[])),
            2 => {
                tag += 1;
                bytes.extend(wire.command(Entry::new(1, cid).blocks(first, blocks).at_host(len), &[]));
                let (front, back) = data.split_at(len / 2);
                bytes.extend(wire.data(cid, tag, 0, front, false));
                bytes.extend(wire.data(cid, tag, front.len() as u32, back, true));
            }
            3 => {
                let zero = vec![0; len];
                let compare = Entry::new(5, cid).blocks(first, blocks).fuse(1).in_capsule(len);
                let write = Entry::new(1, 1000 + cid).blocks(first, blocks).fuse(2).in_capsule(len);
                bytes.extend(wire.command(compare, &zero));
                bytes.extend(wire.command(write, &data));
            }
            // Data that nobody wants, or too few of them.
            4 => {
                bytes.extend(wire.command(Entry::new(what, cid).blocks(first, blocks).in_capsule(len), &data))
            }
            5 => bytes
                .extend(wire.command(Entry::new(1, cid).blocks(first, blocks + 1).in_capsule(len), &data)),
            6 => bytes.extend(wire.command(Entry::new(5, cid).blocks(first, blocks).in_capsule(len), &data)),
            _ => bytes.extend(wire.command(Entry::new(0, cid).nsid(1), &[])),
        }
    }
    bytes
}

/// A host's controller, and the I/O queue to be.
fn begin(wire: Wire) -> (Subsystems, Driver, u16) {
    let (mut subsystems, _) = subsystems();
    let (admin, cntlid) = admin(&mut subsystems, wire, NQN);
    (subsystems, admin, cntlid)
}

/// What is said and written when the bytes come in these pieces.
fn run(
    choices: &[(u8, u8, u8)],
    wire: Wire,
    cuts: &[usize],
    damage: &[(prop::sample::Index, u8)],
) -> (Vec<u8>, Vec<u8>) {
    let (mut subsystems, _admin, cntlid) = begin(wire);
    let mut bytes = conversation(choices, wire, cntlid);
    for (at, value) in damage {
        let at = at.index(bytes.len());
        bytes[at] = *value;
    }
    let mut driver = Driver::new(&mut subsystems, Limits::default());
    let mut at = 0;
    for &cut in cuts.iter().cycle().take_while(|_| !cuts.is_empty()) {
        if at == bytes.len() {
            break;
        }
        let end = (at + cut).min(bytes.len());
        driver.feed(&mut subsystems, &bytes[at..end]);
        at = end;
    }
    driver.feed(&mut subsystems, &bytes[at..]);
    assert!(driver.buffers.len() <= 32, "no more buffers than commands");
    (driver.sent, driver.disk)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn pieces_do_not_matter(
        choices in prop::collection::vec(any::<(u8, u8, u8)>(), 1..20),
        cuts in prop::collection::vec(1_usize..700, 1..8),
        header in any::<bool>(),
        data in any::<bool>(),
    ) {
        let wire = Wire { header, data };
        let whole = run(&choices, wire, &[], &[]);
        let said = split(&whole.0);
        prop_assert!(said.len() > choices.len() && said.iter().all(|reply| reply.kind != 3), "{said:?}");
        prop_assert!(whole == run(&choices, wire, &cuts, &[]), "other bytes in other pieces");
        prop_assert!(whole == run(&choices, wire, &[1], &[]), "other bytes one by one");
    }

    #[test]
    fn damage_harms_nobody_else(
        choices in prop::collection::vec(any::<(u8, u8, u8)>(), 1..20),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        digests in any::<bool>(),
        cut in 1_usize..700,
    ) {
        let wire = Wire { header: digests, data: digests };
        prop_assert!(run(&choices, wire, &[], &damage) == run(&choices, wire, &[cut], &damage), "other bytes in other pieces");
    }
}
