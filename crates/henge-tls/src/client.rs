//! The end that dials: it shows its own certificate, and takes who answers for a role of its own cluster, not for a host's name.

use crate::authority::fingerprint_of;
use crate::config::TlsConfig;
use crate::files::{FileError, certificates, private_key};
use crate::handshake::Handshake;
use crate::identity::{Identity, Role};
use crate::names::{check_own, names};
use crate::refusals::{failure, of_tls};
use crate::server::Clients;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::ClientCertVerifier;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, PeerIncompatible,
    RootCertStore, SignatureScheme,
};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::SystemTime;

/// Why nobody can be dialled.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// Our own certificate says nothing of a cluster.
    #[error(
        "{0}: this certificate names nobody of a cluster (spiffe://CLUSTER/ROLE/NAME); `henge join` writes one that does"
    )]
    Nobody(String),
    /// Who answers is not who was meant.
    #[error(
        "who answers there is no manager of the cluster that this token is for; compare the address, and ask for another token"
    )]
    Stranger,
    /// Our clock, or who answers, is wrong about the time.
    #[error("{0}")]
    Clock(String),
    /// The connection.
    #[error(transparent)]
    Io(std::io::Error),
    /// TLS.
    #[error("TLS: {0}")]
    Tls(#[from] Error),
}

/// What connections that we dial begin with.
#[derive(Clone, Debug)]
pub struct Dial {
    /// Who we are.
    pub own: Identity,
    /// The certificate that says so.
    pub shown: CertificateDer<'static>,
    config: Arc<ClientConfig>,
}

impl Dial {
    /// Reads the files. Who is dialled is to have this role, and this name if one is stated.
    pub fn open(
        config: &TlsConfig,
        role: Role,
        name: Option<&str>,
        now: SystemTime,
    ) -> Result<Dial, DialError> {
        let chain = certificates(&config.certificate)?;
        check_own(&chain[0], &config.certificate, now)?;
        let nobody = || DialError::Nobody(config.certificate.display().to_string());
        let own = Identity::of(&names(&chain[0])).ok_or_else(nobody)?;
        let verifier = config.verifier(Clients::Required)?.ok_or_else(nobody)?;
        let expected =
            Expected { cluster: own.cluster.clone(), role, name: name.map(str::to_owned), verifier };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let shown = chain[0].clone();
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(expected))
            .with_client_auth_cert(chain, private_key(&config.key)?)
            .map_err(|e| config.wrong_key(&e))?;
        Ok(Dial { own, shown, config: Arc::new(client) })
    }

    /// A connection's state.
    pub fn connection(&self) -> Result<ClientConnection, Error> {
        ClientConnection::new(Arc::clone(&self.config), any_host())
    }

    /// The same for who keeps the bytes in buffers of its own.
    pub fn handshake(&self) -> Result<Handshake, Error> {
        Handshake::client(&self.config, any_host())
    }
}

/// The host's name that is asked for. Nobody looks at it: who answers is known by role and name.
fn any_host() -> ServerName<'static> {
    ServerName::try_from("henge.invalid").expect("a host's name")
}

/// Who is to answer.
#[derive(Debug)]
struct Expected {
    cluster: String,
    role: Role,
    name: Option<String>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ServerCertVerifier for Expected {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // Certificates of a cluster are for both ends, so that one check of signatures, times and revocations holds for both.
        self.verifier.verify_client_cert(own, others, now)?;
        let fits = Identity::of(&names(own)).is_some_and(|who| {
            who.cluster == self.cluster
                && who.role == self.role
                && self.name.as_ref().is_none_or(|name| *name == who.name)
        });
        if fits {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::InvalidCertificate(CertificateError::NotValidForName))
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// The root of this fingerprint, shown by a manager whose certificate it signed; whoever else answers is refused. This is how somebody who
/// has nothing but a token learns whom to believe.
pub fn root_of(socket: &TcpStream, fingerprint: &str) -> Result<Vec<u8>, DialError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let expected = Fingerprint { fingerprint: fingerprint.to_owned(), algorithms };
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(expected))
        .with_no_client_auth();
    let mut connection = ClientConnection::new(Arc::new(config), any_host())?;
    while connection.is_handshaking() {
        connection.complete_io(&mut &*socket).map_err(|e| {
            use CertificateError as Wrong;
            match of_tls(&e) {
                Some(
                    why @ Error::InvalidCertificate(
                        Wrong::Expired
                        | Wrong::ExpiredContext { .. }
                        | Wrong::NotValidYet
                        | Wrong::NotValidYetContext { .. },
                    ),
                ) => DialError::Clock(failure(why, "")),
                Some(Error::InvalidCertificate(_)) => DialError::Stranger,
                Some(why) => DialError::Io(std::io::Error::other(failure(why, "the root of this token"))),
                None => DialError::Io(e),
            }
        })?;
    }
    let chain = connection.peer_certificates().unwrap_or_default();
    let root = chain.iter().find(|c| fingerprint_of(c) == fingerprint).ok_or(DialError::Stranger)?;
    Ok(root.to_vec())
}

/// Takes who shows a root of one fingerprint, and a manager's certificate that it signed.
#[derive(Debug)]
struct Fingerprint {
    fingerprint: String,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Fingerprint {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let unknown = || Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let root = others.iter().find(|c| fingerprint_of(c) == self.fingerprint).ok_or_else(unknown)?;
        let mut roots = RootCertStore::empty();
        roots.add(root.clone().into_owned())?;
        let parsed = ParsedCertificate::try_from(own)?;
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, others, now, self.algorithms.all)?;
        match Identity::of(&names(own)) {
            Some(who) if who.role == Role::Manager => Ok(ServerCertVerified::assertion()),
            _ => Err(Error::InvalidCertificate(CertificateError::NotValidForName)),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
