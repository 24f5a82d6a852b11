//! Whose a pool is and whose its parts are: nothing is written where that is not certain, and nobody inherits by a name.

use henge_backend::{Buffer, Device, Directory, Options, Step, Store, pools};
use henge_core::{FlowId, Instant, Op, Request, RequestId};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const PART: u64 = 2 * MIB;
const A: &str = "a.part0";

/// A program that another test begins has the lock of a pool, too, until it is another program: that moment is waited for.
fn options() -> Options {
    Options { apart: true, ..Options::default() }
}

fn look() -> Options {
    Options { look: true, ..options() }
}

/// A pool of either kind, in a folder of its own.
struct Pool {
    dir: tempfile::TempDir,
    device: bool,
}

impl Pool {
    fn new(device: bool) -> Pool {
        let pool = Pool { dir: tempfile::tempdir().unwrap(), device };
        if device {
            blank(&pool.path(), 16 * MIB);
            pools::format(&pool.path(), "p", false).unwrap();
        }
        pool
    }
    fn path(&self) -> PathBuf {
        self.dir.path().join("pool")
    }
    fn open(&self) -> io::Result<Box<dyn Store>> {
        self.open_as("p", options())
    }
    fn open_as(&self, name: &str, options: Options) -> io::Result<Box<dyn Store>> {
        Ok(match self.device {
            true => Box::new(Device::open(&self.path(), name, 0, options)?),
            false => Box::new(Directory::open(&self.path(), name, 12 * MIB, options)?),
        })
    }
}

fn both(test: impl Fn(Pool)) {
    [true, false].into_iter().for_each(|device| test(Pool::new(device)));
}

fn blank(path: &Path, len: u64) {
    std::fs::File::create(path).unwrap().set_len(len).unwrap();
}

fn one(store: &mut dyn Store, op: Op, offset: u64, payload: Buffer) -> Buffer {
    let len = payload.len() as u64;
    let request = Request::new(RequestId::default(), FlowId(0), op, offset, len, Instant::ZERO);
    store.submit(&request, payload, Instant::ZERO);
    loop {
        if let Some(done) = store.reap(Instant::ZERO) {
            assert_eq!(done.outcome, Ok(()));
            return done.payload;
        }
        std::thread::yield_now();
    }
}

fn fill(store: &mut dyn Store, base: u64, len: u64, byte: u8) {
    let mut data = Buffer::zeroed(len as usize);
    data.fill(byte);
    one(store, Op::Write, base, data);
}

fn holds(store: &mut dyn Store, base: u64, len: u64, byte: u8) -> bool {
    one(store, Op::Read, base, Buffer::zeroed(len as usize)).iter().all(|b| *b == byte)
}

/// Every file below, with its bytes.
fn everything(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    if path.is_dir() {
        let mut entries: Vec<PathBuf> = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
        entries.sort();
        return entries.iter().flat_map(|e| everything(e)).collect();
    }
    vec![(path.to_owned(), std::fs::read(path).unwrap())]
}

/// Refused with such words, by a node and by whoever only looks; and not a byte is another.
fn refused(path: &Path, name: &str, words: &[&str]) {
    let before = everything(path);
    for options in [options(), look()] {
        let opened: io::Result<Box<dyn Store>> = if path.is_dir() {
            Directory::open(path, name, 12 * MIB, options).map(|d| Box::new(d) as _)
        } else {
            Device::open(path, name, 0, options).map(|d| Box::new(d) as _)
        };
        let why = opened.err().expect("it is refused").to_string();
        assert!(words.iter().all(|word| why.contains(word)), "{words:?} in: {why}");
        assert!(!why.contains('\n'), "one line: {why}");
    }
    assert!(everything(path) == before, "something was written");
}

#[test]
fn a_device_that_is_not_ours_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    blank(&path, 16 * MIB);
    refused(&path, "p", &["is blank", "henge pool format"]);
    let foreign: &[(u64, &[u8], &str)] = &[
        (0, b"XFSB", "XFS"),
        (1080, b"\x53\xef", "ext2"),
        (510, b"\x55\xaa", "partition table"),
        (536, b"LVM2 001", "data"),
        (16 * MIB - 512, b"EFI PART", "data"),
        (300_000, b"a tenant's", "byte 300000"),
    ];
    for (at, bytes, what) in foreign {
        blank(&path, 16 * MIB);
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().write_all_at(bytes, *at).unwrap();
        refused(&path, "p", &["holds", what, "not a pool"]);
        let before = everything(&path);
        let why = pools::format(&path, "p", false).unwrap_err().to_string();
        assert!(why.contains(what) && why.contains("--force") && everything(&path) == before, "{why}");
    }
    pools::format(&path, "p", true).unwrap();
    let why = pools::format(&path, "q", false).unwrap_err().to_string();
    assert!(why.contains("the Henge pool \"p\""), "{why}");
    Device::open(&path, "p", 0, options()).unwrap();
}

