//! However the stream is cut, the session says the same; and whatever comes, it stays within its bounds.

use crate::host::*;
use henge_iscsi::Limits;
use henge_iscsi::chap::Access;
use henge_iscsi::wire::{Header, request};
use proptest::prelude::*;

/// A conversation: login, then commands with CmdSNs in order.
fn conversation(choices: &[(u8, u8, u8)], digest: bool) -> Vec<u8> {
    let digests = ["HeaderDigest=CRC32C", "DataDigest=CRC32C"];
    let mut bytes = plain_login(if digest { &digests } else { &[] });
    let mut push = |header: Header, data: &[u8]| {
        bytes.extend(if digest { pdu_digested(header, data) } else { pdu(header, data) });
    };
    for (i, &(what, lba, blocks)) in choices.iter().enumerate() {
        let (itt, number) = (100 + i as u32, 1 + i as u32);
        let blocks = blocks % 9;
        let len = u32::from(blocks) * 512;
        let data: Vec<u8> = (0..len).map(|b| b as u8 ^ lba).collect();
        match what % 6 {
            0 => push(scsi_header(0xa0, itt, number, len, &cdb10(0x2a, lba, blocks)), &data),
            1 => push(scsi_header(0xc0, itt, number, len, &cdb10(0x28, lba, blocks)), &[]),
            2 => push(scsi_header(0xc0, itt, number, 255, &[0x12, 0, 0, 0, 255, 0]), &[]),
            // More data than the command wants, which is taken and dropped
            3 => push(scsi_header(0xa0, itt, number, len, &cdb10(0x2a, lba, blocks / 2)), &data),
            4 => push(scsi_header(0xa0, itt, number, len, &[what, lba, blocks, 0, 0, 0]), &data),
            _ => {
                let mut ping = Header::reply(0x40 | request::NOP);
                ping.put_u32(16, itt).put_u32(20, u32::MAX).put_u32(24, number);
                push(ping, &data[..data.len().min(usize::from(lba))]);
                // An immediate PDU takes no number, so the next one is the same again.
                push(scsi_header(0x80, itt, number, 0, &[0; 6]), &[]);
            }
        }
    }
    bytes
}

/// What is said and written when the bytes come in these pieces.
fn run(bytes: &[u8], cuts: &[usize]) -> (Vec<u8>, Vec<u8>) {
    let mut targets = targets(Access::default());
    let mut host = Host::new(&mut targets, Limits::default());
    let mut at = 0;
    for &cut in cuts.iter().cycle().take_while(|_| !cuts.is_empty()) {
        if at == bytes.len() {
            break;
        }
        let end = (at + cut).min(bytes.len());
        host.feed(&mut targets, &bytes[at..end]);
        at = end;
    }
    host.feed(&mut targets, &bytes[at..]);
    assert!(host.buffers.len() <= 144, "no more buffers than commands");
    (host.sent, host.disk)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn pieces_do_not_matter(
        choices in prop::collection::vec(any::<(u8, u8, u8)>(), 1..20),
        cuts in prop::collection::vec(1_usize..700, 1..8),
        digest in any::<bool>(),
    ) {
        let bytes = conversation(&choices, digest);
        let whole = run(&bytes, &[]);
        prop_assert!(whole.0.len() > 48);
        prop_assert!(whole == run(&bytes, &cuts), "other bytes in other pieces");
        prop_assert!(whole == run(&bytes, &[1]), "other bytes one by one");
    }

    #[test]
    fn damage_harms_nobody_else(
        choices in prop::collection::vec(any::<(u8, u8, u8)>(), 1..20),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        digest in any::<bool>(),
        cut in 1_usize..700,
    ) {
        let mut bytes = conversation(&choices, digest);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        prop_assert!(run(&bytes, &[]) == run(&bytes, &[cut]), "other bytes in other pieces");
    }
}
