//! Any bytes from a server to an NBD client: no panic, no endless loop.
#![no_main]

use henge_nbd::{Ask, Client, ClientEvent, Wish};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let structured = how & 1 == 1;
    let mut client = Client::new(Wish { export: "disk".into(), structured, allocation: structured });
    let step = usize::from(how >> 1) + 1;
    let mut rest = data;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(step.min(rest.len()));
        rest = after;
        let mut input = piece;
        loop {
            let (n, event) = client.receive(input);
            input = &input[n..];
            match event {
                ClientEvent::Nothing => break,
                ClientEvent::Ready(_) => {
                    for (ask, len) in [(Ask::Read, 16), (Ask::Read, 0), (Ask::Write, 4), (Ask::BlockStatus, 512)] {
                        client.send(ask, 1, len, false);
                    }
                }
                ClientEvent::Payload { len, .. } => {
                    let n = (len as usize).min(input.len());
                    input = &input[n..];
                    client.payload(n as u32);
                    if n < len as usize {
                        return; // the rest would come with the next piece
                    }
                }
                ClientEvent::Failed(_) => return,
                _ => {}
            }
        }
        let len = client.output().len() as usize;
        client.written(len, |_| {});
    }
});
