//! The cluster's authority at work: signs for who was invited, renews, and says whom to believe.
//!
//! The roots and what was signed lie in the store, so that whichever manager leads is the authority. What is told to everybody is
//! a [`Trust`]: all roots, and the lists of certificates that count no more.

use crate::core::{Core, Unavailable, now_ms};
use crate::machine::{Failure, Grant};
use crate::model::{AuthorityRecord, CertificateRecord, InvitationRecord, RootRecord};
use henge_api::manager::Trust;
use henge_tls::{Identity, IssueError, Pem, Request, Role, Root, Token};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Certificates count for so long: a node that is away for a week joins again.
const LASTS: Duration = Duration::from_secs(7 * 86_400);
/// So long the same list is said of whom to believe, if nothing changes.
const SAID_MS: u64 = 60_000;
/// Longest that an invitation counts.
const INVITATION_MAX: Duration = Duration::from_secs(30 * 86_400);

/// Why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The machine says no.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// The manager cannot answer.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The request, or signing.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// This manager keeps no roots.
    #[error(
        "this manager is no authority; state the cluster's name in its configuration: cluster = \"demo\""
    )]
    None,
    /// A file, or randomness.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// What was signed, and whom to believe.
#[derive(Clone, Debug)]
pub struct Signed {
    /// Who it is.
    pub who: Identity,
    /// The certificate, and its root.
    pub certificate: String,
    /// Until when, in seconds since 1970.
    pub until: u64,
    /// Whom to believe.
    pub trust: Trust,
}

/// Who is to have a certificate.
struct Holder {
    role: String,
    name: String,
    tenant: Option<String>,
    hosts: Vec<String>,
}

impl From<InvitationRecord> for Holder {
    fn from(invited: InvitationRecord) -> Holder {
        let InvitationRecord { role, name, tenant, hosts, .. } = invited;
        Holder { role, name, tenant, hosts }
    }
}

impl From<CertificateRecord> for Holder {
    fn from(known: CertificateRecord) -> Holder {
        let CertificateRecord { role, name, tenant, hosts, .. } = known;
        Holder { role, name, tenant, hosts }
    }
}

