//! Target port groups: the ways to a disk that several nodes serve (SPC-4, sections 5.15 and 6.37).
//!
//! Each node is a group of one port: all its portals lead to the same coordinator. A node that keeps a part of the disk is
//! *optimized*, one that passes everything on is *not*, and one that cannot be reached is *unavailable*. States change by
//! themselves (implicit ALUA); an initiator does not set them. Persistent reservations hold by whichever way an initiator comes;
//! a node that may not know the latest of them is unavailable, and says so ([`crate::Targets::set_available`]).

use super::cdb::be32;
use super::{Plan, Sense, Unit, attention};

/// How well a group leads to the disk: asymmetric access states, as they are numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Access {
    /// ACTIVE/OPTIMIZED.
    Optimized = 0,
    /// ACTIVE/NON-OPTIMIZED: by way of another node.
    Detour = 1,
    /// UNAVAILABLE.
    Unavailable = 3,
}

/// The portals of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// The group's number, and its one port's; the same whichever node is asked.
    pub port: u16,
    /// How well it leads to the disk.
    pub access: Access,
}

/// States that a group may be in: unavailable, non-optimized, optimized.
const SUPPORTED: u8 = 0x0b;
/// Changed without being asked to.
const IMPLICIT: u8 = 2;

impl Unit {
    /// The ways to the disk, this one among them; none for a disk that no other node can serve.
    pub fn set_groups(&mut self, groups: Vec<Group>) {
        if groups != self.groups {
            self.groups = groups;
            self.alert(attention::ACCESS_STATE, |_, _| true);
        }
    }

    /// Whether other nodes may serve it, too.
    pub(crate) fn is_shared(&self) -> bool {
        !self.groups.is_empty()
    }

    /// REPORT TARGET PORT GROUPS.
    pub(super) fn report_groups(&self, cdb: &[u8; 16]) -> Plan {
        let extended = match cdb[1] >> 5 {
            0 => false,
            1 => true,
            _ => return Sense::field(1).into(),
        };
        let mut out = vec![0; if extended { 8 } else { 4 }];
        if extended {
            out[4] = 0x10; // format 001b; no state lasts while it changes
        }
        for group in &self.groups {
            let [high, low] = group.port.to_be_bytes();
            out.extend_from_slice(&[
                group.access as u8,
                SUPPORTED,
                high,
                low,
                0,
                IMPLICIT,
                0,
                1,
                0,
                0,
                high,
                low,
            ]);
        }
        let len = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&len.to_be_bytes());
        Plan::data(out, be32(cdb, 6) as usize)
    }
}
