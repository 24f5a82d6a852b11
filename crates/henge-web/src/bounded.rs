//! So many connections at once, and none that does nothing for ever.
//!
//! One address has a quarter of the places at most; who comes from there beyond it is closed at once. Whoever comes when all are
//! taken waits in the kernel's queue until somebody leaves; a connection on which no byte has moved for a while is closed, so that
//! somebody does. Pages that are told live move bytes every second.

use axum::serve::Listener;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// Most connections of one listener.
pub const CONNECTIONS_MAX: usize = 1024;
/// Most of them of one address; of IPv6, of one network of 64 bits, which one machine may have for itself.
pub const EACH_MAX: usize = CONNECTIONS_MAX / 4;
/// Longer than a client needs for its next word.
pub const IDLE: Duration = Duration::from_secs(75);
/// The same while an answer is made: longer than any request may wait for it, as one that records the load for five minutes.
const ANSWERING: Duration = Duration::from_secs(600);
/// Between two attempts when there are no descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener that lets a bounded number of connections in.
pub struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
    from: Arc<Addresses>,
    idle: Duration,
}

/// How many connections each address has, and may have.
pub struct Addresses {
    most: usize,
    each: Mutex<HashMap<IpAddr, usize>>,
}

/// One of an address's connections, until this is dropped.
pub struct Counted {
    all: Arc<Addresses>,
    address: IpAddr,
}

impl Addresses {
    /// None yet; each may have so many.
    pub fn new(most: usize) -> Arc<Addresses> {
        Arc::new(Addresses { most, each: Mutex::default() })
    }

    /// Counts one more, if the address may have it.
    pub fn count(self: &Arc<Self>, address: SocketAddr) -> Option<Counted> {
        let address = match address.ip().to_canonical() {
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
            v4 => v4,
        };
        let mut all = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Counted { all: Arc::clone(self), address })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut all = self.all.each.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.address);
            }
        }
    }
}

impl Bounded {
    /// Around a listener.
    pub fn new(listener: TcpListener, most: usize, idle: Duration) -> Bounded {
        Bounded { listener, places: Arc::new(Semaphore::new(most)), from: Addresses::new(EACH_MAX), idle }
    }
}

impl Listener for Bounded {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        let place = Arc::clone(&self.places).acquire_owned().await.expect("never closed");
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let Some(counted) = self.from.count(address) else { continue };
                    let silence = Box::pin(tokio::time::sleep(self.idle));
                    let (idle, moved) = (self.idle, Instant::now());
                    let answering = Answering::default();
                    let (_place, _counted) = (place, counted);
                    return (Guest { stream, silence, idle, moved, answering, _place, _counted }, address);
                }
                // One that has gone again, or no descriptors.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Whether an answer is being made: then it is not the client who is silent.
#[derive(Clone, Default)]
pub(crate) struct Answering(Arc<AtomicBool>);

impl Answering {
    /// What `answer` comes to.
    pub(crate) async fn during<T>(&self, answer: impl Future<Output = T>) -> T {
        self.0.store(true, Ordering::Relaxed);
        let answer = answer.await;
        self.0.store(false, Ordering::Relaxed);
        answer
    }
}

/// A connection and its place.
pub struct Guest {
    stream: TcpStream,
    silence: Pin<Box<Sleep>>,
    idle: Duration,
    moved: Instant,
    answering: Answering,
    _place: OwnedSemaphorePermit,
    _counted: Counted,
}

impl Guest {
    /// Where it came to.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }

    /// Bytes have moved, or have not for too long. Who takes nothing of its answer is read no further, so writing is watched as well.
    fn watched<T>(&mut self, moved: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if moved.is_ready() {
            self.moved = Instant::now();
        } else {
            ready!(self.silence.as_mut().poll(cx));
            if !self.answering.0.load(Ordering::Relaxed) || self.moved.elapsed() >= ANSWERING {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        let until = Instant::now() + self.idle;
        self.silence.as_mut().reset(until);
        if moved.is_pending() {
            // Whoever waits is woken at that time.
            let _ = self.silence.as_mut().poll(cx);
        }
        moved
    }

    /// Told while its answers are made.
    pub(crate) fn answering(&self) -> Answering {
        self.answering.clone()
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.watched(read, cx)
    }
}

impl AsyncWrite for Guest {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watched(written, cx)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.watched(written, cx)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    /// Two places, both taken by connections that say nothing: the third is answered once they were silent for too long.
    #[test]
    fn who_finds_no_place_waits_and_who_says_nothing_leaves() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let idle = Duration::from_millis(300);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let bounded = Bounded::new(listener, 2, idle);
        let app = axum::Router::new().route("/", axum::routing::get(async || "here"));
        runtime.spawn(async move { axum::serve(bounded, app).await });
        let (tell, told) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let began = std::time::Instant::now();
            let connect = || std::net::TcpStream::connect(address).unwrap();
            let silent = [connect(), connect()];
            let mut third = connect();
            third.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
            let mut text = String::new();
            third.read_to_string(&mut text).unwrap();
            drop(silent);
            tell.send((text, began.elapsed()))
        });
        let (text, took) = runtime.block_on(told).unwrap();
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("here"), "{text}");
        assert!(took >= idle, "{took:?}");
    }
}
