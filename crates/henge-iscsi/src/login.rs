//! The login phase: who is it, may they, and what are the terms (RFC 7143, sections 6.3, 11.12, 11.13 and 12.1).
//!
//! ```text
//!   security negotiation (CSG 0)  ──▶  operational negotiation (CSG 1)  ──▶  full feature phase (3)
//!   AuthMethod, CHAP_A ▸ CHAP_N, R      digests, lengths, R2T …
//! ```
//! Either stage may be left out, security only where none is demanded. Each request gets one response; the
//! stage changes when the request asks for it (T bit) and we have nothing open.
//!
//! # What strangers learn
//! Where any target of the node says who may log in, a target that is not there, and one that this initiator may not use, ask for a proof
//! as all others do, and none is right. So a login tells nobody which names there are. A discovery session begins whatever is
//! proven in it: it shows the targets that anyone may use, and those whose secret was proven.

use crate::chap::{self, Access, Algorithm, Secret};
use crate::params::{Answer, Negotiated, Offer, negotiate};
use crate::target::{TargetId, Targets};
use crate::text::{self, KEYS_MAX, TEXT_MAX};
use crate::wire::{Header, response};
use std::collections::BTreeMap;

/// Why a login fails: class and detail (RFC 7143 11.13.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Failure {
    /// The initiator broke the rules.
    Initiator = 0x0200,
    /// It is not who it says.
    Authentication = 0x0201,
    /// It may not use the target.
    Forbidden = 0x0202,
    /// There is no such target.
    NotFound = 0x0203,
    /// No version in common.
    Version = 0x0205,
    /// One connection per session, no more.
    Connections = 0x0206,
    /// A key that must be there is not.
    Missing = 0x0207,
    /// Neither a normal nor a discovery session.
    Kind = 0x0209,
    /// A TSIH that names no session.
    NoSession = 0x020a,
    /// Something else than a login request.
    Request = 0x020b,
    /// No more sessions now.
    Resources = 0x0302,
}

/// What a finished login has found out.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The initiator's name.
    pub initiator: String,
    /// Its part of the session's name.
    pub isid: [u8; 6],
    /// What to use; none in a discovery session.
    pub target: Option<TargetId>,
    /// Guarded targets that a discovery session shows: their secret was proven, by that edition of who may use them.
    pub shown: Vec<(TargetId, u32)>,
    /// The terms.
    pub agreed: Negotiated,
}

/// What a request led to.
#[derive(Debug)]
pub enum Progress {
    /// This response; go on.
    Continue(Header, Vec<u8>),
    /// This response, and the login is over. The response lacks the TSIH.
    Done(Header, Vec<u8>, Box<Accepted>),
    /// A proof is still compared with secrets: [`Login::go_on`], when others have had their turns.
    Trying,
}

/// How far authentication is.
#[derive(Debug, PartialEq, Eq)]
enum Auth {
    /// Nothing said.
    Open,
    /// AuthMethod was CHAP; an algorithm is to come.
    Chosen,
    /// The challenge is sent.
    Challenged(Algorithm),
    /// Proven, or not asked for.
    Done,
}

/// What a login is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Goal {
    /// To ask which targets there are.
    Discovery,
    /// To use one, of which that edition says who may.
    Target(TargetId, u32),
    /// To use one that is not there, or not for this initiator: it is asked for a proof, and no proof is right.
    Nobodys,
}

/// A login under way.
#[derive(Debug)]
pub struct Login {
    entropy: [u8; 33],
    text: Vec<u8>,
    named: bool,
    initiator: String,
    isid: [u8; 6],
    goal: Goal,
    /// What a proof in a discovery session opens, and by which edition of who may use it; and behind which secret it is still to be tried.
    shown: BTreeMap<TargetId, u32>,
    tried: Option<Vec<u8>>,
    /// Secrets that it was compared with since that was asked for.
    tries: usize,
    stage: u8,
    auth: Auth,
    declared: bool,
    /// Keys that were offered already; each may be once (RFC 7143 6.3).
    seen: Vec<String>,
    agreed: Negotiated,
    requests: u32,
}

