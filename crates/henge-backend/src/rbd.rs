//! A pool of a Ceph cluster: each disk is an image.
//!
//! Replicas, their repair and where bytes lie are Ceph's; nothing of Henge's own lies in an image. So a disk can come from Ceph and leave
//! to it as it is. There is no table to keep: an image's metadata says whose it is.
//!
//! | | |
//! |---|---|
//! | [`medium`] | how a pool is configured and opened |
//! | [`store`] | what the node asks of the pool, part by part |
//! | [`plans`] | how parts are to be come by, as the node has said |
//! | [`parts`] | the parts that are open, and the image of each |
//! | [`steps`] | how a part gets its image, grows, and gives it up |
//! | [`requests`] | requests from the gate to an image and back, and what their errors mean |
//! | [`silence`] | requests that Ceph leaves unanswered, and what people hear of it |
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
mod plans;
mod requests;
mod silence;
mod steps;
mod store;
#[cfg(test)]
mod tests;

use crate::registry::Wanted;
use crate::space::{GRAIN, Space};
use cluster::Cluster;
use in_flight::Completions;
pub(crate) use medium::read;
use parts::Parts;
use plans::Plans;
use requests::Requests;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration as Real;
use steps::Opening;

/// How long the end waits for images to be closed.
const FAREWELL: Real = Real::from_secs(3);

/// A pool of images.
pub(crate) struct Rbd {
    cluster: Arc<dyn Cluster>,
    user: String,
    capacity: u64,
    plans: Plans,
    parts: Parts,
    opening: Option<Opening>,
    requests: Requests,
}

impl Rbd {
    fn new(
        cluster: Arc<dyn Cluster>,
        completions: Arc<Completions>,
        wanted: &Wanted<'_>,
        user: String,
    ) -> Rbd {
        let room = wanted.capacity.next_multiple_of(GRAIN);
        let space = if wanted.options.apart { Space::apart(room) } else { Space::new(room) };
        let requests = Requests::new(completions, &cluster);
        Rbd {
            cluster,
            user,
            capacity: wanted.capacity,
            plans: Plans::new(wanted.options.look),
            parts: Parts::new(space),
            opening: None,
            requests,
        }
    }
}

impl Drop for Rbd {
    /// Closes what can be closed soon, so that others may open it at once. What is under way may never end.
    fn drop(&mut self) {
        let images = self.parts.drain();
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
