//! Secrets, and what is computed of them (Base 8.13.5.7 to 8.13.5.8).
//!
//! `DHHC-1:HH:BASE64:` is a secret as `nvme gen-dhchap-key` writes it: HH says by which hash it is made one host's own (00: it is
//! used as it is), BASE64 has 32, 48 or 64 bytes and their CRC-32.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};

/// A hash (Base, figure 446).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hash {
    /// 1.
    Sha256,
    /// 2.
    Sha384,
    /// 3.
    Sha512,
}

impl Hash {
    /// The one with this number.
    pub fn numbered(number: u8) -> Option<Hash> {
        match number {
            1 => Some(Hash::Sha256),
            2 => Some(Hash::Sha384),
            3 => Some(Hash::Sha512),
            _ => None,
        }
    }
    /// Its number.
    pub fn number(self) -> u8 {
        self as u8 + 1
    }
    /// Bytes that come out.
    pub(super) fn len(self) -> usize {
        [32, 48, 64][self as usize]
    }
    pub(super) fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Hash::Sha256 => Sha256::digest(bytes).to_vec(),
            Hash::Sha384 => Sha384::digest(bytes).to_vec(),
            Hash::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }
    pub(super) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        fn over<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
            let mut mac = <M as KeyInit>::new_from_slice(key).expect("any length is a key");
            parts.iter().for_each(|part| mac.update(part));
            mac.finalize().into_bytes().to_vec()
        }
        match self {
            Hash::Sha256 => over::<Hmac<Sha256>>(key, parts),
            Hash::Sha384 => over::<Hmac<Sha384>>(key, parts),
            Hash::Sha512 => over::<Hmac<Sha512>>(key, parts),
        }
    }
}

/// A secret that a host, or the controller, proves to know.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    secret: Vec<u8>,
    transform: Option<Hash>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// Reads a secret; or says what is wrong with it, without repeating it.
    pub fn parse(text: &str) -> Result<Key, &'static str> {
        const FORM: &str = "a secret is like DHHC-1:00:…: as nvme gen-dhchap-key writes it";
        let (number, base64) =
            text.trim().strip_prefix("DHHC-1:").and_then(|rest| rest.split_once(':')).ok_or(FORM)?;
        let transform = match number {
            "00" => None,
            "01" | "02" | "03" => Hash::numbered(number.as_bytes()[1] - b'0'),
            _ => return Err("the number behind DHHC-1: is 00, 01, 02 or 03"),
        };
        let bytes = BASE64.decode(base64.strip_suffix(':').unwrap_or(base64)).map_err(|_| FORM)?;
        if ![36, 52, 68].contains(&bytes.len()) {
            return Err("a secret has 32, 48 or 64 bytes and a checksum of 4");
        }
        let (secret, sum) = bytes.split_at(bytes.len() - 4);
        if crc32fast::hash(secret).to_le_bytes() != *sum {
            return Err("the secret's checksum is wrong: it was not copied as it was");
        }
        Ok(Key { secret: secret.to_vec(), transform })
    }

    /// What stands in where nobody knows a secret.
    pub(crate) fn nobodys() -> Key {
        Key { secret: vec![0; 32], transform: None }
    }

    /// What is hashed with, for the one with this name.
    pub(super) fn of(&self, nqn: &str) -> Vec<u8> {
        match self.transform {
            None => self.secret.clone(),
            Some(hash) => hash.hmac(&self.secret, &[nqn.as_bytes(), b"NVMe-over-Fabrics"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // python3: base64.b64encode(bytes(range(32)) + struct.pack("<I", zlib.crc32(bytes(range(32)))))
    const SECRET: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

    #[test]
    fn a_secret_is_read_as_it_was_written() {
        let key = Key::parse(SECRET).expect("well formed");
        assert_eq!(key.of("nqn.x"), (0..32).collect::<Vec<u8>>());
        assert_eq!(Key::parse(&format!(" {}\n", SECRET.trim_end_matches(':'))), Ok(key));
        for (from, to) in [
            ("DHHC-1", "DHHC-2"),
            (":00:", ":04:"),
            (":00:", ":0:"),
            ("AAEC", "AAED"),
            ("AAECAwQF", ""),
            ("AA", "*A"),
        ] {
            let why = Key::parse(&SECRET.replacen(from, to, 1)).expect_err(to);
            assert!(!why.contains("AwQF"), "{why}");
        }
        assert_eq!(format!("{:?}", Key::parse(SECRET)), "Ok(Key(…))");
    }

    #[test]
    fn a_secret_becomes_one_hosts_own() {
        // python3: hmac.new(bytes(range(32)), b"nqn.x" + b"NVMe-over-Fabrics", HASH).hexdigest()[:8]
        for (number, first, len) in
            [("01", TRANSFORMED[0], 32), ("02", TRANSFORMED[1], 48), ("03", TRANSFORMED[2], 64)]
        {
            let key = Key::parse(&SECRET.replace(":00:", &format!(":{number}:"))).expect("well formed");
            let own = key.of("nqn.x");
            assert_eq!((&own[..4], own.len()), (&first[..], len));
            assert_ne!(own, key.of("nqn.y"));
        }
    }
    const TRANSFORMED: [[u8; 4]; 3] =
        [[0xb3, 0x9f, 0x2b, 0x89], [0x5a, 0x01, 0x47, 0xff], [0x52, 0x61, 0x1f, 0x1c]];

    #[test]
    fn hashes_are_those_of_rfc_4231() {
        // Test case 2.
        let first = |hash: Hash| hash.hmac(b"Jefe", &[b"what do ya want ", b"for nothing?"])[..4].to_vec();
        assert_eq!(first(Hash::Sha256), [0x5b, 0xdc, 0xc1, 0x46]);
        assert_eq!(first(Hash::Sha384), [0xaf, 0x45, 0xd2, 0xe3]);
        assert_eq!(first(Hash::Sha512), [0x16, 0x4b, 0x7a, 0x7b]);
    }
}
