//! A kernel that seals in our place. Here it is a few lines, with keys of 32 bytes alone, since rustls makes a key of no other bytes.

use super::*;
use crate::records::Seals;
use rustls::crypto::CryptoProvider;
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::crypto::ring::{cipher_suite::TLS13_CHACHA20_POLY1305_SHA256 as SUITE, default_provider};
use rustls::{ClientConfig, ClientConnection, ConnectionTrafficSecrets, RootCertStore, ServerConfig};
use std::sync::Arc;

/// A server whose kernel seals, as soon as there are keys for it.
struct Sealed {
    ours: Ours,
    kernel: Option<Seals>,
    /// What the socket has.
    wire: VecDeque<Vec<u8>>,
    /// Records of other kinds than data.
    told: Vec<(u8, Vec<u8>)>,
    /// Most records that any key has sealed.
    most: u64,
}

impl Sealed {
    fn take(&mut self, keys: &Keys) {
        self.look();
        let (key, iv) = keys.secret();
        let (key, iv) = (AeadKey::from(<[u8; 32]>::try_from(key).unwrap()), Iv::from(iv));
        let secrets = ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv };
        let suite = SUITE.tls13().unwrap();
        self.kernel = Some(Seals::new(suite, (keys.number, secrets)).unwrap());
    }

    fn look(&mut self) {
        self.most = self.most.max(self.kernel.as_ref().map_or(0, |kernel| kernel.number));
    }

    /// Does what the kernel is told.
    fn obey(&mut self) {
        while let Some(order) = self.ours.channel.order() {
            match order {
                Order::Record(kind, bytes) => {
                    let kernel = self.kernel.as_mut().unwrap();
                    kernel.put((*kind).into(), OutboundChunks::Single(bytes), &mut self.wire).unwrap();
                    self.told.push((*kind, bytes.clone()));
                }
                Order::Keys(keys) => {
                    let keys = keys.clone();
                    self.take(&keys);
                }
            }
            self.ours.channel.told();
        }
    }
}

impl End for Sealed {
    fn comes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.ours.comes(bytes)
    }

    fn goes(&mut self) -> Vec<u8> {
        if self.kernel.is_some() {
            self.obey();
        } else {
            let sealed = self.ours.goes();
            self.wire.push_back(sealed);
        }
        Vec::from(std::mem::take(&mut self.wire)).concat()
    }

    fn says(&mut self, text: &[u8]) -> usize {
        if self.kernel.is_none() {
            let Some(keys) = self.ours.channel.keys() else { return self.ours.says(text) };
            assert!(self.ours.channel.keys().is_none(), "they are given out once");
            self.take(&keys);
            self.ours.channel.hand_over();
        }
        // The socket takes a part.
        let taken = &text[..text.len().div_ceil(2)];
        self.obey();
        self.ours.channel.prepare(1, text.len()).unwrap();
        self.obey();
        for piece in taken.chunks(FRAGMENT) {
            let kernel = self.kernel.as_mut().unwrap();
            kernel.put(ContentType::ApplicationData, OutboundChunks::Single(piece), &mut self.wire).unwrap();
        }
        self.ours.channel.sealed(1, taken.len());
        self.look();
        taken.len()
    }

    fn hears(&mut self) -> Vec<u8> {
        self.ours.hears()
    }

    fn renews(&mut self) {
        self.ours.renews();
    }

    fn knows(&self) -> Option<[u8; 32]> {
        self.ours.knows()
    }

    fn ends(&mut self) {
        self.ours.ends();
    }
}

