//! What certificates say, and whether our own counts.

use crate::files::FileError;
use crate::identity::{Identity, Role};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

/// Names of one certificate that are looked at.
const NAMES_MAX: usize = 16;
/// Longest of them.
const NAME_MAX: usize = 1024;

/// The names of a certificate that was checked already: its URIs, its DNS names, and its common name behind `CN=`. No name of one kind
/// is taken for one of another.
///
/// Of a cluster's certificates those of clients alone have a common name. A disk that lets `CN=ann` in means client ann, and neither
/// node ann nor proxy ann.
pub fn names(certificate: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let mut found = Vec::new();
    if let Ok(Some(alternative)) = certificate.subject_alternative_name() {
        found.extend(alternative.value.general_names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) if uri.contains("://") => Some((*uri).to_owned()),
            GeneralName::DNSName(dns) if !dns.contains([':', '=']) => Some(dns.to_ascii_lowercase()),
            _ => None,
        }));
    }
    let serves = found.iter().filter_map(|name| Identity::parse(name)).any(|who| who.role != Role::Client);
    let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let common = common.filter(|_| !serves);
    found.extend(common.map(|name| format!("CN={name}")));
    found.retain(|name| name.len() <= NAME_MAX);
    found.truncate(NAMES_MAX);
    found.sort_unstable();
    found.dedup();
    found
}

/// From when until when a certificate counts, in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    /// Not before.
    pub from: i64,
    /// Not after.
    pub until: i64,
}

/// From when until when a certificate counts; nothing of what is none.
pub fn validity(certificate: &[u8]) -> Option<Validity> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let validity = certificate.validity();
    Some(Validity { from: validity.not_before.timestamp(), until: validity.not_after.timestamp() })
}

/// Until when a certificate counts, for people.
pub(crate) fn until(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.validity().not_after.to_string())
}

/// Whether our own certificate counts now.
pub(crate) fn check_own(certificate: &[u8], path: &Path, now: SystemTime) -> Result<(), FileError> {
    let path = path.display();
    let (_, certificate) = X509Certificate::from_der(certificate)
        .map_err(|e| FileError(format!("{path}: not a certificate: {e}")))?;
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let now = i64::try_from(seconds).ok().and_then(|seconds| ASN1Time::from_timestamp(seconds).ok());
    let (validity, Some(now)) = (certificate.validity(), now) else { return Ok(()) };
    if now > validity.not_after {
        return Err(FileError(format!(
            "{path}: this certificate expired on {}, and this machine's clock says {now}; issue a new one (in a cluster \
             `henge ca invite` and `henge join`), or set the clock",
            validity.not_after
        )));
    }
    if now < validity.not_before {
        return Err(FileError(format!(
            "{path}: this certificate counts from {} on, and this machine's clock says {now}; set the clock here, or where it \
             was issued",
            validity.not_before
        )));
    }
    Ok(())
}
