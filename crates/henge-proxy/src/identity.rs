//! Whose a capability is.
//!
//! Under protocol 7000 an I/O request names no user. It carries the capability that its user was given with a file's
//! attributes; whoever saw that happen knows the user, and tells the other proxies. A capability holds no user id, so two
//! users who open the same file within the same second hold equal ones: then nobody can tell, and nobody guesses.
//!
//! Memory is bounded. Where it is full, whoever has most forgets its oldest: a user who looks at very many files crowds out
//! nobody else.

use henge_pvfs2::Capability;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Capabilities that are remembered.
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
    /// Of each user, in the order in which they were given.
    given: BTreeMap<u32, VecDeque<Capability>>,
    /// How many each user has.
    counts: BTreeSet<(usize, u32)>,
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
            && let Some((_, uid)) = self.counts.last().copied()
        {
            self.forget_one_of(uid);
        }
        let given = self.given.entry(uid).or_default();
        self.counts.remove(&(given.len(), uid));
        given.push_back(capability.clone());
        self.counts.insert((given.len(), uid));
        self.owners.insert(capability, Owner::User(uid));
    }

    fn forget_one_of(&mut self, uid: u32) {
        let Some(given) = self.given.get_mut(&uid) else { return };
        self.counts.remove(&(given.len(), uid));
        if let Some(oldest) = given.pop_front() {
            self.owners.remove(&oldest);
        }
        match given.len() {
            0 => drop(self.given.remove(&uid)),
            left => drop(self.counts.insert((left, uid))),
        }
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
        let given: usize = owners.given.values().map(VecDeque::len).sum();
        assert_eq!((owners.owners.len(), given, owners.counts.len()), (MOST, MOST, 1));
        assert_eq!(owners.of(&capability(9)), Owner::Unknown);
        assert_eq!(owners.of(&capability(10)), Owner::User(1));
    }

    /// `ls -l` of a large directory gives its user a capability for each file.
    #[test]
    fn a_user_of_very_many_files_crowds_out_nobody_else() {
        let mut owners = Owners::default();
        owners.learn(capability(0), 501);
        (1..2 * MOST).for_each(|n| owners.learn(capability(n), 502));
        assert_eq!(owners.of(&capability(0)), Owner::User(501));
        assert_eq!(owners.of(&capability(2 * MOST - 1)), Owner::User(502));
        assert_eq!(owners.owners.len(), MOST);
        // Those who have one each.
        (0..MOST).for_each(|n| owners.learn(capability(n + 2 * MOST), n as u32 + 1000));
        assert_eq!((owners.owners.len(), owners.given.len()), (MOST, owners.counts.len()));
    }
}
