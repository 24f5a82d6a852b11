//! Framing: headers, digests, padding, and where the bytes go (Transport, sections 3.3 and 3.6).

use super::{Payload, Session, Stage, Want};
use crate::output::Digests;
use crate::subsystem::Subsystems;
use crate::wire::{COMMON, Common, Fatal, IC_LEN, Sqe, le16, le32, pdu, put};
use henge_core::RequestId;

/// Most bytes that a host is to send in one data PDU: a whole command's.
const DATA_MAX: u32 = crate::nvm::TRANSFER_MAX as u32;

/// Where data go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sink {
    /// To the parameters of the command.
    Own,
    /// Into a buffer, at this offset.
    Buffer(Payload),
    /// Nowhere.
    Discard,
}

/// A PDU whose header has come, and whose data have not.
#[derive(Debug)]
pub(super) struct Incoming {
    pub task: Option<RequestId>,
    sink: Sink,
    /// Bytes before the data that mean nothing.
    padding: usize,
    /// Bytes that go into the sink.
    left: usize,
    /// Bytes after those that are not wanted.
    surplus: usize,
    /// Bytes that count as the command's, be they wanted any more or not.
    count: usize,
    digest: bool,
    crc: u32,
}

impl Incoming {
    pub fn new(task: Option<RequestId>, sink: Sink, wanted: usize, len: usize) -> Incoming {
        let count = wanted.min(len);
        let left = if sink == Sink::Discard { 0 } else { count };
        Incoming { task, sink, padding: 0, left, surplus: len - left, count, digest: false, crc: 0 }
    }

    pub fn want(&self) -> Want {
        match self.sink {
            Sink::Buffer(payload) if self.left > 0 && self.padding == 0 => {
                Want::Payload(Payload { len: self.left, ..payload })
            }
            _ => Want::Header,
        }
    }

    /// Whose buffer it goes into.
    fn owner(&self) -> Option<RequestId> {
        match self.sink {
            Sink::Buffer(payload) => Some(payload.task),
            _ => None,
        }
    }

    /// Whether it needs a command: as whose data come, or as whose buffer takes them.
    pub fn needs(&self, id: RequestId) -> bool {
        self.task == Some(id) || self.owner() == Some(id)
    }

    /// Whether nothing is missing but the digest.
    fn is_whole(&self) -> bool {
        self.padding + self.left + self.surplus == 0
    }

    fn note(&mut self, bytes: &[u8]) {
        if self.digest {
            self.crc = crc32c::crc32c_append(self.crc, bytes);
        }
    }
}

/// A PDU's header, checked.
struct Frame<'a> {
    common: Common,
    header: &'a [u8],
    /// Bytes of data.
    data: usize,
    /// Bytes between the header and its digest, and the data.
    padding: usize,
}

impl Session {
    /// Takes as many of the bytes as make sense, one PDU at most, and says how many. The rest are to be given
    /// again, with more after them when none were taken; of [`HEADER_MAX`](crate::wire::HEADER_MAX) bytes some always are.
    pub fn receive(&mut self, subsystems: &mut Subsystems, input: &[u8]) -> usize {
        let mut taken = 0;
        loop {
            let rest = &input[taken..];
            if self.stage == Stage::Over {
                return input.len();
            }
            let step = match &self.incoming {
                None if self.want() == Want::Later => 0,
                None => self.receive_header(subsystems, rest),
                Some(_) => self.receive_data(subsystems, rest),
            };
            taken += step;
            // One PDU at a time: what it leads to is done before the next is looked at, however the stream is cut.
            if step == 0 || self.incoming.is_none() || matches!(self.want(), Want::Payload(_)) {
                return taken;
            }
        }
    }

    /// The driver has put these bytes where [`Want::Payload`] said.
    ///
    /// # Panics
    /// When they are more than were asked for.
    pub fn delivered(&mut self, subsystems: &mut Subsystems, bytes: &[u8]) {
        let Some(incoming) = &mut self.incoming else { return };
        incoming.note(bytes);
        if let Sink::Buffer(payload) = &mut incoming.sink {
            payload.offset += bytes.len();
        }
        assert!(bytes.len() <= incoming.left, "no more payload than was asked for");
        incoming.left -= bytes.len();
        if incoming.is_whole() && !incoming.digest {
            self.data_arrived(subsystems, false);
        }
    }

