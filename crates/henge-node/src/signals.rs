//! Being asked to end (SIGTERM and SIGINT) or to begin anew (SIGHUP), waited for by the one thread that has nothing else to do.

#![allow(unsafe_code)] // signal masks have no safe interface here

use std::mem::MaybeUninit;
use std::time::Duration;

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// To end.
    End,
    /// To begin anew.
    Anew,
}

/// SIGTERM and SIGINT, held back from every thread that is started from now on.
pub struct Signals(libc::sigset_t);

impl Signals {
    /// Holds them back. To be called before any thread is started.
    pub fn block() -> Signals {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initializes the set that it is given, the others change or read an initialized one;
        // a null pointer for the old mask is allowed.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            Signals(set.assume_init())
        }
    }

    /// SIGHUP as well.
    pub fn and_hang_up(mut self) -> Signals {
        // SAFETY: the set is initialized; ignoring a signal runs nothing of ours. It is ignored where it is not held back: in the
        // moments before and after a program starts another in its place.
        unsafe {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            libc::sigaddset(&raw mut self.0, libc::SIGHUP);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const self.0, std::ptr::null_mut());
        }
        self
    }

    /// Waits for one of them, `patience` at most; whether one came.
    pub fn wait(&self, patience: Duration) -> bool {
        self.next(patience).is_some()
    }

    /// Waits for one of them, `patience` at most: what it asks for.
    pub fn next(&self, patience: Duration) -> Option<Signal> {
        let timeout = libc::timespec {
            tv_sec: patience.as_secs() as libc::time_t,
            tv_nsec: patience.subsec_nanos().into(),
        };
        // SAFETY: the set is initialized, the timeout is valid, and no information about the signal is asked for.
        let signal =
            unsafe { libc::sigtimedwait(&raw const self.0, std::ptr::null_mut(), &raw const timeout) };
        (signal > 0).then_some(if signal == libc::SIGHUP { Signal::Anew } else { Signal::End })
    }
}
