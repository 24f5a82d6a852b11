//! Where requests go: a device model in the simulator, real storage in the node.

use crate::{Duration, Instant, Request, RequestId};
use std::fmt;

/// How a request failed at the backend.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// The medium or the system below reported an error.
    Io,
    /// No space left.
    NoSpace,
    /// The backend cannot do such an operation.
    Unsupported,
    /// The range lies outside the device.
    OutOfRange,
    /// The node that holds the part cannot be reached.
    Unreachable,
    /// Given up by its client before it was dispatched.
    Cancelled,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Io => "input/output error",
            Fault::NoSpace => "no space left",
            Fault::Unsupported => "operation not supported",
            Fault::OutOfRange => "beyond the end of the device",
            Fault::Unreachable => "node unreachable",
            Fault::Cancelled => "cancelled",
        })
    }
}
impl std::error::Error for Fault {}

/// A request that the backend has finished.
#[derive(Debug)]
pub struct Done<P> {
    /// Which.
    pub id: RequestId,
    /// How it went.
    pub outcome: Result<(), Fault>,
    /// The device time it truly took, where the backend knows (models do).
    pub busy: Option<Duration>,
    /// Its data, given back.
    pub payload: P,
}

/// Storage behind a gate. Submitted requests are finished in any order. It never blocks.
pub trait Backend {
    /// What carries the data; `()` for models.
    type Payload;

    /// Starts a request. The gate has seen to it that the depth is not exceeded.
    fn submit(&mut self, request: &Request, payload: Self::Payload, now: Instant);

    /// A request that is finished by `now`; `None` when there is none (more) yet.
    fn reap(&mut self, now: Instant) -> Option<Done<Self::Payload>>;

    /// A request that needs no slot of the device any more, since it awaits others. Each is told of once, before `reap` returns it.
    /// The data of a durable write is where it is to be, and a sync that it may share is to come. A hole awaits those before it, of its file or of all.
    fn awaits_others(&mut self) -> Option<RequestId> {
        None
    }

    /// When `reap` will have something, or when the backend has work of its own to do (a model's next
    /// event); `None` when that is not known beforehand (real storage), or nothing is under way.
    fn wake_at(&self) -> Option<Instant>;

    /// Bytes it holds.
    fn capacity(&self) -> u64;

    /// Most bytes that one request should move, so that nobody waits long for one: longer commands are cut before the gate.
    /// The default suits what answers from memory or over a network.
    fn quantum(&self) -> u64 {
        1 << 20
    }
}

/// The [`quantum`](Backend::quantum) of devices: well under a millisecond on flash, a few on a hard disk; and more gives them hardly more bytes
/// a second.
pub const DEVICE_QUANTUM: u64 = 128 << 10;

impl<B: Backend + ?Sized> Backend for Box<B> {
    type Payload = B::Payload;
    fn submit(&mut self, request: &Request, payload: Self::Payload, now: Instant) {
        (**self).submit(request, payload, now);
    }
    fn reap(&mut self, now: Instant) -> Option<Done<Self::Payload>> {
        (**self).reap(now)
    }
    fn awaits_others(&mut self) -> Option<RequestId> {
        (**self).awaits_others()
    }
    fn wake_at(&self) -> Option<Instant> {
        (**self).wake_at()
    }
    fn capacity(&self) -> u64 {
        (**self).capacity()
    }
    fn quantum(&self) -> u64 {
        (**self).quantum()
    }
}

/// A device model: a backend without data.
pub type Model = Box<dyn Backend<Payload = ()> + Send>;
