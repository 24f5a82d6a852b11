//! Persistent reservations: who may use the disk (SPC-4, sections 5.12, 6.15 and 6.16).
//!
//! An initiator port *registers* a key, and may then *reserve*. What the reservation's type (WE write
//! exclusive, EA exclusive access; RO registrants only, AR all registrants) leaves to the others:
//!
//! ```text
//!                      WE     EA     WE-RO/AR, registered    EA-RO/AR, registered    -RO/AR, not registered
//!   others may read    yes    no     yes                     yes                     WE yes, EA no
//!   others may write   no     no     yes                     yes                     no
//! ```
//!
//! Registrations belong to initiator ports by name (`iqn…,i,0xISID`), not to sessions; where several nodes serve the disk, to
//! an initiator port and the target port by which it comes (`iqn…,i,0xISID,t,0xPORT`), each pair having its own.
//!
//! Hosts that come by NVMe are registrants of the same table (`reserve_host.rs`).
//!
//! With APTPL they survive a restart: [`Reservations::save`] is the text to keep. The power of a disk over nodes does not
//! fail with one of them: there [`Reservations::text`] is kept, whatever APTPL says.

use super::cdb::{be16, be32, be64};
use super::opcodes::Class;
use super::sense::attention;
use super::{Plan, Sense, Status, Sweep};

/// Longest parameter list that is taken; the longest that has a meaning, of REGISTER AND MOVE, has about 300 bytes.
pub(super) const LIST_MAX: u32 = 4096;
/// Most registrations of a unit.
const REGISTRATIONS_MAX: usize = 256;

/// The type of a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kind(u8);

impl Kind {
    const TYPES: [u8; 6] = [1, 3, 5, 6, 7, 8];
    fn new(code: u8) -> Option<Kind> {
        Kind::TYPES.contains(&code).then_some(Kind(code))
    }
    fn exclusive_access(self) -> bool {
        matches!(self.0, 3 | 6 | 8)
    }
    fn all_registrants(self) -> bool {
        matches!(self.0, 7 | 8)
    }
    /// Registrants only, or all registrants.
    fn for_registrants(self) -> bool {
        self.0 >= 5
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Registration {
    port: String,
    key: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Holder {
    /// Who reserved; with an all-registrants type, each registration holds it.
    port: String,
    kind: Kind,
}

/// A PERSISTENT RESERVE OUT, complete: what is asked, and by whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The command.
    pub cdb: [u8; 16],
    /// Its parameter list.
    pub list: Vec<u8>,
    /// The port that asks, as registrations name it.
    pub port: String,
}

/// An initiator port by way of a target port.
pub(super) fn by_way_of(port: &str, to: u16) -> String {
    format!("{port}{WAY}{to:04x}")
}
const WAY: &str = ",t,0x";

/// Takes such a name apart; a port of a disk with one way to it has no target port in its name.
fn apart(name: &str) -> (&str, Option<u16>) {
    let parts = name.rsplit_once(WAY).and_then(|(port, to)| Some((port, u16::from_str_radix(to, 16).ok()?)));
    parts.map_or((name, None), |(port, to)| (port, Some(to)))
}

/// What a unit knows of registrations and its reservation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reservations {
    generation: u32,
    registrations: Vec<Registration>,
    holder: Option<Holder>,
    through_power_loss: bool,
    /// How often each [`Sweep`] was done, of a unit that several nodes serve.
    pub(super) sweeps: [u32; 3],
}

/// What others notice of a PERSISTENT RESERVE OUT, or of a sweep.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Unit attentions for these ports.
    pub attentions: Vec<(String, u16)>,
    /// The commands of these ports are to be aborted.
    pub abort: Vec<String>,
    /// The text to keep has changed.
    pub keep: bool,
    /// What is swept, and the node that has done its part before.
    pub sweep: Option<(Sweep, String)>,
}

/// Parameters of PERSISTENT RESERVE OUT.
struct Parameters {
    key: u64,
    action_key: u64,
    through_power_loss: bool,
}

impl Reservations {
    /// Whether there is any registration: RESERVE(6) conflicts then.
    pub fn any(&self) -> bool {
        !self.registrations.is_empty()
    }

