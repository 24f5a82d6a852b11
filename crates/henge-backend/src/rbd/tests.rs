use super::fake::{Fake, OBJECT};
use super::in_flight::Ask;
use super::requests::{BLOCKLISTED, LOOK};
use super::silence::{AGAIN, SILENT};
use super::*;
use crate::origin::Origin;
use crate::store::Step;
use crate::{Buffer, Claim, Store};
use henge_core::{Backend, Done, Duration, Fault, FlowId, Instant, Op, Params, Request, RequestId, Value};
use std::io;
use std::sync::atomic::Ordering;

const LEN: u64 = 4 * OBJECT;

struct Rig {
    fake: Arc<Fake>,
    store: Rbd,
    now: Instant,
}

impl Rig {
    fn new(fake: Arc<Fake>) -> Rig {
        let options = crate::Options { apart: true, ..crate::Options::default() };
        let wanted = Wanted { pool: "p", spindle: None, capacity: 1 << 30, options };
        let store =
            Rbd::new(Arc::clone(&fake) as _, Completions::new().unwrap(), &wanted, "as nobody".into());
        Rig { fake, store, now: Instant::ZERO }
    }
    fn image(&mut self, part: &str, image: &str) -> u64 {
        let origin = Origin { image: Some(image.into()), ..Origin::default() };
        self.store.set_origin(part, &origin).unwrap();
        self.store.open_part(part, LEN).unwrap()
    }
    fn submit(&mut self, op: Op, offset: u64, len: u64, payload: Buffer) {
        let request = Request::new(RequestId::default(), FlowId(0), op, offset, len, self.now);
        self.store.submit(&request, payload, self.now);
    }
    fn reap(&mut self) -> Option<Done<Buffer>> {
        self.store.signalled();
        self.store.reap(self.now)
    }
    fn run(&mut self, op: Op, offset: u64, len: u64, byte: u8) -> Result<Buffer, Fault> {
        let mut payload = Buffer::zeroed(if matches!(op, Op::Read | Op::Write) { len as usize } else { 0 });
        payload.fill(byte);
        self.submit(op, offset, len, payload);
        let done = self.reap().expect("it is over");
        assert!(self.reap().is_none());
        done.outcome.map(|()| done.payload)
    }
    fn notices(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.store.notice()).collect()
    }
    fn asked(&self, image: &str) -> Vec<(Ask, u64, u64)> {
        self.fake.at(image, |image| std::mem::take(&mut image.asked))
    }
    /// Carries out what a thread would.
    fn step(&mut self, name: &str, step: io::Result<Step>) -> io::Result<Step> {
        let Step::Run(chore) = step? else { panic!("a thread is to do it") };
        let outcome = chore();
        self.store.go_on(name, outcome)
    }
}

#[test]
fn each_disk_is_an_image_and_nothing_else_is_in_it() {
    let mut rig = Rig::new(Fake::new().with("vm", LEN));
    let web = rig.store.open_part("web.part0", LEN).unwrap();
    let vm = rig.image("vm.part0", "vm");
    rig.run(Op::Write, web + 4096, 8192, 7).unwrap();
    rig.run(Op::Write, vm, 512, 9).unwrap();
    rig.run(Op::Trim, web + 8192, 4096, 0).unwrap();
    rig.run(Op::Flush, 0, 0, 0).unwrap();
    assert_eq!(rig.run(Op::Read, web + 4096, 4096, 0).unwrap()[..], [7; 4096]);
    assert_eq!(rig.run(Op::Read, web + 8192, 4096, 1).unwrap()[..], [0; 4096]);
    assert_eq!(rig.fake.at("vm", |image| (image.data[511], image.data[512])), (9, 0));
    let zero = (Ask::Zero { full: false }, 8192, 4096);
    assert_eq!(rig.asked("web")[1], zero);
    rig.run(Op::WriteZeroes, web, 4096, 0).unwrap();
    assert_eq!(rig.asked("web").last(), Some(&(Ask::Zero { full: true }, 0, 4096)));
    assert_eq!(rig.run(Op::Read, web + LEN, 1, 0).unwrap_err(), Fault::OutOfRange);
    assert!(rig.notices().is_empty());
}

