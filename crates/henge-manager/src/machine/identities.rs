//! Who is who in the cluster: its roots, invitations to join it, and certificates that were issued. Pure: keys are made, and
//! certificates signed, by who asks ([`crate::authority`]).
//!
//! An invitation is used once. That it was is remembered until it expires, so that whoever finds it used is told so.

use super::{Failure, Machine, shorten};
use crate::model::{AuthorityRecord, CertificateRecord, InvitationRecord};
use std::collections::BTreeMap;
use subtle::ConstantTimeEq;

/// Most invitations that count at once.
const INVITATIONS_MAX: usize = 1024;
/// Most certificates that count at once.
const CERTIFICATES_MAX: usize = 65_536;

/// What the machine keeps of them.
#[derive(Default)]
pub(super) struct Identities {
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
}

impl Machine {
    /// The cluster's roots, if this manager keeps them.
    pub fn authority(&self) -> Option<&AuthorityRecord> {
        self.identities.authority.as_ref()
    }

    /// Remembers the roots.
    pub fn put_authority(&mut self, record: AuthorityRecord) {
        self.put("authority/roots".into(), Some(&record));
        self.identities.authority = Some(record);
    }

    /// Invitations that count, and those that were used.
    pub fn invitations(&self) -> impl Iterator<Item = &InvitationRecord> {
        self.identities.invitations.values().filter(|i| i.expires > self.now)
    }

    /// Remembers an invitation.
    pub fn invite(&mut self, record: InvitationRecord) -> Result<(), Failure> {
        self.forget_expired();
        if self.identities.invitations.len() >= INVITATIONS_MAX {
            let why = format!(
                "there are {INVITATIONS_MAX} invitations already; take some back, or wait until they expire"
            );
            return Err(Failure::Conflict(why));
        }
        self.put(format!("invitation/{}", record.id), Some(&record));
        self.identities.invitations.insert(record.id.clone(), record);
        Ok(())
    }

    /// Takes an invitation back.
    pub fn uninvite(&mut self, id: &str) -> Result<(), Failure> {
        if self.identities.invitations.remove(id).is_none() {
            return Err(Failure::Missing(format!("there is no invitation \"{}\"", shorten(id))));
        }
        self.put::<InvitationRecord>(format!("invitation/{id}"), None);
        Ok(())
    }

    /// Uses an invitation, by the hash of its token: who may join.
    pub fn redeem(&mut self, hash: &str) -> Result<InvitationRecord, Failure> {
        let mut found = None;
        for invitation in self.identities.invitations.values_mut() {
            if bool::from(invitation.hash.as_bytes().ct_eq(hash.as_bytes())) {
                found = Some(invitation);
            }
        }
        let now = self.now;
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
        invitation.used = Some(now);
        let record = invitation.clone();
        self.put(format!("invitation/{}", record.id), Some(&record));
        Ok(record)
    }

    /// Certificates that were issued and have not expired.
    pub fn certificates(&self) -> impl Iterator<Item = &CertificateRecord> {
        self.identities.certificates.values().filter(|c| c.expires > self.now)
    }

    /// Remembers a certificate.
    pub fn issued(&mut self, record: CertificateRecord) -> Result<(), Failure> {
        self.forget_expired();
        if self.identities.certificates.len() >= CERTIFICATES_MAX {
            let why = format!("there are {CERTIFICATES_MAX} certificates already; wait until some expire");
            return Err(Failure::Conflict(why));
        }
        self.put(format!("certificate/{}", record.serial), Some(&record));
        self.identities.certificates.insert(record.serial.clone(), record);
        Ok(())
    }

    /// Whether a certificate may be exchanged for a new one.
    pub fn may_renew(&self, serial: &str) -> Result<CertificateRecord, Failure> {
        let known = self.identities.certificates.get(serial);
        match known {
            Some(record) if record.revoked.is_none() => Ok(record.clone()),
            _ => Err(Failure::Forbidden(
                "this certificate is revoked, or was not issued here; join again: `henge ca invite`".into(),
            )),
        }
    }

