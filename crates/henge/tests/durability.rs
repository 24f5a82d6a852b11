//! Nothing acknowledged as durable is ever lost: the node is killed at random moments under load from several
//! clients, started again, and what is there is compared with what was acknowledged.
//!
//! Half of the rounds kill the node alone (`kill -9`); in the other half it stands on a volatile write cache, which
//! dies with it and takes every unflushed write along (the power cut). Each sector carries who wrote it, when and
//! where, so that a lost, an old, a torn and a misplaced sector are told apart.
//!
//! `HENGE_DURABLE=10000` sets how many acknowledgements are to be tested, `HENGE_SEED` the seed.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CLIENTS: u64 = 4;
const SECTOR: usize = 512;
/// Sectors that each client has for itself.
const SECTORS: u64 = 2048;

/// An NBD client, one request at a time or several, from the protocol's text.
struct Nbd(UnixStream);

impl Nbd {
    fn connect(socket: &Path) -> std::io::Result<Nbd> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.read_exact(&mut [0; 18])?;
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\x04disk");
        stream.write_all(&hello)?;
        stream.read_exact(&mut [0; 10])?;
        Ok(Nbd(stream))
    }
    fn send(&mut self, fua: bool, kind: u16, offset: u64, len: u32, data: &[u8]) -> std::io::Result<()> {
        let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
        request.extend(u16::from(fua).to_be_bytes());
        request.extend(kind.to_be_bytes());
        request.extend(0u64.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(data);
        self.0.write_all(&request)
    }
    fn reply(&mut self) -> std::io::Result<()> {
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply)?;
        match u32::from_be_bytes(reply[4..8].try_into().expect("four bytes")) {
            0 => Ok(()),
            error => panic!("the node answered error {error}"),
        }
    }
}

/// Sectors that are asked for together: the medium below may have larger blocks than 512 bytes.
fn block(socket: &Path) -> u64 {
    let mut nbd = Nbd::connect(socket).expect("the node serves");
    nbd.send(false, 0, SECTOR as u64, SECTOR as u32, &[]).expect("sent");
    let mut reply = [0; 16];
    nbd.0.read_exact(&mut reply).expect("answered");
    if reply[4..8] == [0; 4] { 1 } else { 8 }
}

/// What a client knows of its sectors.
#[derive(Clone)]
struct Memory {
    /// Versions that may be there, by sector; the first is durable.
    versions: Vec<Vec<u64>>,
    next: u64,
    /// Acknowledgements of durability.
    acknowledged: u64,
}

fn stamp(client: u64, sector: u64, version: u64) -> Vec<u8> {
    let words = [client, sector, version, client ^ sector ^ version ^ 0x5bd1_e995];
    words.iter().flat_map(|w| w.to_le_bytes()).cycle().take(SECTOR).collect()
}

/// Writes until the node is gone.
fn load(
    socket: &Path,
    client: u64,
    block: u64,
    memory: &mut Memory,
    random: &mut Pcg64Mcg,
) -> std::io::Result<()> {
    let mut nbd = Nbd::connect(socket)?;
    loop {
        let mut batch: Vec<(u64, u64, u64, bool)> = Vec::new();
        for _ in 0..1 + random.random_range(0..8) {
            let first = random.random_range(0..SECTORS) / block * block;
            let count = (1 + random.random_range(0..16.min(SECTORS - first))).next_multiple_of(block);
            // In one batch no two writes meet: which of them comes last is nobody's promise.
            if batch.iter().any(|(f, c, ..)| first < f + c && *f < first + count) {
                continue;
            }
            batch.push((first, count, memory.next, random.random_range(0..3) == 0));
            memory.next += 1;
        }
        for &(first, count, version, fua) in &batch {
            let mut data = Vec::new();
            for sector in first..first + count {
                data.extend(stamp(client, sector, version));
                memory.versions[sector as usize].push(version);
            }
            let offset = (client * SECTORS + first) * SECTOR as u64;
            nbd.send(fua, 1, offset, data.len() as u32, &data)?;
        }
        // Replies come in any order here, so nothing is known before the last one.
        for _ in &batch {
            nbd.reply()?;
        }
        let flush = random.random_range(0..3) == 0;
        if flush {
            nbd.send(false, 3, 0, 0, &[])?;
            nbd.reply()?;
        }
        let written: Vec<u64> = batch.iter().filter(|b| b.3 || flush).map(|b| b.2).collect();
        memory.acknowledged += written.len() as u64;
        for versions in &mut memory.versions {
            // A flush makes the newest version durable, a FUA write its own.
            let durable = if flush {
                versions.len() - 1
            } else {
                versions.iter().rposition(|v| written.contains(v)).unwrap_or(0)
            };
            versions.drain(..durable);
        }
    }
}

