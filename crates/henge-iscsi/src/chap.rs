//! The challenge-handshake authentication protocol, both ways (RFC 1994; RFC 7143, section 12.1.3).
//!
//! The response is H(identifier ‖ secret ‖ challenge). Example, with MD5: identifier 1, secret "s",
//! challenge 0x00 gives MD5(01 73 00). Randomness comes from outside, as an argument.

use md5::{Digest, Md5};
use sha2::Sha256;
use sha3::Sha3_256;

/// A hash that CHAP may use (IANA's numbers; RFC 7143 requires 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// 5.
    Md5,
    /// 7.
    Sha256,
    /// 8.
    Sha3,
}

impl Algorithm {
    /// The first of an initiator's list that we have.
    pub fn choose(list: &str) -> Option<Algorithm> {
        list.split(',').find_map(|name| match name {
            "5" => Some(Algorithm::Md5),
            "7" => Some(Algorithm::Sha256),
            "8" => Some(Algorithm::Sha3),
            _ => None,
        })
    }
    /// Its number.
    pub fn number(self) -> &'static str {
        match self {
            Algorithm::Md5 => "5",
            Algorithm::Sha256 => "7",
            Algorithm::Sha3 => "8",
        }
    }
    /// Bytes of a challenge, as many as the hash has.
    pub fn challenge_len(self) -> usize {
        if self == Algorithm::Md5 { 16 } else { 32 }
    }
    /// The response to a challenge.
    pub fn response(self, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        fn hash<D: Digest>(identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
            let mut hash = D::new();
            hash.update([identifier]);
            hash.update(secret);
            hash.update(challenge);
            hash.finalize().to_vec()
        }
        match self {
            Algorithm::Md5 => hash::<Md5>(identifier, secret, challenge),
            Algorithm::Sha256 => hash::<Sha256>(identifier, secret, challenge),
            Algorithm::Sha3 => hash::<Sha3_256>(identifier, secret, challenge),
        }
    }
}

/// A name and its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// Who.
    pub name: String,
    /// What only both sides know.
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret {{ name: {:?}, secret: … }}", self.name)
    }
}

/// Who may log in to a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// An initiator must know one of these; anyone may log in when there is none.
    pub users: Vec<Secret>,
    /// What the target proves itself with, when asked.
    pub target: Option<Secret>,
    /// Names of the initiators that may log in; all when empty.
    pub initiators: Vec<String>,
}

impl Access {
    /// Whether an initiator of this name may log in, once it has proven what it must.
    pub fn allows(&self, initiator: &str) -> bool {
        self.initiators.is_empty() || self.initiators.iter().any(|name| name == initiator)
    }

    /// Whether it says who may log in at all.
    pub fn is_stated(&self) -> bool {
        !self.users.is_empty() || !self.initiators.is_empty()
    }
}

/// Compares in a time that does not depend on where the difference is.
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differences, (x, y)| differences | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::to_hexadecimal;

    #[test]
    fn the_response_hashes_identifier_secret_and_challenge() {
        // printf '\x01secret\xaa\xbb' | md5sum, and sha256sum
        let md5 = Algorithm::Md5.response(1, b"secret", &[0xaa, 0xbb]);
        let sha = Algorithm::Sha256.response(1, b"secret", &[0xaa, 0xbb]);
        assert_eq!(to_hexadecimal(&md5), MD5);
        assert_eq!(to_hexadecimal(&sha), SHA256);
        assert_eq!(Algorithm::Sha3.response(1, b"", &[]).len(), 32);
    }
    const MD5: &str = "0x52b84dd1a7253536d2f969cd661a25de";
    const SHA256: &str = "0xc779f2085cfc26ecbce7b258493f9eaae5c948256dc87839664bbfa69e08f43c";

    #[test]
    fn the_first_known_algorithm_is_chosen() {
        assert_eq!(Algorithm::choose("6,7,5"), Some(Algorithm::Sha256));
        assert_eq!(Algorithm::choose("6"), None);
    }
}
