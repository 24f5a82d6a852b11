//! `tls = { … }`, or `identity = "…"` where `henge join` has written what that says.
//!
//! ```toml
//! tls = { certificate = "/etc/henge/node.pem", key = "/etc/henge/node.key", ca = "/etc/henge/ca.pem", revoked = "/etc/henge/revoked.pem" }
//! identity = "/etc/henge/identity"     # the same, from the files in there
//! ```

use crate::files::{FileError, certificates};
use crate::names::names;
use henge_core::{ParamError, Params};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Of a file: its number, when it changed (seconds and nanoseconds), and its length.
pub(crate) type Stamp = Vec<Option<(u64, i64, i64, u64)>>;

/// Which files say who we are, and whom we believe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsConfig {
    /// Our own certificate, and those that lead to its root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Others show a certificate that one of these signed.
    pub ca: Option<PathBuf>,
    /// Certificates that count no more.
    pub revoked: Option<PathBuf>,
    /// The folder that `henge join` wrote all of them into, if it did.
    pub identity: Option<PathBuf>,
    /// Its place in the file.
    pub span: Range<usize>,
}

impl TlsConfig {
    /// Reads `tls` or `identity`, if one of them is there.
    pub fn take(p: &mut Params) -> Result<Option<TlsConfig>, ParamError> {
        let span = p.error("tls", String::new()).span;
        let at = p.error("identity", String::new()).span;
        let identity = p.text("identity")?;
        let Some(mut table) = p.table("tls")? else {
            return Ok(identity.map(|dir| TlsConfig { span: at, ..TlsConfig::of(Path::new(&dir)) }));
        };
        if identity.is_some() {
            let message = "tls and identity both say who we are: take one of them out".into();
            return Err(ParamError { message, help: None, span: at });
        }
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
        Ok(Some(TlsConfig { certificate, key, ca, revoked, identity: None, span }))
    }

    /// A folder that `henge join` wrote.
    pub fn of(dir: &Path) -> TlsConfig {
        TlsConfig {
            certificate: dir.join("identity.pem"),
            key: dir.join("identity.pem"),
            ca: Some(dir.join("ca.pem")),
            revoked: Some(dir.join("revoked.pem")),
            identity: Some(dir.to_owned()),
            span: 0..0,
        }
    }

    /// What the files say, for people: whose certificate it is, and until when it counts.
    pub fn describe(&self) -> Result<String, FileError> {
        let chain = certificates(&self.certificate)?;
        let names = names(&chain[0]).join(", ");
        let names = if names.is_empty() { "nobody by name".to_owned() } else { names };
        let until = crate::names::until(&chain[0]).unwrap_or_else(|| "nobody knows when".into());
        Ok(format!("{}: {names}, until {until}", self.certificate.display()))
    }

    /// The list of revoked certificates. In a folder of `henge join` there is none until one is revoked.
    pub(crate) fn revoked(&self) -> Option<&Path> {
        let path = self.revoked.as_deref()?;
        (self.identity.is_none() || path.exists()).then_some(path)
    }

    fn files(&self) -> impl Iterator<Item = &Path> {
        let always = [&self.certificate, &self.key];
        always.into_iter().chain(&self.ca).chain(&self.revoked).map(PathBuf::as_path)
    }

    /// Which files these are, as far as the file system tells.
    pub(crate) fn stamp(&self) -> Stamp {
        let of = |path: &Path| {
            let found = path.metadata().ok()?;
            Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
        };
        self.files().map(of).collect()
    }
}
