//! Hosts that prove who they are, hosts that cannot, and hosts that try something else.
//!
//! The host's end here is written from the specification, with other calls than the controller's, and `OTHERS` has what a
//! program in another language computes for the same conversation.

use crate::host::*;
use henge_core::{Duration, Instant};
use henge_nvme::auth::{Group, Hash, Key};
use henge_nvme::wire::{le16, le32, pdu};
use henge_nvme::{Access, Limits, Subsystems, Want};
use hmac::{Hmac, KeyInit, Mac};
use proptest::prelude::*;
use sha2::{Digest, Sha256, Sha384, Sha512};

const ID: u16 = 0x1234;
const CHALLENGE2: u8 = 0xc2;
const NUMBER2: u32 = 77;

/// A secret of 32 bytes as users write it.
fn written(byte: u8) -> String {
    use base64::Engine;
    let mut bytes = vec![byte; 32];
    bytes.extend(crc32fast::hash(&bytes.clone()).to_le_bytes());
    format!("DHHC-1:01:{}:", base64::engine::general_purpose::STANDARD.encode(bytes))
}

fn key(byte: u8) -> Key {
    Key::parse(&written(byte)).expect("well formed")
}

/// The host knows secret 1, the controller proves to know secret 2.
fn access() -> Access {
    let keys = [(HOST.to_owned(), key(1))].into();
    Access { hosts: vec![HOST.into()], keys, controller_key: Some(key(2)), ..Access::default() }
}

fn hmac(hash: Hash, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let text = parts.concat();
    match hash {
        Hash::Sha256 => {
            Hmac::<Sha256>::new_from_slice(key).unwrap().chain_update(text).finalize().into_bytes().to_vec()
        }
        Hash::Sha384 => {
            Hmac::<Sha384>::new_from_slice(key).unwrap().chain_update(text).finalize().into_bytes().to_vec()
        }
        Hash::Sha512 => {
            Hmac::<Sha512>::new_from_slice(key).unwrap().chain_update(text).finalize().into_bytes().to_vec()
        }
    }
}

fn digest(hash: Hash, bytes: &[u8]) -> Vec<u8> {
    match hash {
        Hash::Sha256 => Sha256::digest(bytes).to_vec(),
        Hash::Sha384 => Sha384::digest(bytes).to_vec(),
        Hash::Sha512 => Sha512::digest(bytes).to_vec(),
    }
}

/// A host that authenticates.
struct Prover {
    secret: u8,
    hash: Hash,
    group: Group,
    /// It asks who the controller is.
    asks: bool,
}

/// x, by which the host draws its share: 2^5 is a fine value, and (2^y)^5 is computed without much.
const X: u32 = 5;

impl Prover {
    fn new(hash: Hash, group: Group, asks: bool) -> Prover {
        Prover { secret: 1, hash, group, asks }
    }

    fn len(&self) -> usize {
        [32, 48, 64][usize::from(self.hash.number()) - 1]
    }

    fn negotiate(&self) -> Vec<u8> {
        let mut out = vec![0; 72];
        out[4..6].copy_from_slice(&ID.to_le_bytes());
        (out[7], out[8], out[10], out[11]) = (1, 1, 1, 1);
        (out[12], out[42]) = (self.hash.number(), self.group.number());
        out
    }

    /// 2^5, or (2^y)^5, as the other side has it, by a library's plain arithmetic.
    fn powers(&self, public: &[u8]) -> (Vec<u8>, Vec<u8>) {
        use crypto_bigint::{BoxedUint, NonZero};
        if self.group.is_null() {
            return (Vec::new(), Vec::new());
        }
        let bits = public.len() as u32 * 8;
        let prime = NonZero::new(BoxedUint::from_be_hex(PRIME_2048, 2048).unwrap()).unwrap();
        assert_eq!(bits, 2048, "the host's arithmetic is for one prime");
        let base = BoxedUint::from_be_slice(public, bits).unwrap();
        let mut shared = base.clone();
        for _ in 1..X {
            shared = shared.mul_mod(&base, &prime);
        }
        let mut ours = vec![0; public.len()];
        ours[public.len() - 1] = 1 << X;
        (ours, shared.to_be_bytes().into_vec())
    }

