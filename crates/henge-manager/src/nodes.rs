//! Connections of nodes: a line of JSON each way, a task each.

use crate::core::{Core, OUTBOX, Unavailable};
use crate::store::Leadership;
use crate::tags::Clocks;
use henge_node::manager::wire::{self, FromManager, FromNode, LINE_MAX, Register, Side, VERSION};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio::sync::mpsc;

/// A handshake ends by then.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Longest line before a node has proven who it is.
const HELLO_MAX: u64 = 4 << 20;
/// Nodes send meters every second; one that is silent for so long is gone.
const SILENCE: Duration = Duration::from_secs(10);
/// A sign of life to nodes.
const LIFE: Duration = Duration::from_secs(5);
/// Most connections at once.
const CONNECTIONS_MAX: usize = 16_384;

/// What all connections share.
pub(crate) struct Shared {
    pub core: Core,
    pub secret: String,
    pub period_ms: u64,
    /// Where finish times are made here: the clocks.
    pub clocks: Option<Clocks>,
    sessions: AtomicU64,
    open: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(core: Core, secret: String, period_ms: u64, central_tags: bool) -> Self {
        let clocks = central_tags.then(Clocks::default);
        Shared { core, secret, period_ms, clocks, sessions: AtomicU64::new(1), open: AtomicUsize::new(0) }
    }
}

/// Accepts nodes until the listener fails for good.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await; // out of descriptors
            continue;
        };
        if shared.open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            continue;
        }
        shared.open.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            // A node that goes away, or is none, is gone.
            let _ = converse(stream, &shared).await;
            shared.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

type Reader = BufReader<tcp::OwnedReadHalf>;

async fn say(writer: &mut tcp::OwnedWriteHalf, what: &FromManager) -> io::Result<()> {
    let mut line = serde_json::to_vec(what).map_err(io::Error::other)?;
    line.push(b'\n');
    tokio::time::timeout(HANDSHAKE, writer.write_all(&line)).await.map_err(io::Error::other)?
}

async fn read_line(reader: &mut Reader, most: u64) -> io::Result<FromNode> {
    let mut line = Vec::new();
    let n = (&mut *reader).take(most).read_until(b'\n', &mut line).await?;
    if n == 0 || !line.ends_with(b"\n") {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(&line).map_err(io::Error::other)
}

async fn converse(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let hello = tokio::time::timeout(HANDSHAKE, handshake(&mut reader, &mut writer, shared));
    let register = hello.await.map_err(io::Error::other)??;
    let name = register.name.clone();
    let session = shared.sessions.fetch_add(1, Ordering::Relaxed);
    let (outbox, inbox) = mpsc::channel(OUTBOX);
    let leads = outbox.downgrade();
    shared.core.connect(&name, session, outbox);
    let registered = shared.core.call(move |machine| machine.register(session, *register)).await;
    let outcome = match registered {
        Err(e) => say(&mut writer, &FromManager::Refused { why: e.to_string() }).await,
        Ok(()) => tokio::select! {
            outcome = listen(&mut reader, shared, &name, session, &leads) => outcome,
            outcome = speak(&mut writer, inbox) => outcome,
            () = deposed(shared) => Ok(()),
        },
    };
    shared.core.disconnect(&name, session);
    let _ = shared.core.call(move |machine| machine.gone(&name, session)).await;
    outcome
}

async fn handshake(
    reader: &mut Reader,
    writer: &mut tcp::OwnedWriteHalf,
    shared: &Shared,
) -> io::Result<Box<Register>> {
    let nonce = crate::tokens::random_text()?;
    say(writer, &FromManager::Challenge { version: VERSION, nonce: nonce.clone() }).await?;
    let FromNode::Register(register) = read_line(reader, HELLO_MAX).await? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let refusal = if register.version != VERSION {
        Some(format!(
            "this manager speaks version {VERSION}, the node {}; run one release on both",
            register.version
        ))
    } else if !wire::holds(&register.proof, &shared.secret, Side::Node, &nonce, &register.name) {
        Some("the node does not know this cluster's secret; compare `secret` on both".into())
    } else if !henge_node::manager::is_name(&register.name) {
        Some("the node's name is no name".into())
    } else if let Leadership::Theirs(leader) = shared.core.leadership() {
        Some(Unavailable::NotLeader(leader).to_string())
    } else {
        None
    };
    if let Some(why) = refusal {
        say(writer, &FromManager::Refused { why: why.clone() }).await?;
        return Err(io::Error::other(why));
    }
    let proof = wire::prove(&shared.secret, Side::Manager, &register.nonce, &register.name);
    say(writer, &FromManager::Welcome { proof, period_ms: shared.period_ms, tags: shared.clocks.is_some() })
        .await?;
    Ok(register)
}

async fn listen(
    reader: &mut Reader,
    shared: &Shared,
    name: &str,
    session: u64,
    outbox: &mpsc::WeakSender<FromManager>,
) -> io::Result<()> {
    loop {
        let line = tokio::time::timeout(SILENCE, read_line(reader, LINE_MAX as u64));
        let mut said = line.await.map_err(io::Error::other)??;
        if let FromNode::Asks { asks } = &mut said {
            if let (Some(clocks), Some(outbox)) = (&shared.clocks, outbox.upgrade()) {
                let leads = clocks.answer(&shared.core, std::mem::take(asks)).await;
                // A node that takes nothing goes by its own.
                let _ = outbox.try_send(FromManager::Leads { leads });
            }
            continue;
        }
        let node = name.to_owned();
        let heard = shared.core.call(move |machine| {
            if !machine.is_current(&node, session) {
                return false;
            }
            match said {
                FromNode::Register(_) => return false,
                FromNode::Done { name, revision, error } => machine.done(&node, &name, revision, error),
                FromNode::Stats { status } => machine.stats(&node, *status),
                FromNode::Period { seconds, disks } => machine.period(&node, seconds, &disks),
                FromNode::Changed { held } => machine.changed_there(&node, &held),
                FromNode::Asks { .. } => {} // answered already
            }
            true
        });
        match heard.await {
            Ok(true) => {}
            // What was not stored is said again when the node comes again.
            Ok(false) | Err(_) => return Ok(()),
        }
    }
}

async fn speak(writer: &mut tcp::OwnedWriteHalf, mut inbox: mpsc::Receiver<FromManager>) -> io::Result<()> {
    loop {
        match tokio::time::timeout(LIFE, inbox.recv()).await {
            Ok(Some(what)) => say(writer, &what).await?,
            Ok(None) => return Ok(()),
            // Anything is a sign of life; a challenge asks for nothing once the node is welcome.
            Err(_) => say(writer, &FromManager::Challenge { version: VERSION, nonce: String::new() }).await?,
        }
    }
}

/// Returns when another manager leads.
async fn deposed(shared: &Shared) {
    let mut leaders = shared.core.leaders();
    while *leaders.borrow_and_update() == Leadership::Ours {
        if leaders.changed().await.is_err() {
            return;
        }
    }
}
