//! What clients see when a proxy, its peer, its server, or an application goes away.

use crate::double::*;
use henge_proxy::Status;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LIMITS: &str = "ClientJobBMITimeoutSecs 300\nServerJobFlowTimeoutSecs 30\n";

/// A proxy in a cluster of as many as there are ports, with one application; its control socket.
fn member(i: usize, server: SocketAddr, ports: &[u16], sync: &str, folder: &Path) -> (Running, PathBuf) {
    let control = folder.join(format!("{i}.sock"));
    let mut text = format!(
        "server = \"{server}\"\ncontrol = \"{}\"\nscheduler = {{ sfq = {{ depth = 2 }} }}\nsync = {sync}
        [cluster]\nnode = \"s{i}\"\nsecret = \"correct horse battery\"\nlisten = \"127.0.0.1:{}\"
        [[flow]]\nname = \"app\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"app\"\n",
        control.display(),
        ports[i]
    );
    for (j, port) in ports.iter().enumerate().filter(|(j, _)| *j != i) {
        text += &format!("[[peer]]\nname = \"s{j}\"\naddress = \"127.0.0.1:{port}\"\n");
    }
    (Running::start(&text), control)
}

/// Waits until a number of a proxy's status is as it should be.
fn wait_for(control: &Path, key: &str, done: impl Fn(u64) -> bool) -> u64 {
    let begun = Instant::now();
    loop {
        let status = Status::ask(control).expect("a status");
        let value = status[key].as_u64().expect("a number");
        if done(value) {
            return value;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{key} stays {value}: {status}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn synchronization_goes_on_among_the_rest_and_with_whoever_returns() {
    let folder = tempfile::tempdir().expect("a folder");
    let servers: Vec<Server> = (0..3).map(|_| Server::start(1e9, LIMITS)).collect();
    let ports: [u16; 3] = free_ports();
    let sync = "{ threshold = { every = \"128KiB\" } }";
    let start = |i: usize| member(i, servers[i].address, &ports, sync, folder.path());
    let ((first, control), (second, other), third) = (start(0), start(1), start(2));
    for (_, control) in [&(&first, &control), &(&second, &other)] {
        wait_for(control, "linked", |n| n == 2);
    }
    drop(third);
    for control in [&control, &other] {
        wait_for(control, "linked", |n| n == 1);
    }
    let before = wait_for(&other, "messages_received", |_| true);
    let mut client = Client::connect(&[first.addresses[0], second.addresses[0]], 1);
    for call in 0..8 {
        client.write(call << 20, &pattern(1, call << 20, 1 << 20)).expect("written");
    }
    client.read_and_compare(0, &pattern(1, 0, 1 << 20)).expect("read");
    wait_for(&other, "messages_received", |n| n >= before + 8);
    let (_third, control_of_third) = start(2);
    wait_for(&control, "linked", |n| n == 2);
    client.write(0, &pattern(1, 0, 1 << 20)).expect("written");
    wait_for(&control_of_third, "messages_received", |n| n > 0);
}

/// A flow that leaves is announced as departed, and as arrived when it is back, while its connections stay.
#[test]
fn arrival_and_departure_of_an_application_are_announced() {
    let folder = tempfile::tempdir().expect("a folder");
    let servers: Vec<Server> = (0..2).map(|_| Server::start(1e9, LIMITS)).collect();
    let ports: [u16; 2] = free_ports();
    let start = |i: usize| member(i, servers[i].address, &ports, "\"layout\"", folder.path());
    let ((first, control), (second, other)) = (start(0), start(1));
    wait_for(&control, "linked", |n| n == 1);
    wait_for(&other, "linked", |n| n == 1);
    let sent = || {
        let of = |c: &Path| Status::ask(c).expect("a status")["messages_sent"].as_u64().expect("a number");
        of(&control) + of(&other)
    };
    // Where both proxies see the first requests before they know the layout, both tell of them. So what is sent is counted from one time
    // at which nobody has anything to tell to the next: longer than a departure takes to be told.
    let quiet = || {
        let (mut last, mut since) = (sent(), Instant::now());
        while since.elapsed() < Duration::from_millis(1500) {
            std::thread::sleep(Duration::from_millis(20));
            let now = sent();
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        last
    };
    let mut client = Client::connect(&[first.addresses[0], second.addresses[0]], 1);
    for what in ["arrival and departure", "return and departure"] {
        let before = quiet();
        client.write(0, &pattern(1, 0, 1 << 20)).expect("written");
        let begun = Instant::now();
        while sent() < before + 2 {
            assert!(begun.elapsed() < Duration::from_secs(20), "its {what} are not announced");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A server that closes a connection in the midst of a request, and one that is not there: as without a proxy, at once.
#[test]
fn clients_see_what_they_would_see_without_a_proxy() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().expect("its address");
    let text = "[[flow]]\nname = \"app\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"app\"\n";
    let proxy = Running::start(&format!("server = \"{server}\"\n{text}"));
    let closes = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the proxy");
        read_message(&mut stream).expect("a request");
    });
    let address = proxy.addresses[0];
    assert!(Client::connect(&[address], 1).write(0, &pattern(1, 0, 65_536)).is_err());
    closes.join().expect("it closed");
    // Now nobody listens.
    let mut stream = TcpStream::connect(address).expect("the proxy");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    let end = stream.read(&mut [0]).map_err(|e| e.kind());
    assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "closed, or reset: {end:?}");
}

/// Ended while many write, who go on until it is started again: who retries what was not acknowledged finds it all. How often a client had
/// to, and how many requests the server saw cut off.
fn restarted_while_many_write(again: fn(Running, &str) -> Running) -> (u64, u64) {
    const CALLS: u64 = 12;
    let server = Server::start(50e6, LIMITS);
    let [port] = free_ports();
    let text = format!(
        "server = \"{}\"\nscheduler = {{ sfq = {{ depth = 2 }} }}\n[[flow]]\nname = \"app\"\n[[listen]]\naddress = \"127.0.0.1:{port}\"\nflow = \"app\"\n",
        server.address
    );
    let proxy = Running::start(&text);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let over = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (1..=6u64)
        .map(|file| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                let again = || {
                    loop {
                        match Client::try_connect(&[address], file) {
                            Ok(client) => return client,
                            Err(_) => std::thread::sleep(Duration::from_millis(10)),
                        }
                    }
                };
                let (mut client, mut retried, mut call) = (again(), 0, 0);
                while call < CALLS || !over.load(Ordering::Relaxed) {
                    let offset = call % CALLS * 300_001;
                    call += 1;
                    while client.write(offset, &pattern(file, offset, 300_001)).is_err() {
                        retried += 1;
                        client = again();
                    }
                }
                for call in 0..CALLS {
                    let offset = call * 300_001;
                    client
                        .read_and_compare(offset, &pattern(file, offset, 300_001))
                        .expect("as it was written");
                }
                retried
            })
        })
        .collect();
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.store.lock().expect("a store").moved_of(0..100) < 3_000_000 {
        assert!(Instant::now() < deadline, "nothing moves");
        std::thread::sleep(Duration::from_millis(5));
    }
    let proxy = again(proxy, &text);
    over.store(true, Ordering::Relaxed);
    let retried: u64 = workers.into_iter().map(|w| w.join().expect("data as it was written")).sum();
    drop(proxy);
    let cut = server.store.lock().expect("a store").cut;
    (retried, cut)
}

