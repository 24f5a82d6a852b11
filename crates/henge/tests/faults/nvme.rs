//! An NVMe/TCP host, written from the specifications' text: one command at a time, and errors as values.

use crate::nbd::End;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const HOST: &str = "nqn.2026-11.example:host";
const SECTOR: usize = 512;
/// PDUs.
const IC_RESP: u8 = 1;
const COMMAND: u8 = 4;
const RESPONSE: u8 = 5;
const H2C_DATA: u8 = 6;
const C2H_DATA: u8 = 7;
const R2T: u8 = 9;
const LAST: u8 = 4;
/// So much travels with its command.
const IN_CAPSULE: usize = 8192;

/// A submission entry.
struct Entry([u8; 64]);

impl Entry {
    fn new(opcode: u8) -> Entry {
        let mut e = Entry([0; 64]);
        (e.0[0], e.0[1]) = (opcode, 0x40);
        e
    }
    fn put(mut self, at: usize, bytes: &[u8]) -> Entry {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }
    fn dword(self, n: usize, value: u32) -> Entry {
        self.put(n * 4, &value.to_le_bytes())
    }
    /// Blocks of namespace 1.
    fn blocks(self, first: u64, count: usize, fua: bool) -> Entry {
        self.dword(1, 1).put(40, &first.to_le_bytes()).dword(12, (count as u32 - 1) | (u32::from(fua) << 30))
    }
}

fn dword(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

/// The first eight bytes of a PDU.
fn head(kind: u8, flags: u8, header: u8, data_at: usize, len: usize) -> Vec<u8> {
    [&[kind, flags, header, data_at as u8], &(len as u32).to_le_bytes()[..]].concat()
}

struct Queue {
    stream: TcpStream,
    number: u16,
}

/// What a command came to: its status, its result, and the data.
type Ended = (u16, u64, Vec<u8>);

impl Queue {
    /// A connection and its Connect; the controller's number.
    fn open(port: u16, disk: &str, qid: u16, controller: u16) -> io::Result<(Queue, u16)> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_nodelay(true)?;
        let mut queue = Queue { stream, number: 0 };
        let mut hello = [0; 128];
        (hello[2], hello[4]) = (128, 128);
        queue.stream.write_all(&hello)?;
        queue.stream.read_exact(&mut hello)?;
        let nqn = format!("nqn.2026-11.local.henge:{disk}");
        let mut data = vec![0; 1024];
        data[16..18].copy_from_slice(&controller.to_le_bytes());
        data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
        data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
        let entry = Entry::new(0x7f).put(4, &[1]).put(42, &qid.to_le_bytes()).put(44, &[31]);
        let (status, result, _) = queue.run(entry, 0, &data)?;
        if hello[0] != IC_RESP || status != 0 {
            return Err(io::Error::other(format!("the connection to {disk} ends with {status:#x}")));
        }
        Ok((queue, result as u16))
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; 8];
        self.stream.read_exact(&mut bytes)?;
        let mut rest = vec![0; dword(&bytes, 4).saturating_sub(8)];
        self.stream.read_exact(&mut rest)?;
        bytes.append(&mut rest);
        Ok(bytes)
    }

    /// One command. Long data are sent when asked for.
    fn run(&mut self, entry: Entry, read: usize, data: &[u8]) -> io::Result<Ended> {
        self.number += 1;
        let mut entry = entry.put(2, &self.number.to_le_bytes()).dword(8, read.max(data.len()) as u32);
        let capsule = if data.len() <= IN_CAPSULE { data } else { &[] };
        entry.0[39] = if capsule.is_empty() { 0x5a } else { 1 };
        let at = if capsule.is_empty() { 0 } else { 72 };
        let pdu = head(COMMAND, 0, 72, at, 72 + capsule.len());
        self.stream.write_all(&[&pdu, &entry.0[..], capsule].concat())?;
        let mut got = Vec::new();
        loop {
            let bytes = self.receive()?;
            match bytes[0] {
                RESPONSE => {
                    let result = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
                    return Ok((u16::from_le_bytes([bytes[22], bytes[23]]) >> 1 & 0x7ff, result, got));
                }
                C2H_DATA => got.extend(&bytes[usize::from(bytes[3])..]),
                R2T => {
                    let (from, len) = (dword(&bytes, 12), dword(&bytes, 16));
                    let pdu = head(H2C_DATA, LAST, 24, 24, 24 + len);
                    self.stream.write_all(&[&pdu, &bytes[8..24], &data[from..from + len]].concat())?;
                }
                other => return Err(io::Error::other(format!("an unexpected PDU {other:#x}"))),
            }
        }
    }
}

/// A controller, and one I/O queue.
pub struct Host {
    _admin: Queue,
    io: Queue,
}

fn end(ended: io::Result<Ended>) -> io::Result<End> {
    ended.map(|(status, ..)| if status == 0 { End::Done } else { End::Error(u32::from(status)) })
}

impl Host {
    pub fn connect(port: u16, disk: &str) -> io::Result<Host> {
        let (mut admin, controller) = Queue::open(port, disk, 0, 0xffff)?;
        let enable = Entry::new(0x7f).dword(11, 0x14).dword(12, 0x0046_0001);
        if admin.run(enable, 0, &[])?.0 != 0 {
            return Err(io::Error::other("the controller is not enabled"));
        }
        let (io, _) = Queue::open(port, disk, 1, controller)?;
        Ok(Host { _admin: admin, io })
    }
    pub fn write(&mut self, first: u64, data: &[u8], fua: bool) -> io::Result<End> {
        end(self.io.run(Entry::new(1).blocks(first, data.len() / SECTOR, fua), 0, data))
    }
    pub fn zero(&mut self, first: u64, count: u64, fua: bool) -> io::Result<End> {
        end(self.io.run(Entry::new(8).blocks(first, count as usize, fua), 0, &[]))
    }
    pub fn flush(&mut self) -> io::Result<End> {
        end(self.io.run(Entry::new(0).dword(1, 1), 0, &[]))
    }
    pub fn read(&mut self, first: u64, len: usize) -> io::Result<(End, Vec<u8>)> {
        let (status, _, data) = self.io.run(Entry::new(2).blocks(first, len / SECTOR, false), len, &[])?;
        Ok((if status == 0 { End::Done } else { End::Error(u32::from(status)) }, data))
    }
}