    fn response(
        &self,
        secret: u8,
        names: [&str; 2],
        role: &str,
        challenge: &[u8],
        number: u32,
        shared: &[u8],
    ) -> Vec<u8> {
        let key = hmac(Hash::Sha256, &[secret; 32], &[names[0].as_bytes(), b"NVMe-over-Fabrics"]);
        let challenge = match shared {
            [] => challenge.to_vec(),
            _ => hmac(self.hash, &digest(self.hash, shared), &[challenge]),
        };
        let rest = [&number.to_le_bytes()[..], &ID.to_le_bytes(), &[0], role.as_bytes()].concat();
        let names = [names[0].as_bytes(), &[0], names[1].as_bytes()].concat();
        hmac(self.hash, &key, &[&challenge, &rest, &names])
    }

    /// The reply to a challenge, and the response that it asks for.
    fn reply(&self, message: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (len, value) = (self.len(), usize::from(le16(message, 10)));
        assert_eq!((message[0], message[1], le16(message, 4)), (1, 1, ID));
        assert_eq!(
            (usize::from(message[6]), message[8], message[9]),
            (len, self.hash.number(), self.group.number())
        );
        let (challenge, number) = (&message[16..16 + len], le32(message, 12));
        let (ours, shared) = self.powers(&message[16 + len..16 + len + value]);
        let mut out = vec![0; 16];
        (out[0], out[1], out[6], out[8]) = (1, 2, len as u8, u8::from(self.asks));
        out[4..6].copy_from_slice(&ID.to_le_bytes());
        out[10..12].copy_from_slice(&(ours.len() as u16).to_le_bytes());
        out[12..16].copy_from_slice(&(if self.asks { NUMBER2 } else { 0 }).to_le_bytes());
        out.extend(self.response(self.secret, [HOST, NQN], "HostHost", challenge, number, &shared));
        out.extend(vec![CHALLENGE2; len]);
        out.extend(ours);
        let expected = self.response(2, [NQN, HOST], "Controller", &vec![CHALLENGE2; len], NUMBER2, &shared);
        (out, expected)
    }
}

fn success2() -> Vec<u8> {
    let mut out = vec![1, 4, 0, 0, 0, 0];
    out[4..6].copy_from_slice(&ID.to_le_bytes());
    out.resize(16, 0);
    out
}

fn send(cid: u16, len: usize) -> Entry {
    Entry::new(0x7f, cid).put(4, &[5]).put(41, &[1, 1, 0xe9]).dword(11, len as u32).in_capsule(len)
}

fn fetch(cid: u16) -> Entry {
    Entry::new(0x7f, cid).put(4, &[6]).put(41, &[1, 1, 0xe9]).dword(11, 4096).at_host(4096)
}

fn tell(s: &mut Subsystems, driver: &mut Driver, message: &[u8]) -> u16 {
    driver.feed(s, &Wire::default().command(send(9, message.len()), message));
    driver.completion().status
}

fn ask(s: &mut Subsystems, driver: &mut Driver) -> Vec<u8> {
    driver.feed(s, &Wire::default().command(fetch(8), &[]));
    let replies = driver.replies();
    assert_eq!((replies[0].kind, replies[0].data.len()), (pdu::C2H_DATA, 4096), "{replies:?}");
    replies[0].data.clone()
}

/// Why the exchange failed; the connection must be over then.
fn refusal(s: &mut Subsystems, driver: &mut Driver) -> u8 {
    let message = ask(s, driver);
    assert_eq!((message[0], message[1], message[6]), (0, 0xf1, 1), "a failure");
    assert_eq!(driver.session.want(), Want::Nothing, "the connection ends");
    message[7]
}

/// An admin queue of a host that has proved nothing yet.
fn begin(access: Access) -> (Subsystems, Driver, u16) {
    let (mut s, id) = subsystems();
    s.set_access(id, access);
    let (driver, result) = open(&mut s, 0, 0xffff);
    assert_eq!(result >> 16, 2, "the host is asked to authenticate");
    (s, driver, result as u16)
}

fn open(s: &mut Subsystems, qid: u16, cntlid: u16) -> (Driver, u64) {
    let mut driver = Driver::new(s, Limits::default());
    let (entry, data) = connect(qid, cntlid, NQN, true);
    driver.feed(s, &Wire::default().hello());
    driver.replies();
    driver.feed(s, &Wire::default().command(entry, &data));
    let joined = driver.completion();
    assert_eq!(joined.status, 0);
    (driver, joined.result)
}