#[test]
fn after_a_proxy_is_restarted_no_data_is_wrong() {
    let (retried, cut) = restarted_while_many_write(|proxy, text| {
        drop(proxy);
        Running::start(text)
    });
    println!("stopped at once: {cut} requests were cut off");
    assert!(retried > 0, "the restart was in the midst of it");
}

/// Clients that take half a write for a whole one would lose data otherwise. They see their connections end between
/// requests; those of the double then ask once more.
#[test]
fn a_proxy_that_leaves_cuts_no_request_off() {
    let (retried, cut) = restarted_while_many_write(|proxy, text| {
        proxy.leave();
        Running::start(text)
    });
    assert!((1..=6).contains(&retried), "once for each client at most: {retried}");
    assert_eq!(cut, 0, "what was at the server went on to its end");
}

/// Clients of OrangeFS do not bear even that: the sockets are kept.
#[test]
fn nobody_notices_a_proxy_that_hands_over() {
    let (retried, cut) = restarted_while_many_write(|mut proxy, text| {
        for _ in 0..5 {
            proxy = proxy.hand_over(text);
            std::thread::sleep(Duration::from_millis(50));
        }
        proxy
    });
    assert_eq!((retried, cut), (0, 0));
}

/// Its successor listens where it listened, while an answer is still awaited there.
#[test]
fn a_successor_starts_while_a_proxy_leaves() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(1e9, LIMITS);
    let held = server.hold();
    let [port, link, away] = free_ports();
    let control = folder.path().join("proxy.sock");
    let text = format!(
        "server = \"{}\"\ncontrol = \"{}\"\n[cluster]\nnode = \"a\"\nsecret = \"correct horse battery\"\nlisten = \"127.0.0.1:{link}\"
        [[peer]]\nname = \"b\"\naddress = \"127.0.0.1:{away}\"\n[[listen]]\naddress = \"127.0.0.1:{port}\"\n",
        server.address,
        control.display()
    );
    let first = Running::start(&text);
    let address = first.addresses[0];
    let writer = std::thread::spawn(move || Client::connect(&[address], 1).write(0, &pattern(1, 0, 65_536)));
    while server.store.lock().expect("a store").seen.is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let leaving = std::thread::spawn(|| first.leave());
    let begun = Instant::now();
    while TcpStream::connect(address).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it listens still");
        std::thread::sleep(Duration::from_millis(5));
    }
    let _second = Running::start(&text);
    assert!(!writer.is_finished(), "the first is still at work");
    let mut other = Client::connect(&[address], 2);
    assert_eq!(wait_for(&control, "accepted", |n| n > 0), 1);
    drop(held);
    other.write(0, &pattern(2, 0, 1000)).expect("served by the second");
    writer.join().expect("a client").expect("served by the first");
    leaving.join().expect("it left");
}