    /// Whether a reservation keeps `port` from commands of this class.
    pub fn conflicts(&self, port: &str, class: Class) -> bool {
        let Some(holder) = &self.holder else { return false };
        let registered = self.key_of(port).is_some();
        if registered && (holder.port == port || holder.kind.for_registrants()) {
            return false;
        }
        match class {
            Class::Report | Class::Free | Class::Reservation => false,
            Class::Read => holder.kind.exclusive_access(),
            Class::Write | Class::Manage => true,
        }
    }

    fn key_of(&self, port: &str) -> Option<u64> {
        self.registrations.iter().find(|r| r.port == port).map(|r| r.key)
    }

    fn holds(&self, registration: &Registration) -> bool {
        self.holder.as_ref().is_some_and(|h| h.kind.all_registrants() || h.port == registration.port)
    }

    /// PERSISTENT RESERVE IN.
    pub fn report(&self, cdb: &[u8; 16], port_number: u16, shared: bool) -> Plan {
        let mut out = self.generation.to_be_bytes().to_vec();
        out.extend_from_slice(&[0; 4]);
        match cdb[1] & 0x1f {
            0 => self.registrations.iter().for_each(|r| out.extend_from_slice(&r.key.to_be_bytes())),
            1 => {
                if let Some(holder) = &self.holder {
                    let all = holder.kind.all_registrants();
                    let key = if all { 0 } else { self.key_of(&holder.port).unwrap_or(0) };
                    out.extend_from_slice(&key.to_be_bytes());
                    out.extend_from_slice(&[0, 0, 0, 0, 0, holder.kind.0, 0, 0]);
                }
            }
            // ATP_C, where there is one target port, and PTPL_C; TMV, PTPL_A; the six types
            2 => {
                out = vec![
                    0,
                    8,
                    if shared { 0x01 } else { 0x05 },
                    0x80 | u8::from(self.through_power_loss),
                    0xea,
                    0x01,
                    0,
                    0,
                ]
            }
            _ => self.registrations.iter().for_each(|r| self.full_status(r, port_number, &mut out)),
        }
        if cdb[1] & 0x1f != 2 {
            let len = (out.len() - 8) as u32;
            out[4..8].copy_from_slice(&len.to_be_bytes());
        }
        Plan::data(out, usize::from(be16(cdb, 7)))
    }

    fn full_status(&self, registration: &Registration, port_number: u16, out: &mut Vec<u8>) {
        let holds = self.holds(registration);
        let kind = self.holder.as_ref().filter(|_| holds).map_or(0, |h| h.kind.0);
        out.extend_from_slice(&registration.key.to_be_bytes());
        out.extend_from_slice(&[0, 0, 0, 0, u8::from(holds), kind, 0, 0, 0, 0]);
        let (name, by) = apart(&registration.port);
        out.extend_from_slice(&by.unwrap_or(port_number).to_be_bytes());
        if let Some(host) = host::host_of(name) {
            // No transport of SCSI's: protocol Fh, and the host's identifier (SPC-4 7.6.4.1).
            out.extend_from_slice(&[0, 0, 0, 24, 0x0f, 0, 0, 0, 0, 0, 0, 0]);
            return out.extend_from_slice(&host);
        }
        let name = name.as_bytes();
        let padded = (name.len() + 1).next_multiple_of(4).max(20);
        out.extend_from_slice(&(padded as u32 + 4).to_be_bytes());
        // TransportID of iSCSI, with the ISID (SPC-4 7.6.4.6)
        out.extend_from_slice(&[0x45, 0]);
        out.extend_from_slice(&(padded as u16).to_be_bytes());
        out.extend_from_slice(name);
        out.resize(out.len() + padded - name.len(), 0);
    }

    /// PERSISTENT RESERVE OUT. The same change of the same reservations always comes to the same.
    pub fn apply(&mut self, change: &Change) -> Result<Effects, Status> {
        match host::host_of(&change.port) {
            Some(_) => self.change_by_host(change),
            None => self.change(&change.cdb, &change.list, &change.port),
        }
    }

