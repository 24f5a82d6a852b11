//! So many connections at once, and none that does nothing for ever.
//!
//! One address has a quarter of the places at most; who comes from there beyond it is closed at once. For whoever comes when all are
//! taken somebody makes way, of the address that has the most ([`Places`]); where all are being answered, newcomers wait in the kernel's queue.
//! A connection on which no byte has moved for a while is closed. Pages that are told live move bytes every second.

use crate::places::{Answering, Full, Place, Places};
use axum::serve::Listener;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep};

/// Most connections of one listener.
pub const CONNECTIONS_MAX: usize = 1024;
/// Most of them of one address; of IPv6, of one network of 64 bits, which one machine may have for itself.
pub const EACH_MAX: usize = CONNECTIONS_MAX / 4;
/// Longer than a client needs for its next word.
pub const IDLE: Duration = Duration::from_secs(75);
/// The same while an answer is made: longer than any request may wait for it, as one that records the load for five minutes.
const ANSWERING: Duration = Duration::from_secs(600);
/// Between two attempts when there are no descriptors, or no places.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener that lets a bounded number of connections in.
pub struct Bounded {
    listener: TcpListener,
    places: Arc<Places>,
    idle: Duration,
}

impl Bounded {
    /// Around a listener.
    pub fn new(listener: TcpListener, most: usize, idle: Duration) -> Bounded {
        Bounded { listener, places: Places::new(most, EACH_MAX), idle }
    }

    #[cfg(test)]
    pub(crate) fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// A place for a newcomer; none where its address has as many as it may.
    async fn place(&self, address: SocketAddr) -> Option<Place> {
        loop {
            match self.places.enter(address) {
                Ok(place) => return Some(place),
                Err(Full::Address) => return None,
                Err(Full::All) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

impl Listener for Bounded {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let Some(place) = self.place(address).await else { continue };
                    let silence = Box::pin(tokio::time::sleep(self.idle));
                    let (idle, moved) = (self.idle, Instant::now());
                    return (Guest { stream, silence, idle, moved, place }, address);
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

/// A connection and its place.
pub struct Guest {
    stream: TcpStream,
    silence: Pin<Box<Sleep>>,
    idle: Duration,
    moved: Instant,
    place: Place,
}

impl Guest {
    /// Where it came to.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }

    /// Bytes have moved, or have not for too long. Who takes nothing of its answer is read no further, so writing is watched as well.
    fn watched<T>(&mut self, moved: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if self.place.poll_sent_away(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if moved.is_ready() {
            self.moved = Instant::now();
        } else {
            ready!(self.silence.as_mut().poll(cx));
            if !self.place.answering().is() || self.moved.elapsed() >= ANSWERING {
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
        self.place.answering()
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Two places, both taken by connections that say nothing: for the third one makes way, and the other leaves once it was silent for too long.
    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_makes_way_and_leaves() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let bounded = Bounded::new(listener, 2, IDLE);
        let app = axum::Router::new().route("/", axum::routing::get(async || "here"));
        tokio::spawn(async move { axum::serve(bounded, app).await });
        let began = Instant::now();
        let connect = || TcpStream::connect(address);
        let mut silent = [connect().await.unwrap(), connect().await.unwrap()];
        let mut third = connect().await.unwrap();
        third.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut text = String::new();
        third.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("here"), "{text}");
        assert!(silent[0].read_u8().await.is_err() && began.elapsed() < IDLE, "{:?}", began.elapsed());
        assert!(silent[1].read_u8().await.is_err() && began.elapsed() >= IDLE, "{:?}", began.elapsed());
    }
}
