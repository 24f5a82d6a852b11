//! Requests from the gate to an image and back: in pieces where they are long, and never given up.

use super::Rbd;
use super::cluster::Cluster;
use super::in_flight::{Ask, Boxes, Completions, InFlight};
use super::parts::{OpenImage, Parts, Slot};
use super::silence::{SILENT, Silence};
use crate::Buffer;
use crate::notices::Notices;
use henge_core::{Backend, Done, Duration, Fault, Instant, Op, Pending, Request, RequestId};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most bytes that one request zeroes, so that others are not behind it for long.
const ZEROED: u64 = 128 << 20;
/// How often requests under way are looked at.
pub(super) const LOOK: Duration = Duration::from_secs(1);
pub(super) const FENCED: &str = "this node was blocklisted, so somebody else serves its images: nothing of this pool is served until the node \
    begins again";
const UNLOCKED: &str = "its feature exclusive-lock was switched off: others may write it, and no gateway can shut out another; `rbd feature \
    enable` switches it on, and the node locks it when it begins again";
/// Ceph also says so of a pool that its administrator has renamed or removed.
pub(super) const FORBIDDEN: &str = "the user may not: `ceph osd pool ls` says whether the pool is there under its name, `ceph auth get` what the \
    user may";
/// What a blocklisted client is answered (`EBLOCKLISTED`).
pub(super) const BLOCKLISTED: i64 = -(libc::ESHUTDOWN as i64);

/// A request that is not answered yet.
struct Under {
    request: Request,
    slot: Slot,
    /// Where in the image it begins.
    offset: u64,
    done: u64,
    piece: u64,
    since: Instant,
    /// It is among the silent.
    silent: bool,
}

/// The requests of all images.
pub(super) struct Requests {
    completions: Arc<Completions>,
    under: Pending<Under>,
    spare: Boxes,
    finished: Boxes,
    /// Those whose image is looked at for its size.
    unsure: Boxes,
    done: VecDeque<Done<Buffer>>,
    signalled: bool,
    look_at: Option<Instant>,
    fenced: bool,
    silence: Silence,
    notices: Notices,
}

impl Requests {
    pub(super) fn new(completions: Arc<Completions>, cluster: &Arc<dyn Cluster>) -> Requests {
        Requests {
            completions,
            under: Pending::new(),
            spare: Vec::new(),
            finished: Vec::new(),
            unsure: Vec::new(),
            done: VecDeque::new(),
            signalled: true,
            look_at: None,
            fenced: false,
            silence: Silence::new(Arc::clone(cluster)),
            notices: Notices::about(cluster.name()),
        }
    }

    pub(super) fn completions(&self) -> &Arc<Completions> {
        &self.completions
    }

    /// The bell has rung.
    pub(super) fn signalled(&mut self) {
        self.signalled = true;
    }

    pub(super) fn notice(&mut self) -> Option<String> {
        self.notices.take()
    }

    fn submit(&mut self, request: &Request, payload: Buffer, parts: &mut Parts, now: Instant) {
        let found = parts.locate(request.offset, request.len).ok_or(Fault::OutOfRange);
        let found = found.and_then(|at| if self.fenced { Err(Fault::Unreachable) } else { Ok(at) });
        let (slot, offset) = match found {
            Ok(found) => found,
            Err(fault) => {
                let (id, outcome) = (request.id, Err(fault));
                return self.done.push_back(Done { id, outcome, busy: None, payload });
            }
        };
        let under = Under { request: *request, slot, offset, done: 0, piece: 0, since: now, silent: false };
        let id = self.under.insert(under);
        self.look_at.get_or_insert(now + LOOK);
        self.begin(id, payload, parts);
    }

    fn reap(&mut self, parts: &mut Parts, now: Instant) -> Option<Done<Buffer>> {
        if std::mem::take(&mut self.signalled) {
            self.hear(parts, now);
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_round(now);
        }
        self.done.pop_front()
    }

    fn wake_at(&self) -> Option<Instant> {
        if self.done.is_empty() { self.look_at } else { Some(Instant::ZERO) }
    }

