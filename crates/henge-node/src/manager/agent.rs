//! The thread that talks to the manager.

use super::config::ManagerConfig;
use super::connection::{Ends, PATIENCE, connect, ends, in_words};
use super::orders::{Hands, Heard, Node};
use crate::control::Control;
use crate::tags;
use henge_api::manager::{
    self as wire, FromManager, FromNode, HELLO_MAX, Held, LINE_MAX, Pool, Profile, Register, Seen, VERSION,
};
use henge_api::proof::{self, Said, Sealer, Side};
use henge_api::{Request, Status, decode_line, encode_line};
use henge_core::Histogram;
use henge_tls::{Role, TlsConfig};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Between two reports of meters.
const TICK: Duration = Duration::from_secs(1);
/// A connection on which nothing comes for so long is dead; managers say something every few seconds.
const SILENCE: Duration = Duration::from_secs(30);
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What a node says of itself that its status does not.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub addresses: Vec<String>,
    /// Where other nodes come.
    pub link: Option<String>,
    /// By pool: copies and profile.
    pub pools: BTreeMap<String, (u32, Option<Profile>)>,
}

/// The thread; it ends when this is dropped, and what it had done by others as well.
pub(crate) struct Agent {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
    hands: Arc<Hands>,
}

impl Agent {
    pub(crate) fn start(config: ManagerConfig, facts: Facts, control: Control) -> io::Result<Agent> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let hands = Arc::new(Hands::start(Node { control: control.clone(), name: config.name.clone() })?);
        let does = Arc::clone(&hands);
        let thread = std::thread::Builder::new()
            .name("henge-manager".into())
            .spawn(move || dial(&config, &facts, (&control, &does), &stopped))?;
        Ok(Agent { stop, thread: Some(thread), hands })
    }

    /// Says nothing more, and begins nothing more. What is under way ends with the loops, and is waited for when the hands are dropped.
    pub(crate) fn stop(mut self) -> Arc<Hands> {
        self.end();
        Arc::clone(&self.hands)
    }

    fn end(&mut self) {
        self.hands.end();
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.end();
    }
}

/// Comes back to a manager for ever; says once why it cannot, and once that it can again.
fn dial(config: &ManagerConfig, facts: &Facts, of: (&Control, &Hands), stop: &AtomicBool) {
    let (mut said, drained) = (BTreeMap::new(), AtomicBool::new(false));
    let mut pause = Duration::from_millis(100);
    // Of several managers another one may lead soon.
    let longest = if config.addresses.len() > 1 { TICK } else { PAUSE_MAX };
    while !stop.load(Ordering::Relaxed) {
        for address in &config.addresses {
            let mut welcomed = false;
            let outcome = converse(address, config, facts, (of.0, of.1, &drained), stop, &mut welcomed);
            if welcomed {
                pause = Duration::from_millis(100);
                said.clear();
            }
            let Err(why) = outcome else { return };
            let text = in_words(&why, config.proof.files());
            if said.get(address) != Some(&text) && !stop.load(Ordering::Relaxed) {
                eprintln!("henge: manager {address}: {text}; serving on without it");
                said.insert(address.clone(), text);
            }
        }
        std::thread::park_timeout(pause);
        pause = (pause * 2).min(longest);
    }
}

/// Lines go there from two threads, each sealed once both ends have proven themselves.
type Out = Arc<Mutex<Writer>>;

struct Writer {
    stream: BufWriter<Box<dyn Write + Send>>,
    sealer: Option<Sealer>,
    /// By what both ends speak.
    features: u64,
}

/// Lines come from there.
struct Reader {
    stream: BufReader<Box<dyn Read + Send>>,
    sealer: Option<Sealer>,
}

struct Conversation<'a> {
    control: &'a Control,
    hands: &'a Hands,
    out: Out,
    /// Latencies as counted when the last period ended.
    counted: BTreeMap<String, Histogram>,
    /// Commands at the last second, and most in one second of this period.
    seconds: BTreeMap<String, (u64, u64)>,
    /// Changes made here that the manager was told.
    told: BTreeMap<String, Held>,
    /// Where certificates say who this node is: the folder, and the key for which one was asked.
    identity: Option<(TlsConfig, Option<henge_tls::Request>)>,
    /// Looked at its time last.
    looked: Option<Instant>,
    /// What the manager said last of this node.
    drained: &'a AtomicBool,
}

