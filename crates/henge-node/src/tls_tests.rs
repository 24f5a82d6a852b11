//! Clients by TLS over a socket pair: bytes arrive as they are in any pieces, and who may not come does not.

use crate::access::NbdAccess;
use crate::config::NodeConfig;
use crate::connection::Connection;
use crate::session::Stop;
use crate::session::bench::Bench;
use crate::stream::Stream;
use henge_config::Source;
use henge_core::Instant;
use henge_nbd::Limits;
use henge_tls::{Clients, Tls, TlsConfig, refusal};
use proptest::prelude::*;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason,
    RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use rustix::io::Errno;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

pub(crate) type Ca = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn ca(name: &str) -> Ca {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key, as texts.
pub(crate) type Pair = (String, String);

pub(crate) fn issue(ca: &Ca, change: impl FnOnce(&mut CertificateParams)) -> Pair {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.serial_number = Some(SerialNumber::from(7));
    change(&mut params);
    (params.signed_by(&key, ca).unwrap().pem(), key.serialize_pem())
}

pub(crate) fn ann(params: &mut CertificateParams) {
    params.subject_alt_names = vec![
        SanType::URI("spiffe://henge/client/ann".try_into().unwrap()),
        SanType::DnsName("Ann.example.org".try_into().unwrap()),
    ];
    params.distinguished_name.push(DnType::CommonName, "Ann");
}

fn revoked(ca: &Ca, serials: &[u64]) -> String {
    let revoked = serials.iter().map(|&serial| RevokedCertParams {
        serial_number: SerialNumber::from(serial),
        revocation_time: date_time_ymd(2020, 1, 1),
        reason_code: Some(RevocationReason::KeyCompromise),
        invalidity_date: None,
    });
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(4000, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: revoked.collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(ca).unwrap().pem().unwrap()
}

/// A node's files.
pub(crate) struct Files {
    dir: tempfile::TempDir,
    config: TlsConfig,
}

impl Files {
    pub(crate) fn new(ca: &Ca) -> Files {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let config = TlsConfig {
            certificate: at("node.pem"),
            key: at("node.key"),
            ca: Some(at("ca.pem")),
            revoked: None,
            identity: None,
            span: 0..0,
        };
        let files = Files { dir, config };
        files.own(&issue(ca, |_| {}));
        files.write("ca.pem", &ca.pem());
        files
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        // Another file, so that it is noticed however coarse the clock is.
        let new = self.dir.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(new, &path).unwrap();
        path
    }

    fn own(&self, pair: &Pair) {
        self.write("node.pem", &pair.0);
        self.write("node.key", &pair.1);
    }

    pub(crate) fn open(&self) -> Arc<Tls> {
        Arc::new(Tls::open(&self.config, Clients::Required).unwrap_or_else(|e| panic!("{}", e.message)))
    }

    fn wrong(&self) -> String {
        self.config.check(SystemTime::now()).unwrap_err().0
    }
}

pub(crate) fn client(ca: &Ca, shows: Option<&Pair>) -> ClientConnection {
    client_that_knows(rustls::crypto::ring::default_provider(), ca, shows)
}

fn client_that_knows(provider: CryptoProvider, ca: &Ca, shows: Option<&Pair>) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider.into());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let config = match shows {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            builder
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                .unwrap()
        }
    };
    ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap()
}

/// What the client has goes out, and what is there for it comes in.
pub(crate) fn moves(client: &mut ClientConnection, socket: &mut UnixStream) -> Result<(), rustls::Error> {
    while client.wants_write() && client.write_tls(socket).is_ok() {}
    while client.read_tls(socket).is_ok_and(|n| n > 0) {
        client.process_new_packets()?;
    }
    Ok(())
}

/// Both ends, moved by hand.
struct Rig {
    stream: Stream,
    client: ClientConnection,
    socket: UnixStream,
}

impl Rig {
    fn new(tls: &Arc<Tls>, client: ClientConnection) -> Rig {
        Rig::over(UnixStream::pair().unwrap(), tls, client)
    }

