//! A virtual disk as a SCSI logical unit: commands in, plans out (SPC-4, SBC-3).
//!
//! ```text
//! CDB ─▶ Unit::start ─▶ Plan::Done | Data                     answered at once
//!                       Plan::Parameters ─▶ Unit::parameters   after the parameter list has come
//!                       Plan::Storage(transfer, actions)       the driver does the actions
//! ```
//!
//! Nothing here knows iSCSI. A [`Nexus`] names one initiator's session with the unit; what all of them share
//! (modes, reservations, readiness) and what each has of its own (unit attentions) is in [`Unit`].

mod block;
mod cdb;
mod inquiry;
mod mode;
mod opcodes;
mod plan;
mod ports;
mod reserve;
mod sanitize;
mod sense;
mod sweep;

pub use inquiry::TRANSFER_MAX;
pub use plan::{Action, Extent, Outcome, Plan, Transfer};
pub use ports::{Access, Group};
pub use reserve::{Change, Effects, HostAction, HostChange, Registrant, Reservations, host_name, host_of};
pub use sense::{Detail, Key, Sense, Status, attention};
pub use sweep::Sweep;

pub(crate) use cdb::be32;
pub(crate) use inquiry::standard;

pub use opcodes::Class;
use opcodes::{Kind, Unknown};
use sanitize::Sanitize;
use std::collections::BTreeMap;

/// One initiator's session with a target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Nexus(pub u32);

/// What the unit is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnitProperties {
    /// Capacity, a multiple of the block size.
    pub bytes: u64,
    /// Block size as a power of two: 9 for 512 bytes, 12 for 4 KiB.
    pub block_shift: u32,
    /// The same of the blocks that are best written whole.
    pub physical_shift: u32,
    /// Whether UNMAP gives room back.
    pub thin: bool,
    /// Whether it can be written.
    pub read_only: bool,
    /// Whether it can be reserved persistently.
    pub reservable: bool,
    /// Unit serial number: printable ASCII, the same on every node.
    pub serial: String,
    /// A number that no other disk has; 60 bits of it are used.
    pub id: u64,
}

impl UnitProperties {
    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        1 << self.block_shift
    }
    /// How many blocks there are.
    pub fn blocks(&self) -> u64 {
        self.bytes >> self.block_shift
    }
    /// A world-wide name: NAA 3, locally assigned (SPC-4 7.8.6.6.4).
    fn naa(&self) -> [u8; 8] {
        (3 << 60 | self.id & (u64::MAX >> 4)).to_be_bytes()
    }
}

/// Most unit attentions kept for a nexus; the first ones tell the most.
const ATTENTIONS_MAX: usize = 8;

#[derive(Debug)]
struct Attached {
    /// The initiator port's name.
    port: String,
    attentions: Vec<u16>,
}

/// Who asks, and through which target.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// Its session.
    pub nexus: Nexus,
    /// The target's iSCSI name.
    pub target: &'a str,
    /// The target port's relative identifier.
    pub port: u16,
}

/// What initiators have said of a disk that holds for whoever else uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bar {
    /// A session has it for itself (RESERVE(6)).
    Reserved,
    /// It is stopped (START STOP UNIT).
    Stopped,
    /// It is being sanitized.
    Sanitizing,
    /// It could not be sanitized.
    SanitizeFailed,
}

/// A logical unit.
#[derive(Debug)]
pub struct Unit {
    pub(crate) properties: UnitProperties,
    modes: mode::Modes,
    /// The ways to it, where there are several.
    groups: Vec<Group>,
    nexuses: BTreeMap<Nexus, Attached>,
    reservations: Reservations,
    /// Whether what is known of reservations is what holds everywhere.
    available: bool,
    /// What is known of reservations may be old: commands wait before the storage until it is not.
    stale: bool,
    /// Who has RESERVE(6).
    reserved: Option<Nexus>,
    stopped: bool,
    pub(crate) sanitize: Sanitize,
    /// Counts resets; commands begun before one are those it aborts.
    epoch: u32,
    /// Commands at the storage, by the epoch in which they began.
    at_storage: BTreeMap<u32, u32>,
}

