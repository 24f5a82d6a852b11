//! Clients that keep others waiting: payloads that stop coming, and commands that wait for memory.
//!
//! The rule: a connection of which payload is awaited, and of which nothing has come for [`Patience::payload`](super::Patience), is closed, and an event says
//! so. A connection that waits for memory for [`Patience::memory`](super::Patience) goes on waiting, and an event says whose it is and who holds what; but
//! where its client says no more, it is closed. One whose client does not listen is closed at once. Of each
//! disk one such event comes in [`QUIET`]; the next one says how many there were meanwhile.
//!
//! Price: one place in an ordered set for each connection of which payload is awaited, or that has waited for memory; nothing looks at all
//! connections.

use super::Server;
use crate::link::End;
use crate::session::Stop;
use henge_core::{Duration, RequestId};

/// Connections looked at in one turn.
const LOOKS: usize = 64;
/// One event of a disk in this time.
const QUIET: Duration = Duration::from_secs(10);
/// Disks that hold most, of which an event tells.
const HOLDERS: usize = 3;

/// A connection has read: whether something came, and what it waits for now. `thirsty`: no memory was found for it.
pub(super) fn note_waits(server: &mut Server, id: RequestId, stop: Stop, thirsty: bool) {
    let Some(client) = server.clients.all.get_mut(id) else { return };
    let now = server.now;
    if client.link.moved > 0 {
        client.link.heard = now;
    }
    if client.link.payload_due.is_none() && client.awaits_payload() {
        client.link.heard = now;
        server.waits.await_payload(id, client, now + server.waits.patience.payload);
    }
    if stop != Stop::Stalled {
        client.link.thirsty = None;
    } else if thirsty && client.link.thirsty.is_none() {
        client.link.thirsty = Some(now);
        if client.link.memory_due.is_none() {
            server.waits.await_memory(id, client, now + server.waits.patience.memory);
        }
    }
}

/// Closes connections of which payload has not come for too long, and tells of those that wait for memory.
pub(super) fn lose_patience(server: &mut Server) {
    for _ in 0..LOOKS {
        let Some(&(at, id)) = server.waits.payload.first().filter(|(at, _)| *at <= server.now) else { break };
        server.waits.payload.remove(&(at, id));
        look_at_payload(server, id);
    }
    for _ in 0..LOOKS {
        let Some(&(at, id)) = server.waits.memory.first().filter(|(at, _)| *at <= server.now) else { break };
        server.waits.memory.remove(&(at, id));
        look_at_thirst(server, id);
    }
}

fn look_at_payload(server: &mut Server, id: RequestId) {
    let Some(client) = server.clients.all.get_mut(id) else { return };
    let link = &mut client.link;
    if link.stream.wakes_late() && !link.runnable {
        // Too little for a wake-up may have come.
        link.readable = true;
        server.read(id);
    }
    let Some(client) = server.clients.all.get_mut(id) else { return };
    client.link.payload_due = None;
    if !client.awaits_payload() {
        return;
    }
    // What is here and was not taken is the node's doing.
    let ours = client.is_stalled() || client.link.readable;
    let from = if ours { server.now } else { client.link.heard };
    let until = from + server.waits.patience.payload;
    if until > server.now {
        return server.waits.await_payload(id, client, until);
    }
    let (who, disk) = (client.describe(), client.disk());
    if let Some(disk) = disk {
        let after = server.waits.patience.payload;
        tell(
            server,
            disk,
            format!("{who} has sent nothing of a payload for {after}: its connection is closed"),
        );
    }
    server.drop_connection(id);
}

fn look_at_thirst(server: &mut Server, id: RequestId) {
    let Some(client) = server.clients.all.get_mut(id) else { return };
    client.link.memory_due = None;
    let Some(since) = client.link.thirsty else { return };
    let until = since + server.waits.patience.memory;
    if until > server.now {
        return server.waits.await_memory(id, client, until);
    }
    if client.link.end > End::Open {
        return server.drop_connection(id);
    }
    let (who, Some(disk)) = (client.describe(), client.disk()) else { return };
    let waited = server.now.since(since);
    let held = server.plane.memory.holders(&server.plane.disks, disk, HOLDERS);
    tell(server, disk, format!("a command of {who} has waited for memory for {waited}: {held}"));
}

/// An event of a disk, if there was none for a while.
fn tell(server: &mut Server, number: usize, text: String) {
    let now = server.now;
    let disk = server.plane.disks.of(number);
    if disk.told.at.is_some_and(|at| now.since(at) < QUIET) {
        disk.told.since += 1;
        return;
    }
    disk.told.at = Some(now);
    let more = match std::mem::take(&mut disk.told.since) {
        0 => String::new(),
        n => format!(" ({n} more like this since the last one)"),
    };
    let name = disk.config.name.clone();
    server.plane.observers.notice(&name, text + &more);
}
