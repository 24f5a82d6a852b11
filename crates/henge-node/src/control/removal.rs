//! A disk is removed: that it goes is remembered before its first part goes, and it is forgotten after the last.

use super::{Control, ControlError, unremembered};
use crate::message::Message;
use crate::state::Origin;
use henge_api::{Reply, Request, Table};
use std::collections::BTreeSet;
use std::thread::JoinHandle;

/// Removes a disk. Storage may take its time, or hang; others change what is remembered meanwhile.
///
/// That it goes is remembered before the first part goes, and it is forgotten after the last.
pub(super) fn remove_and_keep(
    control: &Control,
    shards: &[usize],
    request: Request,
    name: &str,
    origin: Origin,
) -> Result<Reply, ControlError> {
    // It can be remembered.
    drop(control.memory().prepare(&request, None, origin).map_err(unremembered)?);
    let begun = begin_going(control, shards, name, origin)?;
    let reply = match control.tell(shards, request.clone()) {
        Err(ControlError::Refused(why)) if begun && serve(control, shards, name) => {
            return Err(ControlError::Refused(stays(control, name, why)));
        }
        told => told?,
    };
    let mut memory = control.memory();
    let change = memory.prepare(&request, None, origin).map_err(ControlError::Unremembered)?;
    memory.commit(change).map_err(ControlError::Unremembered)?;
    Ok(reply)
}

/// Notes that a disk goes; whether that is new. What is not served is given up instead, and its parts are kept.
fn begin_going(
    control: &Control,
    shards: &[usize],
    name: &str,
    origin: Origin,
) -> Result<bool, ControlError> {
    let kept = {
        let memory = control.memory();
        if memory.coming.contains(name) {
            return Err(ControlError::Refused(format!("a disk \"{name}\" is being added")));
        }
        memory.disks.get(name).cloned()
    };
    let (table, going) = kept.map_or((None, false), |kept| (kept.added, kept.going));
    if let (Some(table), true) = (&table, going) {
        let found = find_remains(control, shards, table);
        // Only who knows the node gives up what lies on a pool that is not there.
        return if origin == Origin::Here { Ok(false) } else { found.map(|()| false) };
    }
    if !table.is_none_or(|table| control.routes().has_own_parts(&table)) || !serve(control, shards, name) {
        return Ok(false);
    }
    let mut memory = control.memory();
    // Two may ask at once.
    if memory.disks.get(name).is_some_and(|kept| kept.going) {
        return Ok(false);
    }
    let marked = memory.mark(name, true);
    let is_written = memory.disks.get(name).is_some_and(|kept| kept.going);
    drop(memory);
    match marked.map_err(unremembered) {
        Err(ControlError::Refused(why)) if is_written => {
            Err(ControlError::Refused(stays(control, name, why)))
        }
        marked => marked.map(|()| true),
    }
}

/// A disk was to go, and stays; why.
fn stays(control: &Control, name: &str, why: String) -> String {
    match control.memory().mark(name, false) {
        Ok(()) => why,
        Err(e) => format!("{why}; it may go when the node begins again: {e}"),
    }
}

/// Whether all of these shards serve a disk.
fn serve(control: &Control, shards: &[usize], name: &str) -> bool {
    let serves =
        |shard: &usize| control.shards.at(*shard).ask(|reply| Message::Serves(name.to_owned(), reply));
    shards.iter().all(|shard| serves(shard) == Some(true))
}

/// A disk was going before: what is left of it is known to these shards from now on.
pub(super) fn find_remains(control: &Control, shards: &[usize], table: &Table) -> Result<(), ControlError> {
    shards.iter().try_for_each(|shard| {
        let found = control.shards.at(*shard).ask(|reply| Message::Remains(table.clone(), reply));
        found.ok_or(ControlError::Ended)?.map_err(ControlError::Refused)
    })
}

/// Goes on with removals that had begun before the node ended, beside everything else.
pub(crate) fn go_on_removing(control: &Control, not_served: &BTreeSet<String>) -> Option<JoinHandle<()>> {
    let mut going = control.memory().going();
    going.retain(|(name, _)| not_served.contains(name));
    if going.is_empty() {
        return None;
    }
    let own = control.clone();
    let work = move || {
        for (name, _) in going {
            if let Err(e) = own.ask_as(Request::Remove { name: name.clone() }, Origin::Midway) {
                tracing::warn!(disk = name, error = %e, "its removal had begun and is not over");
            }
        }
    };
    let thread = std::thread::Builder::new().name("henge-removals".into()).spawn(work);
    thread.inspect_err(|e| tracing::warn!("removals that had begun do not go on: {e}")).ok()
}
