//! To which shard a request goes.
//!
//! With one shard, to that one, unread. With several, the handle knows where each disk is: from the file, and from what was added and
//! removed since. A disk may concern several. What names something that is not there goes to the first shard, whose answer says so; but for disks, of which no
//! shard knows all.

use super::{Division, division::Tie};
use crate::config::{self, DiskConfig, NodeConfig, PoolConfig};
use crate::front::Kind;
use crate::link_config::Nodes;
use henge_api::{Request, Table};
use std::collections::{BTreeMap, BTreeSet};

/// Disks that an error names at most.
const NAMED: usize = 100;

/// Where what is.
pub(crate) struct Routes {
    division: Division,
    pools: Vec<PoolConfig>,
    kinds: Vec<&'static Kind>,
    /// This node's name among others.
    here: Option<String>,
    /// The shards that each disk concerns, the one that shows it first.
    disks: BTreeMap<String, Vec<usize>>,
}

impl Routes {
    pub(crate) fn new(config: &NodeConfig, division: Division) -> Routes {
        let place = |disk: &DiskConfig| (disk.name.clone(), division.shards_of(disk));
        let disks = config.disks.iter().map(place).collect();
        Routes {
            division,
            pools: config.pools.clone(),
            kinds: config.kinds.all.clone(),
            here: here(config),
            disks,
        }
    }

    /// The shards that a request concerns, of a disk's the one that shows it first; of a request that concerns all, the first. Or why there
    /// is none.
    pub(crate) fn of(&self, request: &Request) -> Result<Vec<usize>, String> {
        if self.division.is_whole() {
            return Ok(vec![0]);
        }
        match request {
            Request::Add { disk } | Request::Offer { disk } => Ok(self.of_new(disk)),
            Request::Scheduler { pool, .. } => {
                let found = self.pools.iter().position(|known| known.name == *pool);
                Ok(vec![found.map_or(0, |pool| self.division.shard(pool))])
            }
            Request::Set { name, .. } | Request::Preview { name, .. } | Request::Remove { name } => {
                self.of_disk(name)
            }
            Request::Grow { name, .. } | Request::Room { name, .. } | Request::Access { name, .. } => {
                self.of_disk(name)
            }
            // Links are the first one's; the others know whom a disk may name.
            Request::Peer { .. } | Request::Unpeer { .. } => Ok((0..self.division.count()).collect()),
            Request::Drain { .. } => Ok(vec![0]),
            Request::Reset | Request::Untap => Ok(vec![0]),
            Request::Status | Request::Meters | Request::Events { .. } | Request::Tap => Ok(vec![0]),
        }
    }

    /// The shards of a disk that is to come: from now on it has its place among them. [`Routes::stays_away`] when nothing comes of it.
    pub(crate) fn place(&self, request: &Request) -> Result<Vec<usize>, String> {
        if let Request::Add { disk } = request
            && let Some(disk) = read(disk, &self.pools, &self.kinds, self.here.as_deref())
        {
            self.division.place(&disk);
        }
        self.of(request)
    }

    /// A disk that was to come does not.
    pub(crate) fn stays_away(&self, name: &str) {
        if !self.disks.contains_key(name) {
            self.division.forget(name);
        }
    }

    /// Where a disk is, first where clients find it.
    pub(crate) fn of_disk(&self, name: &str) -> Result<Vec<usize>, String> {
        if self.division.is_whole() {
            return Ok(vec![0]);
        }
        self.disks.get(name).cloned().ok_or_else(|| {
            let mut known: Vec<&str> = self.disks.keys().take(NAMED).map(String::as_str).collect();
            known.extend((self.disks.len() > NAMED).then_some("…"));
            format!("there is no disk \"{name}\"; there are: {}", known.join(", "))
        })
    }

    /// Where a disk would be. What is wrong with its table, the shard says that is asked to add it.
    fn of_new(&self, table: &Table) -> Vec<usize> {
        let Some(disk) = read(table, &self.pools, &self.kinds, self.here.as_deref()) else { return vec![0] };
        // Who has the name already says so.
        self.disks.get(&disk.name).cloned().unwrap_or_else(|| self.division.shards_of(&disk))
    }

    /// The pools that keep parts of a new disk when the node ends.
    pub(crate) fn keep(&self, table: &Table) -> BTreeSet<String> {
        let disk = read(table, &self.pools, &self.kinds, self.here.as_deref());
        disk.map_or_else(BTreeSet::new, |disk| keep(&disk, &self.pools))
    }

    /// Whether the removal of a disk can be gone on with when the node begins again.
    pub(crate) fn has_own_parts(&self, table: &Table) -> bool {
        let disk = read(table, &self.pools, &self.kinds, self.here.as_deref());
        disk.is_some_and(|disk| disk.has_own_parts(&self.pools))
    }

