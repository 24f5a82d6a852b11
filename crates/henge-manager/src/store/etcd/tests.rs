//! Managers that lose their leadership, and those that die between two transactions.

use super::super::suite::Server;
use super::*;
use serde_json::json;

impl EtcdStore {
    /// Adds a user with a role: over keys from one to another, or etcd's own `root`.
    pub(crate) fn allow(&self, login: &Login, role: &str, range: Option<(&str, &str)>) {
        let mut gateway = self.fresh();
        let mut call = |path: &str, body| gateway.call(path, &body).unwrap();
        call("auth/user/add", json!({ "name": login.user, "password": login.password }));
        call("auth/role/add", json!({ "name": role }));
        if let Some((from, to)) = range {
            let perm = json!({ "permType": "READWRITE", "key": BASE64.encode(from), "range_end": BASE64.encode(to) });
            call("auth/role/grant", json!({ "name": role, "perm": perm }));
        }
        call("auth/user/grant", json!({ "user": login.user, "role": role }));
    }

    pub(crate) fn enable_auth(&self) {
        self.fresh().call("auth/enable", &json!({})).unwrap();
    }

    fn fresh(&self) -> Gateway {
        let EtcdConfig { endpoints, tls, login, .. } = self.config.clone();
        Gateway::new(endpoints, tls.as_ref(), login, PATIENCE).unwrap()
    }
}

fn put(key: &str, value: &str) -> Batch {
    Batch { changes: vec![(key.to_owned(), Some(value.as_bytes().to_vec()))] }
}

fn large(tag: &str) -> Batch {
    let one = |i| (format!("k/{i:04}"), Some(format!("{tag}{i}").into_bytes()));
    Batch { changes: (0..250).map(one).collect() }
}

/// As if the lease had run out.
fn expire(server: &Server, store: &EtcdStore) {
    let lease = store.term.as_ref().unwrap().lease;
    EtcdStore::open(server.config("nobody")).unwrap().gateway.revoke(lease).unwrap();
}

#[test]
fn who_was_deposed_changes_nothing_and_says_who_leads() {
    let Some(server) = Server::start("etcd::who_was_deposed") else { return };
    let mut a = server.leader("a");
    let mut b = EtcdStore::open(server.config("b")).unwrap();
    assert_eq!(b.leadership(), Leadership::Theirs(Some("http://a".into())));
    assert!(!b.leads() && b.load().is_err() && b.commit(&put("x", "b's")).is_err());
    a.commit(&put("x", "a's")).unwrap();
    expire(&server, &a);
    assert_eq!(b.leadership(), Leadership::Ours);
    // a does not know it yet.
    assert!(a.leads());
    let error = a.commit(&put("x", "late")).unwrap_err();
    assert!(error.0.contains("taken over"), "{error}");
    assert!(!a.leads());
    assert_eq!(a.leadership(), Leadership::Theirs(None), "said at least once");
    assert_eq!(a.leadership(), Leadership::Theirs(Some("http://b".into())));
    assert_eq!(b.load().unwrap(), [("x".to_owned(), b"a's".to_vec())]);
    b.commit(&put("x", "b's")).unwrap();
    // An orderly end: the other one need not wait.
    drop(b);
    assert_eq!(a.leadership(), Leadership::Ours);
    assert_eq!(a.load().unwrap(), [("x".to_owned(), b"b's".to_vec())]);
    // Its key has gone and nobody else has made one: it leads again, in another term, and says that there was an end.
    expire(&server, &a);
    a.term.as_mut().unwrap().kept -= Duration::from_secs(30);
    assert_eq!((a.leadership(), a.leadership()), (Leadership::Theirs(None), Leadership::Ours));
}

#[test]
fn a_transaction_whose_answer_was_lost_is_done_once() {
    let Some(server) = Server::start("etcd::a_transaction_whose_answer_was_lost") else { return };
    let mut a = server.leader("a");
    a.commit(&put("x", "1")).unwrap();
    let before = a.term.clone();
    a.commit(&put("x", "2")).unwrap();
    // The same again, as if its answer had not come.
    let after = std::mem::replace(&mut a.term, before.clone());
    a.commit(&put("x", "2")).unwrap();
    assert_eq!(a.term.as_ref().unwrap().commit, after.unwrap().commit);
    a.commit(&put("x", "3")).unwrap();
    // One that comes after later ones changes nothing.
    a.term = before;
    assert!(a.commit(&put("x", "stale")).is_err());
    a.depose();
    expire_all(&server);
    assert_eq!(server.leader("b").load().unwrap(), [("x".to_owned(), b"3".to_vec())]);
}