#[test]
fn an_image_is_one_disks_also_for_who_would_fence_it() {
    let mut rig = Rig::new(Fake::new().with("vm", LEN));
    rig.image("vm.part0", "vm");
    let origin = Origin { image: Some("vm".into()), fence: true, ..Origin::default() };
    rig.store.set_origin("two.part0", &origin).unwrap();
    let why = rig.store.open_part("two.part0", LEN).unwrap_err().to_string();
    assert!(why.contains("is that of \"vm.part0\" here"), "{why}");
    assert!(rig.store.begin_part("two.part0", LEN).is_err());
    assert!(rig.fake.at("vm", |image| image.broken.is_empty()));
    rig.store.remove_part("vm.part0").unwrap();
    rig.store.open_part("two.part0", LEN).unwrap();
}

#[test]
fn long_zeroes_go_piece_by_piece() {
    let mut rig = Rig::new(Fake::new());
    let base = rig.store.open_part("web.part0", 300 << 20).unwrap();
    rig.fake.at("web", |image| image.results.extend([0, 0, 0]));
    rig.submit(Op::Trim, base, 300 << 20, Buffer::empty());
    let done = std::iter::from_fn(|| rig.reap().or_else(|| rig.reap()).or_else(|| rig.reap())).next();
    assert_eq!(done.unwrap().outcome, Ok(()));
    let asked: Vec<_> = rig.asked("web").iter().map(|(_, offset, len)| (offset >> 20, len >> 20)).collect();
    assert_eq!(asked, [(0, 128), (128, 128), (256, 44)]);
}

#[test]
fn the_loop_does_not_wait_for_the_size_of_an_image_that_was_changed() {
    let mut rig = Rig::new(Fake::new().with("vm", LEN).with("two", LEN));
    let (vm, two) = (rig.image("vm.part0", "vm"), rig.image("two.part0", "two"));
    rig.fake.at("vm", |image| (image.changed, image.silent) = (true, true));
    rig.submit(Op::Write, vm, 512, Buffer::zeroed(512));
    assert!(rig.reap().is_none(), "nobody knows whether it was cut");
    rig.run(Op::Read, vm, 512, 0).unwrap();
    rig.run(Op::Write, two, 512, 7).unwrap();
    // It was cut meanwhile.
    rig.fake.at("vm", |image| {
        image.data.truncate(256);
        image.silent = false;
    });
    let done = std::iter::from_fn(|| Some(rig.reap())).flatten().next();
    assert_eq!(done.unwrap().outcome, Err(Fault::Io));
    assert!(rig.notices()[0].contains("cut to 256 bytes"));
}

#[test]
fn an_image_whose_lock_is_switched_off_is_told_of_once() {
    let mut rig = Rig::new(Fake::new());
    let base = rig.store.open_part("web.part0", LEN).unwrap();
    rig.fake.at("web", |image| (image.changed, image.unlocked) = (true, true));
    for _ in 0..2 {
        rig.submit(Op::Write, base, 512, Buffer::zeroed(512));
        let done = std::iter::from_fn(|| Some(rig.reap())).flatten().next();
        assert_eq!(done.unwrap().outcome, Ok(()));
    }
    let said = rig.notices();
    assert!(said.len() == 1 && said[0].contains("exclusive-lock was switched off"), "{said:?}");
}

#[test]
fn what_was_cut_from_outside_is_not_acknowledged() {
    let mut rig = Rig::new(Fake::new().with("vm", LEN));
    let base = rig.image("vm.part0", "vm");
    rig.fake.at("vm", |image| image.data.truncate(2 * OBJECT as usize + 512));
    rig.run(Op::Write, base, 4096, 7).unwrap();
    for (op, offset) in [
        (Op::Write, 2 * OBJECT), // librbd cuts it and calls it good
        (Op::Read, 2 * OBJECT),
        (Op::Trim, 2 * OBJECT),
        (Op::Write, 3 * OBJECT),
    ] {
        assert_eq!(rig.run(op, base + offset, 4096, 1).unwrap_err(), Fault::Io, "{op:?} at {offset}");
    }
    let said = rig.notices();
    assert!(said.len() == 1 && said[0].contains("cut to 131584 bytes, and its disk has 262144"), "{said:?}");
    rig.fake.at("vm", |image| image.data.resize(LEN as usize, 0));
    rig.run(Op::Write, base + 3 * OBJECT, 4096, 7).unwrap();
}