    fn change(&mut self, cdb: &[u8; 16], list: &[u8], port: &str) -> Result<Effects, Status> {
        let action = cdb[1] & 0x1f;
        if list.len() < 24 || action != 7 && list.len() != 24 {
            return Err(Status::Check(Sense::LIST_LENGTH));
        }
        if action != 7 && list[20] & 0x08 != 0 {
            return Err(Status::Check(Sense::parameter(20))); // SPEC_I_PT
        }
        // ALL_TG_PT: of several, each is registered by itself
        if matches!(action, 0 | 6) && list[20] & 0x04 != 0 && apart(port).1.is_some() {
            return Err(Status::Check(Sense::parameter(20)));
        }
        let flags = if action == 7 { list[17] } else { list[20] };
        let given =
            Parameters { key: be64(list, 0), action_key: be64(list, 8), through_power_loss: flags & 1 != 0 };
        let before = self.kept();
        let mine = self.key_of(port);
        let registers = action == 0 || action == 6;
        let known = mine == Some(given.key) || registers && mine.is_none() && given.key == 0;
        if !known && action != 6 {
            return Err(Status::ReservationConflict);
        }
        if !matches!(action, 0 | 3 | 6 | 7) && cdb[2] >> 4 != 0 {
            return Err(Status::Check(Sense::field(2))); // only the whole unit can be reserved
        }
        let mut effects = match action {
            0 | 6 => self.register(port, &given)?,
            1 => self.reserve(port, cdb)?,
            2 => self.release(port, cdb)?,
            3 => self.clear(port),
            4 | 5 => self.preempt(port, cdb, &given)?,
            _ => self.hand_over(port, list, &given)?,
        };
        effects.keep = self.kept() != before;
        Ok(effects)
    }

    fn kept(&self) -> Option<Reservations> {
        self.through_power_loss.then(|| self.clone())
    }

    fn others(&self, port: &str, code: u16) -> Vec<(String, u16)> {
        let others = self.registrations.iter().filter(|r| r.port != port);
        others.map(|r| (r.port.clone(), code)).collect()
    }

    /// REGISTER, and REGISTER AND IGNORE EXISTING KEY.
    fn register(&mut self, port: &str, given: &Parameters) -> Result<Effects, Status> {
        let mut effects = Effects::default();
        let at = self.registrations.iter().position(|r| r.port == port);
        match (at, given.action_key) {
            (None, 0) => return Ok(effects),
            (None, key) => {
                if self.registrations.len() >= REGISTRATIONS_MAX {
                    return Err(Status::Check(Sense::REGISTRATIONS));
                }
                self.registrations.push(Registration { port: port.to_owned(), key });
            }
            (Some(at), 0) => {
                self.registrations.remove(at);
                effects.attentions = self.leave(port);
            }
            (Some(at), key) => self.registrations[at].key = key,
        }
        self.through_power_loss = given.through_power_loss;
        self.generation = self.generation.wrapping_add(1);
        Ok(effects)
    }

    /// After a port's registration is gone: whether the reservation goes with it.
    fn leave(&mut self, port: &str) -> Vec<(String, u16)> {
        let Some(holder) = &self.holder else { return Vec::new() };
        let ends =
            if holder.kind.all_registrants() { self.registrations.is_empty() } else { holder.port == port };
        if !ends {
            return Vec::new();
        }
        let told = holder.kind.for_registrants();
        self.holder = None;
        if told { self.others(port, attention::RESERVATIONS_RELEASED) } else { Vec::new() }
    }

    fn reserve(&mut self, port: &str, cdb: &[u8; 16]) -> Result<Effects, Status> {
        let kind = Kind::new(cdb[2] & 0x0f).ok_or(Status::Check(Sense::field(2)))?;
        if let Some(holder) = &self.holder {
            let mine = holder.port == port || holder.kind.all_registrants();
            if !mine || holder.kind != kind {
                return Err(Status::ReservationConflict);
            }
            return Ok(Effects::default());
        }
        self.holder = Some(Holder { port: port.to_owned(), kind });
        Ok(Effects::default())
    }

    fn release(&mut self, port: &str, cdb: &[u8; 16]) -> Result<Effects, Status> {
        let Some(holder) = &self.holder else { return Ok(Effects::default()) };
        if holder.port != port && !holder.kind.all_registrants() {
            return Ok(Effects::default());
        }
        if Kind::new(cdb[2] & 0x0f) != Some(holder.kind) {
            return Err(Status::Check(Sense::RELEASE));
        }
        let told = holder.kind.for_registrants();
        self.holder = None;
        let mut effects = Effects::default();
        if told {
            effects.attentions = self.others(port, attention::RESERVATIONS_RELEASED);
        }
        Ok(effects)
    }

    fn clear(&mut self, port: &str) -> Effects {
        let attentions = self.others(port, attention::RESERVATIONS_PREEMPTED);
        self.registrations.clear();
        self.holder = None;
        self.generation = self.generation.wrapping_add(1);
        Effects { attentions, ..Effects::default() }
    }

