//! Who comes in where, tried as somebody who should not.

use crate::common::{self, Client, address};
use henge_api::manager::{FromManager, FromNode, LINE_MAX, Order, VERSION};
use henge_api::proof::{self, Keys, Said, Side};
use henge_api::{decode_line, encode_line};
use henge_config::Source;
use henge_node::{Node, NodeConfig};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

const DISKS: &str = "
[[pool]]
name = \"p\"
memory = true
capacity = \"1GiB\"
[[disk]]
name = \"open\"
capacity = \"1MiB\"
[[disk]]
name = \"guarded\"
capacity = \"1MiB\"
iscsi = { user = \"ann\", secret = \"twelve bytes\" }
[[disk]]
name = \"closed\"
capacity = \"1MiB\"
nbd = \"nobody\"
";

fn start(head: &str, disks: &str) -> Node {
    let text = format!("{head}\n{disks}");
    let mut config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
    config.state.forgets = !config.state.is_stated;
    Node::start(config).unwrap_or_else(|e| panic!("{e}"))
}

/// One option of NBD's handshake: the kinds and data of its replies, up to the last.
fn option(stream: &mut (impl Read + Write), option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut hello = b"IHAVEOPT".to_vec();
    hello.extend(option.to_be_bytes());
    hello.extend((data.len() as u32).to_be_bytes());
    hello.extend(data);
    stream.write_all(&hello).unwrap();
    let mut replies = Vec::new();
    loop {
        let mut head = [0; 20];
        stream.read_exact(&mut head).unwrap();
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let mut data = vec![0; word(16) as usize];
        stream.read_exact(&mut data).unwrap();
        let kind = word(12);
        replies.push((kind, data));
        if kind == 1 || kind & (1 << 31) != 0 {
            return replies; // ACK, or an error
        }
    }
}

fn greet(stream: &mut (impl Read + Write)) {
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(&3u32.to_be_bytes()).unwrap();
}

/// The names that LIST shows.
fn listed(stream: &mut (impl Read + Write)) -> Vec<String> {
    let replies = option(stream, 3, &[]);
    let names = replies.iter().filter(|(kind, _)| *kind == 2);
    names.map(|(_, data)| String::from_utf8(data[4..].to_vec()).unwrap()).collect()
}

/// What INFO answers about an export: the kind of the last reply, and what it says.
fn asked(stream: &mut (impl Read + Write), name: &str) -> (u32, Vec<u8>) {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend([0, 0]);
    option(stream, 6, &data).pop().unwrap()
}

#[test]
fn nbd_shows_and_opens_what_anyone_may_use_and_nothing_else() {
    let node = start("listen = \"nbd://127.0.0.1:0\"", DISKS);
    let mut stream = TcpStream::connect(address(&node)).unwrap();
    greet(&mut stream);
    assert_eq!(listed(&mut stream), ["open"]);
    assert_eq!(asked(&mut stream, "open").0, 1);
    // Forbidden and unknown look alike.
    let unknown = asked(&mut stream, "no-such");
    assert_eq!(unknown.0, (1 << 31) + 6, "ERR_UNKNOWN");
    for name in ["guarded", "closed"] {
        let (kind, text) = asked(&mut stream, name);
        let said = |text: &[u8], name: &str| String::from_utf8_lossy(text).replace(name, "NAME");
        assert_eq!((kind, said(&text, name)), (unknown.0, said(&unknown.1, "no-such")));
    }
    // A sole disk that is shown is the default one.
    let mut client = Client::connect(&node, "");
    assert_eq!(client.write(0, b"mine"), 0);
    assert_eq!(Client::connect(&node, "open").read(0, 4).unwrap(), b"mine");
    node.stop().unwrap();
}

#[test]
fn a_unix_socket_shows_a_user_its_own_disks() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("nbd.sock");
    let me = rustix::process::geteuid().as_raw();
    let head = format!("listen = [\"nbd+unix://{}\", \"nbd://127.0.0.1:0\"]", socket.display());
    let users = |name: &str, user: u32| {
        format!("[[disk]]\nname = \"{name}\"\ncapacity = \"1MiB\"\nnbd = {{ users = [{user}] }}\n")
    };
    let disks = format!("{DISKS}{}{}", users("mine", me), users("theirs", me + 1));
    let node = start(&head, &disks);
    let mut unix = UnixStream::connect(&socket).unwrap();
    greet(&mut unix);
    assert_eq!(listed(&mut unix), ["open", "mine"]);
    assert_eq!((asked(&mut unix, "mine").0, asked(&mut unix, "theirs").0), (1, (1 << 31) + 6));
    let tcp = node.addresses().iter().find_map(|address| address.tcp("nbd")).expect("it was asked for");
    let mut tcp = TcpStream::connect(tcp).unwrap();
    greet(&mut tcp);
    assert_eq!(listed(&mut tcp), ["open"]);
    node.stop().unwrap();
}

