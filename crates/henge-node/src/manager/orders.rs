//! What a manager orders is done here, beside the conversation with it.
//!
//! # The problem
//! Making a disk on a device may take hours. Done by whoever talks to the manager, it would leave the node silent, and silent nodes count as gone. A
//! node that is to stop would wait for it, too.
//!
//! # The rule
//! Orders of several disks are carried out side by side, those of one disk one after another. Of one disk the latest order waits. What
//! may take long goes one after another in each pool, where it would have to wait anyhow, and has all hands but one. So orders of other
//! tenants' disks do not wait for it, nor do those of other pools. Tenants have turns: a hand takes an order of whoever has the fewest under way,
//! and of these the one whose last began first. So nobody waits behind the thousand disks that another tenant has made and removed.
//!
//! What was begun is finished whoever talks to the manager by then, and the manager of that time is told. What waits when a conversation
//! ends is forgotten: a manager says again what it has not heard to be done. An order that is said again while it is carried out is done once more
//! afterwards, and finds it done.

use super::wanted;
use crate::control::Control;
use crate::state::Origin;
use henge_api::manager::{FromManager, Order, Want};
use henge_api::{DiskStatus, Request, Terms};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Orders that are carried out at once.
const HANDS: usize = 6;
/// Of them, such as may take long.
const LONG_MAX: usize = HANDS - 1;

/// What whoever talks to the manager hears.
pub(super) enum Heard {
    /// From there.
    Said(io::Result<FromManager>),
    /// An order was carried out, or why not.
    Done { name: String, revision: u64, error: Option<String> },
}

/// Does what orders ask for.
pub(super) trait Obey: Send + Sync + 'static {
    /// Brings one disk to where it should be. Doing so twice is as good as once.
    fn obey(&self, order: &Order) -> Result<(), String>;
    /// The pool in which that may take long, if it may.
    fn may_take_long(&self, order: &Order) -> Option<String>;
}

/// What is to be done, and what is under way.
#[derive(Default)]
struct Backlog {
    /// In the order in which they came, and in which pool each may take long; none of one disk twice.
    waiting: VecDeque<(Order, Option<String>)>,
    /// Disks whose orders are carried out.
    under_way: BTreeMap<String, UnderWay>,
    /// By tenant, which of all that began was its last one.
    began: BTreeMap<Option<String>, u64>,
    number: u64,
    tell: Option<Sender<Heard>>,
    over: bool,
}

/// An order that is carried out.
struct UnderWay {
    /// The pool in which that may take long, if it may.
    long_in: Option<String>,
    tenant: Option<String>,
}

impl Backlog {
    /// The order that begins now, if one may.
    fn next(&mut self) -> Option<Order> {
        let long: Vec<&String> = self.under_way.values().filter_map(|one| one.long_in.as_ref()).collect();
        let has_hand = |pool: &String| long.len() < LONG_MAX && !long.contains(&pool);
        let may_begin = |(order, long_in): &(Order, Option<String>)| {
            !self.under_way.contains_key(&order.name) && long_in.as_ref().is_none_or(has_hand)
        };
        let turn = |tenant: &Option<String>| {
            let under_way = self.under_way.values().filter(|one| one.tenant == *tenant).count();
            (under_way, self.began.get(tenant).copied())
        };
        let all = self.waiting.iter().enumerate().filter(|(_, waiting)| may_begin(waiting));
        let (at, _) = all.min_by_key(|(_, (order, _))| turn(&order.tenant))?;
        let (order, long_in) = self.waiting.remove(at)?;
        self.number += 1;
        self.began.insert(order.tenant.clone(), self.number);
        if self.waiting.is_empty() {
            self.began.clear();
        }
        self.under_way.insert(order.name.clone(), UnderWay { long_in, tenant: order.tenant.clone() });
        Some(order)
    }
}

#[derive(Default)]
struct Shared {
    backlog: Mutex<Backlog>,
    news: Condvar,
}