/// All of it. Whether the host is let in, and believes the controller.
fn prove(s: &mut Subsystems, driver: &mut Driver, host: &Prover) {
    assert_eq!(tell(s, driver, &host.negotiate()), 0);
    let (reply, expected) = host.reply(&ask(s, driver));
    assert_eq!(tell(s, driver, &reply), 0);
    let success = ask(s, driver);
    assert_eq!((success[0], success[1], usize::from(success[6])), (1, 3, host.len()), "{:?}", &success[..16]);
    assert_eq!((success[8] == 1, success[16..16 + host.len()] == expected), (host.asks, host.asks));
    if host.asks {
        assert_eq!(status_of_enable(s, driver), 0x191, "not before the host believes the controller");
        assert_eq!(tell(s, driver, &success2()), 0);
    }
}

fn status_of_enable(s: &mut Subsystems, driver: &mut Driver) -> u16 {
    driver.feed(s, &Wire::default().command(enable(1), &[]));
    driver.completion().status
}

#[test]
fn who_knows_the_secret_is_let_in_and_nobody_before() {
    for hash in [Hash::Sha256, Hash::Sha384, Hash::Sha512] {
        for (group, asks) in [(Group::Null, false), (Group::Null, true), (Group::Ffdhe2048, true)] {
            let (mut s, mut admin, cntlid) = begin(access());
            let host = Prover::new(hash, group, asks);
            assert_eq!(status_of_enable(&mut s, &mut admin), 0x191);
            prove(&mut s, &mut admin, &host);
            assert_eq!(status_of_enable(&mut s, &mut admin), 0);
            // Each queue is a connection of its own, and so is its proof.
            let (mut io, result) = open(&mut s, 1, cntlid);
            assert_eq!(result, 0x2_0000 | u64::from(cntlid));
            let read = Wire::default().command(Entry::new(2, 3).blocks(0, 1).at_host(512), &[]);
            io.feed(&mut s, &read);
            assert_eq!(io.completion().status, 0x191);
            prove(&mut s, &mut io, &host);
            io.feed(&mut s, &read);
            assert_eq!(io.replies().last().unwrap().completion().status, 0);
            // And once more, while it is in use.
            prove_again(&mut s, &mut admin, &host);
        }
    }
}

fn prove_again(s: &mut Subsystems, admin: &mut Driver, host: &Prover) {
    assert_eq!(tell(s, admin, &host.negotiate()), 0);
    assert_eq!(status_of_enable(s, admin), 0, "what was proved stays so meanwhile");
    let (reply, _) = host.reply(&ask(s, admin));
    assert_eq!(tell(s, admin, &reply), 0);
    ask(s, admin);
    if host.asks {
        assert_eq!(tell(s, admin, &success2()), 0);
    }
}

#[test]
fn before_its_proof_a_host_can_do_nothing() {
    let (mut s, mut admin, _) = begin(access());
    for opcode in 0..=0xff {
        for kind in [0, 1, 4, 8] {
            let entry = Entry::new(opcode, 2).put(4, &[kind]).dword(10, 1).dword(11, 0x14).at_host(4096);
            admin.feed(&mut s, &Wire::default().command(entry, &[]));
            let refused = admin.completion();
            assert_eq!((refused.status, refused.final_), (0x191, true), "opcode {opcode:x}, kind {kind}");
        }
    }
    assert!(admin.pending.is_empty());
}

#[test]
fn who_does_not_know_the_secret_stays_out() {
    let (mut s, mut admin, _) = begin(access());
    let host = Prover { secret: 3, ..Prover::new(Hash::Sha256, Group::Null, false) };
    tell(&mut s, &mut admin, &host.negotiate());
    let (reply, _) = host.reply(&ask(&mut s, &mut admin));
    assert_eq!(tell(&mut s, &mut admin, &reply), 0);
    assert_eq!(status_of_enable(&mut s, &mut admin), 0x191);
    assert_eq!(refusal(&mut s, &mut admin), 1);
    // A host that asks a controller which has no secret.
    let (mut s, mut admin, _) = begin(Access { controller_key: None, ..access() });
    let host = Prover::new(Hash::Sha256, Group::Null, true);
    tell(&mut s, &mut admin, &host.negotiate());
    let (reply, _) = host.reply(&ask(&mut s, &mut admin));
    tell(&mut s, &mut admin, &reply);
    assert_eq!(status_of_enable(&mut s, &mut admin), 0x191);
    assert_eq!(refusal(&mut s, &mut admin), 1);
}

