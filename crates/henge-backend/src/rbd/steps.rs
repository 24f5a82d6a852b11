//! Steps by which a part gets its image, grows, and gives it up.
//!
//! What waits for Ceph is handed out as a closure. The store runs it, or a thread that a step names.

use super::Rbd;
use super::cluster::{Cluster, Had, Image, Plan, have};
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration as Real;

/// How long opening and the like may take: a lock of a client that has died is Ceph's to take away, after half a minute.
const PATIENCE: Real = Real::from_secs(60);

/// What a chore has got, until its step goes on.
pub(super) type Handed = Arc<Mutex<Option<Had>>>;

/// A part that is made, grows or goes, step by step.
pub(super) enum Opening {
    Part { name: String, len: u64, had: Handed },
    Growth { name: String, len: u64 },
    Look { name: String },
    Removal { name: String },
}

/// Does something that may never end, on a thread; after a while it is let go on alone.
pub(super) fn within<T: Send + 'static>(
    what: String,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = channel();
    // What comes too late is dropped there, and so closed.
    let work = move || drop(sender.send(work()));
    std::thread::Builder::new().name("rbd-admin".into()).spawn(work)?;
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let why = format!("{what}: Ceph has not answered for {} s; `ceph -s` says why", PATIENCE.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    })
}

/// How a part is come by, on any thread.
pub(super) fn having(
    cluster: &Arc<dyn Cluster>,
    plan: Plan,
) -> impl FnOnce() -> io::Result<Option<Had>> + Send + 'static + use<> {
    let (cluster, what) = (Arc::clone(cluster), cluster.called(&plan.image()));
    move || within(what, move || have(&*cluster, &plan))
}

/// How an image becomes `len` bytes long. It may be longer than its disk already.
pub(super) fn growing(
    image: Arc<dyn Image>,
    what: String,
    len: u64,
) -> impl FnOnce() -> io::Result<()> + Send + 'static {
    move || within(what, move || if image.size() < len { image.resize(len) } else { Ok(()) })
}

/// How it is seen that the image of another node's part is as long as a plan says.
pub(super) fn looking(
    cluster: &Arc<dyn Cluster>,
    plan: Plan,
) -> impl FnOnce() -> io::Result<()> + Send + 'static + use<> {
    let (cluster, what) = (Arc::clone(cluster), cluster.called(&plan.image()));
    let work = move |what: &str| {
        let Some(image) = cluster.open(&plan.image(), false)? else {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("{what} is not there")));
        };
        let size = image.size();
        if size >= plan.len {
            return Ok(());
        }
        let why = format!("{what} has {size} bytes: the gateway that has the disk lets it grow first");
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    };
    move || within(what.clone(), move || work(&what))
}

/// How an image is closed, which gives up its lock.
pub(super) fn closing(
    image: Arc<dyn Image>,
    what: String,
) -> impl FnOnce() -> io::Result<()> + Send + 'static {
    move || {
        within(what, move || {
            close(image);
            Ok(())
        })
    }
}

/// Closes an image, once nobody else uses it: who still looks for its extents does not take long.
fn close(image: Arc<dyn Image>) {
    for _ in 0..200 {
        if Arc::strong_count(&image) == 1 {
            break;
        }
        std::thread::sleep(Real::from_millis(20));
    }
}

impl Rbd {
    /// An image is there: so is the part.
    pub(super) fn attach(&mut self, name: &str, len: u64, had: Had) -> io::Result<()> {
        self.parts.attach(&self.plans.plan(name, len), had, self.requests.completions())
    }

    /// Takes a part out, and how its image is closed and removed; `None` where nothing of it is left.
    pub(super) fn removing(&mut self, name: &str) -> Option<impl FnOnce() -> io::Result<()> + Send + use<>> {
        let named = self.plans.plan(name, 0).image();
        let open = self.parts.take(name);
        if open.as_ref().is_some_and(|open| open.ours) {
            self.plans.doom(name);
        }
        let doomed = self.plans.is_doomed(name);
        if open.is_none() && !doomed {
            self.plans.forget(name);
            return None;
        }
        let image = open.map(|open| open.image);
        let (cluster, what) = (Arc::clone(&self.cluster), self.cluster.called(&named));
        Some(move || {
            within(what, move || {
                image.into_iter().for_each(close);
                if doomed {
                    cluster.unmark(&named)?;
                    cluster.remove(&named)?;
                }
                Ok(())
            })
        })
    }
}
