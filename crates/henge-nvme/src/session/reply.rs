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
        let ends = self.ends_queue(id);
        self.complete_with(subsystems, &sqe, ending);
        self.retire(id);
        if ends {
            self.close(subsystems);
        }
        self.ask_more();
    }

    /// Ends a command well, with data of our own: as many as the host has room for.
    pub(super) fn answer_data(&mut self, subsystems: &mut Subsystems, id: RequestId, page: &Page) {
        let Some(sqe) = self.tasks.get(id).map(|task| task.sqe) else { return };
        let len = page.len.min(sqe.data_len() as usize);
        let bytes = &page.bytes[..page.bytes.len().min(len)];
        self.send(subsystems, &sqe, (bytes, len - bytes.len()), None);
        self.retire(id);
    }

    /// Ends a command that has read into its buffer.
    pub(super) fn answer_from_buffer(&mut self, subsystems: &mut Subsystems, id: RequestId, data: &[u8]) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.sends_buffer = true;
        let sqe = task.sqe;
        self.send(subsystems, &sqe, (data, 0), Some(id));
        self.retire(id);
    }

    /// Data, and that all went well: in the same PDU where no completion has to tell of the queue's head.
    /// `data`: bytes, and how many zeroes come after them.
    fn send(
        &mut self,
        subsystems: &mut Subsystems,
        sqe: &Sqe,
        data: (&[u8], usize),
        from: Option<RequestId>,
    ) {
        let is_empty = data.0.len() + data.1 == 0;
        let alone = matches!(self.stage, Stage::Joined(joined) if !joined.flow_control);
        if !is_empty {
            self.out.data(sqe.cid(), data, from, alone);
        }
        if !alone || is_empty {
            self.complete_with(subsystems, sqe, Status::SUCCESS.into());
        }
    }

    /// A completion.
    pub(super) fn complete_with(&mut self, subsystems: &mut Subsystems, sqe: &Sqe, ending: Ending) {
        let head = self.next_head();
        self.out.response(cqe(ending.result, head, sqe.cid(), ending.status.bits()));
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

    /// The command is answered, and its name free. Its buffer is so, too, or once it is sent.
    fn retire(&mut self, id: RequestId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.answered = true;
        let (cid, sends_buffer) = (task.sqe.cid(), task.sends_buffer);
        if let Ok(at) = self.by_cid.binary_search_by_key(&cid, |(cid, _)| *cid) {
            self.by_cid.remove(at);
        }
        if self.fused == Some(id) {
            self.fused = None;
        }
        if !sends_buffer {
            self.forget(id);
        }
    }
}
