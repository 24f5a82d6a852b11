//! The kinds of storage that a pool can be made of, by the key that names them in its table.
//!
//! A kind is files of its own and one line of `kinds!`. It says how its key is read and what is opened for it; the rest of Henge
//! asks the [`Medium`] that came of it and knows no kind by name.

use crate::{Options, Store};
use henge_core::{Duration, ParamError, Params};
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// What one store of a pool is to be.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The pool's name.
    pub pool: &'a str,
    /// Which of several stores, where each spindle of an array has one.
    pub spindle: Option<usize>,
    /// Bytes; 0 for all that is there.
    pub capacity: u64,
    /// How files are opened and served.
    pub options: Options,
}

/// What keeps a pool's data, as its table says.
pub trait Medium: Debug + Send + Sync {
    /// The key that names its kind.
    fn key(&self) -> &'static str;

    /// Opens it. It may block: nobody is served yet.
    fn open(&self, wanted: &Wanted<'_>) -> io::Result<Box<dyn Store>>;

    /// A pool without a stated capacity takes all that is there.
    fn knows_capacity(&self) -> bool {
        false
    }

    /// How long a request keeps its slot at least without an answer, where some may hang while others are answered. A device of this machine
    /// answers sooner than servers do. But a file system may keep who needs its journal waiting for seconds, and readers not.
    fn patience(&self) -> Option<Duration> {
        self.is_device().then_some(Duration::from_millis(250))
    }

    /// Its disks are images, which have names and snapshots of their own.
    fn has_images(&self) -> bool {
        false
    }

    /// Several nodes can open it, and a disk can go from one of them to another.
    fn is_shared(&self) -> bool {
        false
    }

    /// It can be opened once for each spindle of an emulated array.
    fn has_spindles(&self) -> bool {
        false
    }

    /// To serve a request is to copy its bytes, in the loop.
    fn copies(&self) -> bool {
        false
    }

    /// It may answer sooner than whoever sleeps is woken: to look for its answers for a moment costs less.
    fn answers_soon(&self) -> bool {
        false
    }

    /// A device of this machine does its requests: they take its time.
    fn is_device(&self) -> bool {
        false
    }

    /// What is written there is gone when the program ends.
    fn is_lost_at_the_end(&self) -> bool {
        false
    }

    /// The device whose superblock says which pool it is.
    fn device(&self) -> Option<&Path> {
        None
    }

    /// The directory whose file system may run full beneath it.
    fn directory(&self) -> Option<&Path> {
        None
    }
}

/// A kind of storage.
pub struct Kind {
    /// Its key in a pool's table.
    pub key: &'static str,
    /// The key with a value, for messages.
    pub example: &'static str,
    /// Takes the key out of the table; `None` where it is not there.
    pub read: Reader,
}

/// What came of a kind's key.
pub type Read = Result<Option<Arc<dyn Medium>>, ParamError>;

/// How a kind's key is read.
pub type Reader = fn(&mut Params) -> Read;

macro_rules! kinds {
    ($($(#[$when:meta])* $name:ident,)*) => {
        $($(#[$when])* mod $name;)*
        /// All of them.
        pub const KINDS: &[Kind] = &[$($(#[$when])* $name::KIND,)*];
    };
}

// One line each: `name` is the file `registry/name.rs`, which has a `KIND`.
kinds! {
    path,
    device,
    memory,
    nbd,
    rbd,
    #[cfg(test)] slice,
}

/// Reads what a pool is made of, and where its table says so. One kind is needed, and one is enough.
pub fn read(p: &mut Params) -> Result<(Arc<dyn Medium>, Range<usize>), ParamError> {
    let mut found = None;
    for kind in KINDS {
        let place = p.error(kind.key, String::new()).span;
        let Some(medium) = (kind.read)(p)? else { continue };
        if found.replace((medium, place)).is_some() {
            let keys: Vec<&str> = KINDS.iter().map(|kind| kind.key).collect();
            return Err(p.error_here(format!("a {} has one of {}", p.name(), listed(&keys, "and"))));
        }
    }
    found.ok_or_else(|| {
        let examples: Vec<&str> = KINDS.iter().map(|kind| kind.example).collect();
        p.error_here(format!("a {} needs {}", p.name(), listed(&examples, "or")))
    })
}

/// `a, b and c`.
fn listed(words: &[&str], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., end] => format!("{} {last} {end}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::Value;

    fn text(value: &str) -> Value {
        Value::Text(value.into())
    }

    #[test]
    fn one_kind_is_needed_and_one_is_enough() {
        let (medium, _) = read(&mut Params::new("pool").with("path", text("/srv/henge"))).unwrap();
        assert_eq!((medium.key(), medium.directory()), ("path", Some(Path::new("/srv/henge"))));
        assert!(medium.is_device());
        let (medium, _) = read(&mut Params::new("pool").with("memory", Value::Bool(true))).unwrap();
        assert!(medium.copies() && !medium.is_device());
        let none = read(&mut Params::new("pool").with("memory", Value::Bool(false))).unwrap_err();
        for kind in KINDS {
            assert!(none.message.contains(kind.example), "{}", none.message);
        }
        let two = Params::new("pool").with("path", text("/a")).with("device", text("/b"));
        let message = read(&mut two.clone()).unwrap_err().message;
        assert!(
            message.starts_with("a pool has one of path, device") && !message.contains("needs"),
            "{message}"
        );
    }
}