#[test]
fn a_real_file_system_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    blank(&path, 16 * MIB);
    let made = std::process::Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&path).status();
    if !made.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: mkfs.ext4 is missing");
    }
    refused(&path, "p", &["an ext4 file system"]);
}

#[test]
fn a_pool_knows_its_name_wherever_it_is_found() {
    both(|pool| {
        let base = pool.open().unwrap().open_part(A, PART).unwrap();
        fill(&mut *opened(&pool), base, MIB, 7);
        refused(&pool.path(), "q", &["is the pool \"p\"", "not \"q\"", "henge pool rename"]);
        pools::rename(&pool.path(), "q").unwrap();
        refused(&pool.path(), "p", &["is the pool \"q\""]);
        let mut store = pool.open_as("q", options()).unwrap();
        let base = store.open_part(A, PART).unwrap();
        assert!(holds(&mut *store, base, MIB, 7));
    });
}

/// With its part open.
fn opened(pool: &Pool) -> Box<dyn Store> {
    let mut store = pool.open().unwrap();
    store.open_part(A, PART).unwrap();
    store
}

#[test]
fn superblocks_that_are_newer_torn_or_elsewhere() {
    let pool = Pool::new(true);
    let path = pool.path();
    drop(opened(&pool));
    let good = std::fs::read(&path).unwrap();
    let last = good.len() - 4096;
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
    };
    with(&|b| b[16] = 2);
    refused(&path, "p", &["format 2", "newer"]);
    with(&|b| (b[100], b[last + 100]) = (b'x', b'x'));
    refused(&path, "p", &["both wrong", "nothing was written"]);
    with(&|b| b[..4096].fill(0));
    refused(&path, "p", &["was the pool \"p\"", "henge pool repair"]);
    with(&|b| b[..4].copy_from_slice(b"XFSB"));
    refused(&path, "p", &["begins with an XFS file system"]);
    with(&|b| b.truncate(last));
    refused(&path, "p", &["its end is missing"]);
    // Both copies of a page of the table.
    with(&|b| (b[4096 + 300], b[last - 2 * 4096 + 300]) = (1, 1));
    refused(&path, "p", &["both copies of page 0"]);
    // One good copy is enough, and says so; nothing is written into the other until somebody asks for it.
    for at in [100, last + 100] {
        with(&|b| b[at] = b'x');
        let mut store = pool.open().unwrap();
        assert!(store.notice().is_some_and(|n| n.contains("henge pool repair")));
        store.open_part(A, PART).unwrap();
        drop(store);
        assert_eq!(std::fs::read(&path).unwrap()[at], b'x');
        assert_eq!(pools::repair(&path).unwrap().len(), 1);
        assert!(std::fs::read(&path).unwrap() == good, "as it was");
        assert_eq!(pools::repair(&path).unwrap().len(), 0);
    }
}

#[test]
fn whoever_looks_changes_and_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("below/pool");
    let mut store = Directory::open(&path, "p", 12 * MIB, look()).unwrap();
    store.open_part(A, PART).unwrap();
    assert!(!dir.path().join("below").exists());
    both(|pool| {
        drop(opened(&pool));
        let before = everything(&pool.path());
        let mut store = pool.open_as("p", look()).unwrap();
        store.open_part(A, PART).unwrap();
        store.open_part("b.part0", PART).unwrap();
        store.open_part(A, 2 * PART).unwrap_or_default();
        assert!(store.settle(&|_| false).unwrap().is_empty());
        assert!(store.open_part("huge.part0", 1 << 40).is_err());
        drop(store);
        assert!(everything(&pool.path()) == before);
        // A node may be serving it.
        let _serving = opened(&pool);
        pool.open_as("p", look()).unwrap().open_part(A, PART).unwrap();
    });
}