impl Unit {
    /// A unit that nobody uses yet, with the reservations that were kept.
    pub fn new(properties: UnitProperties, reservations: Reservations) -> Unit {
        Unit {
            properties,
            modes: mode::Modes::default(),
            groups: Vec::new(),
            nexuses: BTreeMap::new(),
            reservations,
            available: true,
            stale: false,
            reserved: None,
            stopped: false,
            sanitize: Sanitize::default(),
            epoch: 0,
            at_storage: BTreeMap::new(),
        }
    }

    /// What it is made of.
    pub fn properties(&self) -> &UnitProperties {
        &self.properties
    }

    /// A session of an initiator port with a target port begins.
    pub fn attach(&mut self, nexus: Nexus, port: &str, to: u16) {
        let attentions = vec![attention::POWER_ON];
        let port = if self.is_shared() { reserve::by_way_of(port, to) } else { port.to_owned() };
        self.nexuses.insert(nexus, Attached { port, attentions });
    }

    /// A session has ended: what belonged to it alone is gone, what belongs to its port stays.
    pub fn detach(&mut self, nexus: Nexus) {
        self.nexuses.remove(&nexus);
        if self.reserved == Some(nexus) {
            self.reserved = None;
        }
    }

    /// The disk has another capacity now.
    pub fn resize(&mut self, bytes: u64) {
        if bytes != self.properties.bytes {
            self.properties.bytes = bytes;
            self.alert(attention::CAPACITY, |_, _| true);
        }
    }

    /// Who may use it.
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// Others may use it from now on; whom that concerns is told. Which sessions' commands are to be aborted.
    pub(crate) fn adopt(&mut self, next: Reservations, effects: &Effects) -> Vec<Nexus> {
        self.reservations = next;
        for (to, code) in &effects.attentions {
            self.alert(*code, |_, port| port == to);
        }
        if effects.abort.is_empty() {
            return Vec::new();
        }
        // What began before is told from what begins now.
        self.epoch += 1;
        let hit = self.nexuses.iter().filter(|(_, attached)| effects.abort.contains(&attached.port));
        hit.map(|(nexus, _)| *nexus).collect()
    }

    /// Whether a session has it for itself (RESERVE(6)): no other may change reservations meanwhile.
    pub fn is_taken(&self) -> bool {
        self.reserved.is_some()
    }

    /// What keeps the clients of other protocols from the disk.
    pub fn bar(&self) -> Option<Bar> {
        match self.reserved {
            _ if self.sanitize.active() => Some(Bar::Sanitizing),
            _ if self.sanitize.failed => Some(Bar::SanitizeFailed),
            _ if self.stopped => Some(Bar::Stopped),
            Some(_) => Some(Bar::Reserved),
            None => None,
        }
    }

    /// Whether it can be used here. While what is known of its reservations may be old, it cannot.
    pub(crate) fn set_available(&mut self, available: bool) {
        self.available = available;
    }
    pub(crate) fn is_available(&self) -> bool {
        self.available
    }

    /// Whether reservations may be others than those known here. Commands are taken in all the same; nothing is told of reservations.
    pub(crate) fn set_stale(&mut self, stale: bool) {
        self.stale = stale;
    }

    /// Whether reservations may be others than those known here.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// Whether a reservation keeps a session from a command.
    pub(crate) fn keeps_out(&self, nexus: Nexus, cdb: &[u8; 16]) -> bool {
        let found = opcodes::find(cdb[0], cdb[1] & 0x1f);
        found.is_ok_and(|command| self.is_reserved(nexus, command.kind, command.class))
    }

    /// Queues a unit attention for those nexuses that `who` says.
    pub(crate) fn alert(&mut self, code: u16, who: impl Fn(Nexus, &str) -> bool) {
        for (&nexus, attached) in &mut self.nexuses {
            let full = attached.attentions.len() >= ATTENTIONS_MAX;
            if who(nexus, &attached.port) && !full && !attached.attentions.contains(&code) {
                attached.attentions.push(code);
            }
        }
    }

