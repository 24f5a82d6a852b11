use super::*;
use crate::machine::tests::{ADMIN, settings, settle, spec, three};
use crate::machine::{Created, Grant, Settings};
use crate::model::{AuthorityRecord, CertificateRecord, DiskRecord, DiskSpec, InvitationRecord};
use crate::tokens::{self, Scope};

fn callers() -> (Caller, Caller) {
    (Caller::Tenant("ann".into()), Caller::Tenant("bob".into()))
}

#[test]
fn tenants_see_and_change_their_own_and_both_may_have_the_same_name() {
    let (mut machine, _) = three();
    let (ann, bob) = callers();
    let plain = spec(1, None, None);
    let made = machine.create(&ann, "d", &plain, None, None).unwrap();
    assert_eq!(made, Created { name: "ann.d".into(), fresh: true });
    for name in ["d", "ann.d"] {
        assert!(matches!(machine.inventory.visible(&bob, name), Err(Failure::Missing(_))));
        assert!(matches!(machine.remove(&bob, name, None, true), Err(Failure::Missing(_))));
        assert!(matches!(machine.change(&bob, name, &plain, None), Err(Failure::Missing(_))));
        assert_eq!(machine.inventory.visible(&ann, name).unwrap().name, "ann.d");
    }
    let of_another = machine.create(&bob, "e", &plain, Some("ann"), None);
    assert!(matches!(of_another, Err(Failure::Forbidden(_))));
    // What bob is told does not say that ann has one.
    assert_eq!(machine.create(&bob, "d", &plain, None, None).unwrap().name, "bob.d");
    for again in ["d", "bob.d"] {
        assert!(matches!(machine.create(&bob, again, &plain, None, None), Err(Failure::Conflict(_))));
    }
    assert_eq!(
        (machine.inventory.visible(&ADMIN, "bob.d").is_ok(), machine.inventory.visible(&ADMIN, "d").is_ok()),
        (true, false)
    );
    let long = "x".repeat(61);
    assert!(matches!(machine.create(&bob, &long, &plain, None, None), Err(Failure::Bad(_))));
    // A disk of an earlier release has no tenant's name before its own.
    machine.create(&ADMIN, "old", &plain, None, None).unwrap();
    let old = DiskRecord { tenant: Some("ann".into()), ..machine.inventory.disk("old").unwrap().clone() };
    machine.put_disk("old", Some(old));
    assert_eq!(machine.inventory.visible(&ann, "old").unwrap().name, "old");
    assert_eq!((ann.calls("old"), ann.calls("ann.d"), ADMIN.calls("ann.d")), ("old", "d", "ann.d"));
}