#[test]
fn nobody_inherits_by_a_name() {
    both(|pool| {
        let mut store = opened(&pool);
        let base = store.open_part(A, PART).unwrap();
        fill(&mut *store, base, MIB, 7);
        let spare = store.open_part("spared.part0", MIB).unwrap();
        fill(&mut *store, spare, MIB, 8);
        assert!(store.settle(&|_| false).unwrap().is_empty(), "they are open");
        drop(store);
        // The disk is taken out of the configuration, and another fails.
        let mut store = pool.open().unwrap();
        assert_eq!(store.settle(&|name| name.starts_with("spared")).unwrap(), [A]);
        drop(store);
        let mut store = pool.open().unwrap();
        let why = store.open_part(A, PART).unwrap_err().to_string();
        assert!(why.contains("keeps a part") && why.contains("adopt = true"), "{why}");
        assert!(!store.has_part(A));
        store.open_part("spared.part0", MIB).unwrap();
        // Told to.
        store.adopt_part(A).unwrap();
        let base = store.open_part(A, PART).unwrap();
        assert!(holds(&mut *store, base, MIB, 7));
        store.settle(&|_| false).unwrap();
        drop(store);
        // Again, and by the administrator.
        let mut store = pool.open().unwrap();
        store.open_part("spared.part0", MIB).unwrap();
        assert_eq!(store.settle(&|_| false).unwrap(), [A]);
        drop(store);
        let shown = pools::show(&pool.path()).unwrap();
        let kept: Vec<_> = shown.parts.iter().filter(|p| !p.used).collect();
        assert_eq!((kept.len(), kept[0].name.as_str(), shown.name.as_str()), (1, A, "p"));
        assert!(pools::adopt(&pool.path(), "nothing like it").is_err());
        assert_eq!(pools::adopt(&pool.path(), &kept[0].id[..8]).unwrap(), A);
        drop(opened(&pool));
        let mut store = pool.open().unwrap();
        store.settle(&|_| false).unwrap();
        drop(store);
        let shown = pools::show(&pool.path()).unwrap();
        let id = &shown.parts.iter().find(|p| p.name == A).unwrap().id;
        assert_eq!(pools::discard(&pool.path(), id).unwrap(), A);
        let mut store = pool.open().unwrap();
        let base = store.open_part(A, PART).unwrap();
        assert!(holds(&mut *store, base, PART, 0), "a new one");
    });
}

#[test]
fn what_is_removed_is_gone_and_can_be_removed_again() {
    both(|pool| {
        let mut store = opened(&pool);
        let base = store.open_part(A, PART).unwrap();
        fill(&mut *store, base, PART, 7);
        for _ in 0..2 {
            store.remove_part(A).unwrap();
        }
        assert!(!store.has_part(A));
        let base = store.open_part(A, PART).unwrap();
        assert!(holds(&mut *store, base, PART, 0));
    });
}

#[test]
fn a_directory_after_a_crash() {
    let pool = Pool::new(false);
    let mut store = opened(&pool);
    let base = store.open_part("written.part0", PART).unwrap();
    fill(&mut *store, base, MIB, 7);
    store.open_part("unwritten.part0", PART).unwrap();
    // It grew, and nobody was told.
    store.open_part("written.part0", 2 * PART).unwrap();
    drop(store);
    std::fs::write(pool.path().join(".half.part0.new"), "x").unwrap();
    std::fs::write(pool.path().join("README"), "somebody's").unwrap();
    let mut store = opened(&pool);
    assert!(!pool.path().join(".half.part0.new").exists());
    store.open_part("written.part0", PART).unwrap();
    assert!(store.settle(&|_| false).unwrap().is_empty(), "what was never written is worth nothing");
    assert!(!store.has_part("unwritten.part0") && pool.path().join("README").exists());
    drop(store);
    // With data beyond its disk's end it is not opened, and nothing else suffers.
    let file = std::fs::OpenOptions::new().write(true).open(pool.path().join("written.part0")).unwrap();
    file.write_all_at(b"data", PART + 5000).unwrap();
    let mut store = opened(&pool);
    assert!(store.open_part("written.part0", PART).is_err_and(|e| e.to_string().contains("not shrunk")));
    store.open_part("written.part0", 2 * PART).unwrap();
}

#[test]
fn an_identity_that_was_torn_is_not_believed() {
    let pool = Pool::new(false);
    drop(opened(&pool));
    let file = pool.path().join(".henge.pool");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() / 2]).unwrap();
    refused(&pool.path(), "p", &["torn"]);
    std::fs::write(&file, text.replace("henge pool 1", "henge pool 2")).unwrap();
    refused(&pool.path(), "p", &["newer"]);
    // A directory of an older version has none, and its parts are where they were.
    std::fs::remove_file(&file).unwrap();
    assert!(opened(&pool).has_part(A));
}

#[test]
fn a_pool_larger_than_its_file_system_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    for options in [options(), look()] {
        let why = Directory::open(&path, "p", 1 << 60, options).err().unwrap().to_string();
        assert!(why.contains("overcommit = true") && !path.exists(), "{why}");
    }
    let mut store = Directory::open(&path, "p", 1 << 60, Options { overcommit: true, ..options() }).unwrap();
    assert!(store.notice().is_some_and(|n| n.contains("promises")));
}

#[test]
fn one_node_at_a_time() {
    both(|pool| {
        let _serving = opened(&pool);
        let why =
            pool.open_as("p", Options { patience: Duration::ZERO, ..options() }).err().unwrap().to_string();
        assert!(why.contains("another node"), "{why}");
        let tool = pools::rename(&pool.path(), "q").unwrap_err().to_string();
        assert!(tool.contains("another node"), "{tool}");
    });
}