    /// The same by TCP.
    fn by_tcp(tls: &Arc<Tls>, client: ClientConnection) -> Rig {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = listener.accept().unwrap().0;
        // Reading and writing are the same for both.
        Rig::over([ours, socket].map(|socket| UnixStream::from(OwnedFd::from(socket))).into(), tls, client)
    }

    fn over((ours, socket): (UnixStream, UnixStream), tls: &Arc<Tls>, client: ClientConnection) -> Rig {
        ours.set_nonblocking(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut stream = Stream::plain(ours.into());
        assert!(stream.secure(tls) && !stream.secure(tls));
        Rig { stream, client, socket }
    }

    fn client_moves(&mut self) -> Result<(), rustls::Error> {
        moves(&mut self.client, &mut self.socket)
    }

    /// A handshake. What the node then says of the client's first byte, and what the client says of the node.
    fn greet(&mut self) -> (Result<Vec<String>, Errno>, Result<(), rustls::Error>) {
        self.client.writer().write_all(b"!").unwrap();
        let mut byte = [0; 4];
        for _ in 0..20 {
            if let Err(e) = self.client_moves() {
                return (Err(self.stream.read(&mut [], &mut byte, false).unwrap_err()), Err(e));
            }
            match self.stream.read(&mut [], &mut byte, false) {
                Ok(got) => {
                    assert_eq!((got.len, byte[0]), (1, b'!'));
                    return (Ok(self.stream.proven().expect("the handshake is over")), Ok(()));
                }
                Err(Errno::AGAIN) => assert!(self.stream.flush().is_ok()),
                Err(e) => return (Err(e), self.client_moves()),
            }
        }
        panic!("the handshake does not end");
    }
}

#[test]
fn a_client_is_who_its_certificate_says() {
    let ours = ca("ours");
    let files = Files::new(&ours);
    let mut rig = Rig::new(&files.open(), client(&ours, Some(&issue(&ours, ann))));
    assert!(rig.stream.proven().is_none());
    let (proven, _) = rig.greet();
    assert_eq!(proven.unwrap(), ["CN=Ann", "ann.example.org", "spiffe://henge/client/ann"]);
    assert_eq!(rig.client.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    // Where the node asks for none, nobody is anybody.
    let config = TlsConfig { ca: None, ..files.config.clone() };
    let mut rig =
        Rig::new(&Arc::new(Tls::open(&config, Clients::Required).ok().unwrap()), client(&ours, None));
    assert_eq!(rig.greet().0.unwrap(), Vec::<String>::new());
}

#[test]
fn a_client_that_knows_both_keys_of_aes_has_the_shorter() {
    use rustls::CipherSuite::{TLS13_AES_128_GCM_SHA256 as SHORT, TLS13_AES_256_GCM_SHA384 as LONG};
    let ours = ca("ours");
    let files = Files::new(&ours);
    for (longest_only, chosen) in [(false, SHORT), (true, LONG)] {
        let mut known = rustls::crypto::ring::default_provider();
        assert_eq!(known.cipher_suites[0].suite(), LONG, "what it wants most");
        known.cipher_suites.retain(|suite| !longest_only || suite.suite() == LONG);
        let mut rig = Rig::new(&files.open(), client_that_knows(known, &ours, Some(&issue(&ours, ann))));
        rig.greet().0.unwrap();
        assert_eq!(rig.client.negotiated_cipher_suite().unwrap().suite(), chosen);
    }
}

#[test]
fn who_may_not_come_does_not() {
    let (ours, theirs) = (ca("ours"), ca("theirs"));
    let mut files = Files::new(&ours);
    let list = files.write("revoked.pem", &revoked(&ours, &[3]));
    files.config.revoked = Some(list);
    let tls = files.open();
    assert!(Rig::new(&tls, client(&ours, Some(&issue(&ours, ann)))).greet().0.is_ok());
    let old = |params: &mut CertificateParams| params.not_after = date_time_ymd(2001, 1, 1);
    let early = |params: &mut CertificateParams| params.not_before = date_time_ymd(3000, 1, 1);
    let lost = |params: &mut CertificateParams| params.serial_number = Some(SerialNumber::from(3));
    let server = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    };
    // Signed by itself, with the name of our ca.
    let alone = ca("ours");
    let cases = [
        ("none", None),
        ("expired", Some(issue(&ours, old))),
        ("not yet", Some(issue(&ours, early))),
        ("revoked", Some(issue(&ours, lost))),
        ("a server's", Some(issue(&ours, server))),
        ("another cluster's", Some(issue(&theirs, ann))),
        ("of a ca of the same name", Some(issue(&alone, ann))),
    ];
    for (what, shows) in &cases {
        let (node, client) = Rig::new(&tls, client(&ours, shows.as_ref())).greet();
        assert_eq!(node, Err(Errno::PROTO), "{what}");
        assert!(matches!(client, Err(rustls::Error::AlertReceived(_))), "{what}: {client:?}");
    }
    // What is no TLS, and ends in the midst.
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[22, 3, 1, 0, 200, 1], &[]] {
        let mut rig = Rig::new(&tls, client(&ours, None));
        rig.socket.write_all(bytes).unwrap();
        rig.socket.shutdown(std::net::Shutdown::Write).unwrap();
        let read = rig.stream.read(&mut [], &mut [0; 64], true);
        assert!(matches!(read, Err(Errno::PROTO)) || read.is_ok_and(|got| got.len == 0), "{bytes:?}");
    }
}

