//! Connections of nodes: a line of JSON each way, a task each.

#[cfg(test)]
mod tests;
mod told;

use crate::authority::Authority;
use crate::core::{Core, OUTBOX, Unavailable};
use crate::heard;
use crate::store::Leadership;
use crate::tags::Clocks;
use henge_api::manager::{FromManager, FromNode, HELLO_MAX, LINE_MAX, Register, VERSION, speaks};
use henge_api::proof::{self, Keys, Said, Sealer, Side};
use henge_tls::{Identity, OncePerSecond, Role, Tls, names, serial_of};
use henge_web::Places;
use rustls_pki_types::CertificateDer;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use told::Told;

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
/// Of these, connections of one address: who takes its own places takes nobody else's. Where several addresses take all, a newcomer has one of theirs.
const STRANGERS_EACH: usize = 64;
/// Most characters in the log of a name that nobody has proven to have.
const NAME_SHOWN: usize = 64;

/// How nodes prove who they are.
pub(crate) enum Doors {
    /// All know one secret.
    Secret(String),
    /// Each shows its certificate, by TLS.
    Certificates { tls: Arc<Tls>, authority: Authority },
}

/// Of a node that came by TLS.
struct Proof<'a> {
    tls: &'a Tls,
    authority: &'a Authority,
    name: String,
    serial: String,
    chain: Vec<CertificateDer<'static>>,
    /// What both ends of this connection know, and nobody else.
    secret: String,
}

/// What all connections share.
pub(crate) struct Shared {
    pub core: Core,
    pub doors: Doors,
    pub period_ms: u64,
    /// Most bytes that the store takes in one value.
    pub value_max: usize,
    /// Where finish times are made here: the clocks.
    pub clocks: Option<Clocks>,
    sessions: AtomicU64,
    open: AtomicUsize,
    strangers: Arc<Places>,
    told: OncePerSecond,
}

impl Shared {
    pub(crate) fn new(
        core: Core,
        doors: Doors,
        (period_ms, value_max): (u64, usize),
        central_tags: bool,
    ) -> Self {
        let clocks = central_tags.then(Clocks::default);
        let strangers = Places::new(STRANGERS_MAX, STRANGERS_EACH);
        let (sessions, open) = (AtomicU64::new(1), AtomicUsize::new(0));
        let told = OncePerSecond::default();
        Shared { core, doors, period_ms, value_max, clocks, sessions, open, strangers, told }
    }

