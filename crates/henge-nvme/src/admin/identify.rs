//! Identify (Base 5.17; NVM Command Set 4.1.5): what a host reads first.

use super::Caller;
use crate::controller::{
    Controller, ERRORS_MAX, IO_QUEUES_MAX, KEEP_ALIVE_UNIT, QUEUE_MAX, VERSION, offered_events,
};
use crate::namespace::Namespace;
use crate::nvm::{ALL, COPY_MAX, DISCOVERY_MAX, FUSED_MAX, NSID, SOURCE_MAX, SOURCES_MAX, TRANSFER_MAX};
use crate::plan::Plan;
use crate::reservation;
use crate::status::Status;
use crate::subsystem::{DISCOVERY, Subsystem, Subsystems};
use crate::wire::{CQE, SQE, Sqe, put};

/// Bytes of every structure.
const LEN: usize = 4096;
/// Most asynchronous event requests, counted from 0.
pub(super) const EVENTS_MAX: u8 = 3;
/// The group of all namespaces: one, whose state each controller tells for itself.
pub(super) const GROUP: u32 = 1;
/// What the model is called.
const MODEL: &str = "Henge virtual disk";

pub(super) fn identify(subsystems: &Subsystems, caller: &Caller<'_>, sqe: &Sqe) -> Plan {
    let Some(controller) = subsystems.controller(caller.cntlid) else { return Status::INTERNAL.into() };
    let subsystem = controller.subsystem.and_then(|id| subsystems.get(id));
    let (what, set) = (sqe.dword(10) & 0xff, sqe.dword(11) >> 24);
    if what == 0x01 {
        return Plan::Data(controller_data(controller, subsystem, caller));
    }
    let Some(namespace) = subsystem.map(|subsystem| &subsystem.namespace) else {
        return Status::FIELD.into();
    };
    match (what, sqe.nsid()) {
        (0x00, NSID) => Plan::Data(namespace_data(namespace)),
        (0x03, NSID) => Plan::Data(descriptors(namespace)),
        // What all have in common is told with namespace management alone.
        (0x00 | 0x03, 0 | ALL) => Status::NAMESPACE.into(),
        (0x00, _) => Plan::Data(vec![0; LEN]), // inactive
        (0x03, _) => Status::NAMESPACE.into(),
        (0x02, from) if from < ALL - 1 => Plan::Data(active(from)),
        (0x02, _) => Status::NAMESPACE.into(),
        (0x05, _) if set == 0 => Plan::Data(vec![0; LEN]), // no protection information
        (0x06, _) if set == 0 => Plan::Data(bounds()),
        (0x07, from) if set == 0 && from < ALL - 1 => Plan::Data(active(from)),
        _ => Status::FIELD.into(),
    }
}

/// Text in a field that is filled with spaces.
fn text(to: &mut [u8], text: &str) {
    to.fill(b' ');
    let len = text.len().min(to.len());
    to[..len].copy_from_slice(&text.as_bytes()[..len]);
}

fn controller_data(controller: &Controller, subsystem: Option<&Subsystem>, caller: &Caller<'_>) -> Vec<u8> {
    let mut b = vec![0; LEN];
    text(&mut b[24..64], MODEL);
    text(&mut b[64..72], env!("CARGO_PKG_VERSION"));
    let most = if subsystem.is_none() { DISCOVERY_MAX } else { TRANSFER_MAX };
    b[77] = most.ilog2() as u8 - 12; // MDTS, in pages of 4 KiB
    put(&mut b, 78, caller.cntlid.to_le_bytes());
    put(&mut b, 80, VERSION.to_le_bytes());
    put(&mut b, 92, offered_events(subsystem.is_none()).to_le_bytes()); // OAES
    put(&mut b, 96, (1_u32 | 1 << 6).to_le_bytes()); // CTRATT: long host identifiers, traffic keeps alive
    b[259] = EVENTS_MAX;
    b[260] = 0x03; // FRMW: one slot, read-only
    b[261] = 0x06; // LPA: effects log, long offsets
    b[262] = ERRORS_MAX as u8 - 1;
    put(&mut b, 320, 1_u16.to_le_bytes()); // KAS
    debug_assert_eq!(KEEP_ALIVE_UNIT, 100, "KAS is in units of 100 ms");
    put(&mut b, 514, QUEUE_MAX.to_le_bytes()); // MAXCMD
    put(&mut b, 536, (1_u32 | 1 << 20).to_le_bytes()); // SGLS: supported, offsets in capsules
    let nqn = subsystem.map_or(DISCOVERY, |subsystem| &subsystem.nqn);
    b[768..768 + nqn.len()].copy_from_slice(nqn.as_bytes());
    match subsystem {
        None => b[111] = 2, // a discovery controller
        Some(subsystem) => io_controller_data(&mut b, &subsystem.namespace, caller.in_capsule),
    }
    debug_assert!(u32::from(IO_QUEUES_MAX) > controller.features.queues & 0xffff, "queues are bounded");
    b
}

