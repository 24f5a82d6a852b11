//! Reads captures: pcapng blocks, Ethernet or Linux "cooked" frames, IPv4, TCP in order of sequence numbers.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Towards the server or not, and the bytes.
pub type Segments = Vec<(bool, Vec<u8>)>;

/// One TCP connection as a capture has it.
pub struct Stream {
    pub client_port: u16,
    pub server_port: u16,
    /// Which way, and bytes, in the order in which they were seen.
    pub segments: Segments,
}

/// The folder of captures, from `HENGE_DATA`, or beside the repository.
pub fn captures() -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let data = std::env::var_os("HENGE_DATA").map_or(beside, PathBuf::from);
    let folder = data.join("pvfs2/captures");
    folder.is_dir().then_some(folder)
}

/// Names of the captures that have a ground truth.
pub fn names(folder: &PathBuf) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the captures");
    let mut names: Vec<String> = entries
        .filter_map(|e| e.expect("an entry").file_name().into_string().ok())
        .filter_map(|n| n.strip_suffix(".truth.json").map(str::to_owned))
        .collect();
    names.sort();
    names
}

#[derive(Default)]
struct Half {
    next: Option<u32>,
    waiting: BTreeMap<u32, Vec<u8>>,
}

#[derive(Default)]
struct Assembler {
    order: Vec<(u16, u16)>,
    halves: BTreeMap<(u16, u16, bool), Half>,
    segments: BTreeMap<(u16, u16), Segments>,
}

impl Assembler {
    fn tcp(&mut self, segment: &[u8], servers: &[u16]) {
        let word = |i: usize| u16::from_be_bytes([segment[i], segment[i + 1]]);
        let (from, to) = (word(0), word(2));
        let to_server = servers.contains(&to);
        if to_server == servers.contains(&from) {
            return;
        }
        let key = if to_server { (from, to) } else { (to, from) };
        let sequence = u32::from_be_bytes([segment[4], segment[5], segment[6], segment[7]]);
        let data = &segment[usize::from(segment[12] >> 4) * 4..];
        let syn = segment[13] & 2 != 0;
        if syn && to_server && !self.order.contains(&key) {
            self.order.push(key);
        }
        let half = self.halves.entry((key.0, key.1, to_server)).or_default();
        if syn {
            half.next = Some(sequence.wrapping_add(1));
            return;
        }
        let Some(next) = &mut half.next else { return };
        if !data.is_empty() && sequence.wrapping_sub(*next) < 1 << 31 {
            half.waiting.insert(sequence, data.to_vec());
        }
        while let Some(data) = half.waiting.remove(next) {
            *next = next.wrapping_add(data.len() as u32);
            self.segments.entry(key).or_default().push((to_server, data));
        }
    }
}

/// The connections to `servers`, in the order in which they were opened.
pub fn read(bytes: &[u8], servers: &[u16]) -> Vec<Stream> {
    let mut assembler = Assembler::default();
    let mut links = Vec::new();
    let mut at = 0;
    let word = |i: usize| u32::from_le_bytes(bytes[i..i + 4].try_into().expect("four bytes"));
    while at + 12 <= bytes.len() {
        let (kind, len) = (word(at), word(at + 4) as usize);
        match kind {
            1 => links.push(word(at + 8) & 0xffff),
            6 => {
                let captured = word(at + 20) as usize;
                let frame = &bytes[at + 28..at + 28 + captured];
                let skip = match links[word(at + 8) as usize] {
                    1 => 14,
                    113 => 16,
                    276 => 20,
                    other => panic!("link type {other}"),
                };
                let ip = &frame[skip..];
                if ip[0] >> 4 == 4 && ip[9] == 6 {
                    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
                    assembler.tcp(&ip[usize::from(ip[0] & 15) * 4..total], servers);
                }
            }
            _ => {}
        }
        at += len;
    }
    let Assembler { order, mut segments, .. } = assembler;
    order
        .into_iter()
        .map(|key| Stream {
            client_port: key.0,
            server_port: key.1,
            segments: segments.remove(&key).unwrap_or_default(),
        })
        .collect()
}
