//! PERSISTENT RESERVE OUT of any bytes, by several ports, and hosts' changes: no panic, the same everywhere, and what is told is what there is.
//!
//! Each step takes a port, an action with its type, flags, and the bytes of its list. What one node decides another hears as
//! text; who has missed some of it can still tell who is gone.
#![no_main]

use henge_iscsi::scsi::{Change, Reservations};
use libfuzzer_sys::fuzz_target;

const PORTS: [&str; 6] = [
    "iqn.a,i,0x000000000001,t,0x0001",
    "iqn.a,i,0x000000000001,t,0x0002",
    "iqn.b,i,0x000000000002,t,0x0001",
    "iqn.c,i,0x000000000003",
    // Hosts by NVMe, whose lists are shorter.
    "nvme,h,0x00000000000000000000000000000001",
    "nvme,h,0x00000000000000000000000000000002",
];

fuzz_target!(|data: &[u8]| {
    let (mut here, mut there) = (Reservations::default(), Reservations::default());
    let mut data = data;
    while let Some((&[who, action, kind, flags, key, new, long, _], rest)) = data.split_first_chunk::<8>() {
        data = rest;
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[2]) = (0x5f, action % 9, kind);
        let mut list = vec![0; 24];
        // Few keys, so that they meet.
        (list[7], list[15], list[17], list[20]) = (key % 4, new % 4, flags & 3, flags & 0x0d);
        if long > 0 {
            let more = usize::from(long).min(data.len());
            list[23] = long;
            list.extend_from_slice(&data[..more]);
            data = &data[more..];
        }
        let port = PORTS[usize::from(who) % PORTS.len()];
        if port.starts_with("nvme,") {
            list.truncate(if long == 1 { 16 } else { 17 });
            if let Some(last) = list.get_mut(16) {
                *last = flags;
            }
        }
        let change = Change { cdb, list, port: port.into() };
        let before = here.clone();
        let Ok(effects) = here.apply(&change) else {
            assert_eq!(here, before, "what is refused changes nothing");
            continue;
        };
        let (told, heard) = Reservations::told(&here.tell(&effects)).expect("its own words");
        assert_eq!((&told, &heard.attentions, &heard.abort), (&here, &effects.attentions, &effects.abort));
        assert_eq!(Reservations::restore(&here.text()).as_ref(), Ok(&here));
        if kind & 1 == 0 {
            there = told; // else that node was away
        }
        let missed = there.missed(&here);
        check(&here.text(), &missed.abort);
    }
    let _ = Reservations::told(&String::from_utf8_lossy(data));
});

/// Who reserves is registered, or somebody is, and nobody who is registered is gone.
fn check(text: &str, gone: &[String]) {
    let ports = |word: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(word)?.split_once(' '));
        lines.map(|(_, port)| port.to_owned()).collect()
    };
    let registered = ports("register ");
    let all = text.contains("reserve 7 ") || text.contains("reserve 8 ");
    for holder in ports("reserve ") {
        assert!(registered.contains(&holder) || all && !registered.is_empty(), "{text}");
    }
    assert!(registered.iter().all(|port| !gone.contains(port)));
    assert!(registered.len() <= 256);
}