    /// Tells the operator of somebody who is not let in, or not let on.
    fn tell(&self, what: impl FnOnce()) {
        if self.told.is_due(SystemTime::now()) {
            what();
        }
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
    stream: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    sealer: Option<Sealer>,
}

struct Writer {
    stream: Box<dyn AsyncWrite + Send + Unpin>,
    sealer: Option<Sealer>,
    /// By what both ends speak.
    features: u64,
}

impl Writer {
    /// Says it, if the node understands it.
    async fn say(&mut self, what: &FromManager) -> io::Result<()> {
        if what.feature() & !self.features != 0 {
            return Ok(());
        }
        let mut line = henge_api::encode_line(what);
        if let Some(sealer) = &mut self.sealer {
            line = proof::sealed(sealer, &line);
        }
        let written = async {
            self.stream.write_all(&line).await?;
            self.stream.flush().await
        };
        tokio::time::timeout(HANDSHAKE, written).await.map_err(io::Error::other)?
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
    let Ok(place) = shared.strangers.enter(stream.peer_addr()?) else { return Ok(()) };
    let (mut reader, mut writer, proof, register) = tokio::select! {
        proven = prove(stream, shared) => proven?,
        () = place.sent_away() => return Ok(()),
    };
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
            let welcome = FromManager::Welcome { period_ms: shared.period_ms, tags, speaks: speaks() };
            match writer.say(&welcome).await {
                Ok(()) => tokio::select! {
                    outcome = listen(&mut reader, shared, &name, session, &leads, proof.as_ref()) => outcome,
                    outcome = speak(&mut writer, inbox, proof.as_ref()) => outcome,
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

/// A connection whose other end has proven who it is.
async fn prove(
    stream: TcpStream,
    shared: &Shared,
) -> io::Result<(Reader, Writer, Option<Proof<'_>>, Box<Register>)> {
    let (reader, writer, proof) = tokio::time::timeout(HANDSHAKE, enter(stream, shared)).await??;
    let mut reader = Reader { stream: BufReader::new(reader), sealer: None };
    let mut writer = Writer { stream: writer, sealer: None, features: 0 };
    let hello = tokio::time::timeout(HANDSHAKE, handshake(&mut reader, &mut writer, shared, proof.as_ref()));
    let register = hello.await.map_err(io::Error::other)??;
    Ok((reader, writer, proof, register))
}

type Ends<'a> = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>, Option<Proof<'a>>);

/// The connection's two ends; by TLS where certificates say who nodes are.
async fn enter(stream: TcpStream, shared: &Shared) -> io::Result<Ends<'_>> {
    let Doors::Certificates { tls, authority } = &shared.doors else {
        let (reader, writer) = stream.into_split();
        return Ok((Box::new(reader), Box::new(writer), None));
    };
    let accepted = TlsAcceptor::from(tls.server()).accept(stream).await;
    let stream = accepted.inspect_err(|e| {
        if let Some(why) = e.get_ref().and_then(|why| why.downcast_ref()) {
            tls.tell(why);
        }
    })?;
    let connection = stream.get_ref().1;
    let chain = connection.peer_certificates().unwrap_or_default().to_vec();
    let exported = connection.export_keying_material([0u8; 32], proof::EXPORTER, None);
    let secret = henge_api::manager::hex(&exported.map_err(io::Error::other)?);
    let own = chain.first().ok_or(io::ErrorKind::PermissionDenied)?;
    let who = Identity::of(&names(own)).filter(|who| who.role == Role::Node);
    let Some(Identity { name, .. }) = who else {
        shared.tell(|| tracing::warn!("somebody whose certificate is no node's came where nodes come"));
        return Err(io::ErrorKind::PermissionDenied.into());
    };
    let serial = serial_of(own).unwrap_or_default();
    let proof = Proof { tls, authority, name, serial, chain, secret };
    let (reader, writer) = tokio::io::split(stream);
    Ok((Box::new(reader), Box::new(writer), Some(proof)))
}

/// Who it is, and what it has. Nothing is believed, and little is read, of who has not proven to know the secret.
async fn handshake(
    reader: &mut Reader,
    writer: &mut Writer,
    shared: &Shared,
    certificate: Option<&Proof<'_>>,
) -> io::Result<Box<Register>> {
    let secret = match (&shared.doors, certificate) {
        (Doors::Secret(secret), _) => secret,
        (Doors::Certificates { .. }, Some(proof)) => &proof.secret,
        (Doors::Certificates { .. }, None) => return Err(io::ErrorKind::PermissionDenied.into()),
    };
    let nonce = crate::tokens::random_text()?;
    writer.say(&FromManager::Challenge { version: VERSION, nonce: nonce.clone() }).await?;
    let FromNode::Hello { version, name, nonce: theirs, proof } = reader.line().await? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let said = Said { manager: &nonce, node: &theirs, name: &name };
    let holds = proof::holds(&proof, secret, Side::Node, said);
    if let Some(why) = refusal(shared, version, &name, holds, certificate) {
        return refuse(shared, writer, &name, why).await;
    }
    let proof = proof::prove(secret, Side::Manager, said);
    writer.say(&FromManager::Proven { proof }).await?;
    let Keys { ours, theirs } = proof::keys(secret, Side::Manager, said);
    (writer.sealer, reader.sealer) = (Some(ours), Some(theirs));
    let FromNode::Register(register) = reader.line().await? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    if register.name != name {
        return refuse(
            shared,
            writer,
            &name,
            format!("it proved to be \"{name}\" and speaks for another node"),
        )
        .await;
    }
    match speaks().with(&register.speaks) {
        Ok(features) => writer.features = features,
        Err(lack) => {
            return refuse(shared, writer, &name, format!("the manager refuses node \"{name}\": {lack}"))
                .await;
        }
    }
    match heard::register(&register).and_then(|()| heard::storable(&register, shared.value_max)) {
        Ok(()) => Ok(register),
        Err(why) => refuse(shared, writer, &name, why).await,
    }
}

/// Why a node that has said who it is may not come, if so. `proven`: it knows the secret.
fn refusal(
    shared: &Shared,
    version: u32,
    name: &str,
    proven: bool,
    certificate: Option<&Proof<'_>>,
) -> Option<String> {
    if version != VERSION {
        Some(format!(
            "this manager speaks version {VERSION}, the node {version}: install one release on both, the manager first"
        ))
    } else if !proven {
        Some("the node does not know this cluster's secret; compare `secret` on both".into())
    } else if let Some(certificate) = certificate.filter(|certificate| certificate.name != name) {
        let shown = &certificate.name;
        Some(format!(
            "its certificate is node \"{shown}\"'s: write name = \"{shown}\" into [manager], or join again under its name"
        ))
    } else if !henge_api::is_name(name) {
        Some("the node's name is no name".into())
    } else if let Leadership::Theirs(leader) = shared.core.leadership() {
        Some(Unavailable::NotLeader(leader).to_string())
    } else {
        None
    }
}

/// The name is what somebody says: in the log it is quoted, and cut.
async fn refuse<T>(shared: &Shared, writer: &mut Writer, name: &str, why: String) -> io::Result<T> {
    let name: String = name.chars().take(NAME_SHOWN).collect();
    shared.tell(|| tracing::warn!(node = ?name, why, "a node is refused"));
    writer.say(&FromManager::Refused { why: why.clone() }).await?;
    Err(io::Error::other(why))
}

async fn listen(
    reader: &mut Reader,
    shared: &Shared,
    name: &str,
    session: u64,
    outbox: &mpsc::WeakSender<FromManager>,
    proof: Option<&Proof<'_>>,
) -> io::Result<()> {
    loop {
        let line = tokio::time::timeout(SILENCE, reader.line());
        let mut said = line.await.map_err(io::Error::other)??;
        if let Err(why) = heard::said(&said) {
            shared.tell(|| tracing::warn!(node = name, why, "a node is disconnected"));
            return Ok(());
        }
        if let FromNode::Renew { request } = said {
            // Its own name again, and nobody else's.
            let (Some(proof), Some(outbox)) = (proof, outbox.upgrade()) else { return Ok(()) };
            match proof.authority.renew(&proof.serial, request).await {
                Ok(signed) => {
                    let _ = outbox.try_send(FromManager::Trust(signed.trust));
                    let _ = outbox.try_send(FromManager::Certificate { certificate: signed.certificate });
                }
                Err(why) => {
                    shared.tell(|| tracing::warn!(node = name, "its certificate is not renewed: {why}"));
                }
            }
            continue;
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
        let again = is_said_again(&said);
        let heard = shared.core.call(move |machine| heard::hear(machine, &node, session, said));
        match heard.await {
            Ok(true) => {}
            Err(Unavailable::NotStored(_)) if again => {}
            // What was not stored is said again when the node comes again.
            Ok(false) | Err(_) => return Ok(()),
        }
    }
}

/// Whether a node that stays connected says it again: meters come each second, and what was not confirmed is ordered again every few seconds.
fn is_said_again(said: &FromNode) -> bool {
    matches!(said, FromNode::Stats { .. } | FromNode::Period { .. } | FromNode::Done { .. })
}

async fn speak(
    writer: &mut Writer,
    mut inbox: mpsc::Receiver<FromManager>,
    proof: Option<&Proof<'_>>,
) -> io::Result<()> {
    let (mut told, mut turn) = (Told::default(), proof.map(|proof| proof.tls.turn()));
    loop {
        if let Some(proof) = proof {
            if turn != Some(proof.tls.turn()) {
                turn = Some(proof.tls.turn());
                // One that was revoked, or has expired, is a stranger's.
                proof.tls.still(&proof.chain, SystemTime::now()).map_err(io::Error::other)?;
            }
            if let Some(trust) = told.news(proof.authority, Instant::now()).await {
                writer.say(&FromManager::Trust(trust)).await?;
            }
        }
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
