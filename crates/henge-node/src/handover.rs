//! A restart that clients by NBD do not notice: the process stays, and the program in it is started anew.
//!
//! # The problem
//! An upgrade ends every connection. QEMU dials again and asks again; the Linux kernel's client fails; a program that uses libnbd reports an error to
//! whoever runs it.
//!
//! # The rule
//! On SIGHUP nothing new is begun. Each NBD session takes the rest of a payload, answers what it has, and then [rests](henge_nbd::Rest)
//! between two commands. The disks are flushed. Then the program is executed again, and finds its listeners and these connections. What
//! clients send meanwhile waits in their sockets. They come back once every disk is there again.
//!
//! # What ends all the same
//! - A connection with TLS: its keys are in memory that the next program does not have.
//! - Sessions of iSCSI and NVMe, and links between nodes: those clients connect again by themselves. No command of theirs is answered
//!   with an error; what has no answer is asked again.
//! - A client that does not send the rest of a payload within three seconds, or takes no answers.
//!
//! # The note
//! JSON: `{"version":1, "listeners":[{"at":"nbd://0.0.0.0:10809","fd":7}], "guests":[{"fd":9,"disk":"web", …}], "configuration":"…"}`. Fields that are not there
//! have their default, and unknown ones are passed over, so that versions which differ by one understand each other. Guests of a later
//! version are let go: what its sessions leave may mean something else.

#![allow(unsafe_code)] // descriptors that a program finds have no safe interface

use henge_io::anew;
use henge_nbd::Rest;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// What the note says of sessions.
const VERSION: u32 = 1;

/// A client that goes on.
#[derive(Debug)]
pub(crate) struct Guest {
    pub fd: OwnedFd,
    /// The disk that it uses.
    pub disk: String,
    /// Where it comes from, by TCP.
    pub from: Option<IpAddr>,
    pub rest: Rest,
}

