//! A cluster's roots: they sign certificates for who joins, and lists of those that count no more (RFC 5280).
//!
//! A request says with which key somebody will prove who they are, and nothing else of it is believed: names come from who signs.
//! A certificate is for both ends of a connection (clientAuth and serverAuth), because nodes dial and are dialled.
//!
//! While a root is exchanged for another one both are believed: certificates of the old one count until they are renewed. Who has not
//! heard of the new one yet believes it all the same: the old one has signed it ([`Root::vouch`]), and that stands in every chain.

use crate::identity::Identity;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertificateSigningRequestParams,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason,
    RevokedCertParams, SanType, SerialNumber,
};
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;

/// Clocks may be so far apart.
const SLACK: Duration = Duration::from_secs(300);
/// A root counts for so long: ten years.
const ROOT: Duration = Duration::from_secs(3652 * 86_400);

/// Why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The request is none, or is not signed by its own key.
    #[error("this is no request for a certificate (PKCS #10, in PEM): {0}")]
    Request(rcgen::Error),
    /// A host's name is none.
    #[error("\"{0}\" is no host's name and no address")]
    Host(String),
    /// The root, or the system's randomness.
    #[error("signing: {0}")]
    Signing(#[from] rcgen::Error),
}

/// A certificate and its key, as texts.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a certificate and its key")
    }
}

/// A request for a certificate, and the key that it is for.
pub struct Request {
    /// The request.
    pub pem: String,
    /// The private key; it stays where it was made.
    pub key: String,
}

impl Request {
    /// A new key (ECDSA P-256), and a request.
    pub fn new() -> Result<Request, IssueError> {
        let key = KeyPair::generate()?;
        let pem = CertificateParams::default().serialize_request(&key)?.pem()?;
        Ok(Request { pem, key: key.serialize_pem() })
    }
}

/// Whether this is a request that can be signed.
pub fn check_request(pem: &str) -> Result<(), IssueError> {
    CertificateSigningRequestParams::from_pem(pem).map(drop).map_err(IssueError::Request)
}

/// A certificate that was signed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issued {
    /// The certificate, what leads from it to other roots, and its own root as the last one.
    pub chain: String,
    /// Its serial number, in hexadecimal.
    pub serial: String,
    /// Until when it counts, in seconds since 1970.
    pub until: u64,
}

/// What signs.
pub struct Root {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    fingerprint: String,
}

/// A root's certificate, whoever signs it; `depth`: so many others may stand between it and a leaf.
fn root_params(common: &str, depth: u8, now: SystemTime) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, "Henge");
    params.distinguished_name.push(DnType::CommonName, common);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(depth));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.serial_number = Some(serial()?);
    params.not_before = date(now - SLACK);
    params.not_after = date(now + ROOT);
    Ok(params)
}

