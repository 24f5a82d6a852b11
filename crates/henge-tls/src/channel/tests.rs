use super::*;
use crate::records::{FRAGMENT, HEADER};
use crate::{Clients, Dial, Identity, Request, Role, Root, Tls, TlsConfig, believe, keep};
use proptest::prelude::*;
use rustls::{AlertDescription, Connection, ContentType, ServerConnection};
use std::io::{Read, Write};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

mod kernel;

/// What two nodes of one cluster begin with.
static NODES: LazyLock<(Tls, Dial)> = LazyLock::new(|| {
    let (now, dir) = (SystemTime::now(), tempfile::tempdir().unwrap());
    let root = Root::open(&Root::create("demo", now).unwrap()).unwrap();
    let (request, name) = (Request::new().unwrap(), "n1".to_owned());
    let who = Identity { cluster: "demo".into(), role: Role::Node, name };
    let issued = root.issue(&request.pem, &who, &[], "", now, Duration::from_secs(3600)).unwrap();
    keep(dir.path(), Role::Node, &request.key, &issued.chain).unwrap();
    believe(dir.path(), Role::Node, root.pem(), "").unwrap();
    let files = TlsConfig::of(dir.path());
    let dial = Dial::open(&files, Role::Node, None, now).unwrap();
    (Tls::open(&files, Clients::Required).unwrap(), dial)
});

/// An end, ours or rustls'.
trait End {
    /// These bytes came from the other end.
    fn comes(&mut self, bytes: &[u8]) -> Result<(), Error>;
    /// What is to be sent.
    fn goes(&mut self) -> Vec<u8>;
    fn says(&mut self, text: &[u8]) -> usize;
    fn hears(&mut self) -> Vec<u8>;
    /// Changes its keys, once the handshake is over.
    fn renews(&mut self);
    fn knows(&self) -> Option<[u8; 32]>;
    fn ends(&mut self);
}

/// Ours, with what it heard.
struct Ours {
    channel: Channel,
    heard: Vec<u8>,
    /// It wants payloads of this length, if any.
    place: usize,
}

impl Ours {
    fn new(handshake: Result<Handshake, Error>) -> Ours {
        Ours { channel: Channel::new(handshake.unwrap(), false), heard: Vec::new(), place: 0 }
    }

    /// The same, whose handshake is taken further elsewhere.
    fn lending(handshake: Result<Handshake, Error>) -> Ours {
        Ours { channel: Channel::new(handshake.unwrap(), true), ..Ours::new(NODES.0.handshake()) }
    }

    fn records(&mut self) -> &mut Records {
        let State::Open(records) = &mut self.channel.state else { panic!("the handshake is not over") };
        records
    }

    /// Seals what no program of ours ever says.
    fn seals(&mut self, kind: ContentType, payload: &[u8]) {
        let State::Open(records) = &mut self.channel.state else { panic!("the handshake is not over") };
        records.seals.put(kind, OutboundChunks::Single(payload), &mut self.channel.outgoing).unwrap();
    }
}

impl End for Ours {
    fn comes(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        let mut buffer = [0; 5000];
        loop {
            while let n @ 1.. = self.channel.take(&mut buffer) {
                self.heard.extend_from_slice(&buffer[..n]);
            }
            if self.channel.step()? == Next::Step {
                continue;
            }
            if let Some(shake) = self.channel.lend() {
                self.channel.shaken(shake.run());
                continue;
            }
            if self.channel.is_ended() {
                return Ok(());
            }
            let mut payload = vec![0; self.place];
            let landed = self.channel.land(&mut payload, |pieces| {
                let mut came = 0;
                for piece in pieces {
                    let (here, rest) = bytes.split_at(piece.len().min(bytes.len()));
                    piece[..here.len()].copy_from_slice(here);
                    (bytes, came) = (rest, came + here.len());
                }
                if came > 0 { Ok(came) } else { Err("a socket that is empty") }
            });
            if let Ok(Some(n)) = landed {
                self.heard.extend_from_slice(&payload[..n]);
                continue;
            }
            let Some(space) = self.channel.space() else { continue };
            if bytes.is_empty() {
                // A socket that is empty.
                self.channel.rest();
                return Ok(());
            }
            let n = bytes.len().min(space.capacity() - space.len());
            assert!(n > 0, "there is always space");
            space.extend_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
        }
    }

