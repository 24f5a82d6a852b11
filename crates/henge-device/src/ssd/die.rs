//! One die: its blocks, and what it is doing.
//!
//! A die does one thing at a time. Pages wait in its backlog; a read goes before them, but not into what has
//! begun. Collection is paced: when free blocks run short, each page that the host fills brings with it as many
//! moved units as it takes to have the victim empty when the host has used up what it gains; only at the reserve
//! is a victim emptied at once.

use super::blocks::{Blocks, RESERVE};
use henge_core::{Duration, Instant};
use std::collections::VecDeque;

/// A page to be programmed, with the collection that goes before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageWrite {
    pub takes: Duration,
    /// Units of the host's in it: they leave the write buffer when it is done.
    pub units: u32,
}

#[derive(Clone, Copy, Debug)]
struct Collecting {
    victim: u32,
    /// Places before this one are done.
    next: u32,
    /// Valid units to move for each page that the host fills.
    pace: u32,
}

/// A flash die.
#[derive(Clone, Debug)]
pub(super) struct Die {
    pub blocks: Blocks,
    /// When what it has begun is over.
    pub free_at: Instant,
    pub backlog: VecDeque<PageWrite>,
    /// The host's units in the page being programmed.
    pub programming: Option<u32>,
    /// Units of the host's in the open page, still in the buffer.
    pub open_units: u32,
    /// Places of all units that are still in the buffer, oldest first: they are read from there.
    pub unprogrammed: VecDeque<u32>,
    collecting: Option<Collecting>,
}

/// What a step of collection did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    pub units: u32,
    pub erased: u32,
}

impl Die {
    pub fn new(blocks: u32, units: u32) -> Self {
        Die {
            blocks: Blocks::new(blocks, units),
            free_at: Instant::ZERO,
            backlog: VecDeque::new(),
            programming: None,
            open_units: 0,
            unprogrammed: VecDeque::new(),
            collecting: None,
        }
    }

    /// Collects as much as filling a page with `filled` units asks for; `moved(logical, place)` is told of each
    /// unit's new place.
    pub fn collect(&mut self, filled: u32, mut moved: impl FnMut(u32, u32)) -> Moved {
        let mut done = Moved::default();
        loop {
            let urgent = self.blocks.free() < RESERVE;
            if self.collecting.is_none() {
                if self.blocks.free() > RESERVE {
                    return done;
                }
                let Some((victim, valid)) = self.blocks.victim() else { return done };
                // The host gains what was not valid; moving `valid` must be over by then.
                let pace = (valid * filled).div_ceil((self.blocks.units() - valid).max(1)).max(1);
                self.collecting = Some(Collecting { victim, next: 0, pace });
            }
            let budget = match self.collecting {
                Some(c) if !urgent => c.pace,
                _ => u32::MAX,
            };
            let step = self.collect_some(budget, &mut moved);
            done.units += step.units;
            done.erased += step.erased;
            if self.blocks.free() >= RESERVE {
                return done;
            }
        }
    }

    fn collect_some(&mut self, budget: u32, moved: &mut impl FnMut(u32, u32)) -> Moved {
        let mut c = self.collecting.take().expect("only called while collecting");
        let mut done = Moved::default();
        while let Some((logical, place)) = self.blocks.next_valid(c.victim, c.next) {
            if done.units == budget {
                self.collecting = Some(c);
                return done;
            }
            self.blocks.invalidate(place);
            moved(logical, self.blocks.append(logical));
            c.next = place % self.blocks.units() + 1;
            done.units += 1;
        }
        self.blocks.erase(c.victim);
        done.erased = 1;
        done
    }
}
