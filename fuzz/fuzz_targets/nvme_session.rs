//! Any bytes, in any pieces, to an NVMe/TCP session: no panic, no endless loop, nothing beyond its bounds.
//!
//! The first byte chooses how the rest is cut, what the connection is before it comes (nothing, an admin queue, an I/O
//! queue, a discovery controller's), whether hosts must prove who they are, and how commands end.
#![no_main]

mod nvme;

use henge_core::{Duration, Instant};
use henge_nvme::auth::Key;
use henge_nvme::{Access, DISCOVERY, Reach, SubsystemId, Subsystems};
use libfuzzer_sys::fuzz_target;
use nvme::{Host, NQN, SECRET, namespace};

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let mut subsystems = Subsystems::at(1);
    let id = subsystems.add(NQN, Access::default(), namespace()).expect("the first");
    // A controller that is there already may do all; its other queues, and new hosts, are to prove who they are.
    let is_guarded = how & 0x0f == 0x0e;
    let mut admin = Host::new(&mut subsystems, how);
    let stage = how >> 6;
    if stage == 2 {
        admin.begin(&mut subsystems, 0, 0xffff, NQN);
    }
    if is_guarded {
        let key = Key::parse(SECRET).expect("well formed");
        let access = Access { key: Some(key.clone()), controller_key: Some(key), ..Access::default() };
        subsystems.set_access(id, access);
    }
    let mut host = Host::new(&mut subsystems, how);
    match stage {
        1 => host.begin(&mut subsystems, 0, 0xffff, NQN),
        2 => host.begin(&mut subsystems, 1, 1, NQN),
        3 => host.begin(&mut subsystems, 0, 0xffff, DISCOVERY),
        _ => {}
    }
    let step = usize::from(how & 0x0f) * 16 + 1;
    for (n, piece) in data.chunks(step).enumerate() {
        host.feed(&mut subsystems, piece);
        disturb(&mut subsystems, id, how, n);
        while let Some(queue) = subsystems.next_poked() {
            let poked = if queue == host.session.queue() { &mut host } else { &mut admin };
            poked.session.poke(&mut subsystems);
            poked.work(&mut subsystems);
        }
        host.session.tick(&mut subsystems, Instant::ZERO + Duration::from_secs(n as u64 / 8));
    }
    host.end(&mut subsystems);
    admin.end(&mut subsystems);
});

/// Now and then the disk grows, cannot be reached, or goes.
fn disturb(subsystems: &mut Subsystems, id: SubsystemId, how: u8, n: usize) {
    if how & 0x0f != 0x0f {
        return;
    }
    match n % 16 {
        3 => subsystems.resize(id, (n as u64 + 16) << 19),
        5 => subsystems.set_reach(id, Reach::Inaccessible),
        6 => subsystems.set_reach(id, Reach::Detour),
        15 => subsystems.remove(id),
        _ => {}
    }
}