/// All that a host gets to know of a subsystem whose secret it does not know.
fn learned(s: &mut Subsystems, nqn: &str, host: &Prover) -> Vec<Vec<u8>> {
    let mut learned = Vec::new();
    let mut driver = Driver::new(s, Limits::default());
    let (entry, data) = connect(0, 0xffff, nqn, true);
    driver.feed(s, &Wire::default().hello());
    driver.replies();
    driver.feed(s, &Wire::default().command(entry, &data));
    let joined = driver.completion();
    learned.push(vec![joined.status as u8, (joined.result >> 16) as u8]);
    // An I/O queue of a controller that is not ready, and commands before the proof.
    let mut io = Driver::new(s, Limits::default());
    let (entry, data) = connect(1, joined.result as u16, nqn, true);
    io.feed(s, &Wire::default().hello());
    io.replies();
    io.feed(s, &Wire::default().command(entry, &data));
    let refused = io.completion();
    learned.push([refused.status.to_le_bytes().to_vec(), refused.result.to_le_bytes().to_vec()].concat());
    learned.push(status_of_enable(s, &mut driver).to_le_bytes().to_vec());
    tell(s, &mut driver, &host.negotiate());
    let challenge = ask(s, &mut driver);
    // All but the values that are drawn, and the number.
    learned.push(challenge[..12].to_vec());
    if challenge[1] == 1 {
        let (reply, _) = host.reply(&challenge);
        learned.push(tell(s, &mut driver, &reply).to_le_bytes().to_vec());
        learned.push(vec![refusal(s, &mut driver)]);
    }
    learned
}

#[test]
fn what_is_not_there_answers_as_what_is_forbidden() {
    for (group, weakest) in
        [(Group::Null, Group::Null), (Group::Null, Group::Ffdhe2048), (Group::Ffdhe2048, Group::Null)]
    {
        for asks in [false, true] {
            let (mut s, id) = subsystems();
            s.set_access(id, Access { weakest, ..access() });
            let named = Access { hosts: vec!["nqn.else".into()], ..Access::default() };
            s.add("nqn.named", named, namespace()).expect("a name");
            // Secrets that nobody knows, and zeroes, which stand in for them.
            for secret in [3, 0] {
                let host = Prover { secret, ..Prover::new(Hash::Sha256, group, asks) };
                let forbidden = learned(&mut s, NQN, &host);
                assert_eq!(forbidden[2], 0x191_u16.to_le_bytes());
                for other in ["nqn.none", "nqn.named"] {
                    assert_eq!(forbidden, learned(&mut s, other, &host), "{other}, {group:?}, {weakest:?}");
                }
            }
        }
    }
}

#[test]
fn controllers_end_when_it_is_said_anew_who_may_connect() {
    let (mut s, id) = subsystems();
    s.set_access(id, access());
    let (mut admin, _) = open(&mut s, 0, 0xffff);
    prove(&mut s, &mut admin, &Prover::new(Hash::Sha256, Group::Null, false));
    s.set_access(id, access());
    assert!(s.next_poked().is_none(), "nothing has changed");
    s.set_access(id, Access { key: Some(key(9)), ..access() });
    while s.next_poked().is_some() {
        admin.session.poke(&mut s);
    }
    assert_eq!(admin.session.want(), Want::Nothing);
}

