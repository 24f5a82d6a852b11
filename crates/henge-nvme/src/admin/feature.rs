//! Features (Base 5.27; NVM 4.1.3): what a host sets and reads again. None survives the controller.

use super::identify::EVENTS_MAX;
use crate::controller::{Controller, IO_QUEUES_MAX, offered_events};
use crate::fabrics::keep_alive;
use crate::nvm::{ALL, NSID};
use crate::plan::Plan;
use crate::reservation::{self, Held, Log};
use crate::status::Status;
use crate::subsystem::Subsystems;
use crate::wire::Sqe;

mod id {
    pub const ARBITRATION: u32 = 0x01;
    pub const POWER: u32 = 0x02;
    pub const TEMPERATURE: u32 = 0x04;
    pub const RECOVERY: u32 = 0x05;
    pub const WRITE_CACHE: u32 = 0x06;
    pub const QUEUES: u32 = 0x07;
    pub const ATOMICITY: u32 = 0x0a;
    pub const EVENTS: u32 = 0x0b;
    pub const KEEP_ALIVE: u32 = 0x0f;
    pub const PROGRESS: u32 = 0x80;
    pub const HOST_ID: u32 = 0x81;
    pub const RESERVATION_MASK: u32 = 0x82;
    pub const RESERVATION_PERSISTENCE: u32 = 0x83;
}
/// Host Behavior Support, whose value is a page of its own.
const HOST_BEHAVIOR: u32 = 0x16;
/// Bytes of that page.
const HOST_BEHAVIOR_LEN: usize = 512;

/// Values that the controller keeps and does nothing about.
fn kept(controller: &mut Controller, feature: u32) -> Option<&mut u32> {
    let features = &mut controller.features;
    Some(match feature {
        id::ARBITRATION => &mut features.arbitration,
        id::POWER => &mut features.power,
        id::TEMPERATURE => &mut features.temperature,
        id::RECOVERY => &mut features.recovery,
        id::ATOMICITY => &mut features.atomicity,
        id::PROGRESS => &mut features.progress,
        _ => return None,
    })
}

pub(super) fn set(subsystems: &mut Subsystems, cntlid: u16, sqe: &Sqe) -> Plan {
    let (feature, value) = (sqe.dword(10) & 0xff, sqe.dword(11));
    let reserves = matches!(feature, id::RESERVATION_MASK | id::RESERVATION_PERSISTENCE);
    let subsystem = subsystems.controller(cntlid).and_then(|controller| controller.subsystem);
    let reservable = subsystem.and_then(|id| subsystems.get(id)).is_some_and(|s| s.namespace.reservable);
    let Some(controller) = subsystems.controller_mut(cntlid) else { return Status::INTERNAL.into() };
    if sqe.dword(10) >> 31 != 0 {
        return Status::NOT_SAVEABLE.into();
    }
    if controller.is_discovery() && !matches!(feature, id::EVENTS | id::KEEP_ALIVE) {
        return Status::FIELD.into();
    }
    if reserves && !reservable {
        return Status::FIELD.into();
    }
    match feature {
        HOST_BEHAVIOR => return Plan::Parameters(HOST_BEHAVIOR_LEN),
        id::EVENTS => controller.features.events = value & offered_events(controller.is_discovery()),
        id::KEEP_ALIVE => match keep_alive(value) {
            Ok(within) => controller.keep_alive = within,
            Err(status) => return status.into(),
        },
        id::QUEUES => return set_queues(controller, value),
        id::WRITE_CACHE | id::HOST_ID => return Status::NOT_CHANGEABLE.into(),
        id::RESERVATION_MASK | id::RESERVATION_PERSISTENCE if !matches!(sqe.nsid(), NSID | ALL) => {
            return Status::NAMESPACE.into();
        }
        id::RESERVATION_MASK => controller.reservations.mask = value & Log::MASK,
        id::RESERVATION_PERSISTENCE => return reservation::persist(controller.host_id, value & 1 != 0),
        id::POWER if value & 0x1f != 0 => return Status::FIELD.into(), // there is one state
        _ => match kept(controller, feature) {
            Some(place) => *place = value,
            None => return Status::FIELD.into(),
        },
    }
    Status::SUCCESS.into()
}