    /// A command goes to the storage; [`Unit::end`] with the same number when it is back.
    pub(crate) fn begin(&mut self) -> u32 {
        *self.at_storage.entry(self.epoch).or_default() += 1;
        self.epoch
    }
    pub(crate) fn end(&mut self, epoch: u32) {
        if let Some(count) = self.at_storage.get_mut(&epoch) {
            *count -= 1;
            if *count == 0 {
                self.at_storage.remove(&epoch);
            }
        }
    }
    /// The current epoch.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
    /// Whether nothing that began before `epoch` is still at the storage.
    pub fn quiet_before(&self, epoch: u32) -> bool {
        self.at_storage.range(..epoch).next().is_none()
    }
    pub(crate) fn quiet(&self) -> bool {
        self.at_storage.is_empty()
    }

    fn port(&self, nexus: Nexus) -> &str {
        self.nexuses.get(&nexus).map_or("", |attached| &attached.port)
    }

    fn take_attention(&mut self, nexus: Nexus) -> Option<Sense> {
        let attentions = &mut self.nexuses.get_mut(&nexus)?.attentions;
        if attentions.is_empty() { None } else { Some(Sense::attention(attentions.remove(0))) }
    }

    /// Sense data in the format that the control page asks for.
    pub fn sense_bytes(&self, sense: &Sense) -> Vec<u8> {
        sense.bytes(self.modes.descriptor_sense)
    }

    /// Begins a command.
    pub fn start(&mut self, caller: &Caller<'_>, cdb: &[u8; 16]) -> Plan {
        let found = opcodes::find(cdb[0], cdb[1] & 0x1f);
        let class = found.map_or(Class::Free, |command| command.class);
        if class != Class::Report
            && let Some(attention) = self.take_attention(caller.nexus)
        {
            return attention.into();
        }
        let command = match found {
            Ok(command) if self.offers(command) => command,
            Ok(command) if command.action.is_some() && command.class != Class::Reservation => {
                return Sense::field(1).into();
            }
            Err(Unknown::Action) => return Sense::field(1).into(),
            _ => return Sense::OPCODE.into(),
        };
        if let Some(byte) = command.stray_bit(cdb) {
            return Sense::field(byte).into();
        }
        // SPC-4 5.15.2.4.5: what a port in this state still answers.
        if !self.available && class != Class::Report && command.kind != Kind::ReportGroups {
            return Sense::UNAVAILABLE.into();
        }
        let reserved = self.is_reserved(caller.nexus, command.kind, class);
        if self.stale && (reserved || command.kind == Kind::ReserveIn) {
            return Plan::Done(Status::Busy);
        }
        if reserved {
            return Plan::Done(Status::ReservationConflict);
        }
        if let Some(sense) = self.not_ready(command.kind, class, cdb) {
            return sense.into();
        }
        self.dispatch(caller, command.kind, cdb)
    }

    /// Whether it has a command: some are a thin disk's alone, or of one with several ways to it, or of one without.
    fn offers(&self, command: &opcodes::Command) -> bool {
        match (command.kind, command.class) {
            (Kind::ReportGroups, _) => self.is_shared(),
            // Other nodes would not hear of these: a session's own reservation, and work of this node's own on all of the disk.
            (Kind::Reserve | Kind::Release | Kind::Sanitize, _) => !self.is_shared(),
            (Kind::ReserveIn | Kind::ReserveOut, _) => self.properties.reservable,
            _ => self.properties.thin || !command.thin,
        }
    }

    fn is_reserved(&self, nexus: Nexus, kind: Kind, class: Class) -> bool {
        let by_another = self.reserved.is_some_and(|holder| holder != nexus);
        if by_another && class != Class::Report && kind != Kind::Release {
            return true;
        }
        self.reservations.conflicts(self.port(nexus), class)
    }

