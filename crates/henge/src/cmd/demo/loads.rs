//! The three tenants: a thread and an NBD connection each.

use crate::nbd::{Clock, Connection, Load, Sent, Uri};
use anyhow::{Context, Result, anyhow, bail};
use henge_config::Source;
use henge_core::{Duration, Histogram, Instant};
use henge_node::Address;
use henge_workload::{Records, Spec, Trace};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Requests of the first seconds fill queues; they are not counted.
const WARM_UP: Duration = Duration::from_secs(2);

/// What a tenant was promised, in numbers.
#[derive(Clone, Copy, Debug)]
pub enum Promise {
    /// Nothing: it gets what is left.
    BestEffort,
    /// So much of all requests within a bound.
    Within(Duration, f64),
    /// Requests a second.
    Rate(f64),
}

/// One virtual disk and what is asked of it.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The disk.
    pub name: &'static str,
    /// In words.
    pub promise: &'static str,
    /// In numbers.
    pub kept_if: Promise,
    /// What its load is, one line.
    pub label: String,
    spec: Spec,
    trace: Option<PathBuf>,
    seed: u64,
    stream: u64,
}

impl Tenant {
    fn new(
        name: &'static str,
        promise: &'static str,
        kept_if: Promise,
        workload: &str,
        stream: u64,
    ) -> Result<Self> {
        let source = Source::new("the demo", format!("workload = {workload}"));
        let mut params = source.parse("the demo")?;
        let table = params.table("workload").map_err(|e| source.point(e))?.context("a workload")?;
        let spec = Spec::from_params(table).map_err(|e| source.point(e))?;
        let label = spec.label().to_owned();
        Ok(Tenant { name, promise, kept_if, label, spec, trace: None, seed: 1, stream })
    }

    fn records(&self) -> Result<Option<Records>> {
        let (Some(path), Some(trace)) = (&self.trace, self.spec.trace()) else { return Ok(None) };
        let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
        let name = path.display().to_string();
        let trace = Trace::open(&name, Box::new(file), &trace.options).map_err(|e| anyhow!("{e}"))?;
        Ok(Some(Box::new(trace)))
    }
}

/// The tenants of Stonehenge's Table 1. VD1 offers about 75 requests a second in bursts, less than its 128; VD2 offers
/// more than its 675; VD0 takes whatever it can get.
pub fn tenants(traces: Option<&Path>, seed: u64) -> Result<Vec<Tenant>> {
    let (financial, websearch) = match traces {
        None => (
            "{ preset = \"financial\", speed = 1.25, span = \"515MB\" }".to_owned(),
            "{ preset = \"websearch\", rate = \"900/s\", outstanding = 32, span = \"17.9GB\" }".to_owned(),
        ),
        Some(folder) => (
            format!("{{ {}, speed = 1.25, place = \"wrap\" }}", recorded(folder, "financial1")?),
            format!("{{ {}, speed = 2.0, window = 32, place = \"wrap\" }}", recorded(folder, "websearch1")?),
        ),
    };
    let within = Promise::Within(Duration::from_millis(120), 0.95);
    let mut tenants = vec![
        Tenant::new(
            "VD0",
            "nothing (best effort)",
            Promise::BestEffort,
            "{ preset = \"tpc-c\", outstanding = 64 }",
            0,
        )?,
        Tenant::new("VD1", "128/s, 95 % within 120 ms", within, &financial, 1)?,
        Tenant::new("VD2", "675/s", Promise::Rate(675.0), &websearch, 2)?,
    ];
    for tenant in &mut tenants {
        tenant.seed = seed;
        tenant.trace = tenant.spec.trace().map(|t| PathBuf::from(&t.file));
    }
    Ok(tenants)
}

/// How to read the trace whose name begins so. Some published copies count sizes in pages of 4 KiB, which nothing in the
/// file tells but its name.
fn recorded(folder: &Path, begins: &str) -> Result<String> {
    let path = find(folder, begins)?;
    let in_pages = path.to_string_lossy().contains("4kpages");
    Ok(format!("trace = {path:?}{}", if in_pages { ", size_unit = \"4KiB\"" } else { "" }))
}

