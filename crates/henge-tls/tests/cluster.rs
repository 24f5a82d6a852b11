//! Two ends of a cluster, joined in memory: who is of it comes in, and nobody else.

use henge_tls::{
    Clients, Dial, Identity, Pem, Request, Role, Root, Tls, TlsConfig, believe, certificates, is_due, keep,
    names, serial_of, validity,
};
use rustls::{ClientConnection, ServerConnection};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// Somebody's folder.
struct Member {
    dir: tempfile::TempDir,
    role: Role,
}

impl Member {
    fn join(cluster: &str, roots: &[&Root], role: Role, name: &str, now: SystemTime) -> Member {
        let member = Member { dir: tempfile::tempdir().unwrap(), role };
        member.signed(cluster, roots[0], name, now);
        member.believes(roots, "");
        member
    }

    fn signed(&self, cluster: &str, root: &Root, name: &str, now: SystemTime) {
        self.signed_through(cluster, root, "", name, now);
    }

    /// The same with certificates that lead to other roots.
    fn signed_through(&self, cluster: &str, root: &Root, between: &str, name: &str, now: SystemTime) {
        let request = Request::new().unwrap();
        let who = Identity { cluster: cluster.into(), role: self.role, name: name.into() };
        let issued = root.issue(&request.pem, &who, &["localhost".to_owned()], between, now, WEEK).unwrap();
        keep(self.dir.path(), self.role, &request.key, &issued.chain).unwrap();
    }

    fn believes(&self, roots: &[&Root], revoked: &str) {
        let ca: String = roots.iter().map(|root| root.pem()).collect();
        believe(self.dir.path(), self.role, &ca, revoked).unwrap();
    }

    fn files(&self) -> TlsConfig {
        TlsConfig::of(self.dir.path())
    }

    fn own(&self) -> Vec<u8> {
        certificates(&self.dir.path().join("identity.pem")).unwrap()[0].to_vec()
    }
}

/// What each end says when the client sends a word and the server answers it.
fn meet(client: &Member, server: &Member, role: Role, name: Option<&str>) -> Result<Vec<String>, String> {
    let now = SystemTime::now();
    let dial = Dial::open(&client.files(), role, name, now).map_err(|e| format!("dial: {e}"))?;
    let tls = Tls::open(&server.files(), Clients::Required).map_err(|e| format!("files: {}", e.message))?;
    converse(dial.connection().unwrap(), ServerConnection::new(tls.server()).unwrap())
}

fn converse(mut client: ClientConnection, mut server: ServerConnection) -> Result<Vec<String>, String> {
    client.writer().write_all(b"!").unwrap();
    for _ in 0..8 {
        let mut there = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut there).unwrap();
        }
        server.read_tls(&mut &there[..]).unwrap();
        server.process_new_packets().map_err(|e| format!("server: {e}"))?;
        let mut back = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut back).unwrap();
        }
        client.read_tls(&mut &back[..]).unwrap();
        client.process_new_packets().map_err(|e| format!("client: {e}"))?;
        let mut byte = [0];
        if server.reader().read(&mut byte).is_ok() {
            let (label, mut ours, mut theirs) = (b"x", [0; 32], [0; 32]);
            client.export_keying_material(&mut ours, label, None).unwrap();
            server.export_keying_material(&mut theirs, label, None).unwrap();
            assert_eq!(ours, theirs, "both ends know the same");
            return Ok(names(&server.peer_certificates().unwrap()[0]));
        }
    }
    Err("it does not end".into())
}

fn root(cluster: &str) -> Root {
    let pem: Pem = Root::create(cluster, SystemTime::now()).unwrap();
    Root::open(&pem).unwrap()
}

#[test]
fn who_is_of_the_cluster_comes_in_as_who_it_is() {
    let (now, root) = (SystemTime::now(), root("demo"));
    let manager = Member::join("demo", &[&root], Role::Manager, "m1", now);
    let node = Member::join("demo", &[&root], Role::Node, "n1", now);
    let names = meet(&node, &manager, Role::Manager, None).unwrap();
    let who = Identity::of(&names).unwrap();
    assert_eq!((who.cluster.as_str(), who.role, who.name.as_str()), ("demo", Role::Node, "n1"));
    assert!(meet(&node, &manager, Role::Manager, Some("m1")).is_ok());
    // Another name, another role.
    for (role, name) in [(Role::Manager, Some("m2")), (Role::Node, None), (Role::Client, Some("m1"))] {
        let why = meet(&node, &manager, role, name).unwrap_err();
        assert!(why.starts_with("client: ") && why.contains("NotValidForName"), "{why}");
    }
}