    fn goes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.channel.has_output() {
            let mut slices = [IoSlice::new(&[]); 3];
            let count = self.channel.output(&mut slices);
            let mut offered = Vec::new();
            slices[..count].iter().for_each(|slice| offered.extend_from_slice(slice));
            // The socket takes a part.
            let taken = offered.len().div_ceil(2);
            bytes.extend_from_slice(&offered[..taken]);
            self.channel.written(taken);
        }
        bytes
    }

    fn says(&mut self, text: &[u8]) -> usize {
        let (a, b) = text.split_at(text.len() / 3);
        self.channel.write(&[IoSlice::new(a), IoSlice::new(&[]), IoSlice::new(b)]).unwrap()
    }

    fn hears(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.heard)
    }

    fn renews(&mut self) {
        if let State::Open(records) = &mut self.channel.state {
            records.renew(&mut self.channel.outgoing).unwrap();
        }
    }

    fn knows(&self) -> Option<[u8; 32]> {
        self.channel.exported(b"a use")
    }

    fn ends(&mut self) {
        self.channel.close();
    }
}

/// Rustls' own, with what it heard.
struct Theirs {
    connection: Connection,
    heard: Vec<u8>,
}

impl Theirs {
    fn new(connection: impl Into<Connection>) -> Theirs {
        Theirs { connection: connection.into(), heard: Vec::new() }
    }
}

impl End for Theirs {
    fn comes(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() && self.connection.read_tls(&mut bytes).is_ok_and(|n| n > 0) {
            self.connection.process_new_packets()?;
            // An error says that there is nothing more for now.
            let _ = self.connection.reader().read_to_end(&mut self.heard);
        }
        Ok(())
    }

    fn goes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    fn says(&mut self, text: &[u8]) -> usize {
        self.connection.writer().write(text).unwrap()
    }

    fn hears(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.heard)
    }

    fn renews(&mut self) {
        if !self.connection.is_handshaking() {
            self.connection.refresh_traffic_keys().unwrap();
        }
    }

    fn knows(&self) -> Option<[u8; 32]> {
        self.connection.export_keying_material([0; 32], b"a use", None).ok()
    }

    fn ends(&mut self) {
        self.connection.send_close_notify();
    }
}

/// Who dials, and who is dialled.
fn ends(ours: (bool, bool), place: usize) -> [Box<dyn End>; 2] {
    let (tls, dial) = &*NODES;
    let client: Box<dyn End> = match ours.0 {
        true => Box::new(Ours { place, ..Ours::new(dial.handshake()) }),
        false => Box::new(Theirs::new(dial.connection().unwrap())),
    };
    let server: Box<dyn End> = match ours.1 {
        true => Box::new(Ours { place, ..Ours::lending(tls.handshake()) }),
        false => Box::new(Theirs::new(ServerConnection::new(tls.server()).unwrap())),
    };
    [client, server]
}

/// Two of ours whose handshake is over.
fn open() -> [Ours; 2] {
    let (tls, dial) = &*NODES;
    let mut ends = [Ours::new(dial.handshake()), Ours::lending(tls.handshake())];
    for _ in 0..3 {
        let there = ends[0].goes();
        ends[1].comes(&there).unwrap();
        let back = ends[1].goes();
        ends[0].comes(&back).unwrap();
    }
    assert!(ends.iter().all(|end| end.knows().is_some()));
    ends
}