    /// A disk came to these.
    pub(crate) fn came(&mut self, name: &str, shards: &[usize]) {
        self.disks.insert(name.to_owned(), shards.to_vec());
    }

    /// A disk is gone from one of its shards.
    pub(crate) fn went(&mut self, name: &str, shard: usize) {
        let Some(shards) = self.disks.get_mut(name) else { return };
        shards.retain(|known| *known != shard);
        if shards.is_empty() {
            self.disks.remove(name);
            self.division.forget(name);
        }
    }
}

/// The pools that keep a disk's parts when the node ends.
pub(crate) fn keep(disk: &DiskConfig, pools: &[PoolConfig]) -> BTreeSet<String> {
    let on = disk.pools.iter().map(|pool| &pools[*pool]);
    on.filter(|pool| !pool.medium.is_lost_at_the_end()).map(|pool| pool.name.clone()).collect()
}

/// A node's name among others.
fn here(config: &NodeConfig) -> Option<String> {
    config.link.as_ref().map(|link| link.name.clone())
}

/// A disk from its table, whichever nodes that names.
fn read(
    table: &Table,
    pools: &[PoolConfig],
    kinds: &[&'static Kind],
    here: Option<&str>,
) -> Option<DiskConfig> {
    let params = table.params("the disk").ok()?;
    config::disk(params, pools, &|_| false, Nodes { here, peers: None }, kinds).ok()
}

/// The disks that requests will add, as far as they lie on several pools.
pub(crate) fn ties(requests: &[(String, Request)], config: &NodeConfig) -> Vec<Tie> {
    let tie = |(_, request): &(String, Request)| {
        let Request::Add { disk } = request else { return None };
        let disk = read(disk, &config.pools, &config.kinds.all, here(config).as_deref())?;
        (disk.pools.len() > 1 && !disk.is_of_cluster()).then_some(Tie { pools: disk.pools })
    };
    requests.iter().filter_map(tie).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_api::Choice;
    use henge_config::Source;

    fn routes(pools: &[&str], disks: &[(&str, &str)]) -> Routes {
        let pools: String = pools
            .iter()
            .map(|name| format!("[[pool]]\nname = \"{name}\"\nmemory = true\ncapacity = \"64MiB\"\n"))
            .collect();
        let disks: String = disks
            .iter()
            .map(|(name, pool)| {
                format!("[[disk]]\nname = \"{name}\"\npool = \"{pool}\"\ncapacity = \"1MiB\"\n")
            })
            .collect();
        let text = format!("listen = \"nbd://127.0.0.1:0\"\ncores = 8\n{pools}{disks}");
        let config = NodeConfig::parse(Source::new("node.toml", text)).unwrap();
        let division = Division::of(&config, Vec::new()).unwrap();
        Routes::new(&config, division)
    }

    fn add(name: &str, pools: &[&str]) -> Request {
        Request::Add { disk: Table::of_disk(name).with("capacity", "1MiB").with("pools", pools) }
    }

    fn nonsense() -> Request {
        Request::Add { disk: Table::default().with("non", "sense") }
    }

    fn remove(name: &str) -> Request {
        Request::Remove { name: name.into() }
    }

    #[test]
    fn each_request_goes_where_its_disk_or_pool_is() {
        let mut routes = routes(&["a", "b", "c"], &[("x", "a"), ("y", "c")]);
        let at = |shard| Ok(vec![shard]);
        assert_eq!((routes.of(&remove("x")), routes.of(&remove("y"))), (at(0), at(2)));
        assert_eq!(routes.of(&add("z", &["b"])), at(1));
        assert_eq!(routes.of(&add("z", &["c", "a"])), Ok(vec![2, 0]), "the first pool's shard shows it");
        assert_eq!(routes.of(&add("x", &["b"])), at(0), "who has the name says that it is taken");
        assert_eq!(routes.of(&nonsense()), at(0), "some shard says what is wrong");
        let scheduler =
            |pool: &str| Request::Scheduler { pool: pool.into(), scheduler: Choice("fifo".into()) };
        assert_eq!((routes.of(&scheduler("c")), routes.of(&scheduler("nowhere"))), (at(2), at(0)));
        assert_eq!(routes.of(&remove("z")), Err("there is no disk \"z\"; there are: x, y".into()));
        routes.came("z", &[1, 2]);
        assert_eq!(routes.of(&remove("z")), Ok(vec![1, 2]));
        routes.went("z", 1);
        assert_eq!(routes.of(&remove("z")), at(2));
        routes.went("z", 2);
        assert!(routes.of(&remove("z")).is_err());
    }

    #[test]
    fn one_shard_gets_everything_unread() {
        let routes = routes(&["a"], &[]);
        for request in [remove("z"), add("z", &["a", "b"]), nonsense()] {
            assert_eq!(routes.of(&request), Ok(vec![0]));
        }
    }
}
