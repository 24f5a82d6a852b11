//! The end that is dialled: its certificate, whom it lets in, and files that change while it runs.
//!
//! With a `ca`, who comes shows a certificate that it signed, or does not come ([`Clients::Required`]); where others are let in, too,
//! they are nobody ([`Clients::Offered`]). A file that changes is read again within [`PAUSE`]; what is wrong in it is said, and the
//! server goes on with what it had. Nobody resumes a session: each connection shows its certificate anew. Whoever
//! serves connections asks [`Tls::turn`] for a number that grows whenever they are to be looked at again ([`Tls::still`]): then one
//! whose certificate was revoked or has expired ends.

use crate::client::Dial;
use crate::config::{Stamp, TlsConfig};
use crate::files::{FileError, certificates, private_key, revocations, roots};
use crate::folder::chain_is_due;
use crate::handshake::Handshake;
use crate::identity::{Identity, Role};
use crate::names::{check_own, names};
use crate::refusals::{OncePerSecond, refusal};
use henge_core::ParamError;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{CertificateError, CipherSuite, Error, ServerConfig};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Files are looked at so often.
const PAUSE: Duration = Duration::from_secs(5);
/// Connections are looked at again so often, though no file changed: certificates expire.
const AGAIN: u32 = 12;

/// Who may come by TLS where a `ca` is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clients {
    /// Who shows a certificate that it signed.
    Required,
    /// Others, too; they prove themselves otherwise.
    Offered,
}

/// What the files say.
struct Loaded {
    /// Our own certificate, and the root that signs now: the first that is believed.
    own: CertificateDer<'static>,
    signs: Option<CertificateDer<'static>>,
    /// For dialling others of our role, where we are of a cluster.
    dial: Option<Dial>,
    server: Arc<ServerConfig>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl TlsConfig {
    /// What the files say of others: who checks their certificates.
    pub(crate) fn verifier(
        &self,
        clients: Clients,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, FileError> {
        let Some(ca) = &self.ca else { return Ok(None) };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut verifier = WebPkiClientVerifier::builder_with_provider(roots(ca)?.into(), provider);
        let revoked = self.revoked();
        if let Some(path) = revoked {
            // Of a root without a list nothing is known to be revoked.
            verifier = verifier.with_crls(revocations(path)?).allow_unknown_revocation_status();
        }
        if clients == Clients::Offered {
            verifier = verifier.allow_unauthenticated();
        }
        let named = revoked.unwrap_or(ca).display();
        verifier.build().map(Some).map_err(|e| FileError(format!("{named}: {e}")))
    }

    /// Whether the files say what a server needs.
    pub fn check(&self, now: SystemTime) -> Result<(), FileError> {
        self.load(Clients::Required, now).map(drop)
    }

    fn load(&self, clients: Clients, now: SystemTime) -> Result<Loaded, FileError> {
        let chain = certificates(&self.certificate)?;
        check_own(&chain[0], &self.certificate, now)?;
        let chain_own = chain[0].clone();
        let key = private_key(&self.key)?;
        let builder = ServerConfig::builder_with_provider(Arc::new(cheapest_first()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| FileError(format!("TLS 1.3: {e}")))?;
        let verifier = self.verifier(clients)?;
        let builder = match &verifier {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|e| self.wrong_key(&e))?;
        config.ignore_client_order = true;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        // Who is linked with us is what we are: a node with nodes, a proxy with proxies.
        let role = Identity::of(&names(&chain_own)).map_or(Role::Node, |own| own.role);
        let dial = self.identity.as_ref().and_then(|_| Dial::open(self, role, None, now).ok());
        let signs = self.ca.as_deref().and_then(|ca| certificates(ca).ok()?.into_iter().next());
        Ok(Loaded { own: chain_own, signs, dial, server: Arc::new(config), verifier })
    }

    /// Why a certificate and a key do not go together.
    pub(crate) fn wrong_key(&self, why: &Error) -> FileError {
        let key = self.key.display();
        FileError(match why {
            Error::InconsistentKeys(_) => format!("{key} is not the key of {}", self.certificate.display()),
            why => format!("{key}: {why}"),
        })
    }
}

/// AES of 128 bits before that of 256: of ten rounds for a block, not fourteen (FIPS 197, section 5). A client
/// that wants the other offers no shorter key.
fn cheapest_first() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
}

/// What connections begin TLS with.
pub struct Tls {
    config: TlsConfig,
    clients: Clients,
    current: Mutex<Current>,
    turn: AtomicU64,
    told: OncePerSecond,
    /// Whether sockets seal what is written to them, where they can.
    by_kernel: bool,
}

struct Current {
    loaded: Loaded,
    stamp: Stamp,
}

impl Tls {
    /// Reads the files.
    pub fn open(config: &TlsConfig, clients: Clients) -> Result<Tls, ParamError> {
        // Before they are read: what changes meanwhile is read again.
        let stamp = config.stamp();
        let loaded = config.load(clients, SystemTime::now());
        let loaded =
            loaded.map_err(|e| ParamError { message: e.0, help: None, span: config.span.clone() })?;
        let current = Mutex::new(Current { loaded, stamp });
        let (turn, told) = (AtomicU64::new(1), OncePerSecond::default());
        Ok(Tls { config: config.clone(), clients, current, turn, told, by_kernel: false })
    }

    /// The kernel seals what its sockets send, if it can ([`henge_io::kernel_tls::look`]).
    pub fn sealed_by_kernel(self, by_kernel: bool) -> Tls {
        Tls { by_kernel, ..self }
    }

    /// Whether it does.
    pub fn is_by_kernel(&self) -> bool {
        self.by_kernel
    }

    /// Which files.
    pub fn config(&self) -> &TlsConfig {
        &self.config
    }

    /// Looks at the files from time to time, as long as anybody else has it. `grown` is called whenever [`Tls::turn`] has.
    pub fn follow(self: &Arc<Tls>, grown: impl Fn() + Send + 'static) -> std::io::Result<()> {
        let tls = Arc::downgrade(self);
        let follow = move || {
            let mut wrong = FileError(String::new());
            for looks in 1u32.. {
                std::thread::sleep(PAUSE);
                let Some(tls) = tls.upgrade() else { return };
                let before = tls.turn();
                match tls.renew(SystemTime::now()) {
                    Ok(false) => {}
                    Ok(true) => {
                        wrong.0.clear();
                        tracing::info!("the certificates were read again");
                    }
                    Err(why) if why == wrong => {}
                    Err(why) => {
                        tracing::warn!("the certificates that were there stay in use: {why}");
                        wrong = why;
                    }
                }
                if looks % AGAIN == 0 {
                    tls.turn.fetch_add(1, Ordering::Release);
                }
                if tls.turn() != before {
                    grown();
                }
            }
        };
        std::thread::Builder::new().name("henge-tls".into()).spawn(follow).map(drop)
    }

    /// Reads the files again where they have changed.
    pub fn renew(&self, now: SystemTime) -> Result<bool, FileError> {
        let stamp = self.config.stamp();
        if stamp == self.current().stamp {
            return Ok(false);
        }
        let loaded = self.config.load(self.clients, now)?;
        *self.current() = Current { loaded, stamp };
        self.turn.fetch_add(1, Ordering::Release);
        Ok(true)
    }

    /// Held for as long as it takes to copy a pointer.
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a connection begins with.
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current().loaded.server)
    }

