//! What becomes of requests whose clients give up, or leave.

use super::slots::comes;
use super::*;

/// A read of nothing is over.
fn answers(mut server: &TcpStream, tag: i64) {
    server.write_all(&encode_io_response(tag, Version::V7000, Err(-2))).expect("sent");
}

#[test]
fn a_request_older_than_its_clients_patience_is_never_released() {
    let mut world = World::with(8);
    let ((mut first, at_server), (mut second, server)) = (world.connect(), world.connect());
    let read = io(1, Direction::Read, 100);
    for client in [&mut first, &mut second] {
        client.write_all(&read).expect("sent");
        world.turn();
    }
    assert!(comes(&at_server, &read) && is_dry(&server));
    let patience = world.proxy.patience.waiting();
    world.after(patience);
    assert_eq!((world.proxy.counts.expired, world.proxy.requests.gate.queued()), (1, 0));
    answers(&at_server, 1);
    world.turn();
    assert!(is_dry(&server), "its client takes nothing of it any more");
    let again = io(2, Direction::Read, 300);
    second.write_all(&again).expect("sent");
    world.turn();
    assert!(comes(&server, &again));
}

#[test]
fn a_request_that_is_never_answered_frees_its_place() {
    let mut world = World::with(1);
    let ((mut first, at_server), (mut second, server)) = (world.connect(), world.connect());
    let read = io(1, Direction::Read, 100);
    first.write_all(&read).expect("sent");
    world.turn();
    assert!(comes(&at_server, &read));
    world.after(LONG);
    assert_eq!((world.proxy.counts.unanswered, world.proxy.requests.gate.in_flight()), (1, 0));
    second.write_all(&read).expect("sent");
    world.turn();
    assert!(comes(&server, &read));
}

#[test]
fn a_client_that_leaves_takes_its_waiting_requests_along() {
    let mut world = World::with(16);
    let (mut first, at_server) = world.connect();
    let read = io(1, Direction::Read, 100);
    first.write_all(&read).expect("sent");
    world.turn();
    assert!(comes(&at_server, &read));
    let mut others: Vec<_> = (0..5).map(|_| world.connect()).collect();
    for (client, _) in &mut others {
        client.write_all(&read).expect("sent");
        world.turn();
    }
    let (stays, served) = others.pop().expect("five");
    assert_eq!(world.proxy.requests.gate.queued(), 5);
    let servers: Vec<TcpStream> = others.into_iter().map(|(_, server)| server).collect();
    world.turn();
    assert_eq!(world.proxy.requests.gate.queued(), 1);
    answers(&at_server, 1);
    world.turn();
    assert!(comes(&served, &read));
    for mut server in servers {
        let mut rest = Vec::new();
        server.read_to_end(&mut rest).expect("closed");
        assert!(rest.is_empty(), "nobody is there to take it");
    }
    drop(stays);
}
