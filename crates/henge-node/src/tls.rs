//! TLS 1.3 for clients by NBD: the node's certificate, whose certificates it takes, and what they say of a client.
//!
//! ```toml
//! listen = "nbds://10.0.0.5:10809"     # or { at = "nbd://10.0.0.5:10809", tls = "allow" }
//! tls = { certificate = "/etc/henge/node.pem", key = "/etc/henge/node.key", ca = "/etc/henge/ca.pem", revoked = "/etc/henge/revoked.pem" }
//!
//! [[disk]]
//! nbd = { certificates = ["spiffe://henge/client/ann", "backup.example.org", "CN=ann"] }
//! ```
//! With a `ca`, who comes by TLS shows a certificate that it signed, or does not come. A file that changes is read again within
//! [`PAUSE`]; what is wrong in it is said, and the node goes on with what it had. Nobody resumes a session: each connection
//! shows its certificate anew, and one that was revoked since opens none.

use henge_core::{ParamError, Params};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

mod names;
#[cfg(test)]
mod tests;

pub(crate) use names::{names, refusal};

/// Files are looked at so often.
const PAUSE: Duration = Duration::from_secs(5);
/// Longest file.
const FILE_MAX: u64 = 16 << 20;

/// `tls = { … }` of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsConfig {
    /// The node's certificate, and those that lead to its root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Clients show a certificate that one of these signed.
    pub ca: Option<PathBuf>,
    /// Certificates that count no more.
    pub revoked: Option<PathBuf>,
    /// Its place in the file.
    pub span: Range<usize>,
}

impl TlsConfig {
    /// Reads `tls`, if it is there.
    pub(crate) fn take(p: &mut Params) -> Result<Option<TlsConfig>, ParamError> {
        let span = p.error("tls", String::new()).span;
        let Some(mut table) = p.table("tls")? else { return Ok(None) };
        let certificate = table.text("certificate")?;
        let certificate = table.required("certificate", certificate)?.into();
        let key = table.text("key")?;
        let key = table.required("key", key)?.into();
        let ca = table.text("ca")?.map(PathBuf::from);
        let revoked = table.text("revoked")?.map(PathBuf::from);
        if revoked.is_some() && ca.is_none() {
            let message = "revoked needs a ca: it lists certificates of clients that the ca signed";
            return Err(table.error("revoked", message.into()));
        }
        table.finish()?;
        Ok(Some(TlsConfig { certificate, key, ca, revoked, span }))
    }

    fn files(&self) -> impl Iterator<Item = &Path> {
        let always = [&self.certificate, &self.key];
        always.into_iter().chain(&self.ca).chain(&self.revoked).map(PathBuf::as_path)
    }

    /// Which files these are, as far as the file system tells.
    fn stamp(&self) -> Vec<Option<(u64, i64, i64, u64)>> {
        let of = |path: &Path| {
            let found = path.metadata().ok()?;
            Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
        };
        self.files().map(of).collect()
    }

    /// What the files say; or which of them is wrong, and why.
    pub(crate) fn load(&self, now: SystemTime) -> Result<ServerConfig, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = certificates(&self.certificate)?;
        names::check_own(&chain[0], &self.certificate, now)?;
        let key = private_key(&self.key)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| format!("TLS 1.3: {e}"))?;
        let builder = match &self.ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                for root in certificates(ca)? {
                    roots.add(root).map_err(|e| format!("{}: no certificate of a ca: {e}", ca.display()))?;
                }
                let mut verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
                if let Some(path) = &self.revoked {
                    // Of a root without a list nothing is known to be revoked.
                    verifier = verifier.with_crls(revocations(path)?).allow_unknown_revocation_status();
                }
                let verifier = verifier.build().map_err(|e| match &self.revoked {
                    Some(path) => format!("{}: {e}", path.display()),
                    None => format!("{}: {e}", ca.display()),
                })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|e| match e {
            rustls::Error::InconsistentKeys(_) => {
                format!("{} is not the key of {}", self.key.display(), self.certificate.display())
            }
            e => format!("{}: {e}", self.key.display()),
        })?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let named = |e: std::io::Error| format!("{}: {e}", path.display());
    let found = path.metadata().map_err(named)?;
    if !found.is_file() || found.len() > FILE_MAX {
        return Err(format!("{}: not a file of at most 16 MiB", path.display()));
    }
    std::fs::read(path).map_err(named)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|e| format!("{}: {e}", path.display()))?;
    match all.is_empty() {
        true => Err(format!("{}: no certificate in it (\"-----BEGIN CERTIFICATE-----\")", path.display())),
        false => Ok(all),
    }
}

fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let text = read(path)?;
    let all: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|e| format!("{}: {e}", path.display()))?;
    match all.is_empty() {
        true => Err(format!("{}: no list in it (\"-----BEGIN X509 CRL-----\")", path.display())),
        false => Ok(all),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let text = read(path)?;
    let mode = path.metadata().map_err(|e| format!("{}: {e}", path.display()))?.mode();
    if mode & 0o007 != 0 {
        let path = path.display();
        return Err(format!(
            "{path}: every user of this machine may read this key (mode {:04o}); chmod 600 {path}",
            mode & 0o7777
        ));
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|e| {
        format!("{}: no private key in it (\"-----BEGIN PRIVATE KEY-----\"): {e}", path.display())
    })
}

/// What connections begin TLS with.
pub(crate) struct Tls {
    config: TlsConfig,
    current: Mutex<Current>,
    /// When a client that was refused was told of last, in seconds; more than one in a second is left out.
    told: AtomicU64,
}

struct Current {
    server: Arc<ServerConfig>,
    stamp: Vec<Option<(u64, i64, i64, u64)>>,
}

impl Tls {
    pub(crate) fn open(config: &TlsConfig) -> Result<Tls, ParamError> {
        // Before they are read: what changes meanwhile is read again.
        let stamp = config.stamp();
        let loaded = config.load(SystemTime::now());
        let server =
            loaded.map_err(|message| ParamError { message, help: None, span: config.span.clone() })?;
        let current = Mutex::new(Current { server: Arc::new(server), stamp });
        Ok(Tls { config: config.clone(), current, told: AtomicU64::new(0) })
    }

    /// Looks at the files from time to time, as long as anybody else has it.
    pub(crate) fn follow(self: &Arc<Tls>) -> std::io::Result<()> {
        let tls = Arc::downgrade(self);
        let follow = move || {
            let mut wrong = String::new();
            loop {
                std::thread::sleep(PAUSE);
                let Some(tls) = tls.upgrade() else { return };
                match tls.renew(SystemTime::now()) {
                    Ok(false) => {}
                    Ok(true) => {
                        wrong.clear();
                        tracing::info!("the certificates were read again");
                    }
                    Err(why) if why == wrong => {}
                    Err(why) => {
                        tracing::warn!("the node goes on with the certificates that it had: {why}");
                        wrong = why;
                    }
                }
            }
        };
        std::thread::Builder::new().name("henge-tls".into()).spawn(follow).map(drop)
    }

    /// Reads the files again where they have changed.
    pub(crate) fn renew(&self, now: SystemTime) -> Result<bool, String> {
        let stamp = self.config.stamp();
        if stamp == self.current().stamp {
            return Ok(false);
        }
        let server = Arc::new(self.config.load(now)?);
        *self.current() = Current { server, stamp };
        Ok(true)
    }

    /// Held for as long as it takes to copy a pointer.
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current().server)
    }

    /// A client was refused.
    pub(crate) fn tell(&self, why: &rustls::Error) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.told.swap(now, Ordering::Relaxed) != now {
            tracing::info!("a client was refused by TLS: {}", refusal(why));
        }
    }
}
