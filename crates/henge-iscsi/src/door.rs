//! Which target a connection is for, read from its first login before any session takes it.
//!
//! A server of several loops, each with targets of its own, gives a connection to the loop that has its target. RFC 7143, section 13.4: the
//! first login request names the target, but in a discovery session. So that one PDU says it, and nothing has to be answered before. An
//! initiator that stretches its first login over several PDUs (C bit) is [`Named::Nothing`], unless the first of them has the name.

use crate::wire::{BHS, Header, request};

/// What the first bytes of a connection say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named<'a> {
    /// Nothing yet: more of them are needed.
    More,
    /// The target of this name.
    Name(&'a str),
    /// No target: a discovery session, or what no session will accept.
    Nothing,
}

/// Longest text of a first login; initiators declare their own limits later, and 8192 bytes are the default (RFC 7143, section 13.12).
const LONGEST: usize = 16 << 10;

/// Looks at the beginning of a connection, of which nothing was taken.
pub fn named(input: &[u8]) -> Named<'_> {
    let Some(header) = Header::read(input) else { return Named::More };
    if header.opcode() != request::LOGIN || header.data_len() > LONGEST {
        return Named::Nothing;
    }
    let from = BHS + header.ahs_len();
    let Some(text) = input.get(from..from + header.data_len()) else { return Named::More };
    let mut name = None;
    for pair in text.split(|byte| *byte == 0) {
        if pair == b"SessionType=Discovery" {
            return Named::Nothing;
        }
        name = name.or_else(|| pair.strip_prefix(b"TargetName="));
    }
    name.and_then(|name| std::str::from_utf8(name).ok()).map_or(Named::Nothing, Named::Name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn login(text: &str) -> Vec<u8> {
        let mut header = Header::reply(request::LOGIN | 0x40);
        header.put_data_len(text.len());
        [&header.0[..], text.as_bytes()].concat()
    }

    #[test]
    fn the_first_login_says_the_target_as_soon_as_it_is_there() {
        let text = "InitiatorName=iqn.i\0SessionType=Normal\0TargetName=iqn.t\0AuthMethod=None\0";
        let bytes = login(text);
        for len in 0..bytes.len() {
            assert_eq!(named(&bytes[..len]), Named::More, "{len}");
        }
        assert_eq!(named(&bytes), Named::Name("iqn.t"));
        let more = [&bytes[..], b"and what follows"].concat();
        assert_eq!(named(&more), Named::Name("iqn.t"));
    }

    #[test]
    fn discovery_and_what_is_no_login_name_nothing() {
        for text in
            ["InitiatorName=iqn.i\0SessionType=Discovery\0TargetName=iqn.t\0", "InitiatorName=iqn.i\0", ""]
        {
            assert_eq!(named(&login(text)), Named::Nothing, "{text}");
        }
        assert_eq!(named(&[0xff; BHS]), Named::Nothing);
        let mut long = login("");
        long[5..8].copy_from_slice(&[0xff; 3]);
        assert_eq!(named(&long), Named::Nothing, "nobody waits for 16 MiB of text");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..300), login in any::<bool>()) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut().filter(|_| login) {
                *first = request::LOGIN;
            }
            let said = named(&bytes);
            // More bytes never take back what was said.
            let more = [&bytes[..], &[0; 64]].concat();
            prop_assert!(said == Named::More || named(&more) == said);
        }
    }
}