/// Who serves others meanwhile has nothing to compute in a handshake, and reads nothing on until its step is back.
#[test]
fn a_step_of_a_handshake_is_lent() {
    let (tls, dial) = &*NODES;
    let mut client = Ours::new(dial.handshake());
    let mut channel = Channel::new(tls.handshake().unwrap(), true);
    let hello = client.goes();
    channel.space().unwrap().extend_from_slice(&hello);
    assert_eq!((channel.step(), channel.has_output()), (Ok(Next::Shake), false));
    let shake = channel.lend().unwrap();
    assert_eq!((channel.step(), channel.has_output()), (Ok(Next::Shake), false));
    assert!(channel.lend().is_none());
    channel.shaken(shake.run());
    assert_eq!((channel.step(), channel.has_output()), (Ok(Next::Bytes), true));
    // Another one's hello again is not this one's certificate.
    channel.space().unwrap().extend_from_slice(&hello);
    assert_eq!(channel.step(), Ok(Next::Shake));
    let shake = channel.lend().unwrap();
    channel.shaken(shake.run());
    assert!(channel.step().is_err() && channel.lend().is_none());
}

/// What becomes of bytes on their way.
#[derive(Clone, Debug)]
enum Change {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index, prop::sample::Index),
    Again(prop::sample::Index),
    Other(Vec<u8>),
}

#[derive(Clone, Debug)]
enum Act {
    /// One end says so many bytes.
    Say(usize, usize),
    /// What one end has sent goes on, cut into pieces of so many bytes.
    Carry(usize, usize),
    /// One end changes its keys.
    Renew(usize),
}

/// None, too little for records to land there, and a command's.
fn place() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0usize), 1usize..33_000, Just(128 << 10), 30_000usize..300_000]
}

/// What is said begins at another word each time.
static WORDS: LazyLock<Vec<u8>> = LazyLock::new(|| (0..300_000usize).map(|at| (at / 7) as u8).collect());

/// Two ends do so: what each said, and what each heard once everything was carried.
fn talk(ends: &mut [Box<dyn End>; 2], acts: Vec<Act>) -> ([Vec<u8>; 2], [Vec<u8>; 2]) {
    let (mut said, mut heard) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let settle = (0..8).map(|n| Act::Carry(n % 2, 100_000));
    for (word, act) in acts.into_iter().chain(settle).enumerate() {
        match act {
            Act::Say(end, len) => {
                let text = &WORDS[7 * word..][..len];
                let taken = ends[end].says(text);
                said[end].extend_from_slice(&text[..taken]);
            }
            Act::Carry(from, piece) => carry(ends, from, piece),
            Act::Renew(end) => ends[end].renews(),
        }
        for (heard, end) in heard.iter_mut().zip(ends.iter_mut()) {
            heard.extend(end.hears());
        }
    }
    (said, heard)
}

fn act() -> impl Strategy<Value = Act> {
    let len = prop_oneof![0usize..40, 16_380usize..16_390, 0usize..200_000];
    let piece = prop_oneof![1usize..40, 16_380usize..16_420, 1usize..300_000];
    prop_oneof![
        3 => (0usize..2, len).prop_map(|(end, len)| Act::Say(end, len)),
        4 => (0usize..2, piece).prop_map(|(end, piece)| Act::Carry(end, piece)),
        1 => (0usize..2).prop_map(Act::Renew),
    ]
}

fn carry(ends: &mut [Box<dyn End>; 2], from: usize, piece: usize) {
    let bytes = ends[from].goes();
    // Bytes one by one are as good at a cut in some hundred places.
    let piece = piece.max(bytes.len().div_ceil(300)).max(1);
    for piece in bytes.chunks(piece) {
        ends[1 - from].comes(piece).unwrap();
    }
}