#[test]
fn a_door_that_stands_open_to_other_machines_is_stated() {
    let parse = |text: String| NodeConfig::parse(Source::new("node.toml", text));
    for (listen, names) in [
        ("nbd://0.0.0.0:0", "nbd://0.0.0.0:0"),
        ("nbd://[::]:0", "nbd://[::]:0"),
        ("iscsi://192.0.2.1:0", "disk open"),
    ] {
        let why = parse(format!("listen = \"{listen}\"\n{DISKS}")).unwrap_err().to_string();
        assert!(why.contains(names) && why.contains("insecure = true"), "{why}");
        let config = parse(format!("listen = \"{listen}\"\ninsecure = true\n{DISKS}")).unwrap();
        assert_eq!(config.open_doors().len(), 1, "{listen}");
    }
    let guarded = DISKS.replace("capacity = \"1MiB\"\niscsi", "iscsi");
    let all = guarded.replace(
        "capacity = \"1MiB\"",
        "capacity = \"1MiB\"\niscsi = { user = \"a\", secret = \"twelve bytes\" }",
    );
    let all = all.replace("iscsi = { user = \"ann\"", "capacity = \"1MiB\"\niscsi = { user = \"ann\"");
    let config = parse(format!("listen = \"iscsi://192.0.2.1:0\"\n{all}")).unwrap();
    assert!(config.open_doors().is_empty() && config.demands("iscsi"));
    for local in ["nbd://127.0.0.1:0", "nbd://localhost", "nbd://[::1]:1", "iscsi://127.0.0.9:0"] {
        assert!(parse(format!("listen = \"{local}\"\n{DISKS}")).unwrap().open_doors().is_empty(), "{local}");
    }
}

#[test]
fn tokens_of_the_page_cross_a_network_in_clear_only_where_that_is_stated() {
    let parse = |text: String| NodeConfig::parse(Source::new("node.toml", text));
    let page = |at: &str| format!("http = {{ listen = \"{at}\", token_file = \"/etc/henge/tokens\" }}\n");
    for at in ["0.0.0.0:8080", "192.0.2.1:8080", "[2001:db8::1]:8080"] {
        let why = parse(format!("{}{DISKS}", page(at))).unwrap_err().to_string();
        assert!(why.contains(&format!("http://{at}")) && why.contains("insecure = true"), "{why}");
        let config = parse(format!("{}insecure = true\n{DISKS}", page(at))).unwrap();
        assert!(
            config.open_doors().len() == 1 && config.open_doors()[0].contains("tokens"),
            "{:?}",
            config.open_doors()
        );
    }
    let secure = parse(format!("{}{DISKS}", page("https://192.0.2.1:8080"))).unwrap_err().to_string();
    assert!(secure.contains("certificate") && !secure.contains("insecure"), "{secure}");
    for at in ["127.0.0.1:8080", "[::1]:8080", "[::ffff:127.0.0.1]:8080"] {
        assert!(parse(format!("{}{DISKS}", page(at))).unwrap().open_doors().is_empty(), "{at}");
    }
}

const HOSTS_SECRET: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

