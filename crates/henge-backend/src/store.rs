//! What the node asks of real storage beyond [`Backend`].

use crate::{Buffer, Claim, ImageMetadata, Origin, Register, SharedMemory, Watch};
use henge_core::{Backend, Histogram, RequestId};
use rustix::event::epoll::EventFlags;
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Something that may block: a record to be written and synced, a file to be made. It runs on another thread than the loop's.
pub type Chore = Box<dyn FnOnce() -> io::Result<Option<File>> + Send>;

/// What is left to be done before a part is there, or is gone.
pub enum Step {
    /// Nothing: the part's address on this store (of one that is gone, nothing in particular).
    There(u64),
    /// This, on another thread. Its outcome goes to [`Store::go_on`].
    Run(Chore),
    /// These addresses are to read as zeroes, by [`WriteZeroes`](henge_core::Op::WriteZeroes) requests to this very store, in pieces and
    /// charged as whoever serves it likes. Then [`Store::go_on`].
    Zero {
        /// The first.
        from: u64,
        /// How many.
        len: u64,
    },
}

/// How a part is to grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Growth {
    /// Bytes that its disk has: what is remembered of it.
    pub has: u64,
    /// Bytes that the part is to have at least.
    pub len: u64,
    /// The disk is to have just those. Else they are room that nobody sees yet.
    pub is_told: bool,
}

/// Real storage: a backend that moves data, on which parts are made and removed.
///
/// [`open_part`](Self::open_part) and [`remove_part`](Self::remove_part) may block: they are for the start, before anybody is served. Beside
/// the data path, parts are made and removed by [`Step`]s.
pub trait Store: Backend<Payload = Buffer> {
    /// Makes the part `name`, or finds it as it was left; its address on this store. A new part reads as zeroes.
    fn open_part(&mut self, name: &str, len: u64) -> io::Result<u64>;