/// The first file of a folder whose name begins so.
fn find(folder: &Path, begins: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut names: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
    names.sort();
    let is_wanted = |p: &&PathBuf| {
        p.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.to_lowercase().starts_with(begins))
    };
    match names.iter().find(is_wanted) {
        Some(path) => Ok(path.clone()),
        None => bail!("{}: there is no trace whose name begins with \"{begins}\"", folder.display()),
    }
}

/// What one tenant received.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Completed in the time that counts.
    pub completed: u64,
    /// Completed altogether, for the live table.
    pub so_far: u64,
    /// Failed.
    pub failed: u64,
    /// Of the requests that count.
    pub latency: Histogram,
    /// Of them within the promised bound.
    pub in_bound: u64,
    /// The time that counts.
    pub time: Duration,
}

impl Measured {
    /// Requests a second.
    pub fn rate(&self) -> f64 {
        self.completed as f64 / self.time.as_secs_f64()
    }
    /// Share within the promised bound; 1 where none is promised.
    pub fn share_in_bound(&self) -> f64 {
        if self.latency.count() == 0 { 1.0 } else { self.in_bound as f64 / self.latency.count() as f64 }
    }
    /// Whether what was promised was received.
    pub fn kept(&self, promise: Promise) -> Option<bool> {
        match promise {
            Promise::BestEffort => None,
            Promise::Within(_, share) => Some(self.share_in_bound() >= share),
            Promise::Rate(rate) => Some(self.rate() >= rate),
        }
    }
}

type Driver = JoinHandle<Result<()>>;

/// All tenants under way.
pub struct Running {
    clock: Clock,
    threads: Vec<(Driver, Arc<Mutex<Measured>>)>,
}

/// Connects everybody, then lets them go together.
pub fn start(tenants: &[Tenant], address: &Address, each: Duration) -> Result<Running> {
    let mut ready = Vec::new();
    for tenant in tenants {
        let uri: Uri = address.uri(tenant.name).parse().map_err(|e| anyhow!("{e}"))?;
        ready.push((tenant, Connection::open(&uri)?));
    }
    let clock = Clock::start();
    let mut threads = Vec::new();
    for (tenant, connection) in ready {
        let size = connection.negotiated().size;
        let workload = tenant
            .spec
            .build(size, tenant.seed, tenant.stream, tenant.records()?)
            .map_err(|e| anyhow!("{e}"))?;
        let measured = Arc::new(Mutex::new(Measured { time: each, ..Measured::default() }));
        let (kept, promise) = (measured.clone(), tenant.kept_if);
        let thread = std::thread::Builder::new().name(tenant.name.into()).spawn(move || {
            let (from, to) = (Instant::ZERO + WARM_UP, Instant::ZERO + WARM_UP + each);
            Load::new(connection, workload, clock).run(to, |sent| {
                kept.lock().expect("nobody panics while counting").count(sent, promise, from, to);
            })
        })?;
        threads.push((thread, measured));
    }
    Ok(Running { clock, threads })
}

impl Measured {
    fn count(&mut self, sent: &Sent, promise: Promise, from: Instant, to: Instant) {
        self.so_far += 1;
        self.failed += u64::from(sent.outcome.is_err());
        if sent.done >= from && sent.done < to {
            self.completed += 1;
        }
        if sent.record.at >= from && sent.record.at < to {
            self.latency.record(sent.latency());
            self.in_bound += match promise {
                Promise::Within(bound, _) => u64::from(sent.latency() <= bound),
                Promise::BestEffort | Promise::Rate(_) => 1,
            };
        }
    }
}

impl Running {
    /// Whether all have ended.
    pub fn are_over(&self) -> bool {
        self.threads.iter().all(|(thread, _)| thread.is_finished())
    }
    /// Since they began, and what each has received so far.
    pub fn progress(&self) -> (Instant, Vec<Measured>) {
        let copy = |m: &Arc<Mutex<Measured>>| m.lock().expect("nobody panics while counting").clone();
        (self.clock.now(), self.threads.iter().map(|(_, m)| copy(m)).collect())
    }
    /// What each received.
    pub fn finish(self) -> Result<Vec<Measured>> {
        let (_, measured) = self.progress();
        for (thread, _) in self.threads {
            thread.join().map_err(|_| anyhow!("a load generator panicked"))??;
        }
        Ok(measured)
    }
}
