use super::*;
use crate::machine::Settings;
use crate::store::MemoryStore;
use tokio::net::TcpSocket;

/// Somebody who comes from this address of this machine, and what is said to him first; nothing where he is turned away.
async fn comes(from: &str, door: std::net::SocketAddr) -> (TcpStream, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    let mut stream = BufReader::new(socket.connect(door).await.unwrap());
    let mut said = String::new();
    let _ = stream.read_line(&mut said).await;
    (stream.into_inner(), said)
}

/// Five addresses open as many connections as the door takes of strangers, and say nothing.
#[tokio::test]
async fn a_node_comes_in_beside_strangers_who_have_all_places() {
    let core = Core::start(Settings::default(), MemoryStore::default()).unwrap();
    let doors = Doors::Secret("a secret of the cluster".into());
    let shared = Arc::new(Shared::new(core, doors, (1000, 1 << 20), false));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let door = listener.local_addr().unwrap();
    let serving = tokio::spawn(serve(listener, shared));
    let mut strangers = Vec::new();
    for address in 2..7 {
        for _ in 0..STRANGERS_EACH {
            strangers.push(comes(&format!("127.0.0.{address}"), door).await);
        }
    }
    let (_, said) = comes("127.0.0.1", door).await;
    assert!(said.contains("challenge"), "{said:?}");
    // The first of theirs has made way.
    let mut byte = [0];
    assert_eq!(strangers[0].0.read(&mut byte).await.unwrap_or(0), 0);
    serving.abort();
}
