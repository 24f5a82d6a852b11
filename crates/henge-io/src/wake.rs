//! From how many bytes on a socket is worth a wake-up (`SO_RCVLOWAT`, socket(7); by TCP, poll(2) and epoll(7) keep to it since Linux 2.6).

use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd};

/// Whoever watches the socket hears of what came once it is `bytes`, at least one. Of its end, or where the kernel has no memory for so much,
/// it hears at once.
pub fn wake_at(socket: impl AsFd, bytes: usize) -> Result<()> {
    #![allow(unsafe_code)] // neither std, rustix nor socket2 has this option
    let least = libc::c_int::try_from(bytes.max(1)).unwrap_or(libc::c_int::MAX);
    let size = size_of_val(&least) as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads `size` bytes of `least`, and that is how many there are; the descriptor is open as long as it is borrowed.
    let told = unsafe {
        libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const least).cast(), size)
    };
    if told == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, theirs)
    }

    /// Whether who watches is woken: at once, or whenever it comes.
    fn wakes(ours: &TcpStream, at_once: bool) -> bool {
        let mut watched = [PollFd::new(ours, PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut watched, at_once.then_some(&now)).unwrap() > 0
    }

    /// Waits until so many bytes are there.
    fn there(ours: &TcpStream, bytes: u64) {
        while rustix::io::ioctl_fionread(ours).unwrap() < bytes {
            std::thread::yield_now();
        }
    }

    #[test]
    fn few_bytes_wake_nobody_who_waits_for_many() {
        let (ours, mut theirs) = pair();
        wake_at(&ours, 40_000).unwrap();
        theirs.write_all(&[1; 39_999]).unwrap();
        there(&ours, 39_999);
        assert!(!wakes(&ours, true));
        theirs.write_all(&[1]).unwrap();
        assert!(wakes(&ours, false));
        wake_at(&ours, 50_000).unwrap();
        assert!(!wakes(&ours, true));
        wake_at(&ours, 0).unwrap();
        assert!(wakes(&ours, true), "what is there is heard of, as it is enough now");
    }

    #[test]
    fn the_end_wakes_whoever_waits_for_many() {
        let (ours, mut theirs) = pair();
        wake_at(&ours, 40_000).unwrap();
        theirs.write_all(&[1; 100]).unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        assert!(wakes(&ours, false));
    }
}