    /// The same for who keeps the bytes in buffers of its own.
    pub fn handshake(&self) -> Result<Handshake, Error> {
        Handshake::server(&self.server())
    }

    /// What connections to others of our role and cluster begin with; nothing where our certificate names nobody of one.
    pub fn dial(&self) -> Option<Dial> {
        self.current().loaded.dial.clone()
    }

    /// Whether a connection that we dialled is to be exchanged for a new one before it must end: we have another certificate by now
    /// than we showed, or the other side may have.
    pub fn is_dated(
        &self,
        shown: &CertificateDer<'_>,
        theirs: &[CertificateDer<'_>],
        now: SystemTime,
    ) -> bool {
        let current = self.current();
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        *shown != current.loaded.own
            || chain_is_due(theirs, current.loaded.signs.as_ref(), i64::try_from(now).unwrap_or(i64::MAX))
    }

    /// Grows when connections are to be looked at again.
    pub fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }

    /// Whether a certificate that was shown still counts, the other side's own first.
    pub fn still(&self, chain: &[CertificateDer<'_>], now: SystemTime) -> Result<(), Error> {
        let verifier = self.current().loaded.verifier.clone();
        let (Some(verifier), Some((own, others))) = (verifier, chain.split_first()) else { return Ok(()) };
        let since = now.duration_since(UNIX_EPOCH);
        let since = since.map_err(|_| Error::InvalidCertificate(CertificateError::NotValidYet))?;
        verifier.verify_client_cert(own, others, UnixTime::since_unix_epoch(since)).map(drop)
    }

    /// The kernel, which encrypts a connection, can go on no more.
    pub fn tell_end(&self, why: &std::io::Error) {
        if self.told.is_due(SystemTime::now()) {
            tracing::warn!("a connection by TLS ends: the kernel takes no new keys for it: {why}");
        }
    }

    /// Somebody was refused.
    pub fn tell(&self, why: &Error) {
        if self.told.is_due(SystemTime::now()) {
            tracing::info!("a client did not come in by TLS: {}", refusal(why));
        }
    }
}
