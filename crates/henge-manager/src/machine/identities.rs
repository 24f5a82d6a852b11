//! Who is who in the cluster: its roots, invitations to join it, and certificates that were issued. Pure: keys are made, and
//! certificates signed, by who asks ([`crate::authority`]).
//!
//! An invitation is used once. That it was is remembered until it expires, so that whoever finds it used is told so.
//!
//! Signing takes a while, and what allowed it may be taken back meanwhile. So a certificate is remembered, and handed out, only if
//! its [`Grant`] still counts when it is signed.
//!
//! A client may be a tenant's. It ends with the tenant: a tenant of the same name that is made later has none of it.

use super::{Failure, Journal};
use crate::model::{AuthorityRecord, CertificateRecord, InvitationRecord};
use crate::shorten::shorten;
use std::collections::BTreeMap;
use subtle::ConstantTimeEq;

/// Most invitations that count at once.
const INVITATIONS_MAX: usize = 1024;
/// Most certificates that count at once.
const CERTIFICATES_MAX: usize = 65_536;
/// Of them, somebody's: who renews without end takes no place from others. Whoever renews in time meets it never, as the oldest
/// of so many ends first.
const OF_ONE_MAX: usize = 32;

/// What allows a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Grant {
    /// The manager signs for itself.
    Own,
    /// An invitation that was used, by its id.
    Invitation(String),
    /// A certificate that is exchanged, by its serial number.
    Certificate(String),
}

/// What was taken back.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Revoked {
    /// Certificates that count no more.
    pub certificates: usize,
    /// Invitations that open nothing any more.
    pub invitations: usize,
}

/// Roots, invitations and certificates.
#[derive(Default)]
pub(crate) struct Identities {
    authority: Option<AuthorityRecord>,
    invitations: BTreeMap<String, InvitationRecord>,
    certificates: BTreeMap<String, CertificateRecord>,
}

impl Identities {
    pub(super) fn restore(&mut self, kind: &str, name: &str, value: &[u8]) -> serde_json::Result<()> {
        match kind {
            "authority" => self.authority = Some(serde_json::from_slice(value)?),
            "invitation" => {
                self.invitations.insert(name.to_owned(), serde_json::from_slice(value)?);
            }
            _ => {
                self.certificates.insert(name.to_owned(), serde_json::from_slice(value)?);
            }
        }
        Ok(())
    }

    /// The cluster's roots, if this manager keeps them.
    pub(crate) fn authority(&self) -> Option<&AuthorityRecord> {
        self.authority.as_ref()
    }

    /// Remembers the roots.
    pub(crate) fn put_authority(&mut self, journal: &mut Journal, record: AuthorityRecord) {
        journal.put("authority/roots".into(), Some(&record));
        self.authority = Some(record);
    }

    /// Invitations that count, and those that were used.
    pub(crate) fn invitations(&self, now: u64) -> impl Iterator<Item = &InvitationRecord> {
        self.invitations.values().filter(move |i| i.expires > now)
    }

    /// Remembers an invitation.
    pub(crate) fn invite(&mut self, journal: &mut Journal, record: InvitationRecord) -> Result<(), Failure> {
        self.forget_expired(journal);
        self.one_holder(&record, journal.now())?;
        if self.invitations.len() >= INVITATIONS_MAX {
            let why = format!(
                "there are {INVITATIONS_MAX} invitations already; take some back, or wait until they expire"
            );
            return Err(Failure::Conflict(why));
        }
        journal.put(format!("invitation/{}", record.id), Some(&record));
        self.invitations.insert(record.id.clone(), record);
        Ok(())
    }

    /// Two tenants' clients have no name in common: a disk that lets one in would let in the other.
    fn one_holder(&self, record: &InvitationRecord, now: u64) -> Result<(), Failure> {
        let Some(known) = self.counting(&record.whose(), now) else { return Ok(()) };
        if known == record.tenant.as_deref() {
            return Ok(());
        }
        let (whose, of) =
            (record.whose(), known.map_or("no tenant's".to_owned(), |t| format!("tenant \"{t}\"'s")));
        let why = format!("{whose} is {of} already; take another name, or `henge ca revoke {whose}` first");
        Err(Failure::Conflict(why))
    }