#[test]
fn what_breaks_the_rules_is_told_why() {
    let host = Prover::new(Hash::Sha384, Group::Ffdhe2048, false);
    let negotiation = |change: &dyn Fn(&mut Vec<u8>)| {
        let (mut s, mut admin, _) = begin(Access { weakest: Group::Ffdhe2048, ..access() });
        let mut message = host.negotiate();
        change(&mut message);
        assert_eq!(tell(&mut s, &mut admin, &message), 0);
        refusal(&mut s, &mut admin)
    };
    for (at, value, why) in [
        (6, 1, 3),
        (7, 0, 2),
        (7, 2, 6),
        (8, 2, 2),
        (10, 31, 6),
        (11, 31, 6),
        (12, 4, 4),
        (42, 6, 5),
        (42, 0, 5),
        (1, 2, 7),
        (0, 1, 7),
    ] {
        assert_eq!(negotiation(&|message| message[at] = value), why, "byte {at} is {value}");
    }
    assert_eq!(negotiation(&|message| message.truncate(71)), 6);
    assert_eq!(negotiation(&|message| message.truncate(7)), 6);
    assert_eq!(negotiation(&|message| message.truncate(5)), 6);

    let replied = |change: &dyn Fn(&mut Vec<u8>)| {
        let (mut s, mut admin, _) = begin(access());
        tell(&mut s, &mut admin, &host.negotiate());
        let (mut reply, _) = host.reply(&ask(&mut s, &mut admin));
        change(&mut reply);
        assert_eq!(tell(&mut s, &mut admin, &reply), 0);
        assert_eq!(status_of_enable(&mut s, &mut admin), 0x191);
        refusal(&mut s, &mut admin)
    };
    for (at, value, why) in [(0, 0, 7), (1, 4, 7), (4, 0, 6), (6, 32, 6), (11, 2, 6), (10, 1, 6), (16, 0, 1)]
    {
        assert_eq!(
            replied(&|message| message[at] = if message[at] == value { !value } else { value }),
            why,
            "byte {at}"
        );
    }
    // Shares by which everybody would know what both know: 0 and 1.
    for last in [0, 1] {
        assert_eq!(replied(&|message| *message.last_mut().unwrap() = last), 6);
    }
    assert_eq!(replied(&|message| message.truncate(message.len() - 1)), 6);
    assert_eq!(replied(&|message| message.truncate(10)), 6);

    // Messages when none is due; and the host that gives up.
    let (mut s, mut admin, _) = begin(access());
    assert_eq!(refusal(&mut s, &mut admin), 7);
    let (mut s, mut admin, _) = begin(access());
    assert_eq!(tell(&mut s, &mut admin, &success2()), 0);
    assert_eq!(tell(&mut s, &mut admin, &host.negotiate()), 0, "too late");
    assert_eq!(refusal(&mut s, &mut admin), 7);
    let (mut s, mut admin, _) = begin(access());
    assert_eq!(tell(&mut s, &mut admin, &[0, 0xf0, 0, 0, 0, 0, 1, 1]), 0);
    assert_eq!(admin.session.want(), Want::Nothing);
    // Other security protocols, no data, no room.
    let (mut s, mut admin, _) = begin(access());
    for entry in [
        fetch(1).put(43, &[0]),
        fetch(1).put(41, &[0]),
        fetch(1).dword(11, 0),
        send(1, 16).put(42, &[2]),
        send(1, 0),
        send(1, 4097),
    ] {
        let data = vec![0; if entry.0[39] == 1 { le32(&entry.0, 32) as usize } else { 0 }];
        admin.feed(&mut s, &Wire::default().command(entry, &data));
        assert_eq!(admin.completion().status, 2);
    }
}

/// Where hosts have nothing to prove, who begins to all the same is told at once that it proves nothing: no power is computed for it.
#[test]
fn nothing_is_computed_where_nothing_can_be_proved() {
    let (mut s, _) = subsystems();
    let (mut driver, result) = open(&mut s, 0, 0xffff);
    assert_eq!(result >> 16, 0, "the host is asked for nothing");
    driver.hold = true;
    let host = Prover::new(Hash::Sha256, Group::Ffdhe2048, false);
    assert_eq!(tell(&mut s, &mut driver, &host.negotiate()), 0);
    assert_eq!((driver.deriving, refusal(&mut s, &mut driver)), (None, 1));
}

/// A reply to another queue's challenge, and one that was right before, prove nothing. The other queue does not notice.
#[test]
fn a_reply_is_to_the_challenge_of_its_own_queue() {
    for group in [Group::Null, Group::Ffdhe2048] {
        let (mut s, mut one, _) = begin(access());
        let (mut other, _) = open(&mut s, 0, 0xffff);
        let (mut third, _) = open(&mut s, 0, 0xffff);
        let host = Prover::new(Hash::Sha256, group, false);
        for queue in [&mut one, &mut other, &mut third] {
            assert_eq!(tell(&mut s, queue, &host.negotiate()), 0);
        }
        let (reply, _) = host.reply(&ask(&mut s, &mut one));
        ask(&mut s, &mut other);
        assert_eq!(tell(&mut s, &mut other, &reply), 0);
        assert_eq!(refusal(&mut s, &mut other), 1, "it is to another challenge");
        assert_eq!(tell(&mut s, &mut third, &reply), 0);
        assert_eq!(refusal(&mut s, &mut third), 7, "its own was not fetched yet");
        assert_eq!(tell(&mut s, &mut one, &reply), 0);
        assert_eq!(ask(&mut s, &mut one)[..2], [1, 3]);
        assert_eq!(status_of_enable(&mut s, &mut one), 0);
        // Who proves it anew, does so by a new challenge.
        assert_eq!(tell(&mut s, &mut one, &host.negotiate()), 0);
        ask(&mut s, &mut one);
        assert_eq!(tell(&mut s, &mut one, &reply), 0);
        assert_eq!(refusal(&mut s, &mut one), 1, "it was to another challenge");
    }
}

