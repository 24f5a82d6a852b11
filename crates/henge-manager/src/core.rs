//! The one thread that runs the machine: store first, then answer.
//!
//! Whoever wants something sends a closure over the machine. The thread runs as many as have come, stores what they changed
//! in one batch, and then lets their answers out and their orders go. If storing fails, nobody gets an answer but "not
//! stored", and the machine is made anew from what is. Nodes stay connected.

use crate::machine::{BadState, Machine, Settings};
use crate::store::{Batch, Leadership, Store, StoreError};
use henge_api::manager::FromManager;
use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{oneshot, watch};

/// Between two looks at what is due.
const TICK: Duration = Duration::from_secs(1);
/// Most closures stored together.
const TOGETHER: usize = 256;
/// Messages to a node that may wait; a node that takes none is disconnected and comes again.
pub(crate) const OUTBOX: usize = 65_536;

/// The manager cannot answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unavailable {
    /// Another manager decides.
    #[error("this manager does not lead; {}", .0.as_ref().map_or("the leader is not known yet".to_owned(), |a| format!("ask {a}")))]
    NotLeader(Option<String>),
    /// The store failed; whether the change is kept is not known.
    #[error("the change could not be stored ({0}); look whether it was done, or ask again")]
    NotStored(String),
    /// It is ending.
    #[error("the manager is ending")]
    Ending,
}

/// Lets an answer out, or why there is none.
type Finish = Box<dyn FnOnce(Result<(), Unavailable>) + Send>;
/// Told why, in place of the machine, where there is none for it.
type Job = Box<dyn FnOnce(Result<&mut Machine, Unavailable>) -> Finish + Send>;

enum Message {
    Job(Job),
    /// Told when it is over.
    Stop(Sender<()>),
}

type Outboxes = Arc<Mutex<BTreeMap<(String, u64), tokio::sync::mpsc::Sender<FromManager>>>>;

/// Speaks to the thread; copies do, too.
#[derive(Clone)]
pub struct Core {
    messages: Sender<Message>,
    outboxes: Outboxes,
    version: watch::Receiver<u64>,
    leader: watch::Receiver<Leadership>,
}

struct Thread<S> {
    /// None while another manager leads, or the state cannot be read.
    machine: Option<Machine>,
    settings: Settings,
    store: S,
    outboxes: Outboxes,
    version: watch::Sender<u64>,
    leader: watch::Sender<Leadership>,
}

/// A manager that cannot decide is better gone: whoever watches the process starts it again, and nodes and callers notice.
struct EndsProcess;

