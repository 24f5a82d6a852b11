//! Connections of nodes: a line of JSON each way, a task each.

use crate::core::{Core, OUTBOX, Unavailable};
use crate::heard;
use crate::store::Leadership;
use crate::tags::Clocks;
use henge_api::manager::{FromManager, FromNode, HELLO_MAX, LINE_MAX, Register, VERSION};
use henge_api::proof::{self, Keys, Said, Sealer, Side};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio::sync::{Semaphore, mpsc};

/// A handshake ends by then.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Nodes send meters every second; one that is silent for so long is gone.
const SILENCE: Duration = Duration::from_secs(10);
/// A sign of life to nodes.
const LIFE: Duration = Duration::from_secs(5);
/// Most connections at once.
const CONNECTIONS_MAX: usize = 16_384;
/// Of them, connections that have not proven who they are.
const STRANGERS_MAX: usize = 256;

/// What all connections share.
pub(crate) struct Shared {
    pub core: Core,
    pub secret: String,
    pub period_ms: u64,
    /// Where finish times are made here: the clocks.
    pub clocks: Option<Clocks>,
    sessions: AtomicU64,
    open: AtomicUsize,
    strangers: Semaphore,
}

impl Shared {
    pub(crate) fn new(core: Core, secret: String, period_ms: u64, central_tags: bool) -> Self {
        let clocks = central_tags.then(Clocks::default);
        let strangers = Semaphore::new(STRANGERS_MAX);
        let (sessions, open) = (AtomicU64::new(1), AtomicUsize::new(0));
        Shared { core, secret, period_ms, clocks, sessions, open, strangers }
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

/// Lines from a node, and to it; sealed once both ends have proven themselves.
struct Reader {
    stream: BufReader<tcp::OwnedReadHalf>,
    sealer: Option<Sealer>,
}

struct Writer {
    stream: tcp::OwnedWriteHalf,
    sealer: Option<Sealer>,
}

impl Writer {
    async fn say(&mut self, what: &FromManager) -> io::Result<()> {
        let mut line = henge_api::encode_line(what);
        if let Some(sealer) = &mut self.sealer {
            line = proof::sealed(sealer, &line);
        }
        tokio::time::timeout(HANDSHAKE, self.stream.write_all(&line)).await.map_err(io::Error::other)?
    }
}

impl Reader {
    async fn line(&mut self) -> io::Result<FromNode> {
        let most = if self.sealer.is_some() { LINE_MAX } else { HELLO_MAX };
        let mut line = Vec::new();
        let n = (&mut self.stream).take(most as u64).read_until(b'\n', &mut line).await?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = match &mut self.sealer {
            Some(sealer) => proof::opened(sealer, &line)
                .ok_or_else(|| io::Error::other("lines were changed, dropped or repeated on the way"))?,
            None => &line[..],
        };
        Ok(henge_api::decode_line(line, most)?)
    }
}

async fn converse(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    let mut reader = Reader { stream: BufReader::new(reader), sealer: None };
    let mut writer = Writer { stream: writer, sealer: None };
    let Ok(place) = shared.strangers.try_acquire() else { return Ok(()) };
    let hello = tokio::time::timeout(HANDSHAKE, handshake(&mut reader, &mut writer, shared));
    let register = hello.await.map_err(io::Error::other)??;
    drop(place);
    let name = register.name.clone();
    let session = shared.sessions.fetch_add(1, Ordering::Relaxed);
    let (outbox, inbox) = mpsc::channel(OUTBOX);
    let leads = outbox.downgrade();
    shared.core.connect(&name, session, outbox);
    let registered = shared.core.call(move |machine| machine.register(session, *register)).await;
    let outcome = match registered {
        Err(e) => writer.say(&FromManager::Refused { why: e.to_string() }).await,
        Ok(()) => {
            let tags = shared.clocks.is_some();
            let welcome = FromManager::Welcome { period_ms: shared.period_ms, tags };
            match writer.say(&welcome).await {
                Ok(()) => tokio::select! {
                    outcome = listen(&mut reader, shared, &name, session, &leads) => outcome,
                    outcome = speak(&mut writer, inbox) => outcome,
                    () = deposed(shared) => Ok(()),
                },
                Err(e) => Err(e),
            }
        }
    };
    shared.core.disconnect(&name, session);
    let _ = shared.core.call(move |machine| machine.gone(&name, session)).await;
    outcome
}

/// Who it is, and what it has. Nothing is believed, and little is read, of who has not proven to know the secret.
async fn handshake(reader: &mut Reader, writer: &mut Writer, shared: &Shared) -> io::Result<Box<Register>> {
    let nonce = crate::tokens::random_text()?;
    writer.say(&FromManager::Challenge { version: VERSION, nonce: nonce.clone() }).await?;
    let FromNode::Hello { version, name, nonce: theirs, proof } = reader.line().await? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let said = Said { manager: &nonce, node: &theirs, name: &name };
    let refusal = if version != VERSION {
        Some(format!("this manager speaks version {VERSION}, the node {version}; run one release on both"))
    } else if !proof::holds(&proof, &shared.secret, Side::Node, said) {
        Some("the node does not know this cluster's secret; compare `secret` on both".into())
    } else if !henge_api::is_name(&name) {
        Some("the node's name is no name".into())
    } else if let Leadership::Theirs(leader) = shared.core.leadership() {
        Some(Unavailable::NotLeader(leader).to_string())
    } else {
        None
    };
    if let Some(why) = refusal {
        return refuse(writer, why).await;
    }
    let proof = proof::prove(&shared.secret, Side::Manager, said);
    writer.say(&FromManager::Proven { proof }).await?;
    let Keys { ours, theirs } = proof::keys(&shared.secret, Side::Manager, said);
    (writer.sealer, reader.sealer) = (Some(ours), Some(theirs));
    let FromNode::Register(register) = reader.line().await? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    if register.name != name {
        return refuse(writer, format!("it proved to be \"{name}\" and speaks for another node")).await;
    }
    match heard::register(&register) {
        Ok(()) => Ok(register),
        Err(why) => {
            tracing::warn!(node = name, why, "a node is refused");
            refuse(writer, why).await
        }
    }
}

async fn refuse<T>(writer: &mut Writer, why: String) -> io::Result<T> {
    writer.say(&FromManager::Refused { why: why.clone() }).await?;
    Err(io::Error::other(why))
}

async fn listen(
    reader: &mut Reader,
    shared: &Shared,
    name: &str,
    session: u64,
    outbox: &mpsc::WeakSender<FromManager>,
) -> io::Result<()> {
    loop {
        let line = tokio::time::timeout(SILENCE, reader.line());
        let mut said = line.await.map_err(io::Error::other)??;
        if let Err(why) = heard::said(&said) {
            tracing::warn!(node = name, why, "a node is disconnected");
            return Ok(());
        }
        if let FromNode::Asks { asks } = &mut said {
            if let (Some(clocks), Some(outbox)) = (&shared.clocks, outbox.upgrade()) {
                let leads = clocks.answer(&shared.core, name, std::mem::take(asks)).await;
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
                FromNode::Hello { .. } | FromNode::Register(_) => return false,
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

async fn speak(writer: &mut Writer, mut inbox: mpsc::Receiver<FromManager>) -> io::Result<()> {
    loop {
        match tokio::time::timeout(LIFE, inbox.recv()).await {
            Ok(Some(what)) => writer.say(&what).await?,
            Ok(None) => return Ok(()),
            // Anything is a sign of life; a challenge asks for nothing once the node is welcome.
            Err(_) => writer.say(&FromManager::Challenge { version: VERSION, nonce: String::new() }).await?,
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