/// Secrets with which a proof is compared at once. Some tens of microseconds, as much as others may move in one turn.
const TRIES_MAX: usize = 64;
/// Most requests of a login.
const REQUESTS_MAX: u32 = 64;
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;

impl Login {
    /// A connection has opened. `entropy`: identifier and challenge, should CHAP be asked for.
    pub fn new(entropy: [u8; 33]) -> Login {
        Login {
            entropy,
            text: Vec::new(),
            named: false,
            initiator: String::new(),
            isid: [0; 6],
            goal: Goal::Nobodys,
            shown: BTreeMap::new(),
            tried: None,
            tries: 0,
            stage: SECURITY,
            auth: Auth::Open,
            declared: false,
            seen: Vec::new(),
            agreed: Negotiated::default(),
            requests: 0,
        }
    }

    /// Who it says it is, for logs.
    pub fn initiator(&self) -> &str {
        &self.initiator
    }

    /// One login request and its text.
    pub fn request(
        &mut self,
        header: &Header,
        data: &[u8],
        targets: &Targets,
        offer: &Offer,
    ) -> Result<Progress, Failure> {
        self.requests += 1;
        let (flags, first) = (header.0[1], self.requests == 1);
        let (transit, more) = (flags & 0x80 != 0, flags & 0x40 != 0);
        let (current, next) = (flags >> 2 & 3, flags & 3);
        if self.requests > REQUESTS_MAX || transit && more {
            return Err(Failure::Initiator);
        }
        if header.0[3] > 0 {
            return Err(Failure::Version); // Version-min; ours is 0
        }
        let isid = *header.0[8..].first_chunk::<6>().expect("a header has 48 bytes");
        if first {
            self.isid = isid;
            self.stage = current;
        }
        let transits = current < next && next != 2;
        if current != self.stage || current > OPERATIONAL || isid != self.isid || transit && !transits {
            return Err(Failure::Initiator);
        }
        if self.text.len() + data.len() > TEXT_MAX {
            return Err(Failure::Initiator);
        }
        self.text.extend_from_slice(data);
        if more {
            return Ok(Progress::Continue(self.reply(header), Vec::new()));
        }
        self.go_on(header, targets, offer)
    }

    /// What the last request asks for, with all of its text. After [`Progress::Trying`] it is called again, with the same header.
    pub fn go_on(&mut self, header: &Header, targets: &Targets, offer: &Offer) -> Result<Progress, Failure> {
        let (transit, next) = (header.0[1] & 0x80 != 0, header.0[1] & 3);
        let bytes = std::mem::take(&mut self.text);
        let pairs = text::pairs(&bytes).map_err(|_| Failure::Initiator)?;
        if self.try_some(&pairs, targets) {
            self.text = bytes;
            return Ok(Progress::Trying);
        }
        let (reply, mut out) = (self.reply(header), Vec::new());
        if !self.named {
            self.identify(&pairs, header.u16_at(14), targets, &mut out)?;
        }
        self.negotiate(&pairs, targets, offer, &mut out)?;
        self.finish(reply, out, transit.then_some(next), targets)
    }

    fn reply(&self, header: &Header) -> Header {
        let mut reply = Header::reply(response::LOGIN);
        reply.put(1, self.stage << 2).put_u32(16, header.itt());
        reply.0[8..14].copy_from_slice(&self.isid);
        reply
    }

    /// Secrets that a proof was compared with since this was last asked.
    pub fn take_tries(&mut self) -> usize {
        std::mem::take(&mut self.tries)
    }

