//! Any bytes to either end of a TLS connection, in any pieces, at its beginning or once a true handshake is over. No panic, and no more is
//! kept than a record or a message of the handshake.
#![no_main]

use henge_tls::{Channel, Clients, Dial, Identity, Next, Request, Role, Root, Tls, TlsConfig, believe, keep};
use libfuzzer_sys::fuzz_target;
use std::io::IoSlice;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

static NODES: LazyLock<(Tls, Dial)> = LazyLock::new(|| {
    let (now, dir) = (SystemTime::now(), tempfile::tempdir().expect("a folder"));
    let root = Root::open(&Root::create("demo", now).expect("a root")).expect("the same");
    let request = Request::new().expect("a key");
    let who = Identity { cluster: "demo".into(), role: Role::Node, name: "n1".into() };
    let issued =
        root.issue(&request.pem, &who, &[], "", now, Duration::from_secs(86_400)).expect("a certificate");
    keep(dir.path(), Role::Node, &request.key, &issued.chain).expect("files");
    believe(dir.path(), Role::Node, root.pem(), "").expect("files");
    let files = TlsConfig::of(dir.path());
    let dial = Dial::open(&files, Role::Node, None, now).expect("the same files");
    (Tls::open(&files, Clients::Required).unwrap_or_else(|e| panic!("{}", e.message)), dial)
});

/// False once nothing more is taken.
fn give(channel: &mut Channel, mut bytes: &[u8], lands: bool) -> bool {
    let (mut plain, mut payload) = ([0; 300], vec![0; if lands { 40_000 } else { 0 }]);
    loop {
        while channel.take(&mut plain) > 0 {}
        match channel.step() {
            Err(_) => return false,
            Ok(Next::Step) => {}
            Ok(Next::Shake) => {
                let shake = channel.lend().expect("it is due");
                channel.shaken(shake.run());
            }
            Ok(Next::Bytes) if bytes.is_empty() || channel.is_ended() => return true,
            Ok(Next::Bytes) => {
                let landed = channel.land(&mut payload, |pieces| {
                    let mut came = 0;
                    for piece in pieces {
                        let (here, rest) = bytes.split_at(piece.len().min(bytes.len()));
                        piece[..here.len()].copy_from_slice(here);
                        (bytes, came) = (rest, came + here.len());
                    }
                    Ok::<usize, ()>(came)
                });
                if landed.expect("nothing fails").is_some() {
                    continue;
                }
                let Some(space) = channel.space() else { continue };
                let n = bytes.len().min(space.capacity() - space.len());
                assert!(n > 0 && space.capacity() <= 256 << 10);
                space.extend_from_slice(&bytes[..n]);
                bytes = &bytes[n..];
            }
        }
    }
}

fn said(channel: &mut Channel) -> Vec<u8> {
    let mut bytes = Vec::new();
    while channel.has_output() {
        let mut slices = [IoSlice::new(&[]); 4];
        let count = channel.output(&mut slices);
        let before = bytes.len();
        slices[..count].iter().for_each(|slice| bytes.extend_from_slice(slice));
        let n = bytes.len() - before;
        channel.written(n);
    }
    bytes
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let (tls, dial) = &*NODES;
    // As in a node: who is dialled has its handshake's steps taken elsewhere.
    let mut ends = [(dial.handshake(), false), (tls.handshake(), true)]
        .map(|(begun, lends)| Channel::new(begun.expect("randomness"), lends));
    // So many true messages first: none, a hello, all.
    for turn in 0..usize::from(how & 7) {
        let bytes = said(&mut ends[turn % 2]);
        assert!(give(&mut ends[1 - turn % 2], &bytes, false));
    }
    let end = &mut ends[usize::from(how >> 3 & 1)];
    for piece in data.chunks(usize::from(how >> 4) * 50 + 1) {
        if !give(end, piece, how & 0x40 != 0) {
            break;
        }
    }
    let _ = end.write(&[IoSlice::new(b"and back")]);
    said(end);
});
