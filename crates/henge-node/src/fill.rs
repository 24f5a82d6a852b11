//! How full the file systems under directories' pools are: said once before they are full, off the loop.
//!
//! A directory's pool may promise more than its file system has left, for parts are sparse. Somebody else may fill it, too. So every
//! ten looks each is looked at. It is said when less than a twentieth of the file system is free and the disks may still write more
//! than that; and again once it had twice as much.

use crate::config::NodeConfig;
use crate::plane::Notice;
use henge_backend::pools::{self, Fill};
use henge_core::format_size;
use std::path::PathBuf;

/// Looks of the watcher for one of these.
const EVERY: u32 = 10;
/// Of a file system: free below it is little.
const SHARE: u64 = 20;

struct Pool {
    name: String,
    path: PathBuf,
    capacity: u64,
    is_said: bool,
}

/// All of a node's.
pub(crate) struct Fills {
    pools: Vec<Pool>,
    looks: u32,
}

impl Fills {
    pub(crate) fn of(config: &NodeConfig) -> Fills {
        let pool = |pool: &crate::config::PoolConfig| {
            let path = pool.medium.directory()?.to_owned();
            Some(Pool { name: pool.name.clone(), path, capacity: pool.capacity, is_said: false })
        };
        Fills { pools: config.pools.iter().filter_map(pool).collect(), looks: 0 }
    }

    /// What is to be said now.
    pub(crate) fn look(&mut self) -> Vec<Notice> {
        self.looks += 1;
        if !(self.looks - 1).is_multiple_of(EVERY) {
            return Vec::new();
        }
        // A file system that cannot be looked at shows in what is written there.
        let judge = |pool: &mut Pool| pool.judge(&pools::fill(&pool.path).ok()?);
        self.pools.iter_mut().filter_map(judge).collect()
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
}
