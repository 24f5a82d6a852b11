//! Connects to a server and negotiates. This blocks, so it is done before anybody is served, or on a thread of its own.

use super::uri::{Server, Uri};
use henge_nbd::{Client, ClientEvent, ClientFailure, Negotiated, Segment, Wish};
use rustix::net::sockopt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a server may take to answer and to negotiate.
const PATIENCE: Duration = Duration::from_secs(5);
/// A machine that is silent for so long, although it should answer, is gone.
const SILENCE: Duration = Duration::from_secs(10);

/// A connection on which commands may be sent.
pub(crate) struct Dialed {
    pub socket: OwnedFd,
    pub client: Client,
    pub said: Negotiated,
}

trait Stream: Read + Write {
    fn within(&self, left: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn within(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

impl Stream for UnixStream {
    fn within(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

/// Connects; why not, in words that say where.
pub(crate) fn dial(uri: &Uri) -> Result<Dialed, String> {
    let end = Instant::now() + PATIENCE;
    let name = |e: &dyn std::fmt::Display| format!("{}: {e}", named(uri));
    match &uri.server {
        Server::Unix(path) => {
            let mut stream = UnixStream::connect(path).map_err(|e| name(&e))?;
            let (client, said) = negotiate(&mut stream, uri, end).map_err(|e| name(&e))?;
            stream.set_nonblocking(true).map_err(|e| name(&e))?;
            Ok(Dialed { socket: stream.into(), client, said })
        }
        Server::Tcp { host, port } => {
            let mut stream = connect(host, *port, end).map_err(|e| name(&e))?;
            let (client, said) = negotiate(&mut stream, uri, end).map_err(|e| name(&e))?;
            stream.set_nonblocking(true).map_err(|e| name(&e))?;
            Ok(Dialed { socket: stream.into(), client, said })
        }
    }
}

/// The server and the export, for people.
pub(crate) fn named(uri: &Uri) -> String {
    match uri.export.as_str() {
        "" => uri.server.to_string(),
        export => format!("{}, export \"{export}\"", uri.server),
    }
}

fn connect(host: &str, port: u16, end: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(end)?) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                sockopt::set_socket_keepalive(&stream, true)?;
                sockopt::set_tcp_keepidle(&stream, SILENCE / 2)?;
                sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(1))?;
                sockopt::set_tcp_user_timeout(&stream, SILENCE.as_millis() as u32)?;
                return Ok(stream);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        let why = format!("it did not finish the negotiation within {} s", PATIENCE.as_secs());
        return Err(io::Error::new(io::ErrorKind::TimedOut, why));
    }
    Ok(left)
}

fn negotiate(stream: &mut dyn Stream, uri: &Uri, end: Instant) -> io::Result<(Client, Negotiated)> {
    let wish = Wish { export: uri.export.clone(), structured: true, allocation: false };
    let mut client = Client::new(wish);
    let mut input = [0; 4096];
    loop {
        let bytes: Vec<u8> = client.output().segments().fold(Vec::new(), |mut all, segment| {
            if let Segment::Bytes(bytes) = segment {
                all.extend_from_slice(bytes);
            }
            all
        });
        stream.within(left(end)?)?;
        stream.write_all(&bytes)?;
        client.written(bytes.len(), |_| {});
        let got = match stream.read(&mut input) {
            Ok(0) => return Err(other("it closed the connection while it negotiated; is it an NBD server?")),
            Ok(got) => got,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue, // the time is over
            Err(e) => return Err(e),
        };
        let mut taken = 0;
        while taken < got {
            let (n, event) = client.receive(&input[taken..got]);
            taken += n;
            match event {
                ClientEvent::Ready(said) if taken == got => {
                    check(&said)?;
                    return Ok((client, said));
                }
                ClientEvent::Ready(_) => return Err(other("it answers what nobody asked")),
                ClientEvent::Failed(why) => return Err(refused(&why)),
                _ => {}
            }
        }
    }
}

fn other(why: &str) -> io::Error {
    io::Error::other(why.to_owned())
}

fn refused(why: &ClientFailure) -> io::Error {
    match why {
        ClientFailure::Refused { message, .. } if !message.is_empty() => {
            other(&format!("it refuses the export: {message}"))
        }
        ClientFailure::Refused { kind, .. } => {
            let known =
                if *kind == (1 << 31) + 6 { "it has no such export" } else { "it refuses the export" };
            other(known)
        }
        ClientFailure::Protocol(why) => other(&format!("it does not keep to the protocol: {why}")),
    }
}

/// What no pool can be made of.
fn check(said: &Negotiated) -> io::Result<()> {
    let block = said.block;
    if block.least > crate::ALIGN as u32 || !block.least.is_power_of_two() {
        let most = crate::ALIGN;
        return Err(other(&format!("its blocks of {} bytes are too long; {most} is the most", block.least)));
    }
    if block.most < crate::ALIGN as u32 {
        return Err(other(&format!("its longest payload, {} bytes, is less than a page", block.most)));
    }
    Ok(())
}
