//! What lies between two nodes: a TCP connection that can be held up, broken at once, or broken at one end first.
//!
//! A network that fails does not fail at both ends together. The end that dialled may know of it, and have a new connection,
//! while bytes of the old one are still on their way to the other end. So [`Middle::cut`] can deliver them late.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes that are kept while nothing goes through.
const KEPT: usize = 4 << 20;
/// How often a connection looks whether something was done to it.
const LOOK: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Open = 0,
    /// What is sent is kept, and goes on when it opens again.
    Held = 1,
    /// Nobody gets through.
    Down = 2,
}

#[derive(Default)]
struct State {
    mode: AtomicU8,
    /// Connections of former generations are broken.
    generation: AtomicU64,
    /// Milliseconds after which the far end of a broken one gets what was on its way, and hears that it is broken.
    late: AtomicU64,
    over: AtomicBool,
}

/// The middle of one link, while it lives.
pub struct Middle {
    pub address: SocketAddr,
    state: Arc<State>,
}

impl Middle {
    pub fn new(to: SocketAddr) -> io::Result<Middle> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let (address, state) = (listener.local_addr()?, Arc::new(State::default()));
        let of = Arc::clone(&state);
        std::thread::spawn(move || {
            while !of.over.load(Ordering::Relaxed) {
                if let Ok((near, _)) = listener.accept()
                    && of.mode.load(Ordering::Relaxed) != Mode::Down as u8
                    && let Ok(far) = TcpStream::connect(to)
                {
                    let of = Arc::clone(&of);
                    let generation = of.generation.load(Ordering::Relaxed);
                    std::thread::spawn(move || carry([near, far], &of, generation));
                }
                std::thread::sleep(LOOK);
            }
        });
        Ok(Middle { address, state })
    }

    pub fn set(&self, mode: Mode) {
        self.state.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// Breaks what is there: at both ends, or at the far end only so much later, after what was on its way has come.
    pub fn cut(&self, late: Option<Duration>) {
        let late = late.map_or(0, |late| late.as_millis() as u64);
        self.state.late.store(late, Ordering::Relaxed);
        self.state.generation.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Relaxed);
        self.cut(None);
    }
}

/// Carries bytes both ways until it is broken. The first end is the one that dialled.
fn carry(ends: [TcpStream; 2], state: &State, generation: u64) {
    let mut on_their_way = [VecDeque::new(), VecDeque::new()];
    let broken = || state.generation.load(Ordering::Relaxed) != generation;
    if ends.iter().all(|end| end.set_nonblocking(true).and_then(|()| end.set_nodelay(true)).is_ok()) {
        while !broken() && step(&ends, &mut on_their_way, state).is_ok() {}
    }
    let _ = ends[0].shutdown(Shutdown::Both);
    let late = state.late.load(Ordering::Relaxed);
    if broken() && late > 0 {
        std::thread::sleep(Duration::from_millis(late));
        let mut far = &ends[1];
        let _ = far.set_nonblocking(false).and_then(|()| far.write_all(on_their_way[1].make_contiguous()));
    }
    let _ = ends[1].shutdown(Shutdown::Both);
}

/// Takes what has come and gives what is there, or waits a moment.
fn step(ends: &[TcpStream; 2], on_their_way: &mut [VecDeque<u8>; 2], state: &State) -> io::Result<()> {
    let held = state.mode.load(Ordering::Relaxed) == Mode::Held as u8;
    let mut chunk = [0; 64 << 10];
    for (to, from) in [(1, 0), (0, 1)] {
        let queue = &mut on_their_way[to];
        if queue.len() < KEPT {
            match (&ends[from]).read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => queue.extend(&chunk[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        if !held && !queue.is_empty() {
            match (&ends[to]).write(queue.make_contiguous()) {
                Ok(n) => drop(queue.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
    }
    let out =
        |to: usize| if held || on_their_way[to].is_empty() { PollFlags::empty() } else { PollFlags::OUT };
    let flags = [PollFlags::IN | out(0), PollFlags::IN | out(1)];
    let mut fds = [PollFd::new(&ends[0], flags[0]), PollFd::new(&ends[1], flags[1])];
    let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as i64 }));
    Ok(())
}