    fn not_ready(&self, kind: Kind, class: Class, cdb: &[u8; 16]) -> Option<Sense> {
        let always = class == Class::Report || kind == Kind::ReserveIn || kind == Kind::ReserveOut;
        if always {
            return None;
        }
        if let Some(sense) = self.sanitizing() {
            return Some(sense);
        }
        let leaves_failure = kind == Kind::Sanitize;
        if self.sanitize.failed && !leaves_failure && class != Class::Free {
            return Some(Sense::SANITIZE_FAILED);
        }
        let medium = matches!(class, Class::Read | Class::Write) || kind == Kind::TestUnitReady;
        if self.stopped && medium {
            return Some(Sense::STOPPED);
        }
        let writes = class == Class::Write && kind != Kind::Synchronize;
        if writes && !(kind == Kind::Sanitize && cdb[1] & 0x1f == sanitize::EXIT_FAILURE) {
            return self.write_protection();
        }
        None
    }

    fn write_protection(&self) -> Option<Sense> {
        if self.properties.read_only {
            Some(Sense::PROTECTED)
        } else if self.modes.write_protect {
            Some(Sense::SOFTWARE_PROTECTED)
        } else {
            None
        }
    }

    fn dispatch(&mut self, caller: &Caller<'_>, kind: Kind, cdb: &[u8; 16]) -> Plan {
        match kind {
            Kind::TestUnitReady => Plan::GOOD,
            Kind::RequestSense => self.request_sense(caller.nexus, cdb),
            Kind::Inquiry => inquiry::inquiry(self, cdb, caller.target, caller.port),
            // A target answers it before it comes to a unit.
            Kind::ReportLuns => Sense::INTERNAL.into(),
            Kind::ModeSense => mode::sense(self, cdb),
            Kind::ModeSelect => mode::select(cdb),
            Kind::Reserve if self.reservations.any() => Plan::Done(Status::ReservationConflict),
            Kind::Reserve => {
                self.reserved = Some(caller.nexus);
                Plan::GOOD
            }
            Kind::Release => {
                if self.reserved == Some(caller.nexus) {
                    self.reserved = None;
                }
                Plan::GOOD
            }
            Kind::ReserveIn => self.reservations.report(cdb, caller.port, self.is_shared()),
            Kind::ReserveOut if self.reserved.is_some() => Plan::Done(Status::ReservationConflict),
            Kind::ReserveOut if be32(cdb, 5) > reserve::LIST_MAX => Sense::LIST_LENGTH.into(),
            Kind::ReserveOut => Plan::Parameters(be32(cdb, 5) as usize),
            Kind::StartStop => self.start_stop(cdb),
            // Nothing here can be taken out, so there is nothing to prevent.
            Kind::PreventAllow => Plan::GOOD,
            Kind::Sanitize => self.start_sanitize(cdb),
            Kind::ReportGroups => self.report_groups(cdb),
            Kind::ReportOpcodes => self.report_opcodes(cdb),
            // ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET, TARGET RESET
            Kind::ReportFunctions => Plan::data(vec![0xda, 0, 0, 0], be32(cdb, 6) as usize),
            _ => self.start_block(kind, cdb),
        }
    }

    /// Goes on with a command whose parameter list has come.
    pub fn parameters(&mut self, caller: &Caller<'_>, cdb: &[u8; 16], list: &[u8]) -> Plan {
        match opcodes::find(cdb[0], cdb[1] & 0x1f).map(|command| command.kind) {
            Ok(Kind::ModeSelect) => match mode::parse(self, cdb, list) {
                Ok(modes) => {
                    if modes != self.modes {
                        self.modes = modes;
                        self.alert(attention::MODE_CHANGED, |nexus, _| nexus != caller.nexus);
                    }
                    Plan::GOOD
                }
                Err(sense) => sense.into(),
            },
            Ok(Kind::ReserveOut) => {
                let change =
                    Change { cdb: *cdb, list: list.to_vec(), port: self.port(caller.nexus).to_owned() };
                Plan::Storage(Transfer::None, vec![Action::Reserve(Box::new(change))])
            }
            Ok(Kind::Sanitize) => self.sanitize_overwrite(cdb, list),
            Ok(Kind::Unmap) => self.unmap(list),
            Ok(Kind::WriteSame) => self.write_same(cdb, list),
            _ => Sense::INTERNAL.into(),
        }
    }

