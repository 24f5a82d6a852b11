//! What is measured: an NBD export, a file or a device, or a model in simulated time. All are asked the same way.

use crate::nbd::{Clock, Connection, Uri};
use anyhow::{Context, Result, anyhow, bail};
use henge_backend::{Buffer, EngineChoice, Options, Raw};
use henge_config::Source;
use henge_core::{Backend, Duration, FlowId, Instant, Model, Op, Request, RequestId, format_size};
use henge_device::DeviceSpec;
use henge_nbd::{Ask, proto};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::event::epoll;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Most requests in flight.
pub const DEPTH_MAX: u32 = 256;

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Something that takes requests and answers them.
pub trait Bench {
    /// Bytes it holds.
    fn capacity(&self) -> u64;
    /// Requests begin and end at multiples of it.
    fn block(&self) -> u64;
    /// The longest request.
    fn longest(&self) -> u64;
    fn now(&self) -> Instant;
    /// Sends a request under a number below [`DEPTH_MAX`] that is free.
    fn send(&mut self, number: u32, op: Op, offset: u64, len: u64) -> Result<()>;
    /// Waits until something is over; says which, and when.
    fn wait(&mut self, done: &mut Vec<(u32, Instant)>) -> Result<()>;
    /// Time passes at no cost, so that long measurements need only be bounded by their requests.
    fn simulated(&self) -> bool {
        false
    }
}

/// What `henge profile TARGET` names.
pub enum Target {
    Nbd(Uri),
    File(PathBuf),
    Model { text: String, spec: DeviceSpec },
}

impl Target {
    /// `nbd://…`, a path, a model's name or facts file, or a table like `{ raid0 = 4, stripe = "64KiB", disk = "st34501n" }`.
    pub fn parse(text: &str) -> Result<Target> {
        if text.contains("://") {
            return Ok(Target::Nbd(text.parse()?));
        }
        let path = Path::new(text);
        let facts = path.extension().is_some_and(|e| e == "json");
        if text.starts_with('{') || facts || henge_device::model_names().any(|name| name == text) {
            let written = if text.starts_with('{') { text.to_owned() } else { format!("\"{text}\"") };
            let source = Source::new("TARGET", format!("device = {written}"));
            let mut params = source.parse("the target")?;
            let files =
                |name: &str| std::fs::read_to_string(name).map_err(|e| format!("{name} cannot be read: {e}"));
            let spec = DeviceSpec::from_params(&mut params, "device", &files).map_err(|e| source.point(e))?;
            let spec = spec.expect("a device was just written there");
            return Ok(Target::Model { text: written, spec });
        }
        if path.is_dir() {
            bail!("{text} is a directory; name a file or a device in it");
        }
        if !path.exists() {
            let known: Vec<_> = henge_device::model_names().collect();
            bail!(
                "\"{text}\" is no NBD URI (nbd://host/export), no path that exists, and no model (there are {})",
                known.join(", ")
            );
        }
        Ok(Target::File(path.to_owned()))
    }

    /// Opens it; what people should know of how.
    pub fn open(&self, write: bool) -> Result<(Box<dyn Bench>, String)> {
        Ok(match self {
            Target::Nbd(uri) => {
                let export = Export::open(uri, write)?;
                (Box::new(export), "NBD".into())
            }
            Target::File(path) => {
                let options = Options {
                    direct: true,
                    engine: EngineChoice::Auto,
                    depth: DEPTH_MAX,
                    patience: std::time::Duration::ZERO, // whoever types it hears at once that the file is in use
                    ..Options::default()
                };
                let raw = Raw::open(path, write, options)?;
                let about = raw.describe();
                if raw.allocated() < raw.capacity() / 10 * 9 {
                    bail!(
                        "{} has holes: {} of its {} take room, and reads of holes touch no device; fill it first",
                        path.display(),
                        format_size(raw.allocated()),
                        format_size(raw.capacity())
                    );
                }
                (Box::new(Storage::new(raw)?), about)
            }
            Target::Model { spec, .. } => {
                let model = spec.build().into_model();
                (
                    Box::new(Simulated { model, now: Instant::ZERO, sent: 0 }),
                    "a model, in simulated time".into(),
                )
            }
        })
    }

    /// The lines of a `[[pool]]` that name the storage, where this names any.
    pub fn pool(&self) -> Vec<String> {
        match self {
            Target::Nbd(uri) => {
                vec![
                    format!("# behind {uri}; state what stands there:"),
                    "path = \"/srv/henge\"".into(),
                    "capacity = \"100GB\"".into(),
                ]
            }
            Target::File(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                vec![format!("device = {:?}", path.display().to_string())]
            }
            Target::Model { text, .. } => {
                vec!["memory = true".into(), format!("emulated = {text}")]
            }
        }
    }
}

/// A model, and time that jumps from event to event.
struct Simulated {
    model: Model,
    now: Instant,
    sent: u32,
}

