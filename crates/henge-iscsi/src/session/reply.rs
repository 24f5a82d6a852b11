//! Answers to SCSI commands: Data-In, status, residuals (RFC 7143, sections 11.4 and 11.7).

use super::{Session, Step};
use crate::scsi::{Status, Transfer};
use crate::target::Targets;
use crate::wire::{Header, response};
use henge_core::RequestId;

/// By how much a transfer missed what the initiator expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Residual {
    None,
    /// More than was expected.
    Overflow(u32),
    /// Less.
    Underflow(u32),
}

impl Residual {
    fn of(moved: u64, expected: u64) -> Residual {
        let bytes = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        match moved.cmp(&expected) {
            std::cmp::Ordering::Less => Residual::Underflow(bytes(expected - moved)),
            std::cmp::Ordering::Equal => Residual::None,
            std::cmp::Ordering::Greater => Residual::Overflow(bytes(moved - expected)),
        }
    }
    fn write(self, header: &mut Header) {
        let (flag, count) = match self {
            Residual::None => (0, 0),
            Residual::Overflow(count) => (0x04, count),
            Residual::Underflow(count) => (0x02, count),
        };
        header.0[1] |= flag;
        header.put_u32(44, count);
    }
}

/// Bytes of a command's data.
struct Data<'a> {
    bytes: &'a [u8],
    /// Where in the command's data they begin.
    at: usize,
    /// No more come after them: the status goes with them.
    whole: bool,
    /// The command in whose buffer they are; else they are copied.
    from: Option<RequestId>,
}

impl Session {
    /// Ends a task with a status, and with data of our own.
    pub(super) fn answer(&mut self, targets: &mut Targets, id: RequestId, status: Status, data: &[u8]) {
        let Some(task) = self.tasks.get(id) else { return };
        let expected = if task.expects_out > 0 { task.expects_out } else { task.expects_in };
        let good = status == Status::Good;
        let (moved, sent) = match task.transfer {
            Transfer::In(len) if good => (len, (len.min(task.expects_in) as usize).min(data.len())),
            // Data may have been taken, but to no effect.
            Transfer::Out(len) if good => (len, 0),
            _ => (0, 0),
        };
        let residual = Residual::of(moved, expected);
        let (itt, lun, data_in) = (task.itt, task.lun, task.data_in);
        let sense = match status {
            Status::Check(sense) => {
                let unit = self.target.and_then(|target| targets.unit(target, task.unit));
                unit.map_or_else(|| sense.bytes(false), |unit| unit.sense_bytes(&sense))
            }
            _ => Vec::new(),
        };
        self.forget(id);
        if sent > 0 {
            let data = Data { bytes: &data[..sent], at: 0, whole: true, from: None };
            self.send_data(itt, lun, residual, data, 0);
            return;
        }
        let mut header = Header::reply(response::SCSI);
        header.put(3, status.code()).put_u32(16, itt).put_u32(36, data_in);
        residual.write(&mut header);
        self.stamp(&mut header, true);
        let mut segment = Vec::new();
        if !sense.is_empty() {
            segment.extend_from_slice(&(sense.len() as u16).to_be_bytes());
            segment.extend_from_slice(&sense);
        }
        self.out.pdu(header, &segment);
        self.free(id);
        self.settle(targets);
    }

    /// Ends a task that has read into its buffer: all of it, or its last piece.
    pub(super) fn answer_from_buffer(&mut self, id: RequestId, buffer: &[u8]) {
        let Some(task) = self.tasks.get(id) else { return };
        let Transfer::In(len) = task.transfer else { return };
        let residual = Residual::of(len, task.expects_in);
        let (sent, base) = (len.min(task.expects_in) as usize, task.base);
        let (itt, lun, number) = (task.itt, task.lun, task.data_in);
        assert!(buffer.len() >= sent - base, "a command's buffer holds what it reads");
        self.forget(id);
        let data = Data { bytes: &buffer[..sent - base], at: base, whole: true, from: Some(id) };
        self.send_data(itt, lun, residual, data, number);
        self.free(id);
    }

    /// Sends a piece of a READ of which there is more.
    pub(super) fn send_piece(&mut self, id: RequestId, buffer: &[u8]) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let Some((_, len)) = task.piece_at() else { return };
        task.sending = true;
        let (itt, lun, number, base) = (task.itt, task.lun, task.data_in, task.base);
        let data = Data { bytes: &buffer[..len as usize], at: base, whole: false, from: Some(id) };
        let number = self.send_data(itt, lun, Residual::None, data, number);
        if let Some(task) = self.tasks.get_mut(id) {
            task.data_in = number;
        }
        self.out.piece(id);
    }

    /// Data-In PDUs; the last one of all carries the status. The F bit ends each burst. The number of the next one.
    fn send_data(
        &mut self,
        itt: u32,
        lun: [u8; 8],
        residual: Residual,
        data: Data<'_>,
        mut number: u32,
    ) -> u32 {
        let (most, burst) = (self.agreed.send_max as usize, self.agreed.max_burst as usize);
        let Data { bytes, at, whole, from } = data;
        let mut done = 0;
        while done < bytes.len() {
            let offset = at + done;
            let burst_left = burst - offset % burst;
            let len = (bytes.len() - done).min(most).min(burst_left);
            let last = whole && done + len == bytes.len();
            let mut header = Header::reply(response::DATA);
            header.put(1, if last || len == burst_left { 0x80 } else { 0 });
            header.put_lun(lun).put_u32(16, itt).put_u32(20, crate::wire::NO_TAG);
            self.stamp(&mut header, last);
            header.put_u32(36, number).put_u32(40, offset as u32);
            if last {
                header.0[1] |= 0x01; // S: the status is in here, GOOD
                residual.write(&mut header);
            } else {
                header.put_u32(24, 0);
            }
            let range = done..done + len;
            match from {
                Some(id) => self.out.pdu_of_buffer(header, id, range.clone(), &bytes[range]),
                None => self.out.pdu(header, &bytes[range]),
            }
            done += len;
            number += 1;
        }
        number
    }

    /// The task is no more; its window place is free. Its buffer stays.
    pub(super) fn forget(&mut self, id: RequestId) {
        if let Some(task) = self.tasks.remove(id) {
            self.by_tag.remove(&task.itt);
            self.counts[usize::from(task.immediate)] -= 1;
            if task.aborted && task.sending {
                self.free(id); // some of it is still to be sent
            } else if task.aborted {
                self.free_now(id);
            }
        }
    }

    /// Its buffer is free once all that was pushed is sent.
    fn free(&mut self, id: RequestId) {
        if self.buffers.contains_key(&id) {
            self.out.release(id);
        }
    }

    /// Its buffer is free at once.
    pub(super) fn free_now(&mut self, id: RequestId) {
        if let Some(len) = self.buffers.remove(&id) {
            self.held -= len as u64;
            self.steps.push_back(Step::Release(id));
        }
    }
}
