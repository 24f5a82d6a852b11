//! Who may attach to a disk: nobody, until somebody was named or given a secret.
//!
//! The manager makes two secrets for each disk: one for CHAP (iSCSI) and one for DH-HMAC-CHAP (NVMe). It hands them to the disk's
//! nodes, and shows them once, to who made the disk. By NBD a disk is nobody's, unless names of certificates, or anyone, are stated.
//!
//! Disks that earlier releases made have no access of their own: they stay as they were, until credentials are made for them.

use crate::model::BadSpec;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use henge_api::manager as wire;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

/// Most names of certificates.
const NAMES_MAX: usize = 64;
const NAME_MAX: usize = 256;
/// RFC 7143 asks for 96 bits at least; some initiators take no more than 16 characters, which are as many.
const CHAP_BYTES: usize = 12;
/// As `nvme gen-dhchap-key` makes them.
const NVME_BYTES: usize = 32;

/// The secrets of a disk.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secrets {
    /// For iSCSI: 16 characters.
    pub chap: String,
    /// For NVMe: `DHHC-1:00:…:`.
    pub nvme: String,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(…)")
    }
}

impl Secrets {
    /// New ones.
    pub(crate) fn new() -> io::Result<Secrets> {
        let mut bytes = [0; CHAP_BYTES + NVME_BYTES];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let (chap, nvme) = bytes.split_at(CHAP_BYTES);
        Ok(Secrets { chap: URL_SAFE_NO_PAD.encode(chap), nvme: dhchap(nvme) })
    }
}

/// A secret as NVMe's tools write it: with a CRC-32 behind it (TP 8006).
fn dhchap(secret: &[u8]) -> String {
    let bytes = [secret, &crc32(secret).to_le_bytes()].concat();
    format!("DHHC-1:00:{}:", STANDARD.encode(bytes))
}

fn crc32(bytes: &[u8]) -> u32 {
    let shift = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), shift))
}

/// Who may attach, remembered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Access {
    /// By NBD: names in certificates, or `anyone` alone; nobody where there is none.
    #[serde(default)]
    pub nbd: Vec<String>,
    /// By iSCSI and NVMe: who knows these.
    pub secrets: Secrets,
}

impl Access {
    /// What nodes are told of a disk that they call so.
    pub(crate) fn told(&self, full: &str) -> wire::Access {
        wire::Access {
            nbd: self.nbd.clone(),
            user: full.to_owned(),
            chap: self.secrets.chap.clone(),
            nvme: self.secrets.nvme.clone(),
        }
    }
}

/// Whether these say who may come by NBD.
pub(crate) fn check(nbd: &[String]) -> Result<(), BadSpec> {
    const FORMS: &str = "nbd is \"anyone\", or names in certificates like \"spiffe://henge/client/ann\", \
                         \"backup.example.org\" or \"CN=ann\"";
    if nbd == ["anyone"] {
        return Ok(());
    }
    if nbd.len() > NAMES_MAX {
        return Err(BadSpec(format!("nbd has at most {NAMES_MAX} names")));
    }
    let dns = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = |name: &String| {
        let plain = !name.chars().any(|c| c.is_control() || c == '"' || c == '\\');
        let known = name.contains("://")
            || name.strip_prefix("CN=").is_some_and(|common| !common.is_empty())
            || (name.contains('.') && name.chars().all(dns));
        plain && known && name.len() <= NAME_MAX
    };
    match nbd.iter().find(|name| !is_name(name)) {
        None => Ok(()),
        Some(other) => Err(BadSpec(format!("{FORMS}, not \"{}\"", crate::shorten::shorten(other)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_as_the_tools_of_others_write_them() {
        // The check value of CRC-32.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        // Of nvme gen-dhchap-key: bytes 0 to 31.
        let bytes: Vec<u8> = (0..32).collect();
        assert_eq!(dhchap(&bytes), "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:");
        let (a, b) = (Secrets::new().unwrap(), Secrets::new().unwrap());
        assert!(a != b && a.chap.len() == 16 && a.nvme.len() == 59);
        assert!(!format!("{a:?}").contains(&a.chap));
    }

    #[test]
    fn nobody_comes_by_nbd_who_is_not_named() {
        let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        for good in [&[][..], &["anyone"], &["CN=ann", "spiffe://h/client/ann", "a.example.org"]] {
            assert!(check(&names(good)).is_ok(), "{good:?}");
        }
        for bad in [&["ann"][..], &["anyone", "CN=ann"], &["CN="], &[""], &["CN=a\"b"], &["CN=a\nb"]] {
            assert!(check(&names(bad)).unwrap_err().0.contains("certificates"), "{bad:?}");
        }
        assert!(check(&vec!["CN=a".to_owned(); 65]).is_err());
    }
}
