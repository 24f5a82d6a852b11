//! Which subsystem a connection is for, read from its Connect before a session takes it.
//!
//! A server of several loops, each with subsystems of its own, gives a connection to the loop that has its subsystem. Connect is the first
//! command of each queue (Base 2.0, section 3.3.2), and comes as one capsule with its data (Transport 1.0, section 3.3.2). Before it
//! there is only ICReq, whose answer depends on nothing else: a second session to which the same ICReq is given agrees on the same.

use crate::fabrics::{CONNECT_DATA, FABRICS, kind, name};
use crate::wire::{COMMAND_HEADER, COMMON, Common, Sqe, pdu};

/// What the bytes behind ICReq say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named<'a> {
    /// Nothing yet: more of them are needed.
    More,
    /// The subsystem of this name; that of discovery, too.
    Name(&'a str),
    /// No subsystem: what no session will accept.
    Nothing,
}

/// Looks at what came behind ICReq, of which nothing was taken.
pub fn named(input: &[u8]) -> Named<'_> {
    let Some(common) = Common::read(input) else { return Named::More };
    let from = usize::from(common.data_at);
    let to = from + CONNECT_DATA;
    if common.kind != pdu::COMMAND || from < COMMAND_HEADER || (common.len as usize) < to {
        return Named::Nothing;
    }
    let Some(data) = input.get(from..to) else { return Named::More };
    let entry = Sqe(*input[COMMON..].first_chunk().expect("a header is shorter than where data begin"));
    if entry.opcode() != FABRICS || entry.0[4] != kind::CONNECT {
        return Named::Nothing;
    }
    name(&data[256..512]).map_or(Named::Nothing, Named::Name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn connect(nqn: &str, digest: usize) -> Vec<u8> {
        let from = COMMAND_HEADER + digest;
        let mut bytes = vec![0; from + CONNECT_DATA];
        let (header, data_at, len) = (COMMAND_HEADER as u8, from as u8, bytes.len() as u32);
        Common { kind: pdu::COMMAND, flags: 0, header, data_at, len }.write(&mut bytes);
        (bytes[COMMON], bytes[COMMON + 4]) = (FABRICS, kind::CONNECT);
        bytes[from + 256..from + 256 + nqn.len()].copy_from_slice(nqn.as_bytes());
        bytes
    }

    #[test]
    fn connect_says_the_subsystem_as_soon_as_it_is_there() {
        for digest in [0, 4] {
            let bytes = connect("nqn.t", digest);
            for len in 0..bytes.len() {
                assert_eq!(named(&bytes[..len]), Named::More, "{len}");
            }
            assert_eq!(named(&bytes), Named::Name("nqn.t"));
            assert_eq!(named(&[&bytes[..], b"and what follows"].concat()), Named::Name("nqn.t"));
        }
    }

    #[test]
    fn what_is_no_connect_names_nothing() {
        let nameless = connect("", 0);
        assert_eq!(named(&nameless), Named::Nothing);
        let mut other = connect("nqn.t", 0);
        other[COMMON + 4] = kind::PROPERTY_GET;
        assert_eq!(named(&other), Named::Nothing);
        let mut short = connect("nqn.t", 0);
        short[4..8].copy_from_slice(&100u32.to_le_bytes());
        assert_eq!(named(&short), Named::Nothing);
        assert_eq!(named(&[pdu::H2C_TERM, 0, 24, 0, 24, 0, 0, 0]), Named::Nothing);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..1300), command in any::<bool>()) {
            let mut bytes = bytes;
            if command && bytes.len() > 8 {
                bytes[..8].copy_from_slice(&[pdu::COMMAND, 0, 72, 72, 72, 4, 0, 0]);
            }
            let said = named(&bytes);
            // More bytes never take back what was said.
            let more = [&bytes[..], &[0; 64]].concat();
            prop_assert!(said == Named::More || named(&more) == said);
        }
    }
}