/// Takes the leader's key away, whoever has it.
fn expire_all(server: &Server) {
    let mut store = EtcdStore::open(server.config("nobody")).unwrap();
    let leader = store.key("leader");
    store.gateway.transact(&[], &[Do::Delete(&leader)], &[]).unwrap();
}

#[test]
fn a_large_batch_is_there_whole_or_not_at_all_wherever_its_writer_died() {
    let Some(server) = Server::start("etcd::a_large_batch") else { return };
    let mut first = server.leader("first");
    first.commit(&large("old")).unwrap();
    drop(first);
    let (old, new) = (large("old"), large("new"));
    let as_loaded = |batch: &Batch| -> Vec<_> {
        batch.changes.iter().map(|(k, v)| (k.clone(), v.clone().unwrap())).collect()
    };
    // Three pieces, the word that they are whole, three times doing them, and forgetting them.
    for deaths in 0..=8 {
        let mut dying = server.leader("dying");
        dying.left = Some(deaths);
        let outcome = dying.commit(&new);
        assert_eq!(outcome.is_ok(), deaths == 8, "{deaths}: {outcome:?}");
        expire(&server, &dying);
        let mut heir = server.leader("heir");
        let found = heir.load().unwrap();
        let wanted = if deaths > 3 { &new } else { &old };
        assert!(found == as_loaded(wanted), "{deaths}");
        assert!(heir.range("test/henge/batch/").unwrap().is_empty(), "{deaths}");
        heir.commit(&old).unwrap();
    }
}

#[test]
fn without_etcd_it_says_so() {
    let config = EtcdConfig {
        endpoints: vec!["http://127.0.0.1:1".into(), "http://127.0.0.1:2".into()],
        prefix: "henge/".into(),
        lease: 2,
        advertise: "http://a".into(),
        login: None,
        tls: None,
    };
    let error = EtcdStore::open(config).unwrap_err();
    assert!(error.0.contains("etcd does not answer") && error.0.contains("http://127.0.0.1:2"), "{error}");
}

#[test]
fn who_is_not_known_there_changes_nothing_and_is_told_why() {
    let Some(server) = Server::start_secured("etcd::who_is_not_known") else { return };
    let as_whom = |change: &dyn Fn(&mut EtcdConfig)| {
        let mut config = server.config("a");
        change(&mut config);
        EtcdStore::open(config).map(drop).map_err(|e| e.0)
    };
    assert_eq!(as_whom(&|_| {}), Ok(()));
    let says = |what: &str, change: &dyn Fn(&mut EtcdConfig)| {
        let why = as_whom(change).unwrap_err();
        assert!(why.contains(what), "{what}: {why}");
    };
    says("state user and password_file", &|c| c.login = None);
    says("user \"henge\"", &|c| c.login.as_mut().unwrap().password.push('!'));
    says("permission denied", &|c| c.prefix = "others/".into());
    // Another authority than etcd's, and no certificate of our own.
    says("certificate", &|c| c.tls = Some(Tls { authority: None, own: c.tls.clone().unwrap().own }));
    says("does not answer", &|c| c.tls.as_mut().unwrap().own = None);
}

#[test]
fn a_token_that_ran_out_is_replaced_by_another() {
    let Some(server) = Server::start_secured("etcd::a_token_that_ran_out") else { return };
    let mut a = server.leader("a");
    a.commit(&put("x", "1")).unwrap();
    a.gateway.token = Some("nobody.1".into());
    a.commit(&put("x", "2")).unwrap();
    assert_ne!(a.gateway.token.as_deref(), Some("nobody.1"));
    assert_eq!(a.load().unwrap(), [("x".to_owned(), b"2".to_vec())]);
}

#[test]
fn a_password_where_nobody_asks_for_one_is_an_error() {
    let Some(server) = Server::start("etcd::a_password_where") else { return };
    let login = Some(Login { user: "henge".into(), password: "x".into() });
    let error = EtcdStore::open(EtcdConfig { login, ..server.config("a") }).unwrap_err();
    assert!(error.0.contains("auth enable"), "{error}");
}
