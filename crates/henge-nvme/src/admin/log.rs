//! Log pages (Base 5.16.1): what a host reads again and again.

use super::Caller;
use super::identify::GROUP;
use crate::controller::Controller;
use crate::namespace::{Namespace, Service};
use crate::nvm::{ALL, DISCOVERY_MAX, NSID, TRANSFER_MAX};
use crate::plan::Page;
use crate::reservation;
use crate::status::Status;
use crate::subsystem::{DISCOVERY, Subsystems};
use crate::wire::{Sqe, put};
use std::collections::VecDeque;

mod id {
    pub const ERRORS: u8 = 0x01;
    pub const SMART: u8 = 0x02;
    pub const FIRMWARE: u8 = 0x03;
    pub const CHANGED: u8 = 0x04;
    pub const EFFECTS: u8 = 0x05;
    pub const ANA: u8 = 0x0c;
    pub const DISCOVERY: u8 = 0x70;
    pub const RESERVATION: u8 = 0x80;
    /// Of our own: `docs/nvme.md` has it byte by byte.
    pub const SERVICE: u8 = 0xc0;
}

/// What a Get Log Page comes to.
pub(crate) enum Log {
    /// These bytes.
    Data(Page),
    /// The disk's service is to be asked for first; then [`smart`] or [`service_log`].
    Service,
    /// It is wrong.
    Wrong(Status),
}

/// Which bytes of a page are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    page: u8,
    offset: u64,
    len: u64,
}

impl Window {
    /// `None` for what cannot be asked for.
    pub fn of(sqe: &Sqe) -> Option<Window> {
        let dwords = u64::from(sqe.dword(10) >> 16) | u64::from(sqe.dword(11) & 0xffff) << 16;
        let offset = u64::from(sqe.dword(12)) | u64::from(sqe.dword(13)) << 32;
        let len = (dwords + 1) * 4;
        let by_index = sqe.dword(14) >> 23 & 1 != 0;
        let fine = offset.is_multiple_of(4) && len <= TRANSFER_MAX && !by_index;
        fine.then_some(Window { page: sqe.dword(10) as u8, offset, len })
    }
    pub fn is_smart(&self) -> bool {
        self.page == id::SMART
    }
    /// These bytes of a page; zeroes after its end.
    pub fn cut(&self, mut page: Vec<u8>) -> Result<Page, Status> {
        let from = usize::try_from(self.offset).ok().filter(|from| *from <= page.len());
        page.drain(..from.ok_or(Status::FIELD)?);
        Ok(Page::new(page, self.len as usize))
    }
}

pub(super) fn get(subsystems: &mut Subsystems, caller: &Caller<'_>, sqe: &Sqe) -> Log {
    let Some(mut window) = Window::of(sqe) else { return Log::Wrong(Status::FIELD) };
    let retains = sqe.dword(10) & 1 << 15 != 0;
    let Some(controller) = subsystems.controller(caller.cntlid) else { return Log::Wrong(Status::INTERNAL) };
    let subsystem = controller.subsystem.and_then(|id| subsystems.get(id));
    let namespace = subsystem.map(|subsystem| &subsystem.namespace);
    let page = match (window.page, namespace) {
        (id::ERRORS, _) => controller.error_log(),
        (id::SMART | id::SERVICE, Some(_)) => {
            return match sqe.nsid() {
                0 | NSID | ALL => Log::Service,
                _ => Log::Wrong(Status::NAMESPACE),
            };
        }
        (id::FIRMWARE, _) => firmware(),
        (id::CHANGED, Some(_)) => changed(controller),
        (id::EFFECTS, namespace) => effects(namespace),
        (id::ANA, Some(namespace)) => ana(namespace, sqe.dword(10) >> 8 & 1 != 0),
        (id::RESERVATION, Some(namespace)) if namespace.reservable => controller.reservations.page(),
        (id::DISCOVERY, None) if window.len > DISCOVERY_MAX => return Log::Wrong(Status::FIELD),
        (id::DISCOVERY, None) => {
            let host = controller.host.clone();
            let (page, from) = discovery(subsystems, caller, &host, window);
            window.offset -= from;
            page
        }
        _ => return Log::Wrong(Status::LOG_PAGE),
    };
    if !retains && let Some(controller) = subsystems.controller_mut(caller.cntlid) {
        controller.unmask(window.page);
        if window.page == id::CHANGED {
            controller.changed = false;
        }
        // Reading is taking: the next one is told by an event of its own.
        let takes = window.page == id::RESERVATION && window.offset == 0;
        if takes && controller.reservation_read() {
            subsystems.tell_admin(caller.cntlid);
        }
    }
    window.cut(page).map_or_else(Log::Wrong, Log::Data)
}

/// Firmware slots (5.16.1.4): one, which is active.
fn firmware() -> Vec<u8> {
    let mut b = vec![0; 512];
    b[0] = 1;
    b[8..16].fill(b' ');
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let len = version.len().min(8);
    b[8..8 + len].copy_from_slice(&version[..len]);
    b
}

/// Namespaces that have changed since this was read last (5.16.1.5).
fn changed(controller: &Controller) -> Vec<u8> {
    let mut b = vec![0; 4096];
    if controller.changed {
        put(&mut b, 0, NSID.to_le_bytes());
    }
    b
}

