//! One-time tokens by which somebody joins a cluster: a secret, and the fingerprint of the root that is to be believed.
//!
//! `henge-join.SECRET.FINGERPRINT`: 64 and 64 hexadecimal digits. Who is given it knows both whom to ask and that nobody else
//! answers: the server's certificate is to come from the root of this fingerprint.

use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

const PREFIX: &str = "henge-join";

/// What is no token.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this is no token to join with; one looks like henge-join.0123….4567…: `henge ca invite` prints it")]
pub struct TokenError;

/// A token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    secret: String,
    /// SHA-256 of the root's certificate.
    pub fingerprint: String,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token")
    }
}

impl Token {
    /// A new one, for a root.
    pub fn create(fingerprint: &str) -> std::io::Result<Token> {
        let mut bytes = [0u8; 32];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let secret = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Token { secret, fingerprint: fingerprint.to_owned() })
    }

    /// The whole of it: told once.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}.{}.{}", self.secret, self.fingerprint)
    }

    /// What is remembered of it: SHA-256 of the secret.
    pub fn hash(&self) -> String {
        Sha256::digest(self.secret.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl FromStr for Token {
    type Err = TokenError;
    fn from_str(text: &str) -> Result<Token, TokenError> {
        let mut parts = text.trim().split('.');
        let digits = |part: Option<&str>| -> Result<String, TokenError> {
            let part = part.ok_or(TokenError)?;
            let fits = part.len() == 64 && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            if fits { Ok(part.to_owned()) } else { Err(TokenError) }
        };
        if parts.next() != Some(PREFIX) {
            return Err(TokenError);
        }
        let token = Token { secret: digits(parts.next())?, fingerprint: digits(parts.next())? };
        if parts.next().is_some() { Err(TokenError) } else { Ok(token) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_what_was_printed_and_nothing_else() {
        let token = Token::create(&"ab".repeat(32)).unwrap();
        assert_eq!(token.reveal().parse(), Ok(token.clone()));
        assert_eq!(format!("  {}\n", token.reveal()).parse(), Ok(token.clone()));
        assert_ne!(Token::create(&"ab".repeat(32)).unwrap().hash(), token.hash());
        assert!(!token.reveal().contains(&token.hash()) && !format!("{token:?}").contains(&token.secret));
        let short = &token.reveal()[..80];
        for wrong in
            [short, "", "henge-join", &format!("{}.", token.reveal()), &token.reveal().to_uppercase()]
        {
            assert_eq!(wrong.parse::<Token>(), Err(TokenError), "{wrong}");
        }
    }
}
