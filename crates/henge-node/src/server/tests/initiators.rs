//! Initiators by iSCSI whose commands need memory more than once.

use super::{Bench, NOBODY, disk};
use henge_backend::Buffer;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// An initiator's connection, from the specification's text (RFC 7143, section 11).
struct Initiator {
    stream: TcpStream,
    command: u32,
}

impl Initiator {
    /// One that is logged in, and has been told of the unit attention.
    fn open(bench: &mut Bench) -> Initiator {
        let address: SocketAddr = bench.server.entrance.listeners[1].address.tcp("iscsi").unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut initiator = Initiator { stream, command: 1 };
        let text = "InitiatorName=iqn.a\0TargetName=iqn.2026-11.local.henge:d\0";
        let port = initiator.stream.local_addr().unwrap().port().to_be_bytes();
        let mut header = [0; 48];
        (header[0], header[1], header[8], header[27]) = (0x43, 0x87, 0x80, 1);
        header[12..14].copy_from_slice(&port); // the ISID's qualifier: each is a port of its own
        initiator.send(header, text.as_bytes());
        initiator.answer(bench);
        initiator.scsi(0x80, &[0; 6], &[]);
        assert_eq!(initiator.answer(bench)[3], 2, "a unit attention");
        initiator
    }

    fn send(&mut self, mut header: [u8; 48], data: &[u8]) {
        header[4..8].copy_from_slice(&(data.len() as u32).to_be_bytes());
        let mut bytes = header.to_vec();
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        self.stream.write_all(&bytes).unwrap();
    }

    /// A command with its data; flags F 0x80, R 0x40, W 0x20.
    fn scsi(&mut self, flags: u8, cdb: &[u8], data: &[u8]) {
        let mut header = [0; 48];
        (header[0], header[1]) = (1, flags);
        header[16..20].copy_from_slice(&self.command.to_be_bytes());
        header[20..24].copy_from_slice(&(data.len() as u32).to_be_bytes());
        header[24..28].copy_from_slice(&self.command.to_be_bytes());
        header[32..32 + cdb.len()].copy_from_slice(cdb);
        self.command += 1;
        self.send(header, data);
    }

    /// The next header that comes; its data are dropped.
    fn answer(&mut self, bench: &mut Bench) -> [u8; 48] {
        let begun = std::time::Instant::now();
        loop {
            match self.heard(bench) {
                Some(header) => return header,
                // What goes by TCP may take a while.
                None => assert!(begun.elapsed().as_secs() < 20, "no answer comes"),
            }
        }
    }

    fn heard(&mut self, bench: &mut Bench) -> Option<[u8; 48]> {
        let (mut got, mut at, mut end) = (vec![0; 48], 0, 48);
        for _ in 0..100 {
            bench.round();
            while at < end {
                match self.stream.read(&mut got[at..end]) {
                    Ok(0) => panic!("the node has hung up"),
                    Ok(n) => at += n,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) => panic!("{e}"),
                }
                if at == 48 && end == 48 {
                    end += u32::from_be_bytes([0, got[5], got[6], got[7]]).next_multiple_of(4) as usize;
                    got.resize(end, 0);
                }
            }
            if at == end {
                return got.first_chunk().copied();
            }
        }
        None
    }
}

/// All memory of disk 0 but so many pages, and what disks share. `beyond`: and what one command may have beyond that, which counts.
fn take_all_but(bench: &mut Bench, pages: usize, beyond: bool) -> Vec<(usize, Buffer)> {
    let mut kept = Vec::new();
    for (number, len) in [(1, 1 << 20), (0, 1 << 20), (0, 4096)] {
        if len == 4096 {
            let (number, last) = kept.pop().expect("there was some");
            bench.server.plane.put_buffer(number, last);
        }
        while let Some(buffer) = bench.server.plane.take_buffer(number, len) {
            kept.push((number, buffer));
        }
    }
    let given = kept.split_off(kept.len() - pages - usize::from(beyond));
    if beyond {
        kept.push((0, bench.server.plane.take_more(0, 4096, NOBODY).expect("nobody has it")));
    }
    let give = |bench: &mut Bench, (number, page)| bench.server.plane.put_buffer(number, page);
    given.into_iter().for_each(|page| give(bench, page));
    let had: Vec<_> = (0..pages).filter_map(|_| bench.server.plane.take_buffer(0, 4096)).collect();
    assert_eq!(had.len(), pages, "so many pages are left");
    had.into_iter().for_each(|page| give(bench, (0, page)));
    kept
}

