//! What every store must do: one suite over memory, redb, and etcd (where Debian's etcd-server is installed).

use super::etcd::{EtcdConfig, EtcdStore, Login, Tls};
use super::ports::free;
use super::{Batch, Leadership, MemoryStore, RedbStore, Store};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Opens the same store again, after the one before was dropped.
pub(crate) type Open = Box<dyn FnMut() -> Box<dyn Store>>;

/// An etcd of one member, which forgets everything when it is dropped.
pub(crate) struct Server {
    child: Child,
    pub url: String,
    pub login: Option<Login>,
    pub tls: Option<Tls>,
    _dir: tempfile::TempDir,
}

impl Server {
    /// None, and says so, where there is no etcd.
    pub(crate) fn start(test: &str) -> Option<Server> {
        Self::begin(test, tempfile::tempdir().unwrap(), None)
    }

    /// One that asks for a certificate signed by its authority, and for a user and a password.
    pub(crate) fn start_secured(test: &str) -> Option<Server> {
        let dir = tempfile::tempdir().unwrap();
        let Some(tls) = certificates_in(dir.path()) else {
            let _ = writeln!(std::io::stderr(), "skipped: {test} needs openssl");
            return None;
        };
        let mut server = Self::begin(test, dir, Some(tls))?;
        let login = |user: &str| Login { user: user.into(), password: format!("{user}'s password") };
        let root = EtcdStore::open(server.config("root")).unwrap();
        root.allow(&login("root"), "root", None);
        // As `etcdctl role grant-permission henge readwrite test/henge/ --prefix` has it.
        root.allow(&login("henge"), "henge", Some(("test/henge/", "test/henge0")));
        root.enable_auth();
        server.login = Some(login("henge"));
        Some(server)
    }

