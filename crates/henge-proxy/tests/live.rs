//! The proxy over real sockets, before the double of a server.

mod double;

use double::*;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LIMITS: &str = "<Defaults>\nClientJobBMITimeoutSecs 300\nServerJobFlowTimeoutSecs 30\n</Defaults>\n";

fn proxy_before(server: &Server, depth: u32, rest: &str) -> Running {
    Running::start(&format!(
        "server = \"{}\"\nscheduler = {{ sfq = {{ depth = {depth} }} }}\n{rest}",
        server.address
    ))
}

#[test]
fn data_goes_through_four_proxies_and_comes_back() {
    let servers: Vec<Server> = (0..4).map(|_| Server::start(1e9, LIMITS)).collect();
    let rest = "[[flow]]\nname = \"app\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"app\"\n";
    let proxies: Vec<Running> = servers.iter().map(|s| proxy_before(s, 2, rest)).collect();
    let addresses: Vec<_> = proxies.iter().map(|p| p.addresses[0]).collect();
    let workers: Vec<_> = (1..=6u64)
        .map(|file| {
            let addresses = addresses.clone();
            std::thread::spawn(move || {
                let mut client = Client::connect(&addresses, file);
                for call in 0..4u64 {
                    let offset = call * 3_000_001;
                    client.write(offset, &pattern(file, offset, 3_000_001)).expect("written");
                }
                for call in 0..4u64 {
                    let offset = call * 3_000_001;
                    client.read_and_compare(offset, &pattern(file, offset, 3_000_001)).expect("read");
                }
                client.write_small(0, &pattern(file, 0, 5000)).expect("written");
                client.read_and_compare(0, &pattern(file, 0, 100_000)).expect("read");
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("data as it was written");
    }
}

/// Moves 256 KiB requests by `threads` clients until told to stop; counts bytes once counting began.
fn load(
    address: std::net::SocketAddr,
    file: u64,
    threads: u64,
    stop: &Arc<AtomicBool>,
    bytes: &Arc<AtomicU64>,
) -> Vec<std::thread::JoinHandle<()>> {
    (0..threads)
        .map(|i| {
            let (stop, bytes) = (stop.clone(), bytes.clone());
            std::thread::spawn(move || {
                let mut client = Client::connect(&[address], file + i);
                let data = pattern(file + i, 0, 65_536);
                while !stop.load(Ordering::Relaxed) {
                    client.write(0, &data).expect("written");
                    bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
                }
            })
        })
        .collect()
}

/// Two applications told apart by port, one server of 40 MB/s, weights 1 : 4.
#[test]
fn shares_of_one_server_follow_the_weights() {
    let server = Server::start(40e6, LIMITS);
    let rest = "
        [[flow]]\nname = \"a\"\ncontract = { weight = 1 }\n[[flow]]\nname = \"b\"\ncontract = { weight = 4 }
        [[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"a\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"b\"\n";
    let proxy = proxy_before(&server, 2, rest);
    let stop = Arc::new(AtomicBool::new(false));
    let counts = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
    let mut threads = load(proxy.addresses[0], 1000, 16, &stop, &counts[0]);
    threads.extend(load(proxy.addresses[1], 2000, 16, &stop, &counts[1]));
    std::thread::sleep(Duration::from_millis(500));
    let before = counts.each_ref().map(|c| c.load(Ordering::Relaxed));
    std::thread::sleep(Duration::from_secs(4));
    let got: Vec<f64> =
        counts.iter().zip(before).map(|(c, b)| (c.load(Ordering::Relaxed) - b) as f64).collect();
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|t| t.join().expect("a client"));
    let ratio = got[1] / got[0];
    println!("4 : 1 promised, {ratio:.3} : 1 received, {:.1} MB/s in all", (got[0] + got[1]) / 4e6);
    assert!((ratio / 4.0 - 1.0).abs() < 0.05, "{ratio}");
}

/// Protocol 6000 names the user in every request.
#[test]
fn users_are_told_apart_by_rules() {
    let server = Server::start(1e9, LIMITS);
    let folder = tempfile::tempdir().expect("a folder");
    let control = folder.path().join("control.sock");
    let rest = format!(
        "control = \"{}\"\n[[flow]]\nname = \"alice\"\n[[rule]]\nuser = 501\nflow = \"alice\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n",
        control.display()
    );
    let proxy = proxy_before(&server, 2, &rest);
    for (uid, calls) in [(501, 3u64), (502, 2)] {
        let mut client = Client::connect(&proxy.addresses, u64::from(uid)).with_user(uid);
        for call in 0..calls {
            client.write(call * 1000, &pattern(1, 0, 1000)).expect("written");
        }
    }
    let status = henge_proxy::Status::ask(&control).expect("a status");
    let requests = |name: &str| {
        let flows = status["flows"].as_array().expect("flows");
        flows.iter().find(|f| f["name"] == name).expect("a flow")["requests"].as_u64()
    };
    assert_eq!((requests("alice"), requests("other")), (Some(3), Some(2)), "{status}");
}

/// What is no PVFS2 passes unharmed, and is counted.
#[test]
fn another_protocol_passes_unharmed() {
    let echo = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = echo.local_addr().expect("its address");
    std::thread::spawn(move || {
        for mut stream in echo.incoming().flatten() {
            std::thread::spawn(move || {
                let mut writer = stream.try_clone().expect("a socket");
                let _ = std::io::copy(&mut stream, &mut writer);
                let _ = writer.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    let proxy = Running::start(&format!("server = \"{address}\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n"));
    let mut stream = std::net::TcpStream::connect(proxy.addresses[0]).expect("the proxy");
    let sent = pattern(3, 0, 3_000_000);
    let mut writer = stream.try_clone().expect("a socket");
    let copy = sent.clone();
    let thread = std::thread::spawn(move || {
        writer.write_all(&copy).expect("taken");
        writer.shutdown(std::net::Shutdown::Write).expect("a socket");
    });
    let mut got = Vec::new();
    stream.read_to_end(&mut got).expect("all of it, and the end");
    thread.join().expect("sent");
    assert!(got == sent);
}

/// A request is dropped, not released late, when its client has given up.
#[test]
fn a_request_older_than_its_clients_patience_is_never_released() {
    let server = Server::start(100e3, LIMITS); // 64 KiB take 0.65 s
    let rest = "client_timeout = \"2200ms\"\n[[flow]]\nname = \"a\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"a\"\n";
    let proxy = proxy_before(&server, 1, rest);
    let address = proxy.addresses[0];
    let first = std::thread::spawn(move || Client::connect(&[address], 1).write(0, &pattern(1, 0, 65_536)));
    std::thread::sleep(Duration::from_millis(100));
    let mut second = Client::connect(&[address], 2);
    let waiter = std::thread::spawn(move || second.write(0, &pattern(2, 0, 65_536)));
    first.join().expect("a client").expect("the first is served");
    std::thread::sleep(Duration::from_millis(600));
    let seen = server.store.lock().expect("a store").seen.clone();
    assert_eq!(seen.len(), 1, "the second waited longer than 200 ms (2.2 s less the margin): {seen:?}");
    drop(proxy);
    assert!(waiter.join().expect("a client").is_err(), "its connection ends with the proxy");
}

/// A client that leaves takes its waiting requests along; others go on.
#[test]
fn a_client_that_leaves_is_forgotten() {
    let server = Server::start(300e3, LIMITS); // 64 KiB take 0.22 s
    let rest = "[[flow]]\nname = \"a\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"a\"\n";
    let proxy = proxy_before(&server, 1, rest);
    let address = proxy.addresses[0];
    let first = std::thread::spawn(move || Client::connect(&[address], 1).write(0, &pattern(1, 0, 65_536)));
    std::thread::sleep(Duration::from_millis(50));
    for file in 10..20 {
        // They send a request and vanish.
        let _ = Client::connect(&[address], file).write_and_vanish(&pattern(file, 0, 65_536));
    }
    let began = Instant::now();
    Client::connect(&[address], 3).write(0, &pattern(3, 0, 65_536)).expect("served");
    first.join().expect("a client").expect("served");
    assert!(began.elapsed() < Duration::from_secs(2), "waited for those who left: {:?}", began.elapsed());
    let seen = server.store.lock().expect("a store").seen.iter().map(|s| s.0).collect::<Vec<_>>();
    assert_eq!(seen, [100, 300], "only those who stayed");
}