#[test]
fn what_the_user_may_not_is_said_with_what_to_look_at() {
    let mut rig = Rig::new(Fake::new());
    let base = rig.store.open_part("web.part0", LEN).unwrap();
    rig.fake.at("web", |image| image.results.push_back(-i64::from(libc::EPERM)));
    assert_eq!(rig.run(Op::Write, base, 4096, 0).unwrap_err(), Fault::Io);
    assert!(rig.notices()[0].contains("`ceph osd pool ls`"));
}

#[test]
fn a_read_that_brings_too_little_is_an_error() {
    let mut rig = Rig::new(Fake::new());
    let base = rig.store.open_part("web.part0", LEN).unwrap();
    rig.fake.at("web", |image| image.results.push_back(4095));
    assert_eq!(rig.run(Op::Read, base, 4096, 0).unwrap_err(), Fault::Io);
}

#[test]
fn who_was_blocklisted_serves_nothing_any_more_and_says_so() {
    let mut rig = Rig::new(Fake::new());
    let web = rig.store.open_part("web.part0", LEN).unwrap();
    let db = rig.store.open_part("db.part0", LEN).unwrap();
    rig.fake.at("web", |image| image.results.push_back(BLOCKLISTED));
    rig.submit(Op::Write, web, 512, Buffer::zeroed(512));
    rig.submit(Op::Write, web, 512, Buffer::zeroed(512)); // under way with it, and answered
    let outcomes = [rig.reap().unwrap().outcome, rig.reap().unwrap().outcome];
    assert_eq!(outcomes, [Err(Fault::Unreachable), Ok(())]);
    rig.asked("web");
    for at in [web, db] {
        assert_eq!(rig.run(Op::Read, at, 512, 0).unwrap_err(), Fault::Unreachable);
    }
    assert!(rig.asked("web").is_empty() && rig.asked("db").is_empty(), "nobody is asked");
    let said = rig.notices();
    assert!(said.len() == 1 && said[0].contains("blocklisted"), "{said:?}");
}

#[test]
fn a_full_pool_is_said_once_and_is_an_error_until_there_is_room() {
    let mut rig = Rig::new(Fake::new());
    let base = rig.store.open_part("web.part0", LEN).unwrap();
    rig.fake.at("web", |image| image.results.extend([-28, -122, -28]));
    assert_eq!(rig.run(Op::Write, base, 512, 0).unwrap_err(), Fault::NoSpace);
    assert_eq!(rig.run(Op::Write, base, 512, 0).unwrap_err(), Fault::NoSpace);
    let said = rig.notices();
    assert!(said[0].contains("\"web.part0\": the pool is full"), "{said:?}");
    rig.fake.at("web", |image| image.results.clear());
    rig.run(Op::Write, base, 512, 0).unwrap();
}

#[test]
fn what_is_silent_is_said_and_never_given_up() {
    let mut rig = Rig::new(Fake::new());
    let base = rig.store.open_part("web.part0", LEN).unwrap();
    rig.fake.at("web", |image| image.hangs = true);
    rig.submit(Op::Write, base, 512, Buffer::zeroed(512));
    while rig.now < Instant::ZERO + SILENT + LOOK {
        assert!(rig.notices().is_empty() || rig.now >= Instant::ZERO + SILENT);
        rig.now = rig.store.wake_at().expect("it is looked at");
        assert!(rig.reap().is_none());
    }
    rig.now = Instant::ZERO + Duration::from_secs(3600);
    assert!(rig.reap().is_none());
    rig.fake.answer("web");
    assert_eq!(rig.reap().unwrap().outcome, Ok(()));
    let said = rig.notices();
    assert!(said.iter().any(|text| text.contains("answered after 3600s: 1 requests")), "{said:?}");
    rig.now = rig.store.wake_at().unwrap();
    assert!(rig.reap().is_none() && rig.store.wake_at().is_none(), "nothing is under way");
}

