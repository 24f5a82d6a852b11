//! A thousand hosts that begin and do not go on: nobody else notices, and they are let go.

use super::{Entry, HOST, Host, NQN, Queue, address, start};
use crate::connect;
use henge_nvme::wire::{Common, pdu};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How far a host goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begun {
    /// It connects its socket.
    Nothing,
    /// It sends half of an ICReq.
    HalfHello,
    /// An ICReq.
    Hello,
    /// An ICReq, and a Connect whose data do not come.
    HalfConnect,
    /// It has a controller with a keep alive timeout of a second, and sends half of a capsule.
    HalfCapsule,
}

/// An ICReq.
fn hello() -> [u8; 128] {
    let mut bytes = [0; 128];
    (bytes[2], bytes[4]) = (128, 128);
    bytes
}

/// A Connect's capsule, whose host is to be heard of every second.
fn capsule() -> Vec<u8> {
    let mut data = vec![0; 1024];
    data[..16].fill(7);
    data[16..18].fill(0xff);
    data[256..256 + NQN.len()].copy_from_slice(NQN.as_bytes());
    data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
    let entry = Entry::new(0x7f).put(4, &[1]).put(44, &[31]).put(39, &[1]).dword(8, 1024).dword(12, 1000);
    let mut bytes = vec![0; 8];
    let len = (72 + data.len()) as u32;
    Common { kind: pdu::COMMAND, flags: 0, header: 72, data_at: 72, len }.write(&mut bytes);
    bytes.extend(entry.0);
    bytes.extend(data);
    bytes
}

fn begin(at: SocketAddr, how: Begun) -> TcpStream {
    let mut stream = connect(at);
    let hello = hello();
    match how {
        Begun::Nothing => {}
        Begun::HalfHello => stream.write_all(&hello[..64]).unwrap(),
        Begun::Hello => stream.write_all(&hello).unwrap(),
        Begun::HalfConnect => {
            stream.write_all(&hello).unwrap();
            stream.write_all(&capsule()[..500]).unwrap();
        }
        Begun::HalfCapsule => {
            stream.write_all(&hello).unwrap();
            stream.write_all(&capsule()).unwrap();
            stream.read_exact(&mut [0; 128 + 24]).unwrap();
            stream.write_all(&capsule()[..40]).unwrap();
        }
    }
    stream
}

/// Whether the node has closed it: what it said before is read away.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) => return e.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// How long 500 reads of 4 KiB take.
fn pace(host: &mut Host) -> Duration {
    let begin = Instant::now();
    (0..500).for_each(|n| drop(host.read(n * 8, 4096)));
    begin.elapsed()
}

#[test]
#[ignore = "in real time: make test-nvme"]
fn a_thousand_half_open_connections_are_let_go_and_nobody_notices() {
    let (node, _state) = start("");
    let mut good = Host::connect(&node);
    let alone = pace(&mut good).max(pace(&mut good));
    let kinds = [Begun::Nothing, Begun::HalfHello, Begun::Hello, Begun::HalfConnect, Begun::HalfCapsule];
    let begun = Instant::now();
    let mut crowd: Vec<(Begun, TcpStream)> =
        (0..1000).map(|n| kinds[n % kinds.len()]).map(|how| (how, begin(address(&node), how))).collect();
    let beside = pace(&mut good);
    println!("500 reads: {alone:?} alone, {beside:?} beside 1000 half-open connections");
    assert!(beside < alone * 3 + Duration::from_millis(100), "{beside:?}, and {alone:?} alone");
    let status = node.control().status().unwrap();
    assert!(status.buffers_out <= 1, "half a capsule holds no memory: {}", status.buffers_out);
    // Another host comes in while they are there.
    let mut late = Host::connect_as(2, &node);
    assert_eq!(late.read(0, 512), [0; 512]);
    for (_, stream) in &crowd {
        stream.set_nonblocking(true).unwrap();
    }
    // Ten seconds for a Connect, a second and two of grace for a sign of life, and a second between two looks.
    let mut last = Duration::ZERO;
    while !crowd.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(25), "{} stay, like {:?}", crowd.len(), crowd[0].0);
        let before = crowd.len();
        crowd.retain_mut(|(_, stream)| !is_closed(stream));
        if crowd.len() < before {
            last = begun.elapsed();
        }
        assert_eq!(good.read(8, 4096).len(), 4096);
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("all are let go {last:?} after the first came");
    let status = node.control().status().unwrap();
    assert_eq!(status.disk("web").unwrap().connections, 4, "those that went on");
    assert_eq!(late.read(0, 512), [0; 512]);
    drop((good, late));
    let (_, status, _) = Queue::open(address(&node), 0, 0xffff, NQN);
    assert_eq!(status, 0, "there is a controller's number for whoever comes");
    node.stop().unwrap();
}