/// Serves the pool that the environment names until its input ends.
#[test]
#[ignore = "the other process of `another_process_is_named_at_once`"]
fn the_other_process() {
    let path = PathBuf::from(std::env::var_os("HENGE_TEST_POOL").expect("a pool"));
    let mut pool: Box<dyn Store> = match path.is_dir() {
        true => Box::new(Directory::open(&path, "p", 12 * MIB, options()).unwrap()),
        false => Box::new(Device::open(&path, "p", 0, options()).unwrap()),
    };
    // What an administrator changes meanwhile takes nothing from whose it is.
    pool.open_part("a.part0", MIB).unwrap();
    let mut step = pool.begin_part("a.part0", 2 * MIB).unwrap();
    loop {
        step = match step {
            Step::There(_) => break,
            Step::Run(chore) => pool.go_on("a.part0", std::thread::spawn(chore).join().unwrap()).unwrap(),
            Step::Zero { .. } => pool.go_on("a.part0", Ok(None)).unwrap(),
        };
    }
    println!("serves");
    io::copy(&mut io::stdin(), &mut io::sink()).unwrap();
    drop(pool);
}

/// However long a node waits for the remains of a killed one: whoever lives is not waited for.
#[test]
fn another_process_is_named_at_once() {
    both(|pool| {
        use std::io::{BufRead, BufReader};
        use std::process::{Command, Stdio};
        drop(pool.open().unwrap());
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args(["--exact", "the_other_process", "--ignored", "--nocapture"]);
        other.env("HENGE_TEST_POOL", pool.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut other = other.spawn().unwrap();
        let mut said = BufReader::new(other.stdout.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains("serves")), "the other process serves");
        let patient = Options { patience: Duration::from_secs(100_000), ..options() };
        let why = pool.open_as("p", patient).err().unwrap().to_string();
        assert!(why.ends_with(&format!("is in use by another node: process {}", other.id())), "{why}");
        drop(other.stdin.take());
        assert!(other.wait().unwrap().success());
        drop(pool.open_as("p", options()).unwrap());
    });
}

/// An installation of the version whose table stood in a file: parts at the very beginning and at the very end.
#[test]
fn an_older_devices_parts_are_imported() {
    let dir = tempfile::tempdir().unwrap();
    let (path, table) = (dir.path().join("device"), dir.path().join("p.extents"));
    let parts: [(&str, u64, u64, u8); 3] =
        [("a.part0", 0, 2 * MIB, 1), ("b.part0", 4 * MIB, MIB + 4096, 2), ("c.part0", 14 * MIB, 2 * MIB, 3)];
    let lay = |free: bool| {
        blank(&path, 16 * MIB);
        let mut text = "henge extents 1\nnew 9437184 1048576 half.part0\n".to_owned();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        for (name, base, len, byte) in parts {
            file.write_all_at(&vec![byte; len as usize], base).unwrap();
            text.push_str(&format!("used {base} {len} {name}\n"));
        }
        if !free {
            text.push_str(&format!("used {} {} big.part0\n", 6 * MIB, 8 * MIB));
        }
        std::fs::write(&table, text).unwrap();
    };
    let check = || {
        let mut store = Device::open(&path, "p", 0, options()).unwrap();
        for (name, _, len, byte) in parts {
            let base = store.open_part(name, len).unwrap();
            assert!(holds(&mut store, base, len, byte), "{name}");
        }
    };
    // No room: nothing is written.
    lay(false);
    let before = everything(dir.path());
    let why = pools::import(&path, "p", &table).unwrap_err().to_string();
    assert!(why.contains("nothing was written") && everything(dir.path()) == before, "{why}");
    lay(true);
    let old = std::fs::read(&path).unwrap();
    pools::import(&path, "p", &table).unwrap();
    assert!(!table.exists() && dir.path().join("p.extents.imported").exists());
    check();
    let new = std::fs::read(&path).unwrap();
    // Interrupted before the first superblock was written, and before either: the moved table is beside.
    std::fs::write(&path, [&old[..MIB as usize], &new[MIB as usize..]].concat()).unwrap();
    assert!(Device::open(&path, "p", 0, options()).is_err());
    pools::repair(&path).unwrap();
    check();
    let end = new.len() - 4096;
    let mut torn = [&old[..MIB as usize], &new[MIB as usize..end], &new[end..]].concat();
    torn[end + 200..].fill(0xee);
    std::fs::write(&path, torn).unwrap();
    std::fs::copy(dir.path().join("p.extents.imported"), &table).unwrap();
    pools::import(&path, "p", &table).unwrap();
    check();
}
