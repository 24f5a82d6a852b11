//! A disk is added, and what is remembered of its parts.

use super::{Control, ControlError, Made, unremembered};
use crate::message::Message;
use crate::state::{Memory, Origin, Parts};
use henge_api::{Reply, Request};
use std::collections::BTreeSet;

/// Adds a disk. Storage may take hours, or hang: others are changed, and added, meanwhile.
pub(super) fn add(
    control: &Control,
    request: Request,
    disk: &str,
    origin: Origin,
) -> Result<Reply, ControlError> {
    if !control.memory().coming.insert(disk.to_owned()) {
        return Err(ControlError::Refused(format!("a disk \"{disk}\" is being added already")));
    }
    let placed = control.routes().place(&request).map_err(ControlError::Refused);
    let added = placed.and_then(|shards| {
        let made = control.prepare(&shards, &request)?;
        add_and_keep(control, (&shards, request), disk, origin, &made)
    });
    if added.is_err() {
        control.routes().stays_away(disk);
    }
    control.memory().coming.remove(disk);
    added
}

/// Adds a disk, whose parts are made, in an order in which nothing is left behind wherever the node ends: it is remembered; then
/// the parts are its own; then clients may come; then it is remembered that it has parts. A part that no remembered disk has claimed goes
/// when the node begins again. A disk that is remembered without parts gets what is missing then.
fn add_and_keep(
    control: &Control,
    (shards, request): (&[usize], Request),
    disk: &str,
    origin: Origin,
    made: &Made,
) -> Result<Reply, ControlError> {
    let mut memory = control.memory();
    let kept = match memory.disks.get(disk) {
        Some(kept) if kept.going => {
            Err(ControlError::Refused(format!("the disk \"{disk}\" is not served: its removal is not over")))
        }
        Some(_) => Err(ControlError::Refused(format!("there is a disk \"{disk}\" already"))),
        None => memory.prepare(&request, Some(disk), origin).map_err(unremembered),
    };
    let written = kept.is_ok();
    let kept = kept.and_then(|change| memory.commit(change).map_err(unremembered));
    drop(memory);
    let done =
        kept.and_then(|()| claim(control, disk, made)).and_then(|()| control.tell(shards, request.clone()));
    if let (Ok(_), Request::Add { disk: table }) = (&done, &request) {
        let on = control.routes().keep(table);
        have(&mut control.memory(), [(disk.to_owned(), on)].into());
    }
    let Err(ControlError::Refused(why)) = done else { return done };
    // What is left is emptied before it is forgotten: the other way round a part would be left, and nobody to say whose it is.
    discard(control, disk, made);
    let forgotten = if written { control.memory().forget(disk) } else { Ok(()) };
    match forgotten {
        Ok(()) => Err(ControlError::Refused(why)),
        Err(e) => {
            let there = format!("{why}; it may be there, and empty, when the node begins again: {e}");
            Err(ControlError::Refused(there))
        }
    }
}

/// A disk is remembered: these parts, which were made for it, are its own.
pub(super) fn claim(control: &Control, disk: &str, made: &Made) -> Result<(), ControlError> {
    for (shard, parts) in made {
        control.work(*shard, |reply| Message::Claim(disk.to_owned(), parts.clone(), reply))?;
    }
    Ok(())
}

/// A disk, for which these parts were made, was refused.
pub(super) fn discard(control: &Control, disk: &str, made: &Made) {
    for (shard, parts) in made {
        if let Err(e) = control.work(*shard, |reply| Message::Discard(disk.to_owned(), parts.clone(), reply))
        {
            tracing::warn!(disk, error = %e, "parts of a disk that was refused are left");
        }
    }
}

/// These disks have their parts from now on: what is missing when the node begins again was lost.
fn have(memory: &mut Memory, parts: Parts) {
    if let Err(e) = memory.have(parts) {
        tracing::warn!("a part that is lost before the next change would be made anew, empty: {e}");
    }
}

/// The same of all that are served, those of the configuration among them.
pub(crate) fn have_all(
    control: &Control,
    file: impl Iterator<Item = (String, BTreeSet<String>)>,
    failed: &BTreeSet<String>,
) {
    let (mut memory, mut parts) = (control.memory(), file.collect::<Parts>());
    let added = memory.disks.iter().filter_map(|(name, kept)| Some((name, kept.added.as_ref()?)));
    parts.extend(added.map(|(name, table)| (name.clone(), control.routes().keep(table))));
    parts.retain(|name, _| !failed.contains(name));
    have(&mut memory, parts);
}

/// Whether the parts of a disk are there that it had.
pub(super) fn find_parts(
    control: &Control,
    shards: &[usize],
    name: &str,
    request: &Request,
) -> Result<(), ControlError> {
    let Some(on) = control.memory().parts.get(name).cloned() else { return Ok(()) };
    shards.iter().try_for_each(|shard| {
        let found = control.shards.at(*shard).ask(|reply| Message::Find(request.clone(), on.clone(), reply));
        found.ok_or(ControlError::Ended)?.map_err(ControlError::Refused)
    })
}
