//! Real captures, replayed client side and server side through a proxy that holds and reorders.
//!
//! Each side sends the very messages of the capture. A client sends a request when the requests that were over before it
//! in the capture are over, and data when its request was answered; a server answers when it has what it had seen of
//! that tag. At the end both sides must have received, tag by tag, exactly the bytes that were captured.

#[path = "../../../henge-pvfs2/tests/it/pcap/mod.rs"]
mod pcap;

use crate::double::{Progress, Running, read_message};
use henge_pvfs2::{HEADER_LEN, Header, Mode};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// One message of a capture.
#[derive(Clone)]
struct Message {
    to_server: bool,
    header: Header,
    payload: Vec<u8>,
}

/// How many messages of each tag came, each way.
#[derive(Default)]
struct Arrived {
    at_client: BTreeMap<i64, usize>,
    at_server: BTreeMap<i64, usize>,
}

fn messages(stream: &pcap::Stream) -> Vec<Message> {
    let (mut unread, mut all) = ([Vec::new(), Vec::new()], Vec::new());
    for (to_server, data) in &stream.segments {
        let buffer = &mut unread[usize::from(*to_server)];
        buffer.extend_from_slice(data);
        while let Some(header) = buffer.first_chunk::<HEADER_LEN>() {
            let header = Header::parse(header).expect("a header");
            let end = HEADER_LEN + header.size as usize;
            if buffer.len() < end {
                break;
            }
            let payload = buffer[HEADER_LEN..end].to_vec();
            buffer.drain(..end);
            all.push(Message { to_server: *to_server, header, payload });
        }
    }
    all
}

fn send(stream: &mut TcpStream, message: &Message) {
    // In two pieces, so that messages are cut on the way.
    stream.write_all(&message.header.to_bytes()).expect("sent");
    stream.write_all(&message.payload).expect("sent");
}

/// Plays one side of one tag's conversation, message by message.
fn play(
    side_is_client: bool,
    tag: i64,
    script: &[Message],
    stream: &std::sync::Mutex<TcpStream>,
    arrived: &Progress<Arrived>,
) {
    let mut before = 0;
    for (i, message) in script.iter().enumerate().filter(|(_, m)| m.header.tag == tag) {
        if message.to_server != side_is_client {
            before += 1;
            continue;
        }
        let over: Vec<(i64, usize)> = match message.header.mode {
            Mode::Unexpected if side_is_client => over_before(script, i),
            _ => Vec::new(),
        };
        arrived.wait("what came before in the capture", |a| {
            let at = if side_is_client { &a.at_client } else { &a.at_server };
            let has = |tag: i64, n: usize| at.get(&tag).copied().unwrap_or(0) >= n;
            has(tag, before) && over.iter().all(|(tag, n)| has(*tag, *n))
        });
        send(&mut stream.lock().expect("no panic while held"), message);
    }
}

/// Tags whose last message had come before message `i`, with their number of messages to the client.
fn over_before(script: &[Message], i: usize) -> Vec<(i64, usize)> {
    let mut last = BTreeMap::new();
    for (at, message) in script.iter().enumerate() {
        let entry = last.entry(message.header.tag).or_insert((0, 0));
        entry.0 = at;
        entry.1 += usize::from(!message.to_server);
    }
    last.into_iter().filter(|(_, (at, _))| *at < i).map(|(tag, (_, n))| (tag, n)).collect()
}

/// Reads what comes, and checks each message against the next of its tag.
fn receive(mut stream: TcpStream, at_client: bool, script: &[Message], arrived: &Progress<Arrived>) {
    let mut expected: BTreeMap<i64, Vec<&Message>> = BTreeMap::new();
    for message in script.iter().filter(|m| m.to_server != at_client) {
        expected.entry(message.header.tag).or_default().push(message);
    }
    let count = script.iter().filter(|m| m.to_server != at_client).count();
    for _ in 0..count {
        let (header, payload) = read_message(&mut stream).expect("a message of the capture");
        let messages = expected.get_mut(&header.tag).expect("a tag of the capture");
        assert!(!messages.is_empty(), "more messages of tag {} than captured", header.tag);
        let message = messages.remove(0);
        assert!(message.header == header && message.payload == payload, "tag {} arrived changed", header.tag);
        arrived.change(|a| {
            let at = if at_client { &mut a.at_client } else { &mut a.at_server };
            *at.entry(header.tag).or_insert(0) += 1;
        });
    }
}

/// Both sides of one captured connection, through the proxy.
fn replay(
    script: Vec<Message>,
    proxy: std::net::SocketAddr,
    listener: &TcpListener,
) -> Vec<std::thread::JoinHandle<()>> {
    let client = TcpStream::connect(proxy).expect("the proxy");
    let (server, _) = listener.accept().expect("the proxy's other side");
    let (script, arrived) = (Arc::new(script), Arc::new(Progress::default()));
    let mut tags: Vec<i64> = script.iter().map(|m| m.header.tag).collect();
    tags.sort_unstable();
    tags.dedup();
    let mut threads = Vec::new();
    for (stream, is_client) in [(client, true), (server, false)] {
        let (reader, script_, arrived_) =
            (stream.try_clone().expect("a socket"), script.clone(), arrived.clone());
        reader.set_read_timeout(Some(std::time::Duration::from_secs(30))).expect("a socket");
        threads.push(std::thread::spawn(move || receive(reader, is_client, &script_, &arrived_)));
        let stream = Arc::new(std::sync::Mutex::new(stream));
        for tag in tags.clone() {
            let (stream, script, arrived) = (stream.clone(), script.clone(), arrived.clone());
            threads.push(std::thread::spawn(move || play(is_client, tag, &script, &stream, &arrived)));
        }
    }
    threads
}

/// All connections of a capture, server by server, through a proxy before each: how many there were.
fn replay_all(name: &str, capture: &[u8]) -> usize {
    let mut connections = 0;
    for port in 33410..33415 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        // One at a time, by position in the file: what came together leaves in another order.
        let config = format!(
            "server = \"{}\"\nscheduler = {{ cscan = {{ depth = 1 }} }}\n[[listen]]\naddress = \"127.0.0.1:0\"\n",
            listener.local_addr().expect("its address")
        );
        let proxy = Running::start(&config);
        let threads: Vec<_> = pcap::read(capture, &[port])
            .iter()
            .map(messages)
            .filter(|script| !script.is_empty())
            .flat_map(|script| {
                connections += 1;
                replay(script, proxy.addresses[0], &listener)
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap_or_else(|_| panic!("{name}, port {port}")));
    }
    connections
}

#[test]
fn every_capture_passes_a_proxy_that_holds_and_reorders() {
    let Some(folder) = pcap::captures() else {
        println!("skipped: every_capture_passes_a_proxy needs HENGE_DATA");
        return;
    };
    let captures = pcap::names(&folder).into_iter().map(|name| {
        let capture = std::fs::read(folder.join(format!("{name}.pcapng"))).expect("a capture");
        std::thread::spawn(move || replay_all(&name, &capture))
    });
    let captures: Vec<_> = captures.collect();
    let connections: usize = captures.into_iter().map(|t| t.join().expect("it passes unchanged")).sum();
    println!("{connections} captured connections passed unchanged");
    assert!(connections > 60);
}