fn seconds(at: SystemTime) -> i64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn date(at: SystemTime) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(seconds(at)).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// 16 random bytes: nobody guesses the next number, and two are never the same.
fn serial() -> Result<SerialNumber, IssueError> {
    let mut bytes = [0u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|_| rcgen::Error::RingUnspecified)?;
    // Positive, and of its full length.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

impl Root {
    /// A new root of a cluster.
    pub fn create(cluster: &str, now: SystemTime) -> Result<Pem, IssueError> {
        let key = KeyPair::generate()?;
        // One: the next root, for which this one vouches.
        let params = root_params(&format!("{cluster} {}", hex(&serial()?.to_bytes()[..4])), 1, now)?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Pem { certificate, key: key.serialize_pem() })
    }

    /// One that is there.
    pub fn open(pem: &Pem) -> Result<Root, IssueError> {
        let key = KeyPair::from_pem(&pem.key)?;
        let issuer = Issuer::from_ca_cert_pem(&pem.certificate, key)?;
        let fingerprint = fingerprint(&pem.certificate).ok_or(rcgen::Error::CouldNotParseCertificate)?;
        Ok(Root { pem: pem.certificate.clone(), issuer, fingerprint })
    }

    /// Signs the root that comes next: who believes this one alone believes what that one signs, too.
    pub fn vouch(&self, next: &Pem, now: SystemTime) -> Result<String, IssueError> {
        use rustls::pki_types::pem::PemObject;
        use x509_parser::prelude::FromDer;
        let unread = |_| rcgen::Error::CouldNotParseCertificate;
        let der = rustls::pki_types::CertificateDer::from_pem_slice(next.certificate.as_bytes());
        let der = der.map_err(|_| rcgen::Error::CouldNotParseCertificate)?;
        let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(&der).map_err(unread)?;
        let common = parsed.subject().iter_common_name().find_map(|name| name.as_str().ok());
        let common = common.ok_or(rcgen::Error::CouldNotParseCertificate)?;
        let params = root_params(common, 0, now)?;
        Ok(params.signed_by(&KeyPair::from_pem(&next.key)?, &self.issuer)?.pem())
    }

    /// SHA-256 of the certificate, in hexadecimal: by this who joins knows the root.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Signs a request: who it is, by which hosts' names it is reached, and for how long it counts. `between` are certificates that
    /// lead to other roots.
    pub fn issue(
        &self,
        request: &str,
        who: &Identity,
        hosts: &[String],
        between: &str,
        now: SystemTime,
        lasts: Duration,
    ) -> Result<Issued, IssueError> {
        let request = CertificateSigningRequestParams::from_pem(request).map_err(IssueError::Request)?;
        let mut params = CertificateParams::default();
        let uri = who.to_string();
        let uri = uri.as_str().try_into().map_err(|_| IssueError::Host(uri.clone()))?;
        params.subject_alt_names.push(SanType::URI(uri));
        for host in hosts {
            let wrong = |_| IssueError::Host(host.clone());
            params.subject_alt_names.push(match host.parse::<IpAddr>() {
                Ok(ip) => SanType::IpAddress(ip),
                Err(_) => SanType::DnsName(host.as_str().try_into().map_err(wrong)?),
            });
        }
        params.distinguished_name.push(DnType::CommonName, who.name.as_str());
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let number = serial()?;
        params.serial_number = Some(number.clone());
        params.not_before = date(now - SLACK);
        params.not_after = date(now + lasts);
        let certificate = params.signed_by(&request.public_key, &self.issuer)?.pem();
        Ok(Issued {
            chain: format!("{certificate}{between}{}", self.pem),
            serial: hex(&number.to_bytes()),
            until: seconds(now + lasts).unsigned_abs(),
        })
    }

    /// The list of certificates of this root that count no more.
    pub fn revoke(&self, serials: &[String], number: u64, now: SystemTime) -> Result<String, IssueError> {
        let bytes = |text: &str| -> Option<Vec<u8>> {
            (0..text.len()).step_by(2).map(|i| u8::from_str_radix(text.get(i..i + 2)?, 16).ok()).collect()
        };
        let one = |serial: Vec<u8>| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&serial),
            revocation_time: date(now),
            reason_code: Some(RevocationReason::CessationOfOperation),
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date(now - SLACK),
            next_update: date(now + ROOT),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().filter_map(|serial| bytes(serial)).map(one).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(params.signed_by(&self.issuer)?.pem()?)
    }
}

/// SHA-256 of a certificate in PEM, in hexadecimal.
pub fn fingerprint(pem: &str) -> Option<String> {
    use rustls::pki_types::pem::PemObject;
    let der = rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    Some(fingerprint_of(&der))
}

/// SHA-256 of a certificate, in hexadecimal.
pub fn fingerprint_of(certificate: &[u8]) -> String {
    hex(&Sha256::digest(certificate))
}

/// A certificate's serial number, in hexadecimal.
pub fn serial_of(certificate: &[u8]) -> Option<String> {
    use x509_parser::prelude::FromDer;
    let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(certificate).ok()?;
    Some(hex(certificate.raw_serial()))
}
