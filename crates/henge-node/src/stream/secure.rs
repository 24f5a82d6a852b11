//! TLS over a socket that does not wait: henge-tls has the connection, and here are the socket and whose certificates count.
//!
//! # Who seals
//! Where the kernel can ([`henge_io::kernel_tls`]), a socket of TCP gets our keys with the first write after the handshake, once it has
//! all that we sealed before. From then on data is written as to a bare socket: it is not copied into records here, and what the socket
//! does not take is not held here. A socket that refuses is sealed for as before, and the client cannot tell. What comes is opened
//! here in either case: it is opened where it belongs, so the kernel would save no copy, and a stranger's bytes meet no parser of the kernel.

use super::Got;
use henge_io::kernel_tls;
use henge_tls::{Channel, Handshake, Next, Order, Shake, Shaken, Tls, names};
use rustix::io::{Errno, Result};
use rustls::Error;
use rustls::pki_types::CertificateDer;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::SystemTime;

pub(super) struct Secure {
    channel: Channel,
    tls: Arc<Tls>,
    /// When the other side's certificate was last found to count ([`Tls::turn`]).
    turn: u64,
    /// Nothing can be read any more, and why was said.
    failed: bool,
    sealer: Sealer,
    /// Where we dialled: the certificate that we showed.
    shown: Option<CertificateDer<'static>>,
}

/// Who makes records of what is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sealer {
    Us,
    /// We do until the kernel can be asked.
    Undecided,
    Kernel,
}

impl Secure {
    /// The server's end; `None` when the system gives no randomness.
    pub(super) fn begin(tls: &Arc<Tls>, lends: bool) -> Option<Secure> {
        Some(Secure::new(tls, tls.handshake().ok()?, lends))
    }

    /// The end that dialled.
    pub(super) fn dial(
        tls: &Arc<Tls>,
        handshake: Handshake,
        lends: bool,
        shown: CertificateDer<'static>,
    ) -> Secure {
        Secure { shown: Some(shown), ..Secure::new(tls, handshake, lends) }
    }

    fn new(tls: &Arc<Tls>, handshake: Handshake, lends: bool) -> Secure {
        let (channel, turn) = (Channel::new(handshake, lends), tls.turn());
        let sealer = if tls.is_by_kernel() { Sealer::Undecided } else { Sealer::Us };
        Secure { channel, tls: Arc::clone(tls), turn, failed: false, sealer, shown: None }
    }

    /// The certificates that the other side has shown, its own first.
    fn theirs(&self) -> &[CertificateDer<'static>] {
        self.channel.theirs().unwrap_or_default()
    }

    /// Once the handshake is over, the names of the other side's certificate.
    pub(super) fn proven(&self) -> Option<Vec<String>> {
        Some(self.channel.theirs()?.first().map_or_else(Vec::new, |leaf| names(leaf)))
    }

    /// Once the handshake is over, bytes that both ends know, and nobody else.
    pub(super) fn exported(&self, label: &[u8]) -> Option<[u8; 32]> {
        self.channel.exported(label)
    }

    /// A step of the handshake that is to be taken elsewhere.
    pub(super) fn shake(&mut self) -> Option<Shake> {
        self.channel.lend()
    }

    /// It was.
    pub(super) fn shaken(&mut self, shaken: Shaken) {
        self.channel.shaken(shaken);
    }

    /// Bytes of the socket that were read before they could be opened.
    pub(super) fn held(&self) -> usize {
        self.channel.held()
    }

    pub(super) fn read(
        &mut self,
        fd: BorrowedFd<'_>,
        (payload, messages): (&mut [u8], &mut [u8]),
        ending: bool,
    ) -> Result<Got> {
        let mut socket = Socket { fd, ending, is_dry: false };
        let first = self.fill(&mut socket, payload, (0, false))?;
        if first.len < payload.len() || self.channel.is_ended() {
            return Ok(first);
        }
        let then = self.fill(&mut socket, messages, (first.len, true))?;
        Ok(Got { len: first.len + then.len, more: then.more })
    }