fn at(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

fn open(roots: &[RootRecord]) -> Result<Vec<Root>, IssueError> {
    let one = |r: &RootRecord| Root::open(&Pem { certificate: r.certificate.clone(), key: r.key.clone() });
    roots.iter().map(one).collect()
}

fn trust(authority: &AuthorityRecord, certificates: &[CertificateRecord]) -> Result<Trust, IssueError> {
    let (mut ca, mut revoked) = (String::new(), String::new());
    for root in open(&authority.roots)? {
        ca.push_str(root.pem());
        let gone = certificates.iter().filter(|c| c.revoked.is_some() && c.root == root.fingerprint());
        let gone: Vec<String> = gone.map(|c| c.serial.clone()).collect();
        if !gone.is_empty() {
            revoked.push_str(&root.revoke(&gone, authority.list, at(now_ms()))?);
        }
    }
    Ok(Trust { ca, revoked })
}

/// Whether there is one root alone, to which a second may come.
fn alone(authority: &AuthorityRecord) -> Result<(), Failure> {
    if authority.roots.len() == 1 {
        return Ok(());
    }
    let why = "two roots are valid already; `henge ca retire` ends the older one".into();
    Err(Failure::Conflict(why))
}

/// While two roots count, certificates of the newer one lead to the older one as well: whoever has not heard of the newer one is let in,
/// and lets in. A manager also shows the older root itself, as invitations from before name it by its fingerprint.
fn between(roots: &[RootRecord], role: Role) -> String {
    let [newest, older, ..] = roots else { return String::new() };
    let older = if role == Role::Manager { older.certificate.as_str() } else { "" };
    format!("{}{older}", newest.vouched)
}

/// What was said last of whom to believe.
struct Said {
    edition: u64,
    /// Milliseconds since 1970.
    at: u64,
    trust: Trust,
}

/// The authority of a manager.
#[derive(Clone)]
pub struct Authority {
    core: Core,
    /// Anybody may ask whom to believe: lists are signed once for all who ask.
    said: Arc<Mutex<Option<Said>>>,
}

impl Authority {
    /// Of this core.
    pub fn new(core: Core) -> Authority {
        Authority { core, said: Arc::default() }
    }

    /// Makes the cluster's first root where there is none.
    pub async fn begin(&self, cluster: &str) -> Result<(), AuthorityError> {
        let known =
            self.core.call(|machine| machine.identities.authority().map(|a| a.cluster.clone())).await?;
        match known {
            Some(known) if known == cluster => Ok(()),
            Some(known) => {
                let why = format!(
                    "the state is the cluster \"{known}\"'s, and the configuration says \"{cluster}\""
                );
                Err(Failure::Conflict(why).into())
            }
            None => {
                let now = now_ms();
                let Pem { certificate, key } = Root::create(cluster, at(now))?;
                let roots = vec![RootRecord { certificate, key, created: now, vouched: String::new() }];
                let record = AuthorityRecord { cluster: cluster.to_owned(), roots, list: 1 };
                Ok(self
                    .core
                    .call(move |machine| machine.identities.put_authority(&mut machine.journal, record))
                    .await?)
            }
        }
    }

    async fn known(&self) -> Result<AuthorityRecord, AuthorityError> {
        self.core.call(|machine| machine.identities.authority().cloned()).await?.ok_or(AuthorityError::None)
    }

    /// The same with all certificates: there may be very many, so nobody has them copied who has proven nothing.
    async fn known_and_issued(&self) -> Result<(AuthorityRecord, Vec<CertificateRecord>), AuthorityError> {
        let all = self.core.call(|machine| {
            Some((
                machine.identities.authority()?.clone(),
                machine.identities.certificates(machine.journal.now()).cloned().collect::<Vec<_>>(),
            ))
        });
        all.await?.ok_or(AuthorityError::None)
    }

    /// Whom to believe.
    pub async fn trust(&self) -> Result<Trust, AuthorityError> {
        let (edition, now) = (self.edition().await?, now_ms());
        if let Some(said) = self.said.lock().unwrap_or_else(PoisonError::into_inner).as_ref()
            && said.edition == edition
            && now.saturating_sub(said.at) < SAID_MS
        {
            return Ok(said.trust.clone());
        }
        let (authority, certificates) = self.known_and_issued().await?;
        let trust = trust(&authority, &certificates)?;
        let said = Said { edition: authority.list, at: now, trust: trust.clone() };
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Some(said);
        Ok(trust)
    }

    /// A number that changes with what [`Self::trust`] says.
    pub async fn edition(&self) -> Result<u64, AuthorityError> {
        self.core
            .call(|machine| machine.identities.authority().map(|a| a.list))
            .await?
            .ok_or(AuthorityError::None)
    }

    /// Invites somebody, of a tenant or of none: the token, told once, and the invitation.
    pub async fn invite(
        &self,
        role: Role,
        (name, tenant): (String, Option<String>),
        hosts: Vec<String>,
        lasts: Duration,
    ) -> Result<(String, InvitationRecord), AuthorityError> {
        let authority = self.known().await?;
        let roots = open(&authority.roots)?;
        let newest = roots.first().ok_or(AuthorityError::None)?;
        let token = Token::create(newest.fingerprint())?;
        let now = now_ms();
        let lasts = lasts.min(INVITATION_MAX);
        let record = InvitationRecord {
            id: crate::tokens::random_text()?[..12].to_owned(),
            role: role.to_string(),
            name,
            tenant,
            hosts,
            hash: token.hash(),
            created: now,
            expires: now.saturating_add(u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX)),
            used: None,
        };
        let kept = record.clone();
        self.core.call(move |machine| machine.identities.invite(&mut machine.journal, kept)).await??;
        Ok((token.reveal(), record))
    }

    /// Signs a request of who was invited.
    pub async fn join(&self, token: &Token, request: String) -> Result<Signed, AuthorityError> {
        let hash = token.hash();
        let authority = self.known().await?;
        // Who has no token has no signature checked, and a request that is none does not use the token up.
        let asked = hash.clone();
        self.core
            .call(move |machine| machine.identities.invited(&asked, machine.journal.now()).map(drop))
            .await??;
        henge_tls::check_request(&request)?;
        let invited =
            self.core.call(move |machine| machine.identities.redeem(&mut machine.journal, &hash)).await??;
        let by = Grant::Invitation(invited.id.clone());
        self.give(&authority, &request, Holder::from(invited), by).await
    }

    /// Signs a request of who shows a certificate that counts: the same names again.
    pub async fn renew(&self, serial: &str, request: String) -> Result<Signed, AuthorityError> {
        let authority = self.known().await?;
        let serial = serial.to_owned();
        let known = self
            .core
            .call(move |machine| machine.identities.may_renew(&serial, machine.journal.now()))
            .await??;
        let by = Grant::Certificate(known.serial.clone());
        self.give(&authority, &request, Holder::from(known), by).await
    }

    fn sign(
        &self,
        authority: &AuthorityRecord,
        request: &str,
        holder: &Holder,
    ) -> Result<(Identity, henge_tls::Issued, String), AuthorityError> {
        let role = holder.role.parse().map_err(Failure::Bad)?;
        let who = Identity { cluster: authority.cluster.clone(), role, name: holder.name.clone() };
        let roots = open(&authority.roots)?;
        let root = roots.first().ok_or(AuthorityError::None)?;
        let between = between(&authority.roots, role);
        let issued = root.issue(request, &who, &holder.hosts, &between, at(now_ms()), LASTS)?;
        Ok((who, issued, root.fingerprint().to_owned()))
    }

    async fn give(
        &self,
        authority: &AuthorityRecord,
        request: &str,
        holder: Holder,
        by: Grant,
    ) -> Result<Signed, AuthorityError> {
        let (who, issued, root) = self.sign(authority, request, &holder)?;
        let Holder { role, name, tenant, hosts } = holder;
        let record = CertificateRecord {
            serial: issued.serial.clone(),
            role,
            name,
            tenant,
            hosts,
            root,
            issued: now_ms(),
            expires: issued.until.saturating_mul(1000),
            revoked: None,
        };
        self.core.call(move |machine| machine.identities.issued(&mut machine.journal, record, &by)).await??;
        Ok(Signed { who, certificate: issued.chain, until: issued.until, trust: self.trust().await? })
    }

    /// A second root, which signs from now on; both are believed. Its fingerprint.
    pub async fn rotate(&self) -> Result<String, AuthorityError> {
        let authority = self.known().await?;
        alone(&authority)?;
        let now = now_ms();
        let pem = Root::create(&authority.cluster, at(now))?;
        let fingerprint = Root::open(&pem)?.fingerprint().to_owned();
        let roots = open(&authority.roots)?;
        let vouched = roots.first().ok_or(AuthorityError::None)?.vouch(&pem, at(now))?;
        let root = RootRecord { certificate: pem.certificate, key: pem.key, created: now, vouched };
        self.exchange(authority.list, move |roots| roots.insert(0, root)).await?;
        Ok(fingerprint)
    }

    /// Ends the older root. Refused while certificates of it count, unless `anyway`; how many do.
    pub async fn retire(&self, anyway: bool) -> Result<usize, AuthorityError> {
        let (authority, certificates) = self.known_and_issued().await?;
        let roots = open(&authority.roots)?;
        let [newest, older] = roots.as_slice() else {
            let why = "there is one root alone; `henge ca rotate` makes a second".into();
            return Err(Failure::Conflict(why).into());
        };
        let (newest, older) = (newest.fingerprint().to_owned(), older.fingerprint());
        // Who has renewed has a certificate of the newer root as well.
        let renewed = |c: &CertificateRecord| {
            certificates.iter().any(|other| other.root == newest && other.whose() == c.whose())
        };
        let left: Vec<&CertificateRecord> =
            certificates.iter().filter(|c| c.root == older && c.revoked.is_none() && !renewed(c)).collect();
        let n = left.len();
        if let (Some(one), false) = (left.first(), anyway) {
            let why = format!(
                "{n} certificates of the older root count still, {}'s among them; they are renewed within days, or \
                 say --anyway, and who holds them joins again",
                one.whose()
            );
            return Err(Failure::Conflict(why).into());
        }
        self.exchange(authority.list, |roots| roots.truncate(1)).await?;
        Ok(n)
    }

    /// Changes the roots, if nothing has changed since the list of that number: two who ask at once do not both get what each decided.
    async fn exchange(
        &self,
        list: u64,
        change: impl FnOnce(&mut Vec<RootRecord>) + Send + 'static,
    ) -> Result<(), AuthorityError> {
        let exchange = move |machine: &mut crate::machine::Machine| {
            let mut authority = machine.identities.authority().cloned().ok_or(AuthorityError::None)?;
            if authority.list != list {
                let why =
                    "roots or certificates have changed meanwhile; look at them again (`henge ca show`)"
                        .into();
                return Err(Failure::Conflict(why).into());
            }
            change(&mut authority.roots);
            authority.list += 1;
            machine.identities.put_authority(&mut machine.journal, authority);
            Ok(())
        };
        self.core.call(exchange).await?
    }
}

