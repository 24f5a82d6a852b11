//! Any bytes, in any pieces, from a PVFS2 client and its server: no panic, no endless loop, and every byte goes on.
//!
//! The first byte chooses how the rest is cut, which pieces come from the server, and in which order requests that are held
//! are released or given up, several pieces later, and whether bulk data passes unseen.
#![no_main]

use henge_pvfs2::{Connection, ConnectionEvent, HEADER_LEN, RequestBody};
use libfuzzer_sys::fuzz_target;

/// No message must be seen whole beyond this.
const NEEDED_MAX: usize = 24 + (128 << 10);

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let mut connection = Connection::new();
    let mut unread = [Vec::new(), Vec::new()];
    let mut passed = 0;
    let mut held = std::collections::VecDeque::new();
    for (i, piece) in data.chunks(usize::from(how >> 2) + 1).enumerate() {
        // Requests are released or given up some pieces later, the newest or the oldest first.
        let due = if how & 4 == 0 { held.pop_back() } else { held.pop_front() };
        if let Some(tag) = due.filter(|_| i % 3 != 0) {
            if how & 2 == 0 || i % 5 != 0 { connection.release(tag) } else { connection.forget(tag) }
        } else {
            held.extend(due);
        }
        let side = i % 2 & usize::from(how & 1);
        unread[side].extend_from_slice(piece);
        loop {
            // Bulk data may go through the pipe instead: its header is looked at alone, and of the rest only the number of bytes.
            let left = if side == 0 { connection.bulk_from_client() } else { connection.bulk_from_server() };
            let piped = left.min(unread[side].len() as u64);
            if how & 8 != 0 && piped > 0 {
                if side == 0 { connection.moved_from_client(piped) } else { drop(connection.moved_from_server(piped)) }
                unread[side].drain(..piped as usize);
                passed += piped as usize;
                continue;
            }
            if let Some(header) = unread[side].first_chunk::<HEADER_LEN>().filter(|_| how & 8 != 0) {
                let begins = match side {
                    0 => connection.begins_bulk_from_client(header) && connection.from_client(header).what == ConnectionEvent::Pass,
                    _ => connection.begins_bulk_from_server(header) && connection.from_server(header).0.what == ConnectionEvent::Pass,
                };
                if begins {
                    unread[side].drain(..HEADER_LEN);
                    passed += HEADER_LEN;
                    continue;
                }
            }
            if unread[side].is_empty() {
                break;
            }
            let (len, event) = if side == 0 {
                let step = connection.from_client(&unread[0]);
                (step.len, step.what)
            } else {
                let (step, _) = connection.from_server(&unread[1]);
                (step.len, step.what)
            };
            match event {
                ConnectionEvent::NeedMore(needed) => {
                    assert!(len == 0 && needed > unread[side].len() && needed <= NEEDED_MAX);
                    break;
                }
                ConnectionEvent::Hold { tag, request } => {
                    let RequestBody::Io(io) = &request.body else { panic!("only I/O is held") };
                    let _ = (io.estimate(), io.bytes_here(u64::from(how) << 10));
                    held.push_back(tag);
                }
                // The proxy closes it.
                ConnectionEvent::Refuse => return,
                // What the proxy answers itself is a whole message, and goes nowhere.
                ConnectionEvent::Answer { .. } => assert_eq!(side, 0),
                ConnectionEvent::Pass | ConnectionEvent::Opaque | ConnectionEvent::HoldAlone { .. } => {}
            }
            assert!(len > 0 && len <= unread[side].len());
            unread[side].drain(..len);
            passed += len;
            if unread[side].is_empty() {
                break;
            }
        }
    }
    assert_eq!(passed + unread[0].len() + unread[1].len(), data.len());
});
