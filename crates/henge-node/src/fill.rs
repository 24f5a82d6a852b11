//! How full the file systems under directories' pools are: said once before they are full, off the loop.
//!
//! A directory's pool may promise more than its file system has left, for parts are sparse. Somebody else may fill it, too. So every
//! ten looks each is looked at. It is said when less than a twentieth of the file system is free and the disks may still write more
//! than that; and again once it had twice as much.
//!
//! A file system that hangs answers nobody who looks. So each pool has a thread for its look, and is looked at again once that is over: whoever
//! watches all disks waits for none.

use crate::config::NodeConfig;
use crate::plane::Notice;
use henge_backend::pools::{self, Fill};
use henge_core::format_size;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// Looks of the watcher for one of these.
const EVERY: u32 = 10;
/// Of a file system: free below it is little.
const SHARE: u64 = 20;

#[derive(Clone)]
struct Pool {
    name: String,
    path: PathBuf,
    capacity: u64,
    is_said: bool,
}

/// How full the file system of a folder is.
type Look = dyn Fn(&Path) -> io::Result<Fill> + Send + Sync;

/// A pool, or where it comes back when it was looked at, with what is to be said.
enum Turn {
    Here(Pool),
    Away(Receiver<(Pool, Option<Notice>)>),
}

/// All of a node's.
pub(crate) struct Fills {
    pools: Vec<Turn>,
    looks: u32,
    look: Arc<Look>,
}

impl Fills {
    pub(crate) fn of(config: &NodeConfig) -> Fills {
        let pool = |pool: &crate::config::PoolConfig| {
            let path = pool.medium.directory()?.to_owned();
            Some(Pool { name: pool.name.clone(), path, capacity: pool.capacity, is_said: false })
        };
        Fills::new(config.pools.iter().filter_map(pool), Arc::new(pools::fill))
    }

    fn new(pools: impl Iterator<Item = Pool>, look: Arc<Look>) -> Fills {
        Fills { pools: pools.map(Turn::Here).collect(), looks: 0, look }
    }

    /// What is to be said now.
    pub(crate) fn look(&mut self) -> Vec<Notice> {
        self.looks += 1;
        let is_due = (self.looks - 1).is_multiple_of(EVERY);
        let mut said = Vec::new();
        self.pools = std::mem::take(&mut self.pools)
            .into_iter()
            .filter_map(|turn| match turn {
                Turn::Here(pool) if is_due => Some(begin(pool, Arc::clone(&self.look))),
                Turn::Here(pool) => Some(Turn::Here(pool)),
                Turn::Away(back) => match back.try_recv() {
                    Ok((pool, notice)) => {
                        said.extend(notice);
                        Some(Turn::Here(pool))
                    }
                    Err(TryRecvError::Empty) => Some(Turn::Away(back)),
                    // Its look has panicked, which the log says.
                    Err(TryRecvError::Disconnected) => None,
                },
            })
            .collect();
        said
    }
}

/// Looks at a pool, on a thread that may wait for ever.
fn begin(mut pool: Pool, look: Arc<Look>) -> Turn {
    let ((over, back), here) = (channel(), pool.clone());
    let work = move || {
        // A file system that cannot be looked at shows in what is written there.
        let notice = look(&pool.path).ok().and_then(|fill| pool.judge(&fill));
        // The node may have ended.
        let _ = over.send((pool, notice));
    };
    match std::thread::Builder::new().name("henge-fill".into()).spawn(work) {
        Ok(_) => Turn::Away(back),
        Err(_) => Turn::Here(here),
    }
}

impl Pool {
    fn judge(&mut self, fill: &Fill) -> Option<Notice> {
        let little = fill.all / SHARE;
        let unwritten = self.capacity.saturating_sub(fill.held);
        if fill.free > 2 * little || unwritten <= fill.free {
            self.is_said = false;
        }
        if fill.free >= little || unwritten <= fill.free || std::mem::replace(&mut self.is_said, true) {
            return None;
        }
        let text = format!(
            "{}: its file system is nearly full: {} of {} are free, and the disks may still write {}",
            self.path.display(),
            format_size(fill.free),
            format_size(fill.all),
            format_size(unwritten)
        );
        Some((self.name.clone(), text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_before_it_is_full_and_once() {
        let mut pool = Pool { name: "p".into(), path: "/p".into(), capacity: 500, is_said: false };
        let mut said = |free, held| pool.judge(&Fill { all: 1000, free, held }).map(|(_, text)| text);
        assert_eq!(said(51, 100), None);
        let text = said(49, 100).unwrap();
        assert!(text.contains("nearly full") && text.contains("400"), "{text}");
        assert_eq!(said(10, 100), None, "once");
        assert_eq!(said(60, 100), None);
        assert_eq!(said(49, 100), None, "it had not recovered");
        assert_eq!(said(101, 100), None);
        assert!(said(49, 100).is_some());
        // What is promised is written already, or fits: others' business.
        assert_eq!((said(101, 0), said(1, 500)), (None, None));
    }

    /// One file system hangs: the others are looked at, and nobody waits.
    #[test]
    fn a_file_system_that_hangs_keeps_nobody_waiting() {
        let (release, hangs) = channel::<()>();
        let hangs = std::sync::Mutex::new(hangs);
        let look = move |path: &Path| {
            if path == Path::new("/hangs") {
                let _ = hangs.lock().unwrap().recv();
            }
            Ok(Fill { all: 1000, free: 10, held: 0 })
        };
        let pool = |name: &str| Pool {
            name: name.into(),
            path: format!("/{name}").into(),
            capacity: 500,
            is_said: false,
        };
        let mut fills = Fills::new([pool("hangs"), pool("well")].into_iter(), Arc::new(look));
        let mut next = || loop {
            let mut said = fills.look();
            if let Some((name, _)) = said.pop() {
                return name;
            }
            std::thread::yield_now();
        };
        assert_eq!(next(), "well");
        release.send(()).unwrap();
        assert_eq!(next(), "hangs");
    }
}
