//! Writes what must be on the medium before it is answered: a file's sync may take seconds where others write much, and the loop
//! has other clients. So may a cluster, in whose images the tables of shared disks lie: these have a thread of their own.

use henge_backend::ImageMetadata;
use henge_tls::OncePerSecond;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// How long the end waits for a cluster.
const FAREWELL: Duration = Duration::from_secs(3);

/// Where a disk's table is kept.
#[derive(Clone)]
pub(super) enum Medium {
    /// Nowhere: then it cannot be written.
    Nothing,
    File(PathBuf),
    /// In the metadata of the disk's image.
    Image(Arc<dyn ImageMetadata>),
}

pub(super) enum What {
    /// It is written anew.
    Write(String),
    /// It is taken away.
    Remove,
    Read,
}

/// What is to be done.
pub(super) struct ToDo {
    name: String,
    pub number: u64,
    medium: Medium,
    pub what: What,
}

/// It is done.
pub(super) struct Done {
    /// Whose.
    pub name: String,
    /// Which.
    pub number: u64,
    /// What was read, or that it went well.
    pub outcome: io::Result<Option<String>>,
}

/// The thread that writes, in the order in which it is told to.
pub(super) struct Writer {
    todo: Option<Sender<ToDo>>,
    done: Receiver<Done>,
    number: u64,
    thread: Option<JoinHandle<()>>,
    /// Whether its end is waited for however long it takes.
    patient: bool,
}

impl Writer {
    /// `wake` is written to when something is done.
    pub(super) fn new(wake: Arc<OwnedFd>, patient: bool) -> io::Result<Writer> {
        let (todo, asked) = channel();
        let (tell, done) = channel();
        let thread = std::thread::Builder::new().name("reservations".into());
        let thread = thread.spawn(move || work(&asked, &tell, &wake))?;
        Ok(Writer { todo: Some(todo), done, number: 0, thread: Some(thread), patient })
    }

    /// One whose work is done by hand.
    #[cfg(test)]
    pub(super) fn by_hand() -> (Writer, Receiver<ToDo>, Sender<Done>) {
        let (todo, asked) = channel();
        let (tell, done) = channel();
        (Writer { todo: Some(todo), done, number: 0, thread: None, patient: false }, asked, tell)
    }

    /// Replaces what is there; the number of that.
    pub(super) fn write(&mut self, name: &str, medium: Medium, text: String) -> u64 {
        self.send(name, medium, What::Write(text))
    }

    /// Reads what is there; the number of that.
    pub(super) fn read(&mut self, name: &str, medium: Medium) -> u64 {
        self.send(name, medium, What::Read)
    }

    /// Takes away what is there, if anything is.
    pub(super) fn remove(&mut self, name: &str, medium: Medium) {
        self.send(name, medium, What::Remove);
    }

    fn send(&mut self, name: &str, medium: Medium, what: What) -> u64 {
        self.number += 1;
        let next = ToDo { name: name.to_owned(), number: self.number, medium, what };
        if let Some(todo) = &self.todo {
            // The thread lives as long as this end of the channel.
            let _ = todo.send(next);
        }
        self.number
    }

    pub(super) fn next_done(&mut self) -> Option<Done> {
        self.done.try_recv().ok()
    }
}

/// The writers of a node's tables, which must not wait for each other.
pub(super) struct Writers {
    files: Writer,
    /// Of those that lie in storage that nodes share, where there are other nodes.
    images: Option<Writer>,
}

impl Writers {
    pub(super) fn new(files: Writer, images: Option<Writer>) -> Writers {
        Writers { files, images }
    }

    /// The one of a table that goes from gateway to gateway, or of one that stays.
    pub(super) fn of(&mut self, moves: bool) -> Option<&mut Writer> {
        if moves { self.images.as_mut() } else { Some(&mut self.files) }
    }

    pub(super) fn next_done(&mut self) -> Option<Done> {
        self.files.next_done().or_else(|| self.images.as_mut().and_then(Writer::next_done))
    }
}