/// All OSDs end under many writes, one after the other: people hear of it once, of what monitors say, and of its end.
#[test]
fn a_thousand_that_are_silent_are_said_in_three_lines() {
    let mut rig = Rig::new(Fake::new());
    let base = rig.store.open_part("web.part0", LEN).unwrap();
    *rig.fake.said.lock().unwrap() = Some("3 osds: 0 up".into());
    rig.fake.at("web", |image| image.hangs = true);
    let mut said = Vec::new();
    while rig.now < Instant::ZERO + AGAIN {
        for _ in 0..20 {
            rig.submit(Op::Write, base, 512, Buffer::zeroed(512));
        }
        rig.now += LOOK;
        assert!(rig.reap().is_none());
        said.extend(rig.notices());
    }
    while said.len() < 2 {
        std::thread::yield_now(); // until the thread has asked
        assert!(rig.reap().is_none());
        said.extend(rig.notices());
    }
    assert!(said[0].contains("20 requests have been silent for up to 10s"), "{said:?}");
    assert!(said[1].ends_with("its monitors answer, and say of OSDs: 3 osds: 0 up"), "{said:?}");
    rig.fake.answer("web");
    assert_eq!(std::iter::from_fn(|| rig.reap()).count(), 1200);
    said.extend(rig.notices());
    assert!(said.len() == 3 && said[2].contains("is answered after 60s: 1020 requests"), "{said:?}");
    // Each silence is a new one, and so is a monitor that says nothing.
    *rig.fake.said.lock().unwrap() = None;
    rig.fake.at("web", |image| image.hangs = true);
    rig.submit(Op::Write, base, 512, Buffer::zeroed(512));
    rig.now += SILENT;
    while said.len() < 5 {
        std::thread::yield_now(); // until the thread has asked
        assert!(rig.reap().is_none());
        said.extend(rig.notices());
    }
    assert!(said[3].contains("1 requests") && said[4].contains("no monitor answers"), "{said:?}");
}

#[test]
fn a_disk_for_which_there_is_no_room_leaves_no_image() {
    let mut rig = Rig::new(Fake::new());
    rig.store.settle(&|_| false).unwrap();
    assert!(
        rig.store.begin_part("web.part0", 2 << 30).is_err()
            && rig.store.open_part("web.part0", 2 << 30).is_err()
    );
    assert_eq!(rig.fake.names(), [""; 0]);
    // So whoever asks for less gets it, and has to adopt nothing.
    let begun = rig.store.begin_part("web.part0", LEN);
    assert!(matches!(rig.step("web.part0", begun), Ok(Step::There(_))));
    assert_eq!(rig.fake.names(), ["web"]);
}

#[test]
fn a_removed_disk_takes_its_image_along_unless_it_is_somebody_elses() {
    let mut rig = Rig::new(Fake::new().with("vm", LEN).with("db", LEN));
    rig.store.open_part("web.part0", LEN).unwrap();
    rig.image("vm.part0", "vm");
    rig.store.remove_part("web.part0").unwrap();
    rig.store.remove_part("vm.part0").unwrap();
    assert_eq!(rig.fake.names(), ["db", "vm"]);
    // A part that could not be opened is not removed, either: it is not ours.
    assert!(rig.store.open_part("db.part0", LEN).is_err());
    rig.store.remove_part("db.part0").unwrap();
    assert_eq!(rig.fake.names(), ["db", "vm"]);
}

#[test]
fn parts_are_made_grown_and_removed_by_steps() {
    let mut rig = Rig::new(Fake::new());
    let begun = rig.store.begin_part("web.part0", LEN);
    assert!(!rig.store.has_part("web.part0"));
    assert!(matches!(rig.step("web.part0", begun), Ok(Step::There(_))));
    assert!(rig.store.is_new("web.part0"));
    let base = rig.store.open_part("web.part0", LEN).unwrap();
    let begun = rig.store.begin_part("web.part0", 2 * LEN);
    assert!(matches!(rig.step("web.part0", begun), Ok(Step::There(at)) if at == base));
    assert_eq!(rig.fake.at("web", |image| image.data.len() as u64), 2 * LEN);
    rig.run(Op::Write, base + 2 * LEN - 512, 512, 7).unwrap();
    let begun = rig.store.begin_removal("web.part0");
    assert!(!rig.store.has_part("web.part0"));
    rig.step("web.part0", begun).unwrap();
    assert!(rig.fake.names().is_empty());
    assert!(matches!(rig.store.begin_removal("web.part0"), Ok(Step::There(_))));
}