/// Number of queues: as many as are asked for, as far as there are any. Not once there are I/O queues.
fn set_queues(controller: &mut Controller, value: u32) -> Plan {
    let (submission, completion) = (value & 0xffff, value >> 16);
    if submission == 0xffff || completion == 0xffff {
        return Status::FIELD.into();
    }
    if controller.queues.keys().any(|qid| *qid > 0) {
        return Status::SEQUENCE.into();
    }
    let given = submission.min(completion).min(u32::from(IO_QUEUES_MAX) - 1);
    controller.features.queues = given | given << 16;
    Plan::result(controller.features.queues)
}

pub(super) fn get(controller: &Controller, held: Option<&Held>, sqe: &Sqe) -> Plan {
    let (feature, select) = (sqe.dword(10) & 0xff, sqe.dword(10) >> 8 & 7);
    let discovery = controller.is_discovery() && !matches!(feature, id::EVENTS | id::KEEP_ALIVE);
    if discovery || select > 3 {
        return Status::FIELD.into();
    }
    let features = match select {
        1 | 2 => &Controller::new(controller.subsystem, String::new(), [0; 16]).features,
        _ => &controller.features,
    };
    let of_namespace = matches!(feature, id::RESERVATION_MASK | id::RESERVATION_PERSISTENCE);
    if of_namespace && sqe.nsid() != NSID {
        return Status::NAMESPACE.into();
    }
    if of_namespace && held.is_none() {
        return Status::FIELD.into(); // it cannot be reserved
    }
    let (value, changeable) = match feature {
        id::RESERVATION_MASK => (if select == 0 { controller.reservations.mask } else { 0 }, true),
        id::RESERVATION_PERSISTENCE => {
            (u32::from(select == 0 && held.is_some_and(|held| held.persists)), true)
        }
        id::ARBITRATION => (features.arbitration, true),
        id::POWER => (features.power, true),
        id::TEMPERATURE => (features.temperature, true),
        id::RECOVERY => (features.recovery, true),
        id::ATOMICITY => (features.atomicity, true),
        id::PROGRESS => (features.progress, true),
        id::EVENTS => (features.events, true),
        id::QUEUES => (features.queues, true),
        id::WRITE_CACHE => (1, false),
        id::KEEP_ALIVE => {
            (u32::try_from(controller.keep_alive.as_nanos() / 1_000_000).unwrap_or(u32::MAX), true)
        }
        // Of a fabrics host the identifier is long (EXHID).
        id::HOST_ID if sqe.dword(11) & 1 == 0 => return Status::FIELD.into(),
        id::HOST_ID if select == 3 => (0, false),
        id::HOST_ID => return Plan::Data(controller.host_id.to_vec()),
        HOST_BEHAVIOR if select == 3 => (0, true),
        HOST_BEHAVIOR => {
            let mut page = features.host_behavior.to_vec();
            page.resize(HOST_BEHAVIOR_LEN, 0);
            return Plan::Data(page);
        }
        _ => return Status::FIELD.into(),
    };
    match select {
        3 => Plan::result(u32::from(changeable) << 2 | u32::from(of_namespace) << 1),
        _ => Plan::result(value),
    }
}

/// The page of Host Behavior Support has come.
pub(super) fn set_host_behavior(controller: &mut Controller, page: &[u8]) -> Plan {
    match page.first_chunk() {
        Some(first) => {
            controller.features.host_behavior = *first;
            Status::SUCCESS.into()
        }
        None => Status::SGL_LENGTH.into(),
    }
}

/// Most asynchronous event requests at a time.
pub(crate) const EVENT_REQUESTS: usize = EVENTS_MAX as usize + 1;
