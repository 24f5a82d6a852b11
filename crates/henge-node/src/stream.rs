//! A connection's bytes, whatever carries them: the socket itself, or TLS over it.
//!
//! # The rule
//! The loop watches sockets by edges: it is told once that something came, so whoever reads goes on until there is nothing more. For
//! a bare socket a read that did not fill what it was given says so. That is not true of a stream that decrypts: a record gives less
//! than was asked for while the next one waits in the socket, or decrypted in memory. So each read says itself whether a further one
//! may find something at once ([`Got::more`]), and nobody concludes it from a count.
//!
//! A variant that decrypts or encrypts keeps these promises:
//! - [`Stream::read`] fills the place of a payload first, then that of messages, and answers AGAIN only when neither the socket nor its own
//!   memory has a byte; zero bytes are the end. It may leave off before a long record that follows a message. That is payload, most of the time,
//!   and whoever asked says next where it belongs: so it is copied once.
//! - [`Stream::writev`] says how many of the *caller's* bytes it took. What it holds back of them, encrypted and not yet in the socket, is
//!   bounded, and [`Stream::is_flushed`] is false meanwhile: the loop calls [`Stream::flush`] when the socket has room again.
//!
//! # Wake-ups
//! A client that encrypts sends a long payload record by record, and its reader would be woken for each. So who waits for a long payload says how
//! much is missing ([`Stream::wake_at`]), and sleeps until that is there, or [`WORTH`] of it. Example: of a WRITE of 128 KiB nothing has come but its
//! header; the loop is woken once more, for two system calls that say so, and not eight times.

use henge_tls::{Dial, Shake, Shaken, Tls};
use rustix::io::Result;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

mod secure;

use secure::Secure;

/// What a read gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Got {
    /// Bytes; zero is the end of the stream.
    pub len: usize,
    /// Whether a further read may find something without waiting.
    pub more: bool,
}

/// Bytes for which it is worth while to be woken: of more, the first are copied while others come.
const WORTH: usize = crate::turns::BYTES;
/// What is missing is not waited for as a whole, where it is less: asking for it costs more than it saves.
const LITTLE: usize = 32 << 10;

/// A connection's bytes.
pub(crate) struct Stream {
    fd: OwnedFd,
    /// From how many bytes on the loop is woken. `None` where the socket wakes it for each.
    wakes_at: Option<usize>,
    /// What decrypts and encrypts them, once TLS has begun.
    secure: Option<Box<Secure>>,
    /// Steps of its handshake are taken by whoever asks for them.
    lends: bool,
}

impl Stream {
    /// The socket's own.
    pub(crate) fn plain(fd: OwnedFd) -> Stream {
        use rustix::net::{AddressFamily, sockopt};
        let family = sockopt::socket_domain(&fd);
        let wakes_at = matches!(family, Ok(AddressFamily::INET | AddressFamily::INET6)).then_some(1);
        Stream { fd, wakes_at, secure: None, lends: false }
    }

    /// From here on steps of its handshakes are [lent](Stream::shake).
    pub(crate) fn lend_shakes(&mut self) {
        self.lends = true;
    }

    /// A step of its handshake that is due, to be taken elsewhere. Nothing is read until it is [back](Stream::shaken).
    pub(crate) fn shake(&mut self) -> Option<Shake> {
        self.secure.as_mut()?.shake()
    }

    /// It was taken.
    pub(crate) fn shaken(&mut self, shaken: Shaken) {
        if let Some(secure) = &mut self.secure {
            secure.shaken(shaken);
        }
    }

    /// The bytes are the socket's own.
    pub(crate) fn is_plain(&self) -> bool {
        self.secure.is_none()
    }

    /// From here on, the bytes of the socket are TLS. False where that cannot be.
    pub(crate) fn secure(&mut self, tls: &Arc<Tls>) -> bool {
        if self.secure.is_none() {
            self.secure = Secure::begin(tls, self.lends).map(Box::new);
            return self.secure.is_some();
        }
        false
    }

    /// The same as the end that dialled. False where that cannot be.
    pub(crate) fn dial(&mut self, tls: &Arc<Tls>, dial: &Dial) -> bool {
        let handshake = dial.handshake().ok();
        self.secure = handshake.map(|h| Box::new(Secure::dial(tls, h, self.lends, dial.shown.clone())));
        self.secure.is_some()
    }