impl Bench for Simulated {
    fn capacity(&self) -> u64 {
        self.model.capacity()
    }
    fn block(&self) -> u64 {
        512
    }
    fn longest(&self) -> u64 {
        u64::MAX
    }
    fn now(&self) -> Instant {
        self.now
    }
    fn send(&mut self, number: u32, op: Op, offset: u64, len: u64) -> Result<()> {
        self.sent = self.sent.wrapping_add(1);
        let id = RequestId { slot: number, generation: self.sent };
        self.model.submit(&Request::new(id, FlowId(0), op, offset, len, self.now), (), self.now);
        Ok(())
    }
    fn wait(&mut self, done: &mut Vec<(u32, Instant)>) -> Result<()> {
        while done.is_empty() {
            self.now =
                self.model.wake_at().expect("a model with requests has an event to come").max(self.now);
            while let Some(over) = self.model.reap(self.now) {
                over.outcome.map_err(|fault| anyhow!("the model answers: {fault}"))?;
                done.push((over.id.slot, self.now));
            }
        }
        Ok(())
    }
    fn simulated(&self) -> bool {
        true
    }
}

/// A file or a device.
struct Storage {
    raw: Raw,
    clock: Clock,
    wakes: OwnedFd,
    buffers: Vec<Buffer>,
    sent: u32,
}

impl Storage {
    fn new(raw: Raw) -> Result<Storage> {
        let wakes = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let fd = raw.event_fd();
        #[allow(unsafe_code)] // the engine gives the number of a descriptor that it owns
        // SAFETY: the engine keeps the descriptor open as long as `raw` lives, which is longer than this call.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&wakes, fd, epoll::EventData::new_u64(0), edges)?;
        Ok(Storage { raw, clock: Clock::start(), wakes, buffers: Vec::new(), sent: 0 })
    }
}

impl Bench for Storage {
    fn capacity(&self) -> u64 {
        self.raw.capacity()
    }
    fn block(&self) -> u64 {
        self.raw.block().max(512)
    }
    fn longest(&self) -> u64 {
        henge_backend::BUFFER_MAX as u64
    }
    fn now(&self) -> Instant {
        self.clock.now()
    }
    fn send(&mut self, number: u32, op: Op, offset: u64, len: u64) -> Result<()> {
        self.sent = self.sent.wrapping_add(1);
        let spare = self.buffers.iter().position(|b| b.capacity() as u64 >= len);
        let mut buffer = match spare {
            Some(i) => self.buffers.swap_remove(i),
            None => noise(len as usize),
        };
        buffer.set_len(len as usize);
        let id = RequestId { slot: number, generation: self.sent };
        let now = self.clock.now();
        self.raw.submit(&Request::new(id, FlowId(0), op, offset, len, now), buffer, now);
        Ok(())
    }
    fn wait(&mut self, done: &mut Vec<(u32, Instant)>) -> Result<()> {
        loop {
            while let Some(over) = self.raw.reap(self.clock.now()) {
                over.outcome.map_err(|fault| anyhow!("the storage answers: {fault}"))?;
                if self.buffers.len() < DEPTH_MAX as usize {
                    self.buffers.push(over.payload);
                }
                done.push((over.id.slot, self.clock.now()));
            }
            if !done.is_empty() {
                return Ok(());
            }
            let mut events =
                [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
            match epoll::wait(&self.wakes, &mut events, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(std::io::Error::from(e)).context("waiting for the storage"),
            }
        }
    }
}

/// Bytes without a pattern that a device could save itself.
fn noise(len: usize) -> Buffer {
    let mut buffer = Buffer::zeroed(len);
    Pcg64Mcg::seed_from_u64(1).fill_bytes(&mut buffer);
    buffer
}

/// An NBD export.
struct Export {
    connection: Connection,
    clock: Clock,
    /// By the client's slot: our number.
    numbers: Vec<u32>,
}

impl Export {
    fn open(uri: &Uri, write: bool) -> Result<Export> {
        let connection = Connection::open(uri)?;
        if write && connection.negotiated().flags & proto::flag::READ_ONLY != 0 {
            bail!("{uri} is read-only: its writes cannot be measured");
        }
        Ok(Export { connection, clock: Clock::start(), numbers: Vec::new() })
    }
}

impl Bench for Export {
    fn capacity(&self) -> u64 {
        self.connection.negotiated().size
    }
    fn block(&self) -> u64 {
        u64::from(self.connection.negotiated().block.least).max(512)
    }
    fn longest(&self) -> u64 {
        match self.connection.negotiated().block.most {
            0 => 32 << 20,
            most => u64::from(most),
        }
    }
    fn now(&self) -> Instant {
        self.clock.now()
    }
    fn send(&mut self, number: u32, op: Op, offset: u64, len: u64) -> Result<()> {
        let ask = if op == Op::Read { Ask::Read } else { Ask::Write };
        let len = u32::try_from(len).context("a request longer than NBD knows")?;
        let id = self.connection.client().send(ask, offset, len, false);
        if self.numbers.len() <= id.index() {
            self.numbers.resize(id.index() + 1, 0);
        }
        self.numbers[id.index()] = number;
        self.connection.flush()
    }
    fn wait(&mut self, done: &mut Vec<(u32, Instant)>) -> Result<()> {
        let begun = self.clock.now();
        while done.is_empty() {
            self.connection.flush()?;
            self.connection.wait(Some(PATIENCE))?;
            let (numbers, clock, mut failed) = (&self.numbers, self.clock, None);
            self.connection.reap(&mut |id: RequestId, outcome| {
                done.push((numbers[id.index()], clock.now()));
                failed = failed.or(outcome.err());
            })?;
            if let Some(error) = failed {
                bail!("the server answers a request with {error:?}");
            }
            if done.is_empty() && self.clock.now().since(begun) > PATIENCE {
                bail!("the server has not answered for {PATIENCE}");
            }
        }
        Ok(())
    }
}
