//! Data-Out and R2T: what an initiator sends beyond the command itself (RFC 7143, sections 11.7 and 11.8).

use super::command::Work;
use super::receive::{Incoming, Sink};
use super::{Payload, Session};
use crate::scsi::{Sense, Status, Transfer};
use crate::target::Targets;
use crate::wire::{Header, NO_TAG, Reason, response};
use henge_core::RequestId;

/// Data that were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct R2t {
    tag: u32,
    /// The byte after the last.
    end: usize,
}

impl Session {
    /// R2T for the next burst.
    pub(super) fn ask_for_data(&mut self, id: RequestId) {
        let tag = self.new_tag();
        let Some(task) = self.tasks.get_mut(id) else { return };
        let len = (task.piece_end() - task.received).min(self.agreed.max_burst as usize);
        task.r2t = Some(R2t { tag, end: task.received + len });
        task.data_sn = 0;
        let mut ask = Header::reply(response::R2T);
        ask.put_lun(task.lun).put_u32(16, task.itt).put_u32(20, tag);
        ask.put_u32(36, task.r2t_sn).put_u32(40, task.received as u32).put_u32(44, len as u32);
        task.r2t_sn += 1;
        self.stamp(&mut ask, false);
        self.out.pdu(ask, &[]);
    }

    /// A Data-Out's header: where its data go. `None`: the session is over.
    pub(super) fn route_data(&mut self, targets: &mut Targets, header: Header) -> Option<Incoming> {
        let discard = Incoming::new(header, Sink::Discard, None, 0);
        // Data of a command that was answered or aborted meanwhile are still on their way.
        let Some(&id) = self.by_tag.get(&header.itt()) else { return Some(discard) };
        let Some(task) = self.tasks.get_mut(id) else { return Some(discard) };
        if task.aborted {
            return Some(discard);
        }
        let (len, offset) = (header.data_len(), header.u32_at(40) as usize);
        let last = header.is_final();
        let end = offset + len;
        let most = match task.r2t {
            Some(asked) if asked.tag == header.ttt() => asked.end,
            None if header.ttt() == NO_TAG && task.unsolicited => {
                task.expects_out.min(u64::from(self.agreed.first_burst)) as usize
            }
            _ => {
                self.reject_and_close(targets, &header, Reason::Protocol);
                return None;
            }
        };
        let decided = matches!(task.work, Work::Answer(..));
        let wrong = header.u32_at(36) != task.data_sn || offset != task.received;
        let burst_short = task.r2t.is_some() && last && end != most;
        if !decided && (wrong || end > most || burst_short || !last && end == most && task.r2t.is_some()) {
            // The command fails, the session goes on: what is left of the burst is dropped.
            task.answer(Status::Check(Sense::DATA_AMOUNT), Vec::new());
        }
        task.data_sn = task.data_sn.wrapping_add(1);
        let incoming = match (&task.work, task.transfer) {
            (Work::Parameters(_), _) => {
                let wanted = task.takes.saturating_sub(offset);
                Incoming::new(header, Sink::Own(Vec::with_capacity(len)), Some(id), wanted)
            }
            (Work::Storage(_), Transfer::Out(_)) => {
                let wanted = task.takes.saturating_sub(offset);
                let at = offset.saturating_sub(task.base);
                let payload =
                    Payload { task: id, unit: task.unit, offset: at, len: 0, buffer: task.buffer() };
                Incoming::new(header, Sink::Buffer(payload), Some(id), wanted)
            }
            _ => Incoming::new(header, Sink::Discard, Some(id), 0),
        };
        Some(incoming)
    }

    /// A Data-Out is complete.
    pub(super) fn data_arrived(
        &mut self,
        targets: &mut Targets,
        header: &Header,
        task: Option<RequestId>,
        data: Vec<u8>,
    ) {
        let Some(id) = task else { return };
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.received += header.data_len();
        if let Work::Parameters(list) = &mut task.work {
            list.extend_from_slice(&data);
        }
        if header.is_final() {
            task.unsolicited = false;
            task.r2t = None;
            self.advance_task(targets, id);
        }
    }
}