    /// Bytes that both ends of a TLS connection know, and nobody else, once its handshake is over (RFC 8446, section 7.5).
    pub(crate) fn exported(&self, label: &[u8]) -> Option<[u8; 32]> {
        self.secure.as_ref()?.exported(label)
    }

    /// The names by which the other side has proven itself; `None` while it has not, empty where it need not.
    pub(crate) fn proven(&self) -> Option<Vec<String>> {
        self.secure.as_ref()?.proven()
    }

    /// Whether its bytes are TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.secure.is_some()
    }

    /// Whether the other side's certificate counts still; if not, nothing more is read.
    pub(crate) fn look_again(&mut self) -> Result<()> {
        self.secure.as_mut().map_or(Ok(()), |secure| secure.look_again())
    }

    /// Whether this connection, which we dialled, should make room for one by newer certificates.
    pub(crate) fn is_dated(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.is_dated())
    }

    /// Reads what is missing of a payload, then messages. `ending`: the socket has said that its end comes, and does not say it again.
    pub(crate) fn read(&mut self, payload: &mut [u8], messages: &mut [u8], ending: bool) -> Result<Got> {
        if let Some(secure) = &mut self.secure {
            return secure.read(self.fd.as_fd(), (payload, messages), ending);
        }
        let asked = payload.len() + messages.len();
        let mut slices = [IoSliceMut::new(payload), IoSliceMut::new(messages)];
        let slices = if slices[0].is_empty() { &mut slices[1..] } else { &mut slices[..] };
        let len = rustix::io::readv(&self.fd, slices)?;
        Ok(Got { len, more: len == asked })
    }

    /// The socket has nothing more, and of a payload so many bytes are missing: whoever watches it is woken when it is worth while. Without a
    /// payload, that is for the first byte.
    pub(crate) fn wake_at(&mut self, missing: usize) {
        let held = self.secure.as_ref().map_or(0, |secure| secure.held());
        let least = match missing.saturating_sub(held).min(WORTH) {
            few if few < LITTLE => 1,
            many => many,
        };
        if self.wakes_at.is_some_and(|at| at != least) {
            // Where it cannot be said, each byte wakes, as before.
            self.wakes_at = henge_io::wake_at(&self.fd, least).ok().map(|()| least);
        }
    }

    /// Whether bytes may have come without a wake-up.
    pub(crate) fn wakes_late(&self) -> bool {
        self.wakes_at.is_some_and(|at| at > 1)
    }

    /// Writes what it takes of the slices, the first one first: how many bytes.
    pub(crate) fn writev(&mut self, from: &[IoSlice<'_>]) -> Result<usize> {
        match &mut self.secure {
            Some(secure) => secure.writev(self.fd.as_fd(), from),
            None => rustix::io::writev(&self.fd, from),
        }
    }

    /// Whether everything that was taken is in the socket.
    pub(crate) fn is_flushed(&self) -> bool {
        self.secure.as_ref().is_none_or(|secure| secure.is_flushed())
    }

    /// Puts what was held back into the socket, as far as there is room; AGAIN where there is none.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.secure.as_mut().map_or(Ok(()), |secure| secure.flush(self.fd.as_fd()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(secure) = &mut self.secure {
            secure.end(self.fd.as_fd());
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_read_says_whether_there_may_be_more() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut stream = Stream::plain(ours.into());
        let (mut a, mut b) = ([0; 3], [0; 4]);
        let mut read = |a: &mut [u8], b: &mut [u8]| stream.read(a, b, false);
        theirs.write_all(b"0123456789").unwrap();
        assert_eq!(read(&mut a, &mut b), Ok(Got { len: 7, more: true }));
        assert_eq!((&a, &b), (b"012", b"3456"));
        assert_eq!(read(&mut a, &mut b), Ok(Got { len: 3, more: false }));
        assert_eq!(read(&mut [], &mut b), Err(Errno::AGAIN));
        drop(theirs);
        assert_eq!(read(&mut [], &mut b).map(|got| got.len), Ok(0));
    }
}
