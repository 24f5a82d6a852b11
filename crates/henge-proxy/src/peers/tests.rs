use super::*;
use henge_config::Source;

const FLOW: FlowId = FlowId(0);
const MS: Duration = Duration::from_millis(1);

fn peers(names: [&str; 2], ports: [u16; 2], epoch: u64) -> Peers {
    try_peers(names, ports, epoch).expect("free ports")
}

fn try_peers(names: [&str; 2], ports: [u16; 2], epoch: u64) -> Result<Peers, ProxyError> {
    let text = format!(
        "server = \"127.0.0.1:1\"\nsync = {{ threshold = {{ every = \"64KiB\" }} }}
        [cluster]\nnode = \"{}\"\nsecret = \"correct horse battery\"\nlisten = \"127.0.0.1:{}\"
        [[peer]]\nname = \"{}\"\naddress = \"127.0.0.1:{}\"
        [[flow]]\nname = \"app\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"app\"\n",
        names[0], ports[0], names[1], ports[1]
    );
    let config = Config::parse(Source::new("proxy.toml", text)).expect("a sound configuration");
    Peers::new(&config, config.peers.as_ref().expect("stated"), epoch)
}

/// Two that know each other's ports. Somebody else may have taken one before its listener does.
fn two_peers() -> (Peers, Peers) {
    loop {
        let listeners = [0, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).expect("a port"));
        let [a, b] = listeners.each_ref().map(|l| l.local_addr().expect("its address").port());
        drop(listeners);
        let both = (try_peers(["a", "b"], [a, b], 1), try_peers(["b", "a"], [b, a], 1));
        if let (Ok(here), Ok(there)) = both {
            return (here, there);
        }
    }
}

/// Messages come when they matter: before the gate chooses again, or after a while; not one by one.
#[test]
fn links_are_looked_at_when_a_request_is_over_or_after_a_while() {
    let (mut here, mut there) = two_peers();
    let mut now = Instant::ZERO;
    let begun = std::time::Instant::now();
    while here.linked().0 + there.linked().0 < 2 || now < Instant::ZERO + MS * 50 {
        assert!(begun.elapsed().as_secs() < 20, "they do not find each other");
        now += MS;
        for one in [&mut here, &mut there] {
            one.look(now).expect("it looks");
            one.tick(now);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let served = Served { flow: FLOW, cost: Cost::new(100_000), extent: None };
    there.served(&served, None, now);
    there.tick(now);
    assert!(!here.is_due(now + MS), "nobody asks for it yet");
    assert!(here.is_due(now + LOOK_EVERY), "it is never left longer");
    here.served(&served, None, now);
    assert!(here.is_due(now), "the gate chooses next");
    here.told.clear();
    while here.told.is_empty() {
        assert!(begun.elapsed().as_secs() < 20, "nothing is heard");
        here.look(now).expect("it looks");
    }
    let [Told::Foreign(_, foreign)] = here.told[..] else { panic!("one message") };
    assert_eq!((foreign, here.is_due(now)), (Cost::new(100_000), false));
}

/// A connection from this address of this machine.
fn connect_from(host: [u8; 4], to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddr::from((host, 0))).expect("an address of this machine");
    connect(&socket, &to).expect("connected");
    TcpStream::from(socket)
}

#[test]
fn one_address_leaves_places_to_peers() {
    let mut here = peers(["b", "a"], [0, 1], 1);
    let address = here.address().expect("it listens");
    let strangers: Vec<TcpStream> =
        (0..STRANGERS_EACH + 4).map(|_| connect_from([127, 0, 0, 1], address)).collect();
    let joined = |here: &mut Peers, most: usize| {
        while here.joined.len() < most {
            here.look(Instant::ZERO).expect("it looks");
        }
        here.joined.len()
    };
    assert_eq!(joined(&mut here, STRANGERS_EACH), STRANGERS_EACH);
    // Whoever is let in now came after those who were too many.
    let other = connect_from([127, 0, 0, 2], address);
    assert_eq!(joined(&mut here, STRANGERS_EACH + 1), STRANGERS_EACH + 1);
    assert!(here.joined.values().any(|joined| joined.from == Some([127, 0, 0, 2].into())));
    drop((strangers, other));
}

/// Its other tests have descriptors, too: it runs itself again.
#[test]
fn peers_that_no_descriptor_is_left_for_do_not_wake_the_loop_without_end() {
    let name = "peers::tests::peers_that_no_descriptor_is_left_for_do_not_wake_the_loop_without_end";
    if !crate::children::is_alone(name) {
        return;
    }
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::os::fd::AsRawFd;
    let mut here = peers(["b", "a"], [0, 1], 1);
    let _stranger = connect_from([127, 0, 0, 1], here.address().expect("it listens"));
    let limit = getrlimit(Resource::Nofile);
    let free = std::fs::File::open("/dev/null").expect("the next one").as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(free), ..limit }).expect("fewer");
    here.look(Instant::ZERO).expect("it looks");
    here.tick(Instant::ZERO);
    let mut happened = Vec::new();
    here.poller.wait(Some(MS), &mut happened).expect("epoll");
    setrlimit(Resource::Nofile, limit).expect("as before");
    assert!(happened.is_empty() && here.joined.is_empty(), "{happened:?}");
    here.tick(Instant::ZERO + Duration::from_secs(1));
    here.look(Instant::ZERO + Duration::from_secs(1)).expect("it looks");
    assert_eq!(here.joined.len(), 1, "it is accepted once there is room");
}
