//! A restart that no client notices: the process stays, the program in it is started anew, and it finds its listeners, its
//! connections, each between two messages, and the requests that wait.
//!
//! OrangeFS clients do not bear that a connection ends, even between two requests: a read of 2.10 may then return success with
//! nothing read. So a proxy that is to run another version or another configuration keeps its sockets.

#![allow(unsafe_code)] // descriptors that a program finds have no safe interface

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Seek};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::time::Duration;

/// Tells the program where what it was left is written: which process, and the descriptor of the file.
const VARIABLE: &str = "HENGE_HANDOVER";

/// What a proxy leaves to the next one in its process.
#[derive(Debug, Default)]
pub struct Handover {
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) pairs: Vec<HandedPair>,
    /// How long clients wait for a response, and for data.
    pub(crate) patience: [Duration; 2],
}

/// A client connection and its twin, of which nothing is at the server.
#[derive(Debug)]
pub(crate) struct HandedPair {
    pub client: TcpStream,
    pub server: TcpStream,
    /// No PVFS2 is spoken here.
    pub opaque: bool,
    /// The oldest of its requests has waited so long.
    pub waited: Duration,
    /// Requests that wait, in the order in which they came.
    pub held: Vec<Vec<u8>>,
    /// The beginning of what comes behind them.
    pub unread: Vec<u8>,
}

impl Handover {
    /// Starts the program of this process anew, with the same arguments. Returns only if that cannot be.
    pub fn exec(&self) {
        let exec = || {
            let file = self.save()?;
            let mut arguments = std::env::args_os();
            let mut again = std::process::Command::new(arguments.next().unwrap_or_else(|| "henge".into()));
            let place = format!("{} {}", std::process::id(), file.as_raw_fd());
            Ok(again.args(arguments).env(VARIABLE, place).exec())
        };
        let why = exec().unwrap_or_else(|error: io::Error| error);
        tracing::error!(%why, "could not be started anew, and goes on as it was");
        let _ = self.mark(FdFlags::CLOEXEC);
    }

    /// What this program was left by the one before it in the process.
    pub fn inherited() -> Option<Handover> {
        let place = std::env::var(VARIABLE).ok()?;
        let (process, file) = place.split_once(' ')?;
        // Whoever is started by such a program has the variable, too, but not the descriptors.
        if process.parse() != Ok(std::process::id()) {
            return None;
        }
        // SAFETY: this process was given these descriptors by `exec`, and this program asks once, at its start.
        unsafe { Self::load(file.parse().ok()?) }.ok()
    }

    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let pairs = self.pairs.iter().flat_map(|p| [p.client.as_fd(), p.server.as_fd()]);
        self.listeners.iter().map(AsFd::as_fd).chain(pairs)
    }

    fn mark(&self, flags: FdFlags) -> io::Result<()> {
        self.descriptors().try_for_each(|fd| Ok(fcntl_setfd(fd, flags)?))
    }

    /// Writes down which descriptors are what, and lets them outlive the program.
    fn save(&self) -> io::Result<File> {
        let pair = |p: &HandedPair| {
            json!({
                "client": p.client.as_raw_fd(), "server": p.server.as_raw_fd(), "opaque": p.opaque,
                "waited": p.waited.as_nanos() as u64, "held": p.held, "unread": p.unread,
            })
        };
        let listeners: Vec<RawFd> = self.listeners.iter().map(AsRawFd::as_raw_fd).collect();
        let pairs: Vec<Value> = self.pairs.iter().map(pair).collect();
        let patience = self.patience.map(|d| d.as_nanos() as u64);
        let mut file = File::from(memfd_create("henge-handover", MemfdFlags::empty())?);
        serde_json::to_writer(
            &file,
            &json!({ "listeners": listeners, "pairs": pairs, "patience": patience }),
        )?;
        file.rewind()?;
        self.mark(FdFlags::empty())?;
        Ok(file)
    }

    /// # Safety
    /// Nobody else owns the descriptor, nor those that are written in its file.
    unsafe fn load(file: RawFd) -> io::Result<Handover> {
        // SAFETY: as the caller promises, here and below.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(file) });
        let saved: Value = serde_json::from_reader(file)?;
        let number = |v: &Value| v.as_u64().ok_or(io::ErrorKind::InvalidData);
        let list = |v: &Value| v.as_array().cloned().ok_or(io::ErrorKind::InvalidData);
        let descriptor = |v: &Value| {
            let fd = RawFd::try_from(number(v)?).map_err(|_| io::ErrorKind::InvalidData)?;
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            fcntl_setfd(&fd, FdFlags::CLOEXEC).map_err(|_| io::ErrorKind::InvalidData)?;
            Ok::<_, io::ErrorKind>(fd)
        };
        let bytes = |v: &Value| list(v)?.iter().map(|b| Ok(number(b)? as u8)).collect::<Result<Vec<u8>, _>>();
        let pair = |v: &Value| {
            Ok(HandedPair {
                client: descriptor(&v["client"])?.into(),
                server: descriptor(&v["server"])?.into(),
                opaque: v["opaque"] == true,
                waited: Duration::from_nanos(number(&v["waited"])?),
                held: list(&v["held"])?.iter().map(bytes).collect::<Result<_, _>>()?,
                unread: bytes(&v["unread"])?,
            })
        };
        let patience = |i: usize| number(&saved["patience"][i]).map(Duration::from_nanos);
        Ok(Handover {
            listeners: list(&saved["listeners"])?
                .iter()
                .map(|v| descriptor(v).map(TcpListener::from))
                .collect::<Result<_, _>>()?,
            pairs: list(&saved["pairs"])?.iter().map(pair).collect::<Result<_, io::ErrorKind>>()?,
            patience: [patience(0)?, patience(1)?],
        })
    }

    /// As another program would find it.
    #[cfg(test)]
    fn through_a_file(self) -> Handover {
        use std::os::fd::IntoRawFd;
        let file = self.save().expect("saved").into_raw_fd();
        self.listeners.into_iter().for_each(|l| {
            let _ = l.into_raw_fd();
        });
        for pair in self.pairs {
            let _ = (pair.client.into_raw_fd(), pair.server.into_raw_fd());
        }
        // SAFETY: they were just given away.
        unsafe { Self::load(file) }.expect("loaded")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn what_is_handed_over_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let connect = || TcpStream::connect(address).expect("connected");
        let (client, mut far) = (connect(), listener.accept().expect("it").0);
        let server = connect();
        let pair = HandedPair {
            client,
            server,
            opaque: true,
            waited: Duration::from_millis(7),
            held: vec![vec![1, 2, 255], vec![]],
            unread: vec![9],
        };
        let patience = [Duration::from_secs(30), Duration::from_secs(31)];
        let handover = Handover { listeners: vec![listener], pairs: vec![pair], patience };
        let mut found = handover.through_a_file();
        assert_eq!(found.listeners[0].local_addr().expect("its address"), address);
        assert_eq!(found.patience, patience);
        assert!(found.descriptors().all(|fd| rustix::io::fcntl_getfd(fd) == Ok(FdFlags::CLOEXEC)));
        let pair = &mut found.pairs[0];
        assert_eq!((pair.opaque, pair.waited), (true, Duration::from_millis(7)));
        assert_eq!(
            (pair.held.as_slice(), pair.unread.as_slice()),
            ([vec![1, 2, 255], vec![]].as_slice(), [9].as_slice())
        );
        far.write_all(b"x").expect("written");
        let mut byte = [0];
        pair.client.read_exact(&mut byte).expect("it is the client's");
        assert_eq!(&byte, b"x");
    }
}