/// One connection, from dialing to its end; `Ok` when the node stops.
fn converse(
    address: &str,
    config: &ManagerConfig,
    facts: &Facts,
    (control, hands, drained): (&Control, &Hands, &AtomicBool),
    stop: &AtomicBool,
    welcomed: &mut bool,
) -> io::Result<()> {
    let stream = connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let Ends { reader, writer, secret, identity } = ends(&stream, config)?;
    let mut reader = Reader { stream: BufReader::new(reader), sealer: None };
    let writer = Writer { stream: BufWriter::new(writer), sealer: None, features: 0 };
    let mut this = Conversation {
        control,
        hands,
        out: Arc::new(Mutex::new(writer)),
        counted: BTreeMap::new(),
        seconds: BTreeMap::new(),
        told: BTreeMap::new(),
        identity,
        looked: None,
        drained,
    };
    let (period, tags) = this.handshake(&mut reader, config, &secret, facts)?;
    *welcomed = true;
    eprintln!("henge: registered at the manager {address} as \"{}\"", config.name);
    stream.set_read_timeout(Some(SILENCE))?;
    let (heard, inbox) = mpsc::channel();
    hands.tell(Some(heard.clone()));
    let loop_ = control.clone();
    let listener = std::thread::Builder::new().name("henge-orders".into()).spawn(move || {
        loop {
            let said = match reader.line() {
                // At once: who waits for it does not wait long.
                Ok(FromManager::Leads { leads }) => {
                    loop_.leads(leads);
                    continue;
                }
                said => said,
            };
            let over = said.is_err();
            if heard.send(Heard::Said(said)).is_err() || over {
                return;
            }
        }
    })?;
    let teller = if tags { Some(tell_of_parts(control, &this.out)?) } else { None };
    let outcome = this.run(&inbox, period, stop);
    hands.tell(None);
    let _ = stream.shutdown(std::net::Shutdown::Both);
    drop(inbox);
    let _ = listener.join();
    if let Some(teller) = teller {
        control.relay(None);
        let _ = teller.join();
    }
    outcome
}