    /// The image of a request, if it is still there.
    fn image_of<'p>(&self, id: RequestId, parts: &'p mut Parts) -> Option<&'p mut OpenImage> {
        parts.at(self.under.get(id)?.slot)
    }

    fn begin(&mut self, id: RequestId, buffer: Buffer, parts: &mut Parts) {
        let mut held = self.spare.pop().unwrap_or_default();
        let under = self.under.get_mut(id).expect("it is under way");
        let left = under.request.len - under.done;
        let (ask, most) = match under.request.op {
            Op::Read => (Ask::Read, left),
            Op::Write => (Ask::Write, left),
            Op::Trim => (Ask::Zero { full: false }, ZEROED),
            Op::WriteZeroes => (Ask::Zero { full: true }, ZEROED),
            Op::Flush => (Ask::Flush, 0),
        };
        under.piece = left.min(most);
        let (offset, len) = (under.offset + under.done, under.piece);
        (held.id, held.ask, held.offset, held.len) = (id, ask, offset, len);
        let Some(open) = self.image_of(id, parts) else {
            self.spare.push(held);
            return self.finish(id, Err(Fault::Cancelled), buffer);
        };
        if matches!(ask, Ask::Write | Ask::Zero { .. }) {
            open.objects.written(offset, len);
        }
        held.buffer = buffer;
        open.image.begin(held, &self.completions);
    }

    fn finish(&mut self, id: RequestId, outcome: Result<(), Fault>, payload: Buffer) {
        let under = self.under.remove(id).expect("a request ends once");
        self.done.push_back(Done { id: under.request.id, outcome, busy: None, payload });
    }

    fn completed(&mut self, mut held: Box<InFlight>, parts: &mut Parts, now: Instant) {
        let (id, mut result, len) = (held.id, held.result, held.len);
        let (is_whole, cut) = match self.is_cut(&held, parts) {
            Some(cut) => (held.ask != Ask::Read || result as u64 == len, cut),
            None => return self.unsure.push(held),
        };
        let ask = held.ask;
        let payload = std::mem::take(&mut held.buffer);
        self.spare.push(held);
        let under = self.under.get_mut(id).expect("what completes was under way");
        if std::mem::take(&mut under.silent) {
            self.silence.answered(now.since(under.since), &mut self.notices);
        }
        under.since = now;
        if result >= 0 && (cut.is_some() || !is_whole) {
            result = -i64::from(libc::EINVAL);
        }
        if result < 0 {
            let fault = self.fault(id, result, cut, parts);
            return self.finish(id, Err(fault), payload);
        }
        let under = self.under.get_mut(id).expect("what completes was under way");
        under.done += len;
        if under.done < under.request.len && ask != Ask::Flush {
            return self.begin(id, payload, parts);
        }
        self.finish(id, Ok(()), payload);
    }

    /// The size of an image that ends before the request does; the outer `None` where nobody knows yet. librbd cuts what reaches beyond the end,
    /// and calls the rest of it good. What was read in full was there, whatever came afterwards.
    fn is_cut(&mut self, held: &InFlight, parts: &mut Parts) -> Option<Option<u64>> {
        let is_whole = match held.ask {
            Ask::Read => held.result == held.len as i64,
            Ask::Flush => true,
            Ask::Write | Ask::Zero { .. } => false,
        };
        match self.image_of(held.id, parts) {
            Some(open) if !is_whole && held.result != BLOCKLISTED => {
                let size = open.size(&self.completions)?;
                if open.unlocked.swap(false, Ordering::Acquire) {
                    open.objects.open_to_others();
                    self.notices.tell(&format!("\"{}\": {UNLOCKED}", open.part));
                }
                Some((size < held.offset + held.len).then_some(size))
            }
            _ => Some(None),
        }
    }

    /// What an error is to the client; and to the administrator, once.
    fn fault(&mut self, id: RequestId, result: i64, cut: Option<u64>, parts: &mut Parts) -> Fault {
        if result == BLOCKLISTED {
            if !std::mem::replace(&mut self.fenced, true) {
                self.notices.tell(FENCED);
            }
            return Fault::Unreachable;
        }
        let errno = -result as i32;
        if let Some(open) = self.image_of(id, parts)
            && std::mem::replace(&mut open.said, result) != result
        {
            let len = open.len;
            let why = match (errno, cut) {
                (libc::ENOSPC | libc::EDQUOT, _) => {
                    "the pool is full: writes fail until there is room".into()
                }
                (libc::EPERM | libc::EACCES, _) => FORBIDDEN.into(),
                (libc::EROFS, _) => "its lock was taken: another client writes it".into(),
                (_, Some(size)) => {
                    format!(
                        "the image was cut to {size} bytes, and its disk has {len}: `rbd resize` mends it"
                    )
                }
                (..) => io::Error::from_raw_os_error(errno).to_string(),
            };
            self.notices.tell(&format!("\"{}\": {why}", open.part));
        }
        match errno {
            libc::ENOSPC | libc::EDQUOT => Fault::NoSpace,
            libc::EOPNOTSUPP => Fault::Unsupported,
            _ => Fault::Io,
        }
    }

    /// Hears of what is over.
    fn hear(&mut self, parts: &mut Parts, now: Instant) {
        let mut finished = std::mem::take(&mut self.finished);
        finished.append(&mut self.unsure);
        self.completions.take(&mut finished);
        finished.drain(..).for_each(|held| self.completed(held, parts, now));
        self.finished = finished;
        parts.learn();
        self.silence.hear(&mut self.notices);
    }

    /// Looks for what is silent.
    fn look_round(&mut self, now: Instant) {
        let (mut more, mut oldest) = (0, now);
        for (_, under) in self.under.iter_mut().filter(|(_, under)| under.since + SILENT <= now) {
            more += usize::from(!std::mem::replace(&mut under.silent, true));
            oldest = oldest.min(under.since);
        }
        if self.silence.more(more, now.since(oldest), now, &mut self.notices) {
            self.silence.ask(&self.completions);
        }
        self.look_at = (!self.under.is_empty()).then(|| now + LOOK);
    }
}

impl Backend for Rbd {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, payload: Buffer, now: Instant) {
        self.requests.submit(request, payload, &mut self.parts, now);
    }
    fn reap(&mut self, now: Instant) -> Option<Done<Buffer>> {
        self.requests.reap(&mut self.parts, now)
    }
    fn wake_at(&self) -> Option<Instant> {
        self.requests.wake_at()
    }
    fn capacity(&self) -> u64 {
        self.capacity
    }
}