#[test]
fn strangers_stay_outside() {
    let now = SystemTime::now();
    let (ours, theirs) = (root("demo"), root("demo"));
    let manager = Member::join("demo", &[&ours], Role::Manager, "m1", now);
    let stranger = Member::join("demo", &[&theirs], Role::Node, "n1", now);
    let why = meet(&stranger, &manager, Role::Manager, None).unwrap_err();
    assert!(why.starts_with("client: "), "a cluster of the same name is another: {why}");
    // One that believes us, and was signed by somebody else.
    stranger.believes(&[&ours], "");
    let why = meet(&stranger, &manager, Role::Manager, None).unwrap_err();
    assert!(why.starts_with("server: "), "{why}");
    // Times, on either side.
    for shift in [WEEK * 2, WEEK + Duration::from_secs(60)] {
        let late = Member::join("demo", &[&ours], Role::Node, "n1", now - shift);
        let why = meet(&late, &manager, Role::Manager, None).unwrap_err();
        assert!(why.contains("expired on"), "{why}");
    }
    let hour = Duration::from_secs(3600);
    let early = Member::join("demo", &[&ours], Role::Node, "n1", now + hour);
    let why = meet(&early, &manager, Role::Manager, None).unwrap_err();
    assert!(why.contains("this machine's clock says"), "{why}");
    let off = Member::join("demo", &[&ours], Role::Manager, "m1", now + hour);
    let node = Member::join("demo", &[&ours], Role::Node, "n1", now);
    assert!(meet(&node, &off, Role::Manager, None).unwrap_err().contains("clock"));
    // No certificate of a cluster at all.
    let alone = Member::join("demo", &[&ours], Role::Node, "n1", now);
    std::fs::write(alone.dir.path().join("identity.pem"), ours.pem()).unwrap();
    assert!(meet(&alone, &manager, Role::Manager, None).unwrap_err().contains("henge join"));
}

#[test]
fn who_is_revoked_is_a_stranger_at_both_ends() {
    let (now, root) = (SystemTime::now(), root("demo"));
    let manager = Member::join("demo", &[&root], Role::Manager, "m1", now);
    let (ann, bob) = (
        Member::join("demo", &[&root], Role::Node, "ann", now),
        Member::join("demo", &[&root], Role::Node, "bob", now),
    );
    let revoked = root.revoke(&[serial_of(&ann.own()).unwrap()], 2, now).unwrap();
    manager.believes(&[&root], &revoked);
    let why = meet(&ann, &manager, Role::Manager, None).unwrap_err();
    assert!(why.to_lowercase().contains("revoked"), "{why}");
    assert!(meet(&bob, &manager, Role::Manager, None).is_ok());
    // Who was let in before is looked at again.
    let tls = Tls::open(&manager.files(), Clients::Offered).unwrap_or_else(|e| panic!("{}", e.message));
    assert!(tls.still(&[ann.own().into()], now).is_err() && tls.still(&[bob.own().into()], now).is_ok());
    assert!(tls.still(&[bob.own().into()], now + WEEK * 2).is_err(), "time passes");
    // A manager that was revoked is dialled by nobody who knows.
    let gone = root.revoke(&[serial_of(&manager.own()).unwrap()], 3, now).unwrap();
    bob.believes(&[&root], &gone);
    manager.believes(&[&root], "");
    let why = meet(&bob, &manager, Role::Manager, None).unwrap_err();
    assert!(why.starts_with("client: ") && why.to_lowercase().contains("revoked"), "{why}");
    // The list goes, and with it the file.
    bob.believes(&[&root], "");
    assert!(meet(&bob, &manager, Role::Manager, None).is_ok());
}

#[test]
fn while_a_root_is_exchanged_nobody_is_left_out() {
    let now = SystemTime::now();
    let (old, new) = (root("demo"), root("demo"));
    let manager = Member::join("demo", &[&old], Role::Manager, "m1", now);
    let node = Member::join("demo", &[&old], Role::Node, "n1", now);
    let fits = |what: &str| {
        let met = meet(&node, &manager, Role::Manager, None);
        assert!(met.is_ok(), "{what}: {met:?}");
    };
    for member in [&manager, &node] {
        member.believes(&[&new, &old], "");
        fits("told of both roots, one by one");
    }
    manager.signed("demo", &new, "m1", now);
    fits("the manager is signed by the new one");
    node.signed("demo", &new, "n1", now);
    fits("the node as well");
    for member in [&node, &manager] {
        member.believes(&[&new], "");
        fits("the old root ends, one by one");
    }
    node.signed("demo", &old, "n1", now);
    assert!(meet(&node, &manager, Role::Manager, None).is_err(), "what it signed counts no more");
}

