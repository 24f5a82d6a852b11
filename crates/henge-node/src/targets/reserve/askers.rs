//! Whoever asks for a change: what is passed on to a peer for him, and how he is answered.

use super::wire::{sweep, wire};
use super::{Asker, OwnerTask};
use crate::links::Links;
use henge_core::RequestId;
use henge_iscsi::scsi::{Change, Sense, Status};
use henge_link::Message;
use std::collections::{BTreeMap, VecDeque};

/// Most changes of ours that peers have not answered.
const ASKED_MAX: usize = 4096;

/// Answers to whoever asked: sessions of this node fetch theirs, peers are told theirs.
#[derive(Default)]
pub(in crate::targets) struct Answers {
    decided: VecDeque<(RequestId, RequestId, Status)>,
}

impl Answers {
    pub(super) fn give(&mut self, asker: Asker, status: Status, links: &mut Links) {
        match asker {
            Asker::Here(connection, command) => self.decided.push_back((connection, command, status)),
            Asker::There(peer, id) => {
                let why = if let Status::Check(sense) = status { Some(wire(&sense)) } else { None };
                links.tell(peer, Message::Reserved { id, status: status.code(), why });
            }
        }
    }

    /// A session's change ends at once.
    pub(in crate::targets) fn refuse(
        &mut self,
        (connection, command): (RequestId, RequestId),
        status: Status,
    ) {
        self.decided.push_back((connection, command, status));
    }

    /// The next answer for a session: its connection, its command, and how it ends.
    pub(in crate::targets) fn next_decided(&mut self) -> Option<(RequestId, RequestId, Status)> {
        self.decided.pop_front()
    }
}

/// Changes that peers are to decide.
pub(super) struct PassedOn {
    /// By our name for each: which peer, and who asks.
    pub(super) unanswered: BTreeMap<u64, (usize, Asker)>,
    last: u64,
}

impl PassedOn {
    /// `epoch` grows when the node starts anew.
    pub(super) fn new(epoch: u64) -> PassedOn {
        PassedOn { unanswered: BTreeMap::new(), last: epoch }
    }

    /// Passes on to a disk's owner what somebody asks. Its answer, where there is one at once.
    pub(super) fn pass(
        &mut self,
        (peer, name): (usize, &str),
        what: OwnerTask,
        asker: Asker,
        links: &mut Links,
    ) -> Option<Status> {
        if self.unanswered.len() >= ASKED_MAX {
            return Some(Status::Busy);
        }
        let id = self.last + 1;
        let disk = name.to_owned();
        let message = match what {
            OwnerTask::Change(Change { cdb, list, port }) => Message::Reserve { id, disk, port, cdb, list },
            OwnerTask::Sweep(what) => Message::Sweep { id, disk, what: sweep(what) },
        };
        if !links.tell(peer, message) {
            return Some(Status::Busy); // not linked just now
        }
        self.last = id;
        self.unanswered.insert(id, (peer, asker));
        None
    }

    /// A peer has answered: who asked, if it was that peer.
    pub(super) fn answered(&mut self, peer: usize, id: u64) -> Option<Asker> {
        self.unanswered.remove(&id).filter(|(of, _)| *of == peer).map(|(_, asker)| asker)
    }

    /// The link to a peer is lost: whoever waits for its answers gets no others.
    pub(super) fn lose(&mut self, peer: usize, answers: &mut Answers, links: &mut Links) {
        let lost: Vec<u64> =
            self.unanswered.iter().filter(|(_, (of, _))| *of == peer).map(|(id, _)| *id).collect();
        for id in lost {
            let Some((_, asker)) = self.unanswered.remove(&id) else { continue };
            answers.give(asker, Status::Check(Sense::UNANSWERED), links);
        }
    }
}
