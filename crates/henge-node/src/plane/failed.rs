//! Disks that are not served because their storage fails, and what storage has to say.

use super::Plane;
use super::tickets::PartOf;
use henge_core::ParamError;
use std::sync::mpsc::Sender;

/// Which disk or pool, and what an administrator is to know of it.
pub(crate) type Notice = (String, String);

/// Why a disk is not there.
pub(crate) struct NotAdded {
    pub error: ParamError,
    /// Its storage fails; what is asked for may be right.
    pub storage: bool,
}

impl From<ParamError> for NotAdded {
    fn from(error: ParamError) -> Self {
        NotAdded { error, storage: false }
    }
}

/// A disk that is not served although it should be.
#[derive(Debug)]
pub(crate) struct Failed {
    pub why: String,
    /// Parts, by gate, that are still to be removed; none where it could not be opened.
    pub remains: Vec<(usize, String)>,
}

impl Failed {
    pub(crate) fn unopened(why: String) -> Failed {
        Failed { why, remains: Vec::new() }
    }
}

impl Plane {
    /// Tells what is to be known, from now on; and what is already.
    pub(crate) fn tell_notices(&mut self, to: Sender<Notice>) {
        for (name, failed) in &self.failed {
            let _ = to.send((name.clone(), format!("it is not served: {}", failed.why)));
        }
        self.notices = Some(to);
        (0..self.gates.len()).for_each(|g| self.hear(g));
    }

    pub(crate) fn notice(&self, name: &str, text: String) {
        if let Some(to) = &self.notices {
            // Whoever listened may have ended before the loop.
            let _ = to.send((name.to_owned(), text));
        }
    }

    /// Passes on what a gate's store has to say.
    pub(super) fn hear(&mut self, g: usize) {
        while let Some(text) = self.gates[g].pipeline.backend_mut().notice() {
            self.notice(&self.gates[g].name, text);
        }
    }

    /// Every disk that was here before is here again: who comes now is a new one.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }

    /// What the stores have to say, to nobody but whoever asks.
    pub(crate) fn notices(&mut self) -> Vec<Notice> {
        let mut all = Vec::new();
        for gate in &mut self.gates {
            while let Some(text) = gate.pipeline.backend_mut().notice() {
                all.push((gate.name.clone(), text));
            }
        }
        all
    }

    /// All disks that were here before are here again: what nobody has claimed is nobody's by its name.
    pub(crate) fn settle_parts(&mut self) {
        self.settled = true;
        for g in 0..self.gates.len() {
            let failed = &self.failed;
            let is_spared =
                |part: &str| part.rsplit_once(".part").is_some_and(|(disk, _)| failed.contains_key(disk));
            let settled = self.gates[g].pipeline.backend_mut().settle(&is_spared);
            let name = &self.gates[g].name;
            match settled {
                Ok(parts) => {
                    for part in parts {
                        self.notice(
                            name,
                            format!(
                                "the part \"{part}\" is no disk's any more and is kept; adopt = true in a disk of its name, \
                                 or `henge pool discard`"
                            ),
                        );
                    }
                }
                Err(e) => self.notice(name, format!("parts that are no disk's cannot be put aside: {e}")),
            }
        }
    }

    /// Parts of a disk that was removed are still there: no disk gets the name until they are removed. What to tell whoever asked.
    pub(crate) fn left_behind(&mut self, disk: String, why: &str, parts: &[PartOf]) -> String {
        let why = format!("it could not be removed whole ({why}); remove it again");
        let remains = parts.iter().map(|part| (part.gate, part.name.clone())).collect();
        self.failed.insert(disk, Failed { why: why.clone(), remains });
        why
    }

    /// Gives up a disk that is not served: what is still to be removed of it is, and what could not be opened is kept.
    pub(crate) fn remove_failed(&mut self, name: &str) -> Result<(), String> {
        let Some(mut failed) = self.failed.remove(name) else { return Ok(()) };
        let remove = |(g, part): &(usize, String)| {
            self.gates[*g]
                .pipeline
                .backend_mut()
                .remove_part(part)
                .map_err(|e| failed.why = e.to_string())
                .is_err()
        };
        failed.remains.retain(remove);
        if failed.remains.is_empty() {
            self.settle_parts();
            return Ok(());
        }
        let why = failed.why.clone();
        self.failed.insert(name.to_owned(), failed);
        Err(why)
    }
}
