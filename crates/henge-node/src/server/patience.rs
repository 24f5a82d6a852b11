//! Clients that keep others waiting: payloads that stop coming, and commands that wait for memory.
//!
//! The rule: a connection of which payload is awaited, and of which nothing has come for [`Patience::payload`], is closed, and an event says
//! so. A connection that waits for memory for [`Patience::memory`] goes on waiting, and an event says whose it is and who holds what. Of each
//! disk one such event comes in [`QUIET`]; the next one says how many there were meanwhile.
//!
//! Price: one place in an ordered set for each connection of which payload is awaited, or that has waited for memory; nothing looks at all
//! connections.

use super::Server;
use crate::client::Client;
use crate::session::Stop;
use henge_core::{Duration, Instant, RequestId};
use std::collections::BTreeSet;

/// How long clients may keep others waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Nothing of a payload has come for so long: the connection is closed.
    pub payload: Duration,
    /// A command has waited for memory for so long: it is told of.
    pub memory: Duration,
}

/// Connections that are looked at again at a time.
#[derive(Default)]
pub(crate) struct Waits {
    payload: BTreeSet<(Instant, RequestId)>,
    memory: BTreeSet<(Instant, RequestId)>,
}

/// Connections looked at in one turn.
const LOOKS: usize = 64;
/// One event of a disk in this time.
const QUIET: Duration = Duration::from_secs(10);
/// Disks that hold most, of which an event tells.
const HOLDERS: usize = 3;

impl Waits {
    pub(super) fn due(&self) -> Option<Instant> {
        let first = |set: &BTreeSet<(Instant, RequestId)>| set.first().map(|(at, _)| *at);
        first(&self.payload).into_iter().chain(first(&self.memory)).min()
    }

    /// Forgets a connection that is gone.
    pub(super) fn forget(&mut self, id: RequestId, client: &mut Client) {
        let link = &mut client.link;
        link.payload_due.take().map(|at| self.payload.remove(&(at, id)));
        link.memory_due.take().map(|at| self.memory.remove(&(at, id)));
    }

    fn await_payload(&mut self, id: RequestId, client: &mut Client, at: Instant) {
        client.link.payload_due = Some(at);
        self.payload.insert((at, id));
    }

    fn await_memory(&mut self, id: RequestId, client: &mut Client, at: Instant) {
        client.link.memory_due = Some(at);
        self.memory.insert((at, id));
    }
}

impl Server {
    /// A connection has read: whether something came, and what it waits for now. `thirsty`: no memory was found for it.
    pub(super) fn note_waits(&mut self, id: RequestId, stop: Stop, thirsty: bool) {
        let Some(client) = self.connections.get_mut(id) else { return };
        let now = self.now;
        if client.link.moved > 0 {
            client.link.heard = now;
        }
        if client.link.payload_due.is_none() && client.awaits_payload() {
            client.link.heard = now;
            self.waits.await_payload(id, client, now + self.patience.payload);
        }
        if stop != Stop::Stalled {
            client.link.thirsty = None;
        } else if thirsty && client.link.thirsty.is_none() {
            client.link.thirsty = Some(now);
            if client.link.memory_due.is_none() {
                self.waits.await_memory(id, client, now + self.patience.memory);
            }
        }
    }

    /// Closes connections of which payload has not come for too long, and tells of those that wait for memory.
    pub(super) fn lose_patience(&mut self) {
        for _ in 0..LOOKS {
            let Some(&(at, id)) = self.waits.payload.first().filter(|(at, _)| *at <= self.now) else { break };
            self.waits.payload.remove(&(at, id));
            self.look_at_payload(id);
        }
        for _ in 0..LOOKS {
            let Some(&(at, id)) = self.waits.memory.first().filter(|(at, _)| *at <= self.now) else { break };
            self.waits.memory.remove(&(at, id));
            self.look_at_thirst(id);
        }
    }

    fn look_at_payload(&mut self, id: RequestId) {
        let Some(client) = self.connections.get_mut(id) else { return };
        let link = &mut client.link;
        if link.stream.wakes_late() && !link.runnable {
            // Too little for a wake-up may have come.
            link.readable = true;
            self.read(id);
        }
        let Some(client) = self.connections.get_mut(id) else { return };
        client.link.payload_due = None;
        if !client.awaits_payload() {
            return;
        }
        // What is here and was not taken is the node's doing.
        let ours = client.is_stalled() || client.link.readable;
        let from = if ours { self.now } else { client.link.heard };
        let until = from + self.patience.payload;
        if until > self.now {
            return self.waits.await_payload(id, client, until);
        }
        let (who, disk) = (client.describe(), client.disk());
        if let Some(disk) = disk {
            let after = self.patience.payload;
            self.tell(
                disk,
                format!("{who} has sent nothing of a payload for {after}: its connection is closed"),
            );
        }
        self.drop_connection(id);
    }

    fn look_at_thirst(&mut self, id: RequestId) {
        let Some(client) = self.connections.get_mut(id) else { return };
        client.link.memory_due = None;
        let Some(since) = client.link.thirsty else { return };
        let until = since + self.patience.memory;
        if until > self.now {
            return self.waits.await_memory(id, client, until);
        }
        let (who, Some(disk)) = (client.describe(), client.disk()) else { return };
        let waited = self.now.since(since);
        let held = self.plane.memory.holders(&self.plane.disks, disk, HOLDERS);
        self.tell(disk, format!("a command of {who} has waited for memory for {waited}: {held}"));
    }

    /// An event of a disk, if there was none for a while.
    fn tell(&mut self, number: usize, text: String) {
        let now = self.now;
        let disk = self.plane.disks.of(number);
        if disk.told.is_some_and(|at| now.since(at) < QUIET) {
            disk.untold += 1;
            return;
        }
        disk.told = Some(now);
        let more = match std::mem::take(&mut disk.untold) {
            0 => String::new(),
            n => format!(" ({n} more like this since the last one)"),
        };
        let name = disk.config.name.clone();
        self.plane.observers.notice(&name, text + &more);
    }
}
