//! Any bytes as bodies of requests to a manager, by an administrator, a tenant and nobody: each is answered, a refusal says why, and no
//! request is too much for the next one.
#![no_main]

use henge_manager::harness::{ASKED, Harness};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;

/// What requests have made is forgotten after so many.
const ASKED_MAX: u32 = 2000;

thread_local! {
    static OPEN: RefCell<Option<(Harness, u32)>> = const { RefCell::new(None) };
}

fuzz_target!(|data: &[u8]| {
    let [which, who, body @ ..] = data else { return };
    OPEN.with_borrow_mut(|open| {
        let (harness, asked) = open.get_or_insert_with(|| (Harness::open().expect("a harness"), 0));
        let answer = harness.ask(usize::from(*which), usize::from(*who), body.to_vec()).expect("an answer");
        let at = ASKED[usize::from(*which) % ASKED.len()];
        assert!(answer.is_sound(), "{at:?}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
        *asked += 1;
        if *asked > ASKED_MAX {
            *open = None;
        }
    });
});
