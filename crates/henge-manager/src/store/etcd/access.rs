//! How etcd knows who we are, and we that it is etcd: certificates for the connection, a user and a password for what may be
//! read and written.

use std::fmt;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// A user of etcd's, with a role that may read and write what begins with our prefix.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user's name.
    pub user: String,
    /// Its password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with a password", self.user)
    }
}

/// Certificates, as PEM.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Who signs for etcd; Mozilla's list of public authorities where nothing is stated.
    pub authority: Option<Vec<u8>>,
    /// Our own certificate (and those between it and its authority), and its key, for an etcd that asks for one.
    pub own: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = if self.own.is_some() { "a certificate" } else { "no certificate" };
        write!(f, "TLS with {own} of our own")
    }
}

/// The certificates of a file; there is at least one.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, String> {
    let mut all = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(one) = item.map_err(|e| e.to_string())? {
            all.push(one);
        }
    }
    match all.is_empty() {
        true => Err("there is no certificate in it (\"-----BEGIN CERTIFICATE-----\")".into()),
        false => Ok(all),
    }
}

/// The private key of a file.
pub(crate) fn private_key(pem: &[u8]) -> Result<PrivateKey<'static>, String> {
    PrivateKey::from_pem(pem)
        .map_err(|_| "there is no private key in it (\"-----BEGIN PRIVATE KEY-----\")".into())
}

impl Tls {
    /// As the client wants it.
    pub(super) fn config(&self) -> Result<TlsConfig, String> {
        let roots = match &self.authority {
            None => RootCerts::WebPki,
            Some(pem) => RootCerts::new_with_certs(&certificates(pem)?),
        };
        let own = match &self.own {
            None => None,
            Some((chain, key)) => Some(ClientCert::new_with_certs(&certificates(chain)?, private_key(key)?)),
        };
        Ok(TlsConfig::builder().root_certs(roots).client_cert(own).build())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_secret_is_not_printed() {
        let login = Login { user: "henge".into(), password: "open sesame".into() };
        let tls = Tls { authority: None, own: Some((b"chain".to_vec(), b"key".to_vec())) };
        assert_eq!(format!("{login:?}, {tls:?}"), "henge with a password, TLS with a certificate of our own");
    }

    #[test]
    fn files_without_what_they_should_hold_say_so() {
        assert!(certificates(b"nothing").unwrap_err().contains("BEGIN CERTIFICATE"));
        assert!(private_key(b"nothing").unwrap_err().contains("BEGIN PRIVATE KEY"));
    }
}
