//! All interleavings of two speakers and one that sleeps, by loom.

use super::*;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64 as Tried, AtomicUsize};
use loom::thread;

word!(Tried);

/// A lane of one place, and an event descriptor.
#[derive(Default)]
struct Two {
    inbox: Inbox<Tried>,
    lanes: [AtomicUsize; 2],
    woken: AtomicBool,
}

fn all(speak: fn(&Two, usize)) {
    loom::model(move || {
        let two = Arc::new(Two::default());
        let speakers: Vec<_> = (0..2)
            .map(|shard| {
                let two = Arc::clone(&two);
                thread::spawn(move || speak(&two, shard))
            })
            .collect();
        // The receiver looks once, and goes to sleep.
        let mut got = 0;
        let look = |bits: u64| {
            let said = (0..2).filter(|shard| bits & bit(*shard) != 0);
            said.map(|shard| two.lanes[shard].swap(0, Ordering::Relaxed)).sum::<usize>()
        };
        got += look(two.inbox.heard());
        let mut sleeps = two.inbox.sleep();
        speakers.into_iter().for_each(|speaker| speaker.join().unwrap());
        if sleeps && two.woken.load(Ordering::Relaxed) {
            two.inbox.awake();
            sleeps = false;
        }
        if !sleeps {
            got += look(two.inbox.heard());
        }
        assert_eq!(got, 2, "it sleeps, and something is in its lanes");
    });
}

fn say(two: &Two, shard: usize) {
    // As the ring does it: the bit's release publishes it.
    two.lanes[shard].store(1, Ordering::Relaxed);
    if two.inbox.spoke(shard) {
        two.woken.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nobody_sleeps_over_what_is_in_a_lane() {
    all(say);
}

#[test]
fn nobody_sleeps_over_what_was_to_wake_it_later() {
    all(|two, shard| {
        two.lanes[shard].store(1, Ordering::Relaxed);
        if two.inbox.spoke(shard) && two.inbox.sleeps_over(shard) {
            two.woken.store(true, Ordering::Relaxed);
        }
    });
}

#[test]
#[should_panic(expected = "something is in its lanes")]
fn the_model_would_notice() {
    // Whoever asks first, and speaks then.
    all(|two, shard| {
        let asleep = two.inbox.0.load(Ordering::Acquire) & ASLEEP != 0;
        two.lanes[shard].store(1, Ordering::Relaxed);
        two.inbox.0.fetch_or(bit(shard), Ordering::AcqRel);
        if asleep {
            two.woken.store(true, Ordering::Relaxed);
        }
    });
}
