//! Certificates, keys and lists of revoked certificates, from files in PEM (RFC 7468).

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Longest file.
const FILE_MAX: u64 = 16 << 20;

/// Which file is wrong, and why.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FileError(pub String);

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let named = |e: std::io::Error| FileError(format!("{}: {e}", path.display()));
    let found = path.metadata().map_err(named)?;
    if !found.is_file() || found.len() > FILE_MAX {
        return Err(FileError(format!("{}: not a file of at most 16 MiB", path.display())));
    }
    std::fs::read(path).map_err(named)
}

/// All certificates of a file; at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let text = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|e| FileError(format!("{}: {e}", path.display())))?;
    if all.is_empty() {
        let why = format!("{}: no certificate in it (\"-----BEGIN CERTIFICATE-----\")", path.display());
        return Err(FileError(why));
    }
    Ok(all)
}

/// Those of a file that sign others.
pub(crate) fn roots(path: &Path) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    for root in certificates(path)? {
        let wrong = |e| FileError(format!("{}: no certificate of a ca: {e}", path.display()));
        roots.add(root).map_err(wrong)?;
    }
    Ok(roots)
}

pub(crate) fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, FileError> {
    let text = read(path)?;
    let all: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|e| FileError(format!("{}: {e}", path.display())))?;
    if all.is_empty() {
        return Err(FileError(format!("{}: no list in it (\"-----BEGIN X509 CRL-----\")", path.display())));
    }
    Ok(all)
}

/// A private key that not every user of this machine may read.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    let text = read(path)?;
    let mode = path.metadata().map_err(|e| FileError(format!("{}: {e}", path.display())))?.mode();
    if mode & 0o007 != 0 {
        let path = path.display();
        let mode = mode & 0o7777;
        return Err(FileError(format!(
            "{path}: every user of this machine may read this key (mode {mode:04o}); chmod 600 {path}"
        )));
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|e| {
        let path = path.display();
        FileError(format!("{path}: no private key in it (\"-----BEGIN PRIVATE KEY-----\"): {e}"))
    })
}
