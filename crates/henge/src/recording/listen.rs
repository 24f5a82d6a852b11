//! Listens at a node's tap.

use super::{Ask, Load, Recording, alike, busy, device};
use anyhow::{Context, Result, bail};
use henge_api::{Reply, Request, Status, Tapped};
use henge_core::Duration;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Most commands of a recording that is kept in memory whole: 1.5 GB of memory at the least.
const COMMANDS_MAX: usize = 30_000_000;
/// The tap is emptied so often.
const EVERY: std::time::Duration = std::time::Duration::from_millis(250);

/// An open tap, and what was known when the current recording began.
pub struct Session<'a> {
    ask: Ask<'a>,
    pool: Option<&'a str>,
    names: Names,
    before: Status,
    /// The node's clock where the current recording begins, and now.
    began: u64,
    now: u64,
    wall: u64,
    /// Taken, and not yet in a recording.
    commands: Vec<Tapped>,
    lost: u64,
    ended: bool,
}

fn taken(reply: Reply) -> Result<henge_api::Taken> {
    reply.taken.context("the node sent nothing from its tap")
}

fn meters(ask: Ask<'_>) -> Result<Status> {
    ask(Request::Meters)?.status.context("the node sent no meters")
}

fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl<'a> Session<'a> {
    /// Opens the tap; `pool` as for [`record`].
    pub fn begin(ask: Ask<'a>, pool: Option<&'a str>) -> Result<Session<'a>> {
        let before = meters(ask)?;
        alike(&before, pool)?; // said before anybody waits for it
        let began = taken(ask(Request::Tap)?)?.now;
        Ok(Session {
            ask,
            pool,
            names: Names::default(),
            before,
            began,
            now: began,
            wall: wall(),
            commands: Vec::new(),
            lost: 0,
            ended: false,
        })
    }

    /// Listens until `time` has gone by, there are `most` commands, or `tick` says that it is enough.
    pub fn listen(
        &mut self,
        time: Duration,
        most: usize,
        mut tick: impl FnMut(f64, usize) -> bool,
    ) -> Result<bool> {
        let end = self.began.saturating_add(time.as_nanos());
        while self.now < end {
            std::thread::sleep(EVERY.min(std::time::Duration::from_nanos(end - self.now)));
            let part = taken((self.ask)(Request::Tap)?)?;
            self.now = part.now;
            self.lost += part.lost;
            self.names.learn(part.disks);
            let names = &self.names;
            let known = |c: Tapped| Tapped(names.id(c.0), c.1, c.2, c.3, c.4, c.5);
            self.commands.extend(part.commands.into_iter().map(known));
            let share = (self.now - self.began) as f64 / time.as_nanos() as f64;
            if !tick(share, self.commands.len()) {
                return Ok(false);
            }
            if self.commands.len() > most {
                break;
            }
        }
        Ok(true)
    }

    /// Closes the tap, and waits until meters are of the end.
    pub fn end(&mut self) -> Result<()> {
        (self.ask)(Request::Untap)?;
        self.ended = true;
        // Meters are a second old at most.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        Ok(())
    }

    /// What was heard since the last time, `most` of time; `None` if nothing was asked. The next recording begins here.
    pub fn cut(&mut self, most: Duration) -> Result<Option<Recording>> {
        let after = meters(self.ask)?;
        let pools = alike(&after, self.pool)?;
        let end = self.now.min(self.began.saturating_add(most.as_nanos()));
        let commands = std::mem::take(&mut self.commands);
        let in_time = commands.into_iter().filter(|c| c.4 >= self.began && c.4 < end);
        let mut by_disk: BTreeMap<u32, Vec<Tapped>> = BTreeMap::new();
        in_time.for_each(|c| by_disk.entry(c.0).or_default().push(c));
        let time = Duration::from_nanos(end - self.began);
        let mut loads = Vec::new();
        for disk in &after.disks {
            if disk.layout.pools.iter().all(|p| pools.iter().any(|pool| pool.name == *p)) {
                let number = self.names.ids.get(&disk.name);
                let theirs = number.and_then(|number| by_disk.remove(number)).unwrap_or_default();
                loads.push(Load::of(disk, theirs, self.began, time));
            }
        }
        let count = loads.iter().map(|load| load.records.len()).sum();
        let recording = match count {
            0 => None,
            commands => Some(Recording {
                time,
                wall: self.wall,
                device: device(&pools, &self.before, &after)?,
                busy: pools.iter().map(|pool| busy(&pool.name, &self.before, &after)).collect(),
                loads,
                lost: self.lost,
                commands,
                pools,
            }),
        };
        (self.before, self.began, self.wall, self.lost) = (after, self.now, wall(), 0);
        Ok(recording)
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // A tap that nobody empties is closed after 10 s as well.
        if !self.ended {
            let _ = (self.ask)(Request::Untap);
        }
    }
}

/// Records for a time the disks that lie on `pool` (all where nothing is said). `tick` hears how far it is and may end it.
pub fn record(
    ask: Ask<'_>,
    pool: Option<&str>,
    time: Duration,
    tick: impl FnMut(f64, usize) -> bool,
) -> Result<Recording> {
    let mut session = Session::begin(ask, pool)?;
    session.listen(time, COMMANDS_MAX, tick)?;
    session.end()?;
    match session.cut(time)? {
        Some(recording) => Ok(recording),
        None => bail!(
            "nothing was asked of {} in {time}",
            pool.map_or("the node".to_owned(), |p| format!("pool \"{p}\""))
        ),
    }
}

/// Which disk a command was for, whatever other disk had its number before or after.
#[derive(Default)]
pub(super) struct Names {
    pub(super) ids: BTreeMap<String, u32>,
    /// By the node's number: the id of the disk that has it now.
    now: BTreeMap<u32, u32>,
}

impl Names {
    pub(super) fn learn(&mut self, told: Vec<(u32, String)>) {
        for (number, name) in told {
            let next = self.ids.len() as u32;
            self.now.insert(number, *self.ids.entry(name).or_insert(next));
        }
    }
    pub(super) fn id(&self, number: u32) -> u32 {
        self.now.get(&number).copied().unwrap_or(u32::MAX)
    }
}