/// A manager's own certificate, in a folder of its own, signed by itself as long as it leads.
pub(crate) struct Own {
    authority: Authority,
    dir: PathBuf,
    name: String,
    hosts: Vec<String>,
}

impl Own {
    pub(crate) fn new(authority: Authority, dir: PathBuf, name: String, hosts: Vec<String>) -> Own {
        Own { authority, dir, name, hosts }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes what is missing, is about to expire, or has changed.
    pub(crate) async fn keep(&self) -> Result<(), AuthorityError> {
        let files = henge_tls::TlsConfig::of(&self.dir);
        let chain = henge_tls::certificates(&files.certificate).unwrap_or_default();
        let now = i64::try_from(now_ms() / 1000).unwrap_or(i64::MAX);
        let fresh = henge_tls::is_due(&self.dir, now).is_ok_and(|due| !due);
        let trust = self.authority.trust().await?;
        // Signed by the newest root, and not soon over.
        let newest =
            trust.ca.split_inclusive("-----END CERTIFICATE-----").next().and_then(henge_tls::fingerprint);
        let ours = chain.last().is_some_and(|root| newest == Some(henge_tls::fingerprint_of(root)));
        let named = chain.first().is_some_and(|own| {
            let names = henge_tls::names(own);
            self.hosts.iter().all(|host| host.parse::<std::net::IpAddr>().is_ok() || names.contains(host))
        });
        if !(ours && fresh && named) {
            let request = Request::new()?;
            let known = self.authority.known().await?;
            let (name, hosts) = (self.name.clone(), self.hosts.clone());
            let holder = Holder { role: "manager".into(), name, tenant: None, hosts };
            let signed = self.authority.give(&known, &request.pem, holder, Grant::Own).await?;
            henge_tls::keep(&self.dir, Role::Manager, &request.key, &signed.certificate)?;
        }
        Ok(henge_tls::believe(&self.dir, Role::Manager, &trust.ca, &trust.revoked)?)
    }

    /// Keeps it so, until the manager ends.
    pub(crate) async fn follow(self: Arc<Own>) {
        let mut versions = self.authority.core.versions();
        let mut edition = None;
        loop {
            let now = self.authority.edition().await.ok();
            if now.is_some() {
                if edition != now {
                    edition = now;
                }
                if let Err(e) = self.keep().await {
                    tracing::warn!("the manager's own certificate: {e}");
                }
            }
            // Revocations reach the files at once, and time passes by itself.
            let changed = async {
                while versions.changed().await.is_ok() {
                    if self.authority.edition().await.ok() != edition {
                        return;
                    }
                }
                std::future::pending().await
            };
            let _ = tokio::time::timeout(Duration::from_secs(3600), changed).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Settings;
    use crate::store::MemoryStore;

    fn authority() -> (tokio::runtime::Runtime, Authority) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let core = Core::start(Settings::default(), MemoryStore::default()).unwrap();
        let authority = Authority::new(core);
        runtime.block_on(authority.begin("demo")).unwrap();
        (runtime, authority)
    }

    #[test]
    fn who_decided_by_other_roots_exchanges_none() {
        let (runtime, authority) = authority();
        let known = || runtime.block_on(authority.known()).unwrap();
        let (before, root) = (known(), known().roots[0].clone());
        runtime.block_on(authority.rotate()).unwrap();
        // Another one found one root alone, too, and has made a third by now.
        let third = authority.exchange(before.list, move |roots| roots.insert(0, root));
        assert!(matches!(runtime.block_on(third), Err(AuthorityError::Failure(Failure::Conflict(_)))));
        assert_eq!(known().roots.len(), 2);
        let two = known();
        runtime.block_on(authority.retire(true)).unwrap();
        runtime.block_on(authority.rotate()).unwrap();
        // Who wanted to end the older of those two would end what signs by now.
        let older = authority.exchange(two.list, |roots| roots.truncate(1));
        assert!(runtime.block_on(older).is_err() && known().roots.len() == 2);
        authority.core.stop();
    }

    #[test]
    fn who_has_no_invitation_has_no_signature_checked() {
        let (runtime, authority) = authority();
        let join = |token: &Token| runtime.block_on(authority.join(token, "none".into())).map(drop);
        let why = join(&Token::create("0".repeat(64).as_str()).unwrap()).unwrap_err().to_string();
        assert!(why.contains("not known"), "{why}");
        let invited = authority.invite(Role::Node, ("n1".into(), None), Vec::new(), Duration::from_secs(60));
        let token: Token = runtime.block_on(invited).unwrap().0.parse().unwrap();
        for _ in 0..2 {
            let why = join(&token).unwrap_err().to_string();
            assert!(why.contains("no request for a certificate"), "it is not used up: {why}");
        }
        authority.core.stop();
    }

    #[test]
    fn whom_to_believe_is_signed_once_for_all_who_ask() {
        let (runtime, authority) = authority();
        let joins = |name: &str| {
            let invited =
                authority.invite(Role::Node, (name.into(), None), Vec::new(), Duration::from_secs(60));
            let token: Token = runtime.block_on(invited).unwrap().0.parse().unwrap();
            let request = Request::new().unwrap().pem;
            runtime.block_on(authority.join(&token, request)).unwrap();
        };
        let revoke = |whose: &'static str| {
            let core = &authority.core;
            core.call_and_wait(move |machine| machine.identities.revoke(&mut machine.journal, whose))
                .unwrap()
                .unwrap();
        };
        let trust = || runtime.block_on(authority.trust()).unwrap();
        joins("n1");
        revoke("node/n1");
        // Signatures draw random numbers: what is signed anew differs.
        let first = trust();
        assert!(!first.revoked.is_empty() && first == trust());
        joins("n2");
        revoke("node/n2");
        assert!(first.revoked != trust().revoked, "what changes is known at once");
        authority.core.stop();
    }
}