proptest! {
    /// Whoever is at the other end, however the stream is cut, whenever keys change: what is said is heard, and both know the same.
    #[test]
    fn what_is_said_is_heard(
        ours in prop_oneof![Just((true, true)), Just((true, false)), Just((false, true))],
        acts in proptest::collection::vec(act(), 1..40),
        place in place(),
    ) {
        let mut ends = ends(ours, place);
        let (said, heard) = talk(&mut ends, acts);
        prop_assert!(said[0] == heard[1] && said[1] == heard[0]);
        prop_assert!(ends[0].knows().is_some());
        prop_assert_eq!(ends[0].knows(), ends[1].knows());
    }

    /// A handshake in which bytes are changed, left out, come twice or are made up, in any pieces: no panic, and no more is kept than there may be.
    #[test]
    fn any_bytes_may_come_in_a_handshake(
        turns in 0usize..4,
        change in prop_oneof![
            (any::<prop::sample::Index>(), 1u8..).prop_map(|(at, by)| Change::Flip(at, by)),
            (any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(|(at, to)| Change::Cut(at, to)),
            any::<prop::sample::Index>().prop_map(Change::Again),
            proptest::collection::vec(any::<u8>(), 0..300).prop_map(Change::Other),
        ],
        piece in 1usize..2000,
    ) {
        let (tls, dial) = &*NODES;
        let mut ends = [Ours::new(dial.handshake()), Ours::lending(tls.handshake())];
        for turn in 0..turns {
            let bytes = ends[turn % 2].goes();
            ends[1 - turn % 2].comes(&bytes).unwrap();
        }
        let mut bytes = ends[turns % 2].goes();
        if !bytes.is_empty() {
            match change {
                Change::Flip(at, by) => {
                    let at = at.index(bytes.len());
                    bytes[at] ^= by;
                }
                Change::Cut(at, to) => {
                    let (a, b) = (at.index(bytes.len()), to.index(bytes.len()));
                    bytes.drain(a.min(b)..a.max(b));
                }
                Change::Again(at) => {
                    let again = bytes[at.index(bytes.len())..].to_vec();
                    bytes.extend(again);
                }
                Change::Other(other) => bytes = other,
            }
        }
        let end = &mut ends[1 - turns % 2];
        for piece in bytes.chunks(piece) {
            if end.comes(piece).is_err() {
                break;
            }
        }
        let _ = end.channel.write(&[IoSlice::new(b"and back")]);
        let _ = end.goes();
        prop_assert!(end.channel.incoming.bytes.len() <= CHUNK && !end.channel.has_output());
    }

    /// Whatever the other end seals, in any pieces: no panic, what is data is heard until something is refused, and little is kept.
    #[test]
    fn anything_may_be_sealed(
        records in proptest::collection::vec((
            prop_oneof![20u8..25, any::<u8>()],
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..20),
                Just(vec![24, 0, 0, 1, 1]),
                proptest::collection::vec(prop_oneof![Just(0u8), Just(24), Just(4), Just(1)], 0..12),
            ],
        ), 1..20),
        piece in 1usize..100,
        place in place(),
    ) {
        let [mut client, mut server] = open();
        server.place = place;
        let mut data = Vec::new();
        for (kind, payload) in &records {
            client.seals(ContentType::from(*kind), payload);
            data.extend_from_slice(if *kind == 23 { payload } else { &[] });
        }
        for piece in client.goes().chunks(piece) {
            if server.comes(piece).is_err() {
                break;
            }
        }
        let heard = server.hears();
        prop_assert!(data.starts_with(&heard));
        prop_assert!(server.channel.incoming.bytes.len() <= CHUNK && server.channel.outgoing.len() <= 1);
    }

    /// One bit that differs in what was sealed is an error, and nothing of that record or of those behind it is heard.
    #[test]
    fn whatever_was_changed_is_refused(
        len in 1usize..140_000,
        at in 0usize..1_000_000,
        bit in 0u8..8,
        place in place(),
    ) {
        let [mut client, mut server] = open();
        server.place = place;
        let len = client.says(&vec![7; len]); // of a long one, as much as is held at once
        let mut bytes = client.goes();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        client.says(b"behind it");
        bytes.extend(client.goes());
        // Rustls does not look at the version of a record, which says nothing (RFC 8446, section 5.1).
        let whole: usize = at / (HEADER + FRAGMENT + 17);
        let version = matches!(at % (HEADER + FRAGMENT + 17), 1 | 2);
        let length = matches!(at % (HEADER + FRAGMENT + 17), 3 | 4);
        let outcome = server.comes(&bytes);
        let heard = server.hears().len();
        if version {
            prop_assert_eq!((outcome, heard), (Ok(()), len + 9));
        } else {
            // A longer record may not be whole yet.
            prop_assert!(outcome.is_err() || length);
            prop_assert_eq!(heard, whole * FRAGMENT);
            prop_assert!(server.comes(&[0; 20_000]).is_err(), "nor is anything after it");
            prop_assert_eq!(server.hears().len(), 0);
        }
    }
}

