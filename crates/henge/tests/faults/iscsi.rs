//! An iSCSI initiator, written from the RFC's text: one command at a time, and errors as values.

use crate::nbd::End;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

pub struct Initiator {
    stream: TcpStream,
    number: u32,
}

const LOGIN: u8 = 0x03;
const COMMAND: u8 = 0x01;
const RESPONSE: u8 = 0x21;
const DATA_IN: u8 = 0x25;
const SECTOR: usize = 512;

/// An offset or a length in a header, most significant byte first.
fn put(header: &mut [u8], at: usize, value: u32) {
    header[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

impl Initiator {
    /// Logs in; `session` tells it from others.
    pub fn connect(port: u16, disk: &str, session: u8) -> io::Result<Initiator> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_nodelay(true)?;
        let mut initiator = Initiator { stream, number: 1 };
        let keys = format!(
            "InitiatorName=iqn.2026-11.example:host\0TargetName=iqn.2026-11.local.henge:{disk}\0InitialR2T=No\0"
        );
        let mut login = [0; 48];
        // To the full feature phase at once, in one session of this number.
        (login[0], login[1], login[8], login[13]) = (0x40 | LOGIN, 0x87, 0x80, session);
        put(&mut login, 24, 1);
        initiator.send(login, keys.as_bytes())?;
        let (reply, _) = initiator.receive()?;
        if (reply[0] & 0x3f, reply[36], reply[37]) != (0x23, 0, 0) {
            return Err(io::Error::other(format!("the login to {disk} ends with {:?}", &reply[36..38])));
        }
        // A new session's unit attention.
        initiator.run(&[0; 6], 0, &[])?;
        Ok(initiator)
    }

    fn send(&mut self, mut header: [u8; 48], data: &[u8]) -> io::Result<()> {
        let len = (data.len() as u32).to_be_bytes();
        header[5..8].copy_from_slice(&len[1..]);
        let mut bytes = [&header[..], data].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        self.stream.write_all(&bytes)
    }

    fn receive(&mut self) -> io::Result<([u8; 48], Vec<u8>)> {
        let mut header = [0; 48];
        self.stream.read_exact(&mut header)?;
        let len = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let mut data = vec![0; len.next_multiple_of(4)];
        self.stream.read_exact(&mut data)?;
        data.truncate(len);
        Ok((header, data))
    }

    /// One command with its data within it; how it ended, and what came.
    fn run(&mut self, cdb: &[u8], read: usize, data: &[u8]) -> io::Result<(End, Vec<u8>)> {
        let expected = read.max(data.len());
        let direction = match (expected, data.is_empty()) {
            (0, _) => 0,
            (_, true) => 0x40,
            (_, false) => 0x20,
        };
        let mut header = [0; 48];
        (header[0], header[1]) = (COMMAND, 0x80 | direction);
        put(&mut header, 16, self.number);
        put(&mut header, 20, expected as u32);
        put(&mut header, 24, self.number);
        header[32..32 + cdb.len()].copy_from_slice(cdb);
        self.number += 1;
        self.send(header, data)?;
        let mut all = Vec::new();
        loop {
            let (reply, data) = self.receive()?;
            let (kind, with_status) = (reply[0] & 0x3f, reply[1] & 1 == 1);
            if kind == DATA_IN {
                all.extend_from_slice(&data);
            }
            if kind == RESPONSE || kind == DATA_IN && with_status {
                let end = if reply[3] == 0 { End::Done } else { End::Error(u32::from(reply[3])) };
                return Ok((end, all));
            }
            if kind != DATA_IN {
                return Err(io::Error::other(format!("an unexpected PDU {kind:#x}")));
            }
        }
    }

    pub fn write(&mut self, first: u64, data: &[u8], fua: bool) -> io::Result<End> {
        self.run(&cdb10(0x2a, first, data.len(), fua), 0, data).map(|(end, _)| end)
    }
    /// SYNCHRONIZE CACHE of everything.
    pub fn flush(&mut self) -> io::Result<End> {
        self.run(&cdb10(0x35, 0, 0, false), 0, &[]).map(|(end, _)| end)
    }
    pub fn read(&mut self, first: u64, len: usize) -> io::Result<(End, Vec<u8>)> {
        self.run(&cdb10(0x28, first, len, false), len, &[])
    }
}

fn cdb10(opcode: u8, first: u64, len: usize, fua: bool) -> [u8; 10] {
    let (lba, blocks) = ((first as u32).to_be_bytes(), ((len / SECTOR) as u16).to_be_bytes());
    [opcode, if fua { 8 } else { 0 }, lba[0], lba[1], lba[2], lba[3], 0, blocks[0], blocks[1], 0]
}