#[test]
fn who_has_not_heard_of_the_next_root_believes_it() {
    let now = SystemTime::now();
    let old = root("demo");
    let next = Root::create("demo", now).unwrap();
    let vouched = old.vouch(&next, now).unwrap();
    let new = Root::open(&next).unwrap();
    let manager = Member::join("demo", &[&new, &old], Role::Manager, "m1", now);
    manager.signed_through("demo", &new, &format!("{vouched}{}", old.pem()), "m1", now);
    let node = Member::join("demo", &[&old], Role::Node, "n1", now);
    assert!(meet(&node, &manager, Role::Manager, None).is_ok(), "it knows the old root alone");
    // The other way round: who was away while the root was exchanged lets others in.
    let away = Member::join("demo", &[&old], Role::Manager, "m2", now);
    node.signed_through("demo", &new, &vouched, "n1", now);
    assert!(meet(&node, &away, Role::Manager, None).is_ok());
    let chain = certificates(&node.dir.path().join("identity.pem")).unwrap();
    assert_eq!(chain.last().map(|c| henge_tls::fingerprint_of(c)).as_deref(), Some(new.fingerprint()));
    // Nobody vouches for what the old root signs once it has ended.
    manager.believes(&[&new], "");
    node.believes(&[&new], "");
    assert!(meet(&node, &manager, Role::Manager, None).is_ok());
    node.signed("demo", &old, "n1", now);
    assert!(meet(&node, &manager, Role::Manager, None).is_err());
    // A stranger's root of the same name leads nowhere.
    let stranger = root("demo");
    let theirs = Root::create("demo", now).unwrap();
    let theirs_vouched = stranger.vouch(&theirs, now).unwrap();
    node.signed_through("demo", &Root::open(&theirs).unwrap(), &theirs_vouched, "n1", now);
    assert!(meet(&node, &away, Role::Manager, None).is_err());
}

#[test]
fn requests_and_lists_that_are_none_are_refused() {
    let root = root("demo");
    let who = Identity { cluster: "demo".into(), role: Role::Node, name: "n1".into() };
    let now = SystemTime::now();
    for text in
        ["", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", root.pem()]
    {
        assert!(root.issue(text, &who, &[], "", now, WEEK).is_err(), "{text}");
        assert!(henge_tls::check_request(text).is_err(), "{text}");
    }
    // Somebody else's request with one byte changed: its signature does not fit.
    let request = Request::new().unwrap().pem;
    assert!(henge_tls::check_request(&request).is_ok());
    let mut lines: Vec<String> = request.lines().map(str::to_owned).collect();
    let at = lines.len() - 2;
    let swapped = if lines[at].starts_with('A') { "B" } else { "A" };
    lines[at].replace_range(0..1, swapped);
    assert!(henge_tls::check_request(&lines.join("\n")).is_err());
    let request = Request::new().unwrap();
    assert!(root.issue(&request.pem, &who, &["höst".to_owned()], "", now, WEEK).is_err(), "no host's name");
}

#[test]
fn a_certificate_is_due_when_two_thirds_of_its_time_are_over() {
    let (now, root) = (SystemTime::now(), root("demo"));
    let node = Member::join("demo", &[&root], Role::Node, "n1", now);
    let v = validity(&node.own()).unwrap();
    let span = v.until - v.from;
    let due = |at| is_due(node.dir.path(), at).unwrap();
    assert!(!due(v.from + span / 2) && due(v.until - span / 3) && due(v.until + 1));
    // Another root signs: it is due at once.
    let second = self::root("demo");
    believe(node.dir.path(), Role::Node, &format!("{}{}", second.pem(), root.pem()), "").unwrap();
    assert!(due(v.from));
    believe(node.dir.path(), Role::Node, &format!("{}{}", root.pem(), second.pem()), "").unwrap();
    assert!(!due(v.from));
    assert_eq!(span, i64::try_from(WEEK.as_secs()).unwrap() + 300);
    assert!(Path::new(&node.dir.path().join("identity.pem")).exists());
    let again =
        Arc::new(Tls::open(&node.files(), Clients::Required).unwrap_or_else(|e| panic!("{}", e.message)));
    assert_eq!(again.renew(now), Ok(false));
}

/// A disk that lets `CN=ann` in means client ann. Who serves shares a name with a client at most by chance, or by theft.
#[test]
fn who_serves_has_no_common_name_by_which_a_client_is_let_in() {
    let now = SystemTime::now();
    let root = Root::open(&Root::create("demo", now).unwrap()).unwrap();
    for (role, common) in
        [(Role::Client, true), (Role::Node, false), (Role::Proxy, false), (Role::Manager, false)]
    {
        let names = names(&Member::join("demo", &[&root], role, "ann", now).own());
        assert!(names.contains(&format!("spiffe://demo/{role}/ann")), "{names:?}");
        assert_eq!(names.iter().any(|name| name == "CN=ann"), common, "{role}: {names:?}");
    }
}