    /// Whose tenant's somebody is who may come in now, or was invited to.
    fn counting(&self, whose: &str, now: u64) -> Option<Option<&str>> {
        let certificates = self.certificates(now).filter(|c| c.revoked.is_none() && c.whose() == whose);
        let invitations = self.invitations(now).filter(|i| i.used.is_none() && i.whose() == whose);
        let of = certificates.map(|c| c.tenant.as_deref()).chain(invitations.map(|i| i.tenant.as_deref()));
        of.last()
    }

    /// Tenants that have a client which may come in, or was invited to.
    pub(super) fn tenants_of_clients(&self, now: u64) -> impl Iterator<Item = &str> {
        let certificates = self.certificates(now).filter(|c| c.revoked.is_none());
        let invitations = self.invitations(now).filter(|i| i.used.is_none());
        certificates
            .filter_map(|c| c.tenant.as_deref())
            .chain(invitations.filter_map(|i| i.tenant.as_deref()))
    }

    /// How many clients of a tenant have certificates that count.
    pub(super) fn clients_of(&self, tenant: &str, now: u64) -> usize {
        let theirs = self.certificates(now).filter(|c| c.revoked.is_none() && c.is_of(tenant));
        theirs.map(CertificateRecord::whose).collect::<std::collections::BTreeSet<_>>().len()
    }

    /// Takes an invitation back.
    pub(crate) fn uninvite(&mut self, journal: &mut Journal, id: &str) -> Result<(), Failure> {
        if self.invitations.remove(id).is_none() {
            return Err(Failure::Missing(format!("there is no invitation \"{}\"", shorten(id))));
        }
        journal.put::<InvitationRecord>(format!("invitation/{id}"), None);
        Ok(())
    }

    /// An invitation that may be used, by the hash of its token.
    pub(crate) fn invited(&self, hash: &str, now: u64) -> Result<&InvitationRecord, Failure> {
        let mut found = None;
        for invitation in self.invitations.values() {
            if bool::from(invitation.hash.as_bytes().ct_eq(hash.as_bytes())) {
                found = Some(invitation);
            }
        }
        let Some(invitation) = found.filter(|i| i.expires > now) else {
            return Err(Failure::Forbidden(
                "this token is not known here, or has expired; `henge ca invite` makes another".into(),
            ));
        };
        if invitation.used.is_some() {
            let why = format!(
                "this token was used already, for {} {}; if that was not you, `henge ca revoke` its certificate, and \
                 `henge ca invite` again",
                invitation.role, invitation.name
            );
            return Err(Failure::Forbidden(why));
        }
        Ok(invitation)
    }

    /// Uses an invitation: who may join.
    pub(crate) fn redeem(&mut self, journal: &mut Journal, hash: &str) -> Result<InvitationRecord, Failure> {
        let now = journal.now();
        let record = InvitationRecord { used: Some(now), ..self.invited(hash, now)?.clone() };
        journal.put(format!("invitation/{}", record.id), Some(&record));
        self.invitations.insert(record.id.clone(), record.clone());
        Ok(record)
    }

    /// Certificates that were issued and have not expired.
    pub(crate) fn certificates(&self, now: u64) -> impl Iterator<Item = &CertificateRecord> {
        self.certificates.values().filter(move |c| c.expires > now)
    }

    /// Remembers a certificate, if what allowed it counts still.
    pub(crate) fn issued(
        &mut self,
        journal: &mut Journal,
        record: CertificateRecord,
        by: &Grant,
    ) -> Result<(), Failure> {
        self.granted(by)?;
        self.forget_expired(journal);
        if self.certificates.len() >= CERTIFICATES_MAX {
            let why = format!("there are {CERTIFICATES_MAX} certificates already; wait until some expire");
            return Err(Failure::Conflict(why));
        }
        journal.put(format!("certificate/{}", record.serial), Some(&record));
        self.certificates.insert(record.serial.clone(), record);
        Ok(())
    }

    /// Whether a certificate may be exchanged for a new one.
    pub(crate) fn may_renew(&self, serial: &str, now: u64) -> Result<CertificateRecord, Failure> {
        let known = self.certificates.get(serial).filter(|record| record.revoked.is_none());
        let Some(record) = known else {
            return Err(Failure::Forbidden(
                "this certificate is revoked, or was not issued here; join again: `henge ca invite`".into(),
            ));
        };
        self.not_too_many(&record.whose(), now)?;
        Ok(record.clone())
    }

