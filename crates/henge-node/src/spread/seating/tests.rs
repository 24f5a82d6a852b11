//! A gateway's part in a disk's way from one gateway to another, without storage that is shared and without time that passes.

use super::*;
use crate::config::NodeConfig;
use crate::spread::seating;
use henge_config::Source;
use henge_core::RequestId;
use proptest::prelude::*;

const TEXT: &str = r#"
    [link]
    name = "n1"
    listen = "127.0.0.1:1"
    secret = "0123456789abcdef"
    [[peer]]
    name = "n2"
    address = "127.0.0.1:2"
    [[pool]]
    name = "ceph"
    memory = true
    capacity = "64MiB"
    scheduler = { sfq = { depth = 32 } }
    [[disk]]
    name = "web"
    pool = "ceph"
    capacity = "4MiB"
"#;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// A plane with `web`, for which there is `n2`, too.
struct Gateway {
    plane: Plane,
    number: usize,
    now: u64,
    links: u32,
}

impl Gateway {
    fn new() -> Gateway {
        let config =
            NodeConfig::parse(Source::new("node.toml", TEXT.to_owned())).unwrap_or_else(|e| panic!("{e}"));
        let mut plane =
            Plane::open(&NodeConfig { disks: Vec::new(), ..config.clone() }, 1, false, Instant::ZERO)
                .unwrap_or_else(|e| panic!("{}", config.source.point(e)));
        let gateways = vec!["n1".to_owned(), "n2".to_owned()];
        let places = vec![crate::link_config::PlaceConfig { node: "n1".into(), pool: "ceph".into() }];
        let web = DiskConfig { gateways, places, ..config.disks[0].clone() };
        let number = plane.add_disk(web, Instant::ZERO).unwrap_or_else(|e| panic!("{}", e.error.message));
        Gateway { plane, number, now: 0, links: 0 }
    }

    fn now(&self) -> Instant {
        at(self.now)
    }

    fn at(&self) -> At {
        self.plane.disks[self.number].as_ref().unwrap().spread.as_ref().unwrap().extents[0]
    }

    fn is_here(&self) -> bool {
        matches!(self.at(), At::Here(_))
    }

    fn stays(&self) -> Option<String> {
        seating::stays(self.plane.disks[self.number].as_ref().unwrap())
    }

    /// The disk is claimed, if it may be; whether this node has it then.
    fn claim(&mut self) -> bool {
        let Some(parts) = seating::begin_claim(&mut self.plane, "web", Claim::default()) else {
            return false;
        };
        let now = self.now();
        assert!(
            seating::end_claim(&mut self.plane, "web", parts, Ok(()), now).is_empty(),
            "it needs its parts"
        );
        self.is_here()
    }

    /// Others take disks; this node is told so, and closes what is quiet.
    fn let_go(&mut self, to: &[&str]) {
        let (to, now): (Vec<String>, _) = (to.iter().map(|name| (*name).to_owned()).collect(), self.now());
        seating::let_go(&mut self.plane, 0, &to, now);
        while let Some((disk, _)) = seating::next_left(&mut self.plane, now) {
            seating::left(&mut self.plane, &disk);
        }
    }

    fn link(&mut self, up: bool) {
        let now = self.now();
        if up {
            self.links += 1;
            self.plane.links.up(0, RequestId { slot: self.links, generation: 0 }, 7);
        } else {
            self.plane.links.peer(0).link = None;
            seating::lost_link(&mut self.plane, 0, now);
        }
    }

    fn is_linked(&self) -> bool {
        self.plane.links.peers[0].as_ref().unwrap().link.is_some()
    }

    fn is_vacant(&self) -> bool {
        !seating::vacant(&self.plane, 0, at(u64::MAX / 2_000_000)).is_empty()
    }
}

#[test]
fn a_drained_gateway_lets_go_of_what_another_takes_and_of_nothing_else() {
    let mut n1 = Gateway::new();
    assert!(n1.claim());
    n1.let_go(&["n2"]);
    assert!(n1.is_here() && n1.stays().is_none(), "it is not drained");
    seating::drain(&mut n1.plane, true);
    n1.let_go(&["n2"]);
    assert!(n1.is_here() && n1.stays().unwrap().contains("none of its others (n2) is linked"), "no link");
    n1.link(true);
    n1.let_go(&[]);
    assert!(n1.is_here() && n1.stays().is_some(), "n2 takes no disks");
    n1.let_go(&["n2"]);
    assert!(!n1.is_here() && n1.is_vacant() && n1.stays().is_none());
    seating::drain(&mut n1.plane, false);
    assert!(n1.claim());
    n1.let_go(&["n2"]);
    assert!(n1.is_here(), "what was on its way when it was not drained any more");
}

