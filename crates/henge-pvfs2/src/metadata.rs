//! Requests but for I/O: which of them are held, and which a server has not answered.

use crate::capability::{Capability, Credential};
use crate::connection::News;
use crate::message::{Response, ServerLimits};
use crate::op::{Op, UNSTUFF};
use crate::wire::Reader;
use std::collections::BTreeMap;

/// Those that are remembered until their response, where they are not held.
const PASSED_MAX: usize = 1024;
/// Of a GETATTR response, so much is looked at; a capability of a thousand handles fits.
const GETATTR_HEAD: u64 = 16 << 10;
/// A configuration is at most 64 KiB; beyond this it passes unread.
const GETCONFIG_MAX: u64 = 128 << 10;
/// Where a GETATTR response has its capability, if it has one.
const GETATTR_CAPABILITY: usize = 64;

/// What the answer says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    GetAttr(Credential),
    GetConfig,
    /// Only that it is answered matters.
    Other,
}

/// Where one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// With the proxy.
    Held,
    /// At the server, which it went to when it was released.
    Released,
    /// It passed, and nobody waits for its end.
    Passed,
}

/// Those of one connection.
#[derive(Default, Debug)]
pub struct Metadata {
    by_tag: BTreeMap<i64, (What, Place)>,
    /// Of the message from the server that was looked at last: a held request that it answers.
    answered: Option<i64>,
}

impl Metadata {
    pub(crate) fn len(&self) -> usize {
        self.by_tag.len()
    }
    /// Whether the tag is that of one whose end somebody waits for.
    pub(crate) fn has(&self, tag: i64) -> bool {
        self.by_tag.get(&tag).is_some_and(|(_, place)| *place != Place::Passed)
    }
    /// Whether an answer by this tag is one of theirs.
    pub(crate) fn knows(&self, tag: i64) -> bool {
        self.by_tag.contains_key(&tag)
    }
    pub(crate) fn hold(&mut self, tag: i64, what: What) {
        self.by_tag.insert(tag, (what, Place::Held));
    }
    pub(crate) fn pass(&mut self, tag: i64, what: What) {
        if self.by_tag.len() >= PASSED_MAX {
            self.by_tag.pop_first();
        }
        self.by_tag.insert(tag, (what, Place::Passed));
    }
    /// It goes to the server now, if it is held here. What passed may have the tag of an I/O request that is.
    pub(crate) fn release(&mut self, tag: i64) -> bool {
        match self.by_tag.get_mut(&tag) {
            Some((_, place)) if *place == Place::Held => {
                *place = Place::Released;
                true
            }
            _ => false,
        }
    }
    pub(crate) fn forget(&mut self, tag: i64) {
        self.by_tag.remove(&tag);
    }

    /// Those that the server has and has not answered.
    pub fn unanswered(&self) -> usize {
        self.by_tag.values().filter(|(_, place)| *place != Place::Held).count()
    }

    /// Whether the last message from the server answered one that was held. Asked after each.
    pub fn take_answered(&mut self) -> Option<News> {
        let tag = self.answered.take()?;
        Some(News::Over { tag, result: Ok(0), moved: 0 })
    }

    /// How many bytes of an answer must be seen.
    pub(crate) fn look_at(&self, tag: i64, size: u64) -> u64 {
        match self.by_tag.get(&tag) {
            Some((What::GetAttr(_), _)) => GETATTR_HEAD,
            Some((What::GetConfig, _)) if size <= GETCONFIG_MAX => size,
            _ => 0,
        }
    }

    /// So long an answer has come, of which this was to be seen. What answers one that is held answers another one of the same tag.
    pub(crate) fn answer(&mut self, tag: i64, size: u64, head: &[u8]) -> Option<News> {
        if self.by_tag.get(&tag)?.1 == Place::Held {
            return None;
        }
        let (what, place) = self.by_tag.remove(&tag)?;
        self.answered = (place == Place::Released).then_some(tag);
        match what {
            What::GetConfig => {
                let payload = head.get(..size as usize)?;
                ServerLimits::from_response(payload).map(News::Limits)
            }
            What::Other => None,
            What::GetAttr(credential) => {
                let Ok(Response::Other { op: Op::GetAttr | UNSTUFF }) = Response::parse(head) else {
                    return None;
                };
                let mut r = Reader::new(head);
                r.pad(GETATTR_CAPABILITY).ok()?;
                let capability = Capability::read(&mut r).ok().filter(|c| c.issuer.starts_with(b"S:"))?;
                Some(News::Identity { capability: Box::new(capability), credential })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::connection::{Connection, News};
    use crate::frame::{HEADER_LEN, Header, Mode};

    fn message(header: Header, payload: &str) -> Vec<u8> {
        let digits: Vec<u8> = payload.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |two: &[u8]| {
            let two = str::from_utf8(two).expect("digits");
            u8::from_str_radix(two, 16).expect("two digits")
        };
        let payload: Vec<u8> = digits.chunks(2).map(byte).collect();
        let header = Header { size: payload.len() as u64, ..header }.to_bytes();
        assert_eq!(header.len(), HEADER_LEN);
        [&header[..], &payload].concat()
    }

    /// UNSTUFF of a client of OrangeFS 2.10 and its answer, as they were seen (`FileStuffing yes`, a file of user 20001 that grows beyond its first
    /// strip). The client goes on with the capability in the answer. Before, nobody knew whose its reads and writes were from there on.
    #[test]
    fn who_lets_a_file_grow_out_of_its_first_server_is_known() {
        let request = "581b0000020000002600000000000000 04000000533a62310000000000000000173a3171000000000000000000000000
            587f0b6b000000000f00000002000000f7ffffffffffff0f0000000000000048 00000000
            f7ffffffffffff0f173a3171402c4000 0000000000000000214e000001000000214e000004000000433a766d0000000000000000
            108b0b6b0000000000000000000000000000000000000000";
        let answer = "581b0000020000002600000000000000 214e0000214e0000ff01000000000000
            007d0b6b00000000007d0b6b00000000007d0b6b000000007f1c400001000000
            04000000533a62310000000000000000173a3171000000000000000000000000587f0b6b00000000 0f00000003000000
            f7ffffffffffff0f000000000000004881ffffffffffff47
            0d00000073696d706c655f737472697065000000000000000001000000000002 00000000000000000000004881ffffffffffff47
            0000000000000000";
        let mut connection = Connection::new();
        let header = |mode| Header { mode, tag: 11, size: 0 };
        let request = message(header(Mode::Unexpected), request);
        assert_eq!(connection.from_client(&request).len, request.len());
        let (step, news) = connection.from_server(&message(header(Mode::Eager), answer));
        let Some(News::Identity { capability, credential }) = news else { panic!("{step:?} {news:?}") };
        assert_eq!((credential.uid, credential.gid), (20_001, Some(20_001)));
        assert_eq!(capability.handles, [0x0fff_ffff_ffff_fff7, 0x4800 << 48, 0x47ff_ffff_ffff_ff81]);
    }
}
