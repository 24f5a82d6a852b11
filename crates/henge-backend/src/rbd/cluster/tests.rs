use super::super::fake::Fake;
use super::*;

const LEN: u64 = 1 << 17;

fn plan(part: &str) -> Plan {
    Plan {
        part: part.into(),
        len: LEN,
        origin: Origin::default(),
        adopt: false,
        expected: false,
        look: false,
        settled: false,
        claim: None,
    }
}

fn image(name: &str) -> Plan {
    let origin = Origin { image: Some(name.into()), ..Origin::default() };
    Plan { origin, ..plan("web.part0") }
}

fn from(snapshot: &str) -> Plan {
    let origin = Origin { from: Some(snapshot.into()), ..Origin::default() };
    Plan { origin, ..plan("web.part0") }
}

fn why(fake: &Fake, plan: &Plan) -> String {
    have(fake, plan).err().expect("it is refused").to_string()
}

#[test]
fn a_new_image_has_its_mark_before_it_has_its_name() {
    let fake = Fake::new();
    let had = have(&*fake, &plan("web.part0")).unwrap().unwrap();
    assert!(had.empty && had.ours && had.image.size() == LEN);
    assert_eq!(*fake.log.lock().unwrap(), ["create web.henge-new", "rename web.henge-new web"]);
    assert_eq!(fake.at("web", |image| image.notes["henge.part"].clone()), "web.part0");
    // The same disk finds it, wherever; one of several parts has a name of its own.
    let had = have(&*fake, &plan("web.part0")).unwrap().unwrap();
    assert!(!had.empty && had.ours);
    have(&*fake, &plan("web.part1")).unwrap();
    assert_eq!(fake.names(), ["web", "web.part1"]);
}

#[test]
fn what_a_crash_has_left_is_made_anew() {
    let fake = Fake::new().with("web.henge-new", 7);
    assert_eq!(have(&*fake, &plan("web.part0")).unwrap().unwrap().image.size(), LEN);
    assert_eq!(fake.names(), ["web"]);
}

#[test]
fn somebody_elses_image_is_had_by_its_name_alone() {
    let fake = Fake::new().with("web", LEN).with("vm-17", LEN + 1);
    assert!(why(&fake, &plan("web.part0")).contains("image = \"web\""));
    let adopted = Plan { adopt: true, ..plan("web.part0") };
    assert!(why(&fake, &adopted).contains("Henge did not make"), "not by adopt, either");
    let had = have(&*fake, &image("vm-17")).unwrap().unwrap();
    assert!(!had.ours && !had.empty && had.image.size() == LEN + 1);
    assert!(fake.at("vm-17", |image| !image.notes.contains_key("henge.part")));
    assert!(why(&fake, &image("none")).contains("no image \"none\""));
    assert!(why(&fake, &Plan { len: LEN + 2, ..image("vm-17") }).contains("131073 bytes, fewer"));
    assert!(fake.log.lock().unwrap().is_empty(), "nothing was made");
}

#[test]
fn another_disks_image_and_a_former_disks_are_had_when_it_is_said() {
    let fake = Fake::new();
    have(&*fake, &plan("db.part0")).unwrap();
    assert!(why(&fake, &image("db")).contains("that of a disk \"db\""));
    let had = have(&*fake, &Plan { adopt: true, ..image("db") }).unwrap().unwrap();
    assert!(!had.ours, "it stays with its own disk");
    let late = Plan { settled: true, ..plan("db.part0") };
    assert!(why(&fake, &late).contains("adopt = true"));
    assert!(have(&*fake, &Plan { adopt: true, ..late }).unwrap().unwrap().ours);
    have(&*fake, &Plan { settled: true, ..plan("new.part0") }).unwrap();
}

#[test]
fn a_clone_is_as_long_as_its_disk_and_is_never_cut() {
    let fake = Fake::new().with("golden", LEN / 2);
    fake.at("golden", |image| image.data.fill(7));
    let had = have(&*fake, &from("golden@1")).unwrap().unwrap();
    assert!(had.ours && !had.empty && had.image.size() == LEN);
    assert_eq!(fake.at("web", |image| (image.data[0], image.data[LEN as usize - 1])), (7, 0));
    let fake = Fake::new().with("golden", LEN + 1);
    assert!(why(&fake, &from("golden@1")).contains("would cut it"));
    assert_eq!(fake.names(), ["golden"], "nothing is left");
}

#[test]
fn locks_are_obeyed_unless_their_holders_are_gone_or_fenced() {
    let fake = Fake::new().with("vm", LEN);
    let lock = |holder: &str, note: &str| {
        fake.at("vm", |image| {
            (image.holder, image.stubborn) = (Some(holder.into()), true);
            image.notes.insert("henge.holder".into(), note.into());
            image.broken.clear();
        });
    };
    let broken = || fake.at("vm", |image| image.broken.clone());
    lock("10.0.0.1:0/7", "10.0.0.1:0/7 elsewhere pid:[1] 1 1");
    assert!(why(&fake, &image("vm")).contains("locked by 10.0.0.1:0/7"));
    assert!(broken().is_empty());
    let fence = Plan { origin: Origin { fence: true, ..image("vm").origin }, ..image("vm") };
    have(&*fake, &fence).unwrap();
    assert_eq!(broken(), ["10.0.0.1:0/7"]);
    // It is noted who we are, so that whoever comes after our end need not wait.
    let note = fake.at("vm", |image| image.notes["henge.holder"].clone());
    assert_eq!(note, format!("me {}", process::here()));
    let here = process::here();
    lock("me-before", &format!("me-before {here}"));
    assert!(why(&fake, &image("vm")).contains("locked by me-before"), "its process lives");
    let gone = format!("{} 1", here.rsplit_once(' ').unwrap().0);
    lock("me-before", &format!("somebody {gone}"));
    assert!(why(&fake, &image("vm")).contains("locked"), "the note is of another holder");
    lock("me-before", &format!("me-before {gone}"));
    have(&*fake, &image("vm")).unwrap();
    assert_eq!(broken(), ["me-before"]);
}