#[test]
fn one_power_at_a_time_and_none_for_who_is_gone() {
    let (mut s, mut admin, _) = begin(access());
    let host = Prover::new(Hash::Sha256, Group::Ffdhe2048, false);
    admin.hold = true;
    let negotiate = Wire::default().command(send(5, 72), &host.negotiate());
    admin.feed(&mut s, &negotiate);
    let task = admin.deriving.take().expect("the controller's share");
    assert_eq!(admin.replies(), [], "it is answered when that is there");
    assert_eq!(tell(&mut s, &mut admin, &host.negotiate()), 0);
    assert_eq!(admin.deriving, None);
    admin.derive(&mut s, task);
    admin.work(&mut s);
    assert_eq!(admin.completion().cid, 5);
    assert_eq!(refusal(&mut s, &mut admin), 7);
    // The connection goes while the power is computed.
    let (mut gone, _) = open(&mut s, 0, 0xffff);
    gone.hold = true;
    gone.feed(&mut s, &negotiate);
    let task = gone.deriving.take().expect("the controller's share");
    let power = gone.session.derivation(task).unwrap().run();
    gone.session.close(&mut s);
    gone.session.derived(&mut s, task, power);
    assert!(gone.session.is_over());
}

#[test]
fn a_thousand_half_open_connections_end_by_themselves() {
    let after = |seconds| Instant::ZERO + Duration::from_secs(seconds);
    let (mut s, id) = subsystems();
    s.set_access(id, access());
    let host = Prover::new(Hash::Sha256, Group::Null, false);
    // Some say nothing, some ICReq, some Connect, some a part of their proof; one of them all of it.
    let mut drivers: Vec<Driver> = (0..1000)
        .map(|n| match n % 4 {
            0 => Driver::new(&mut s, Limits::default()),
            1 => {
                let mut driver = Driver::new(&mut s, Limits::default());
                driver.feed(&mut s, &Wire::default().hello());
                driver
            }
            2 => open(&mut s, 0, 0xffff).0,
            _ => {
                let (mut driver, _) = open(&mut s, 0, 0xffff);
                tell(&mut s, &mut driver, &host.negotiate());
                ask(&mut s, &mut driver);
                driver
            }
        })
        .collect();
    let (mut fine, _) = open(&mut s, 0, 0xffff);
    prove(&mut s, &mut fine, &host);
    let mut alive = |seconds: u64, s: &mut Subsystems| {
        drivers.iter_mut().for_each(|driver| driver.session.tick(s, after(seconds)));
        drivers.iter().filter(|driver| driver.session.want() != Want::Nothing).count()
    };
    assert_eq!(alive(9, &mut s), 1000);
    assert_eq!(alive(10, &mut s), 500, "whoever is no queue is gone");
    assert_eq!(alive(39, &mut s), 500);
    assert_eq!(alive(40, &mut s), 0, "and so is who has proved nothing");
    fine.session.tick(&mut s, after(1000));
    assert_eq!(status_of_enable(&mut s, &mut fine), 0, "nobody else notices");
    // Their controllers are gone, too: their numbers serve again, and an I/O queue of theirs is refused.
    let mut late = Driver::new(&mut s, Limits::default());
    late.feed(&mut s, &Wire::default().hello());
    late.replies();
    let (entry, data) = connect(1, 2, NQN, true);
    late.feed(&mut s, &Wire::default().command(entry, &data));
    assert_eq!(late.completion().status, 0x182);
}

