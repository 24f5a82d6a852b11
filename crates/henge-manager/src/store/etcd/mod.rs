//! The store for several managers: etcd. One of them leads, which is to say that a key of its is there.
//!
//! # The rule
//! The leader's key hangs on a lease, which the leader renews. Whoever finds no such key makes it, in a transaction that
//! fails if another was quicker; the revision at which it was made is that leader's *term*. Every transaction of a leader's says
//! "if the key of my term is still there", so a manager that was deposed and does not know it yet changes nothing. It says "and if
//! `commit` is as I left it", too, and counts `commit` up: so a transaction whose answer was lost may be sent again, since it
//! is not done twice, and one that lingered somewhere is not done after later ones.
//!
//! | key below the prefix | is |
//! |---|---|
//! | `leader` | the leader's address; gone when its lease is |
//! | `commit` | `TERM.COUNT` of the last transaction |
//! | `state/…` | what `Store` keeps |
//! | `batch/NUMBER`, `batch/whole` | pieces of a large batch; `whole`: all of them are there |
//!
//! etcd takes 128 operations and 1.5 MB in one transaction. A batch of more is first written in pieces beside the state; the
//! transaction that writes `batch/whole` is the one that decides. Then the pieces are done one by one. Whoever loads the state
//! and finds `batch/whole` does them again, which does no harm; pieces without it are thrown away.
//!
//! # Worked example
//! A leads in term 7 and stops for a minute in the middle of a commit. Its lease runs out, B makes the key in term 9, loads
//! the state, and serves. A wakes and sends its transaction: the key's creation revision is 9, not 7; nothing is changed, and A
//! answers whoever waits that it was not stored.
//!
//! # Price
//! A round trip to etcd for each commit (of all who wait at that moment), and one each third of the lease.

mod access;
mod gateway;
#[cfg(test)]
mod tests;

pub use self::access::{Login, Tls};
pub(crate) use self::access::{certificates, private_key};
use super::{Batch, Leadership, Store, StoreError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use gateway::{Do, Entry, Gateway, If, Outcome, Trouble};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Most changes in one transaction: etcd's bound is 128, and some are ours.
const CHANGES_MAX: usize = 100;
/// Most bytes of keys and values in one: etcd's bound is 1.5 MiB.
const BYTES_MAX: usize = 512 << 10;
/// Most bytes of one value: etcd's bound is 1.5 MiB of a whole transaction, and a piece of a batch has a value in base 64.
const VALUE_MAX: usize = 1 << 20;
/// Keys on one page of a load.
const PAGE: u32 = 500;
/// Between two attempts while etcd chooses a leader of its own.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest that a call may take. Tests bear a machine that stops for a while.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 30 } else { 5 });

/// Which etcd, and as whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdConfig {
    /// Its members: `http://10.0.0.1:2379`.
    pub endpoints: Vec<String>,
    /// What all keys begin with.
    pub prefix: String,
    /// After how many seconds without a sign of life another manager takes over.
    pub lease: u64,
    /// Where this manager's API is, for clients that ask another one.
    pub advertise: String,
    /// As whom, where etcd asks.
    pub login: Option<Login>,
    /// Certificates, where it is reached by https.
    pub tls: Option<Tls>,
}

/// A leader's term.
#[derive(Clone, Debug)]
struct Term {
    /// The revision at which the leader's key was made.
    created: u64,
    lease: i64,
    /// When the lease was kept alive last; before it was asked for.
    kept: Instant,
    /// What `commit` has; empty: there is none.
    commit: Vec<u8>,
    count: u64,
}

/// Keys and values in etcd.
#[derive(Debug)]
pub struct EtcdStore {
    gateway: Gateway,
    config: EtcdConfig,
    term: Option<Term>,
    /// A term is over, and nobody was told yet.
    is_deposed: bool,
    /// For tests: transactions before this process is as good as dead.
    #[cfg(test)]
    left: Option<u32>,
}

/// Changes as they are written into a piece of a batch.
type Piece = Vec<(String, Option<String>)>;
type Change<'a> = (&'a str, Option<&'a [u8]>);

