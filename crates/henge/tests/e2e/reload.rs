//! SIGHUP: the node's program begins anew in its process, and a client's connection goes on.

use crate::support::{Node, run};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const CONFIG: &str = r#"
[[pool]]
name = "p"
path = "DIR/p"
capacity = "64MiB"
[[disk]]
name = "web"
pool = "p"
capacity = "16MiB"
"#;
const READ: u16 = 0;
const WRITE: u16 = 1;

/// A client byte by byte, as doc/proto.md of NBD has it: EXPORT_NAME, simple replies.
fn connect(node: &Node, export: &str) -> UnixStream {
    let mut socket = UnixStream::connect(node.path("nbd.sock")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.read_exact(&mut [0; 18]).unwrap();
    let mut hello = 3u32.to_be_bytes().to_vec();
    hello.extend(b"IHAVEOPT\0\0\0\x01");
    hello.extend((export.len() as u32).to_be_bytes());
    hello.extend(export.as_bytes());
    socket.write_all(&hello).unwrap();
    socket.read_exact(&mut [0; 10]).unwrap();
    socket
}

fn request(kind: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

fn reply(socket: &mut UnixStream, cookie: u64, payload: usize) -> Vec<u8> {
    let mut head = [0; 16];
    socket.read_exact(&mut head).unwrap();
    assert_eq!(head[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "no error");
    assert_eq!(head[8..], cookie.to_be_bytes());
    let mut bytes = vec![0; payload];
    socket.read_exact(&mut bytes).unwrap();
    bytes
}

/// Sends SIGHUP, and waits until another program runs in the process, whose environment says what it was left, and can be asked.
fn begin_anew(node: &Node) {
    run("kill", ["-HUP", &node.pid().to_string()]);
    let begun = Instant::now();
    loop {
        let all = std::fs::read(format!("/proc/{}/environ", node.pid())).unwrap();
        let left = all.split(|b| *b == 0).any(|variable| variable.starts_with(b"HENGE_HANDOVER="));
        // The program before has taken its control socket along.
        if left && node.path("control.sock").exists() {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not begin anew");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_connection_outlives_the_program() {
    let node = Node::start(CONFIG);
    let mut socket = connect(&node, "web");
    let data: Vec<u8> = (0..4096u32).map(|i| (i * 7 % 251) as u8).collect();
    socket.write_all(&[request(WRITE, 1, 8192, 4096), data.clone()].concat()).unwrap();
    reply(&mut socket, 1, 0);
    // Half a command is there when the program begins anew; the other half comes to the next one.
    let read = request(READ, 2, 8192, 4096);
    socket.write_all(&read[..11]).unwrap();
    begin_anew(&node);
    socket.write_all(&read[11..]).unwrap();
    assert_eq!(reply(&mut socket, 2, 4096), data);
    // Those that come now are served, and the contract of a disk can be changed.
    let mut other = connect(&node, "web");
    other.write_all(&request(READ, 3, 8192, 4096)).unwrap();
    assert_eq!(reply(&mut other, 3, 4096), data);
    assert!(node.vd(&["set", "web", "weight=2"]).status.success());
    assert_eq!(node.status()["disks"][0]["connections"], 2);
    node.stop();
}

#[test]
fn a_client_of_a_disk_whose_last_flush_failed_is_not_taken_along() {
    let pool = r#"
[[pool]]
name = "bad"
path = "DIR/bad"
capacity = "64MiB"
faults = { errors = "100%" }
[[disk]]
name = "lost"
pool = "bad"
capacity = "16MiB"
"#;
    let mut node = Node::start(&(CONFIG.to_owned() + pool));
    let (mut well, mut lost) = (connect(&node, "web"), connect(&node, "lost"));
    begin_anew(&node);
    // Its FLUSHes would be answered from now on, as if nothing had been lost.
    assert_eq!(lost.read(&mut [0; 16]).unwrap(), 0, "the connection has ended");
    well.write_all(&request(READ, 1, 0, 512)).unwrap();
    assert_eq!(reply(&mut well, 1, 512), [0; 512]);
    assert!(!node.ends_well(), "it says that what was not flushed may be lost");
}