    fn receive_header(&mut self, subsystems: &mut Subsystems, input: &[u8]) -> usize {
        let Some(common) = Common::read(input) else { return 0 };
        if common.kind == pdu::H2C_TERM {
            // The host has found something wrong, and says so before it closes.
            self.close(subsystems);
            return COMMON;
        }
        let digest = if self.digests.header { 4 } else { 0 };
        let len = match self.header_len(&common) {
            Ok(len) => len,
            Err(fatal) => {
                self.fail(subsystems, fatal, &input[..COMMON]);
                return COMMON;
            }
        };
        let Some(header) = input.get(..len) else { return 0 };
        let Some(sum) = input.get(len..len + digest) else { return 0 };
        if digest > 0 && crc32c::crc32c(header).to_le_bytes() != *sum {
            self.fail(subsystems, Fatal::HeaderDigest, header);
            return len + digest;
        }
        match self.frame(common, header, len + digest) {
            Ok(frame) => self.route(subsystems, &frame),
            Err(fatal) => self.fail(subsystems, fatal, header),
        }
        len + digest
    }

    /// Bytes of the header, if such a PDU may come now.
    fn header_len(&self, common: &Common) -> Result<usize, Fatal> {
        let len = Common::header_len(common.kind).ok_or(Fatal::Header(0))?;
        let first = common.kind == pdu::IC_REQ;
        if first != (self.stage == Stage::Opened) {
            return Err(Fatal::Sequence);
        }
        if usize::from(common.header) != len {
            return Err(Fatal::Header(2));
        }
        Ok(len)
    }

