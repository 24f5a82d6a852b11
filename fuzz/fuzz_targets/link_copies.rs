//! A lease owner, two replicas that keep to the rules, and a peer that says anything: whatever is lost, late or forged by that one,
//! no replica acts by less than is settled, and nothing grows without bound.
#![no_main]

use henge_core::{Duration, Instant};
use henge_link::Message;
use henge_link::copies::{LeaseOwner, Replica};
use libfuzzer_sys::fuzz_target;
use std::collections::VecDeque;

const DISK: &str = "web";

struct End {
    replica: Replica,
    acts_by: u64,
    up: bool,
    to_owner: VecDeque<Message>,
    from_owner: VecDeque<Message>,
}

fuzz_target!(|data: &[u8]| {
    let mut now = Instant::ZERO;
    let (mut epoch, mut text, mut settled) = (1, 1_u64, 0);
    let mut owner = LeaseOwner::new(epoch);
    owner.add(DISK, "1".into(), now);
    let mut ends: Vec<End> = Vec::new();
    for _ in 0..2 {
        let mut replica = Replica::new();
        replica.add(DISK, 0, true, now);
        ends.push(End {
            replica,
            acts_by: 0,
            up: true,
            to_owner: VecDeque::new(),
            from_owner: VecDeque::new(),
        });
    }
    for pair in data.chunks_exact(2) {
        let (what, much) = (pair[0], pair[1]);
        let end = &mut ends[usize::from(what >> 7)];
        match what & 0x0f {
            0..=3 => now = now + Duration::from_millis(u64::from(much) * 20),
            4 | 5 if owner.is_settled(DISK, now) => {
                text += 1;
                owner.change(DISK, text.to_string());
            }
            6 => {
                end.up = false;
                end.to_owner.clear();
                end.from_owner.clear();
                end.replica.unlinked(0);
            }
            7 => {
                end.up = true;
                end.to_owner.clear();
                end.from_owner.clear();
                end.replica.linked(0, now);
            }
            // Some of what is on its way arrives.
            8 | 9 => {
                let n = usize::from(much) % (end.to_owner.len() + 1);
                for message in end.to_owner.drain(..n) {
                    owner.heard(u32::from(what >> 7), &message, now);
                }
            }
            10 | 11 => {
                let n = usize::from(much) % (end.from_owner.len() + 1);
                for message in end.from_owner.drain(..n).collect::<Vec<_>>() {
                    if let Some(copy) = end.replica.heard(0, &message) {
                        end.acts_by = copy.text.parse().expect("a change's number");
                        end.replica.seen(DISK, copy.version);
                    }
                }
            }
            12 => {
                epoch += 1 << 32;
                owner = LeaseOwner::new(epoch);
                owner.add(DISK, text.to_string(), now);
                for end in &mut ends {
                    end.up = false;
                    end.to_owner.clear();
                    end.from_owner.clear();
                    end.replica.unlinked(0);
                }
            }
            // The stranger, to the owner and to a replica of things of another owner.
            _ => {
                let thing = if much & 1 == 0 { DISK.to_owned() } else { "other".to_owned() };
                let number = u64::from(much) << (what >> 2 & 0x1c);
                let forged = match much % 5 {
                    0 => Message::Heartbeat { number },
                    1 => Message::Watch { thing },
                    2 => Message::Seen { thing, version: number },
                    3 => Message::HeartbeatAnswer { number, term: number },
                    _ => Message::Copy {
                        thing,
                        term: number,
                        version: number,
                        piece: u32::from(much >> 6),
                        last: much & 0x20 != 0,
                        text: "0".into(),
                    },
                };
                owner.heard(7, &forged, now);
                assert_eq!(end.replica.heard(7, &forged), None);
            }
        }
        owner.tick(now);
        for end in &mut ends {
            end.replica.tick(now);
            while let Some((_, message)) = end.replica.next_message() {
                if end.up {
                    end.to_owner.push_back(message);
                }
            }
        }
        while let Some((peer, message)) = owner.next_message() {
            if let Some(end) = ends.get_mut(peer as usize).filter(|end| end.up) {
                end.from_owner.push_back(message);
            }
        }
        if owner.is_settled(DISK, now) {
            settled = text;
        }
        for end in &ends {
            assert!(!end.replica.is_good(DISK, now) || end.acts_by >= settled);
        }
        assert!(owner.known(DISK).count() <= 3);
    }
});