    fn not_too_many(&self, whose: &str, now: u64) -> Result<(), Failure> {
        let counting = self.certificates(now).filter(|c| c.revoked.is_none() && c.whose() == whose).count();
        if counting < OF_ONE_MAX {
            return Ok(());
        }
        let why = format!(
            "{whose} has {counting} certificates that count already; renew once a day, not more often, or \
             `henge ca revoke {whose}` and invite again"
        );
        Err(Failure::Conflict(why))
    }

    /// Whether a grant counts still.
    fn granted(&self, by: &Grant) -> Result<(), Failure> {
        let holds = match by {
            Grant::Own => true,
            Grant::Invitation(id) => self.invitations.contains_key(id),
            Grant::Certificate(serial) => self.certificates.get(serial).is_some_and(|c| c.revoked.is_none()),
        };
        let why = "what allowed this certificate was taken back meanwhile; ask for another invitation";
        if holds { Ok(()) } else { Err(Failure::Forbidden(why.into())) }
    }

    /// Revokes one certificate by its serial number, or all of somebody (`node/n1`), with the invitations.
    pub(crate) fn revoke(&mut self, journal: &mut Journal, whose: &str) -> Result<Revoked, Failure> {
        let revoked =
            self.take_back(journal, |c| c.serial == whose || c.whose() == whose, |i| i.whose() == whose);
        if revoked == Revoked::default() {
            let why = format!("no certificate of \"{}\" counts; `henge ca show` lists them", shorten(whose));
            return Err(Failure::Missing(why));
        }
        Ok(revoked)
    }

    /// The clients of a tenant that ends.
    pub(super) fn revoke_clients(&mut self, journal: &mut Journal, tenant: &str) -> Revoked {
        self.take_back(journal, |c| c.is_of(tenant), |i| i.is_of(tenant))
    }

    /// Ends certificates and invitations. Those that were used are forgotten as well: what they allow may be under way.
    fn take_back(
        &mut self,
        journal: &mut Journal,
        certificates: impl Fn(&CertificateRecord) -> bool,
        invitations: impl Fn(&InvitationRecord) -> bool,
    ) -> Revoked {
        let now = journal.now();
        let Identities { invitations: known, certificates: issued, .. } = &*self;
        let ids: Vec<String> = known.values().filter(|i| invitations(i)).map(|i| i.id.clone()).collect();
        let gone: Vec<CertificateRecord> = issued
            .values()
            .filter(|c| c.revoked.is_none() && c.expires > now && certificates(c))
            .cloned()
            .collect();
        let mut revoked = Revoked { certificates: gone.len(), invitations: 0 };
        for id in ids {
            let forgotten = self.invitations.remove(&id);
            revoked.invitations +=
                usize::from(forgotten.is_some_and(|i| i.used.is_none() && i.expires > now));
            journal.put::<InvitationRecord>(format!("invitation/{id}"), None);
        }
        for record in gone {
            let record = CertificateRecord { revoked: Some(now), ..record };
            journal.put(format!("certificate/{}", record.serial), Some(&record));
            self.certificates.insert(record.serial.clone(), record);
        }
        if let (true, Some(authority)) = (revoked.certificates > 0, self.authority.clone()) {
            self.put_authority(journal, AuthorityRecord { list: authority.list + 1, ..authority });
        }
        revoked
    }

