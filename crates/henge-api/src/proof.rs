//! Who is at the other end of a node's connection to its manager, and that nobody on the way changes what they say.
//!
//! **Rule.** The manager, which is dialled, says a fresh nonce. The node answers with its name, a nonce of its own, and a MAC over its
//! side, both nonces and its name; only then the manager proves itself, by a MAC of its own side over the same. Both derive a key
//! for each direction from the same, and every line afterwards begins with a seal over its number and its text
//! ([`henge_link::seal`]).
//!
//! **Guarantee.** That of links ([`henge_link`]): a proof fits one side of one conversation; nothing is added, dropped, changed or repeated on
//! the way unseen. **Price.** What is said can be read there.

use crate::manager::hex;
use henge_link::seal::SEAL;
pub use henge_link::seal::{Keys, Sealer};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Where both ends come by TLS, the secret that they prove to know is this connection's own (RFC 8446, section 7.5), so that a proof is worth
/// nothing on any other: the certificates say who they are.
pub const EXPORTER: &[u8] = b"EXPORTER-henge manager 2";

const PROOF: &[u8] = b"henge manager 2 proof";
const KEY: &[u8] = b"henge manager 2 key";

/// Who proves, or speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The node, to the manager.
    Node,
    /// The manager, to the node.
    Manager,
}

/// What both ends have said in clear.
#[derive(Clone, Copy, Debug)]
pub struct Said<'a> {
    /// The manager's nonce.
    pub manager: &'a str,
    /// The node's.
    pub node: &'a str,
    /// The node's name.
    pub name: &'a str,
}

fn mac(secret: &str, purpose: &[u8], side: Side, said: Said<'_>) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a MAC takes keys of any length");
    let side: &[u8] = match side {
        Side::Node => b"node",
        Side::Manager => b"manager",
    };
    for bytes in [purpose, side, said.manager.as_bytes(), said.node.as_bytes(), said.name.as_bytes()] {
        mac.update(&(bytes.len() as u64).to_le_bytes());
        mac.update(bytes);
    }
    mac
}

/// That `side` knows the secret.
pub fn prove(secret: &str, side: Side, said: Said<'_>) -> String {
    hex(&mac(secret, PROOF, side, said).finalize().into_bytes())
}

/// Whether a proof holds; takes equally long for every wrong one.
pub fn holds(proof: &str, secret: &str, side: Side, said: Said<'_>) -> bool {
    let Some(bytes) = unhex(proof) else { return false };
    mac(secret, PROOF, side, said).verify_slice(&bytes).is_ok()
}

/// What seals the lines of this conversation; `side` is ours.
pub fn keys(secret: &str, side: Side, said: Said<'_>) -> Keys {
    let key = |from: Side| mac(secret, KEY, from, said).finalize().into_bytes().into();
    let other = if side == Side::Node { Side::Manager } else { Side::Node };
    Keys::new(key(side), key(other))
}

/// A line behind its seal.
pub fn sealed(sealer: &mut Sealer, line: &[u8]) -> Vec<u8> {
    let mut sealed = hex(&sealer.message(line)).into_bytes();
    sealed.push(b' ');
    sealed.extend_from_slice(line);
    sealed
}

/// What stands behind the seal, if it is the line that was sent next.
pub fn opened<'a>(sealer: &mut Sealer, sealed: &'a [u8]) -> Option<&'a [u8]> {
    let (seal, line) = sealed.split_at_checked(2 * SEAL)?;
    let line = line.strip_prefix(b" ")?;
    let seal = unhex(std::str::from_utf8(seal).ok()?)?;
    sealer.fits(line, &seal).then_some(line)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) || text.len() > 1024 {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: Said<'_> = Said { manager: "m", node: "n", name: "a" };

    #[test]
    fn a_proof_holds_for_its_secret_its_side_both_nonces_and_its_name() {
        let proof = prove("s", Side::Node, SAID);
        assert!(holds(&proof, "s", Side::Node, SAID));
        for (secret, side, said) in [
            ("t", Side::Node, SAID),
            ("s", Side::Manager, SAID),
            ("s", Side::Node, Said { manager: "x", ..SAID }),
            ("s", Side::Node, Said { node: "x", ..SAID }),
            ("s", Side::Node, Said { name: "b", ..SAID }),
            ("s", Side::Node, Said { manager: "mn", node: "", ..SAID }),
        ] {
            assert!(!holds(&proof, secret, side, said), "{secret} {side:?} {said:?}");
        }
        assert!(!holds("zz", "s", Side::Node, SAID) && !holds("é1", "s", Side::Node, SAID));
    }

    #[test]
    fn a_line_opens_once_in_its_place_and_for_the_other_side() {
        let (mut node, mut manager) = (keys("s", Side::Node, SAID), keys("s", Side::Manager, SAID));
        let lines = [sealed(&mut node.ours, b"{1}\n"), sealed(&mut node.ours, b"{2}\n")];
        assert_eq!(opened(&mut manager.theirs, &lines[0]), Some(&b"{1}\n"[..]));
        assert_eq!(opened(&mut manager.theirs, &lines[0]), None, "repeated");
        for (what, line) in [
            ("dropped", lines[1].clone()),
            ("no seal", b"{1}\n".to_vec()),
            ("half a line", lines[0][..lines[0].len() - 1].to_vec()),
            ("another text", [&lines[0][..33], &b"{9}\n"[..]].concat()),
        ] {
            let mut manager = keys("s", Side::Manager, SAID);
            assert_eq!(opened(&mut manager.theirs, &line), None, "{what}");
        }
        assert_eq!(opened(&mut node.theirs, &lines[0]), None, "sent back");
    }
}
