//! The knobs, as configuration writes them; and no allocation per command once warm.
#![allow(unsafe_code, reason = "an allocator is unsafe to write; this one counts and passes on")]

use henge_core::{Duration, Instant, Params, Value};
use henge_nbd::{Answer, Export, Limits, Session, SessionEvent, Wants};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;
thread_local! { static ALLOCATIONS: Cell<u64> = const { Cell::new(0) }; }

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}
#[global_allocator]
static GLOBAL: Counting = Counting;

#[test]
fn knobs_are_read_with_their_units() {
    let text = |s: &str| Value::Text(s.into());
    let mut params = Params::new("nbd")
        .with("commands", Value::Integer(16))
        .with("bytes", text("8MiB"))
        .with("option", text("8KiB"))
        .with("skip", text("40MiB"))
        .with("output", text("32KiB"))
        .with("handshake", text("5s"));
    let expected = Limits {
        commands: 16,
        bytes: 8 << 20,
        output: 32 << 10,
        option: 8 << 10,
        skip: 40 << 20,
        handshake: Duration::from_secs(5),
    };
    assert_eq!(Limits::take(&mut params), Ok(expected));
    assert_eq!(params.finish(), Ok(()));
    for (key, value) in [
        ("option", text("1KiB")),
        ("skip", text("5GiB")),
        ("commands", Value::Integer(0)),
        ("handshake", text("5")),
    ] {
        let error = Limits::take(&mut Params::new("nbd").with(key, value)).expect_err(key);
        assert!(error.to_string().starts_with(key), "{key}: {error}");
    }
}

/// 101 000 requests of all kinds, good and bad, in pieces of 100 bytes, replies read late.
#[test]
fn nothing_is_allocated_per_command() {
    let now = Instant::ZERO;
    let exports = [Export::new("disk", 1 << 30)];
    let mut session = Session::new(Limits { commands: 32, ..Limits::default() }, now);
    let mut input = b"\0\0\0\x03IHAVEOPT\0\0\0\x08\0\0\0\0IHAVEOPT\0\0\0\x01\0\0\0\x04disk".to_vec();
    for i in 0..1000u64 {
        let kind = (i % 9) as u16;
        let (kind, len) = if kind == 2 { (3, 0) } else { (kind, if kind == 3 { 0 } else { 100 + i as u32 }) };
        input.extend(0x2560_9513_u32.to_be_bytes());
        input.extend(0u16.to_be_bytes());
        input.extend(kind.to_be_bytes());
        input.extend(i.to_be_bytes());
        input.extend((if kind == 3 { 0 } else { i << 10 }).to_be_bytes());
        input.extend(len.to_be_bytes());
        if kind == 1 {
            input.resize(input.len() + len as usize, 7);
        }
    }
    let handshake = 4 + 16 + 20;
    let mut waiting = Vec::with_capacity(64);
    let (mut answered, mut warm) = (0u64, 0);
    for round in 0..101 {
        if round == 10 {
            warm = ALLOCATIONS.with(Cell::get);
        }
        let mut rest = &input[if round == 0 { 0 } else { handshake }..];
        while !rest.is_empty() || !waiting.is_empty() {
            let piece = &rest[..rest.len().min(100)];
            let taken = match session.wants() {
                Wants::Payload { len, .. } => {
                    let n = piece.len().min(len as usize);
                    waiting.extend(session.payload(n as u32, now));
                    n
                }
                _ => {
                    let (n, event) = session.receive(piece, &exports[..], now);
                    if let SessionEvent::Command(command) = event {
                        waiting.push(command);
                    }
                    n
                }
            };
            rest = &rest[taken..];
            if taken == 0 || rest.is_empty() || waiting.len() > 20 {
                for command in waiting.drain(..) {
                    session.reply(command.id, Answer::Done);
                    answered += 1;
                }
                let len = session.output().len() as usize;
                session.written(len, |_| {});
            }
        }
    }
    let late = ALLOCATIONS.with(Cell::get) - warm;
    // Of nine kinds, BLOCK_STATUS (no context was selected) and the unknown one are refused.
    assert_eq!(answered, 101 * (0..1000).filter(|i| i % 9 < 7).count() as u64);
    assert!(late < 10, "{late} allocations for 91 000 requests");
    assert_eq!((session.in_flight(), session.buffered()), (0, 0));
}