impl Shared {
    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One hand's work, until all is over.
    fn work(&self, by: &dyn Obey) {
        let mut backlog = self.backlog();
        while !backlog.over {
            let Some(order) = backlog.next() else {
                backlog = self.news.wait(backlog).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(backlog);
            let error = by.obey(&order).err();
            backlog = self.backlog();
            backlog.under_way.remove(&order.name);
            if let Some(tell) = &backlog.tell {
                // Nobody may be listening; it is then found when the node registers.
                let _ = tell.send(Heard::Done { name: order.name, revision: order.revision, error });
            }
            self.news.notify_all();
        }
    }
}

/// Carries orders out. Dropping it waits for what is under way: loops end first, so that it does not last.
pub(crate) struct Hands {
    shared: Arc<Shared>,
    by: Arc<dyn Obey>,
    threads: Vec<JoinHandle<()>>,
}

impl Hands {
    pub(super) fn start(by: impl Obey) -> io::Result<Hands> {
        let mut hands = Hands { shared: Arc::default(), by: Arc::new(by), threads: Vec::new() };
        for _ in 0..HANDS {
            let (shared, by) = (Arc::clone(&hands.shared), Arc::clone(&hands.by));
            let thread = std::thread::Builder::new().name("henge-hands".into());
            hands.threads.push(thread.spawn(move || shared.work(&*by))?);
        }
        Ok(hands)
    }

    /// What is done from now on is told there. What waits for somebody else is forgotten.
    pub(super) fn tell(&self, to: Option<Sender<Heard>>) {
        let mut backlog = self.shared.backlog();
        backlog.waiting.clear();
        backlog.tell = to;
    }

    /// To be done.
    pub(super) fn take(&self, order: Order) {
        let long = self.by.may_take_long(&order);
        let mut backlog = self.shared.backlog();
        match backlog.waiting.iter_mut().find(|(waiting, _)| waiting.name == order.name) {
            Some(waiting) => *waiting = (order, long),
            None => backlog.waiting.push_back((order, long)),
        }
        self.shared.news.notify_all();
    }