    /// Compares what a discovery session proves with some more secrets of the user that it names. Whether there are still more.
    ///
    /// Anybody may send such a proof, and a user may have thousands of secrets. All of them are tried, so that time tells nothing.
    fn try_some(&mut self, pairs: &[(&str, &str)], targets: &Targets) -> bool {
        let Auth::Challenged(algorithm) = self.auth else { return false };
        if self.goal != Goal::Discovery || !targets.discovery.users.is_empty() {
            return false;
        }
        let value = |key| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
        let (Some(name), Some(given)) = (value("CHAP_N"), value("CHAP_R")) else { return false };
        let Ok(given) = text::binary(given) else { return false };
        let proof = Proof { algorithm, name, given: &given, identifier: self.entropy[0] };
        let challenge = self.challenge(algorithm);
        let knows = |secret: &[u8]| proof.knows(secret, challenge);
        let tried = targets.directory.proven(name, self.tried.as_deref(), TRIES_MAX, knows);
        for id in tried.opened {
            let there = targets.get(id).filter(|there| there.access.allows(&self.initiator));
            self.shown.extend(there.map(|there| (id, there.edition)));
        }
        self.tries += tried.count;
        self.tried = tried.last;
        self.tried.is_some()
    }

    /// Who may log in; nothing where nobody may.
    fn access<'a>(&self, targets: &'a Targets) -> Result<Option<&'a Access>, Failure> {
        match self.goal {
            Goal::Discovery => Ok(Some(&targets.discovery)),
            Goal::Target(id, edition) => match targets.get(id).ok_or(Failure::NotFound)? {
                target if target.edition == edition => Ok(Some(&target.access)),
                // What was asked and proven is another than would be now.
                _ => Err(Failure::Authentication),
            },
            Goal::Nobodys => Ok(None),
        }
    }

    /// Whether a proof is asked for. In a discovery session where some target asks for one, whoever offers a proof gives it.
    fn asks(&self, targets: &Targets, offers: bool) -> Result<bool, Failure> {
        let access = self.access(targets)?;
        let may = self.goal == Goal::Discovery && offers && targets.directory.is_guarded();
        Ok(may || access.is_none_or(|access| !access.users.is_empty()))
    }

    /// The first request says who, and for what (RFC 7143 6.3.1).
    fn identify(
        &mut self,
        pairs: &[(&str, &str)],
        tsih: u16,
        targets: &Targets,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let value = |key| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
        let initiator = value("InitiatorName").ok_or(Failure::Missing)?;
        if initiator.is_empty()
            || initiator.len() > 223
            || initiator.chars().any(|c| c.is_control() || c == ' ')
        {
            return Err(Failure::Initiator);
        }
        self.initiator = initiator.to_owned();
        match value("SessionType") {
            None | Some("Normal") => {
                let name = value("TargetName").ok_or(Failure::Missing)?;
                let found = targets.find(name);
                let allowed = |id: &TargetId| targets.get(*id).is_some_and(|t| t.access.allows(initiator));
                self.goal = match found.filter(allowed) {
                    Some(id) => Goal::Target(id, targets.get(id).map_or(0, |target| target.edition)),
                    None if targets.directory.is_guarded() => Goal::Nobodys,
                    None => return Err(Failure::NotFound),
                };
            }
            Some("Discovery") if targets.discovery.allows(initiator) => self.goal = Goal::Discovery,
            Some("Discovery") => return Err(Failure::Forbidden),
            Some(_) => return Err(Failure::Kind),
        }
        if tsih != 0 {
            let known = targets.has_session(initiator, self.isid, tsih);
            return Err(if known { Failure::Connections } else { Failure::NoSession });
        }
        if !self.asks(targets, false)? {
            self.auth = Auth::Done;
        } else if self.stage != SECURITY {
            return Err(Failure::Authentication);
        }
        if self.goal != Goal::Discovery {
            text::push(out, "TargetPortalGroupTag", &targets.port.to_string());
        }
        self.named = true;
        Ok(())
    }

    fn negotiate(
        &mut self,
        pairs: &[(&str, &str)],
        targets: &Targets,
        offer: &Offer,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let mut chap = Vec::new();
        for &(key, value) in pairs {
            match key {
                "InitiatorName" | "SessionType" | "TargetName" | "InitiatorAlias" => continue,
                _ if key.starts_with("CHAP_") => {
                    chap.push((key, value));
                    continue;
                }
                _ => {}
            }
            // Each is compared with all before it.
            if self.seen.len() >= KEYS_MAX || self.seen.iter().any(|seen| seen == key) {
                return Err(Failure::Initiator);
            }
            self.seen.push(key.to_owned());
            if key == "AuthMethod" {
                self.choose_method(value, targets, out)?;
                continue;
            }
            match negotiate(key, value, offer, &mut self.agreed) {
                Answer::Value(answer) => text::push(out, key, &answer),
                Answer::Silent => {}
                Answer::NotUnderstood => text::push(out, key, "NotUnderstood"),
                Answer::Reject => text::push(out, key, "Reject"),
            }
        }
        if !chap.is_empty() {
            self.authenticate(&chap, targets, out)?;
        }
        if self.stage == OPERATIONAL && !self.declared {
            self.declared = true;
            text::push(out, "MaxRecvDataSegmentLength", &offer.receive_max.to_string());
        }
        Ok(())
    }

    fn choose_method(&mut self, value: &str, targets: &Targets, out: &mut Vec<u8>) -> Result<(), Failure> {
        let offers = |method| value.split(',').any(|name| name == method);
        let asks = self.asks(targets, offers("CHAP"))?;
        let method = if asks { "CHAP" } else { "None" };
        if self.stage != SECURITY || !offers(method) {
            return Err(Failure::Authentication);
        }
        if asks {
            self.auth = Auth::Chosen;
        }
        text::push(out, "AuthMethod", method);
        Ok(())
    }

    /// CHAP's own keys (RFC 7143 12.1.3).
    fn authenticate(
        &mut self,
        keys: &[(&str, &str)],
        targets: &Targets,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let value = |key| keys.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
        match self.auth {
            Auth::Chosen => {
                let list = value("CHAP_A").ok_or(Failure::Missing)?;
                let algorithm = Algorithm::choose(list).ok_or(Failure::Authentication)?;
                text::push(out, "CHAP_A", algorithm.number());
                text::push(out, "CHAP_I", &self.entropy[0].to_string());
                text::push(out, "CHAP_C", &text::to_hexadecimal(self.challenge(algorithm)));
                self.auth = Auth::Challenged(algorithm);
                Ok(())
            }
            Auth::Challenged(algorithm) => {
                let name = value("CHAP_N").ok_or(Failure::Missing)?;
                let given = value("CHAP_R").ok_or(Failure::Missing)?;
                let given = text::binary(given).map_err(|_| Failure::Initiator)?;
                let proof = Proof { algorithm, name, given: &given, identifier: self.entropy[0] };
                let challenge = self.challenge(algorithm).to_vec();
                let access = self.proven(&proof, &challenge, targets)?;
                if let (Some(identifier), Some(theirs)) = (value("CHAP_I"), value("CHAP_C")) {
                    let ours = access.and_then(|access| access.target.as_ref());
                    let ours = ours.ok_or(Failure::Authentication)?;
                    let identifier = text::number(identifier).ok().and_then(|n| u8::try_from(n).ok());
                    let identifier = identifier.ok_or(Failure::Initiator)?;
                    let theirs = text::binary(theirs).map_err(|_| Failure::Initiator)?;
                    // Our own challenge sent back would have us compute what we ask for (RFC 7143 9.2.1).
                    if theirs == challenge || theirs.is_empty() || theirs.len() > 1024 {
                        return Err(Failure::Authentication);
                    }
                    let answer = algorithm.response(identifier, &ours.secret, &theirs);
                    text::push(out, "CHAP_N", &ours.name);
                    text::push(out, "CHAP_R", &text::to_hexadecimal(&answer));
                }
                self.auth = Auth::Done;
                Ok(())
            }
            Auth::Open | Auth::Done => Err(Failure::Initiator),
        }
    }

    /// By whose access a proof is right; in a discovery session, which targets it shows.
    fn proven<'a>(
        &mut self,
        proof: &Proof<'_>,
        challenge: &[u8],
        targets: &'a Targets,
    ) -> Result<Option<&'a Access>, Failure> {
        if self.goal == Goal::Discovery && targets.discovery.users.is_empty() {
            // It was tried before: of what it opens, what is still there by the same edition.
            self.shown.retain(|id, edition| targets.get(*id).is_some_and(|there| there.edition == *edition));
            let first = self.shown.keys().next();
            return Ok(first.and_then(|id| targets.get(*id)).map(|there| &there.access));
        }
        match self.access(targets)? {
            Some(access) if proof.is_right(access, challenge) => Ok(Some(access)),
            Some(_) => Err(Failure::Authentication),
            None => {
                // What is compared with nothing takes as long.
                proof.is_right(&Access { users: vec![proof.of_nobody()], ..Access::default() }, challenge);
                Err(Failure::Authentication)
            }
        }
    }

    fn challenge(&self, algorithm: Algorithm) -> &[u8] {
        &self.entropy[1..1 + algorithm.challenge_len()]
    }

    fn finish(
        &mut self,
        mut reply: Header,
        out: Vec<u8>,
        next: Option<u8>,
        targets: &Targets,
    ) -> Result<Progress, Failure> {
        let Some(next) = next.filter(|_| self.stage != SECURITY || self.auth == Auth::Done) else {
            if next.is_some() && self.auth == Auth::Open {
                return Err(Failure::Authentication); // it would go on without a proof
            }
            return Ok(Progress::Continue(reply, out));
        };
        reply.put(1, 0x80 | self.stage << 2 | next);
        self.stage = next;
        if next != FULL_FEATURE {
            return Ok(Progress::Continue(reply, out));
        }
        self.access(targets)?; // the target may have gone meanwhile, or be for others
        let mut agreed = self.agreed.clone();
        agreed.first_burst = agreed.first_burst.min(agreed.max_burst);
        let target = match self.goal {
            Goal::Target(id, _) => Some(id),
            Goal::Discovery => None,
            Goal::Nobodys => return Err(Failure::Authentication),
        };
        let initiator = self.initiator.clone();
        let shown = std::mem::take(&mut self.shown).into_iter().collect();
        let accepted = Accepted { initiator, isid: self.isid, target, shown, agreed };
        Ok(Progress::Done(reply, out, Box::new(accepted)))
    }
}

/// What an initiator answers to a challenge.
struct Proof<'a> {
    algorithm: Algorithm,
    name: &'a str,
    given: &'a [u8],
    identifier: u8,
}

impl Proof<'_> {
    fn is_right(&self, access: &Access, challenge: &[u8]) -> bool {
        access
            .users
            .iter()
            .filter(|user| user.name == self.name)
            .any(|user| self.knows(&user.secret, challenge))
    }

    fn knows(&self, secret: &[u8], challenge: &[u8]) -> bool {
        chap::equal(&self.algorithm.response(self.identifier, secret, challenge), self.given)
    }

    /// Somebody of that name, with a secret that is compared and thrown away.
    fn of_nobody(&self) -> Secret {
        Secret { name: self.name.to_owned(), secret: vec![0; 16] }
    }
}

/// The response that ends a login.
pub fn refusal(header: &Header, failure: Failure) -> Header {
    let mut reply = Header::reply(response::LOGIN);
    reply.put(1, 0).put_u32(16, header.itt()).put_u16(36, failure as u16);
    reply.0[8..14].copy_from_slice(&header.0[8..14]);
    reply
}