    /// Revokes one certificate by its serial number, or all of somebody (`node/n1`); how many.
    pub fn revoke(&mut self, whose: &str) -> Result<usize, Failure> {
        let now = self.now;
        let fits = |c: &CertificateRecord| {
            c.revoked.is_none() && c.expires > now && (c.serial == whose || c.whose() == whose)
        };
        let found: Vec<CertificateRecord> =
            self.identities.certificates.values().filter(|c| fits(c)).cloned().collect();
        if found.is_empty() {
            let why = format!("no certificate of \"{}\" counts; `henge ca show` lists them", shorten(whose));
            return Err(Failure::Missing(why));
        }
        let n = found.len();
        for record in found {
            let record = CertificateRecord { revoked: Some(now), ..record };
            self.put(format!("certificate/{}", record.serial), Some(&record));
            self.identities.certificates.insert(record.serial.clone(), record);
        }
        if let Some(authority) = self.identities.authority.clone() {
            self.put_authority(AuthorityRecord { list: authority.list + 1, ..authority });
        }
        Ok(n)
    }

    /// What has expired a day ago is nobody's any more.
    fn forget_expired(&mut self) {
        const DAY: u64 = 86_400_000;
        let long_ago = self.now.saturating_sub(DAY);
        let Identities { invitations, certificates, .. } = &self.identities;
        let old =
            invitations.values().filter(|i| i.expires <= self.now).map(|i| format!("invitation/{}", i.id));
        let older = certificates.values().filter(|c| c.expires <= long_ago);
        let keys: Vec<String> = old.chain(older.map(|c| format!("certificate/{}", c.serial))).collect();
        for key in keys {
            match key.split_once('/') {
                Some(("invitation", id)) => drop(self.identities.invitations.remove(id)),
                Some((_, serial)) => drop(self.identities.certificates.remove(serial)),
                None => {}
            }
            self.put::<CertificateRecord>(key, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Settings;

    fn invitation(id: &str, hash: &str, expires: u64) -> InvitationRecord {
        InvitationRecord {
            id: id.into(),
            role: "node".into(),
            name: "n1".into(),
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
        again.at(machine.now);
        again
    }

    #[test]
    fn an_invitation_is_used_once_and_before_it_expires() {
        let mut machine = machine();
        machine.invite(invitation("a", "hash-a", 10)).unwrap();
        machine.invite(invitation("b", "hash-b", 10)).unwrap();
        assert!(machine.redeem("hash-c").unwrap_err().to_string().contains("not known"));
        assert_eq!(machine.redeem("hash-a").unwrap().name, "n1");
        let mut machine = again(&mut machine);
        assert!(machine.redeem("hash-a").unwrap_err().to_string().contains("used already, for node n1"));
        machine.at(10);
        assert!(machine.redeem("hash-b").unwrap_err().to_string().contains("expired"));
        assert_eq!(machine.invitations().count(), 0);
    }

    #[test]
    fn who_is_revoked_renews_nothing() {
        let mut machine = machine();
        let roots = AuthorityRecord { cluster: "demo".into(), roots: Vec::new(), list: 4 };
        machine.put_authority(roots);
        for (serial, name) in [("01", "n1"), ("02", "n1"), ("03", "n2")] {
            machine.issued(certificate(serial, name)).unwrap();
        }
        assert_eq!(machine.revoke("node/n1"), Ok(2));
        assert!(machine.revoke("node/n1").is_err(), "once is enough");
        assert!(machine.may_renew("01").is_err() && machine.may_renew("09").is_err());
        assert!(machine.may_renew("03").is_ok());
        assert_eq!(machine.authority().unwrap().list, 5, "the list has a new number");
        let mut machine = again(&mut machine);
        assert!(machine.may_renew("02").is_err() && machine.may_renew("03").is_ok());
        assert_eq!(machine.revoke("03"), Ok(1));
        // A day after they expired nobody asks for them.
        machine.at(100 + 86_400_000);
        machine.issued(CertificateRecord { expires: u64::MAX, ..certificate("04", "n3") }).unwrap();
        assert_eq!(machine.identities.certificates.len(), 1);
    }
}
