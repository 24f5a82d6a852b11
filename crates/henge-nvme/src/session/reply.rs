//! Completions, and data to the host (Transport, sections 3.6.2.7 and 3.6.2.10).

use super::{Session, Stage};
use crate::controller::Failure;
use crate::plan::Page;
use crate::status::{Ending, Status};
use crate::subsystem::Subsystems;
use crate::wire::{Sqe, cqe};
use henge_core::RequestId;

impl Session {
    /// Ends a command.
    pub(super) fn answer(&mut self, subsystems: &mut Subsystems, id: RequestId, ending: Ending) {
        let Some(sqe) = self.tasks.get(id).map(|task| task.sqe) else { return };
        let ends = self.ends_queue(&sqe);
        self.complete_with(subsystems, &sqe, ending);
        self.retire(id);
        if ends {
            self.close(subsystems);
        }
        self.ask_more();
    }

    /// Ends a command well, with data of our own: as many as the host has room for.
    pub(super) fn answer_data(&mut self, id: RequestId, page: &Page) {
        let Some(sqe) = self.tasks.get(id).map(|task| task.sqe) else { return };
        let len = page.len.min(sqe.data_len() as usize);
        let bytes = &page.bytes[..page.bytes.len().min(len)];
        self.send(sqe.cid(), (bytes, len - bytes.len()), None);
        self.retire(id);
    }

    /// Ends a command that has read into its buffer.
    pub(super) fn answer_from_buffer(&mut self, id: RequestId, data: &[u8]) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.answered = true;
        let cid = task.sqe.cid();
        self.send(cid, (data, 0), Some(id));
        self.free_name(cid, id);
    }

    /// Data, and that all went well: in the same PDU where no completion has to tell of the queue's head.
    /// `data`: bytes, and how many zeroes come after them.
    fn send(&mut self, cid: u16, data: (&[u8], usize), from: Option<RequestId>) {
        let is_empty = data.0.len() + data.1 == 0;
        let alone = matches!(self.stage, Stage::Joined(joined) if !joined.flow_control);
        if !is_empty {
            self.out.data(cid, data, from, alone);
        }
        if !alone || is_empty {
            self.respond(cid, Status::SUCCESS.into());
        }
    }

    fn respond(&mut self, cid: u16, ending: Ending) {
        let head = self.next_head();
        self.out.response(cqe(ending.result, head, cid, ending.status.bits()));
    }

    /// A completion. Of a command that has failed the controller takes note.
    pub(super) fn complete_with(&mut self, subsystems: &mut Subsystems, sqe: &Sqe, ending: Ending) {
        self.respond(sqe.cid(), ending);
        if let Stage::Joined(joined) = self.stage
            && !ending.status.is_success()
            && let Some(controller) = subsystems.controller_mut(joined.cntlid)
        {
            controller.note_failure(Failure {
                number: 0,
                queue: joined.qid,
                cid: sqe.cid(),
                status: ending.status.bits(),
                block: sqe.block(),
                nsid: sqe.nsid(),
            });
        }
    }

    /// The command is answered, and its name and its buffer are free.
    fn retire(&mut self, id: RequestId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.answered = true;
        let cid = task.sqe.cid();
        self.free_name(cid, id);
        self.forget(id);
    }

    /// A command is answered: its name is free.
    fn free_name(&mut self, cid: u16, id: RequestId) {
        // Hosts of Linux before 6.5 send no Keep Alive while commands end, whenever those began.
        self.is_active = true;
        self.cids.remove(cid);
        if self.fused == Some(id) {
            self.fused = None;
        }
    }
}