impl EtcdStore {
    /// Finds etcd; does not wait to lead.
    pub fn open(config: EtcdConfig) -> Result<EtcdStore, StoreError> {
        let lease = Duration::from_secs(config.lease);
        let patience = (lease / 2).min(PATIENCE);
        let (tls, login) = (config.tls.as_ref(), config.login.clone());
        let mut gateway = Gateway::new(config.endpoints.clone(), tls, login, patience)?;
        gateway.get(&format!("{}leader", config.prefix))?;
        Ok(EtcdStore {
            gateway,
            config,
            term: None,
            is_deposed: false,
            #[cfg(test)]
            left: None,
        })
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.config.prefix)
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(self.config.lease)
    }

    /// Makes the leader's key if there is none; who leads then.
    fn campaign(&mut self) -> Result<Leadership, Trouble> {
        let key = self.key("leader");
        let theirs =
            |entry: &Entry| Leadership::Theirs(Some(String::from_utf8_lossy(&entry.value).into_owned()));
        if let Some(leader) = self.gateway.get(&key)? {
            return Ok(theirs(&leader));
        }
        let kept = Instant::now();
        let lease = self.gateway.grant(self.config.lease)?;
        let mine = [Do::Hold(&key, self.config.advertise.as_bytes(), lease)];
        // Lost answers: the key then stands until its lease runs out, and somebody begins anew.
        let outcome = self.gateway.transact(&[If::Created(&key, 0)], &mine, &[&key])?;
        if !outcome.succeeded {
            let _ = self.gateway.revoke(lease);
            let leader = outcome.found.into_iter().flatten().next();
            return Ok(leader.as_ref().map_or(Leadership::Theirs(None), theirs));
        }
        let commit = self.gateway.get(&self.key("commit"))?.map_or_else(Vec::new, |entry| entry.value);
        self.term = Some(Term { created: outcome.revision, lease, kept, commit, count: 0 });
        Ok(Leadership::Ours)
    }

    /// Renews the lease where a third of it is over. An etcd that is away changes nothing until the lease has run out.
    fn keep_alive(&mut self) {
        let third = self.lease() / 3;
        let Some(term) = self.term.as_mut().filter(|term| term.kept.elapsed() >= third) else { return };
        let now = Instant::now();
        match self.gateway.keep_alive(term.lease) {
            Ok(true) => term.kept = now,
            Ok(false) => self.depose(),
            Err(_) => {}
        }
        if !self.leads() {
            self.depose();
        }
    }

    fn depose(&mut self) {
        self.is_deposed |= self.term.take().is_some();
    }

    fn leading(&mut self) -> Result<&mut Term, StoreError> {
        let deposed = || StoreError("this manager does not lead any more".into());
        self.term.as_mut().ok_or_else(deposed)
    }

    /// One transaction of the leader's, as often as it takes until it is known to be done, or known not to be ours to do.
    fn transact(&mut self, changes: &[Do<'_>]) -> Result<(), StoreError> {
        #[cfg(test)]
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1).ok_or_else(|| StoreError("killed".into()))?;
        }
        let (leader, commit) = (self.key("leader"), self.key("commit"));
        let term = self.leading()?.clone();
        let next = format!("{}.{}", term.created, term.count + 1).into_bytes();
        let as_left = match term.commit.is_empty() {
            true => If::Created(&commit, 0),
            false => If::Is(&commit, &term.commit),
        };
        let when = [If::Created(&leader, term.created), as_left];
        let mut all = vec![Do::Put(&commit, &next)];
        all.extend_from_slice(changes);
        loop {
            match self.gateway.transact(&when, &all, &[&leader, &commit]) {
                Ok(outcome) if outcome.succeeded || done_before(&outcome, &next) => {
                    let term = self.leading()?;
                    (term.commit, term.count) = (next, term.count + 1);
                    return Ok(());
                }
                Ok(_) => {
                    self.depose();
                    return Err(StoreError("another manager has taken over".into()));
                }
                Err(trouble @ (Trouble::No(_) | Trouble::Unknown(_))) => return Err(trouble.into()),
                Err(away) => {
                    std::thread::sleep(PAUSE);
                    self.keep_alive();
                    // Not known to be done, and nobody's to find out but the next leader's.
                    if self.term.is_none() {
                        return Err(away.into());
                    }
                }
            }
        }
    }

    fn apply(&mut self, changes: &[Change<'_>]) -> Result<(), StoreError> {
        let keys: Vec<String> = changes.iter().map(|(key, _)| self.key(&format!("state/{key}"))).collect();
        let all = keys.iter().zip(changes).map(|(key, (_, value))| match value {
            Some(value) => Do::Put(key, value),
            None => Do::Delete(key),
        });
        self.transact(&all.collect::<Vec<_>>())
    }

    /// A batch that is too large for one transaction.
    fn apply_pieces(&mut self, pieces: &[&[Change<'_>]]) -> Result<(), StoreError> {
        for (i, piece) in pieces.iter().enumerate() {
            let encoded: Piece = piece
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.map(|v| BASE64.encode(v))))
                .collect();
            let text = serde_json::to_vec(&encoded).map_err(|e| StoreError(e.to_string()))?;
            let key = self.key(&format!("batch/{i:08}"));
            self.transact(&[Do::Put(&key, &text)])?;
        }
        let whole = self.key("batch/whole");
        self.transact(&[Do::Put(&whole, pieces.len().to_string().as_bytes())])?;
        for piece in pieces {
            self.apply(piece)?;
        }
        self.forget_pieces()
    }

    fn forget_pieces(&mut self) -> Result<(), StoreError> {
        let all = self.key("batch/");
        self.transact(&[Do::DeleteAll(&all)])
    }

    /// Ends what the leader before us began.
    fn recover(&mut self) -> Result<(), StoreError> {
        let all = self.key("batch/");
        let mut pieces = self.range(&all)?;
        if pieces.is_empty() {
            return Ok(());
        }
        let whole = format!("{all}whole");
        let is_whole = pieces.iter().any(|entry| entry.key == whole);
        pieces.retain(|entry| entry.key != whole);
        for entry in pieces.iter().filter(|_| is_whole) {
            let strange = |e: String| StoreError(format!("{}: {e}", entry.key));
            let piece: Piece = serde_json::from_slice(&entry.value).map_err(|e| strange(e.to_string()))?;
            let decode = |(key, value): (String, Option<String>)| {
                let value =
                    value.map(|v| BASE64.decode(v).map_err(|e| strange(e.to_string()))).transpose()?;
                Ok::<_, StoreError>((key, value))
            };
            let changes = piece.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
            self.apply(&changes.iter().map(|(key, v)| (key.as_str(), v.as_deref())).collect::<Vec<_>>())?;
        }
        self.forget_pieces()
    }

    fn range(&mut self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        let mut from = prefix.as_bytes().to_vec();
        let mut all = Vec::new();
        loop {
            let (entries, more) = self.gateway.page(prefix, &from, PAGE)?;
            all.extend(entries);
            match all.last().filter(|_| more) {
                None => return Ok(all),
                Some(last) => {
                    from = last.key.clone().into_bytes();
                    from.push(0);
                }
            }
            self.keep_alive();
        }
    }
}

