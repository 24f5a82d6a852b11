//! How often a tenant may ask for changes.
//!
//! Each change is a line of the audit log, an event here, an order, and an event and a log line at a node. A tenant that changes one disk
//! without end would fill all of them. The administrator may change as often as he likes.

use super::{Caller, Failure};
use std::collections::BTreeMap;

/// Changes that a tenant may ask for at once …
const AT_ONCE: u64 = 1000;
/// … and then, in a second.
const A_SECOND: u64 = 10;
/// Milliseconds that each takes of that.
const EACH_MS: u64 = 1000 / A_SECOND;

/// By tenant, until when its changes so far take, in milliseconds since 1970.
#[derive(Default)]
pub(super) struct Paces(BTreeMap<String, u64>);

impl Paces {
    /// One more change, if this caller may ask for it now.
    pub(super) fn ask(&mut self, caller: &Caller, now: u64) -> Result<(), Failure> {
        let who = match caller {
            Caller::Administrator => return Ok(()),
            Caller::Tenant(name) | Caller::Disk { tenant: Some(name), .. } => name,
            // No tenant's name has a slash.
            Caller::Disk { tenant: None, name } => &format!("/{name}"),
        };
        let taken = self.0.get(who).map_or(now, |until| now.max(*until)) + EACH_MS;
        if taken - now > AT_ONCE * EACH_MS {
            let why = format!(
                "more than {AT_ONCE} changes at once, and {A_SECOND} a second then; come again in a second"
            );
            return Err(Failure::Often(why));
        }
        if let Some(until) = self.0.get_mut(who) {
            *until = taken;
        } else {
            self.0.retain(|_, until| *until > now);
            self.0.insert(who.clone(), taken);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_changes_much_at_once_and_little_without_end() {
        let mut paces = Paces::default();
        let (ann, bob) = (Caller::Tenant("ann".into()), Caller::Tenant("bob".into()));
        let hers = Caller::Disk { tenant: Some("ann".into()), name: "ann.web".into() };
        let mut asks = |who: &Caller, now: u64| (0..5000).filter(|_| paces.ask(who, now).is_ok()).count();
        assert_eq!((asks(&ann, 1_000_000), asks(&hers, 1_000_000)), (1000, 0));
        assert_eq!((asks(&bob, 1_000_000), asks(&Caller::Administrator, 1_000_000)), (1000, 5000));
        assert_eq!((asks(&ann, 1_010_000), asks(&ann, 1_010_000)), (100, 0));
        assert_eq!(asks(&ann, 9_000_000), 1000);
        assert_eq!(asks(&Caller::Tenant("carol".into()), 9_000_000), 1000);
        assert_eq!(paces.0.len(), 2, "bob may have all again, and is forgotten");
    }
}