/// Both begin here: the server's own certificate is the client's root.
static BOTH: LazyLock<(ServerConfig, Arc<ClientConfig>)> = LazyLock::new(|| {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let provider = Arc::new(CryptoProvider { cipher_suites: vec![SUITE], ..default_provider() });
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let key = own.signing_key.serialize_der().try_into().unwrap();
    let mut server = builder.with_single_cert(vec![own.cert.der().clone()], key).unwrap();
    server.send_tls13_tickets = 0;
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    (server, Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
});

fn pair() -> [Box<dyn End>; 2] {
    let (client, server) = sealed();
    [Box::new(client), Box::new(server)]
}

fn sealed() -> (Theirs, Sealed) {
    let (server, client) = &*BOTH;
    let client = ClientConnection::new(Arc::clone(client), "localhost".try_into().unwrap()).unwrap();
    let ours = Ours::new(Handshake::server(server));
    (Theirs::new(client), Sealed { ours, kernel: None, wire: VecDeque::new(), told: Vec::new(), most: 0 })
}

/// The same once the handshake is over.
fn shaken() -> (Theirs, Sealed) {
    let (mut client, mut server) = sealed();
    for _ in 0..3 {
        server.comes(&client.goes()).unwrap();
        client.comes(&server.goes()).unwrap();
    }
    (client, server)
}

proptest! {
    /// However a kernel makes records of pieces, as long as none has parts of two: a key seals no more than were counted.
    #[test]
    fn no_more_records_are_made_than_are_counted(pieces in proptest::collection::vec(0usize..100_000, 0..20)) {
        let records: usize = pieces.iter().map(|len| len.div_ceil(FRAGMENT)).sum();
        prop_assert!(records as u64 <= most_records(pieces.len(), pieces.iter().sum()));
    }

    /// Whatever each end says, whenever keys change and whoever asks for it, also before the handshake is over.
    #[test]
    fn what_a_kernel_seals_is_heard(acts in proptest::collection::vec(act(), 1..40)) {
        let mut ends = pair();
        let (said, heard) = talk(&mut ends, acts);
        prop_assert!(said[0] == heard[1] && said[1] == heard[0]);
    }
}

#[test]
fn a_kernels_keys_change_before_so_many_records_that_it_would_show() {
    let (mut client, mut server) = shaken();
    server.ours.records().most = 9;
    let mut said = Vec::new();
    for n in 0..200u8 {
        // The kernel has sealed one record more than it needs to, at times.
        let text = vec![n; if n % 3 == 0 { 3 * FRAGMENT } else { 2 }];
        let taken = server.says(&text);
        said.extend_from_slice(&text[..taken]);
        client.comes(&server.goes()).unwrap();
    }
    assert!(client.hears() == said);
    assert!(server.most < 9 && server.told.len() > 20, "{} after {} changes", server.most, server.told.len());
    assert!(server.told.iter().all(|told| *told == (22, vec![24, 0, 0, 1, 0])));
}

/// Who asks for new keys again and again, and reads nothing, makes a kernel keep one answer.
#[test]
fn questions_for_a_kernels_keys_make_one_answer_however_many() {
    let (mut client, mut server) = shaken();
    server.says(b"a kernel seals");
    client.comes(&server.goes()).unwrap();
    for _ in 0..1000 {
        client.renews();
        client.says(b"x");
        server.comes(&client.goes()).unwrap();
        // The socket has no room: nothing is told.
        assert!(server.ours.channel.has_output() && server.ours.channel.order().is_some());
    }
    assert!(server.ours.records().orders().unwrap().len() <= 2);
    client.comes(&server.goes()).unwrap();
    server.says(b"behind it");
    client.comes(&server.goes()).unwrap();
    assert!(client.hears().ends_with(b"kernebehin"), "halves of what was said");
}

#[test]
fn a_kernel_is_told_of_the_end_and_of_why() {
    let (mut client, mut server) = shaken();
    server.says(b"last");
    server.ends();
    client.comes(&server.goes()).unwrap();
    assert_eq!((client.hears(), server.told), (b"la".to_vec(), vec![(21, vec![1, 0])]));

    let (mut client, mut server) = shaken();
    server.says(b"last");
    client.comes(&server.goes()).unwrap();
    let mut bytes = (client.says(b"changed on the way"), client.goes()).1;
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(server.comes(&bytes), Err(Error::DecryptError));
    assert!(server.ours.channel.prepare(1, 1).is_err(), "nothing is written after it");
    let alert = Err(Error::AlertReceived(AlertDescription::BadRecordMac));
    assert_eq!(client.comes(&server.goes()), alert);
}

#[test]
fn a_kernel_gets_no_keys_before_the_socket_has_what_we_sealed() {
    let (mut client, mut server) = sealed();
    assert!(server.ours.channel.keys().is_none(), "nobody has shaken hands");
    server.says(b"early");
    for _ in 0..2 {
        server.comes(&client.goes()).unwrap();
        assert!(server.ours.channel.keys().is_none());
        client.comes(&server.goes()).unwrap();
    }
    let keys = server.ours.channel.keys().unwrap();
    assert_eq!((keys.number, client.hears()), (1, b"early".to_vec()), "our own first record is counted");
}