    /// Nothing more is begun.
    pub(super) fn end(&self) {
        self.shared.backlog().over = true;
        self.shared.news.notify_all();
    }
}

impl Drop for Hands {
    fn drop(&mut self) {
        self.end();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A node, by its name at the manager.
pub(super) struct Node {
    pub control: Control,
    pub name: String,
}

impl Obey for Node {
    fn obey(&self, order: &Order) -> Result<(), String> {
        let want = order.want()?;
        want.as_ref().map_or(Ok(()), wanted::check)?;
        let status = self.control.status().map_err(|e| e.to_string())?;
        let here = status.disk(&order.name);
        if let Some(revision) = self.control.memory().disks.get(&order.name).and_then(|k| k.revision)
            && revision > order.revision
        {
            return Err(format!("{} has a later order ({revision}) of \"{}\"", self.name, order.name));
        }
        let is_managed = self.control.memory().is_managed(&order.name);
        if here.is_some() && !is_managed {
            return Err(format!(
                "\"{}\" is {}'s own disk: no manager made it, and none changes it",
                order.name, self.name
            ));
        }
        let (name, last) = (order.name.clone(), Origin::Manager(order.revision));
        match (&want, here) {
            // What is not served is to go, too, or it comes back with its storage.
            (None, None) if is_managed && status.failed.iter().any(|disk| disk.name == name) => {
                self.ask(Request::Remove { name }, last)
            }
            (None, None) => Ok(()),
            (None, Some(_)) => self.ask(Request::Remove { name }, last),
            (Some(want), None) => {
                for (name, address) in &want.peers {
                    let (name, address) = (name.clone(), address.clone());
                    self.ask(Request::Peer { name, address, iscsi: None, at: None }, last)?;
                }
                self.ask(Request::Add { disk: wanted::table(&name, want)? }, last)
            }
            (Some(want), Some(here)) => self.change(order, want, here),
        }
    }

    fn may_take_long(&self, order: &Order) -> Option<String> {
        let want = order.want().ok().flatten()?;
        let status = self.control.meters().ok();
        let here =
            status.as_ref().and_then(|status| status.disk(&order.name)).map_or(0, |disk| disk.capacity);
        let grows = want.capacity.max(want.room.unwrap_or(0)) > here;
        grows.then(|| want.pools.first().cloned().unwrap_or_default())
    }
}

impl Node {
    fn ask(&self, request: Request, origin: Origin) -> Result<(), String> {
        self.control.ask_as(request, origin).map(drop).map_err(|e| e.to_string())
    }

    /// A disk that is here becomes as it is wanted. The order counts as carried out with its last step: a node that ends, or fails, before that
    /// is told again.
    fn change(&self, order: &Order, want: &Want, here: &DiskStatus) -> Result<(), String> {
        let name = || order.name.clone();
        let bytes = |bytes: u64| format!("{bytes}B");
        if let Some(room) = want.room {
            self.ask(Request::Room { name: name(), capacity: bytes(room) }, Origin::Midway)?;
        }
        if let Some(access) = &want.access {
            let doors = wanted::doors(access);
            let known = self.control.memory().disks.get(&order.name).and_then(|k| k.added.clone());
            let known = known.unwrap_or_default();
            if doors.iter().any(|(key, said)| known.get(key) != Some(said)) {
                self.ask(Request::Access { name: name(), doors }, Origin::Midway)?;
            }
        }
        if want.capacity > here.capacity {
            self.ask(Request::Grow { name: name(), capacity: bytes(want.capacity) }, Origin::Midway)?;
        }
        let gone = here.contract.keys().filter(|key| !want.contract.contains_key(*key));
        let mut contract: Terms = gone.map(|key| (key.clone(), String::new())).collect();
        let differs = |(key, value): &(&String, &String)| here.contract.get(*key) != Some(*value);
        contract.extend(want.contract.iter().filter(differs).map(|(k, v)| (k.clone(), v.clone())));
        if contract.is_empty() {
            return self.control.settle(&order.name, order.revision).map_err(|e| e.to_string());
        }
        self.ask(Request::Set { name: name(), contract }, Origin::Manager(order.revision))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeConfig;
    use henge_config::Source;
    use std::path::Path;
    use std::sync::mpsc::{Receiver, channel};

    /// By disk, how its first order is ended.
    type Ends = BTreeMap<String, Sender<()>>;

    /// Carries an order out when the test says so: told which has begun, and how it ends.
    struct Slowly {
        begun: Mutex<Sender<(String, u64)>>,
        ends: Mutex<BTreeMap<String, Receiver<()>>>,
    }

    impl Obey for Slowly {
        fn obey(&self, order: &Order) -> Result<(), String> {
            let _ = self.begun.lock().unwrap().send((order.name.clone(), order.revision));
            let ends = self.ends.lock().unwrap().remove(&order.name);
            if let Some(ends) = ends {
                let _ = ends.recv();
            }
            Ok(())
        }
        fn may_take_long(&self, order: &Order) -> Option<String> {
            order.name.split_once(" in ").map(|(_, pool)| pool.to_owned())
        }
    }

    fn order(name: &str, revision: u64) -> Order {
        Order::new(name, revision, None)
    }

    /// Hands, what they begin, and how the first orders of these disks are ended.
    fn hands(slow: &[&str]) -> (Hands, Receiver<(String, u64)>, Ends) {
        let ((begun, begins), mut ends, mut ended) = (channel(), BTreeMap::new(), BTreeMap::new());
        for name in slow {
            let (end, receiver) = channel();
            ends.insert((*name).to_owned(), end);
            ended.insert((*name).to_owned(), receiver);
        }
        let by = Slowly { begun: Mutex::new(begun), ends: Mutex::new(ended) };
        (Hands::start(by).unwrap(), begins, ends)
    }

    fn done(heard: &Receiver<Heard>) -> (String, u64) {
        match heard.recv().unwrap() {
            Heard::Done { name, revision, error: None } => (name, revision),
            _ => panic!("an order that was carried out"),
        }
    }

    #[test]
    fn what_takes_long_holds_up_nobody_else() {
        let mut long: Vec<String> = (0..=LONG_MAX).map(|i| format!("long in {i}")).collect();
        long.push("next in 0".into());
        let names: Vec<&str> = long.iter().map(String::as_str).collect();
        let (hands, begins, mut ends) = hands(&names);
        let (tell, heard) = channel();
        hands.tell(Some(tell));
        // Two of one pool, and then others': the second one has no hand yet.
        hands.take(order("long in 0", 1));
        assert_eq!(begins.recv().unwrap().0, "long in 0");
        hands.take(order("next in 0", 1));
        for name in &long[1..LONG_MAX] {
            hands.take(order(name, 1));
            assert_eq!(begins.recv().unwrap().0, *name);
        }
        hands.take(order(&long[LONG_MAX], 1));
        hands.take(order("web", 2));
        assert_eq!((begins.recv().unwrap(), done(&heard)), (("web".into(), 2), ("web".into(), 2)));
        drop(ends.remove("long in 1"));
        assert_eq!((done(&heard).0, begins.recv().unwrap().0), ("long in 1".into(), long[LONG_MAX].clone()));
        drop(ends.remove("long in 0"));
        assert_eq!((done(&heard).0, begins.recv().unwrap().0), ("long in 0".into(), "next in 0".into()));
    }

    /// Each hand has one of ann's hundred, and then bob changes a disk of his.
    #[test]
    fn tenants_have_turns() {
        let slow: Vec<String> = (0..HANDS).map(|i| format!("ann-{i}")).collect();
        let slow: Vec<&str> = slow.iter().map(String::as_str).collect();
        let (hands, begins, mut ends) = hands(&slow);
        let of = |tenant: &str, name: String| order(&name, 1).of(Some(tenant.into()));
        (0..100).for_each(|i| hands.take(of("ann", format!("ann-{i}"))));
        (0..HANDS).for_each(|_| assert!(begins.recv().unwrap().0.starts_with("ann")));
        ["bob-0", "bob-1"].into_iter().for_each(|name| hands.take(of("bob", name.into())));
        drop(ends.remove("ann-3"));
        assert_eq!(begins.recv().unwrap().0, "bob-0");
        // The hand that is free goes on with whoever has none under way.
        assert_eq!([begins.recv().unwrap().0, begins.recv().unwrap().0], ["bob-1", "ann-6"]);
    }

    #[test]
    fn an_order_that_is_said_again_is_done_once_more_and_the_latest_counts() {
        let (hands, begins, mut ends) = hands(&["web"]);
        let (tell, heard) = channel();
        hands.tell(Some(tell));
        hands.take(order("web", 1));
        assert_eq!(begins.recv().unwrap(), ("web".into(), 1));
        (1..=1000).for_each(|revision| hands.take(order("web", revision)));
        assert_eq!(hands.shared.backlog().waiting.len(), 1, "none is kept twice");
        drop(ends.remove("web"));
        assert_eq!((done(&heard).1, begins.recv().unwrap().1, done(&heard).1), (1, 1000, 1000));
        assert!(begins.try_recv().is_err());
    }

    #[test]
    fn a_manager_that_comes_again_hears_of_what_was_begun_before() {
        let (hands, begins, mut ends) = hands(&["web"]);
        let (tell, before) = channel();
        hands.tell(Some(tell));
        hands.take(order("web", 1));
        begins.recv().unwrap();
        hands.take(order("web", 2));
        hands.tell(None);
        assert!(before.recv().is_err(), "that conversation is over");
        let (tell, heard) = channel();
        hands.tell(Some(tell));
        drop(ends.remove("web"));
        assert_eq!(done(&heard), ("web".into(), 1));
        drop(hands);
        assert!(begins.try_recv().is_err(), "what waited is said again by whoever wants it");
    }

    /// A node of one pool, which no manager speaks to.
    fn serves(dir: &Path) -> crate::Node {
        let dir = dir.display();
        let pool = format!("[[pool]]\nname = \"p\"\npath = \"{dir}/pool\"\ncapacity = \"8MiB\"\n");
        let text = format!("state_dir = \"{dir}/state\"\n{pool}");
        crate::Node::start(NodeConfig::parse(Source::new("node.toml", text)).unwrap()).unwrap()
    }

    /// A disk that cannot be opened is to go: it is gone also when its storage is well again.
    #[test]
    fn a_disk_that_is_not_served_is_removed_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let obey = |node: &crate::Node, order: Order| {
            Node { control: node.control().clone(), name: "n".into() }.obey(&order).unwrap();
        };
        let want = Want {
            capacity: 1 << 20,
            pools: vec!["p".into()],
            leeway: None,
            contract: Terms::new(),
            peers: Terms::new(),
            room: None,
            gateways: Vec::new(),
            origin: Default::default(),
            access: None,
        };
        let first = serves(dir.path());
        obey(&first, Order::new("web", 1, Some(&want)));
        first.stop().unwrap();
        let (part, aside) = (dir.path().join("pool/web.part0"), dir.path().join("aside"));
        std::fs::rename(&part, &aside).unwrap();
        std::fs::create_dir(&part).unwrap();
        let second = serves(dir.path());
        let failed = second.control().status().unwrap().failed;
        assert_eq!(failed.len(), 1, "{failed:?}");
        obey(&second, Order::new("web", 2, None));
        assert_eq!(second.control().status().unwrap().failed, []);
        second.stop().unwrap();
        std::fs::rename(&aside, &part).unwrap();
        let third = serves(dir.path());
        let status = third.control().status().unwrap();
        assert!(status.disks.is_empty() && status.failed.is_empty(), "it does not come back");
    }
}