#[test]
fn a_connection_ends_when_its_certificate_is_revoked() {
    let ours = ca("ours");
    let mut files = Files::new(&ours);
    files.config.revoked = Some(files.write("revoked.pem", &revoked(&ours, &[3])));
    let tls = files.open();
    let bob = |params: &mut CertificateParams| params.serial_number = Some(SerialNumber::from(8));
    let mut ann = Rig::new(&tls, client(&ours, Some(&issue(&ours, ann))));
    let mut bob = Rig::new(&tls, client(&ours, Some(&issue(&ours, bob))));
    assert!(ann.greet().0.is_ok() && bob.greet().0.is_ok());
    files.write("revoked.pem", &revoked(&ours, &[3, 7]));
    assert_eq!(tls.renew(SystemTime::now()), Ok(true));
    assert_eq!(ann.greet().0, Err(Errno::PROTO), "the request that comes next is not read");
    assert!(bob.greet().0.is_ok(), "others go on");
}

#[test]
fn refusals_say_what_to_do() {
    use rustls::{CertificateError, Error};
    let says = |wrong| refusal(&Error::InvalidCertificate(wrong));
    assert!(says(CertificateError::Expired).contains("expired"));
    assert!(says(CertificateError::NotValidYet).contains("clock"));
    assert!(says(CertificateError::Revoked).contains("revoked"));
    assert!(says(CertificateError::UnknownIssuer).contains("ca"));
    assert!(refusal(&Error::NoCertificatesPresented).contains("no certificate"));
}