    /// What is behind a header that ends, with its digest, at `end`.
    fn frame<'a>(&self, common: Common, header: &'a [u8], end: usize) -> Result<Frame<'a>, Fatal> {
        let len = common.len as usize;
        let (has_header, has_data) = (common.flags & pdu::HEADER_DIGEST, common.flags & pdu::DATA_DIGEST);
        if (has_header != 0) != self.digests.header {
            return Err(Fatal::Header(1));
        }
        if len < end {
            return Err(Fatal::Header(4));
        }
        if len == end {
            return Ok(Frame { common, header, data: 0, padding: 0 });
        }
        let (at, digest) = (usize::from(common.data_at), if has_data != 0 { 4 } else { 0 });
        if (has_data != 0) != self.digests.data {
            return Err(Fatal::Header(1));
        }
        if at < end || at + digest >= len || !at.is_multiple_of(4) {
            return Err(Fatal::Header(3));
        }
        Ok(Frame { common, header, data: len - at - digest, padding: at - end })
    }

    fn route(&mut self, subsystems: &mut Subsystems, frame: &Frame<'_>) {
        let incoming = match frame.common.kind {
            pdu::IC_REQ => self.agree(frame).map(|()| None),
            pdu::COMMAND if frame.data > self.capsule_max() => Err(Fatal::TooMuch),
            pdu::COMMAND => {
                self.is_active = true;
                let sqe = Sqe(*frame.header[COMMON..].first_chunk().expect("the header's length is known"));
                self.command(subsystems, &sqe, frame.data)
            }
            _ if frame.data > DATA_MAX as usize => Err(Fatal::TooMuch),
            _ => self.host_data(frame).map(Some),
        };
        let mut incoming = match incoming {
            Ok(None) => return,
            Ok(Some(incoming)) => incoming,
            Err(fatal) => return self.fail(subsystems, fatal, frame.header),
        };
        incoming.padding = frame.padding;
        incoming.digest = self.digests.data && frame.data > 0;
        let whole = incoming.is_whole();
        self.incoming = Some(incoming);
        if whole {
            self.data_arrived(subsystems, false);
        }
    }

    /// ICReq: version 0, alignment and digests as the host wishes.
    fn agree(&mut self, frame: &Frame<'_>) -> Result<(), Fatal> {
        let h = frame.header;
        if frame.data > 0 {
            return Err(Fatal::Header(4));
        }
        if le16(h, 8) != 0 {
            return Err(Fatal::Unsupported(8));
        }
        if h[10] > 31 {
            return Err(Fatal::Header(10));
        }
        let digests = Digests { header: h[11] & 1 != 0, data: h[11] & 2 != 0 };
        let mut reply = [0; IC_LEN];
        let len = IC_LEN as u32;
        Common { kind: pdu::IC_RESP, flags: 0, header: IC_LEN as u8, data_at: 0, len }.write(&mut reply);
        reply[11] = h[11] & 3;
        put(&mut reply, 12, DATA_MAX.to_le_bytes());
        self.out.raw(&reply);
        self.out.agree(digests, if h[10] > 0 { (usize::from(h[10]) + 1) * 4 } else { 0 });
        self.digests = digests;
        self.stage = Stage::Agreed;
        Ok(())
    }

    /// H2CData: data that were asked for.
    fn host_data(&mut self, frame: &Frame<'_>) -> Result<Incoming, Fatal> {
        let h = frame.header;
        let (offset, len) = (le32(h, 12) as usize, le32(h, 16) as usize);
        let id = self.find(le16(h, 8)).ok_or(Fatal::Header(8))?;
        let task = self.tasks.get(id).ok_or(Fatal::Header(8))?;
        if !task.is_asked || le16(h, 10) != task.tag {
            return Err(Fatal::Header(10));
        }
        if len != frame.data || len == 0 {
            return Err(Fatal::Header(16));
        }
        if offset != task.received || len > task.takes - task.received {
            return Err(Fatal::Range);
        }
        let last = frame.common.flags & pdu::LAST != 0;
        if last != (offset + len == task.takes) {
            return Err(Fatal::Sequence);
        }
        self.asked -= len as u64;
        let sink = self.sink(id);
        Ok(Incoming::new(Some(id), sink, len, len))
    }

    fn receive_data(&mut self, subsystems: &mut Subsystems, input: &[u8]) -> usize {
        let Some(incoming) = &mut self.incoming else { return 0 };
        if incoming.is_whole() {
            let Some(sum) = input.first_chunk::<4>() else { return 0 };
            let damaged = incoming.crc.to_le_bytes() != *sum;
            self.data_arrived(subsystems, damaged);
            return 4;
        }
        let (padding, left) = (incoming.padding, incoming.left);
        let wanted = [padding, left, incoming.surplus].into_iter().find(|n| *n > 0).unwrap_or(0);
        let bytes = &input[..input.len().min(wanted)];
        if padding > 0 {
            incoming.padding -= bytes.len();
        } else {
            incoming.note(bytes);
            let place = if left > 0 { &mut incoming.left } else { &mut incoming.surplus };
            *place -= bytes.len();
            if left > 0
                && let Some(task) = incoming.task.and_then(|id| self.tasks.get_mut(id))
            {
                task.parameters(bytes);
            }
        }
        if incoming.is_whole() && !incoming.digest {
            self.data_arrived(subsystems, false);
        }
        bytes.len()
    }

    /// A PDU is complete; `damaged`: its data are not what their digest says.
    fn data_arrived(&mut self, subsystems: &mut Subsystems, damaged: bool) {
        let Some(incoming) = self.incoming.take() else { return };
        let Some(id) = incoming.task else { return };
        self.arrived(subsystems, id, incoming.count, damaged);
        if let Some(owner) = incoming.owner().filter(|owner| *owner != id) {
            self.advance_task(subsystems, owner);
        }
    }

    /// Tells the host what is wrong with what it has sent, and ends.
    pub(super) fn fail(&mut self, subsystems: &mut Subsystems, fatal: Fatal, header: &[u8]) {
        self.out.raw(&fatal.pdu(header));
        self.close(subsystems);
    }
}
