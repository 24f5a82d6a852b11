//! Requests but for I/O: which of them are held, and which a server has not answered.

use crate::capability::{Capability, Credential};
use crate::connection::News;
use crate::message::{Response, ServerLimits};
use crate::op::Op;
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
                let Ok(Response::Other { op: Op::GetAttr }) = Response::parse(head) else { return None };
                let mut r = Reader::new(head);
                r.pad(GETATTR_CAPABILITY).ok()?;
                let capability = Capability::read(&mut r).ok().filter(|c| c.issuer.starts_with(b"S:"))?;
                Some(News::Identity { capability: Box::new(capability), credential })
            }
        }
    }
}