#[test]
fn files_that_are_wrong_are_named_and_files_that_change_are_read_again() {
    let ours = ca("ours");
    let mut files = Files::new(&ours);
    let tls = files.open();
    let now = SystemTime::now();
    assert_eq!(tls.renew(now), Ok(false));
    let before = tls.server();
    let (next, other) = (issue(&ours, |_| {}), issue(&ours, |_| {}));
    files.write("node.pem", &next.0);
    let why = tls.renew(now).unwrap_err().0;
    assert!(why.contains("node.key is not the key of"), "{why}");
    assert!(Arc::ptr_eq(&before, &tls.server()), "it goes on with what it had");
    files.write("node.key", &next.1);
    assert_eq!((tls.renew(now), tls.renew(now)), (Ok(true), Ok(false)));
    assert!(!Arc::ptr_eq(&before, &tls.server()));
    assert!(Rig::new(&tls, client(&ours, Some(&issue(&ours, ann)))).greet().0.is_ok());

    std::fs::set_permissions(&files.config.key, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(files.wrong().contains("chmod 600"), "{}", files.wrong());
    files.own(&(next.0.clone(), other.1));
    assert!(files.wrong().contains("is not the key of"), "{}", files.wrong());
    files.own(&issue(&ours, |params| params.not_after = date_time_ymd(2001, 1, 1)));
    assert!(files.wrong().contains("expired on"), "{}", files.wrong());
    files.own(&issue(&ours, |params| params.not_before = date_time_ymd(3000, 1, 1)));
    assert!(files.wrong().contains("clock says"), "{}", files.wrong());
    files.own(&(String::new(), next.1.clone()));
    assert!(files.wrong().contains("node.pem: no certificate in it"), "{}", files.wrong());
    files.own(&(next.0.clone(), String::new()));
    assert!(files.wrong().contains("node.key: no private key in it"), "{}", files.wrong());
    files.own(&next);
    files.write("ca.pem", &next.1);
    assert!(files.wrong().contains("ca.pem: no certificate in it"), "{}", files.wrong());
    files.write("ca.pem", &ours.pem());
    files.config.revoked = Some(files.dir.path().join("none.pem"));
    assert!(files.wrong().contains("none.pem: No such file"), "{}", files.wrong());
}

#[test]
fn a_flood_of_records_with_nothing_in_them_ends() {
    let ours = ca("ours");
    let files = Files::new(&ours);
    let mut rig = Rig::new(&files.open(), client(&ours, Some(&issue(&ours, ann))));
    rig.greet().0.unwrap();
    // Of a change_cipher_spec after the handshake nothing may come; a record that is too long is none.
    for _ in 0..64 {
        let _ = rig.socket.write(&[&[20, 3, 3, 0, 1, 1][..]; 1024].concat());
        match rig.stream.read(&mut [], &mut [0; 64], false) {
            Err(Errno::AGAIN) => {}
            Err(e) => return assert_eq!(e, Errno::PROTO),
            Ok(got) => panic!("{got:?}"),
        }
    }
    panic!("it listens for ever");
}

#[test]
fn the_nodes_file_says_who_speaks_tls_and_what_is_missing() {
    let parse = |head: &str| {
        let text = format!(
            "{head}\n[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"8MiB\"\n[[disk]]\nname = \"d\"\ncapacity = \"4MiB\"\n"
        );
        let text = match head.split_once('#') {
            Some((_, disk)) => text + disk,
            None => text,
        };
        NodeConfig::parse(Source::new("node.toml", text))
            .map(|config| config.kinds.open)
            .map_err(|e| e.to_string())
    };
    const FILES: &str = "tls = { certificate = \"/c\", key = \"/k\" }";
    const WITH_CA: &str = "tls = { certificate = \"/c\", key = \"/k\", ca = \"/ca\" }";
    let required = "listen = [\"nbds://10.0.0.5\", { at = \"nbd://[::1]:7\", tls = \"require\" }]";
    assert_eq!(parse(&format!("{required}\n{WITH_CA}")), Ok(Vec::new()));
    let allowed = "listen = { at = \"nbd://10.0.0.5\", tls = \"allow\" }";
    let open = parse(&format!("{allowed}\ninsecure = true\n{WITH_CA}")).unwrap();
    assert!(open[0].contains("nbd://10.0.0.5:10809"), "{open:?}");
    let by_name = "# nbd = { certificates = [\"CN=ann\"] }";
    for (text, says) in [
        (required.to_owned(), "nothing says with which certificate"),
        (format!("{required}\n{FILES}"), "names no ca"),
        (format!("{allowed}\n{WITH_CA}"), "does not require it"),
        (
            format!("listen = {{ at = \"nbd://10.0.0.5\", tls = \"no\" }}\n{WITH_CA}"),
            "no listener speaks TLS",
        ),
        (format!("listen = {{ at = \"nbd://::1\", tls = \"maybe\" }}\n{WITH_CA}"), "not \"maybe\""),
        (format!("listen = {{ at = \"iscsi://::1\", tls = \"require\" }}\n{WITH_CA}"), "not \"iscsi://::1\""),
        (format!("listen = \"nbds://127.0.0.1\"\n{FILES} {by_name}"), "disk d lets certificates in"),
        (format!("listen = \"nbd://127.0.0.1\" {by_name}"), "disk d lets certificates in"),
        ("tls = { certificate = \"/c\", key = \"/k\", revoked = \"/r\" }".into(), "revoked needs a ca"),
        ("tls = { certificate = \"/c\" }".into(), "key"),
    ] {
        let why = parse(&text).unwrap_err();
        assert!(why.contains(says), "{text}: {why}");
    }
}

/// NBD_OPT_GO for a disk.
pub(crate) fn go(disk: &str) -> Vec<u8> {
    let mut option = b"IHAVEOPT\0\0\0\x07".to_vec();
    option.extend((disk.len() as u32 + 6).to_be_bytes());
    option.extend((disk.len() as u32).to_be_bytes());
    option.extend(disk.as_bytes());
    option.extend([0, 0]);
    option
}

/// Of a reply to an option: its type.
fn kind(reply: &[u8]) -> u32 {
    u32::from_be_bytes(reply[12..16].try_into().unwrap())
}

#[test]
fn a_client_by_nbd_is_let_to_the_disks_of_its_certificate() {
    let root = ca("ours");
    let files = Files::new(&root);
    let text = "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"8MiB\"\n[[disk]]\nname = \"d\"\ncapacity = \"4MiB\"\n";
    let mut bench = Bench::new(text);
    let certificates = vec!["CN=Ann".to_owned()];
    let export = bench.plane.disks.of(0).export();
    bench.catalog.add(0, export, &NbdAccess::These { users: Vec::new(), certificates }, 0);
    let bob = |params: &mut CertificateParams| params.distinguished_name.push(DnType::CommonName, "Bob");
    // NBD_REP_INFO for who may use it; for who may not, NBD_REP_ERR_UNKNOWN, as for a disk that is not there.
    for (shows, disk, expected) in [
        (issue(&root, ann), "d", 3),
        (issue(&root, ann), "e", 0x8000_0006),
        (issue(&root, bob), "d", 0x8000_0006),
        (issue(&root, bob), "e", 0x8000_0006),
    ] {
        let connection = Connection::new(None, Limits::default(), Instant::ZERO);
        let connection = connection.with_tls(henge_nbd::Tls::Require, Some(files.open()));
        let (mut ours, mut socket) = Bench::client(connection);
        let mut turn = || {
            let stop = bench.read(&mut ours);
            assert!(stop == Stop::Waiting, "{stop:?}");
            assert!(bench.write(&mut ours));
        };
        let mut answer = [0; 256];
        socket.write_all(&[&[0, 0, 0, 3][..], &go(disk)].concat()).unwrap();
        turn();
        let n = socket.read(&mut answer).unwrap();
        assert_eq!(
            (n > 18, kind(&answer[18..])),
            (true, 0x8000_0005),
            "TLS is required, whoever asks for whatever"
        );
        socket.write_all(b"IHAVEOPT\0\0\0\x05\0\0\0\0").unwrap();
        turn();
        assert_eq!((socket.read(&mut answer).unwrap(), kind(&answer)), (20, 1));
        let mut client = client(&root, Some(&shows));
        client.writer().write_all(&go(disk)).unwrap();
        let reply = loop {
            moves(&mut client, &mut socket).unwrap();
            match client.reader().read(&mut answer) {
                Ok(n) => break &answer[..n],
                Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock),
            }
            turn();
        };
        assert_eq!(kind(reply), expected, "{disk}");
    }
}

