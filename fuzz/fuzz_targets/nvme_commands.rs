//! Well-framed commands with any contents: Connect and its data, Fabrics, admin and I/O commands, ranges of Dataset Management and Copy, keys of
//! reservations. No panic, and nothing beyond the disk.
//!
//! The first byte chooses the queue, as with `nvme_session`. Then come commands: an opcode, a byte of flags, the length of the data, dwords 10 to
//! 13 and 15, and the data.
#![no_main]

mod nvme;

use henge_core::{Duration, Instant};
use henge_nvme::{Access, DISCOVERY, Subsystems};
use libfuzzer_sys::fuzz_target;
use nvme::{Host, NQN, namespace};

/// Opcodes that mean something somewhere; others come by one byte in eight.
const OPCODES: [u8; 16] =
    [0x00, 0x01, 0x02, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x0d, 0x0e, 0x11, 0x15, 0x18, 0x19, 0x7f];
/// Bytes of a command before its data.
const HEAD: usize = 24;

fuzz_target!(|input: &[u8]| {
    let Some((&how, mut input)) = input.split_first() else { return };
    let mut subsystems = Subsystems::at(1);
    subsystems.add(NQN, Access::default(), namespace()).expect("the first");
    let mut admin = Host::new(&mut subsystems, how);
    let mut host = Host::new(&mut subsystems, how);
    match how >> 6 {
        0 => host.feed(&mut subsystems, &hello()),
        1 => host.begin(&mut subsystems, 0, 0xffff, NQN),
        2 => {
            admin.begin(&mut subsystems, 0, 0xffff, NQN);
            host.begin(&mut subsystems, 1, 1, NQN);
        }
        _ => host.begin(&mut subsystems, 0, 0xffff, DISCOVERY),
    }
    let mut n = 0_u16;
    while let Some((head, rest)) = input.split_at_checked(HEAD) {
        n += 1;
        let (flags, len) = (head[1], usize::from(u16::from_le_bytes([head[2], head[3]])) & 0x0fff);
        let (data, rest) = rest.split_at(len.min(rest.len()));
        input = rest;
        let mut entry = [0; 64];
        entry[0] = if head[0] & 0xe0 == 0xe0 { head[0] } else { OPCODES[usize::from(head[0] & 15)] };
        entry[1] = flags & 3;
        entry[2..4].copy_from_slice(&n.to_le_bytes());
        // Fabrics' type, or the namespace.
        entry[4] = if entry[0] == 0x7f { head[0] >> 4 } else { 1 };
        if flags & 4 != 0 {
            entry[4..8].fill(0xff);
        }
        let told = if flags & 8 == 0 { data.len() as u32 } else { u32::from(head[4]) << 12 };
        entry[32..36].copy_from_slice(&told.to_le_bytes());
        entry[40..56].copy_from_slice(&head[4..20]);
        entry[60..64].copy_from_slice(&head[20..24]);
        host.command(&mut subsystems, entry, data, flags & 16 != 0);
        while let Some(queue) = subsystems.next_poked() {
            let poked = if queue == host.session.queue() { &mut host } else { &mut admin };
            poked.session.poke(&mut subsystems);
            poked.work(&mut subsystems);
        }
        host.session.tick(&mut subsystems, Instant::ZERO + Duration::from_secs(u64::from(n) / 8));
    }
    host.end(&mut subsystems);
    admin.end(&mut subsystems);
});

/// ICReq.
fn hello() -> Vec<u8> {
    let mut bytes = vec![0; 128];
    (bytes[2], bytes[4]) = (128, 128);
    bytes
}
