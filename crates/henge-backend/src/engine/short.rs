//! Cuts transfers short on purpose, as kernels may, so that callers are seen to go on with the rest.

#![allow(unsafe_code)] // passes on what it is given by address

use super::{Engine, Io, Kind};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::os::fd::RawFd;

/// An engine that moves only the beginning of some transfers.
pub struct Short {
    engine: Box<dyn Engine>,
    /// How many, in millionths.
    share: u32,
    /// Cut after a multiple of it, so that the device takes what is left.
    block: u64,
    dice: Pcg64Mcg,
}

impl Short {
    /// Cuts `share` millionths of the transfers of `engine`.
    pub fn new(engine: Box<dyn Engine>, share: u32, block: u64, seed: u64) -> Self {
        Short { engine, share, block, dice: Pcg64Mcg::seed_from_u64(seed) }
    }
}

impl Engine for Short {
    unsafe fn submit(&mut self, mut io: Io) {
        let blocks = io.len / self.block;
        let moves = matches!(io.kind, Kind::Read | Kind::Write { .. });
        if moves && blocks > 1 && self.dice.random_range(0..1_000_000) < u64::from(self.share) {
            io.len = (1 + self.dice.random_range(0..blocks - 1)) * self.block;
        }
        // SAFETY: the caller's promise holds for less of the same memory, too.
        unsafe { self.engine.submit(io) };
    }
    fn reap(&mut self) -> Option<(u32, i32)> {
        self.engine.reap()
    }
    fn idle(&self) -> bool {
        self.engine.idle()
    }
    fn event_fd(&self) -> RawFd {
        self.engine.event_fd()
    }
    fn name(&self) -> &'static str {
        self.engine.name()
    }
}