/// No kernel seals for a Unix socket: what a client is sent is sealed all the same.
#[test]
fn a_socket_that_no_kernel_seals_for_is_sealed_for_by_the_node() {
    let ours = ca("ours");
    let files = Files::new(&ours);
    let tls = Arc::new(Arc::into_inner(files.open()).unwrap().sealed_by_kernel(true));
    let mut rig = Rig::new(&tls, client(&ours, Some(&issue(&ours, ann))));
    rig.greet().0.unwrap();
    assert_eq!(rig.stream.writev(&[IoSlice::new(b"not in clear")]), Ok(12));
    let mut came = [0; 100];
    let len = rig.socket.read(&mut came).unwrap();
    assert_eq!((len, &came[..5]), (5 + 12 + 17, &[23, 3, 3, 0, 29][..]));
    rig.client.read_tls(&mut &came[..len]).unwrap();
    rig.client.process_new_packets().unwrap();
    let mut heard = [0; 12];
    rig.client.reader().read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"not in clear");
}

/// A message is taken without the payload behind it, which then goes to its own place, and what follows that with it.
#[test]
fn a_long_record_behind_a_message_is_left_for_its_place() {
    let ours = ca("ours");
    let files = Files::new(&ours);
    let mut rig = Rig::new(&files.open(), client(&ours, Some(&issue(&ours, ann))));
    rig.greet().0.unwrap();
    for (len, byte) in [(28, 1), (28, 2), (16 << 10, 3), (5000, 4), (28, 5)] {
        rig.client.writer().write_all(&vec![byte; len]).unwrap();
    }
    rig.client_moves().unwrap();
    let (mut payload, mut messages) = (vec![0; (16 << 10) + 5000], vec![0; 64 << 10]);
    let got = rig.stream.read(&mut [], &mut messages, false).unwrap();
    assert_eq!((got.len, got.more, messages[27], messages[55], messages[56]), (56, true, 1, 2, 0));
    let got = rig.stream.read(&mut payload, &mut messages, false).unwrap();
    assert_eq!((got.len, got.more), (payload.len() + 28, false));
    let (long, rest) = payload.split_at(16 << 10);
    assert!(long.iter().all(|&byte| byte == 3) && rest.iter().all(|&byte| byte == 4));
    assert!(messages[..28].iter().all(|&byte| byte == 5));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn bytes_arrive_as_they_are(
        seed in any::<u64>(),
        pieces in proptest::collection::vec((1usize..70_000, 1usize..40_000), 1..12),
        // Where there is a kernel that does. Where there is none, the node does.
        by_kernel in any::<bool>(),
    ) {
        let ours = ca("ours");
        let files = Files::new(&ours);
        let tls = Arc::new(Arc::into_inner(files.open()).unwrap().sealed_by_kernel(by_kernel));
        let client = client(&ours, Some(&issue(&ours, ann)));
        let mut rig = if by_kernel { Rig::by_tcp(&tls, client) } else { Rig::new(&tls, client) };
        rig.greet().0.unwrap();
        let byte = |n: usize| (seed.wrapping_mul(n as u64 | 1) >> 29) as u8;
        for (len, cut) in pieces {
            let text: Vec<u8> = (0..len).map(byte).collect();
            // To the client: many slices, as far as they are taken.
            let (mut sent, mut received) = (0, Vec::new());
            while received.len() < len {
                if sent < len {
                    let slices: Vec<_> = text[sent..].chunks(cut).take(64).map(IoSlice::new).collect();
                    match rig.stream.writev(&slices) {
                        Ok(n) => sent += n,
                        Err(e) => prop_assert_eq!(e, Errno::AGAIN),
                    }
                } else if !rig.stream.is_flushed() {
                    let _ = rig.stream.flush();
                }
                rig.client_moves().unwrap();
                let _ = rig.client.reader().read_to_end(&mut received);
            }
            prop_assert!(received == text);
            // And back, into two slices.
            let (mut sent, mut received) = (0, Vec::new());
            while received.len() < len {
                if sent < len {
                    sent += rig.client.writer().write(&text[sent..]).unwrap();
                }
                rig.client_moves().unwrap();
                loop {
                    let (mut a, mut b) = (vec![0; cut], vec![0; 100]);
                    match rig.stream.read(&mut a, &mut b, false) {
                        Ok(got) => {
                            a.extend(&b);
                            received.extend_from_slice(&a[..got.len]);
                            prop_assert!(got.more || got.len < a.len());
                            if !got.more {
                                break;
                            }
                        }
                        Err(e) => {
                            prop_assert_eq!(e, Errno::AGAIN);
                            break;
                        }
                    }
                }
            }
            prop_assert!(received == text);
        }
    }
}
