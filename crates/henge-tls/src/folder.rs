//! The folder of an identity: what `henge join` writes, and what is renewed in it.
//!
//! | file | content |
//! |---|---|
//! | `identity.pem` | the private key, the certificate and its root: one file, so that they never come apart |
//! | `ca.pem` | the cluster's roots |
//! | `revoked.pem` | lists of certificates that count no more, where there are any |
//! | `manager` | the address of the manager that signed: who is asked for the next certificate |
//!
//! For clients the same stands under the names that QEMU and libnbd look for: `client-key.pem`, `client-cert.pem`, `ca-cert.pem`.

use crate::files::{FileError, certificates};
use crate::identity::Role;
use crate::names::{Validity, check_own, validity};
use rustls::pki_types::CertificateDer;
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// Writes a key and its certificate.
pub fn keep(dir: &Path, role: Role, key: &str, certificate: &str) -> io::Result<()> {
    henge_io::replace(&dir.join("identity.pem"), format!("{key}{certificate}").as_bytes())?;
    if role == Role::Client {
        henge_io::replace(&dir.join("client-key.pem"), key.as_bytes())?;
        henge_io::replace(&dir.join("client-cert.pem"), certificate.as_bytes())?;
    }
    Ok(())
}

/// Remembers which manager signed.
pub fn signed_by(dir: &Path, url: &str) -> io::Result<()> {
    henge_io::replace(&dir.join("manager"), format!("{url}\n").as_bytes())
}

/// Which manager signed, where that is known.
pub fn signer(dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(dir.join("manager")).ok()?;
    Some(text.trim().to_owned()).filter(|url| !url.is_empty())
}

/// Writes whom to believe, where it differs from what is there.
pub fn believe(dir: &Path, role: Role, ca: &str, revoked: &str) -> io::Result<()> {
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        let same = std::fs::read_to_string(&path).is_ok_and(|there| there == text);
        if same { Ok(()) } else { henge_io::replace(&path, text.as_bytes()) }
    };
    write("ca.pem", ca)?;
    if role == Role::Client {
        write("ca-cert.pem", ca)?;
    }
    match (revoked.is_empty(), dir.join("revoked.pem")) {
        (false, _) => write("revoked.pem", revoked),
        (true, path) if path.exists() => std::fs::remove_file(path),
        (true, _) => Ok(()),
    }
}

/// Whether the certificate of a folder counts now; an error says what to do.
pub fn counts(dir: &Path, now: SystemTime) -> Result<(), FileError> {
    let path = dir.join("identity.pem");
    let chain = certificates(&path)?;
    chain.first().map_or(Ok(()), |own| check_own(own, &path, now))
}

/// Whether the certificate of a folder is to be renewed: two thirds of its time are over, or another root signs now. `now` counts
/// seconds since 1970.
pub fn is_due(dir: &Path, now: i64) -> Result<bool, FileError> {
    let chain = certificates(&dir.join("identity.pem"))?;
    if chain.first().and_then(|own| validity(own)).is_none() {
        return Err(FileError(format!("{}: no certificate with a time", dir.display())));
    }
    let signs = certificates(&dir.join("ca.pem")).ok().and_then(|roots| roots.into_iter().next());
    Ok(chain_is_due(&chain, signs.as_ref(), now))
}

/// The same of what somebody shows. `signs`: the newest root, which stands last behind what it has signed.
pub(crate) fn chain_is_due(
    chain: &[CertificateDer<'_>],
    signs: Option<&CertificateDer<'_>>,
    now: i64,
) -> bool {
    let other = chain.len() > 1 && signs.is_some_and(|root| chain.last() != Some(root));
    let validity = chain.first().and_then(|own| validity(own));
    other || validity.is_some_and(|validity| time_is_due(validity, now))
}

fn time_is_due(validity: Validity, now: i64) -> bool {
    now >= validity.until - (validity.until - validity.from) / 3
}
