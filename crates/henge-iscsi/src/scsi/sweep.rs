//! Task management that takes away everybody's commands (SAM-5, sections 7.4 to 7.7), wherever these came in.
//!
//! The session that was asked sweeps the unit of its own node at once. Where other nodes serve the disk, too, the sweep is an
//! [`super::Action::Sweep`] then: it joins the changes of reservations, one after another, and is answered when every node has done it
//! and nothing that began before is at the storage any more. The count of sweeps is told with the reservations, so that a node that
//! was away finds out what it has missed.

use super::{Effects, Nexus, Reservations, Unit, attention, mode};

/// What is taken away.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Sweep {
    /// CLEAR TASK SET: all commands.
    Commands,
    /// LOGICAL UNIT RESET, TARGET WARM RESET: the unit's state as well.
    Unit,
    /// TARGET COLD RESET: all sessions with the target as well.
    Sessions,
}

impl Sweep {
    /// From the mildest on.
    pub const ALL: [Sweep; 3] = [Sweep::Commands, Sweep::Unit, Sweep::Sessions];
}

impl Unit {
    /// Sweeps what is here; `by` asked for it, if it is one of ours. Commands that began before have an older epoch.
    pub(crate) fn sweep(&mut self, what: Sweep, by: Option<Nexus>) {
        self.epoch += 1;
        if what == Sweep::Commands {
            return self.alert(attention::CLEARED, |nexus, _| Some(nexus) != by);
        }
        // Back to the defaults; persistent reservations stay.
        self.modes = mode::Modes::default();
        self.reserved = None;
        self.stopped = false;
        self.alert(attention::RESET, |_, _| true);
    }
}

impl Reservations {
    /// A sweep by way of the node `by`, which has done its own part.
    pub fn sweep(&mut self, what: Sweep, by: &str) -> Effects {
        let count = &mut self.sweeps[what as usize];
        *count = count.wrapping_add(1);
        Effects { sweep: Some((what, by.to_owned())), ..Effects::default() }
    }

    /// The worst sweep between these and `next`.
    pub(super) fn swept(&self, next: &Reservations) -> Option<Sweep> {
        Sweep::ALL.into_iter().rev().find(|what| self.sweeps[*what as usize] != next.sweeps[*what as usize])
    }
}