#[test]
fn an_image_that_answers_from_memory_is_refused() {
    let fake = Fake::new().with("vm", LEN);
    fake.at("vm", |image| image.caches = true);
    assert!(why(&fake, &image("vm")).contains("rbd_cache"));
}

#[test]
fn who_looks_changes_nothing() {
    let fake = Fake::new().with("vm", LEN);
    fake.at("vm", |image| image.holder = Some("somebody".into()));
    let look = |plan: Plan| Plan { look: true, ..plan };
    assert!(have(&*fake, &look(plan("web.part0"))).unwrap().is_none());
    assert!(have(&*fake, &look(image("vm"))).unwrap().is_some());
    assert!(have(&*fake, &look(image("none"))).is_err());
    assert_eq!(fake.names(), ["vm"]);
    assert!(fake.at("vm", |image| image.notes.is_empty() && image.broken.is_empty()));
}

#[test]
fn origins_are_read_and_what_is_wrong_is_said() {
    let origin = |image: Option<&str>, from: Option<&str>| Origin {
        image: image.map(Into::into),
        from: from.map(Into::into),
        fence: false,
    };
    for good in
        [origin(Some("vm 17"), None), origin(None, Some("golden@1")), origin(None, Some("t/golden@1"))]
    {
        assert_eq!(good.check(), Ok(()));
    }
    assert_eq!(snapshot("t/golden@1").unwrap().to_string(), "t/golden@1");
    let long = "x".repeat(97);
    for (wrong, key) in [
        (origin(Some(""), None), "image"),
        (origin(Some("a/b"), None), "image"),
        (origin(Some(&long), None), "image"),
        (origin(None, Some("golden")), "from"),
        (origin(None, Some("@1")), "from"),
        (origin(None, Some("golden@")), "from"),
        (origin(None, Some("a/b/c@1")), "from"),
        (origin(None, Some("a@b@c")), "from"),
        (origin(Some("a"), Some("golden@1")), "from"),
    ] {
        assert_eq!(wrong.check().unwrap_err().0, key, "{wrong:?}");
    }
}

/// `n2` in its fifth start; `n1` is dead, and `n3` is in its ninth start.
fn claimed(known: bool, makes: bool) -> Plan {
    let (dead, alive) = (vec!["n1".into()], vec![("n3".into(), 9)]);
    let claim = Claim { me: "n2".into(), epoch: 5, dead, alive, makes, known };
    Plan { claim: Some(claim), settled: true, ..plan("web.part0") }
}

#[test]
fn a_gateway_breaks_the_locks_of_the_dead_and_of_nobody_else() {
    let fake = Fake::new();
    have(&*fake, &claimed(true, true)).unwrap();
    assert_eq!(fake.at("web", |image| image.notes["henge.gateway"].clone()), "me n2 5");
    let held_by = |gateway: &str| {
        fake.at("web", |image| {
            (image.holder, image.stubborn, image.waited) = (Some("10.0.0.1:0/7".into()), true, false);
            image.notes.insert("henge.gateway".into(), gateway.into());
            image.notes.remove("henge.holder");
            image.broken.clear();
        });
    };
    for outlived in ["n1 1", "n3 8", "n2 4"] {
        held_by(&format!("10.0.0.1:0/7 {outlived}"));
        let had = have(&*fake, &claimed(true, false)).unwrap().unwrap();
        assert!(had.shared && had.ours && !had.empty);
        assert_eq!(fake.at("web", |image| image.broken.clone()), ["10.0.0.1:0/7"], "{outlived}");
    }
    // Of one that lives, of an unknown one, of another holder's note, of no gateway at all.
    for note in ["10.0.0.1:0/7 n3 9", "10.0.0.1:0/7 n4 1", "10.0.0.2:0/7 n1 1", "n1 1", ""] {
        held_by(note);
        let fenced = Plan { origin: Origin { fence: true, ..Origin::default() }, ..claimed(true, false) };
        for plan in [claimed(true, false), fenced] {
            assert!(why(&fake, &plan).contains("which lives"), "{note}");
        }
        assert!(fake.at("web", |image| image.broken.is_empty()), "{note}");
        // The holder would be asked for it. One that died just now does not answer, and librbd waits until Ceph misses it.
        let known = note.starts_with("10.0.0.1:0/7 n");
        assert_eq!(fake.at("web", |image| image.waited), !known, "{note}");
    }
}

#[test]
fn who_takes_a_disk_over_makes_no_image_and_a_new_disk_inherits_none() {
    let fake = Fake::new();
    assert!(why(&fake, &claimed(true, false)).contains("first of the disk's gateways"));
    assert!(fake.names().is_empty());
    have(&*fake, &claimed(false, true)).unwrap();
    assert!(why(&fake, &claimed(false, true)).contains("of a former disk of that name"));
    have(&*fake, &claimed(true, false)).unwrap();
}