    /// PREEMPT, and PREEMPT AND ABORT (SPC-4 5.12.11.4).
    fn preempt(&mut self, port: &str, cdb: &[u8; 16], given: &Parameters) -> Result<Effects, Status> {
        let kind = Kind::new(cdb[2] & 0x0f).ok_or(Status::Check(Sense::field(2)))?;
        let all = self.holder.as_ref().is_some_and(|h| h.kind.all_registrants());
        let held_by = self.holder.as_ref().filter(|_| !all).and_then(|h| self.key_of(&h.port));
        let everyone = all && given.action_key == 0;
        let takes = everyone || held_by == Some(given.action_key);
        if given.action_key == 0 && !everyone {
            return Err(Status::Check(Sense::parameter(8)));
        }
        let hit = |r: &Registration| everyone || r.key == given.action_key;
        if !takes && !self.registrations.iter().any(hit) {
            return Err(Status::ReservationConflict);
        }
        let (gone, stay): (Vec<_>, Vec<_>) =
            self.registrations.drain(..).partition(|r| hit(r) && (r.port != port || !takes));
        self.registrations = stay;
        let mut effects = Effects::default();
        for r in gone.into_iter().filter(|r| r.port != port) {
            effects.attentions.push((r.port.clone(), attention::REGISTRATIONS_PREEMPTED));
            if cdb[1] & 0x1f == 5 {
                effects.abort.push(r.port);
            }
        }
        let former = self.holder.as_ref().map(|h| h.kind);
        if takes {
            self.holder = Some(Holder { port: port.to_owned(), kind });
            if former != Some(kind) {
                effects.attentions.extend(self.others(port, attention::RESERVATIONS_RELEASED));
            }
        } else if self.registrations.is_empty() {
            self.holder = None;
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(effects)
    }

    /// REGISTER AND MOVE (SPC-4 6.16.4).
    fn hand_over(&mut self, port: &str, list: &[u8], given: &Parameters) -> Result<Effects, Status> {
        let bad = |byte| Status::Check(Sense::parameter(byte));
        let Some(holder) = &self.holder else { return Err(Status::ReservationConflict) };
        let kind = holder.kind;
        if holder.port != port || kind.all_registrants() {
            return Err(Status::ReservationConflict);
        }
        if given.action_key == 0 {
            return Err(bad(8));
        }
        let len = be32(list, 20) as usize;
        let id = list.get(24..24 + len.min(list.len())).ok_or(Status::Check(Sense::LIST_LENGTH))?;
        let to = transport_id(id).ok_or(bad(24))?;
        let to = if apart(port).1.is_some() { by_way_of(&to, be16(list, 18)) } else { to };
        if to == port {
            return Err(bad(24));
        }
        match self.registrations.iter().position(|r| r.port == to) {
            Some(there) => self.registrations[there].key = given.action_key,
            None if self.registrations.len() >= REGISTRATIONS_MAX => {
                return Err(Status::Check(Sense::REGISTRATIONS));
            }
            None => self.registrations.push(Registration { port: to.clone(), key: given.action_key }),
        }
        if list[17] & 2 != 0 {
            self.registrations.retain(|r| r.port != port);
        }
        self.holder = Some(Holder { port: to, kind });
        self.through_power_loss = given.through_power_loss;
        self.generation = self.generation.wrapping_add(1);
        Ok(Effects::default())
    }
}

/// The port that an iSCSI TransportID with an ISID names.
fn transport_id(id: &[u8]) -> Option<String> {
    let (&[0x45, _, high, low], rest) = id.split_first_chunk::<4>()? else { return None };
    let name = rest.get(..usize::from(u16::from_be_bytes([high, low])))?;
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    let name = std::str::from_utf8(&name[..end]).ok()?;
    let (node, isid) = name.split_once(",i,0x")?;
    let fine = !node.is_empty() && isid.len() == 12 && isid.bytes().all(|b| b.is_ascii_hexdigit());
    let plain = name.len() <= 255 && !name.chars().any(|c| c.is_control());
    (fine && plain).then(|| format!("{node},i,0x{}", isid.to_ascii_lowercase()))
}

#[path = "reserve_host.rs"]
mod host;
#[path = "reserve_text.rs"]
mod text;

pub use host::{HostAction, HostChange, Registrant, host_name, host_of};

#[cfg(test)]
#[path = "reserve_tests.rs"]
mod tests;