#[test]
fn other_machines_reach_disks_by_nvme_whose_hosts_prove_who_they_are() {
    let parse = |text: &str| NodeConfig::parse(Source::new("node.toml", text));
    let head = "listen = \"nvme://192.0.2.1:0\"\n[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"16MiB\"\n\
                [[disk]]\nname = \"web\"\ncapacity = \"1MiB\"\n";
    let named = "nvme = { hosts = [\"nqn.2026-11.example:a\"] }\n";
    for open in ["", named] {
        let why = parse(&format!("{head}{open}")).unwrap_err().to_string();
        assert!(why.contains("disk web") && why.contains("secret_file") && why.contains("insecure"), "{why}");
    }
    let guarded = format!("{head}nvme = {{ secret = \"{HOSTS_SECRET}\" }}\n");
    let config = parse(&guarded).unwrap();
    assert!(config.open_doors().is_empty() && config.demands("nvme") && !config.demands("iscsi"));
    // A door beside it that nobody guards is stated, or not there.
    let beside = parse(&guarded.replace(
        "listen = \"nvme://192.0.2.1:0\"",
        "listen = [\"nvme://192.0.2.1:0\", \"iscsi://192.0.2.1:0\"]",
    ));
    assert!(beside.unwrap().open_doors().is_empty());
    let stated = guarded.replace(
        "listen = \"nvme://192.0.2.1:0\"",
        "listen = [\"nvme://192.0.2.1:0\", \"iscsi://192.0.2.1:0\"]",
    ) + "iscsi = { initiators = [\"iqn.2026-11.example:a\"] }\n";
    assert!(parse(&stated).unwrap_err().to_string().contains("disk web"));
}

#[test]
fn a_disk_with_secrets_for_hosts_is_nobodys_by_nbd() {
    let disks = format!(
        "{DISKS}[[disk]]\nname = \"proved\"\ncapacity = \"1MiB\"\nnvme = {{ secret = \"{HOSTS_SECRET}\" }}\n"
    );
    let node = start("listen = \"nbd://127.0.0.1:0\"", &disks);
    let mut stream = TcpStream::connect(address(&node)).unwrap();
    greet(&mut stream);
    assert_eq!(listed(&mut stream), ["open"]);
    node.stop().unwrap();
}

/// The manager's end of a connection, as somebody could be who knows the secret, or does not.
struct Manager {
    reader: BufReader<TcpStream>,
    stream: TcpStream,
    keys: Option<Keys>,
}

impl Manager {
    fn say(&mut self, what: &FromManager) {
        let mut line = encode_line(what);
        if let Some(keys) = &mut self.keys {
            line = proof::sealed(&mut keys.ours, &line);
        }
        self.stream.write_all(&line).unwrap();
    }

    /// The next line; none when the node has hung up.
    fn hear(&mut self) -> Option<FromNode> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).ok().filter(|n| *n > 0)?;
        let line = match &mut self.keys {
            Some(keys) => proof::opened(&mut keys.theirs, &line).expect("what the node sent").to_vec(),
            None => line,
        };
        Some(decode_line(&line, LINE_MAX).unwrap())
    }

    /// Waits for the node, greets it, and proves to know this secret.
    fn meet(listener: &TcpListener, secret: &str) -> Manager {
        let (stream, _) = listener.accept().unwrap();
        let mut this = Manager { reader: BufReader::new(stream.try_clone().unwrap()), stream, keys: None };
        this.say(&FromManager::Challenge { version: VERSION, nonce: "m".into() });
        let Some(FromNode::Hello { name, nonce, .. }) = this.hear() else { panic!("no hello") };
        let said = Said { manager: "m", node: &nonce, name: &name };
        this.say(&FromManager::Proven { proof: proof::prove(secret, Side::Manager, said) });
        this.keys = Some(proof::keys(secret, Side::Manager, said));
        this
    }

    /// What the node answers to an order.
    fn order(&mut self, name: &str, revision: u64, capacity: Option<&str>) -> Result<(), String> {
        self.order_with(name, revision, capacity, &[])
    }

    fn order_with(
        &mut self,
        name: &str,
        revision: u64,
        capacity: Option<&str>,
        terms: &[(&str, &str)],
    ) -> Result<(), String> {
        let terms = || terms.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
        let want = capacity.map(|capacity| henge_api::manager::Want {
            capacity: henge_core::parse_size(capacity).unwrap(),
            pools: vec!["p".into()],
            leeway: None,
            contract: terms(),
            peers: Default::default(),
            room: None,
            gateways: Vec::new(),
            origin: Default::default(),
            access: None,
        });
        self.say(&FromManager::Order(Order::new(name, revision, want.as_ref())));
        loop {
            match self.hear().expect("the node answers") {
                FromNode::Done { error, .. } => return error.map_or(Ok(()), Err),
                _ => continue, // meters
            }
        }
    }
}

const SECRET: &str = "0123456789abcdef";