/// A gateway that has not the disk looks whether the one that has it has let it grow.
#[test]
fn the_image_of_another_nodes_part_is_looked_at_and_not_opened() {
    let fake = Fake::new();
    let mut home = Rig::new(Arc::clone(&fake));
    home.store.open_part("web.part0", LEN).unwrap();
    let mut other = Rig::new(Arc::clone(&fake));
    let looks = |other: &mut Rig, len| {
        let begun = other.store.begin_look("web.part0", len);
        other.step("web.part0", begun).map(drop).map_err(|why| why.to_string())
    };
    looks(&mut other, LEN).unwrap();
    let why = looks(&mut other, 2 * LEN).unwrap_err();
    assert!(why.contains("has 262144 bytes: the gateway that has the disk lets it grow first"), "{why}");
    home.store.open_part("web.part0", 2 * LEN).unwrap();
    looks(&mut other, 2 * LEN).unwrap();
    assert!(!other.store.has_part("web.part0"));
    fake.remove("web").unwrap();
    assert!(looks(&mut other, LEN).unwrap_err().contains("is not there"));
}

#[test]
fn an_image_that_was_there_is_nobodys_to_remove_who_only_opens_it() {
    let mut rig = Rig::new(Fake::new());
    rig.store.open_part("web.part0", LEN).unwrap();
    let mut rig = Rig::new(Arc::clone(&rig.fake));
    let begun = rig.store.begin_part("web.part0", LEN);
    rig.step("web.part0", begun).unwrap();
    assert!(!rig.store.is_new("web.part0"));
    // One that could not be opened leaves no word of where its bytes were to come from.
    let origin = Origin { image: Some("elsewhere".into()), ..Origin::default() };
    rig.store.set_origin("other.part0", &origin).unwrap();
    rig.store.forget_part("other.part0");
    rig.store.open_part("other.part0", LEN).unwrap();
    assert_eq!(rig.fake.names(), ["other", "web"]);
}

/// Somebody has removed or renamed a disk's image while no node ran. Made anew it would be empty, and nobody would know.
#[test]
fn an_image_that_is_lost_is_not_made_anew() {
    let fake = Fake::new();
    let mut rig = Rig::new(Arc::clone(&fake));
    rig.store.open_part("web.part0", LEN).unwrap();
    drop(rig);
    let mut rig = Rig::new(Arc::clone(&fake));
    rig.store.expect_part("web.part0");
    rig.store.open_part("web.part0", LEN).expect("it is there");
    drop(rig);
    fake.remove("web").unwrap();
    let mut rig = Rig::new(Arc::clone(&fake));
    for by_steps in [false, true] {
        rig.store.expect_part("web.part0");
        let why = match by_steps {
            false => rig.store.open_part("web.part0", LEN).map(drop),
            true => {
                let begun = rig.store.begin_part("web.part0", LEN);
                rig.step("web.part0", begun).map(drop)
            }
        };
        let why = why.unwrap_err().to_string();
        assert!(why.contains("no image \"web\" any more") && why.contains("vd remove"), "{why}");
        assert!(fake.open("web", false).unwrap().is_none(), "nothing is made");
        rig.store.forget_part("web.part0");
    }
    // Who gives it up begins anew.
    rig.store.open_part("web.part0", LEN).unwrap();
}

/// A disk of several gateways: which of them has made its image, none knows by itself.
#[test]
fn an_image_that_gateways_have_lost_is_not_made_anew() {
    let fake = Fake::new();
    let claim = |me: &str| Claim { me: me.into(), epoch: 1, makes: true, known: true, ..Claim::default() };
    let take = |rig: &mut Rig, claim: Claim| {
        rig.store.claim_part("web.part0", &claim).unwrap();
        let begun = rig.store.begin_part("web.part0", LEN);
        rig.step("web.part0", begun).map(drop).map_err(|why| why.to_string())
    };
    let mut rig = Rig::new(Arc::clone(&fake));
    take(&mut rig, claim("n1")).expect("the first one makes it");
    drop(rig);
    // The next start of the first gateway, which knows the disk from its file.
    fake.remove("web").unwrap();
    let mut rig = Rig::new(Arc::clone(&fake));
    let why = take(&mut rig, claim("n1")).unwrap_err();
    assert!(why.contains("no image \"web\" any more") && why.contains("rados rm henge.made.web"), "{why}");
    assert!(fake.names().is_empty(), "nothing is made");
    // Whoever makes a disk of that name anew says so.
    take(&mut rig, Claim { known: false, ..claim("n1") }).unwrap();
    let removed = rig.store.begin_removal("web.part0");
    rig.step("web.part0", removed).unwrap();
    assert!(fake.names().is_empty() && fake.marks.lock().unwrap().is_empty());
    take(&mut rig, claim("n1")).expect("what was removed was not lost");
    // An image of before it was noted: whoever has it next notes it.
    drop(rig);
    fake.marks.lock().unwrap().clear();
    take(&mut Rig::new(Arc::clone(&fake)), claim("n1")).unwrap();
    assert!(fake.marks.lock().unwrap().contains("web"));
}

