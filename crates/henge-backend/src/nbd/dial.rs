//! Connects to a server and negotiates. This blocks, so it is done before anybody is served, or on a thread of its own.

use super::uri::{Server, Uri};
use henge_nbd::proto::rep;
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
    let (kind, message) = match why {
        ClientFailure::Refused { kind, message } => (*kind, message),
        ClientFailure::Protocol(why) => return other(&format!("it does not keep to the protocol: {why}")),
    };
    let known = match kind {
        rep::ERR_TLS_REQD => "it requires TLS, which is not spoken to servers: put a tunnel before it",
        rep::ERR_UNKNOWN => "it has no such export",
        rep::ERR_UNSUP => "it does not know NBD_OPT_GO, by which exports are chosen",
        rep::ERR_POLICY => "it does not give the export to this node",
        rep::ERR_SHUTDOWN => "it shuts down",
        _ => "it refuses the export",
    };
    match message.as_str() {
        "" => other(known),
        message => other(&format!("{known}: {message}")),
    }
}

/// What no pool can be made of.
fn check(said: &Negotiated) -> io::Result<()> {
    let block = said.block;
    // As many as a file may have. Sums of more would not fit.
    if said.size > i64::MAX as u64 {
        return Err(other(&format!("it says that the export has {} bytes, which cannot be", said.size)));
    }
    if block.least > crate::ALIGN as u32 || !block.least.is_power_of_two() {
        let most = crate::ALIGN;
        return Err(other(&format!("its blocks of {} bytes are too long; {most} is the most", block.least)));
    }
    if block.most < crate::ALIGN as u32 {
        return Err(other(&format!("its longest payload, {} bytes, is less than a page", block.most)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A server that says the same whatever it is asked, and then nothing more.
    struct Script {
        says: VecDeque<Vec<u8>>,
        heard: Vec<u8>,
    }

    impl Read for Script {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Some(mut next) = self.says.pop_front() else { return Ok(0) };
            let rest = next.split_off(next.len().min(into.len()));
            into[..next.len()].copy_from_slice(&next);
            if !rest.is_empty() {
                self.says.push_front(rest);
            }
            Ok(next.len())
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.heard.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Stream for Script {
        fn within(&self, _left: Duration) -> io::Result<()> {
            Ok(())
        }
    }

    const HELLO: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";
    const STRUCTURED: u32 = 8;
    const GO: u32 = 7;

    fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
        let numbers = [option, kind, data.len() as u32].map(u32::to_be_bytes).concat();
        [&0x0003_e889_0455_65a9u64.to_be_bytes()[..], &numbers, data].concat()
    }

    /// An export of so many bytes, with blocks of so many.
    fn export(size: u64, least: u32, most: u32) -> Vec<Vec<u8>> {
        let export = [&[0, 0][..], &size.to_be_bytes(), &[0, 1]].concat();
        let block = [&[0, 3][..], &[least, 4096, most].map(u32::to_be_bytes).concat()].concat();
        vec![reply(STRUCTURED, 1, &[]), reply(GO, 3, &export), reply(GO, 3, &block), reply(GO, 1, &[])]
    }

    fn negotiated(says: Vec<Vec<u8>>) -> Result<Negotiated, String> {
        let says = [vec![HELLO.to_vec()], says].concat().into();
        let uri = super::super::uri::parse("nbd://store/vm").unwrap();
        let mut script = Script { says, heard: Vec::new() };
        let end = Instant::now() + Duration::from_secs(3600);
        let said = negotiate(&mut script, &uri, end).map_err(|e| e.to_string());
        said.map(|(_, said)| said)
    }

    #[test]
    fn what_a_server_refuses_or_cannot_be_is_said() {
        assert_eq!(negotiated(export(1 << 30, 512, 1 << 20)).unwrap().size, 1 << 30);
        let refuses = |kind: u32, text: &str| {
            let no = |option| reply(option, kind, text.as_bytes());
            vec![no(STRUCTURED), no(GO)]
        };
        let twice = [export(1, 1, 4096), vec![reply(GO, 1, &[])]].concat().concat();
        for (says, why) in [
            (refuses(rep::ERR_TLS_REQD, ""), "requires TLS, which is not spoken to servers"),
            (refuses(rep::ERR_TLS_REQD, "starttls first"), "put a tunnel before it: starttls first"),
            (refuses(rep::ERR_UNKNOWN, ""), "no such export"),
            (refuses(rep::ERR_POLICY, ""), "to this node"),
            (refuses(rep::ERR_SHUTDOWN, ""), "shuts down"),
            (refuses(rep::ERR_UNSUP, ""), "NBD_OPT_GO"),
            (refuses(rep::ERR_INVALID, "no"), "it refuses the export: no"),
            (export(1 << 30, 8192, 1 << 20), "blocks of 8192 bytes are too long"),
            (export(1 << 30, 1, 512), "longest payload, 512 bytes"),
            (export(u64::MAX, 1, 1 << 20), "which cannot be"),
            (vec![reply(GO, 1, &[])], "not a reply to the option"),
            (vec![twice], "nobody asked"),
            (vec![], "closed the connection while it negotiated"),
        ] {
            let said = negotiated(says).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