/// Thousands may have sent the beginning of a record, and then nothing.
#[test]
fn who_sends_nothing_more_keeps_little_memory() {
    let [mut client, mut server] = open();
    client.says(&vec![7; 100_000]);
    let bytes = client.goes();
    let mut at = 0;
    for until in [1, 5, 10_000, 16_405, 16_406, 60_000, bytes.len()] {
        server.comes(&bytes[at..until]).unwrap();
        at = until;
        let kept = &server.channel.incoming.bytes;
        assert!(kept.capacity() <= kept.len() + SLACK && kept.len() < HEADER + FRAGMENT + 17, "{until}");
        assert_eq!(kept.is_empty(), kept.capacity() == 0);
    }
    assert_eq!(server.hears().len(), 100_000);
}

#[test]
fn an_end_that_was_said_is_heard_and_what_is_behind_it_is_not() {
    for ours in [(true, true), (true, false), (false, true)] {
        let mut ends = ends(ours, 0);
        (0..6).for_each(|n| carry(&mut ends, n % 2, 100));
        ends[0].says(b"last");
        ends[0].ends();
        carry(&mut ends, 0, 7);
        assert_eq!(ends[1].hears(), b"last");
    }
    let [mut client, mut server] = open();
    client.ends();
    client.seals(ContentType::ApplicationData, b"more");
    server.comes(&client.goes()).unwrap();
    assert!(server.channel.is_ended() && server.hears().is_empty());
}

/// Why the other end refuses what this one seals, and which alert says so.
fn refused(act: impl Fn(&mut Ours)) -> (Error, Error) {
    let [mut client, mut server] = open();
    act(&mut client);
    let why = server.comes(&client.goes()).unwrap_err();
    assert!(server.says_nothing_more(), "nothing is written after an alert");
    (why, client.comes(&server.goes()).unwrap_err())
}

impl Ours {
    fn says_nothing_more(&mut self) -> bool {
        self.channel.write(&[IoSlice::new(b"x")]).is_err()
    }
}

#[test]
fn what_no_peer_may_say_is_refused_by_an_alert() {
    use AlertDescription as Says;
    let unexpected = |act: fn(&mut Ours)| {
        let (why, said) = refused(act);
        assert!(matches!(why, Error::InappropriateMessage { .. } | Error::PeerMisbehaved(_)), "{why}");
        assert_eq!(said, Error::AlertReceived(Says::UnexpectedMessage));
    };
    // A hello, once more. A ticket of a client. An empty message. Data in the middle of one. A kind that is none.
    unexpected(|end| end.seals(ContentType::Handshake, &[1, 0, 0, 0]));
    unexpected(|end| end.seals(ContentType::Handshake, &[4, 0, 0, 1, 0]));
    unexpected(|end| end.seals(ContentType::Handshake, &[]));
    unexpected(|end| {
        end.seals(ContentType::Handshake, &[24, 0]);
        end.seals(ContentType::ApplicationData, b"data");
    });
    unexpected(|end| end.seals(ContentType::Heartbeat, &[1]));
    // Behind new keys nothing more comes in the same record.
    unexpected(|end| end.seals(ContentType::Handshake, &[24, 0, 0, 1, 0, 24]));
    for wrong in [&[24, 0, 0, 1, 2][..], &[24, 0, 0, 0], &[24, 0, 0, 2, 0, 0], &[24, 1, 0, 0, 0]] {
        let (why, said) = refused(|end| end.seals(ContentType::Handshake, wrong));
        assert!(matches!(why, Error::InvalidMessage(_)), "{wrong:?}: {why}");
        assert_eq!(said, Error::AlertReceived(Says::DecodeError), "{wrong:?}");
    }
    let (why, _) = refused(|end| end.seals(ContentType::Alert, &[2, 80]));
    assert_eq!(why, Error::AlertReceived(Says::InternalError));
}