#[test]
fn a_disk_that_comes_later_does_not_inherit_by_its_name() {
    let mut rig = Rig::new(Fake::new());
    rig.store.open_part("web.part0", LEN).unwrap();
    let mut rig = Rig::new(Arc::clone(&rig.fake));
    rig.store.settle(&|_| false).unwrap();
    let begun = rig.store.begin_part("web.part0", LEN);
    let why = rig.step("web.part0", begun).err().unwrap().to_string();
    assert!(why.contains("keeps the image \"web\""), "{why}");
    assert!(!rig.store.is_new("web.part0"));
    rig.store.forget_part("web.part0"); // as a ticket that failed does
    assert_eq!(rig.fake.names(), ["web"]);
    rig.store.adopt_part("web.part0").unwrap();
    let begun = rig.store.begin_part("web.part0", LEN);
    rig.step("web.part0", begun).unwrap();
}

#[test]
fn holes_are_known_of_a_new_image_and_learned_of_another() {
    let mut rig = Rig::new(Fake::new().with("vm", LEN));
    rig.fake.at("vm", |image| image.data[OBJECT as usize] = 1);
    let web = rig.store.open_part("web.part0", LEN).unwrap();
    assert_eq!(rig.store.extent(web, LEN), (LEN, false));
    rig.run(Op::Write, web + OBJECT, 1, 7).unwrap();
    assert_eq!(rig.store.extent(web, LEN), (OBJECT, false));
    assert_eq!(rig.store.extent(web + OBJECT, OBJECT), (OBJECT, true));
    let vm = rig.image("vm.part0", "vm");
    while rig.store.extent(vm, LEN) == (LEN, true) {
        std::thread::yield_now(); // until the thread has looked
        assert!(rig.reap().is_none());
    }
    assert_eq!(rig.store.extent(vm, LEN), (OBJECT, false));
    assert_eq!(rig.store.extent(vm + OBJECT, LEN - OBJECT), (OBJECT, true));
}

/// Clients that ask for no lock write an image that has none; what was a hole when it was made may be data.
#[test]
fn no_holes_are_known_of_an_image_that_others_may_write() {
    let mut rig = Rig::new(Fake::new());
    rig.fake.lockless.store(true, Ordering::Relaxed);
    let web = rig.store.open_part("web.part0", LEN).unwrap();
    assert_eq!(rig.store.extent(web, LEN), (LEN, true));
    // The feature is switched off while the image is served: from then on, and not from the next write on.
    rig.fake.lockless.store(false, Ordering::Relaxed);
    let db = rig.store.open_part("db.part0", LEN).unwrap();
    assert_eq!(rig.store.extent(db, LEN), (LEN, false));
    rig.fake.at("db", |image| (image.changed, image.unlocked) = (true, true));
    assert_eq!(rig.store.extent(db, LEN), (LEN, true));
    rig.submit(Op::Write, db, 512, Buffer::zeroed(512));
    let done = std::iter::from_fn(|| Some(rig.reap())).flatten().next();
    assert_eq!(done.unwrap().outcome, Ok(()));
    assert_eq!(rig.store.extent(db, LEN), (LEN, true));
}

