//! Requests that Ceph leaves unanswered, and what people hear of it.
//!
//! # The rule
//! A request without an answer for 10 s is *silent*. The first one is told of, and all of them again each minute. Each time the monitors are asked
//! about the OSDs, too: their answer says which side of the cluster to look at, and so does none. Once nothing is silent any more, that is told.
//!
//! # Example
//! All OSDs end under a thousand writes. There are three notices: a thousand are silent for 10 s; monitors say that no OSD is up; a thousand are
//! answered after 40 s.

use super::cluster::Cluster;
use super::in_flight::Completions;
use crate::notices::Notices;
use henge_core::{Duration, Instant};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A request that is unanswered for so long is silent.
pub(super) const SILENT: Duration = Duration::from_secs(10);
/// How often silence is told of while it lasts.
pub(super) const AGAIN: Duration = Duration::from_secs(60);

/// What is silent, and what was told of it.
pub(super) struct Silence {
    cluster: Arc<dyn Cluster>,
    /// Silent requests.
    silent: usize,
    /// Requests that were silent since one of them always is.
    were: usize,
    /// The longest that one of those waited for its answer.
    longest: Duration,
    /// It is not told of before.
    tell_at: Instant,
    /// Monitors are being asked.
    asks: bool,
    say: (Sender<String>, Receiver<String>),
}

impl Silence {
    pub(super) fn new(cluster: Arc<dyn Cluster>) -> Silence {
        let (longest, tell_at) = (Duration::ZERO, Instant::ZERO);
        Silence { cluster, silent: 0, were: 0, longest, tell_at, asks: false, say: channel() }
    }

    /// So many more requests are silent; the oldest has waited so long. True where that is to be told now, and monitors are to be asked.
    pub(super) fn more(
        &mut self,
        more: usize,
        oldest: Duration,
        now: Instant,
        notices: &mut Notices,
    ) -> bool {
        self.silent += more;
        self.were += more;
        if self.silent == 0 || now < self.tell_at {
            return false;
        }
        self.tell_at = now + AGAIN;
        notices.tell(&format!(
            "{} requests have been silent for up to {}; they wait until Ceph answers: `ceph health detail` says why",
            self.silent,
            rounded(oldest)
        ));
        true
    }

    /// A silent one is answered.
    pub(super) fn answered(&mut self, waited: Duration, notices: &mut Notices) {
        self.silent -= 1;
        self.longest = self.longest.max(waited);
        if self.silent > 0 {
            return;
        }
        let (were, longest) = (std::mem::take(&mut self.were), std::mem::take(&mut self.longest));
        notices.tell(&format!("what was silent is answered after {}: {were} requests", rounded(longest)));
        self.tell_at = Instant::ZERO;
    }

    /// Has monitors asked, on a thread that may wait for them.
    pub(super) fn ask(&mut self, completions: &Arc<Completions>) {
        if std::mem::replace(&mut self.asks, true) {
            return;
        }
        let (cluster, bell) = (Arc::clone(&self.cluster), Arc::clone(completions));
        let sender = self.say.0.clone();
        let work = move || {
            let said = match cluster.monitors_say() {
                Ok(text) => format!("its monitors answer, and say of OSDs: {text}"),
                Err(why) => why.to_string(),
            };
            drop(cluster);
            // The pool may be gone.
            let _ = sender.send(said);
            bell.ring();
        };
        // Without a thread nobody is asked this time.
        self.asks = std::thread::Builder::new().name("rbd-monitors".into()).spawn(work).is_ok();
    }

    /// Tells what monitors have said.
    pub(super) fn hear(&mut self, notices: &mut Notices) {
        while let Ok(said) = self.say.1.try_recv() {
            self.asks = false;
            notices.tell(&said);
        }
    }
}

fn rounded(time: Duration) -> Duration {
    Duration::from_millis(time.as_nanos() / 1_000_000)
}