/// Its gate sees what clients of all gateways ask for, and so it alone can say whether the disk's rate is kept.
#[test]
fn whoever_has_the_seat_judges_the_rate() {
    let mut n1 = Gateway::new();
    let status = |n1: &mut Gateway| {
        let now = n1.now();
        let web = n1.plane.disks[n1.number].as_mut().unwrap();
        web.config.contract.rate = Some(henge_core::Rate::requests(300));
        crate::operate::slice(&mut n1.plane, 0, false, 0, now).disks.remove(0)
    };
    let passing_on = status(&mut n1);
    assert_eq!((passing_on.promise.rate, passing_on.flow.all), (None, None));
    let mut n1 = Gateway::new();
    assert!(n1.claim());
    let seated = status(&mut n1);
    assert_eq!((seated.promise.rate, seated.flow.all), (Some(300.0), Some(henge_api::Received::default())));
}

#[test]
fn what_nobody_takes_comes_back_and_stays_until_the_gateway_is_drained_anew() {
    let mut n1 = Gateway::new();
    assert!(n1.claim());
    n1.link(true);
    seating::drain(&mut n1.plane, true);
    n1.let_go(&["n2"]);
    n1.now += TURN.as_nanos() / 1_000_000;
    assert!(n1.claim() && n1.stays().unwrap().contains("none of its others (n2) took it in its turn"));
    n1.let_go(&["n2"]);
    assert!(n1.is_here() && n1.stays().is_some(), "it does not go to and fro");
    seating::drain(&mut n1.plane, true);
    n1.let_go(&["n2"]);
    assert!(!n1.is_here(), "drained anew, it tries again");
    // Nobody had to be waited for: the other one died.
    n1.now += 3000;
    assert!(n1.claim() && n1.stays().is_none());
    n1.let_go(&["n2"]);
    assert!(!n1.is_here(), "it lives again");
}

#[derive(Clone, Debug)]
enum Step {
    Drain(bool),
    Link(bool),
    LetGo(bool),
    Claim,
    Taken,
    Refused,
    ShutOut,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => any::<bool>().prop_map(Step::Drain),
        2 => any::<bool>().prop_map(Step::Link),
        4 => any::<bool>().prop_map(Step::LetGo),
        3 => Just(Step::Claim),
        2 => Just(Step::Taken),
        1 => Just(Step::Refused),
        1 => Just(Step::ShutOut),
        2 => (0u64..8000).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Whatever is lost or comes twice: a disk that is drained goes only while another gateway is linked and takes disks, it is with
    /// one gateway or vacant, and nobody but its storage or who drains takes it from who has it.
    #[test]
    fn a_seat_is_never_let_go_of_for_nobody(steps in proptest::collection::vec(step(), 0..60)) {
        let mut n1 = Gateway::new();
        for step in steps {
            let before = n1.is_here();
            let may = match step {
                Step::LetGo(takes) => n1.plane.seats.drained && takes && n1.is_linked(),
                Step::ShutOut => true,
                _ => false,
            };
            match step {
                Step::Drain(on) => seating::drain(&mut n1.plane, on),
                Step::Link(up) => n1.link(up),
                Step::LetGo(true) => n1.let_go(&["n2"]),
                Step::LetGo(false) => n1.let_go(&["n3"]),
                Step::Claim => _ = n1.claim(),
                Step::Taken if n1.is_linked() => {
                    let now = n1.now();
                    n1.plane.links.peer(0).attached(0, 2, 1 << 20);
                    seating::seated_there(&mut n1.plane, n1.number, (0, 0), now);
                }
                Step::Taken => {}
                Step::Refused => {
                    let now = n1.now();
                    n1.plane.links.refused((0, 0), "not here".into());
                    seating::refused_there(&mut n1.plane, (0, 0), now);
                }
                Step::ShutOut => {
                    let now = n1.now();
                    seating::leave_all(&mut n1.plane, 0, "shut out", now);
                    n1.let_go(&[]);
                }
                Step::Wait(ms) => n1.now += ms,
            }
            prop_assert!(!before || n1.is_here() || may, "{step:?} took it away");
            prop_assert!(n1.stays().is_none() || n1.is_here() && n1.plane.seats.drained, "{step:?}: {:?}", n1.stays());
            prop_assert_eq!(n1.is_vacant(), n1.at() == At::Nowhere, "after {:?}", step);
        }
    }
}
