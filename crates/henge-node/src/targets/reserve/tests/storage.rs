//! An image's metadata, and how calls to it go wrong.

use super::*;

/// How a call to the storage goes wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Wrong {
    /// It is not done.
    Lost,
    /// It is done, and nobody hears so.
    Unheard,
}

/// What the image's metadata says, and who has its lock: a gateway, and which of all tenures.
#[derive(Default)]
pub(super) struct Storage {
    pub(super) text: Option<String>,
    pub(super) lock: (usize, u64),
    pub(super) wrong: VecDeque<Option<Wrong>>,
    /// Every table that was ever there.
    pub(super) history: Vec<Reservations>,
}

pub(super) struct Lies {
    pub(super) storage: Arc<Mutex<Storage>>,
    pub(super) by: (usize, u64),
}

impl Lies {
    pub(super) fn call<T>(&self, what: impl FnOnce(&mut Storage) -> T) -> io::Result<T> {
        let mut storage = self.storage.lock().unwrap();
        if storage.lock != self.by {
            return Err(io::Error::other("shut out"));
        }
        let wrong = storage.wrong.pop_front().flatten();
        if wrong == Some(Wrong::Lost) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let done = what(&mut storage);
        if wrong == Some(Wrong::Unheard) { Err(io::ErrorKind::TimedOut.into()) } else { Ok(done) }
    }
}

impl ImageMetadata for Lies {
    fn read(&self) -> io::Result<Option<String>> {
        self.call(|storage| storage.text.clone())
    }
    fn write(&self, text: &str) -> io::Result<()> {
        self.call(|storage| {
            storage.history.push(Reservations::restore(text).expect("what is written can be read"));
            storage.text = Some(text.to_owned());
        })
    }
    fn place(&self) -> &str {
        "the image's metadata"
    }
}