impl Drop for EndsProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What it panicked about is on stderr already.
            eprintln!(
                "henge: the manager's core has failed; this is a bug. Nothing that was answered is lost"
            );
            std::process::abort();
        }
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Why a manager does not begin.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The store.
    #[error("the state cannot be read: {0}")]
    Store(#[from] StoreError),
    /// What it holds.
    #[error("the state cannot be read: {0}")]
    State(#[from] BadState),
    /// No thread.
    #[error("no thread for the core: {0}")]
    Io(#[from] std::io::Error),
}

impl Core {
    /// Loads the state and begins.
    pub fn start<S: Store + 'static>(settings: Settings, mut store: S) -> Result<Core, LoadError> {
        let leadership = store.leadership();
        let mut machine = None;
        if leadership == Leadership::Ours {
            machine = Some(Machine::load(settings.clone(), store.load()?)?);
        }
        if let Some(machine) = &mut machine {
            machine.at(now_ms());
        }
        let (messages, inbox) = mpsc::channel();
        let outboxes = Outboxes::default();
        let (version, seen) = watch::channel(0);
        let (leader, leads) = watch::channel(leadership);
        let thread = Thread { machine, settings, store, outboxes: Arc::clone(&outboxes), version, leader };
        std::thread::Builder::new().name("henge-core".into()).spawn(move || {
            let _ends = EndsProcess;
            thread.run(&inbox);
        })?;
        Ok(Core { messages, outboxes, version: seen, leader: leads })
    }

    /// Runs `f` on the machine; its answer, once everything that it changed is stored.
    pub async fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Machine) -> R + Send + 'static,
    ) -> Result<R, Unavailable> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |machine| {
            let result = machine.map(f);
            Box::new(move |stored| {
                // Whoever asked may have gone.
                let _ = answer.send(stored.and(result));
            })
        });
        self.messages.send(Message::Job(job)).map_err(|_| Unavailable::Ending)?;
        answered.await.map_err(|_| Unavailable::Ending)?
    }

    /// The same for threads that may wait.
    pub fn call_and_wait<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Machine) -> R + Send + 'static,
    ) -> Result<R, Unavailable> {
        let (answer, answered) = mpsc::channel();
        let job: Job = Box::new(move |machine| {
            let result = machine.map(f);
            Box::new(move |stored| {
                let _ = answer.send(stored.and(result));
            })
        });
        self.messages.send(Message::Job(job)).map_err(|_| Unavailable::Ending)?;
        answered.recv().map_err(|_| Unavailable::Ending)?
    }

    /// Changes whenever something that is stored has changed, or another manager leads.
    pub fn versions(&self) -> watch::Receiver<u64> {
        self.version.clone()
    }

    /// Who leads.
    pub fn leadership(&self) -> Leadership {
        self.leader.borrow().clone()
    }

    /// Changes with the leader.
    pub fn leaders(&self) -> watch::Receiver<Leadership> {
        self.leader.clone()
    }

    /// Ends the thread, once what was asked before is answered, and lets go of the store.
    pub fn stop(&self) {
        let (over, ended) = mpsc::channel();
        if self.messages.send(Message::Stop(over)).is_ok() {
            // A store that does not answer is not waited for.
            let _ = ended.recv_timeout(Duration::from_secs(5));
        }
    }

    pub(crate) fn connect(&self, node: &str, session: u64, outbox: tokio::sync::mpsc::Sender<FromManager>) {
        let mut outboxes = self.outboxes.lock().unwrap_or_else(PoisonError::into_inner);
        // An older connection of this node is over: its sender goes, and with it its task.
        outboxes.retain(|(name, _), _| name != node);
        outboxes.insert((node.to_owned(), session), outbox);
    }

    pub(crate) fn disconnect(&self, node: &str, session: u64) {
        let mut outboxes = self.outboxes.lock().unwrap_or_else(PoisonError::into_inner);
        outboxes.remove(&(node.to_owned(), session));
    }
}