#[test]
fn the_smallest_group_that_is_good_enough_is_taken() {
    for (offered, weakest, taken) in [
        (&[0, 3, 1][..], Group::Null, Some(1)),
        (&[0, 3, 1], Group::Ffdhe3072, Some(3)),
        (&[0], Group::Null, Some(0)),
        (&[0, 1], Group::Ffdhe3072, None),
        (&[9, 5], Group::Null, Some(5)),
    ] {
        let (mut s, mut admin, _) = begin(Access { weakest, ..access() });
        let mut message = Prover::new(Hash::Sha512, Group::Null, false).negotiate();
        message[11] = offered.len() as u8;
        message[42..42 + offered.len()].copy_from_slice(offered);
        assert_eq!(tell(&mut s, &mut admin, &message), 0);
        match taken {
            None => assert_eq!(refusal(&mut s, &mut admin), 5),
            Some(group) => assert_eq!(ask(&mut s, &mut admin)[9], group, "of {offered:?}"),
        }
    }
}

#[test]
fn responses_are_those_that_others_compute() {
    // tests/vectors/dhchap.py prints these: SHA-256, first without a group, then with ffdhe2048.
    for (group, [challenge, share, host, controller]) in
        [(Group::Null, OTHERS[0]), (Group::Ffdhe2048, OTHERS[1])]
    {
        let (mut s, mut admin, _) = begin(access());
        let prover = Prover::new(Hash::Sha256, group, true);
        tell(&mut s, &mut admin, &prover.negotiate());
        let message = ask(&mut s, &mut admin);
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!((hex(&message[16..24]), hex(&message[48..56])), (challenge.into(), share.into()));
        let (mut reply, _) = prover.reply(&message);
        assert_eq!(hex(&reply[16..48]), host);
        reply[16..48].copy_from_slice(
            &(0..32).map(|n| u8::from_str_radix(&host[2 * n..][..2], 16).unwrap()).collect::<Vec<_>>(),
        );
        tell(&mut s, &mut admin, &reply);
        assert_eq!(hex(&ask(&mut s, &mut admin)[16..48]), controller);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    /// Whatever is changed on the way, in the challenge or in the reply, the host is not let in; and whatever it sends instead.
    #[test]
    fn a_changed_word_proves_nothing(
        in_challenge in any::<bool>(),
        at in any::<prop::sample::Index>(),
        bit in 0_u8..8,
        noise in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 0..4),
    ) {
        let (mut s, mut admin, _) = begin(access());
        let host = Prover::new(Hash::Sha256, Group::Null, false);
        tell(&mut s, &mut admin, &host.negotiate());
        let mut challenge = ask(&mut s, &mut admin);
        if in_challenge {
            // The number, or the value.
            challenge[12 + at.index(36)] ^= 1_u8 << bit;
        }
        let (mut reply, _) = host.reply(&challenge);
        if !in_challenge {
            reply[16 + at.index(32)] ^= 1_u8 << bit;
        }
        tell(&mut s, &mut admin, &reply);
        for message in noise {
            if admin.session.want() == Want::Nothing {
                break;
            }
            tell(&mut s, &mut admin, &message);
        }
        prop_assert!(admin.session.want() == Want::Nothing || status_of_enable(&mut s, &mut admin) == 0x191);
    }
}

const PRIME_2048: &str = "\
ffffffffffffffffadf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695a9e13641146433fbcc939dce249b3ef97d2f\
    e363630c75d8f681b202aec4617ad3df1ed5d5fd65612433f51f5f066ed0856365553ded1af3b557135e7f57c935984f0c70\
    e0e68b77e2a689daf3efe8721df158a136ade73530acca4f483a797abc0ab182b324fb61d108a94bb2c8e3fbb96adab760d7\
    f4681d4f42a3de394df4ae56ede76372bb190b07a7c8ee0a6d709e02fce1cdf7e2ecc03404cd28342f619172fe9ce98583ff\
    8e4f1232eef28183c3fe3b1b4c6fad733bb5fcbc2ec22005c58ef1837d1683b2c6f34a26c1b2effa886b423861285c97ffff\
    ffffffffffff";

const OTHERS: [[&str; 4]; 2] = [
    [
        "94661d21e2dfc282",
        "0000000000000000",
        "d30cb583d4619975832687ffcba1b370a4d3c9eb933e79a78ffa1e12b4b38881",
        "3579bfbe3c36fb4a4b3afde6a1e4a0d05890c7e32e9c68c86c09f78ad8ce29e1",
    ],
    [
        "94661d21e2dfc282",
        "cdb0685309a7a492",
        "3e6c7124eab9e29c4f1275e79d34854150ea37e197c1f47a13cbad61b006bd1a",
        "3686d4a227f0eebf2582821d55b5f61815feba58f17357192b5582ef2a66b791",
    ],
];