#[test]
fn a_quota_is_kept_and_what_is_left_is_said() {
    let (mut machine, mut nodes) = three();
    let (ann, bob) = callers();
    let quota =
        Quota { disks: Some(2), bytes: Some("30GB".into()), rate: Some("100/s".into()), ..Quota::default() };
    machine.set_quota(&ADMIN, "ann", quota).unwrap();
    machine.create(&ann, "a", &spec(20, Some(60), None), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    let beyond = |outcome: Result<Created, Failure>| match outcome {
        Err(Failure::Quota { why, left }) => (why, *left),
        other => panic!("{other:?}"),
    };
    let (why, left) = beyond(machine.create(&ann, "b", &spec(11, None, None), None, None));
    assert!(why.contains("10GB are left"), "{why}");
    let all = Quota {
        disks: Some(1),
        bytes: Some("10000000000B".into()),
        rate: Some("40/s".into()),
        ..Quota::default()
    };
    assert_eq!(left, all);
    // Whoever makes it: the administrator raises the quota first.
    let (why, _) = beyond(machine.create(&ADMIN, "b", &spec(1, Some(41), None), Some("ann"), None));
    assert!(why.contains("rate"), "{why}");
    let preview = machine.preview(&ann, &spec(1, Some(41), None)).unwrap();
    assert!(!preview.admitted && preview.why.contains("40/s are left"), "{preview:?}");
    assert!(machine.preview(&bob, &spec(1, Some(41), None)).unwrap().admitted);
    machine.create(&ann, "b", &spec(10, Some(40), None), None, None).unwrap();
    let (why, _) = beyond(machine.create(&ann, "c", &spec(1, None, None), None, None));
    assert!(why.contains("disks"), "{why}");
    // A change is held against the others', not against what it had itself.
    machine.change(&ann, "b", &spec(10, Some(39), None), None).unwrap();
    machine.change(&ann, "b", &spec(10, Some(40), None), None).unwrap();
    assert!(matches!(machine.change(&ann, "b", &spec(10, Some(41), None), None), Err(Failure::Quota { .. })));
    // A disk counts until its nodes have said that it is gone.
    settle(&mut machine, &mut nodes);
    machine.remove(&ann, "a", None, true).unwrap();
    beyond(machine.create(&ann, "c", &spec(1, None, None), None, None));
    settle(&mut machine, &mut nodes);
    machine.create(&ann, "c", &spec(20, Some(60), None), None, None).unwrap();
    let shown = machine.tenant(&ann, "ann").unwrap();
    assert_eq!(
        (shown.used.disks, shown.left.disks, shown.left.rate.as_deref()),
        (Some(2), Some(0), Some("0/s"))
    );
}

#[test]
fn a_latency_counts_by_what_is_reserved_for_it() {
    let (mut machine, _) = three();
    let (ann, _) = callers();
    machine.create(&ann, "a", &spec(1, None, Some(120)), None, None).unwrap();
    let reserved = machine.inventory.disk("ann.a").unwrap().whole_micro();
    assert!(reserved > 1_000_000, "a latency takes a reservation");
    let quota = |micro: u64| Quota { rate: Some(crate::model::rate_text(micro)), ..Quota::default() };
    machine.set_quota(&ADMIN, "ann", quota(2 * reserved - 1)).unwrap();
    let second = machine.create(&ann, "b", &spec(1, None, Some(120)), None, None);
    assert!(matches!(second, Err(Failure::Quota { .. })), "{second:?}");
    machine.set_quota(&ADMIN, "ann", quota(2 * reserved)).unwrap();
    machine.create(&ann, "b", &spec(1, None, Some(120)), None, None).unwrap();
}

#[test]
fn a_tenant_moves_below_the_ceiling_and_not_above() {
    let (mut machine, _) = three();
    let (ann, bob) = callers();
    let disks = |n| Quota { disks: Some(n), ..Quota::default() };
    machine.set_quota(&ADMIN, "ann", disks(10)).unwrap();
    assert!(matches!(machine.set_quota(&ann, "ann", disks(11)), Err(Failure::Conflict(_))));
    assert!(matches!(machine.set_quota(&bob, "ann", disks(1)), Err(Failure::Missing(_))));
    assert!(matches!(machine.tenant(&bob, "ann"), Err(Failure::Missing(_))));
    assert_eq!(machine.tenants(&bob), []);
    assert_eq!(machine.set_quota(&ann, "ann", disks(1)).unwrap().left.disks, Some(1));
    machine.create(&ann, "a", &spec(1, None, None), None, None).unwrap();
    let own = machine.create(&ann, "b", &spec(1, None, None), None, None);
    assert!(matches!(own, Err(Failure::Quota { .. })));
    machine.set_quota(&ann, "ann", disks(10)).unwrap();
    machine.create(&ann, "b", &spec(1, None, None), None, None).unwrap();
    let bad = Quota { bytes: Some("many".into()), ..Quota::default() };
    assert!(matches!(machine.set_quota(&ADMIN, "ann", bad), Err(Failure::Bad(_))));
    assert!(matches!(machine.set_quota(&ADMIN, "a b", disks(1)), Err(Failure::Bad(_))));
    // It is remembered.
    let stored = machine.take_batch().changes.into_iter().filter_map(|(k, v)| Some((k, v?)));
    let stored: std::collections::BTreeMap<_, _> = stored.collect();
    let young = Machine::load(settings(), stored.into_iter().collect()).unwrap();
    assert_eq!(young.tenant(&ADMIN, "ann").unwrap(), machine.tenant(&ADMIN, "ann").unwrap());
}

#[test]
fn terms_that_the_administrator_set_are_a_ceiling() {
    let (mut machine, _) = three();
    let (ann, _) = callers();
    let limited = |limit: Option<&str>| DiskSpec { limit: limit.map(str::to_owned), ..spec(1, None, None) };
    machine.create(&ADMIN, "d", &limited(Some("500/s")), Some("ann"), None).unwrap();
    for above in [limited(None), limited(Some("501/s"))] {
        assert!(matches!(machine.change(&ann, "d", &above, None), Err(Failure::Forbidden(_))));
        assert!(matches!(machine.admits_change(&ann, "d", &above), Err(Failure::Forbidden(_))));
    }
    let one = Caller::Disk { tenant: Some("ann".into()), name: "ann.d".into() };
    machine.change(&one, "d", &limited(Some("100/s")), None).unwrap();
    assert!(matches!(machine.change(&one, "d", &limited(None), None), Err(Failure::Forbidden(_))));
    machine.change(&ann, "d", &limited(Some("500/s")), None).unwrap();
    machine.change(&ADMIN, "ann.d", &limited(None), None).unwrap();
    machine.change(&ann, "d", &limited(Some("900/s")), None).unwrap();
    // What a tenant made itself has no ceiling but its quota.
    machine.create(&ann, "e", &limited(Some("500/s")), None, None).unwrap();
    machine.change(&ann, "e", &limited(None), None).unwrap();
}

#[test]
fn a_token_of_one_disk_opens_that_one() {
    let (mut machine, _) = three();
    let (ann, _) = callers();
    for name in ["d", "e"] {
        machine.create(&ann, name, &spec(1, None, None), None, None).unwrap();
    }
    machine.create(&ADMIN, "d", &spec(1, None, None), None, None).unwrap();
    let scope = Scope { tenant: Some("ann".into()), read: true, disk: Some("ann.d".into()) };
    let (token, record) = tokens::create(scope, 0, None).unwrap();
    machine.tokens.put(&mut machine.journal, record);
    let known = tokens::known(&machine, &token).unwrap();
    assert!(known.read);
    let one = known.caller;
    assert_eq!(machine.inventory.visible(&one, "d").unwrap().name, "ann.d");
    assert!(matches!(machine.inventory.visible(&one, "e"), Err(Failure::Missing(_))));
    assert_eq!(machine.disks().filter(|d| one.owns(d)).count(), 1);
    let made = machine.create(&one, "f", &spec(1, None, None), None, None);
    assert!(matches!(made, Err(Failure::Forbidden(_))));
    assert_eq!(machine.tenants(&one), []);
    // The administrator's disk of that name is another one; a token of it opens no tenant's.
    let other = Caller::Disk { tenant: None, name: "d".into() };
    assert_eq!(machine.inventory.visible(&other, "d").unwrap().tenant, None);
    assert!(machine.inventory.visible(&other, "ann.d").is_err() && !other.is_administrator());
}

#[test]
fn a_tenant_without_disks_ends_with_its_tokens() {
    let (mut machine, mut nodes) = three();
    let (ann, _) = callers();
    let (token, record) =
        tokens::create(Scope { tenant: Some("ann".into()), ..Scope::default() }, 0, None).unwrap();
    machine.tokens.put(&mut machine.journal, record);
    machine.create(&ann, "d", &spec(1, None, None), None, None).unwrap();
    settle(&mut machine, &mut nodes);
    assert!(matches!(machine.remove_tenant("ann"), Err(Failure::Conflict(_))));
    machine.remove(&ann, "d", None, true).unwrap();
    settle(&mut machine, &mut nodes);
    assert!(tokens::known(&machine, &token).is_ok());
    machine.remove_tenant("ann").unwrap();
    assert!(tokens::known(&machine, &token).is_err());
    assert!(matches!(machine.remove_tenant("ann"), Err(Failure::Missing(_))));
    assert!(matches!(machine.tenant(&ADMIN, "ann"), Err(Failure::Missing(_))));
}

fn certificate(serial: &str, name: &str, tenant: Option<&str>) -> CertificateRecord {
    CertificateRecord {
        serial: serial.into(),
        role: "client".into(),
        name: name.into(),
        tenant: tenant.map(str::to_owned),
        hosts: Vec::new(),
        root: "r".into(),
        issued: 0,
        expires: u64::MAX,
        revoked: None,
    }
}

#[test]
fn a_tenant_made_later_has_nothing_of_the_one_before() {
    let (mut machine, mut nodes) = three();
    machine.identities.put_authority(
        &mut machine.journal,
        AuthorityRecord { cluster: "demo".into(), roots: Vec::new(), list: 4 },
    );
    let (ann, bob) = callers();
    let plain = spec(1, None, None);
    for (who, key) in [(&ann, "k"), (&bob, "k")] {
        machine.create(who, "d", &plain, None, Some((key, "one request"))).unwrap();
    }
    settle(&mut machine, &mut nodes);
    let invitation = |id: &str, name: &str, tenant: Option<&str>| InvitationRecord {
        id: id.into(),
        role: "client".into(),
        name: name.into(),
        tenant: tenant.map(str::to_owned),
        hosts: Vec::new(),
        hash: format!("hash-{id}"),
        created: 0,
        expires: u64::MAX,
        used: None,
    };
    for (id, name) in [("open", "phone"), ("under way", "tablet")] {
        machine.identities.invite(&mut machine.journal, invitation(id, name, Some("ann"))).unwrap();
    }
    let under_way =
        Grant::Invitation(machine.identities.redeem(&mut machine.journal, "hash-under way").unwrap().id);
    let certificates = [
        certificate("1", "laptop", Some("ann")),
        certificate("2", "ann", None), // invited before tenants had clients
        certificate("3", "ann", Some("bob")),
        certificate("4", "backup", None),
        CertificateRecord { role: "node".into(), ..certificate("5", "ann", None) },
    ];
    for one in certificates {
        machine.identities.issued(&mut machine.journal, one, &Grant::Own).unwrap();
    }
    assert_eq!(machine.tenant(&ADMIN, "ann").unwrap().clients, 2);
    machine.remove(&ann, "d", None, true).unwrap();
    settle(&mut machine, &mut nodes);
    let shown = |machine: &Machine| machine.events(0).filter(|e| e.tenant.as_deref() == Some("ann")).count();
    assert!(shown(&machine) > 0);
    let forgotten = machine.remove_tenant("ann").unwrap();
    assert_eq!(forgotten, Forgotten { tokens: 0, certificates: 2, invitations: 1 });
    assert_eq!(machine.identities.authority().unwrap().list, 5, "nodes are told");
    let counting = |machine: &Machine| {
        let counting = machine.identities.certificates(machine.journal.now()).filter(|c| c.revoked.is_none());
        counting.map(|c| c.serial.clone()).collect::<Vec<_>>()
    };
    assert_eq!(counting(&machine), ["3", "4", "5"]);
    assert!(
        machine
            .identities
            .issued(&mut machine.journal, certificate("6", "tablet", Some("ann")), &under_way)
            .is_err()
    );
    assert!(machine.identities.redeem(&mut machine.journal, "hash-open").is_err());
    // Somebody else is called so now.
    let quota = Quota { disks: Some(1), ..Quota::default() };
    machine.set_quota(&ADMIN, "ann", quota).unwrap();
    assert_eq!(shown(&machine), 0, "what happened before is not hers to know");
    assert_eq!(machine.tenant(&ADMIN, "ann").unwrap().clients, 0);
    assert!(
        machine.identities.may_renew("1", machine.journal.now()).is_err()
            && machine.identities.may_renew("2", machine.journal.now()).is_err()
    );
    machine.create(&ann, "e", &plain, None, Some(("k", "another request"))).unwrap();
    // And what is stored says the same.
    let stored = machine.take_batch().changes.into_iter();
    let stored: std::collections::BTreeMap<_, _> = stored.collect();
    let stored = stored.into_iter().filter_map(|(k, v)| Some((k, v?))).collect();
    let young = Machine::load(settings(), stored).unwrap();
    assert_eq!((counting(&young), shown(&young)), (counting(&machine), shown(&machine)));
}

#[test]
fn a_tenant_is_there_while_it_has_a_client() {
    let (mut machine, _) = three();
    machine
        .identities
        .issued(&mut machine.journal, certificate("1", "laptop", Some("zoe")), &Grant::Own)
        .unwrap();
    assert_eq!(machine.tenant(&ADMIN, "zoe").unwrap().clients, 1);
    machine.remove_tenant("zoe").unwrap();
    assert!(machine.tenant(&ADMIN, "zoe").is_err());
}

#[test]
fn what_no_quota_counts_is_the_administrators_to_give() {
    let mut machine = Machine::load(Settings { rules: None, ..Settings::default() }, Vec::new()).unwrap();
    let pool = henge_api::manager::Pool {
        name: "p".into(),
        capacity: 1 << 40,
        copies: 1,
        scheduler: "locality".into(),
        keeps: None,
        profile: None,
        shared: None,
    };
    let node = henge_api::manager::Register {
        name: "n".into(),
        addresses: Vec::new(),
        link: None,
        pools: vec![pool],
        disks: Vec::new(),
        speaks: henge_api::manager::speaks(),
    };
    machine.register(1, node);
    let ann = Caller::Tenant("ann".into());
    let with = |terms: &[(&str, &str)]| {
        let mut spec = DiskSpec { capacity: "1GB".into(), ..DiskSpec::default() };
        terms.iter().for_each(|(key, text)| spec.set(key, text).unwrap());
        spec
    };
    let shared =
        with(&[("share", "25%"), ("kind", "throughput"), ("throughput", "90/s"), ("tolerance", "5%")]);
    let why = machine.create(&ann, "d", &shared, None, None).unwrap_err().to_string();
    assert!(why.contains("share is the administrator's to give"), "{why}");
    let said = machine.preview(&ann, &shared).unwrap();
    assert!(!said.admitted && said.why.contains("administrator's"), "{said:?}");
    machine.create(&Caller::Administrator, "d", &shared, Some("ann"), None).unwrap();
    // She changes other terms, and none of these: a tolerance that is gone promises more.
    let mut other = shared.clone();
    other.set("weight", "3").unwrap();
    machine.change(&ann, "ann.d", &other, None).unwrap();
    for (term, text) in [("tolerance", ""), ("share", "26%"), ("burst", "9"), ("min_share", "1%")] {
        let mut more = other.clone();
        more.set("limit", "9/s").unwrap();
        more.set(term, text).unwrap();
        let why = machine.change(&ann, "ann.d", &more, None).unwrap_err().to_string();
        assert!(why.contains(term), "{term}: {why}");
        machine.admits_change(&ann, "ann.d", &more).unwrap_err();
    }
    // A quota of shares makes them hers, as far as it goes, and not bursts.
    let quota = Quota { share: Some("60%".into()), ..Quota::default() };
    machine.set_quota(&Caller::Administrator, "ann", quota).unwrap();
    let own = with(&[("share", "35%")]);
    machine.create(&ann, "e", &own, None, None).unwrap();
    match machine.create(&ann, "f", &with(&[("share", "1%")]), None, None).unwrap_err() {
        Failure::Quota { why, left } => {
            assert!(why.contains("60% are allowed and 60% in use; 0% are left"), "{why}");
            assert_eq!(left.share.as_deref(), Some("0%"));
        }
        other => panic!("{other:?}"),
    }
    let bursts = with(&[("limit", "9/s"), ("burst", "7")]);
    assert!(machine.create(&ann, "g", &bursts, None, None).unwrap_err().to_string().contains("--burst"));
    // What the administrator stated of a disk stays its ceiling.
    let mut more = other.clone();
    more.set("share", "26%").unwrap();
    machine.remove(&ann, "e", None, true).unwrap();
    let why = machine.change(&ann, "ann.d", &more, None).unwrap_err().to_string();
    assert!(why.contains("set share to 25%"), "{why}");
    more.set("share", "24%").unwrap();
    machine.change(&ann, "ann.d", &more, None).unwrap();
    more.set("share", "25%").unwrap();
    machine.change(&ann, "ann.d", &more, None).unwrap();
    let want = machine.inventory.disk("ann.d").unwrap().want("n", |_| None).unwrap();
    assert_eq!((want.contract["share"].as_str(), want.contract["tolerance"].as_str()), ("25%", "5%"));
}

#[test]
fn a_tenant_that_sets_its_quota_without_end_crowds_out_its_own_past_alone() {
    let (mut machine, _) = three();
    let (ann, bob) = callers();
    let of_nodes = machine.events(0).filter(|e| e.kind == "node_up").count();
    assert!(of_nodes > 0);
    let set = |machine: &mut Machine, who: &Caller, disks| {
        let quota = Quota { disks: Some(disks), ..Quota::default() };
        machine.set_quota(who, who.tenant().unwrap_or("ann"), quota).unwrap();
    };
    set(&mut machine, &ADMIN, 900);
    set(&mut machine, &bob, 7);
    (0..2 * settings().events_max as u32).for_each(|i| set(&mut machine, &ann, i));
    let events = || machine.events(0);
    assert_eq!(events().filter(|e| e.kind == "node_up").count(), of_nodes);
    assert!(events().any(|e| e.tenant.is_none() && e.text.contains("900")), "the administrator's");
    assert!(events().any(|e| e.tenant.as_deref() == Some("bob")));
}

/// What changes nothing is a line of the audit log as well.
#[test]
fn a_tenant_asks_for_changes_a_bounded_number_of_times() {
    let (mut machine, _) = three();
    let (ann, bob) = callers();
    let plain = spec(1, None, None);
    machine.create(&ann, "d", &plain, None, None).unwrap();
    machine.create(&bob, "d", &plain, None, None).unwrap();
    let mut asks = |who: &Caller, what: usize| match what {
        0 => machine.change(who, "d", &plain, None),
        1 => machine.set_quota(who, "ann", Quota::default()).map(drop),
        2 => machine.remove(who, "e", None, true).map(drop),
        _ => machine.create(who, "d", &plain, None, None).map(drop),
    };
    let is_often = |asked: Result<(), Failure>| matches!(asked, Err(Failure::Often(_)));
    assert!(!(0..999).any(|i| is_often(asks(&ann, i % 4))));
    assert!((0..4).all(|what| is_often(asks(&ann, what))));
    assert!(asks(&bob, 0).is_ok() && !is_often(asks(&ADMIN, 2)));
}