    /// Whether a part that is open could be so long; if not, why. [`open_part`](Self::open_part) makes it so.
    fn could_grow(&self, _name: &str, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// Gives the part's space back. Its data never shows again. Where that fails it can be done again.
    fn remove_part(&mut self, name: &str) -> io::Result<()>;

    /// Begins what [`open_part`](Self::open_part) does, for a store that is being served: the loop carries out the steps and blocks in
    /// none of them. One part of a store at a time.
    fn begin_part(&mut self, name: &str, len: u64) -> io::Result<Step> {
        self.open_part(name, len).map(Step::There)
    }

    /// Begins to make a part longer that is open. What was made longer before, and is more than its disk `has`, was told to nobody.
    fn begin_growth(&mut self, name: &str, to: Growth) -> io::Result<Step> {
        self.begin_part(name, to.len)
    }

    /// Begins to see whether a part that another node has open is at least so long; if not, why. Stores that nodes share are asked.
    fn begin_look(&mut self, _name: &str, _len: u64) -> io::Result<Step> {
        Ok(Step::There(0))
    }

    /// Begins to record that a part which was made by steps is a disk's. Until then it is nobody's, and must not be written: where the
    /// node ends before, the part goes when it begins again. Of any other part there is nothing to do.
    fn begin_claim(&mut self, _name: &str) -> io::Result<Step> {
        Ok(Step::There(0))
    }

    /// A step that [`begin_part`](Self::begin_part), [`begin_claim`](Self::begin_claim) or [`begin_removal`](Self::begin_removal) of that
    /// part named is over: what comes next. After an error nothing comes, and it may be begun again.
    fn go_on(&mut self, _name: &str, outcome: io::Result<Option<File>>) -> io::Result<Step> {
        outcome.map(|_| Step::There(0))
    }

    /// Begins what [`remove_part`](Self::remove_part) does.
    fn begin_removal(&mut self, name: &str) -> io::Result<Step> {
        self.remove_part(name).map(|()| Step::There(0))
    }

    /// Begins what [`settle`](Self::settle) does, for what nobody has opened of one disk. It is named as that disk is, not as its parts are.
    fn begin_keeping(&mut self, _disk: &str) -> io::Result<Step> {
        Ok(Step::There(0))
    }

    /// Begins to let a part go: it is closed and stays as it is, so that another node may open it.
    fn begin_release(&mut self, name: &str) -> io::Result<Step> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("\"{name}\" is on a pool of this node alone")))
    }

    /// Whoever opens the part `name` next takes it over from other nodes, as that says. Stores that nodes share are asked.
    fn claim_part(&mut self, name: &str, _claim: &Claim) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("\"{name}\" is on a pool of this node alone")))
    }

    /// Where nodes that share this store tell each other that they live.
    fn register(&self) -> Option<Arc<dyn Register>> {
        None
    }

    /// The text that lies with a part that is open, on a store that nodes share.
    fn metadata(&self, _name: &str) -> Option<Arc<dyn ImageMetadata>> {
        None
    }

    /// Whether there is a part of that name that some disk has, or had until the node ended.
    fn has_part(&self, name: &str) -> bool;

    /// The bytes of a part that some disk has, where they are known before it is opened.
    fn part_len(&self, _name: &str) -> Option<u64> {
        None
    }

    /// Whether steps have made the part of that name, and it is nobody's yet: then whoever asked for it may have it removed. What steps have only
    /// found may be some disk's.
    fn is_new(&self, _name: &str) -> bool {
        false
    }

    /// The part of that name could not be opened: what was said of it ([`set_origin`](Self::set_origin) and the like) is for nobody who comes later.
    /// Whatever is stored stays.
    fn forget_part(&mut self, _name: &str) {}

    /// Whoever opens the part `name` next means the one that a former disk left, if there is one.
    fn adopt_part(&mut self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    /// Begins what [`adopt_part`](Self::adopt_part) does.
    fn begin_adoption(&mut self, name: &str) -> io::Result<Step> {
        self.adopt_part(name).map(|()| Step::There(0))
    }

    /// Whoever opens the part `name` next had it before: where it is not there it was lost, and is not made. Only stores are asked whose parts lie
    /// elsewhere.
    fn expect_part(&mut self, _name: &str) {}

    /// Where the bytes of a part come from that is opened next; only stores of images are asked.
    fn set_origin(&mut self, name: &str, _origin: &Origin) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("\"{name}\" is on a pool without images")))
    }

    /// All disks are here that are to have what they had: parts that nobody has opened, and that are not spared, are kept from now
    /// on until somebody adopts or discards them. Their names.
    fn settle(&mut self, _is_spared: &dyn Fn(&str) -> bool) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Something that the administrator is to know, once.
    fn notice(&mut self) -> Option<String> {
        None
    }

    /// Requests begin and end at multiples of it; others fail as unsupported. At most [`crate::ALIGN`].
    fn block(&self) -> u64 {
        1
    }

    /// The state of the first bytes of a range: how many of its `len` are alike, and whether they take room. What
    /// takes none reads as zeroes; what cannot be known does take room.
    fn extent(&self, _offset: u64, len: u64) -> (u64, bool) {
        (len, true)
    }

    /// Signals an edge (to `epoll`) when `reap` has something; `None` where `wake_at` says everything.
    fn event_fd(&self) -> Option<RawFd> {
        None
    }

    /// What [`event_fd`](Self::event_fd) names has signalled: `reap` is to look.
    fn signalled(&mut self) {}

    /// Has its descriptors watched there, where [`event_fd`](Self::event_fd) does not name all that it has.
    fn be_watched(&mut self, _watch: &Watch) -> io::Result<()> {
        Ok(())
    }

    /// A descriptor of that name has told of something: `reap` is to look.
    fn happened(&mut self, _name: u32, _flags: EventFlags) {
        self.signalled();
    }

    /// A piece that was copied while `reap` was called, of a request that is not over by it: each is told of once.
    fn copied(&mut self) -> Option<(RequestId, u64)> {
        None
    }

    /// What other threads may read by themselves from now on. A READ without a buffer then has its turn, and nothing is copied for it. A store
    /// behind a wrapper shares nothing.
    fn share(&mut self) -> Option<SharedMemory> {
        None
    }

    /// Whether a part may be there that nobody has looked for yet.
    fn opens_elsewhere(&self) -> bool {
        false
    }

    /// How it does its work here, for people: `io_uring, O_DIRECT (512 bytes)`.
    fn describe(&self) -> String;

    /// How late completions were against the model's time; emulated disks know.
    fn lateness(&self) -> Option<&Histogram> {
        None
    }
}

