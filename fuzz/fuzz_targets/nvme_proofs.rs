//! DH-HMAC-CHAP: any messages in any order, among them some that are right. No panic, and nobody is let in who does not know the secret.
//!
//! Each message begins with a byte that says what it is made of (a Negotiate, a Reply, a Success2, or nothing), its length, and how many of its bytes
//! are changed: then come places and values. A host that fetches asks for so many bytes as the next byte says.
#![no_main]

mod nvme;

use henge_nvme::auth::{Group, Key};
use henge_nvme::{Access, Subsystems, Want};
use libfuzzer_sys::fuzz_target;
use nvme::{Host, NQN, SECRET, namespace};

fuzz_target!(|input: &[u8]| {
    let Some((&how, mut input)) = input.split_first() else { return };
    let mut subsystems = Subsystems::at(1);
    let key = Key::parse(SECRET).expect("well formed");
    let weakest = if how & 0x40 == 0 { Group::Null } else { Group::Ffdhe2048 };
    let access =
        Access { key: Some(key.clone()), controller_key: Some(key), weakest, ..Access::default() };
    subsystems.add(NQN, access, namespace()).expect("the first");
    let mut host = Host::new(&mut subsystems, how);
    host.begin(&mut subsystems, 0, 0xffff, NQN);
    let mut cid = 10_u8;
    while let [what, len, changes, rest @ ..] = input {
        if host.session.want() == Want::Nothing {
            break;
        }
        cid = cid.wrapping_add(1).max(10);
        let (len, count) = (usize::from(*len) * 4, usize::from(*changes & 7));
        let (changed, rest) = rest.split_at((count * 2).min(rest.len()));
        input = rest;
        let fetches = what & 0x80 != 0;
        let mut message = made(what & 3, len);
        for pair in changed.chunks_exact(2) {
            if let Some(byte) = message.get_mut(usize::from(pair[0])) {
                *byte = pair[1];
            }
        }
        let mut entry = [0; 64];
        (entry[0], entry[2], entry[4]) = (0x7f, cid, if fetches { 6 } else { 5 });
        (entry[41], entry[42], entry[43]) = (1, 1, 0xe9);
        let told = if fetches { len as u32 } else { message.len() as u32 };
        entry[44..48].copy_from_slice(&told.to_le_bytes());
        entry[32..36].copy_from_slice(&told.to_le_bytes());
        let data = if fetches { &[][..] } else { &message };
        host.command(&mut subsystems, entry, data, !fetches && what & 0x40 == 0);
    }
    // An HMAC is not guessed: whatever was said, an Identify is refused.
    if host.session.want() != Want::Nothing {
        let mut identify = [0; 64];
        (identify[0], identify[2], identify[40]) = (0x06, 9, 1);
        identify[32..36].copy_from_slice(&4096_u32.to_le_bytes());
        host.command(&mut subsystems, identify, &[], false);
        let status = host.sent.len().checked_sub(2).map(|at| u16::from_le_bytes([host.sent[at], host.sent[at + 1]]));
        assert!(status.is_none_or(|status| status >> 1 & 0x7ff == 0x191), "nobody proved anything: {status:?}");
    }
    host.end(&mut subsystems);
});

/// A message as it should be, or zeroes.
fn made(what: u8, len: usize) -> Vec<u8> {
    let mut message = vec![0; len];
    let begin: &[u8] = match what {
        // Negotiate: one protocol, all hashes, three groups.
        1 => &[0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 3, 3, 1, 2, 3],
        // Reply: of 32 bytes, with a challenge of its own.
        2 => &[1, 2, 0, 0, 1, 0, 32, 0, 1, 0, 0, 0, 5, 0, 0, 0],
        3 => &[1, 4, 0, 0, 1, 0],
        _ => &[],
    };
    message.resize(len.max(begin.len()), 0);
    message[..begin.len()].copy_from_slice(begin);
    if what == 1 {
        message.resize(message.len().max(72), 0);
        message[42..45].copy_from_slice(&[0, 1, 2]);
    }
    if what == 2 {
        message.resize(message.len().max(80), 0);
    }
    message
}
