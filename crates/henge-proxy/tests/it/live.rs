//! The proxy over real sockets, before the double of a server.

use crate::double::*;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

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
#[ignore = "measures in real time: make test-live"]
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
    let folder = tempfile::tempdir().expect("a folder");
    let control = folder.path().join("control.sock");
    let proxy = Running::start(&format!(
        "server = \"{address}\"\ncontrol = \"{}\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n",
        control.display()
    ));
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
    let status = henge_proxy::Status::ask(&control).expect("a status");
    assert_eq!(status["opaque"], 1, "{status}");
}

/// Two proxies that tell each other: `striped` on both servers, `single` on one of them; what each received in all.
fn totals_over_two_servers(sync: &str, seconds: u64) -> [f64; 2] {
    let servers = [Server::start(30e6, LIMITS), Server::start(30e6, LIMITS)];
    let ports: [u16; 2] = free_ports();
    let start = |i: usize| {
        let rest = format!(
            "sync = {sync}
            [cluster]\nnode = \"s{i}\"\nsecret = \"correct horse battery\"\nlisten = \"127.0.0.1:{}\"
            [[peer]]\nname = \"s{}\"\naddress = \"127.0.0.1:{}\"
            [[flow]]\nname = \"single\"\ncontract = {{ weight = 1 }}\n[[flow]]\nname = \"striped\"\ncontract = {{ weight = 1 }}
            [[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"single\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"striped\"\n",
            ports[i],
            1 - i,
            ports[1 - i]
        );
        proxy_before(&servers[i], 2, &rest)
    };
    let proxies = [start(0), start(1)];
    let stop = Arc::new(AtomicBool::new(false));
    let counts = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
    let mut threads = load(proxies[0].addresses[0], 1000, 24, &stop, &counts[0]);
    threads.extend((0..24).map(|i| {
        let (stop, bytes) = (stop.clone(), counts[1].clone());
        let addresses = [proxies[0].addresses[1], proxies[1].addresses[1]];
        std::thread::spawn(move || {
            let mut client = Client::connect(&addresses, 2000 + i);
            let data = pattern(2000 + i, 0, 131_072);
            while !stop.load(Ordering::Relaxed) {
                client.write(0, &data).expect("written");
                bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
            }
        })
    }));
    std::thread::sleep(Duration::from_millis(1500));
    let before = counts.each_ref().map(|c| c.load(Ordering::Relaxed));
    std::thread::sleep(Duration::from_secs(seconds));
    let got = [0, 1].map(|i| (counts[i].load(Ordering::Relaxed) - before[i]) as f64 / seconds as f64 / 1e6);
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|t| t.join().expect("a client"));
    got
}

/// 30 MB/s each; with one share of the total both get 20 (10 of it on each server for the striped one). Each
/// server alone would share in halves: 15 against 30.
#[test]
#[ignore = "measures in real time: make test-live"]
fn the_total_over_several_servers_is_shared() {
    for sync in
        ["{ predict = { every = \"256KiB\" } }", "\"layout\"", "{ threshold = { every = \"256KiB\" } }"]
    {
        let [single, striped] = totals_over_two_servers(sync, 4);
        println!("{sync}: 1 : 1 promised, {single:.1} and {striped:.1} MB/s received");
        assert!((striped / single - 1.0).abs() < 0.1, "{sync}: {single} against {striped}");
    }
}
