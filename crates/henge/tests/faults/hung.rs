//! One tenant's holes hang in the file system, as ext4's were seen to for seconds: another's reads and syncs go on.

use crate::medium::Medium;
use crate::mount::{Mounted, Storage};
use crate::nbd::{End, FLUSH, Nbd, READ, TRIM, WRITE};
use crate::node::{Folders, Node};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long each hole hangs. Holes of one file come one after the other.
const HANGS: Duration = Duration::from_secs(5);
/// Many more than the depth, and than the kernel's workers.
const HOLES: u64 = 200;
/// Before, so many holes take so long each: nobody is to be more patient for that.
const SLOW: (u64, Duration) = (60, Duration::from_millis(100));

#[test]
#[ignore = "`make test-faults`"]
fn holes_that_hang_stop_nobody_else() {
    let _turn = crate::TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    ["auto", "threads"].into_iter().for_each(beside_holes);
}

fn beside_holes(engine: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let (sockets, mounted) = (dir.path().join("s"), dir.path().join("m"));
    std::fs::create_dir(&sockets).and_then(|()| std::fs::create_dir(&mounted)).expect("directories");
    let medium = Medium::new(Pcg64Mcg::seed_from_u64(1));
    let storage = Mounted(Arc::new(Mutex::new(Storage::new(medium, true))));
    let session = storage.mount(&mounted).expect("a FUSE file system");
    let pool = |name: &str| {
        format!(
            "[[pool]]\nname = \"{name}\"\npath = \"{}/{name}\"\ncapacity = \"16MiB\"\nengine = \"{engine}\"\n",
            mounted.display()
        )
    };
    let disk = |name: &str, pool: &str| {
        format!("[[disk]]\nname = \"{name}\"\npool = \"{pool}\"\ncapacity = \"2MiB\"\n")
    };
    let disks = disk("hangs", "pool") + &disk("well", "pool") + &disk("other", "elsewhere");
    let folders = Folders::new(sockets, mounted.clone(), &(pool("pool") + &pool("elsewhere") + &disks));
    let mut node = Node::start(&folders, 0, |_| ()).0.unwrap_or_else(|e| panic!("{engine}: {e:?}"));
    let connect = |disk: &str| Nbd::connect(&folders.nbd(), disk).expect("a client");
    let (mut hangs, mut well, mut other) = (connect("hangs"), connect("well"), connect("other"));
    let mut commands = |longest: &mut Duration| {
        for kind in [WRITE, FLUSH, READ] {
            for client in [&mut well, &mut other] {
                let begun = Instant::now();
                let data = if kind == WRITE { vec![7; 4096] } else { Vec::new() };
                match kind {
                    READ => assert_eq!(client.read(0, 4096).expect("an answer"), Ok(vec![7; 4096])),
                    _ => {
                        client.send(0, kind, 0, data.len() as u32, &data).expect("sent");
                        assert_eq!(client.answer().expect("an answer"), (0, End::Done));
                    }
                }
                *longest = begun.elapsed().max(*longest);
            }
        }
    };
    let mut before = Duration::ZERO;
    (0..20).for_each(|_| commands(&mut before));
    storage.lock().hangs = SLOW.1;
    for hole in 0..SLOW.0 {
        hangs.send(0, TRIM, hole * 8192, 4096, &[]).expect("sent");
    }
    (0..SLOW.0).for_each(|_| _ = hangs.answer().expect("an answer"));
    storage.lock().hangs = HANGS;
    let begun = Instant::now();
    for hole in 0..HOLES {
        hangs.send(0, TRIM, hole * 8192, 4096, &[]).expect("sent");
    }
    let first = std::thread::spawn(move || hangs.answer().map(|_| begun.elapsed()));
    let mut longest = Duration::ZERO;
    while begun.elapsed() < HANGS - Duration::from_millis(500) {
        commands(&mut longest);
    }
    println!("{engine}: at most {before:?} before, {longest:?} beside {HOLES} holes that hang");
    storage.lock().hangs = Duration::ZERO;
    let first = first.join().expect("it only waits").expect("an answer");
    assert!(first >= HANGS, "the holes did not hang: {first:?}");
    assert!(longest < Duration::from_secs(1), "{engine}: {longest:?}");
    node.kill();
    drop(session);
}
