//! The table of a shared disk among three gateways, whose storage, links and seats do what is worst: no answered change is ever lost, and no write
//! is done that each table forbids which held since it came.

mod gateway;
mod parties;
mod portion;
mod steps;
mod storage;
mod world;

use super::moves::Acting;
use super::writer::{Done, ToDo, What, Writer, carry_out};
use super::*;
use crate::config::NodeConfig;
use crate::links::{News, Seated};
use henge_backend::ImageMetadata;
use henge_config::Source;
use henge_core::Duration;
use henge_iscsi::scsi::{Class, UnitProperties as Lun};
use henge_link::Message;
use proptest::prelude::*;
use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender};
use steps::step;
use storage::{Lies, Storage, Wrong};

const GATEWAYS: usize = 3;
const PORTS: [&str; 3] = ["iqn.a,i,0x1", "iqn.b,i,0x1", "iqn.c,i,0x1"];
const KINDS: [u8; 3] = [1, 5, 8];

/// A write of an initiator: by whom, and the last table that was answered when it came.
#[derive(Clone, Debug)]
struct Write {
    port: usize,
    since: usize,
    id: u64,
}

enum Item {
    Says(Message),
    Has,
    HasNot,
    Part(Write),
    Again(Write),
}

struct Gateway {
    tables: ReservationTables,
    targets: Targets,
    nvme: Fabric,
    links: Links,
    todo: Receiver<ToDo>,
    done: Sender<Done>,
    target: TargetId,
    /// Which tenure, while the seat is here as far as is known here.
    here: Option<u64>,
    there: Option<usize>,
    takes: [bool; GATEWAYS],
    turn: u64,
    acts: bool,
    admitted: BTreeSet<usize>,
    /// Not handed out; handed to a link; at the extent's owner.
    held: Vec<Write>,
    queued: Vec<Write>,
    at_owner: Vec<(Option<usize>, Write)>,
    given_up: BTreeSet<u64>,
}

struct World {
    storage: Arc<Mutex<Storage>>,
    gateways: Vec<Gateway>,
    wires: Vec<Vec<Option<VecDeque<Item>>>>,
    now: Instant,
    tenures: u64,
    /// Which table each change made, once it was there.
    made: BTreeMap<u32, usize>,
    changes: BTreeMap<u32, Change>,
    asked: u32,
    open: BTreeSet<u32>,
    answered: usize,
    writes: u64,
    applied: u64,
}

fn name(i: usize) -> String {
    format!("n{}", i + 1)
}

fn change(port: usize, action: u8, kind: u8, key: u8, new: u8) -> Change {
    let (mut cdb, mut list) = ([0; 16], vec![0; 24]);
    (cdb[0], cdb[1], cdb[2]) = (0x5f, action, kind);
    (list[7], list[15]) = (key, new);
    Change { cdb, list, port: PORTS[port].to_owned() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_reservation_is_lost_and_none_is_passed_by(steps in proptest::collection::vec(step(), 0..400)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.heal();
        world.is_well();
    }
}

/// A world in which `n1` has the disk, and all is well.
fn begun() -> World {
    let mut world = World::new();
    world.claim(0);
    world.heal();
    world.is_well();
    world
}

#[test]
fn a_reservation_goes_with_the_seat_and_a_hung_gateways_writes_do_not() {
    let mut world = begun();
    world.ask(0, change(0, 6, 0, 0, 1));
    world.heal();
    world.ask(1, change(0, 1, 1, 1, 0));
    world.heal();
    world.is_well();
    assert_eq!(world.answered, 2, "both are answered");
    // n1 hangs with a write of each; n2 is linked to it no more, and takes the disk.
    world.write(0, 0);
    world.cut(0, 1);
    world.cut(1, 2);
    world.cut(0, 2);
    world.claim(1);
    (0..3).for_each(|_| {
        world.settle(1);
        world.work(1);
    });
    assert!(world.gateways[1].acts && world.gateways[1].here.is_some());
    let table = world.gateways[1].table();
    assert!(table.conflicts(PORTS[1], Class::Write) && !table.conflicts(PORTS[0], Class::Write));
    // The holder lets go there, another one reserves, and n1 goes on: what it had is forbidden by now.
    for (port, action, key, new) in [(0, 2, 1, 0), (0, 6, 1, 0), (1, 6, 0, 2), (1, 1, 2, 0)] {
        world.ask(1, change(port, action, 1, key, new));
        (0..3).for_each(|_| {
            world.settle(1);
            world.work(1);
        });
    }
    assert_eq!(world.answered, 6, "nobody is waited for");
    world.write(0, 0);
    world.hand_out(0);
    let applied = world.applied;
    world.heal();
    world.is_well();
    assert_eq!(world.applied, applied, "neither write is done");
}

#[test]
fn a_table_that_nobody_understands_closes_the_disk_at_every_gateway_until_it_is_mended() {
    for garbage in ["", "generation seven\n", "reserve 9 iqn.a\n", "\u{fffd}"] {
        let mut world = begun();
        world.ask(0, change(0, 6, 0, 0, 1));
        world.heal();
        world.ask(0, change(0, 1, 1, 1, 0));
        world.heal();
        let good = world.storage.lock().unwrap().text.replace(garbage.into());
        world.leave(0);
        world.claim(1);
        world.heal();
        for g in 0..GATEWAYS {
            assert!(!world.gateways[g].tables.is_good("web"), "{garbage:?} at {}", name(g));
            assert!(world.gateways[g].acts, "clients by NBD go on");
            world.ask(g, change(1, 6, 0, 0, 2));
            assert!(world.open.is_empty(), "it is refused at once");
        }
        world.storage.lock().unwrap().text = good;
        world.heal();
        world.is_well();
        for g in 0..GATEWAYS {
            assert!(world.gateways[g].tables.is_good("web"));
            assert!(
                world.gateways[g].table().conflicts(PORTS[1], Class::Write),
                "{garbage:?}: it is reserved still"
            );
        }
    }
}
