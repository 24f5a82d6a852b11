//! Clients that come as often, and stay as many, as they can.

use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tracing::span;

/// Two applications at ports of their own, and a third port where any user comes.
fn of_two(connections: usize) -> World {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = |more: &str| format!("[[listen]]\naddress = \"127.0.0.1:0\"\n{more}\n");
    let text = format!(
        "server = \"{}\"\nconnections = {connections}\n[[flow]]\nname = \"a\"\n[[flow]]\nname = \"b\"\n{}{}{}",
        server.local_addr().expect("its address"),
        listen("flow = \"a\""),
        listen("flow = \"b\""),
        listen(""),
    );
    World::before(server, text).unwrap_or_else(|e| panic!("{e}"))
}

/// Connections to a port, each as far as it gets, and the twins of those that got in.
fn crowd(world: &mut World, port: usize, n: usize) -> [Vec<TcpStream>; 2] {
    let (address, before) = (world.proxy.addresses()[port], world.open());
    let crowd = (0..n).map(|_| TcpStream::connect(address).expect("the kernel takes it")).collect();
    world.turn();
    let twins = (before..world.open()).map(|_| world.server.accept().expect("a twin").0).collect();
    [crowd, twins]
}

/// One application opens all that it can. The other, and users without a port, find their parts; what somebody gives back is anybody's.
#[test]
fn an_application_that_opens_all_it_can_leaves_the_others_their_places() {
    let mut world = of_two(12);
    let greedy = crowd(&mut world, 1, 20);
    assert_eq!((world.open(), world.proxy.counts.turned_away), (8, 12), "two for each of the others");
    let others: Vec<_> = [0, 0, 2, 2].map(|port| world.connect_to(port)).into();
    assert_eq!(world.open(), 12);
    let late = crowd(&mut world, 0, 1);
    assert_eq!((world.open(), world.proxy.counts.turned_away), (12, 13), "there are no more");
    drop((greedy, late));
    world.turn();
    assert_eq!(world.open(), 4);
    let many = crowd(&mut world, 0, 20);
    assert_eq!(world.open(), 10, "two are left for who was greedy");
    drop((many, others));
}

/// A crowd that comes at once is let in by turns, and whoever is in already is served between.
#[test]
fn a_crowd_is_let_in_by_turns() {
    let mut world = of_two(1000);
    let address = world.proxy.addresses()[1];
    let _crowd: Vec<_> = (0..100).map(|_| TcpStream::connect(address).expect("connected")).collect();
    world.proxy.accept(1, world.now);
    assert!(world.open() < 100 / 3, "{} at once", world.open());
    world.turn();
    assert_eq!(world.open(), 100);
}

/// Counts lines of the log.
struct Lines(Arc<AtomicUsize>);

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Strangers that come again and again fill no log: of each kind one line a second, which says how many had none.
#[test]
fn clients_that_come_to_nothing_have_a_line_a_second() {
    let lines = Arc::<AtomicUsize>::default();
    let _told = tracing::subscriber::set_default(Lines(Arc::clone(&lines)));
    let mut world = of_two(3);
    let junk = |world: &mut World| {
        let (mut client, server) = world.connect_to(2);
        client.write_all(&[0xab; 64]).expect("sent");
        world.turn();
        drop((client, server));
        world.turn();
        assert_eq!(world.open(), 0);
    };
    (0..20).for_each(|_| junk(&mut world));
    assert_eq!(lines.load(Ordering::Relaxed), 1, "of bytes that are no PVFS2");
    world.now += Duration::from_secs(1);
    (0..20).for_each(|_| junk(&mut world));
    assert_eq!(lines.load(Ordering::Relaxed), 2);
    let _crowd = crowd(&mut world, 1, 20);
    assert_eq!(
        (world.proxy.counts.turned_away, lines.load(Ordering::Relaxed)),
        (17, 3),
        "of who is turned away"
    );
}