fn managed(listener: &TcpListener, dir: &std::path::Path) -> Node {
    let head = format!(
        "listen = \"nbd://127.0.0.1:0\"\nstate_dir = {dir:?}\n[manager]\naddress = \"{}\"\nname = \"n1\"\nsecret = \"{SECRET}\"\n",
        listener.local_addr().unwrap()
    );
    start(&head, DISKS)
}

#[test]
fn a_manager_orders_about_disks_that_a_manager_made_and_no_others() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let node = managed(&listener, dir.path());
    let mut manager = Manager::meet(&listener, SECRET);
    let Some(FromNode::Register(register)) = manager.hear() else { panic!("no register") };
    assert_eq!(register.name, "n1");
    assert_eq!(register.speaks, henge_api::manager::speaks());
    manager.say(&FromManager::Welcome { period_ms: 60_000, tags: false, speaks: register.speaks });
    for capacity in [None, Some("2MiB")] {
        let refused = manager.order("open", 7, capacity).unwrap_err();
        assert!(refused.contains("own disk"), "{refused}");
    }
    let status = node.control().status().unwrap();
    assert_eq!(status.disk("open").unwrap().capacity, 1 << 20);
    // One of its own it makes, lets grow and removes.
    manager.order("made", 8, Some("1MiB")).unwrap();
    manager.order("made", 9, Some("2MiB")).unwrap();
    assert_eq!(node.control().status().unwrap().disk("made").unwrap().capacity, 2 << 20);
    manager.order("made", 10, None).unwrap();
    assert!(node.control().status().unwrap().disk("made").is_none());
    // Who is on the way adds an order without a seal that fits: the node hangs up, and does nothing.
    let order = FromManager::Order(Order::new("made", 11, None));
    manager.keys.as_mut().unwrap().ours = Keys::new([1; 32], [2; 32]).ours;
    manager.say(&order);
    while manager.hear().is_some() {}
    drop(manager);
    drop(listener);
    node.stop().unwrap();
}

#[test]
fn an_order_that_was_not_carried_out_as_a_whole_is_not_said_to_be() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let node = managed(&listener, dir.path());
    let welcome = |manager: &mut Manager| {
        let Some(FromNode::Register(register)) = manager.hear() else { panic!("no register") };
        manager.say(&FromManager::Welcome { period_ms: 60_000, tags: false, speaks: register.speaks });
        register.disks.into_iter().find(|disk| disk.name == "made")
    };
    let mut manager = Manager::meet(&listener, SECRET);
    welcome(&mut manager);
    manager.order("made", 8, Some("1MiB")).unwrap();
    // It grows, and its contract is refused.
    let refused = manager.order_with("made", 9, Some("2MiB"), &[("rate", "5/s")]).unwrap_err();
    assert!(refused.contains("rate"), "{refused}");
    assert_eq!(node.control().status().unwrap().disk("made").unwrap().capacity, 2 << 20);
    // A manager that has not heard of it is told what holds, and says again what it wants.
    drop(manager);
    let mut manager = Manager::meet(&listener, SECRET);
    let held = welcome(&mut manager).unwrap();
    assert_eq!((held.revision, held.changed, held.capacity), (Some(8), false, 2 << 20));
    manager.order("made", 9, Some("2MiB")).unwrap();
    manager.order("made", 9, Some("2MiB")).unwrap();
    drop(manager);
    let mut manager = Manager::meet(&listener, SECRET);
    assert_eq!(welcome(&mut manager).unwrap().revision, Some(9));
    drop((manager, listener));
    node.stop().unwrap();
}

#[test]
fn a_manager_of_another_version_is_told_nothing_and_the_node_serves_on() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let node = managed(&listener, dir.path());
    for version in [VERSION - 1, VERSION + 1] {
        let (stream, _) = listener.accept().unwrap();
        let mut other = Manager { reader: BufReader::new(stream.try_clone().unwrap()), stream, keys: None };
        other.say(&FromManager::Challenge { version, nonce: "m".into() });
        assert_eq!(other.hear(), None, "it hangs up before it says who it is");
        assert_eq!(Client::connect(&node, "open").write(0, &[1; 4096]), 0);
    }
    // One of its own version is heard afterwards.
    let mut manager = Manager::meet(&listener, SECRET);
    assert!(matches!(manager.hear(), Some(FromNode::Register(_))));
    drop((manager, listener));
    node.stop().unwrap();
}