/// What a wrapper leaves to the store behind it: parts, blocks, extents, and how it signals.
macro_rules! parts_behind {
    (|$wrapper:ident| $store:expr) => {
        fn open_part(&mut self, name: &str, len: u64) -> std::io::Result<u64> {
            let $wrapper = self;
            $store.open_part(name, len)
        }
        fn could_grow(&self, name: &str, len: u64) -> std::io::Result<()> {
            let $wrapper = self;
            $store.could_grow(name, len)
        }
        fn remove_part(&mut self, name: &str) -> std::io::Result<()> {
            let $wrapper = self;
            $store.remove_part(name)
        }
        fn begin_part(&mut self, name: &str, len: u64) -> std::io::Result<crate::store::Step> {
            let $wrapper = self;
            $store.begin_part(name, len)
        }
        fn begin_growth(
            &mut self,
            name: &str,
            to: crate::store::Growth,
        ) -> std::io::Result<crate::store::Step> {
            let $wrapper = self;
            $store.begin_growth(name, to)
        }
        fn begin_look(&mut self, name: &str, len: u64) -> std::io::Result<crate::store::Step> {
            let $wrapper = self;
            $store.begin_look(name, len)
        }
        fn begin_claim(&mut self, name: &str) -> std::io::Result<crate::store::Step> {
            let $wrapper = self;
            $store.begin_claim(name)
        }
        fn go_on(
            &mut self,
            name: &str,
            outcome: std::io::Result<Option<std::fs::File>>,
        ) -> std::io::Result<crate::store::Step> {
            let $wrapper = self;
            $store.go_on(name, outcome)
        }
        fn begin_removal(&mut self, name: &str) -> std::io::Result<crate::store::Step> {
            let $wrapper = self;
            $store.begin_removal(name)
        }
        fn begin_keeping(&mut self, disk: &str) -> std::io::Result<crate::store::Step> {
            let $wrapper = self;
            $store.begin_keeping(disk)
        }
        fn begin_release(&mut self, name: &str) -> std::io::Result<crate::store::Step> {
            let $wrapper = self;
            $store.begin_release(name)
        }
        fn claim_part(&mut self, name: &str, claim: &crate::Claim) -> std::io::Result<()> {
            let $wrapper = self;
            $store.claim_part(name, claim)
        }
        fn register(&self) -> Option<std::sync::Arc<dyn crate::Register>> {
            let $wrapper = self;
            $store.register()
        }
        fn metadata(&self, name: &str) -> Option<std::sync::Arc<dyn crate::ImageMetadata>> {
            let $wrapper = self;
            $store.metadata(name)
        }
        fn has_part(&self, name: &str) -> bool {
            let $wrapper = self;
            $store.has_part(name)
        }
        fn part_len(&self, name: &str) -> Option<u64> {
            let $wrapper = self;
            $store.part_len(name)
        }
        fn is_new(&self, name: &str) -> bool {
            let $wrapper = self;
            $store.is_new(name)
        }
        fn forget_part(&mut self, name: &str) {
            let $wrapper = self;
            $store.forget_part(name)
        }
        fn adopt_part(&mut self, name: &str) -> std::io::Result<()> {
            let $wrapper = self;
            $store.adopt_part(name)
        }
        fn begin_adoption(&mut self, name: &str) -> std::io::Result<crate::store::Step> {
            let $wrapper = self;
            $store.begin_adoption(name)
        }
        fn expect_part(&mut self, name: &str) {
            let $wrapper = self;
            $store.expect_part(name)
        }
        fn set_origin(&mut self, name: &str, origin: &crate::Origin) -> std::io::Result<()> {
            let $wrapper = self;
            $store.set_origin(name, origin)
        }
        fn settle(&mut self, is_spared: &dyn Fn(&str) -> bool) -> std::io::Result<Vec<String>> {
            let $wrapper = self;
            $store.settle(is_spared)
        }
        fn notice(&mut self) -> Option<String> {
            let $wrapper = self;
            $store.notice()
        }
        fn block(&self) -> u64 {
            let $wrapper = self;
            $store.block()
        }
        fn extent(&self, offset: u64, len: u64) -> (u64, bool) {
            let $wrapper = self;
            $store.extent(offset, len)
        }
        fn event_fd(&self) -> Option<std::os::fd::RawFd> {
            let $wrapper = self;
            $store.event_fd()
        }
        fn signalled(&mut self) {
            let $wrapper = self;
            $store.signalled()
        }
        fn be_watched(&mut self, watch: &crate::Watch) -> std::io::Result<()> {
            let $wrapper = self;
            $store.be_watched(watch)
        }
        fn happened(&mut self, name: u32, flags: rustix::event::epoll::EventFlags) {
            let $wrapper = self;
            $store.happened(name, flags)
        }
        fn copied(&mut self) -> Option<(henge_core::RequestId, u64)> {
            let $wrapper = self;
            $store.copied()
        }
        fn opens_elsewhere(&self) -> bool {
            let $wrapper = self;
            $store.opens_elsewhere()
        }
    };
}
pub(crate) use parts_behind;

