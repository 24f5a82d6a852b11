//! How fast clients are let in at a listener.
//!
//! **Problem.** What a connection was to the kernel is given back some milliseconds after it has ended, for many at once (RCU), and on the processor
//! that has ended it. A client that came and went 60,000 times a second by a Unix socket kept a loop from its processor for 1 to 4 ms at a time.
//! And where no descriptor is left, whoever waits at a listener wakes the loop without end.
//!
//! **Rule.** A listener lets in one client every [`EVERY`], and up to [`BURST`] at once where fewer have come before. While it may let in none it is not
//! watched, and clients wait in the kernel's queue. Where descriptors have run out it rests for [`REST`].
//!
//! **Example.** 1,000 initiators come at once after a power cut: 64 are let in at once, and the last after 234 ms.
//!
//! **Guarantee.** In any time t a listener lets in [`BURST`] + t/[`EVERY`] clients at most. Clients have their turns in the order in which they came.
//!
//! **Price.** A list of the listeners that rest.

use henge_core::{Duration, Instant};

/// 4,000 a second.
const EVERY: Duration = Duration::from_micros(250);
const BURST: u64 = 64;
const REST: Duration = Duration::from_millis(10);
/// That nobody can be let in is said again after so long.
const SAID_AGAIN: Duration = Duration::from_secs(60);

/// The listeners of a loop, by number.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// When the next would come if they came evenly: ahead of the time by as many as have come early.
    even: Vec<Instant>,
    /// Those that are not watched, and until when.
    resting: Vec<(Instant, usize)>,
    /// When it is to be said again that nobody can be let in.
    silent_until: Instant,
}

impl Arrivals {
    /// When this listener may let one in again, where it may not now.
    pub(crate) fn full_until(&self, listener: usize, now: Instant) -> Option<Instant> {
        let ahead = self.even.get(listener)?.since(now);
        let most = EVERY.mul_ratio(BURST - 1, 1);
        (ahead > most).then(|| now + Duration::from_nanos(ahead.as_nanos() - most.as_nanos()))
    }

    /// One has come there.
    pub(crate) fn come(&mut self, listener: usize, now: Instant) {
        if self.even.len() <= listener {
            self.even.resize(listener + 1, Instant::ZERO);
        }
        self.even[listener] = self.even[listener].max(now) + EVERY;
    }

    /// It is not watched until then.
    pub(crate) fn rests(&mut self, listener: usize, until: Instant) {
        self.resting.push((until, listener));
    }

    /// Nobody can be let in now: until when a listener rests, and whether that is to be said.
    pub(crate) fn nobody(&mut self, now: Instant) -> (Instant, bool) {
        let is_news = now >= self.silent_until;
        if is_news {
            self.silent_until = now + SAID_AGAIN;
        }
        (now + REST, is_news)
    }

    /// None is to be watched again.
    pub(crate) fn end(&mut self) {
        self.resting.clear();
    }

    /// When one is.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.resting.iter().map(|(until, _)| *until).min()
    }

    /// One that is to be watched again.
    pub(crate) fn next_rested(&mut self, now: Instant) -> Option<usize> {
        let at = self.resting.iter().position(|(until, _)| *until <= now)?;
        Some(self.resting.swap_remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients that always wait: how many one lets in until then.
    fn let_in(arrivals: &mut Arrivals, listener: usize, from: u64, until: u64) -> u64 {
        let mut came = 0;
        let mut now = Instant::from_nanos(from);
        while now < Instant::from_nanos(until) {
            match arrivals.full_until(listener, now) {
                Some(at) => now = at,
                None => {
                    arrivals.come(listener, now);
                    came += 1;
                }
            }
        }
        came
    }

    #[test]
    fn a_listener_lets_in_a_burst_and_then_an_even_stream_and_others_have_their_own() {
        const MS: u64 = 1_000_000;
        let mut arrivals = Arrivals::default();
        assert_eq!(let_in(&mut arrivals, 1, 0, 10 * MS), BURST + 39);
        assert_eq!(let_in(&mut arrivals, 1, 10 * MS, 20 * MS), 40, "the burst is used up");
        assert_eq!(let_in(&mut arrivals, 0, 20 * MS, 20 * MS + 1), BURST, "another's is not");
        // After 4 ms without any, as many as would have come since.
        assert_eq!(let_in(&mut arrivals, 1, 24 * MS, 24 * MS + 1), BURST + 24 * 4 - (BURST + 39) - 40);
        // However long it was quiet, it is a burst.
        assert_eq!(let_in(&mut arrivals, 1, 10_000 * MS, 10_000 * MS + 1), BURST);
    }

    #[test]
    fn who_rests_is_watched_again_when_its_time_has_come() {
        let at = Instant::from_nanos;
        let mut arrivals = Arrivals::default();
        arrivals.rests(1, at(700));
        let (until, is_news) = arrivals.nobody(at(500));
        arrivals.rests(0, until);
        assert!(is_news && !arrivals.nobody(at(500) + REST).1 && arrivals.nobody(at(500) + SAID_AGAIN).1);
        assert_eq!((arrivals.due(), arrivals.next_rested(at(699))), (Some(at(700)), None));
        assert_eq!(arrivals.next_rested(at(700)), Some(1));
        assert_eq!(arrivals.due(), Some(at(500) + REST));
        arrivals.end();
        assert_eq!((arrivals.due(), arrivals.next_rested(at(500) + REST)), (None, None));
    }
}
