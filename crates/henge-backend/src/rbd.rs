//! A pool of a Ceph cluster: each disk is an image.
//!
//! Replicas, their repair and where bytes lie are Ceph's; nothing of Henge's own lies in an image. So a disk can come from Ceph and leave
//! to it as it is. There is no table to keep: an image's metadata says whose it is.
//!
//! | | |
//! |---|---|
//! | [`medium`] | how a pool is configured and opened |
//! | [`store`] | what the node asks of the pool, part by part |
//! | [`parts`] | how a part gets its image, grows, and gives it up |
//! | [`requests`] | requests from the gate to an image and back, and what their errors mean |
//! | [`library`] | Ceph's functions, found at run time |
//! | [`ceph`] | a cluster and its images, by those functions |
//! | [`cluster`] | what is asked of a cluster; how a disk's image is come by, and who may write it |
//! | [`in_flight`] | requests under way, and how the loop hears of their end |
//! | [`metadata`] | the text that lies with a part, in its image's metadata |
//! | [`objects`] | which objects of an image hold something |
//!
//! The loop calls nothing that waits. What may wait runs on a thread of its own, and nobody waits for it for ever.
//!
//! # When something goes wrong
//! - A request is never given up: librbd cannot take one back, and an answered failure that happens later would be a lie. What is silent for
//!   long is said.
//! - Who was blocklisted was fenced: somebody else serves its images. Everything fails from the first such error on, until the node
//!   begins again.
//! - An image that was cut from outside fails requests beyond its end; what librbd has cut short is not acknowledged.

mod ceph;
mod cluster;
#[cfg(test)]
mod fake;
mod in_flight;
mod library;
mod medium;
mod metadata;
mod objects;
mod parts;
mod requests;
mod store;
#[cfg(test)]
mod tests;

use crate::registry::Wanted;
use crate::space::{GRAIN, Space};
use crate::{Buffer, Claim};
pub use cluster::Origin;
use cluster::{Cluster, Image};
use henge_core::{Done, Instant, Pending};
use in_flight::{Boxes, Completions};
pub(crate) use medium::read;
use objects::Objects;
use parts::Opening;
use requests::Under;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration as Real;

/// How long the end waits for images to be closed.
const FAREWELL: Real = Real::from_secs(3);
/// Notices that nobody has taken; older ones are forgotten.
const NOTICES: usize = 16;

/// A part and its image.
struct OpenImage {
    image: Arc<dyn Image>,
    part: String,
    called: String,
    len: u64,
    /// Made since the pool was opened.
    made: bool,
    ours: bool,
    objects: Objects,
    /// The last error that was said.
    said: i64,
}

/// Which objects of which slot, in which of its lives, hold something.
type Walked = (usize, u64, Vec<u64>);

/// A pool of images.
pub(crate) struct Rbd {
    cluster: Arc<dyn Cluster>,
    completions: Arc<Completions>,
    user: String,
    look: bool,
    capacity: u64,
    space: Space,
    /// By the order of `space.extents()`: where in `disks`.
    slots: Vec<usize>,
    disks: Vec<Option<OpenImage>>,
    /// How often each slot was used.
    lives: Vec<u64>,
    origins: BTreeMap<String, Origin>,
    adopted: BTreeSet<String>,
    /// How parts are taken that are opened next.
    claims: BTreeMap<String, Claim>,
    /// Parts whose images are to be removed and may still be there.
    doomed: BTreeSet<String>,
    /// All former disks are here.
    settled: bool,
    opening: Option<Opening>,
    walked: (Sender<Walked>, Receiver<Walked>),
    under: Pending<Under>,
    spare: Boxes,
    finished: Boxes,
    done: VecDeque<Done<Buffer>>,
    signalled: bool,
    look_at: Option<Instant>,
    fenced: bool,
    notices: VecDeque<String>,
}

impl Rbd {
    fn new(
        cluster: Arc<dyn Cluster>,
        completions: Arc<Completions>,
        wanted: &Wanted<'_>,
        user: String,
    ) -> Rbd {
        let room = wanted.capacity.next_multiple_of(GRAIN);
        Rbd {
            cluster,
            completions,
            user,
            look: wanted.options.look,
            capacity: wanted.capacity,
            space: if wanted.options.apart { Space::apart(room) } else { Space::new(room) },
            slots: Vec::new(),
            disks: Vec::new(),
            lives: Vec::new(),
            origins: BTreeMap::new(),
            adopted: BTreeSet::new(),
            claims: BTreeMap::new(),
            doomed: BTreeSet::new(),
            settled: false,
            opening: None,
            walked: channel(),
            under: Pending::new(),
            spare: Vec::new(),
            finished: Vec::new(),
            done: VecDeque::new(),
            signalled: true,
            look_at: None,
            fenced: false,
            notices: VecDeque::new(),
        }
    }

    fn tell(&mut self, text: String) {
        if self.notices.len() == NOTICES {
            self.notices.pop_front();
        }
        self.notices.push_back(format!("{}: {text}", self.cluster.name()));
    }

    fn called(&self, image: &str) -> String {
        format!("{}, image \"{image}\"", self.cluster.name())
    }
}

impl Drop for Rbd {
    /// Closes what can be closed soon, so that others may open it at once. What is under way may never end.
    fn drop(&mut self) {
        let images: Vec<_> = self.disks.drain(..).flatten().map(|disk| disk.image).collect();
        let cluster = Arc::clone(&self.cluster);
        let (sender, receiver) = channel::<()>();
        let work = move || {
            drop(images);
            drop(cluster);
            drop(sender);
        };
        if std::thread::Builder::new().name("rbd-close".into()).spawn(work).is_ok() {
            let _ = receiver.recv_timeout(FAREWELL);
        }
    }
}
