//! A controller: what a host has of a subsystem. Its registers, its features, and what it still has to tell.

use crate::auth::Group;
use crate::reservation::{Log, Notification};
use crate::subsystem::{QueueId, SubsystemId};
use crate::wire::put;
use henge_core::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

/// Version that is told: 1.4.
pub(crate) const VERSION: u32 = 0x0001_0400;
/// Most entries of a queue.
pub(crate) const QUEUE_MAX: u16 = 128;
/// Most I/O queues of a controller.
pub(crate) const IO_QUEUES_MAX: u16 = 16;
/// How long a controller takes to become ready, in units of 500 ms.
const READY_WITHIN: u64 = 2;
/// Entries of the error log.
pub(crate) const ERRORS_MAX: usize = 32;
/// Keep alive timeouts are given in ms; shorter ones than this are taken for this.
pub(crate) const KEEP_ALIVE_UNIT: u32 = 100;

/// An asynchronous event (Base 5.2.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Event {
    /// The namespace is another than before: its size.
    Namespace,
    /// It is reached in another way.
    Reach,
    /// The discovery log is another.
    Discovery,
    /// The host, or the reservation, was preempted, or the reservation released.
    Reservation,
}

impl Event {
    /// Its bit in the asynchronous event configuration (feature 0Bh).
    fn bit(self) -> u32 {
        match self {
            Event::Namespace => 1 << 8,
            Event::Reach => 1 << 11,
            Event::Discovery => 1 << 31,
            Event::Reservation => 0, // has a mask of its own
        }
    }
    /// Dword 0 of the completion: type (2: notice; 6: of the I/O command set), information, log page.
    pub fn dword(self) -> u32 {
        let (kind, information, page) = match self {
            Event::Namespace => (2, 0x00, 0x04),
            Event::Reach => (2, 0x03, 0x0c),
            Event::Discovery => (2, 0xf0, 0x70),
            Event::Reservation => (6, 0x00, 0x80),
        };
        kind | information << 8 | page << 16
    }
    /// The log page that tells more, and whose reading allows the event again.
    pub fn of_page(page: u8) -> Option<Event> {
        match page {
            0x04 => Some(Event::Namespace),
            0x0c => Some(Event::Reach),
            0x70 => Some(Event::Discovery),
            0x80 => Some(Event::Reservation),
            _ => None,
        }
    }
}

/// Events that are offered at all, by the kind of controller.
pub(crate) fn offered_events(discovery: bool) -> u32 {
    if discovery { Event::Discovery.bit() } else { Event::Namespace.bit() | Event::Reach.bit() }
}

/// Why a command failed, for the error log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub number: u64,
    pub queue: u16,
    pub cid: u16,
    pub status: u16,
    pub block: u64,
    pub nsid: u32,
}

/// A controller.
#[derive(Debug)]
pub(crate) struct Controller {
    /// `None`: of the discovery subsystem, or of nobody's.
    pub subsystem: Option<SubsystemId>,
    /// Of a subsystem that is not there, or not for this host: its name, and the weakest group of a proof, none of which is right.
    pub nobodys: Option<(String, Group)>,
    pub host: String,
    pub host_id: [u8; 16],
    /// By their numbers; 0 is the admin queue.
    pub queues: BTreeMap<u16, QueueId>,
    /// Controller configuration and status.
    pub configuration: u32,
    pub status: u32,
    /// Within which the host shows that it lives; zero: it need not.
    pub keep_alive: Duration,
    pub deadline: Option<Instant>,
    pub features: Features,
    /// Not told yet.
    events: VecDeque<Event>,
    /// Told, and not told again before the host has read about it.
    masked: Vec<Event>,
    /// The changed namespace list is not empty.
    pub changed: bool,
    /// What it is to hear of reservations.
    pub reservations: Log,
    errors: VecDeque<Failure>,
    pub error_count: u64,
}

/// Features whose values the host sets, and reads again (Base 5.27.1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    pub arbitration: u32,
    pub power: u32,
    pub temperature: u32,
    pub recovery: u32,
    pub atomicity: u32,
    pub events: u32,
    pub queues: u32,
    pub progress: u32,
    pub host_behavior: [u8; 8],
}