    fn begin(test: &str, dir: tempfile::TempDir, tls: Option<Tls>) -> Option<Server> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (client, peer) = (format!("{scheme}://{}", free()), format!("http://{}", free()));
        let mut command = Command::new("etcd");
        command
            .arg("--data-dir")
            .arg(dir.path().join("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(["--heartbeat-interval", "20", "--election-timeout", "200"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if tls.is_some() {
            command.arg("--client-cert-auth");
            for (option, file) in
                [("cert-file", "own.pem"), ("key-file", "own.key"), ("trusted-ca-file", "ca.pem")]
            {
                command.arg(format!("--{option}")).arg(dir.path().join(file));
            }
        }
        let Ok(child) = command.spawn() else {
            // Past the harness, which shows only what failing tests print.
            let _ = writeln!(std::io::stderr(), "skipped: {test} needs etcd (Debian's etcd-server)");
            return None;
        };
        let server = Server { child, url: client, login: None, tls, _dir: dir };
        let began = Instant::now();
        while let Err(e) = EtcdStore::open(server.config("somebody")) {
            assert!(began.elapsed() < Duration::from_secs(60), "etcd does not begin to serve: {e}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(server)
    }

    pub(crate) fn config(&self, who: &str) -> EtcdConfig {
        EtcdConfig {
            endpoints: vec![self.url.clone()],
            prefix: "test/henge/".into(),
            // Long: no test waits for it, however slow the machine.
            lease: 60,
            advertise: format!("http://{who}"),
            login: self.login.clone(),
            tls: self.tls.clone(),
        }
    }

    /// A manager's store that leads.
    pub(crate) fn leader(&self, who: &str) -> EtcdStore {
        let mut store = EtcdStore::open(self.config(who)).unwrap();
        assert_eq!(store.leadership(), Leadership::Ours);
        store
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An authority of its own, and a certificate for this machine that it signed: for etcd, and for us. Without a CommonName:
/// etcd's gateway takes none where users are enabled.
fn certificates_in(dir: &Path) -> Option<Tls> {
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        command.args(arguments.split(' ')).current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    std::fs::write(dir.join("for"), "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n").unwrap();
    let made = openssl(&format!("req -x509 {new} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"))
        && openssl(&format!("req {new} -keyout own.key -out own.csr -subj /O=etcd"))
        && openssl(
            "x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile for -out own.pem",
        );
    let read = |file: &str| std::fs::read(dir.join(file)).unwrap();
    made.then(|| Tls { authority: Some(read("ca.pem")), own: Some((read("own.pem"), read("own.key"))) })
}

/// Every kind of store, by name; what is to live as long as it does, besides.
pub(crate) fn stores(test: &str) -> Vec<(&'static str, Open, Box<dyn std::any::Any>)> {
    let memory = MemoryStore::default();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.redb");
    let mut all: Vec<(_, Open, Box<dyn std::any::Any>)> = vec![
        ("memory", Box::new(move || Box::new(memory.clone())), Box::new(())),
        ("redb", Box::new(move || Box::new(RedbStore::open(&file).unwrap())), Box::new(dir)),
    ];
    let servers =
        [("etcd", Server::start(test)), ("etcd by https, with a user", Server::start_secured(test))];
    for (name, server) in servers {
        let Some(server) = server.map(std::sync::Arc::new) else { continue };
        let own = std::sync::Arc::clone(&server);
        all.push((name, Box::new(move || Box::new(own.leader("a"))), Box::new(server)));
    }
    all
}

fn batch(changes: &[(&str, Option<&str>)]) -> Batch {
    let own = |(k, v): &(&str, Option<&str>)| ((*k).to_owned(), v.map(|v| v.as_bytes().to_vec()));
    Batch { changes: changes.iter().map(own).collect() }
}

fn texts(store: &mut dyn Store) -> Vec<(String, String)> {
    let all = store.load().unwrap();
    all.into_iter().map(|(k, v)| (k, String::from_utf8_lossy(&v).into_owned())).collect()
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[test]
fn what_was_committed_is_there_when_it_is_opened_again() {
    for (name, mut open, _keep) in stores("store::suite") {
        let mut store = open();
        assert_eq!(store.leadership(), Leadership::Ours, "{name}");
        assert!(store.leads() && store.load().unwrap().is_empty(), "{name}");
        store.commit(&Batch::default()).unwrap();
        store.commit(&batch(&[("b/2", Some("zwei")), ("a/1", Some("")), ("b/10", Some("x"))])).unwrap();
        drop(store);
        let mut store = open();
        // In the order of the keys as bytes.
        assert_eq!(texts(&mut store), [pair("a/1", ""), pair("b/10", "x"), pair("b/2", "zwei")], "{name}");
        // Of one key the last word counts; what is not there is removed without ado.
        store
            .commit(&batch(&[
                ("a/1", Some("one")),
                ("a/1", None),
                ("c", None),
                ("d", Some("1")),
                ("b/2", None),
                ("b/2", Some("two")),
            ]))
            .unwrap();
        drop(store);
        assert_eq!(texts(&mut open()), [pair("b/10", "x"), pair("b/2", "two"), pair("d", "1")], "{name}");
    }
}

#[test]
fn batches_and_values_may_be_large_and_of_any_bytes() {
    for (name, mut open, _keep) in stores("store::suite") {
        let mut store = open();
        let any: Vec<u8> = (0..=255).collect();
        let many = (0..1200u32).map(|i| (format!("n/{i:05}"), Some(vec![i as u8; 300])));
        let large = [("large/1", 400_000), ("large/2", 700_000), ("large/3", 1)];
        let large = large.map(|(key, n)| (key.to_owned(), Some(vec![7u8; n])));
        let any_bytes = [("any".to_owned(), Some(any.clone()))];
        let changes: Vec<_> = many.chain(large).chain(any_bytes).collect();
        store.commit(&Batch { changes: changes.clone() }).unwrap();
        drop(store);
        let mut store = open();
        let mut wanted: Vec<_> = changes.into_iter().filter_map(|(k, v)| Some((k, v?))).collect();
        wanted.sort();
        assert!(store.load().unwrap() == wanted, "{name}");
        let gone = wanted.iter().map(|(key, _)| (key.clone(), None));
        store.commit(&Batch { changes: gone.collect() }).unwrap();
        assert!(store.load().unwrap().is_empty(), "{name}");
    }
}
