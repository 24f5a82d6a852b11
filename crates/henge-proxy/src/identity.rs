//! Whose a capability is.
//!
//! Under protocol 7000 an I/O request names no user. It carries the capability that its user was given with a file's
//! attributes; whoever saw that happen knows the user, and tells the other proxies. A capability holds no user id, so two
//! users who open the same file within the same second hold equal ones: then nobody can tell, and nobody guesses.

use henge_pvfs2::Capability;
use std::collections::{BTreeMap, VecDeque};

/// Capabilities that are remembered; the oldest are forgotten.
const MOST: usize = 16_384;

/// Who holds a capability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// It was never seen being given.
    Unknown,
    /// One user.
    User(u32),
    /// Several.
    Ambiguous,
}

/// All that is known of capabilities.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    owners: BTreeMap<Capability, Owner>,
    in_order: VecDeque<Capability>,
}

impl Owners {
    /// A user was given a capability.
    pub fn learn(&mut self, capability: Capability, uid: u32) {
        if let Some(owner) = self.owners.get_mut(&capability) {
            if *owner != Owner::User(uid) {
                *owner = Owner::Ambiguous;
            }
            return;
        }
        if self.owners.len() >= MOST
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.owners.remove(&oldest);
        }
        self.in_order.push_back(capability.clone());
        self.owners.insert(capability, Owner::User(uid));
    }

    /// Who holds it.
    pub fn of(&self, capability: &Capability) -> Owner {
        self.owners.get(capability).copied().unwrap_or(Owner::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capability(n: usize) -> Capability {
        Capability { timeout: n as i64, ..Capability::default() }
    }

    #[test]
    fn who_shares_a_capability_is_not_guessed() {
        let mut owners = Owners::default();
        assert_eq!(owners.of(&capability(1)), Owner::Unknown);
        owners.learn(capability(1), 501);
        owners.learn(capability(1), 501);
        assert_eq!(owners.of(&capability(1)), Owner::User(501));
        owners.learn(capability(1), 502);
        owners.learn(capability(1), 501);
        assert_eq!(owners.of(&capability(1)), Owner::Ambiguous);
    }

    #[test]
    fn memory_is_bounded() {
        let mut owners = Owners::default();
        (0..MOST + 10).for_each(|n| owners.learn(capability(n), 1));
        assert_eq!((owners.owners.len(), owners.in_order.len()), (MOST, MOST));
        assert_eq!(owners.of(&capability(9)), Owner::Unknown);
        assert_eq!(owners.of(&capability(10)), Owner::User(1));
    }
}