#[test]
fn the_table_is_read_and_what_is_wrong_is_said() {
    let table = |keys: &[(&str, &str)]| {
        let value = |text: &str| Value::Text(text.into());
        let inner = keys.iter().fold(Params::new("rbd"), |p, (key, text)| p.with(key, value(text)));
        read(&mut Params::new("pool").with("rbd", Value::Table(inner)))
    };
    let medium = table(&[("pool", "henge"), ("user", "gw")]).unwrap().unwrap();
    assert!(medium.key() == "rbd" && medium.has_images() && !medium.copies() && !medium.knows_capacity());
    assert!(read(&mut Params::new("pool")).unwrap().is_none());
    for (keys, why) in [
        (&[("user", "gw")][..], "pool"),
        (&[("pool", "p"), ("user", "client.gw")], "user = \"gw\""),
        (&[("pool", "p"), ("config", "/etc")], "config"),
    ] {
        let message = table(keys).unwrap_err().message;
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn a_part_that_is_let_go_stays_an_image_and_is_had_again_without_known_holes() {
    let mut rig = Rig::new(Fake::new());
    let claim = Claim { me: "n1".into(), epoch: 1, makes: true, known: true, ..Claim::default() };
    let take = |rig: &mut Rig| {
        rig.store.claim_part("web.part0", &claim).unwrap();
        let step = rig.store.begin_part("web.part0", LEN);
        let Step::There(base) = rig.step("web.part0", step).unwrap() else { panic!("it is there") };
        base
    };
    let base = take(&mut rig);
    rig.run(Op::Write, base, 4096, 7).unwrap();
    // Another gateway may write it later, so nothing of it is known to be a hole.
    assert_eq!(rig.store.extent(base, LEN), (LEN, true));
    let step = rig.store.begin_release("web.part0");
    assert!(matches!(rig.step("web.part0", step).unwrap(), Step::There(_)));
    assert!(!rig.store.has_part("web.part0"));
    assert_eq!(rig.fake.names(), ["web"]);
    assert_eq!(rig.run(Op::Read, base, 4096, 0).unwrap_err(), Fault::OutOfRange);
    let base = take(&mut rig);
    assert_eq!(rig.run(Op::Read, base, 4096, 0).unwrap()[0], 7);
    // Nothing to let go is no error.
    assert!(matches!(rig.store.begin_release("none.part0"), Ok(Step::There(_))));
}

#[test]
fn a_text_lies_with_its_part_and_goes_where_that_goes() {
    let mut one = Rig::new(Fake::new());
    one.store.open_part("web.part0", LEN).unwrap();
    let metadata = one.store.metadata("web.part0").expect("it is open");
    assert!(one.store.metadata("none.part0").is_none());
    assert_eq!(metadata.read().unwrap(), None);
    metadata.write("generation 1\n").unwrap();
    metadata.write("generation 2\n").unwrap();
    assert_eq!(metadata.place(), "Ceph pool fake, image \"web\", henge.reservations in its metadata");
    // Another node reads it, and what fails says where.
    let mut other = Rig::new(Arc::clone(&one.fake));
    other.store.open_part("web.part0", LEN).unwrap();
    let there = other.store.metadata("web.part0").unwrap();
    assert_eq!(there.read().unwrap().as_deref(), Some("generation 2\n"));
    one.fake
        .at("web", |image| image.notes_fail.extend([io::ErrorKind::TimedOut, io::ErrorKind::InvalidData]));
    let failed = there.write("generation 3\n").unwrap_err();
    assert!(
        failed.kind() == io::ErrorKind::TimedOut && failed.to_string().contains("image \"web\""),
        "{failed}"
    );
    assert_eq!(there.read().unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!(metadata.read().unwrap().as_deref(), Some("generation 2\n"));
}

#[test]
fn a_clone_has_its_parents_bytes_and_not_who_may_use_them() {
    let mut rig = Rig::new(Fake::new());
    rig.store.open_part("golden.part0", LEN).unwrap();
    rig.store.metadata("golden.part0").unwrap().write("generation 7\n").unwrap();
    let origin = Origin { from: Some("golden@1".into()), ..Origin::default() };
    rig.store.set_origin("web.part0", &origin).unwrap();
    rig.store.open_part("web.part0", LEN).unwrap();
    assert_eq!(rig.store.metadata("web.part0").unwrap().read().unwrap(), None);
    assert!(rig.store.metadata("golden.part0").unwrap().read().unwrap().is_some());
}