/// Compares what is there; how many sectors were lost, and why that is said.
fn verify(socket: &Path, client: u64, memory: &mut Memory) -> Vec<String> {
    let mut nbd = Nbd::connect(socket).expect("the node serves again");
    let len = SECTORS as usize * SECTOR;
    nbd.send(false, 0, client * SECTORS * SECTOR as u64, len as u32, &[]).expect("sent");
    nbd.reply().expect("read");
    let mut data = vec![0; len];
    nbd.0.read_exact(&mut data).expect("read");
    let mut lost = Vec::new();
    for (sector, bytes) in data.chunks(SECTOR).enumerate() {
        let version = u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes"));
        let whole = version == 0 && bytes.iter().all(|b| *b == 0)
            || bytes == &stamp(client, sector as u64, version)[..];
        let may_be = &mut memory.versions[sector];
        if !whole {
            lost.push(format!("client {client} sector {sector}: torn or another's"));
        } else if !may_be.contains(&version) {
            lost.push(format!("client {client} sector {sector}: version {version}, not one of {may_be:?}"));
        }
        *may_be = vec![version];
    }
    lost
}

fn start(dir: &Path, volatile: Option<u64>) -> Child {
    let file = dir.join("node.toml");
    let cache = volatile.map_or(String::new(), |seed| format!("volatile = {{ seed = {seed} }}\n"));
    let text = format!(
        "listen = \"nbd+unix://{0}/nbd.sock\"\nstate_dir = \"{0}/state\"\n[[pool]]\nname = \"p\"\npath = \"{0}/pool\"\ncapacity = \"16MiB\"\n{cache}\
         [[disk]]\nname = \"disk\"\ncapacity = \"8MiB\"\n",
        dir.display()
    );
    std::fs::write(&file, text).expect("written");
    let _ = std::fs::remove_file(dir.join("nbd.sock"));
    let child = Command::new(env!("CARGO_BIN_EXE_henge"))
        .args(["node", "-c"])
        .arg(&file)
        .stdout(Stdio::null())
        .spawn()
        .expect("the node starts");
    let begun = Instant::now();
    while Nbd::connect(&dir.join("nbd.sock")).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the node does not begin to serve");
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

#[test]
fn nothing_acknowledged_is_lost() {
    let number =
        |name: &str, otherwise| std::env::var(name).ok().map_or(otherwise, |v| v.parse().expect("a number"));
    let (wanted, seed) = (number("HENGE_DURABLE", 400), number("HENGE_SEED", 1));
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("nbd.sock");
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let fresh = Memory { versions: vec![vec![0]; SECTORS as usize], next: 1, acknowledged: 0 };
    let mut memories = vec![fresh; CLIENTS as usize];
    let mut lost = Vec::new();
    let (mut rounds, mut cuts) = (0u64, 0u64);
    let total = |memories: &[Memory]| memories.iter().map(|m| m.acknowledged).sum::<u64>();
    while total(&memories) < wanted || rounds < 4 {
        let power_cut = rounds % 2 == 1;
        let mut node = start(dir.path(), power_cut.then_some(seed + rounds));
        let block = block(&socket);
        let life = Duration::from_millis(20 + random.random_range(0..500));
        let seeds: Vec<u64> = (0..CLIENTS).map(|_| random.random()).collect();
        std::thread::scope(|scope| {
            for ((client, memory), seed) in memories.iter_mut().enumerate().zip(seeds) {
                let socket = &socket;
                scope.spawn(move || {
                    let ended =
                        load(socket, client as u64, block, memory, &mut Pcg64Mcg::seed_from_u64(seed));
                    assert!(ended.is_err(), "it only ends when the node is gone");
                });
            }
            std::thread::sleep(life);
            node.kill().expect("killed");
        });
        node.wait().expect("a child");
        // What is there is asked for without the cache, and without its having been flushed by an orderly end.
        let mut node = start(dir.path(), None);
        for (client, memory) in memories.iter_mut().enumerate() {
            lost.extend(verify(&socket, client as u64, memory));
        }
        node.kill().expect("killed");
        node.wait().expect("a child");
        rounds += 1;
        cuts += u64::from(power_cut);
    }
    let acknowledged = total(&memories);
    println!("{rounds} kills, {cuts} of them power cuts, seed {seed}");
    println!("lost {} of {acknowledged} acknowledged flush/FUA writes", lost.len());
    lost.iter().take(20).for_each(|what| println!("  {what}"));
    assert!(lost.is_empty(), "seed {seed}");
}