impl Controller {
    pub fn new(subsystem: Option<SubsystemId>, host: String, host_id: [u8; 16]) -> Controller {
        let all = u32::from(IO_QUEUES_MAX - 1);
        let features = Features {
            queues: all | all << 16,
            temperature: 0xffff,
            // Hosts that know nothing of events' configuration still hear of these.
            events: 0,
            ..Features::default()
        };
        Controller {
            subsystem,
            nobodys: None,
            host,
            host_id,
            queues: BTreeMap::new(),
            configuration: 0,
            status: 0,
            keep_alive: Duration::ZERO,
            deadline: None,
            features,
            events: VecDeque::new(),
            masked: Vec::new(),
            changed: false,
            reservations: Log::default(),
            errors: VecDeque::new(),
            error_count: 0,
        }
    }

    pub fn is_discovery(&self) -> bool {
        self.subsystem.is_none() && self.nobodys.is_none()
    }
    pub fn is_ready(&self) -> bool {
        self.status & 1 != 0
    }

    /// CAP: queue entries, contiguous queues, the NVM command set, pages of 4 KiB.
    pub fn capabilities(&self) -> u64 {
        u64::from(QUEUE_MAX - 1) | 1 << 16 | READY_WITHIN << 24 | 1 << 37
    }

    /// The host writes CC. Whether its I/O queues are to be closed; `None` where the value is not supported.
    pub fn configure(&mut self, value: u32) -> Option<bool> {
        let was = self.configuration;
        let enables = value & 1 != 0;
        let (command_set, page, arbitration) = (value >> 4 & 7, value >> 7 & 0xf, value >> 11 & 7);
        let (submission, completion) = (value >> 16 & 0xf, value >> 20 & 0xf);
        let sizes = submission == 6 && completion == 4 || self.is_discovery();
        if enables && (command_set != 0 || page != 0 || arbitration != 0 || !sizes) {
            return None;
        }
        self.configuration = value;
        let shuts_down = value >> 14 & 3 != 0;
        if enables && was & 1 == 0 {
            self.status = 1;
        }
        if shuts_down {
            self.status = self.status & !0xc | 0x8; // shutdown is complete
        }
        let resets = !enables && was & 1 != 0;
        if resets {
            self.status = 0;
            self.events.clear();
            self.masked.clear();
            self.reservations.forget();
            self.reservations.mask = 0;
        }
        Some(resets || shuts_down)
    }

    /// The host has shown that it lives.
    pub fn refresh(&mut self, now: Instant) {
        self.deadline = (self.keep_alive > Duration::ZERO).then(|| now + self.keep_alive);
    }

    /// Something has happened. Whether it is to be told now.
    fn happened(&mut self, event: Event) -> bool {
        let wanted = event == Event::Reservation || self.features.events & event.bit() != 0;
        if !wanted || self.masked.contains(&event) || self.events.contains(&event) {
            return false;
        }
        self.events.push_back(event);
        true
    }
    pub fn namespace_changed(&mut self) -> bool {
        self.changed = true;
        self.happened(Event::Namespace)
    }
    pub fn reach_changed(&mut self) -> bool {
        self.happened(Event::Reach)
    }
    pub fn reservation_changed(&mut self, notification: Notification) -> bool {
        self.reservations.note(notification) && self.happened(Event::Reservation)
    }
    /// The host has read of one. Whether it is to be told of another.
    pub fn reservation_read(&mut self) -> bool {
        self.reservations.read() && self.happened(Event::Reservation)
    }
    pub fn discovery_changed(&mut self) -> bool {
        self.happened(Event::Discovery)
    }
    /// The next event to tell, which is masked from then on.
    pub fn take_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.masked.push(event);
        Some(event)
    }
    /// The host has read a log page: what it tells of may be told again.
    pub fn unmask(&mut self, page: u8) {
        if let Some(event) = Event::of_page(page) {
            self.masked.retain(|other| *other != event);
        }
    }

    pub fn note_failure(&mut self, failure: Failure) {
        self.error_count += 1;
        self.errors.push_front(Failure { number: self.error_count, ..failure });
        self.errors.truncate(ERRORS_MAX);
    }

    /// The error log (Base 5.16.1.2), newest first.
    pub fn error_log(&self) -> Vec<u8> {
        let mut out = vec![0; ERRORS_MAX * 64];
        for (entry, failure) in out.chunks_mut(64).zip(&self.errors) {
            put(entry, 0, failure.number.to_le_bytes());
            put(entry, 8, failure.queue.to_le_bytes());
            put(entry, 10, failure.cid.to_le_bytes());
            put(entry, 12, (failure.status << 1).to_le_bytes());
            put(entry, 14, 0xffff_u16.to_le_bytes()); // no particular byte of the command
            put(entry, 16, failure.block.to_le_bytes());
            put(entry, 24, failure.nsid.to_le_bytes());
            entry[29] = 3; // TCP
        }
        out
    }
}