impl<S: Store> Thread<S> {
    fn run(mut self, inbox: &Receiver<Message>) {
        let mut due = std::time::Instant::now() + TICK;
        let mut ticks = 0u64;
        loop {
            let wait = due.saturating_duration_since(std::time::Instant::now());
            let mut over = match inbox.recv_timeout(wait) {
                Ok(Message::Job(job)) => self.turn(job, inbox),
                Err(RecvTimeoutError::Timeout) => None,
                Ok(Message::Stop(over)) => Some(over),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if over.is_none() && std::time::Instant::now() >= due {
                due = std::time::Instant::now() + TICK;
                ticks += 1;
                over = self.tick(ticks, inbox);
            }
            if let Some(over) = over {
                drop(self.store);
                let _ = over.send(());
                return;
            }
        }
    }

    fn tick(&mut self, ticks: u64, inbox: &Receiver<Message>) -> Option<Sender<()>> {
        self.look_for_leader();
        if !ticks.is_multiple_of(3) || *self.leader.borrow() != Leadership::Ours {
            return None;
        }
        let remind = |machine: Result<&mut Machine, Unavailable>| -> Finish {
            let _ = machine.map(|machine| machine.outbox.remind(&machine.inventory));
            Box::new(|_| {})
        };
        self.turn(Box::new(remind), inbox)
    }

    fn look_for_leader(&mut self) {
        let leadership = self.store.leadership();
        let before = self.leader.borrow().clone();
        if leadership == before {
            return;
        }
        match &leadership {
            Leadership::Ours => {
                // The one before may have changed anything.
                tracing::info!("this manager leads");
                self.reload();
            }
            Leadership::Theirs(leader) => {
                let leader = leader.as_deref().unwrap_or("not known");
                tracing::info!(leader, "another manager leads");
                // Its nodes go to the leader; what they had told is the leader's business.
                self.outboxes.lock().unwrap_or_else(PoisonError::into_inner).clear();
            }
        }
        self.leader.send_replace(leadership);
        self.version.send_modify(|v| *v += 1);
    }

    /// The state, if it is ours to decide and can be read.
    fn deciding(&mut self) -> Result<&mut Machine, Unavailable> {
        if *self.leader.borrow() == Leadership::Ours && !self.store.leads() {
            self.look_for_leader();
        }
        if let Leadership::Theirs(address) = self.leader.borrow().clone() {
            return Err(Unavailable::NotLeader(address));
        }
        if self.machine.is_none() {
            self.reload();
        }
        let unread =
            || Unavailable::NotStored("the state cannot be read; the manager's log says more".into());
        self.machine.as_mut().ok_or_else(unread)
    }

    /// Runs a closure and those that wait behind it; who asked that this be the end, if somebody did.
    fn turn(&mut self, first: Job, inbox: &Receiver<Message>) -> Option<Sender<()>> {
        let machine = match self.deciding() {
            Ok(machine) => machine,
            Err(why) => {
                first(Err(why))(Ok(()));
                return None;
            }
        };
        machine.at(now_ms());
        let mut finishes = vec![first(Ok(machine))];
        let mut over = None;
        while finishes.len() < TOGETHER {
            match inbox.try_recv() {
                Ok(Message::Job(job)) => finishes.push(job(Ok(machine))),
                Ok(Message::Stop(told)) => {
                    over = Some(told);
                    break;
                }
                Err(_) => break,
            }
        }
        let batch = machine.take_batch();
        let orders = machine.take_orders().into_iter().map(|(node, order)| (node, FromManager::Order(order)));
        let drains = machine.take_drains().into_iter().map(|(node, on)| (node, FromManager::Drain { on }));
        let orders = drains.chain(orders).collect();
        // Who only looks changes nothing, and wakes nobody: else whoever waits for a change would wake itself by looking.
        let changes = !batch.is_empty();
        let stored = if changes { self.store.commit(&batch) } else { Ok(()) };
        match stored {
            // Nothing was stored that would have shown it: another one may have decided otherwise meanwhile, and nodes may be there already.
            Ok(()) if !changes && !self.store.leads() => {
                finishes.into_iter().for_each(|finish| finish(Err(Unavailable::NotLeader(None))));
            }
            Ok(()) => {
                self.send(orders);
                finishes.into_iter().for_each(|finish| finish(Ok(())));
            }
            Err(e) => {
                tracing::error!("the state could not be stored: {e}");
                self.go_back(&batch);
                let why = Unavailable::NotStored(e.to_string());
                finishes.into_iter().for_each(|finish| finish(Err(why.clone())));
            }
        }
        if changes {
            self.version.send_modify(|v| *v += 1);
        }
        over
    }

    /// Begins again from what is stored; nodes are disconnected, and come again.
    fn reload(&mut self) {
        self.outboxes.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.load();
    }

    /// A batch was not stored. Nodes stay connected, but for those whose own record was in it.
    fn go_back(&mut self, batch: &Batch) {
        let before = self.machine.take();
        self.load();
        let Some((machine, before)) = self.machine.as_mut().zip(before) else { return self.reload() };
        let mut outboxes = self.outboxes.lock().unwrap_or_else(PoisonError::into_inner);
        for over in machine.resume(before, batch) {
            outboxes.remove(&over);
        }
    }

    fn load(&mut self) {
        // What is in memory may never have been stored: better no answers than those.
        self.machine = None;
        let stored = self.store.load().map_err(LoadError::from);
        match stored.and_then(|stored| Ok(Machine::load(self.settings.clone(), stored)?)) {
            Ok(mut machine) => {
                machine.at(now_ms());
                self.machine = Some(machine);
            }
            Err(e) => tracing::error!("{e}"),
        }
    }

    fn send(&self, orders: Vec<(String, FromManager)>) {
        if orders.is_empty() {
            return;
        }
        let mut outboxes = self.outboxes.lock().unwrap_or_else(PoisonError::into_inner);
        for (node, order) in orders {
            let Some((key, outbox)) = outboxes.range((node.clone(), 0)..=(node, u64::MAX)).next() else {
                continue;
            };
            let key = key.clone();
            if outbox.try_send(order).is_err() {
                outboxes.remove(&key); // it comes again, and is sent everything anew
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Caller;
    use crate::store::MemoryStore;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn who_only_looks_wakes_nobody() {
        let core = Core::start(Settings::default(), MemoryStore::default()).unwrap();
        let mut versions = core.versions();
        core.call_and_wait(|machine| machine.disks().count()).unwrap();
        core.call_and_wait(|machine| machine.gone("n", 1)).unwrap();
        // What was answered before is over by now, and so is what it wakes.
        core.stop();
        assert!(!versions.has_changed().unwrap_or(false), "a look counts as a change");

        let core = Core::start(Settings::default(), MemoryStore::default()).unwrap();
        versions = core.versions();
        let quota = crate::tenant::Quota { disks: Some(1), ..Default::default() };
        let set = move |machine: &mut Machine| machine.set_quota(&Caller::Administrator, "ann", quota);
        core.call_and_wait(set).unwrap().unwrap();
        core.stop();
        assert_eq!(*versions.borrow_and_update(), 1);
    }

    /// In memory; takes nothing while it is full.
    #[derive(Clone, Default)]
    struct Disk {
        kept: MemoryStore,
        full: Arc<AtomicBool>,
    }

    impl Store for Disk {
        fn load(&mut self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
            self.kept.load()
        }
        fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
            match self.full.load(Ordering::Relaxed) {
                true => Err(StoreError("no space left on device".into())),
                false => self.kept.commit(batch),
            }
        }
    }

    /// A node with one pool.
    fn node(
        core: &Core,
        session: u64,
        name: &str,
        capacity: u64,
    ) -> tokio::sync::mpsc::Receiver<FromManager> {
        let (outbox, inbox) = tokio::sync::mpsc::channel(OUTBOX);
        core.connect(name, session, outbox);
        let pools = format!(r#"[{{"name":"p","capacity":{capacity},"copies":1,"scheduler":"sfq"}}]"#);
        let register = format!(r#"{{"name":"{name}","addresses":[],"pools":{pools},"disks":[]}}"#);
        let register = serde_json::from_str(&register).expect("a node");
        // Where that is not stored, its connection hears of it.
        let _ = core.call_and_wait(move |machine| machine.register(session, register));
        inbox
    }

    #[test]
    fn a_full_store_disconnects_no_node_but_the_one_that_was_to_be_stored() {
        let disk = Disk::default();
        let core = Core::start(Settings::default(), disk.clone()).unwrap();
        let mut a = node(&core, 1, "a", 1 << 30);
        let mut b = node(&core, 2, "b", 1 << 30);
        let quota = |core: &Core| {
            let quota = crate::tenant::Quota { disks: Some(1), ..Default::default() };
            core.call_and_wait(move |machine| machine.set_quota(&Caller::Administrator, "ann", quota))
        };
        disk.full.store(true, Ordering::Relaxed);
        for _ in 0..100 {
            assert!(matches!(quota(&core), Err(Unavailable::NotStored(_))));
        }
        let here = |core: &Core, name: &'static str, session| {
            core.call_and_wait(move |machine| machine.inventory.is_current(name, session)).unwrap()
        };
        assert!(here(&core, "a", 1) && here(&core, "b", 2), "both are known to be here");
        // One comes again with a larger pool, which is not stored: it is let go.
        let mut again = node(&core, 3, "b", 2 << 30);
        assert!(!here(&core, "b", 2) && !here(&core, "b", 3));
        let ended = |inbox: &mut tokio::sync::mpsc::Receiver<FromManager>| loop {
            match inbox.try_recv() {
                Ok(_) => {}
                Err(why) => return why == tokio::sync::mpsc::error::TryRecvError::Disconnected,
            }
        };
        assert!(!ended(&mut a), "it stays connected");
        assert!(ended(&mut b) && ended(&mut again));
        // It is sent what is decided once there is room again.
        disk.full.store(false, Ordering::Relaxed);
        quota(&core).unwrap().unwrap();
        let drained = core.call_and_wait(|machine| machine.drain("a", true));
        assert!(drained.is_ok());
        assert!(matches!(a.try_recv(), Ok(FromManager::Drain { on: true })));
        core.stop();
    }

    /// In memory; its lease runs out after so many looks at it.
    struct Leased(MemoryStore, Arc<std::sync::atomic::AtomicUsize>);

    impl Store for Leased {
        fn load(&mut self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
            self.0.load()
        }
        fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
            match self.1.load(Ordering::Relaxed) {
                0 => Err(StoreError("another manager has taken over".into())),
                _ => self.0.commit(batch),
            }
        }
        fn leads(&self) -> bool {
            self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        }
    }

    #[test]
    fn a_manager_whose_lease_runs_out_while_it_decides_sends_nothing() {
        let looks = Arc::new(std::sync::atomic::AtomicUsize::new(usize::MAX));
        let core = Core::start(Settings::default(), Leased(MemoryStore::default(), looks.clone())).unwrap();
        let mut a = node(&core, 1, "a", 1 << 30);
        core.call_and_wait(|machine| {
            let spec = crate::model::DiskSpec { capacity: "1MiB".into(), ..Default::default() };
            machine.create(&Caller::Administrator, "web", &spec, None, None).unwrap();
        })
        .unwrap();
        let orders = |inbox: &mut tokio::sync::mpsc::Receiver<FromManager>| {
            std::iter::from_fn(|| inbox.try_recv().ok())
                .filter(|m| matches!(m, FromManager::Order(_)))
                .count()
        };
        assert_eq!(orders(&mut a), 1);
        // It was not heard to be done, so it is said again.
        core.call_and_wait(Machine::remind).unwrap();
        assert_eq!(orders(&mut a), 1);
        looks.store(1, Ordering::Relaxed);
        assert!(matches!(core.call_and_wait(Machine::remind), Err(Unavailable::NotLeader(None))));
        assert_eq!(orders(&mut a), 0, "another manager may have given the disk to another node");
        looks.store(0, Ordering::Relaxed);
        let quota = crate::tenant::Quota { disks: Some(1), ..Default::default() };
        let refused =
            core.call_and_wait(move |machine| machine.set_quota(&Caller::Administrator, "ann", quota));
        assert!(matches!(refused, Err(Unavailable::NotStored(_))));
        core.stop();
    }

    /// Runs itself again: a core that panics ends its process, and not only its thread.
    #[test]
    fn a_core_that_fails_ends_the_process() {
        const AGAIN: &str = "HENGE_TEST_CORE_FAILS";
        if std::env::var_os(AGAIN).is_some() {
            let core = Core::start(Settings::default(), MemoryStore::default()).unwrap();
            let _ = core.call_and_wait(|_| panic!("a bug"));
            // The thread is about to end the process; where it does not, this ends with 0.
            return std::thread::sleep(Duration::from_secs(60));
        }
        let me = std::env::current_exe().unwrap();
        let name = "core::tests::a_core_that_fails_ends_the_process";
        let ended = std::process::Command::new(me)
            .args([name, "--exact", "--nocapture"])
            .env(AGAIN, "1")
            .output()
            .unwrap();
        assert!(!ended.status.success());
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("the manager's core has failed"), "{said}");
    }
}
