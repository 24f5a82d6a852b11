//! A restart that no client notices: the process stays, the program in it is started anew, and it finds its listeners, its
//! connections, each between two messages, and the requests that wait.
//!
//! OrangeFS clients do not bear that a connection ends, even between two requests: a read of 2.10 may then return success with
//! nothing read. So a proxy that is to run another version or another configuration keeps its sockets.

#![allow(unsafe_code)] // descriptors that a program finds have no safe interface

use henge_io::anew;
use serde_json::{Value, json};
use std::fs::File;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// What a proxy leaves to the next one in its process.
#[derive(Debug, Default)]
pub struct Handover {
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) pairs: Vec<HandedPair>,
    /// How long clients wait for a response, and for data.
    pub(crate) patience: [Duration; 2],
    /// The text of the configuration that the next one was found to be able to begin with. Its file may be another by then.
    pub configuration: Option<String>,
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
        let why = match self.save() {
            Ok(note) => anew::exec(&note),
            Err(error) => error,
        };
        tracing::error!(%why, "could not be started anew, and goes on as it was");
        let _ = anew::outlive(self.descriptors(), false);
    }

    /// What this program was left by the one before it in the process.
    pub fn inherited() -> Option<Handover> {
        let note = anew::inherited()?;
        // SAFETY: the note is this process's, and is found once.
        unsafe { Self::load(note) }.ok()
    }

    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let pairs = self.pairs.iter().flat_map(|p| [p.client.as_fd(), p.server.as_fd()]);
        self.listeners.iter().map(AsFd::as_fd).chain(pairs)
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
        let configuration = &self.configuration;
        let saved = json!({ "listeners": listeners, "pairs": pairs, "patience": patience, "configuration": configuration });
        let note = anew::note(&serde_json::to_vec(&saved)?)?;
        anew::outlive(self.descriptors(), true)?;
        Ok(note)
    }

    /// # Safety
    /// The note was written by this process, and nobody else takes the descriptors in it.
    unsafe fn load(note: File) -> io::Result<Handover> {
        let saved: Value = serde_json::from_reader(note)?;
        let number = |v: &Value| v.as_u64().ok_or(io::ErrorKind::InvalidData);
        let list = |v: &Value| v.as_array().cloned().ok_or(io::ErrorKind::InvalidData);
        let descriptor = |v: &Value| {
            let fd = RawFd::try_from(number(v)?).map_err(|_| io::ErrorKind::InvalidData)?;
            // SAFETY: as the caller promises.
            unsafe { anew::adopt(fd) }.map_err(|_| io::ErrorKind::InvalidData)
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
            configuration: saved["configuration"].as_str().map(str::to_owned),
        })
    }

    /// As another program would find it.
    #[cfg(test)]
    fn through_a_file(self) -> Handover {
        use std::os::fd::IntoRawFd;
        let note = self.save().expect("saved");
        self.listeners.into_iter().for_each(|l| {
            let _ = l.into_raw_fd();
        });
        for pair in self.pairs {
            let _ = (pair.client.into_raw_fd(), pair.server.into_raw_fd());
        }
        // SAFETY: they were just given away.
        unsafe { Self::load(note) }.expect("loaded")
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
        let configuration = Some("server = \"10.0.0.1:3334\"\n".to_owned());
        let handover = Handover {
            listeners: vec![listener],
            pairs: vec![pair],
            patience,
            configuration: configuration.clone(),
        };
        let mut found = handover.through_a_file();
        assert_eq!(found.listeners[0].local_addr().expect("its address"), address);
        assert_eq!((found.patience, &found.configuration), (patience, &configuration));
        assert!(
            found.descriptors().all(|fd| rustix::io::fcntl_getfd(fd) == Ok(rustix::io::FdFlags::CLOEXEC))
        );
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
