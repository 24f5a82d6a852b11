//! Writes what must be on the medium before it is answered: a file's sync may take seconds where others write much, and the loop
//! has other clients.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// What is to be done with a file: written anew, or taken away.
struct ToWrite {
    name: String,
    number: u64,
    /// None where nothing is remembered: then it cannot be written.
    file: Option<PathBuf>,
    text: Option<String>,
}

/// A file is written.
pub(super) struct Done {
    /// Whose.
    pub name: String,
    /// Which writing.
    pub number: u64,
    /// Whether it went well.
    pub well: bool,
}

/// The thread that writes, in the order in which it is told to.
pub(super) struct Writer {
    to_write: Option<Sender<ToWrite>>,
    done: Receiver<Done>,
    number: u64,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// `wake` is written to when something is done.
    pub(super) fn new(wake: Arc<OwnedFd>) -> std::io::Result<Writer> {
        let (to_write, todo) = channel();
        let (tell, done) = channel();
        let thread = std::thread::Builder::new().name("reservations".into());
        let thread = thread.spawn(move || work(&todo, &tell, &wake))?;
        Ok(Writer { to_write: Some(to_write), done, number: 0, thread: Some(thread) })
    }

    /// Replaces a file; the number of that.
    pub(super) fn write(&mut self, name: &str, file: Option<PathBuf>, text: String) -> u64 {
        self.send(name, file, Some(text))
    }

    /// Takes a file away, if there is one.
    pub(super) fn remove(&mut self, name: &str, file: Option<PathBuf>) {
        self.send(name, file, None);
    }

    fn send(&mut self, name: &str, file: Option<PathBuf>, text: Option<String>) -> u64 {
        self.number += 1;
        let next = ToWrite { name: name.to_owned(), number: self.number, file, text };
        if let Some(to_write) = &self.to_write {
            // The thread lives as long as this end of the channel.
            let _ = to_write.send(next);
        }
        self.number
    }

    pub(super) fn next_done(&mut self) -> Option<Done> {
        self.done.try_recv().ok()
    }
}

impl Drop for Writer {
    /// What was to be written is.
    fn drop(&mut self) {
        self.to_write = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(todo: &Receiver<ToWrite>, tell: &Sender<Done>, wake: &OwnedFd) {
    for ToWrite { name, number, file, text } in todo {
        let outcome = match (&file, text) {
            (Some(file), Some(text)) => henge_io::replace(file, text.as_bytes()),
            (Some(file), None) => remove(file),
            (None, Some(_)) => Err(std::io::Error::other("this node has no state_dir")),
            (None, None) => Ok(()),
        };
        if let Err(e) = &outcome {
            tracing::warn!("the reservations of disk \"{name}\" could not be kept: {e}");
        }
        if tell.send(Done { name, number, well: outcome.is_ok() }).is_ok() {
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }
}

/// The next disk of that name begins without them.
fn remove(file: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(file) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => std::fs::File::open(file.parent().unwrap_or(Path::new(".")))?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::Writer;
    use std::sync::Arc;

    #[test]
    fn what_is_written_is_told_and_what_cannot_be_too() {
        let dir = tempfile::tempdir().unwrap();
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let wake = Arc::new(wake);
        let mut writer = Writer::new(wake.clone()).unwrap();
        let file = dir.path().join("state/web.reservations");
        let first = writer.write("web", Some(file.clone()), "generation 1\n".into());
        let second = writer.write("db", Some(file.join("x")), String::new());
        let third = writer.write("nowhere", None, String::new());
        let mut done = Vec::new();
        while done.len() < 3 {
            // Each one wakes whoever waits.
            rustix::io::read(&*wake, &mut [0; 8]).unwrap();
            done.extend(std::iter::from_fn(|| writer.next_done()).map(|d| (d.name, d.number, d.well)));
        }
        assert_eq!(
            done,
            [("web".into(), first, true), ("db".into(), second, false), ("nowhere".into(), third, false)]
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "generation 1\n");
        writer.remove("web", Some(file.clone()));
        drop(writer);
        assert!(!file.exists(), "what it was told last is done, too");
    }
}