    /// Fills it as far as it can be. `before`: bytes that this read has given already, behind which an error can wait.
    fn fill(
        &mut self,
        socket: &mut Socket<'_>,
        into: &mut [u8],
        (before, messages): (usize, bool),
    ) -> Result<Got> {
        let mut len = 0;
        while len < into.len() {
            if messages && len > 0 && self.channel.is_next_long() {
                break;
            }
            let n = self.channel.take(&mut into[len..]);
            len += n;
            if n > 0 {
                continue;
            }
            // The end, said so or not: what NBD has to say is framed by itself.
            if self.channel.is_ended() {
                break;
            }
            match self.decrypt(socket, if messages { &mut [] } else { &mut into[len..] }) {
                Ok(landed) => len += landed,
                Err(Errno::AGAIN) if before + len > 0 => return Ok(Got { len, more: false }),
                // It is said again when there is nothing else to be said.
                Err(_) if before + len > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(Got { len, more: true })
    }

    /// A step towards more bytes: from the socket, or from what came from there. How many are in their place already.
    fn decrypt(&mut self, socket: &mut Socket<'_>, payload: &mut [u8]) -> Result<usize> {
        self.look_again()?;
        match self.channel.step() {
            Ok(Next::Step) => Ok(0),
            // More is read once that is over.
            Ok(Next::Shake) => Err(Errno::AGAIN),
            Ok(Next::Bytes) if socket.is_dry => {
                self.channel.rest();
                Err(Errno::AGAIN)
            }
            Ok(Next::Bytes) => match self.land(socket, payload)? {
                Some(landed) => Ok(landed),
                None => self.receive(socket).map(|()| 0),
            },
            Err(why) => {
                self.fail(&why);
                // The other side hears why, if it listens.
                let _ = self.flush(socket.fd);
                Err(Errno::PROTO)
            }
        }
    }

    /// Reads from the socket to where the bytes belong, if that can be.
    fn land(&mut self, socket: &mut Socket<'_>, payload: &mut [u8]) -> Result<Option<usize>> {
        let landed = self.channel.land(payload, |pieces| {
            let room: usize = pieces.iter().map(|piece| piece.len()).sum();
            socket.read(room, |fd| rustix::io::readv(fd, pieces))
        });
        if landed.is_err() {
            self.channel.rest();
        }
        landed
    }

    fn fail(&mut self, why: &Error) {
        if !self.failed {
            self.failed = true;
            self.tls.tell(why);
        }
    }

    /// Whether certificates are shown anew by a connection that begins now, and this one, which we dialled, ends one day.
    pub(super) fn is_dated(&self) -> bool {
        let Some(shown) = &self.shown else { return false };
        self.tls.is_dated(shown, self.theirs(), SystemTime::now())
    }

    /// Ends the connection if the other side's certificate counts no more: it was revoked, or has expired.
    pub(super) fn look_again(&mut self) -> Result<()> {
        let turn = self.tls.turn();
        if turn != self.turn {
            self.turn = turn;
            if let Err(why) = self.tls.still(self.theirs(), SystemTime::now()) {
                self.fail(&why);
                self.channel.fail(why);
            }
        }
        if self.failed { Err(Errno::PROTO) } else { Ok(()) }
    }

    /// Reads from the socket.
    fn receive(&mut self, socket: &mut Socket<'_>) -> Result<()> {
        // Where there is none, the next step says why.
        let Some(space) = self.channel.space() else { return Ok(()) };
        let room = space.capacity() - space.len();
        match socket.read(room, |fd| rustix::io::read(fd, rustix::buffer::spare_capacity(space))) {
            Ok(0) => self.channel.end(),
            Ok(_) => {}
            Err(e) => {
                self.channel.rest();
                return Err(e);
            }
        }
        Ok(())
    }

    pub(super) fn writev(&mut self, fd: BorrowedFd<'_>, from: &[IoSlice<'_>]) -> Result<usize> {
        self.flush(fd)?;
        self.hand_over(fd);
        if self.sealer == Sealer::Kernel {
            return self.write_by_kernel(fd, from);
        }
        let n = self.channel.write(from).map_err(|_| Errno::PROTO)?;
        match self.flush(fd) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) if n > 0 => Ok(n),
            Ok(()) => Err(Errno::AGAIN),
            Err(e) => Err(e),
        }
    }

    /// Lets the kernel seal from here on, if it can and nothing stands in the way.
    fn hand_over(&mut self, fd: BorrowedFd<'_>) {
        if self.sealer == Sealer::Undecided
            && let Some(keys) = self.channel.keys()
        {
            let taken = kernel_tls::attach(fd).and_then(|()| kernel_tls::seal_by(fd, &keys));
            self.sealer = if taken.is_ok() { Sealer::Kernel } else { Sealer::Us };
            if taken.is_ok() {
                self.channel.hand_over();
            }
        }
    }

    fn write_by_kernel(&mut self, fd: BorrowedFd<'_>, from: &[IoSlice<'_>]) -> Result<usize> {
        let len = from.iter().map(|piece| piece.len()).sum();
        self.channel.prepare(from.len(), len).map_err(|_| Errno::PROTO)?;
        self.flush(fd)?;
        let n = rustix::io::writev(fd, from)?;
        self.channel.sealed(from.len(), n);
        Ok(n)
    }

    /// Tells the kernel what it is to know.
    fn tell_kernel(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        while let Some(order) = self.channel.order() {
            let done = match order {
                Order::Record(kind, bytes) => {
                    kernel_tls::send_record(fd, *kind, bytes).map(|sent| sent == bytes.len())
                }
                Order::Keys(keys) => kernel_tls::seal_by(fd, keys).map(|()| true),
            };
            match (order, done) {
                (_, Ok(true)) => self.channel.told(),
                (Order::Keys(_), Err(e)) => {
                    if !std::mem::replace(&mut self.failed, true) {
                        self.tls.tell_end(&e.into());
                    }
                    return Err(e);
                }
                (_, Ok(false)) => return Err(Errno::PROTO),
                (_, Err(e)) => return Err(e),
            }
        }
        Ok(())
    }

    pub(super) fn is_flushed(&self) -> bool {
        !self.channel.has_output()
    }

    pub(super) fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        while self.channel.has_output() {
            if self.sealer == Sealer::Kernel {
                return self.tell_kernel(fd);
            }
            let mut slices = [IoSlice::new(&[]); 16];
            let count = self.channel.output(&mut slices);
            if count == 0 {
                return Err(Errno::PROTO);
            }
            let n = rustix::io::writev(fd, &slices[..count])?;
            self.channel.written(n);
        }
        Ok(())
    }

    /// Says that nothing more comes, if the socket takes it.
    pub(super) fn end(&mut self, fd: BorrowedFd<'_>) {
        self.channel.close();
        let _ = self.flush(fd);
    }
}

/// Where the bytes come from, for the time of a read.
struct Socket<'a> {
    fd: BorrowedFd<'a>,
    ending: bool,
    /// It has nothing more: what came did not fill the room there was, as for a bare one.
    is_dry: bool,
}

impl Socket<'_> {
    fn read(&mut self, room: usize, mut call: impl FnMut(BorrowedFd<'_>) -> Result<usize>) -> Result<usize> {
        loop {
            match call(self.fd) {
                Err(Errno::INTR) => {}
                Ok(n) => {
                    self.is_dry = n < room && !self.ending;
                    return Ok(n);
                }
                Err(e) => return Err(e),
            }
        }
    }
}