#[test]
fn plain_records_and_lengths_beyond_the_largest_are_refused() {
    let alert = [21, 3, 3, 0, 2, 1, 0];
    for wrong in [
        &alert[..],
        b"GET / HTTP/1.1\r\n\r\n",
        &[23, 3, 3, 0x41, 1],
        &[23, 3, 3, 0, 0],
        &[23, 3, 3, 0, 3, 1, 2, 3],
    ] {
        let [_, mut server] = open();
        assert!(server.comes(wrong).is_err(), "{wrong:?}");
        assert!(!server.goes().is_empty(), "it says why");
    }
}

#[test]
fn a_message_in_pieces_is_one_message() {
    let [mut client, mut server] = open();
    for byte in [24, 0, 0, 1] {
        client.seals(ContentType::Handshake, &[byte]);
    }
    // Its last byte, and new keys behind it, as renewing does.
    let State::Open(records) = &mut client.channel.state else { unreachable!() };
    records
        .seals
        .put(ContentType::Handshake, OutboundChunks::Single(&[0]), &mut client.channel.outgoing)
        .unwrap();
    let before = client.goes();
    client.renews();
    let _ = client.goes(); // that is said already
    client.says(b"by new keys");
    server.comes(&[before, client.goes()].concat()).unwrap();
    assert_eq!(server.hears(), b"by new keys");
}

#[test]
fn questions_for_new_keys_make_one_answer_however_many() {
    let [mut client, mut server] = open();
    let mut last = 0;
    for round in 0..3 {
        for _ in 0..5000 {
            // Data between them, or they would be too many of which nothing comes.
            client.seals(ContentType::Handshake, &[24, 0, 0, 1, 1]);
            let (mut unsent, records) = (VecDeque::new(), client.records());
            records.renew(&mut unsent).unwrap();
            client.says(b"x");
        }
        server.comes(&client.goes()).unwrap();
        assert!(server.channel.has_output() && server.channel.outgoing.is_empty());
        let answer = server.goes();
        assert!(round == 0 || answer.len() == last, "one answer");
        last = answer.len();
        client.comes(&answer).unwrap();
        server.says(b"heard");
        client.comes(&server.goes()).unwrap();
        assert_eq!(client.hears(), b"heard");
    }
    assert_eq!(server.hears().len(), 15_000);
}

#[test]
fn records_of_which_nothing_comes_are_not_taken_for_ever() {
    let [mut client, mut server] = open();
    let mut taken = 0;
    let why = loop {
        client.seals(ContentType::ApplicationData, &[]);
        let bytes = client.goes();
        taken += bytes.len();
        if let Err(why) = server.comes(&bytes) {
            break why;
        }
        assert!(taken < 2 * BARREN);
    };
    assert!(why.to_string().contains("nothing comes") && taken > BARREN - 16_000, "{why} after {taken}");
}

#[test]
fn keys_change_before_so_many_records_that_it_would_show() {
    let [mut client, mut server] = open();
    client.records().most = 5;
    for n in 0..40u8 {
        client.says(&[n]);
        assert!(client.records().seals.number < 5);
    }
    server.comes(&client.goes()).unwrap();
    assert_eq!(server.hears(), (0..40).collect::<Vec<u8>>());
}

#[test]
fn at_rest_no_memory_is_held() {
    let [mut client, mut server] = open();
    client.says(&[1; 100_000]);
    server.comes(&client.goes()).unwrap();
    assert_eq!(server.channel.incoming.bytes.capacity(), 0);
    // Half a record is kept.
    client.says(&[1; 100]);
    let bytes = client.goes();
    server.comes(&bytes[..50]).unwrap();
    assert_eq!(server.channel.incoming.bytes.len(), 50);
    server.comes(&bytes[50..]).unwrap();
    assert_eq!((server.hears().len(), server.channel.incoming.bytes.capacity()), (100_100, 0));
}