/// A node with a disk that an initiator uses, and another one.
fn bench() -> Bench {
    let disks = disk("d", "a", "weight = 1") + &disk("hog", "b", "weight = 1");
    Bench::listening(&disks, ", \"iscsi://127.0.0.1:0\"")
}

/// WRITE AND VERIFY has memory for what it writes, then for what it reads. Where the second is missing it waits, and is not forgotten.
#[test]
fn a_command_that_lacks_memory_half_way_goes_on_when_there_is_some() {
    let mut bench = bench();
    let mut initiator = Initiator::open(&mut bench);
    let kept = take_all_but(&mut bench, 1, true);
    initiator.scsi(0xa0, &[0x2e, 0, 0, 0, 0, 0, 0, 0, 8, 0], &[7; 4096]);
    assert_eq!(initiator.heard(&mut bench), None, "there is memory for the data alone");
    kept.into_iter().for_each(|(number, buffer)| bench.server.plane.put_buffer(number, buffer));
    let done = initiator.answer(&mut bench);
    assert_eq!((done[0], done[3]), (0x21, 0), "a SCSI response, GOOD");
    bench.round();
    assert_eq!(bench.server.plane.memory.buffers.out(), 0);
}

/// Commands that keep what they have written might wait for each other's memory for ever. One of them has more than there is, then the next.
#[test]
fn commands_that_keep_all_memory_go_on_one_by_one() {
    let mut bench = bench();
    let mut all: Vec<Initiator> = (0..4).map(|_| Initiator::open(&mut bench)).collect();
    let kept = take_all_but(&mut bench, 1, false);
    for initiator in &mut all {
        initiator.scsi(0xa0, &[0x2e, 0, 0, 0, 0, 0, 0, 0, 8, 0], &[7; 4096]);
    }
    for initiator in &mut all {
        let done = initiator.answer(&mut bench);
        assert_eq!((done[0], done[3]), (0x21, 0), "a SCSI response, GOOD");
    }
    let held = |bench: &Bench| bench.server.plane.memory.buffers.out();
    assert_eq!(held(&bench), kept.iter().map(|(_, buffer)| buffer.capacity()).sum::<usize>());
    kept.into_iter().for_each(|(number, buffer)| bench.server.plane.put_buffer(number, buffer));
    assert_eq!(held(&bench), 0);
}

/// ORWRITE keeps what it has read while it waits for memory to write by. Whoever gives it up there keeps nothing.
#[test]
fn a_command_that_is_given_up_half_way_gives_its_memory_back() {
    let mut bench = bench();
    let (mut initiator, mut other) = (Initiator::open(&mut bench), Initiator::open(&mut bench));
    let kept = take_all_but(&mut bench, 2, true);
    initiator.scsi(0xa0, &[0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0], &[7; 4096]);
    assert_eq!(initiator.heard(&mut bench), None, "there is memory for the data, and for what is read");
    let mut reset = [0; 48];
    (reset[0], reset[1], reset[19]) = (0x42, 0x85, 99); // LOGICAL UNIT RESET, at once
    other.send(reset, &[]);
    let done = other.answer(&mut bench);
    assert_eq!((done[0], done[2]), (0x22, 0), "the function is complete");
    kept.into_iter().for_each(|(number, buffer)| bench.server.plane.put_buffer(number, buffer));
    assert_eq!(bench.server.plane.memory.buffers.out(), 0);
}