/// What is said when a sync failed.
pub(crate) const SYNC_FAILED: &str = "a sync failed, so what was written since the last good one may be lost; every FLUSH and \
    FUA fails until the node begins again";

/// What is said of a part that no disk has any more.
pub fn put_aside(name: &str) -> String {
    format!(
        "the part \"{name}\" is no disk's any more and is kept; adopt = true in a disk of its name, or `henge pool discard`"
    )
}

/// Whether a part is one of a disk's.
pub(crate) fn is_of(part: &str, disk: &str) -> bool {
    part.rsplit_once(".part").is_some_and(|(of, _)| of == disk)
}

/// Nobody inherits by a name alone.
pub(crate) fn kept(name: &str, id: &str, len: u64) -> io::Error {
    let why = format!(
        "the pool keeps a part \"{name}\" ({len} bytes, {id}) of a former disk of that name; adopt = true gives it to this \
         disk, `henge pool discard` deletes it"
    );
    io::Error::new(io::ErrorKind::AlreadyExists, why)
}

pub(crate) fn several(name: &str) -> io::Error {
    let why = format!(
        "the pool keeps several parts \"{name}\" of former disks; `henge pool show` names them, `henge pool adopt` takes one"
    );
    io::Error::new(io::ErrorKind::AlreadyExists, why)
}

pub(crate) fn not_one(found: usize, id: &str) -> String {
    match found {
        0 => format!("keeps no part \"{id}\"; `henge pool show` names those that it keeps"),
        n => format!("keeps {n} parts whose names begin with \"{id}\"; write more of it"),
    }
}

impl<S: Store + ?Sized> Store for Box<S> {
    parts_behind!(|boxed| **boxed);
    fn describe(&self) -> String {
        (**self).describe()
    }
    fn lateness(&self) -> Option<&Histogram> {
        (**self).lateness()
    }
    fn share(&mut self) -> Option<SharedMemory> {
        (**self).share()
    }
}
