//! The example against a node: what is written is read, what is wrong is answered, and a guarded disk is not shown.

use crate::{Node, NodeConfig};
use henge_config::Source;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

const NODE: &str = "listen = \"lines://127.0.0.1:0\"\n\
    [[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"8MiB\"\n\
    [[disk]]\nname = \"open\"\ncapacity = \"1MiB\"\n\
    [[disk]]\nname = \"guarded\"\ncapacity = \"1MiB\"\niscsi = { user = \"ann\", secret = \"twelve bytes\" }\n\
    [[disk]]\nname = \"both\"\ncapacity = \"1MiB\"\nlines = true\niscsi = { user = \"ann\", secret = \"twelve bytes\" }\n";

fn config(text: &str) -> Result<NodeConfig, String> {
    let config = NodeConfig::parse(Source::new("node.toml", text));
    let forgets = |mut config: NodeConfig| {
        config.state.forgets = true;
        config
    };
    config.map(forgets).map_err(|e| e.to_string())
}

fn asked(client: &mut BufReader<TcpStream>, words: &[u8]) -> String {
    client.get_mut().write_all(words).unwrap();
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    line
}

#[test]
fn a_stranger_s_protocol_serves_disks() {
    let node = Node::start(config(NODE).unwrap()).unwrap_or_else(|e| panic!("{e}"));
    let [address] = node.addresses() else { panic!("one was asked for") };
    let at = address.tcp("lines").unwrap();
    assert_eq!(address.uri("open"), format!("lines://{at}/open"));
    let connect = || BufReader::new(TcpStream::connect(at).unwrap());
    let mut one = connect();
    assert_eq!(asked(&mut one, b"read 0 1\n"), "error: say which disk first\n");
    assert_eq!(asked(&mut one, b"disk guarded\n"), "error: there is no such disk\n");
    assert_eq!(asked(&mut one, b"disk open\n"), "ok\n");
    // Unaligned, and in two pieces.
    let bytes: Vec<u8> = (0..10_000).map(|at| (at % 251) as u8).collect();
    one.get_mut().write_all(&[b"write 700 10000\n", &bytes[..5000]].concat()).unwrap();
    assert_eq!(asked(&mut one, &bytes[5000..]), "ok\n");
    assert_eq!(asked(&mut one, b"disk both\n"), "error: a connection has one disk\n");
    // Two commands at once are answered in order; another client sees the same bytes.
    let mut two = connect();
    assert_eq!(asked(&mut two, b"disk open\nread 699 10002\nread 1048576 1\n"), "ok\n");
    let mut line = String::new();
    two.read_line(&mut line).unwrap();
    assert_eq!(line, "ok 10002\n");
    let mut got = vec![9; 10_002];
    two.read_exact(&mut got).unwrap();
    assert!(got == [&[0][..], &bytes, &[0]].concat());
    assert!(asked(&mut two, b"").starts_with("error: that is beyond"));
    assert!(asked(&mut two, b"erase\n").starts_with("error: that is no command"));
    // What is stated opens a door beside the guarded one.
    assert_eq!(asked(&mut connect(), b"disk both\n"), "ok\n");
    // No line, no conversation.
    assert_eq!(asked(&mut connect(), &[b'x'; 100]), "");
    drop((one, two));
    node.stop().unwrap();
}

#[test]
fn a_disk_of_another_loop_is_found_and_who_may_come_no_more_is_let_go() {
    let text = NODE.replacen("\n", "\ncores = 2\n", 1).replacen("8MiB\"", "8MiB\"\nshard = 1", 1);
    let text = text.replacen(
        "[[disk]]",
        "[[pool]]\nname = \"q\"\nmemory = true\ncapacity = \"8MiB\"\nshard = 0\n[[disk]]",
        1,
    );
    let text = text.replace("capacity = \"1MiB\"", "capacity = \"1MiB\"\npool = \"p\"");
    let node = Node::start(config(&text).unwrap()).unwrap_or_else(|e| panic!("{e}"));
    let at = node.addresses()[0].tcp("lines").unwrap();
    let connect = || BufReader::new(TcpStream::connect(at).unwrap());
    let mut one = connect();
    assert_eq!(asked(&mut one, b"disk none\n"), "error: there is no such disk\n");
    assert_eq!(asked(&mut one, b"disk open\nwrite 0 3\nabc"), "ok\n");
    assert_eq!(asked(&mut one, b""), "ok\n");
    let ask = |text: &str| {
        let reply = node.control().ask(serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(reply.error, None);
    };
    ask("{\"op\":\"add\",\"disk\":{\"name\":\"new\",\"pool\":\"p\",\"capacity\":\"1MiB\"}}");
    let mut one = connect();
    assert_eq!(asked(&mut one, b"disk new\n"), "ok\n");
    ask("{\"op\":\"access\",\"name\":\"new\",\"doors\":{\"lines\":true}}");
    assert_eq!(asked(&mut one, b"write 0 1\nx"), "ok\n");
    ask(
        "{\"op\":\"access\",\"name\":\"new\",\"doors\":{\"iscsi\":{\"user\":\"ann\",\"secret\":\"twelve bytes\"}}}",
    );
    // Its end may be a reset.
    let mut line = String::new();
    let _ = one.get_mut().write_all(b"write 0 1\nx").and_then(|()| one.read_line(&mut line));
    assert_eq!(line, "");
    node.stop().unwrap();
}

#[test]
fn its_listeners_and_options_are_read_as_others_are() {
    let why = config(&NODE.replace("127.0.0.1:0", "0.0.0.0")).unwrap_err();
    assert!(why.contains("lines://0.0.0.0:7777: whoever reaches it uses every disk that it shows"), "{why}");
    let why = config(&NODE.replace("lines = true", "lines = 7")).unwrap_err();
    assert!(why.contains("lines"), "{why}");
    let why = config(&NODE.replace("lines://", "strange://")).unwrap_err();
    assert!(why.contains("listen is an address like") && why.contains("nbd+unix"), "{why}");
}