/// A manager's welcome as some release writes it; whether the node goes on with it.
fn welcomed(listener: &TcpListener, speaks: &str) -> bool {
    let mut manager = Manager::meet(listener, SECRET);
    assert!(matches!(manager.hear(), Some(FromNode::Register(_))));
    let line = format!("{{\"say\":\"welcome\",\"period_ms\":60000{speaks}}}\n");
    let line = proof::sealed(&mut manager.keys.as_mut().unwrap().ours, line.as_bytes());
    manager.stream.write_all(&line).unwrap();
    manager.hear().is_some()
}

#[test]
fn a_manager_of_an_older_or_a_later_release_is_served_unless_it_needs_what_the_node_lacks() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let node = managed(&listener, dir.path());
    assert!(welcomed(&listener, ""), "an older one says nothing of features");
    let later =
        r#","mood":"good","speaks":{"release":"7.0.0","offers":18446744073709551615,"needs":0,"more":[1]}"#;
    assert!(welcomed(&listener, later), "what it adds is passed over");
    let demanding = r#","speaks":{"release":"7.0.0","offers":1099511627776,"needs":1099511627776}"#;
    assert!(!welcomed(&listener, demanding), "the node hangs up");
    assert_eq!(Client::connect(&node, "open").write(0, &[1; 4096]), 0, "and serves on");
    drop(listener);
    node.stop().unwrap();
}

#[test]
fn a_node_tells_what_it_has_to_nobody_who_does_not_know_the_secret() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let node = managed(&listener, dir.path());
    let mut stranger = Manager::meet(&listener, "another secret, of the same kind");
    stranger.keys = None;
    assert_eq!(stranger.hear(), None, "it hangs up");
    drop(listener);
    node.stop().unwrap();
}

#[test]
fn secrets_stand_in_no_event_and_in_no_file_that_others_read() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let head = format!("listen = \"nbd://127.0.0.1:0\"\nstate_dir = {:?}", dir.path());
    let node = start(&head, DISKS);
    let table = "name = \"new\"\npool = \"p\"\ncapacity = \"1MiB\"\niscsi = { user = \"bob\", secret = \"hush hush hush\" }\n";
    node.control().ask(common::add(table)).unwrap();
    let wrong = table.replace("\"new\"", "\"bad\"").replace("1MiB", "1 MiB of it");
    let refused = node.control().ask(common::add(&wrong)).unwrap_err();
    assert!(!refused.to_string().contains("hush"), "{refused}");
    let asked = henge_api::Request::Events { name: None, after: 0, most: 100 };
    let events = format!("{:?}", node.control().ask(asked).unwrap().events);
    assert!(events.contains("bob") && !events.contains("hush"), "{events}");
    for (file, has_secret) in [("events.jsonl", false), ("disks.json", true)] {
        let path = dir.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.contains("hush"), has_secret, "{file}");
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file}: {mode:o}");
    }
    node.stop().unwrap();
}

/// As many as the control socket has places for ask, and take nothing of their answers: an administrator is answered all the same.
#[test]
fn who_takes_no_answer_at_the_control_socket_makes_way() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("control.sock");
    let node = start(&format!("listen = \"nbd://127.0.0.1:0\"\ncontrol = \"{}\"", socket.display()), DISKS);
    let question = b"{\"op\":\"status\"}\n";
    let mut stuck: Vec<UnixStream> = (0..32).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    for stream in &mut stuck {
        stream.set_nonblocking(true).unwrap();
        // Until the node reads no further, since nobody takes what it has said.
        let (mut pauses, mut at) = (0, 0);
        while pauses < 50 {
            match stream.write(&question[at..]) {
                Ok(n) => (at, pauses) = ((at + n) % question.len(), 0),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    pauses += 1;
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
    let mut reply = [0; 10];
    let mut asks = || {
        let mut administrator = UnixStream::connect(&socket)?;
        administrator.write_all(question)?;
        administrator.read_exact(&mut reply)
    };
    // Where answers are still being made for all of them, a newcomer comes again. Nobody is given up before a minute.
    let begun = std::time::Instant::now();
    while let Err(e) = asks() {
        assert!(begun.elapsed().as_secs() < 40, "not answered: {e}");
    }
    assert_eq!(&reply, b"{\"ok\":true");
    node.stop().unwrap();
}