/// Commands supported, and whether they change the disk (5.16.1.6).
fn effects(namespace: Option<&Namespace>) -> Vec<u8> {
    let mut b = vec![0; 4096];
    for opcode in super::COMMANDS {
        b[usize::from(*opcode) * 4] = 1;
    }
    let io = namespace.map_or(&[][..], |_| crate::nvm::COMMANDS);
    let has = |opcode: u8| namespace.is_some_and(|n| n.reservable) || !reservation::is_command(opcode);
    for (opcode, changes) in io.iter().filter(|(opcode, _)| has(*opcode)) {
        b[1024 + usize::from(*opcode) * 4] = 1 | u8::from(*changes) << 1;
    }
    b
}

/// Asymmetric namespace access (5.16.1.13): one group, and how this controller reaches it.
fn ana(namespace: &Namespace, groups_only: bool) -> Vec<u8> {
    let mut b = vec![0; 48];
    put(&mut b, 0, namespace.reach_changes.to_le_bytes());
    put(&mut b, 8, 1_u16.to_le_bytes());
    put(&mut b, 16, GROUP.to_le_bytes());
    put(&mut b, 24, namespace.reach_changes.to_le_bytes());
    b[32] = namespace.reach.state();
    if !groups_only {
        put(&mut b, 20, 1_u32.to_le_bytes());
        b.extend_from_slice(&NSID.to_le_bytes());
    }
    b
}

/// The discovery log (5.16.1.23): what this host may connect to, and where. The bytes from the first entry on of which the window shows
/// something, and where they begin. Entries are made where they are asked for: a host reads a long log page by page.
fn discovery(subsystems: &mut Subsystems, caller: &Caller<'_>, host: &str, window: Window) -> (Vec<u8>, u64) {
    let directory = subsystems.directory();
    let all = HEADS + directory.entries(host);
    let first = (window.offset / ENTRY as u64).min(all);
    let end = window.offset.saturating_add(window.len).div_ceil(ENTRY as u64).min(all);
    let places = (first.max(HEADS)..end).map(|number| directory.entry(host, number - HEADS));
    let mut places: VecDeque<_> = places.flatten().collect();
    let mut made = vec![0; (end - first) as usize * ENTRY];
    for (number, into) in (first..end).zip(made.chunks_exact_mut(ENTRY)) {
        match number {
            0 => {
                put(into, 0, subsystems.generation.to_le_bytes());
                put(into, 8, (all - 1).to_le_bytes());
            }
            1 => entry(into, DISCOVERY, caller.here, (3, subsystems.port)),
            _ => {
                let place = places.pop_front().and_then(|(id, way)| Some((subsystems.get(id)?, way)));
                let Some((there, way)) = place else { continue };
                // This node's entry is the first.
                let other = way.checked_sub(1).and_then(|n| there.elsewhere.get(n));
                let port = subsystems.port.wrapping_add(way as u16);
                entry(into, &there.nqn, other.unwrap_or(caller.here), (2, port));
            }
        }
    }
    (made, first * ENTRY as u64)
}

/// Bytes of an entry.
const ENTRY: usize = 1024;
/// What stands before the subsystems, as long as an entry each: how many there are, and the discovery subsystem itself.
const HEADS: u64 = 2;

/// A subsystem's name, where it is, and of which type it is: 2 has namespaces, 3 is the discovery subsystem itself.
fn entry(b: &mut [u8], nqn: &str, (address, service): &(String, String), (kind, port): (u8, u16)) {
    b[0] = 3; // TCP
    b[1] = if address.contains(':') { 2 } else { 1 }; // IPv6, IPv4
    b[2] = kind;
    // Flow control may be switched off. Of TLS nothing is said: nvme-cli takes even "not required" for a wish to use it.
    b[3] = 0x04;
    put(b, 4, port.to_le_bytes());
    put(b, 6, 0xffff_u16.to_le_bytes()); // controllers are made as hosts come
    put(b, 8, 32_u16.to_le_bytes()); // entries of an admin queue
    for (at, len, text) in [(32, 32, service.as_str()), (256, 256, nqn), (512, 256, address.as_str())] {
        let len = text.len().min(len);
        b[at..at + len].copy_from_slice(&text.as_bytes()[..len]);
    }
}

/// SMART / health (5.16.1.3).
pub(crate) fn smart(service: &Service, errors: u64) -> Vec<u8> {
    let mut b = vec![0; 512];
    b[3] = 100; // all of the spare is there
    let units = |bytes: u64| u128::from(bytes.div_ceil(512_000)).to_le_bytes();
    let written = service.bytes.saturating_sub(service.bytes_read);
    put(&mut b, 32, units(service.bytes_read));
    put(&mut b, 48, units(written));
    put(&mut b, 64, u128::from(service.reads).to_le_bytes());
    put(&mut b, 80, u128::from(service.commands - service.reads.min(service.commands)).to_le_bytes());
    put(&mut b, 96, u128::from(service.service.as_nanos() / 60_000_000_000).to_le_bytes());
    put(&mut b, 128, u128::from(service.since.as_nanos() / 3_600_000_000_000).to_le_bytes());
    put(&mut b, 160, u128::from(service.failed).to_le_bytes());
    put(&mut b, 176, u128::from(errors).to_le_bytes());
    b
}
