//! Whose requests are, where users have rules.

use super::transfers::ask;
use super::*;
use crate::pair::tests::allowed;
use std::net::SocketAddr;

const USER: i32 = 501;
const GETATTR: i32 = 4;

/// One proxy of two, to which everybody comes by one port.
fn of_two(at: usize, ports: [u16; 2]) -> Result<World, ProxyError> {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let text = format!(
        "server = \"{}\"\nsync = {{ predict = {{ every = \"1MiB\" }} }}
        [cluster]\nnode = \"s{at}\"\nsecret = \"correct horse battery\"\nlisten = \"127.0.0.1:{}\"
        [[peer]]\nname = \"s{}\"\naddress = \"127.0.0.1:{}\"
        [[flow]]\nname = \"app\"\n[[rule]]\nuser = {USER}\nflow = \"app\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n",
        server.local_addr().expect("its address"),
        ports[at],
        1 - at,
        ports[1 - at]
    );
    World::before(server, text)
}

/// Two that are linked. Somebody else may have taken a port before its listener does.
fn linked() -> [World; 2] {
    let mut both = loop {
        let listeners = [0, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).expect("a port"));
        let port = |l: &TcpListener| l.local_addr().as_ref().map(SocketAddr::port).expect("its address");
        let ports = listeners.each_ref().map(port);
        drop(listeners);
        if let (Ok(one), Ok(other)) = (of_two(0, ports), of_two(1, ports)) {
            break [one, other];
        }
    };
    // Each tells its flows, `app` and `other`, once it knows who the other is.
    let heard = |world: &World| world.proxy.peers.as_ref().expect("stated").counts().received;
    for _ in 0..100_000 {
        for world in &mut both {
            world.now += Duration::from_micros(100);
            let peers = world.proxy.peers.as_mut().expect("stated");
            peers.look(world.now).expect("it looks");
            peers.tick(world.now);
        }
        if both.iter().all(|world| heard(world) >= 2) {
            return both;
        }
        std::thread::yield_now();
    }
    panic!("they do not find each other");
}

/// A client that was given a capability uses it at once, at another server. Before, its first requests there went to the flow `other`: the peer had not
/// been told, or had not looked.
#[test]
fn peers_know_whose_a_capability_is_before_its_client_has_it() {
    let [mut meta, mut data] = linked();
    let capability =
        Capability { issuer: b"S:s0".to_vec(), fs_id: 9, handles: vec![1, 2], ..Default::default() };
    let (mut client, mut server) = meta.connect();
    let getattr = ask(1, GETATTR, &[&[1, 0, 9, 1 << 15, 0, 0, USER][..], &[0; 10]].concat());
    client.write_all(&getattr).expect("sent");
    meta.turn();
    let mut came = vec![0; getattr.len()];
    server.read_exact(&mut came).expect("it comes");
    let mut w = Writer::new();
    w.i32(7000).i32(2).i32(GETATTR).i32(0).pad(48);
    capability.write(&mut w);
    let payload = w.into_bytes();
    let message =
        |tag, payload: &[u8]| [&Header::expected(tag, payload.len() as u64).to_bytes()[..], payload].concat();
    // What follows it waits no longer than it.
    let (answer, behind) = (message(1, &payload), message(2, &[0; 40]));
    server.write_all(&[&answer[..], &behind].concat()).expect("sent");
    meta.turn();
    let mut came = vec![0; answer.len() + behind.len()];
    client.read_exact(&mut came).expect("it comes");
    assert_eq!(came, [answer, behind].concat());
    let (mut client, mut server) = data.connect();
    let read = allowed(1, 100, &capability);
    client.write_all(&read).expect("sent");
    data.turn();
    let mut came = vec![0; read.len()];
    server.read_exact(&mut came).expect("it comes");
    assert_eq!(came, read);
    let in_flight = |flow| data.proxy.requests.gate.flow_meters(FlowId(flow)).expect("its flow").in_flight;
    assert_eq!((in_flight(0), in_flight(1)), (1, 0));
}
