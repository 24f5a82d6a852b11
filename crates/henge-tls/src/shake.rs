//! A step of a handshake, apart from its connection: whoever drives the [`Channel`](crate::Channel) may have it taken on another thread.
//!
//! A server's hello costs a key exchange and a signature, some 0.2 ms, and a client's certificates as long. A loop that serves others meanwhile
//! borrows the step ([`Channel::lend`](crate::Channel::lend)), and brings it back ([`Channel::shaken`](crate::Channel::shaken)).

use crate::handshake::{Handshake, Step};
use crate::records::Records;
use rustls::Error;
use std::collections::VecDeque;

/// A handshake with what has come for it.
pub struct Shake {
    handshake: Handshake,
    /// Records of the other side.
    pub(crate) window: Vec<u8>,
    /// What is to be sent.
    out: VecDeque<Vec<u8>>,
}

/// One that was taken a step further.
pub struct Shaken {
    pub(crate) window: Vec<u8>,
    pub(crate) out: VecDeque<Vec<u8>>,
    /// How many bytes of the window are done with, and what follows.
    pub(crate) came: Result<(usize, Then), Error>,
}

/// What a step has led to.
pub(crate) enum Then {
    More(Handshake),
    Over(Box<Records>),
}

impl Shake {
    pub(crate) fn new(handshake: Handshake, window: Vec<u8>) -> Shake {
        Shake { handshake, window, out: VecDeque::new() }
    }

    /// Takes the step.
    pub fn run(self) -> Shaken {
        let Shake { mut handshake, mut window, mut out } = self;
        let came = match handshake.step(&mut window, &mut out) {
            Ok(Step { taken, over: false }) => Ok((taken, Then::More(handshake))),
            Ok(Step { taken, over: true }) => {
                handshake.end().map(|records| (taken, Then::Over(Box::new(records))))
            }
            Err(why) => Err(why),
        };
        Shaken { window, out, came }
    }
}