impl Drop for Writer {
    /// What was to be written is; by a cluster that does not answer, nobody is held up.
    fn drop(&mut self) {
        self.todo = None;
        let until = std::time::Instant::now() + FAREWELL;
        while !self.patient
            && self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
            && std::time::Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(thread) = self.thread.take().filter(|thread| self.patient || thread.is_finished()) {
            let _ = thread.join();
        }
    }
}

fn work(todo: &Receiver<ToDo>, tell: &Sender<Done>, wake: &OwnedFd) {
    let told = OncePerSecond::default();
    for next in todo {
        let done = carry_out(next);
        if let Some(e) = trouble(&done, &told, SystemTime::now()) {
            tracing::warn!("the reservations of disk \"{}\" could not be kept or read: {e}", done.name);
        }
        if tell.send(done).is_ok() {
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }
}

pub(super) fn carry_out(ToDo { name, number, medium, what }: ToDo) -> Done {
    let outcome = match (medium, what) {
        (Medium::Nothing, What::Write(_)) => Err(io::Error::other("this node has no state_dir")),
        (Medium::Nothing, What::Read | What::Remove) => Ok(None),
        (Medium::File(file), What::Write(text)) => henge_io::replace(&file, text.as_bytes()).map(|()| None),
        (Medium::File(file), What::Remove) => remove(&file).map(|()| None),
        (Medium::File(file), What::Read) => std::fs::read_to_string(file).map(Some),
        (Medium::Image(metadata), What::Write(text)) => metadata.write(&text).map(|()| None),
        (Medium::Image(metadata), What::Remove) => metadata.write(EMPTY).map(|()| None),
        (Medium::Image(metadata), What::Read) => metadata.read(),
    };
    Done { name, number, outcome }
}

/// What went wrong, if the log is to say so: clients have as many failures as they ask for.
fn trouble<'a>(done: &'a Done, told: &OncePerSecond, now: SystemTime) -> Option<&'a io::Error> {
    done.outcome.as_ref().err().filter(|_| told.is_due(now))
}

/// What an image's metadata says where nobody has reserved it: it stays when its disk goes.
const EMPTY: &str = "volatile\ngeneration 0\n";

/// The next disk of that name begins without them.
fn remove(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => std::fs::File::open(file.parent().unwrap_or(Path::new(".")))?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_iscsi::scsi::Reservations;

    #[test]
    fn what_is_written_is_told_and_what_cannot_be_too() {
        let dir = tempfile::tempdir().unwrap();
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let wake = Arc::new(wake);
        let mut writer = Writer::new(wake.clone(), true).unwrap();
        let file = dir.path().join("state/web.reservations");
        let first = writer.write("web", Medium::File(file.clone()), "generation 1\n".into());
        let second = writer.write("db", Medium::File(file.join("x")), String::new());
        let third = writer.write("nowhere", Medium::Nothing, String::new());
        let mut done = Vec::new();
        while done.len() < 3 {
            // Each one wakes whoever waits.
            rustix::io::read(&*wake, &mut [0; 8]).unwrap();
            done.extend(
                std::iter::from_fn(|| writer.next_done()).map(|d| (d.name, d.number, d.outcome.is_ok())),
            );
        }
        assert_eq!(
            done,
            [("web".into(), first, true), ("db".into(), second, false), ("nowhere".into(), third, false)]
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "generation 1\n");
        writer.remove("web", Medium::File(file.clone()));
        drop(writer);
        assert!(!file.exists(), "what it was told last is done, too");
    }
    #[test]
    fn an_image_that_stays_is_left_without_reservations() {
        assert_eq!(Reservations::default().text(), EMPTY);
    }

    /// Each reservation that a client asks for on a node without a `state_dir`, or with a full one.
    #[test]
    fn the_log_says_once_in_a_second_what_goes_wrong() {
        let (told, second) = (OncePerSecond::default(), std::time::UNIX_EPOCH + Duration::from_secs(5));
        let fails = |number| {
            let (name, what) = ("web".to_owned(), What::Write(String::new()));
            carry_out(ToDo { name, number, medium: Medium::Nothing, what })
        };
        let said = |at| (0..1000).filter(|n| trouble(&fails(*n), &told, at).is_some()).count();
        assert_eq!((said(second), said(second), said(second + Duration::from_secs(1))), (1, 0, 1));
    }
}