/// What a node leaves to the next one in its process.
#[derive(Debug, Default)]
pub struct Handover {
    /// As the configuration says it, and the socket.
    pub(crate) listeners: Vec<(String, OwnedFd)>,
    pub(crate) guests: Vec<Guest>,
    /// The text of the configuration that the next one was found to be able to begin with. Its file may be another by then.
    pub configuration: Option<String>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct Note {
    version: u32,
    listeners: Vec<NotedListener>,
    guests: Vec<NotedGuest>,
    configuration: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct NotedListener {
    at: String,
    fd: RawFd,
}

#[derive(Serialize, Deserialize)]
struct NotedGuest {
    fd: RawFd,
    disk: String,
    #[serde(default)]
    from: Option<IpAddr>,
    #[serde(default)]
    structured: bool,
    #[serde(default)]
    allocation: bool,
    #[serde(default)]
    unread: Vec<u8>,
}

impl Handover {
    /// Starts the program of this process anew, with the same arguments. Returns only if that cannot be.
    pub fn exec(&self) -> io::Error {
        let why = match self.save() {
            Ok(note) => anew::exec(&note),
            Err(error) => error,
        };
        // Whoever goes on here starts children, too.
        let _ = anew::outlive(self.descriptors(), false);
        why
    }

    /// What this program was left by the one before it in the process; nothing, where it is the first.
    pub fn inherited() -> Handover {
        let Some(note) = anew::inherited() else { return Handover::default() };
        // SAFETY: the note is this process's, and is found once.
        unsafe { Self::load(&note) }.unwrap_or_else(|error| {
            tracing::warn!(%error, "what the program before has left cannot be read; its clients connect again");
            Handover::default()
        })
    }

    /// How many clients go on.
    pub fn clients(&self) -> usize {
        self.guests.len()
    }

    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let guests = self.guests.iter().map(|guest| guest.fd.as_fd());
        self.listeners.iter().map(|(_, fd)| fd.as_fd()).chain(guests)
    }

    fn save(&self) -> io::Result<File> {
        let listener = |(at, fd): &(String, OwnedFd)| NotedListener { at: at.clone(), fd: fd.as_raw_fd() };
        let guest = |guest: &Guest| NotedGuest {
            fd: guest.fd.as_raw_fd(),
            disk: guest.disk.clone(),
            from: guest.from,
            structured: guest.rest.structured,
            allocation: guest.rest.allocation,
            unread: guest.rest.unread.clone(),
        };
        let note = Note {
            version: VERSION,
            listeners: self.listeners.iter().map(listener).collect(),
            guests: self.guests.iter().map(guest).collect(),
            configuration: self.configuration.clone(),
        };
        let file = anew::note(&serde_json::to_vec(&note)?)?;
        anew::outlive(self.descriptors(), true)?;
        Ok(file)
    }

    /// # Safety
    /// The note was written by this process, and nobody else takes the descriptors in it.
    unsafe fn load(note: &File) -> io::Result<Handover> {
        let note: Note = serde_json::from_reader(note)?;
        let mut handover = Handover { configuration: note.configuration, ..Handover::default() };
        for NotedListener { at, fd } in note.listeners {
            // SAFETY: as the caller promises, here and below.
            handover.listeners.push((at, unsafe { anew::adopt(fd) }?));
        }
        for guest in note.guests {
            let NotedGuest { fd, disk, from, structured, allocation, unread } = guest;
            // SAFETY: see above. Also of one that is let go, so that it is closed.
            let fd = unsafe { anew::adopt(fd) }?;
            if note.version <= VERSION {
                handover.guests.push(Guest { fd, disk, from, rest: Rest { structured, allocation, unread } });
            }
        }
        Ok(handover)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::IntoRawFd;

    fn left(socket: TcpStream, unread: Vec<u8>) -> Handover {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let rest = Rest { structured: true, allocation: false, unread };
        let from = Some(IpAddr::from([127, 0, 0, 1]));
        let guest = Guest { fd: socket.into(), disk: "web".into(), from, rest };
        let listeners = vec![("nbd://127.0.0.1:0".into(), listener.into())];
        Handover { listeners, guests: vec![guest], configuration: Some("cores = 2\n".into()) }
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// As the next program finds it: nobody here closes the descriptors.
    fn given_away(handover: Handover) {
        let listeners = handover.listeners.into_iter().map(|(_, fd)| fd);
        for fd in listeners.chain(handover.guests.into_iter().map(|guest| guest.fd)) {
            let _ = fd.into_raw_fd();
        }
    }

    #[test]
    fn what_is_left_is_found() {
        let (near, mut far) = pair();
        let handover = left(near, vec![0x25, 0x60]);
        let note = handover.save().unwrap();
        given_away(handover);
        // SAFETY: they were just given away.
        let found = unsafe { Handover::load(&note) }.unwrap();
        let closed_by_exec = |fd| rustix::io::fcntl_getfd(fd) == Ok(rustix::io::FdFlags::CLOEXEC);
        assert!(found.descriptors().all(closed_by_exec));
        assert_eq!(found.listeners[0].0, "nbd://127.0.0.1:0");
        assert_eq!(found.configuration.as_deref(), Some("cores = 2\n"));
        let guest = &found.guests[0];
        assert_eq!((guest.disk.as_str(), guest.from), ("web", Some(IpAddr::from([127, 0, 0, 1]))));
        assert_eq!(guest.rest, Rest { structured: true, allocation: false, unread: vec![0x25, 0x60] });
        far.write_all(b"x").unwrap();
        let mut socket = TcpStream::from(guest.fd.try_clone().unwrap());
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn sessions_of_a_later_version_are_let_go_and_its_listeners_kept() {
        let (near, mut far) = pair();
        let handover = left(near, Vec::new());
        let text = std::io::read_to_string(handover.save().unwrap()).unwrap();
        given_away(handover);
        let later = text.replace("\"version\":1", "\"version\":2,\"mood\":\"good\"");
        assert_ne!(later, text);
        // SAFETY: they were just given away.
        let found = unsafe { Handover::load(&anew::note(later.as_bytes()).unwrap()) }.unwrap();
        assert_eq!((found.listeners.len(), found.clients()), (1, 0));
        assert_eq!(far.read(&mut [0]).unwrap(), 0, "its connection has ended");
    }
}