/// A thread that tells the manager of parts until the loop tells no more, or nobody listens.
fn tell_of_parts(control: &Control, out: &Out) -> io::Result<std::thread::JoinHandle<()>> {
    let (relay, queued) = tags::channel();
    let out = Arc::clone(out);
    let teller = move || {
        while let Some(asks) = tags::collect(&queued) {
            if say(&out, &FromNode::Asks { asks }).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("henge-tags".into()).spawn(teller)?;
    control.relay(Some(relay));
    Ok(thread)
}

/// Says it, if the manager understands it.
fn say(out: &Out, what: &FromNode) -> io::Result<()> {
    let mut line = encode_line(what);
    let Writer { stream, sealer, features } = &mut *out.lock().unwrap_or_else(PoisonError::into_inner);
    if what.feature() & !*features != 0 {
        return Ok(());
    }
    if let Some(sealer) = sealer {
        line = proof::sealed(sealer, &line);
    }
    stream.write_all(&line)?;
    stream.flush()
}

impl Reader {
    fn line(&mut self) -> io::Result<FromManager> {
        let most = if self.sealer.is_some() { LINE_MAX } else { HELLO_MAX };
        let mut line = Vec::new();
        let n = self.stream.by_ref().take(most as u64).read_until(b'\n', &mut line)?;
        if n == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up"));
        }
        let line = match &mut self.sealer {
            Some(sealer) => proof::opened(sealer, &line).ok_or_else(|| {
                let why = "what came is not what it sent: lines were changed, dropped or repeated on the way";
                io::Error::new(io::ErrorKind::InvalidData, why)
            })?,
            None => &line[..],
        };
        decode_line(line, most).map_err(|e| {
            io::Error::new(io::ErrorKind::InvalidData, format!("it does not speak as managers do: {e}"))
        })
    }
}

impl Conversation<'_> {
    fn say(&mut self, what: &FromNode) -> io::Result<()> {
        say(&self.out, what)
    }

    /// The period between two distributions, and whether the manager makes finish times.
    fn handshake(
        &mut self,
        reader: &mut Reader,
        config: &ManagerConfig,
        secret: &str,
        facts: &Facts,
    ) -> io::Result<(Duration, bool)> {
        let other = |why: &str| io::Error::other(why.to_owned());
        self.prove(reader, config, secret)?;
        let status = self.status()?;
        let register = Register {
            name: config.name.clone(),
            addresses: facts.addresses.clone(),
            link: facts.link.clone(),
            pools: pools(&status, facts),
            disks: self.held(&status),
            speaks: wire::speaks(),
        };
        self.say(&FromNode::Register(Box::new(register)))?;
        match reader.line()? {
            FromManager::Welcome { period_ms, tags, speaks } => {
                let features = wire::speaks().with(&speaks).map_err(io::Error::other)?;
                self.out.lock().unwrap_or_else(PoisonError::into_inner).features = features;
                if self.identity.is_some() && features & wire::feature::RENEWAL == 0 {
                    tracing::warn!(
                        "this manager does not renew certificates: upgrade it before this node's expires"
                    );
                }
                Ok((Duration::from_millis(period_ms.clamp(100, 86_400_000)), tags))
            }
            FromManager::Refused { why } => Err(other(&why)),
            _ => Err(other("it does not answer as managers do")),
        }
    }

    /// Both ends prove themselves, this one first; from then on lines are sealed.
    fn prove(&mut self, reader: &mut Reader, config: &ManagerConfig, secret: &str) -> io::Result<()> {
        let other = |why: String| io::Error::other(why);
        let FromManager::Challenge { version, nonce } = reader.line()? else {
            return Err(other("it does not begin as managers do".into()));
        };
        if version != VERSION {
            return Err(other(format!(
                "it speaks version {version}, this node {VERSION}: install one release on both, the manager first"
            )));
        }
        let mine = nonce_of_our_own()?;
        let said = Said { manager: &nonce, node: &mine, name: &config.name };
        self.say(&FromNode::Hello {
            version: VERSION,
            name: config.name.clone(),
            nonce: mine.clone(),
            proof: proof::prove(secret, Side::Node, said),
        })?;
        match reader.line()? {
            FromManager::Proven { proof } if proof::holds(&proof, secret, Side::Manager, said) => {}
            FromManager::Proven { .. } => {
                return Err(other("it does not know this cluster's secret".into()));
            }
            FromManager::Refused { why } => return Err(other(why)),
            _ => return Err(other("it does not answer as managers do".into())),
        }
        let keys = proof::keys(secret, Side::Node, said);
        reader.sealer = Some(keys.theirs);
        self.out.lock().unwrap_or_else(PoisonError::into_inner).sealer = Some(keys.ours);
        Ok(())
    }

    fn run(&mut self, inbox: &Receiver<Heard>, period: Duration, stop: &AtomicBool) -> io::Result<()> {
        let mut tick = Instant::now() + TICK;
        let mut began = Instant::now();
        self.period(0.0)?;
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            // Short enough that a node which stops does not wait for its agent.
            let wait = tick.saturating_duration_since(Instant::now()).min(Duration::from_millis(200));
            match inbox.recv_timeout(wait) {
                Ok(Heard::Said(said)) => self.hear(said?)?,
                Ok(Heard::Done { name, revision, error }) => {
                    self.told.remove(&name);
                    self.say(&FromNode::Done { name, revision, error })?;
                }
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("it hung up")),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() >= tick {
                tick = Instant::now() + TICK;
                self.tick()?;
                if began.elapsed() >= period {
                    self.period(began.elapsed().as_secs_f64())?;
                    began = Instant::now();
                }
            }
        }
    }

    fn hear(&mut self, said: FromManager) -> io::Result<()> {
        match said {
            FromManager::Order(order) => self.hands.take(order),
            FromManager::Drain { on } => self.drain(on)?,
            FromManager::Trust(trust) => self.believe(&trust),
            FromManager::Certificate { certificate } => self.renewed(&certificate),
            _ => {} // a sign of life
        }
        Ok(())
    }

    fn status(&self) -> io::Result<Status> {
        self.control.status().map_err(io::Error::other)
    }

    /// Whom the cluster believes from now on.
    fn believe(&mut self, trust: &wire::Trust) {
        // Another root may sign from now on.
        self.looked = None;
        let Some((TlsConfig { identity: Some(dir), .. }, _)) = &self.identity else { return };
        if let Err(e) = henge_tls::believe(dir, Role::Node, &trust.ca, &trust.revoked) {
            tracing::warn!("who is believed cannot be remembered: {e}");
        }
    }

    /// A new certificate came, for the key that waits for it.
    fn renewed(&mut self, certificate: &str) {
        let Some((TlsConfig { identity: Some(dir), .. }, asked)) = &mut self.identity else { return };
        let Some(request) = asked.take() else { return };
        match henge_tls::keep(dir, Role::Node, &request.key, certificate) {
            Ok(()) => tracing::info!("this node's certificate was renewed"),
            Err(e) => tracing::warn!("this node's new certificate cannot be kept: {e}"),
        }
    }

    /// Asks for a new certificate when two thirds of the old one's time are over, or another root signs.
    fn renew(&mut self) -> io::Result<()> {
        const LOOK: Duration = Duration::from_secs(60);
        let Some((files, asked)) = &mut self.identity else { return Ok(()) };
        if self.looked.is_some_and(|at| at.elapsed() < LOOK) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let Some(dir) = &files.identity else { return Ok(()) };
        if henge_tls::is_due(dir, i64::try_from(now).unwrap_or(i64::MAX)).map_err(io::Error::other)? {
            let request = henge_tls::Request::new().map_err(io::Error::other)?;
            let pem = request.pem.clone();
            *asked = Some(request);
            self.say(&FromNode::Renew { request: pem })?;
        }
        Ok(())
    }

    /// Meters, and what was changed here.
    fn tick(&mut self) -> io::Result<()> {
        self.renew()?;
        let meters = self.control.meters().map_err(io::Error::other)?;
        for disk in &meters.disks {
            let (last, peak) = self.seconds.entry(disk.name.clone()).or_insert((disk.meters.commands, 0));
            *peak = (*peak).max(disk.meters.commands.saturating_sub(*last));
            *last = disk.meters.commands;
        }
        if self.control.was_changed_here() {
            let status = self.status()?;
            let changed = self.held(&status).into_iter().filter(|h| h.changed && h.revision.is_some());
            for held in changed.collect::<Vec<_>>() {
                if self.told.get(&held.name) != Some(&held) {
                    self.told.insert(held.name.clone(), held.clone());
                    self.say(&FromNode::Changed { held })?;
                }
            }
        }
        self.say(&FromNode::Stats { status: Box::new(Status::clone(&meters)) })
    }

    /// What was answered since the last period; the first time only counts from where.
    fn period(&mut self, seconds: f64) -> io::Result<()> {
        let meters = self.control.meters().map_err(io::Error::other)?;
        let mut disks = Vec::new();
        let mut counted = BTreeMap::new();
        for disk in &meters.disks {
            let now = disk.meters.histogram.as_ref().map_or_else(Histogram::default, Histogram::from);
            // Meters that were reset begin anew.
            let then = self.counted.get(&disk.name).filter(|then| then.count() <= now.count());
            let fresh = then.map_or_else(|| now.clone(), |then| now.since(then));
            let peak = self.seconds.get_mut(&disk.name).map_or(0, |(_, peak)| std::mem::take(peak));
            let latency = fresh.buckets().map(|(edge, n)| (edge.as_nanos(), n)).collect();
            disks.push(Seen { name: disk.name.clone(), commands: fresh.count(), peak, latency });
            counted.insert(disk.name.clone(), now);
        }
        self.seconds.retain(|name, _| counted.contains_key(name));
        self.counted = counted;
        if seconds > 0.0 { self.say(&FromNode::Period { seconds, disks }) } else { Ok(()) }
    }

    /// Every disk as it is, with the order that made it.
    fn held(&self, status: &Status) -> Vec<Held> {
        let memory = self.control.memory();
        let one = |disk: &henge_api::DiskStatus| {
            let kept = memory.disks.get(&disk.name);
            Held {
                name: disk.name.clone(),
                pools: if disk.layout.places.is_empty() {
                    disk.layout.pools.clone()
                } else {
                    disk.layout.places.clone()
                },
                capacity: disk.capacity,
                contract: disk.contract.clone(),
                revision: kept.and_then(|k| k.revision),
                changed: kept.is_some_and(|k| k.changed),
                gateways: disk.seating.gateways.clone(),
            }
        };
        status.disks.iter().map(one).collect()
    }

    /// A manager that says again what it said before undoes nothing that somebody did here meanwhile.
    fn drain(&mut self, on: bool) -> io::Result<()> {
        let drained = self.drained.swap(on, Ordering::Relaxed);
        if on || drained {
            self.control.ask(Request::Drain { on }).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

fn pools(status: &Status, facts: &Facts) -> Vec<Pool> {
    let one = |pool: &henge_api::PoolStatus| {
        let (copies, profile) = facts.pools.get(&pool.name).copied().unwrap_or((1, None));
        Pool {
            name: pool.name.clone(),
            capacity: pool.capacity,
            copies,
            scheduler: pool.scheduler.clone(),
            keeps: pool.keeps.clone(),
            profile,
            shared: pool.shared.clone(),
        }
    };
    status.pools.iter().map(one).collect()
}

fn nonce_of_our_own() -> io::Result<String> {
    let mut bytes = [0u8; 32];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(wire::hex(&bytes))
}