    /// REQUEST SENSE: a pending unit attention, or how the unit is.
    fn request_sense(&mut self, nexus: Nexus, cdb: &[u8; 16]) -> Plan {
        let sense =
            self.take_attention(nexus).unwrap_or(match self.sanitize.progress(self.properties.bytes) {
                Some(progress) => Sense::sanitizing(progress),
                None if self.sanitize.failed => Sense::SANITIZE_FAILED,
                None if self.stopped => Sense::STOPPED,
                None => Sense::NONE,
            });
        Plan::data(sense.bytes(cdb[1] & 1 != 0), usize::from(cdb[4]))
    }

    /// START STOP UNIT (SBC-3 5.25). Only START itself matters: there is no medium to eject.
    fn start_stop(&mut self, cdb: &[u8; 16]) -> Plan {
        let (condition, start, eject) = (cdb[4] >> 4, cdb[4] & 1 != 0, cdb[4] & 2 != 0);
        if condition != 0 {
            return Sense::field(4).into(); // no power conditions
        }
        if eject {
            return Sense::field(4).into(); // LOEJ: not removable
        }
        if !start && self.is_shared() {
            return Sense::field(4).into(); // it would go on by way of other nodes
        }
        self.stopped = !start;
        Plan::GOOD
    }

    /// REPORT SUPPORTED OPERATION CODES (SPC-4 6.35).
    fn report_opcodes(&self, cdb: &[u8; 16]) -> Plan {
        let timeouts = cdb[2] & 0x80 != 0;
        let allocated = be32(cdb, 6) as usize;
        let action = cdb::be16(cdb, 4);
        let ours = |command: &&opcodes::Command| self.offers(command);
        let mut out = Vec::new();
        if cdb[2] & 7 == 0 {
            out.extend_from_slice(&[0; 4]);
            for command in opcodes::COMMANDS.iter().filter(ours) {
                let flags = u8::from(timeouts) << 1 | u8::from(command.action.is_some());
                out.extend_from_slice(&[command.opcode, 0, 0, command.action.unwrap_or(0), 0, flags]);
                out.extend_from_slice(&(command.usage.len() as u16).to_be_bytes());
                if timeouts {
                    out.extend_from_slice(&NO_TIMEOUTS);
                }
            }
            let len = (out.len() - 4) as u32;
            out[..4].copy_from_slice(&len.to_be_bytes());
            return Plan::data(out, allocated);
        }
        let has_actions = opcodes::COMMANDS.iter().any(|c| c.opcode == cdb[3] && c.action.is_some());
        let has_none = opcodes::COMMANDS.iter().any(|c| c.opcode == cdb[3] && c.action.is_none());
        match cdb[2] & 7 {
            1 if has_actions => return Sense::field(2).into(),
            2 if has_none => return Sense::field(2).into(),
            1..=3 => {}
            _ => return Sense::field(2).into(),
        }
        let found = u8::try_from(action).ok().and_then(|action| opcodes::find(cdb[3], action).ok());
        let found = found.filter(ours).filter(|c| c.action.is_some() || action == 0);
        match found {
            None => out.extend_from_slice(&[0, 1, 0, 0]), // not supported
            Some(command) => {
                let usage_len = (command.usage.len() as u16).to_be_bytes();
                out.extend_from_slice(&[0, u8::from(timeouts) << 7 | 3, usage_len[0], usage_len[1]]);
                let action_bits = if command.action.is_some() { command.action.unwrap_or(0) } else { 0 };
                out.extend_from_slice(command.usage);
                if command.action.is_some() {
                    // of the field with the service action, the action itself is shown
                    out[5] = command.usage[1] & !0x1f | action_bits;
                }
                if timeouts {
                    out.extend_from_slice(&NO_TIMEOUTS);
                }
            }
        }
        Plan::data(out, allocated)
    }
}

/// Command timeouts descriptor: none is indicated (SPC-4 6.35.4).
const NO_TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
