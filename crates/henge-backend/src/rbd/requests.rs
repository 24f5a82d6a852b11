//! Requests from the gate to an image and back: in pieces where they are long, and never given up.

use super::in_flight::{Ask, InFlight};
use super::{OpenImage, Rbd};
use crate::Buffer;
use henge_core::{Backend, Done, Duration, Fault, Instant, Op, Request, RequestId};
use std::io;
use std::sync::Arc;

/// Most bytes that one request zeroes, so that others are not behind it for long.
const ZEROED: u64 = 128 << 20;
/// A request that is silent for so long is said to be.
pub(super) const SILENT: Duration = Duration::from_secs(10);
/// How often requests under way are looked at.
pub(super) const LOOK: Duration = Duration::from_secs(1);
const FENCED: &str = "this node was blocklisted, so somebody else serves its images: nothing of this pool is served until the node \
    begins again";
/// What a blocklisted client is answered (`EBLOCKLISTED`).
pub(super) const BLOCKLISTED: i64 = -(libc::ESHUTDOWN as i64);

/// A request that is not answered yet.
pub(super) struct Under {
    request: Request,
    slot: usize,
    life: u64,
    /// Where in the image it begins.
    offset: u64,
    done: u64,
    piece: u64,
    since: Instant,
    said: bool,
}

impl Rbd {
    /// The disk of a request, if it is still there.
    fn disk_of(&mut self, id: RequestId) -> Option<&mut OpenImage> {
        let under = self.under.get(id)?;
        let (slot, life) = (under.slot, under.life);
        self.disks[slot].as_mut().filter(|_| self.lives[slot] == life)
    }

    fn begin(&mut self, id: RequestId, buffer: Buffer) {
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
        let completions = Arc::clone(&self.completions);
        let Some(disk) = self.disk_of(id) else {
            self.spare.push(held);
            return self.finish(id, Err(Fault::Cancelled), buffer);
        };
        if matches!(ask, Ask::Write | Ask::Zero { .. }) {
            disk.objects.written(offset, len);
        }
        held.buffer = buffer;
        disk.image.begin(held, &completions);
    }

    fn finish(&mut self, id: RequestId, outcome: Result<(), Fault>, payload: Buffer) {
        let under = self.under.remove(id).expect("a request ends once");
        self.done.push_back(Done { id: under.request.id, outcome, busy: None, payload });
    }

    fn completed(&mut self, mut held: Box<InFlight>, now: Instant) {
        let (id, ask, mut result) = (held.id, held.ask, held.result);
        let (len, end) = (held.len, held.offset + held.len);
        let payload = std::mem::take(&mut held.buffer);
        self.spare.push(held);
        let under = self.under.get(id).expect("what completes was under way");
        if under.said {
            let waited = Duration::from_millis(now.since(under.since).as_nanos() / 1_000_000);
            self.tell(format!("a request that was silent is answered after {waited}"));
        }
        // librbd cuts what reaches beyond the end, and calls the rest of it good.
        let cut = ask != Ask::Flush && self.disk_of(id).is_some_and(|disk| disk.image.size() < end);
        if result >= 0 && (cut || ask == Ask::Read && result as u64 != len) {
            result = -i64::from(libc::EINVAL);
        }
        if result < 0 {
            let fault = self.fault(id, result, cut);
            return self.finish(id, Err(fault), payload);
        }
        let under = self.under.get_mut(id).expect("what completes was under way");
        under.done += len;
        if under.done < under.request.len && ask != Ask::Flush {
            return self.begin(id, payload);
        }
        self.finish(id, Ok(()), payload);
    }

    /// What an error is to the client; and to the administrator, once.
    fn fault(&mut self, id: RequestId, result: i64, cut: bool) -> Fault {
        if result == BLOCKLISTED {
            if !std::mem::replace(&mut self.fenced, true) {
                self.tell(FENCED.into());
            }
            return Fault::Unreachable;
        }
        let errno = -result as i32;
        if let Some(disk) = self.disk_of(id)
            && std::mem::replace(&mut disk.said, result) != result
        {
            let (size, len) = (disk.image.size(), disk.len);
            let why = match errno {
                libc::ENOSPC | libc::EDQUOT => "the pool is full: writes fail until there is room".into(),
                libc::EROFS => "its lock was taken: another client writes it".into(),
                _ if cut => {
                    format!(
                        "the image was cut to {size} bytes, and its disk has {len}: `rbd resize` mends it"
                    )
                }
                _ => io::Error::from_raw_os_error(errno).to_string(),
            };
            let text = format!("\"{}\": {why}", disk.part);
            self.tell(text);
        }
        match errno {
            libc::ENOSPC | libc::EDQUOT => Fault::NoSpace,
            libc::EOPNOTSUPP => Fault::Unsupported,
            _ => Fault::Io,
        }
    }

    /// Hears of what is over.
    fn hear(&mut self, now: Instant) {
        let mut finished = std::mem::take(&mut self.finished);
        self.completions.take(&mut finished);
        finished.drain(..).for_each(|held| self.completed(held, now));
        self.finished = finished;
        while let Ok((slot, life, bits)) = self.walked.1.try_recv() {
            if self.lives[slot] == life
                && let Some(disk) = &mut self.disks[slot]
            {
                disk.objects.learn(&bits);
            }
        }
    }

    /// Says what has been silent for long.
    fn look_round(&mut self, now: Instant) {
        let (mut silent, mut since) = (0, now);
        for (_, under) in self.under.iter_mut() {
            if !under.said && under.since + SILENT <= now {
                under.said = true;
                silent += 1;
                since = since.min(under.since);
            }
        }
        if silent > 0 {
            self.tell(format!(
                "{silent} requests have been silent for {}; they wait until Ceph answers: `ceph health detail` says why",
                Duration::from_millis(now.since(since).as_nanos() / 1_000_000)
            ));
        }
        self.look_at = (!self.under.is_empty()).then(|| now + LOOK);
    }
}

impl Backend for Rbd {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, payload: Buffer, now: Instant) {
        let found = self.space.locate(request.offset, request.len).map(|(i, part)| (i, part.base));
        let found = found.ok_or(Fault::OutOfRange);
        let found = found.and_then(|at| if self.fenced { Err(Fault::Unreachable) } else { Ok(at) });
        let (i, base) = match found {
            Ok(found) => found,
            Err(fault) => {
                let (id, outcome) = (request.id, Err(fault));
                return self.done.push_back(Done { id, outcome, busy: None, payload });
            }
        };
        let id = self.under.insert(Under {
            request: *request,
            slot: self.slots[i],
            life: self.lives[self.slots[i]],
            offset: request.offset - base,
            done: 0,
            piece: 0,
            since: now,
            said: false,
        });
        self.look_at.get_or_insert(now + LOOK);
        self.begin(id, payload);
    }
    fn reap(&mut self, now: Instant) -> Option<Done<Buffer>> {
        if std::mem::take(&mut self.signalled) {
            self.hear(now);
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_round(now);
        }
        self.done.pop_front()
    }
    fn wake_at(&self) -> Option<Instant> {
        if self.done.is_empty() { self.look_at } else { Some(Instant::ZERO) }
    }
    fn capacity(&self) -> u64 {
        self.capacity
    }
}