/// What only controllers with a namespace have.
fn io_controller_data(b: &mut [u8], namespace: &Namespace, in_capsule: u32) {
    text(&mut b[4..24], &namespace.serial);
    b[76] = 0x0b; // CMIC: several ports, several controllers, ANA
    b[111] = 1; // an I/O controller
    put(b, 280, u128::from(namespace.bytes).to_le_bytes()); // TNVMCAP
    b[342] = 1; // ANATT: seconds in transition, at most
    b[343] = 0x47; // ANACAP: optimized, non-optimized, inaccessible; groups stay
    put(b, 344, GROUP.to_le_bytes()); // ANAGRPMAX
    put(b, 348, GROUP.to_le_bytes()); // NANAGRPID
    b[512] = 0x66; // entries of 64 bytes
    b[513] = 0x44; // and of 16
    put(b, 516, NSID.to_le_bytes()); // NN
    let reservations = u16::from(namespace.reservable) << 5;
    put(b, 520, (0x019d | reservations).to_le_bytes()); // ONCS: compare, DSM, write zeroes, saved features, verify, copy
    put(b, 522, 1_u16.to_le_bytes()); // FUSES: compare and write
    b[525] = 0x07; // VWC: a cache; FLUSH of all namespaces
    let atomic = (FUSED_MAX >> namespace.block_shift) as u16 - 1;
    put(b, 532, atomic.to_le_bytes()); // ACWU
    put(b, 534, 1_u16.to_le_bytes()); // OCFS: copy format 0
    put(b, 540, NSID.to_le_bytes()); // MNAN
    put(b, 1792, ((SQE as u32 + in_capsule) / 16).to_le_bytes()); // IOCCSZ
    put(b, 1796, (CQE as u32 / 16).to_le_bytes()); // IORCSZ
    b[1803] = 1; // MSDBD: one descriptor of data
}

fn namespace_data(namespace: &Namespace) -> Vec<u8> {
    let mut b = vec![0; LEN];
    b[128 + 2] = namespace.block_shift as u8; // the one format, without metadata
    let blocks = namespace.blocks();
    for at in [0, 8, 16] {
        put(&mut b, at, blocks.to_le_bytes()); // NSZE, NCAP, NUSE
    }
    b[24] = 0x10; // NSFEAT: preferred sizes are stated
    b[30] = 1; // NMIC: shared
    b[31] = if namespace.reservable { reservation::CAPABILITIES } else { 0 };
    b[33] = 0x09; // DLFEAT: what is given back reads as zeroes; write zeroes may give back
    let preferred =
        (1_u16 << (namespace.preferred_shift.max(namespace.block_shift) - namespace.block_shift)) - 1;
    for at in [64, 66, 68, 70, 72] {
        put(&mut b, at, preferred.to_le_bytes()); // NPWG, NPWA, NPDG, NPDA, NOWS
    }
    put(&mut b, 48, u128::from(namespace.bytes).to_le_bytes()); // NVMCAP
    put(&mut b, 74, ((SOURCE_MAX >> namespace.block_shift) as u16).to_le_bytes()); // MSSRL
    put(&mut b, 76, ((COPY_MAX >> namespace.block_shift) as u32).to_le_bytes()); // MCL
    b[80] = SOURCES_MAX as u8 - 1; // MSRC
    put(&mut b, 92, GROUP.to_le_bytes()); // ANAGRPID
    b[99] = u8::from(namespace.read_only); // NSATTR
    put(&mut b, 104, namespace.uuid); // NGUID
    b
}

/// Bounds that are not MDTS's (NVM 4.1.5.4): VERIFY reads, and so has the same.
fn bounds() -> Vec<u8> {
    let mut b = vec![0; LEN];
    b[0] = TRANSFER_MAX.ilog2() as u8 - 12; // VSL
    b
}

/// The namespace's names (Base, figure 278).
fn descriptors(namespace: &Namespace) -> Vec<u8> {
    let mut b = Vec::with_capacity(LEN);
    b.extend_from_slice(&[2, 16, 0, 0]); // NGUID
    b.extend_from_slice(&namespace.uuid);
    b.extend_from_slice(&[3, 16, 0, 0]); // UUID
    b.extend_from_slice(&namespace.marked_uuid());
    b.extend_from_slice(&[4, 1, 0, 0, 0]); // of the NVM command set
    b.resize(LEN, 0);
    b
}

/// Namespaces with greater numbers than this one.
fn active(from: u32) -> Vec<u8> {
    let mut b = vec![0; LEN];
    if from < NSID {
        put(&mut b, 0, NSID.to_le_bytes());
    }
    b
}
