//! What tests of nodes have in common: a raw NBD client, and waiting for something to be so.

#![allow(dead_code)] // not every suite needs all of it

use henge_api::{Request, Table};
use henge_config::Source;
use henge_node::Node;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub fn address(node: &Node) -> SocketAddr {
    node.addresses()[0].tcp("nbd").expect("NBD over TCP was asked for")
}

/// The request that adds a disk, from its table as the configuration writes it.
pub fn add(table: &str) -> Request {
    let read = Source::new("a disk", table).parse("the disk").unwrap_or_else(|e| panic!("{e}"));
    Request::Add { disk: Table::from(&read) }
}

/// A client without structured replies, written from the protocol's text.
pub struct Client {
    pub stream: TcpStream,
    cookie: u64,
}

impl Client {
    pub fn connect(node: &Node, export: &str) -> Client {
        let mut stream = TcpStream::connect(address(node)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT");
        hello.extend(1u32.to_be_bytes()); // EXPORT_NAME
        hello.extend((export.len() as u32).to_be_bytes());
        hello.extend(export.as_bytes());
        stream.write_all(&hello).unwrap();
        stream.read_exact(&mut [0; 10]).unwrap();
        Client { stream, cookie: 0 }
    }
    pub fn send(&mut self, flags: u16, kind: u16, offset: u64, len: u32, data: &[u8]) {
        self.cookie += 1;
        let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
        request.extend(flags.to_be_bytes());
        request.extend(kind.to_be_bytes());
        request.extend(self.cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(data);
        self.stream.write_all(&request).unwrap();
    }
    pub fn reply(&mut self) -> u32 {
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..4], 0x6744_6698u32.to_be_bytes());
        u32::from_be_bytes(reply[4..8].try_into().unwrap())
    }
    pub fn write(&mut self, offset: u64, data: &[u8]) -> u32 {
        self.send(0, 1, offset, data.len() as u32, data);
        self.reply()
    }
    pub fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, u32> {
        self.send(0, 0, offset, len, &[]);
        match self.reply() {
            0 => {
                let mut data = vec![0; len as usize];
                self.stream.read_exact(&mut data).unwrap();
                Ok(data)
            }
            error => Err(error),
        }
    }
    /// Whether the server has closed this connection.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} never happened");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Lines for the node and for its pool that make it a node of two loops, of which one has no pool: with HENGE_TEST_CORES=2 every test of a
/// whole node is one of connections that move, too.
pub fn cores() -> (&'static str, &'static str) {
    match std::env::var("HENGE_TEST_CORES").as_deref() {
        Ok("2") => ("cores = 2\n", "shard = 1\n"),
        _ => ("", ""),
    }
}