/// An earlier attempt was done, and its answer lost.
fn done_before(outcome: &Outcome, next: &[u8]) -> bool {
    matches!(outcome.found.get(1), Some(Some(commit)) if commit.value == next)
}

/// Of each key its last change, cut into transactions.
fn cut<'a>(all: &'a [Change<'a>]) -> Vec<&'a [Change<'a>]> {
    let size = |(key, value): &Change<'_>| key.len() + value.map_or(0, <[u8]>::len);
    let mut pieces = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    for (at, change) in all.iter().enumerate() {
        if at > from && (at - from >= CHANGES_MAX || bytes + size(change) > BYTES_MAX) {
            pieces.push(&all[from..at]);
            (from, bytes) = (at, 0);
        }
        bytes += size(change);
    }
    if from < all.len() {
        pieces.push(&all[from..]);
    }
    pieces
}

impl Store for EtcdStore {
    fn load(&mut self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.leading()?;
        self.recover()?;
        let prefix = self.key("state/");
        let entries = self.range(&prefix)?;
        let own = |entry: Entry| (entry.key[prefix.len()..].to_owned(), entry.value);
        Ok(entries.into_iter().map(own).collect())
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let last: BTreeMap<&str, Option<&[u8]>> =
            batch.changes.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
        let all: Vec<Change<'_>> = last.into_iter().collect();
        match cut(&all).as_slice() {
            [] => Ok(()),
            [one] => self.apply(one),
            pieces => self.apply_pieces(pieces),
        }
    }

    fn leadership(&mut self) -> Leadership {
        self.keep_alive();
        if self.term.is_some() {
            return Leadership::Ours;
        }
        // Said at least once between two terms: what is known from the first is not what is so in the second.
        if std::mem::take(&mut self.is_deposed) {
            return Leadership::Theirs(None);
        }
        self.campaign().unwrap_or(Leadership::Theirs(None))
    }

    fn value_max(&self) -> usize {
        VALUE_MAX
    }

    fn leads(&self) -> bool {
        let lease = self.lease();
        self.term.as_ref().is_some_and(|term| term.kept.elapsed() < lease)
    }
}

impl Drop for EtcdStore {
    /// The next manager need not wait for the lease to run out.
    fn drop(&mut self) {
        #[cfg(test)]
        if self.left.is_some() {
            return;
        }
        if let Some(term) = self.term.take() {
            let _ = self.gateway.revoke(term.lease);
        }
    }
}