    /// What has expired a day ago is nobody's any more.
    fn forget_expired(&mut self, journal: &mut Journal) {
        const DAY: u64 = 86_400_000;
        let now = journal.now();
        let long_ago = now.saturating_sub(DAY);
        let Identities { invitations, certificates, .. } = &*self;
        let old = invitations.values().filter(|i| i.expires <= now).map(|i| format!("invitation/{}", i.id));
        let older = certificates.values().filter(|c| c.expires <= long_ago);
        let keys: Vec<String> = old.chain(older.map(|c| format!("certificate/{}", c.serial))).collect();
        for key in keys {
            match key.split_once('/') {
                Some(("invitation", id)) => drop(self.invitations.remove(id)),
                Some((_, serial)) => drop(self.certificates.remove(serial)),
                None => {}
            }
            journal.put::<CertificateRecord>(key, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Machine, Settings};

    fn invitation(id: &str, hash: &str, expires: u64) -> InvitationRecord {
        InvitationRecord {
            id: id.into(),
            role: "node".into(),
            name: "n1".into(),
            tenant: None,
            hosts: Vec::new(),
            hash: hash.into(),
            created: 0,
            expires,
            used: None,
        }
    }

    fn certificate(serial: &str, name: &str) -> CertificateRecord {
        CertificateRecord {
            serial: serial.into(),
            role: "node".into(),
            name: name.into(),
            tenant: None,
            hosts: Vec::new(),
            root: "r".into(),
            issued: 0,
            expires: 100,
            revoked: None,
        }
    }

    fn machine() -> Machine {
        let mut machine = Machine::load(Settings::default(), Vec::new()).unwrap();
        machine.at(1);
        machine
    }

    /// What is stored, read again.
    fn again(machine: &mut Machine) -> Machine {
        let mut stored = BTreeMap::new();
        for (key, value) in machine.take_batch().changes {
            match value {
                Some(value) => stored.insert(key, value),
                None => stored.remove(&key),
            };
        }
        let mut again = Machine::load(Settings::default(), stored.into_iter().collect()).unwrap();
        again.at(machine.journal.now());
        again
    }

    #[test]
    fn an_invitation_is_used_once_and_before_it_expires() {
        let mut machine = machine();
        machine.identities.invite(&mut machine.journal, invitation("a", "hash-a", 10)).unwrap();
        machine.identities.invite(&mut machine.journal, invitation("b", "hash-b", 10)).unwrap();
        assert!(
            machine
                .identities
                .redeem(&mut machine.journal, "hash-c")
                .unwrap_err()
                .to_string()
                .contains("not known")
        );
        assert_eq!(machine.identities.redeem(&mut machine.journal, "hash-a").unwrap().name, "n1");
        let mut machine = again(&mut machine);
        assert!(
            machine
                .identities
                .redeem(&mut machine.journal, "hash-a")
                .unwrap_err()
                .to_string()
                .contains("used already, for node n1")
        );
        machine.at(10);
        assert!(
            machine
                .identities
                .redeem(&mut machine.journal, "hash-b")
                .unwrap_err()
                .to_string()
                .contains("expired")
        );
        assert_eq!(machine.identities.invitations(machine.journal.now()).count(), 0);
    }

    #[test]
    fn who_is_revoked_renews_nothing() {
        let mut machine = machine();
        let roots = AuthorityRecord { cluster: "demo".into(), roots: Vec::new(), list: 4 };
        machine.identities.put_authority(&mut machine.journal, roots);
        for (serial, name) in [("01", "n1"), ("02", "n1"), ("03", "n2")] {
            machine.identities.issued(&mut machine.journal, certificate(serial, name), &Grant::Own).unwrap();
        }
        assert_eq!(
            machine.identities.revoke(&mut machine.journal, "node/n1"),
            Ok(Revoked { certificates: 2, invitations: 0 })
        );
        assert!(machine.identities.revoke(&mut machine.journal, "node/n1").is_err(), "once is enough");
        assert!(
            machine.identities.may_renew("01", machine.journal.now()).is_err()
                && machine.identities.may_renew("09", machine.journal.now()).is_err()
        );
        assert!(machine.identities.may_renew("03", machine.journal.now()).is_ok());
        assert_eq!(machine.identities.authority().unwrap().list, 5, "the list has a new number");
        let mut machine = again(&mut machine);
        assert!(
            machine.identities.may_renew("02", machine.journal.now()).is_err()
                && machine.identities.may_renew("03", machine.journal.now()).is_ok()
        );
        assert_eq!(
            machine.identities.revoke(&mut machine.journal, "03"),
            Ok(Revoked { certificates: 1, invitations: 0 })
        );
        // A day after they expired nobody asks for them.
        machine.at(100 + 86_400_000);
        machine
            .identities
            .issued(
                &mut machine.journal,
                CertificateRecord { expires: u64::MAX, ..certificate("04", "n3") },
                &Grant::Own,
            )
            .unwrap();
        assert_eq!(machine.identities.certificates.len(), 1);
    }

    #[test]
    fn what_is_taken_back_while_it_is_signed_is_not_handed_out() {
        let mut machine = machine();
        machine.identities.invite(&mut machine.journal, invitation("a", "hash-a", 10)).unwrap();
        let joins = |machine: &mut Machine| {
            Grant::Invitation(machine.identities.redeem(&mut machine.journal, "hash-a").unwrap().id)
        };
        // Revoked between the request for a new certificate and its signature: the loop of a thief does not outlive it.
        let join = joins(&mut machine);
        machine.identities.issued(&mut machine.journal, certificate("01", "n1"), &join).unwrap();
        machine.identities.may_renew("01", machine.journal.now()).unwrap();
        machine.identities.revoke(&mut machine.journal, "node/n1").unwrap();
        let renewed = machine.identities.issued(
            &mut machine.journal,
            certificate("02", "n1"),
            &Grant::Certificate("01".into()),
        );
        assert!(matches!(renewed, Err(Failure::Forbidden(_))), "{renewed:?}");
        // The same of who joins.
        machine.identities.invite(&mut machine.journal, invitation("b", "hash-a", 10)).unwrap();
        let join = joins(&mut machine);
        machine.identities.uninvite(&mut machine.journal, "b").unwrap();
        assert!(machine.identities.issued(&mut machine.journal, certificate("03", "n1"), &join).is_err());
        machine.identities.invite(&mut machine.journal, invitation("c", "hash-a", 10)).unwrap();
        let join = joins(&mut machine);
        assert!(
            machine.identities.revoke(&mut machine.journal, "node/n1").is_err(),
            "no certificate of it counts"
        );
        assert!(machine.identities.issued(&mut machine.journal, certificate("04", "n1"), &join).is_err());
        assert_eq!(
            machine.identities.certificates(machine.journal.now()).filter(|c| c.revoked.is_none()).count(),
            0
        );
        // An invitation that is open goes with who is revoked: a token that was lost opens nothing.
        machine.identities.invite(&mut machine.journal, invitation("d", "hash-d", 10)).unwrap();
        assert_eq!(
            machine.identities.revoke(&mut machine.journal, "node/n1"),
            Ok(Revoked { certificates: 0, invitations: 1 })
        );
        assert!(machine.identities.redeem(&mut machine.journal, "hash-d").is_err());
    }

    #[test]
    fn who_renews_without_end_takes_no_place_from_others() {
        let mut machine = machine();
        machine.identities.issued(&mut machine.journal, certificate("other", "n2"), &Grant::Own).unwrap();
        for i in 0..OF_ONE_MAX {
            let serial = format!("{i}");
            machine
                .identities
                .issued(
                    &mut machine.journal,
                    CertificateRecord { expires: 50 + i as u64, ..certificate(&serial, "n1") },
                    &Grant::Own,
                )
                .unwrap();
        }
        let why = machine.identities.may_renew("0", machine.journal.now()).unwrap_err();
        assert!(why.to_string().contains("once a day"), "{why}");
        assert!(machine.identities.may_renew("other", machine.journal.now()).is_ok());
        // The oldest ends before the others do: who holds a later one renews.
        machine.at(50);
        assert!(machine.identities.may_renew("1", machine.journal.now()).is_ok());
    }

    #[test]
    fn two_tenants_clients_have_no_name_in_common() {
        let mut machine = machine();
        let laptop = |id: &str, tenant: Option<&str>| InvitationRecord {
            role: "client".into(),
            name: "laptop".into(),
            tenant: tenant.map(str::to_owned),
            ..invitation(id, &format!("hash-{id}"), 10)
        };
        machine.identities.invite(&mut machine.journal, laptop("a", Some("ann"))).unwrap();
        for other in [None, Some("bob")] {
            let why = machine.identities.invite(&mut machine.journal, laptop("b", other)).unwrap_err();
            assert!(why.to_string().contains("client/laptop is tenant \"ann\"'s already"), "{why}");
        }
        machine.identities.invite(&mut machine.journal, laptop("c", Some("ann"))).unwrap();
        assert_eq!(machine.identities.revoke(&mut machine.journal, "client/laptop").unwrap().invitations, 2);
        machine.identities.invite(&mut machine.journal, laptop("d", Some("bob"))).unwrap();
    }
}
