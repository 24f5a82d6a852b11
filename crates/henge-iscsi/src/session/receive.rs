//! Framing: headers, digests, data segments, padding, and where the bytes go.

use super::{Payload, Session, Stage, Want};
use crate::login::{Failure, Progress, refusal};
use crate::target::Targets;
use crate::text::TEXT_MAX;
use crate::wire::{BHS, Header, NO_TAG, Reason, padding, request, response};
use henge_core::{Instant, RequestId};

/// Longest data segment before the terms are agreed on (RFC 7143 6.1).
const LOGIN_DATA_MAX: usize = 8192;

/// Where a data segment goes.
#[derive(Debug)]
pub(super) enum Sink {
    /// Into memory of our own: text, pings, parameter lists.
    Own(Vec<u8>),
    /// Into a command's buffer, at this offset.
    Buffer(Payload),
    /// Nowhere.
    Discard,
}

/// A PDU whose header has come.
#[derive(Debug)]
pub(super) struct Incoming {
    pub header: Header,
    pub sink: Sink,
    /// The command that it belongs to.
    pub task: Option<RequestId>,
    /// Bytes that go into the sink.
    left: usize,
    /// Bytes after those that are not wanted.
    surplus: usize,
    crc: u32,
}

impl Incoming {
    pub fn new(header: Header, sink: Sink, task: Option<RequestId>, wanted: usize) -> Incoming {
        let len = header.data_len();
        let wanted = wanted.min(len);
        Incoming { header, sink, task, left: wanted, surplus: len - wanted, crc: 0 }
    }

    /// Nobody wants its data any more. What the driver is still to deliver, it may.
    pub fn abandon(&mut self) {
        self.surplus += std::mem::take(&mut self.left);
        self.sink = Sink::Discard;
        self.task = None;
    }

    pub fn want(&self) -> Want {
        match &self.sink {
            Sink::Buffer(payload) if self.left > 0 => Want::Payload(Payload { len: self.left, ..*payload }),
            _ => Want::Header,
        }
    }
}

impl Session {
    /// Takes as many of the bytes as make sense, one PDU at most, and says how many. The rest are to be given
    /// again, with more after them when none were taken; of `HEADER_MAX` bytes some always are.
    pub fn receive(&mut self, targets: &mut Targets, input: &[u8], now: Instant) -> usize {
        let mut taken = 0;
        loop {
            let rest = &input[taken..];
            if matches!(self.stage, Stage::Over) {
                return input.len();
            }
            let step = match &self.incoming {
                None if self.want() == Want::Later => 0,
                None => self.receive_header(targets, rest, now),
                Some(_) => self.receive_data(targets, rest, now),
            };
            taken += step;
            let pending = matches!(self.want(), Want::Payload(_));
            // One PDU at a time: what it leads to is done before the next is looked at, however the stream is cut.
            if step == 0 || pending || self.incoming.is_none() {
                return taken;
            }
        }
    }

    /// The driver has put these bytes where [`Want::Payload`] said.
    pub fn delivered(&mut self, targets: &mut Targets, bytes: &[u8], now: Instant) {
        let digest = self.agreed.data_digest;
        let Some(incoming) = &mut self.incoming else { return };
        if digest {
            incoming.crc = crc32c::crc32c_append(incoming.crc, bytes);
        }
        // Of a command that was aborted meanwhile, it is surplus.
        let open = if let Sink::Buffer(payload) = &mut incoming.sink {
            payload.offset += bytes.len();
            &mut incoming.left
        } else {
            &mut incoming.surplus
        };
        assert!(bytes.len() <= *open, "no more payload than was asked for");
        *open -= bytes.len();
        self.dispatch_if_whole(targets, now);
    }

    /// After the last byte of data: when nothing follows it, the PDU is complete.
    fn dispatch_if_whole(&mut self, targets: &mut Targets, now: Instant) {
        let digest = matches!(self.stage, Stage::Full) && self.agreed.data_digest;
        let Some(incoming) = &self.incoming else { return };
        let left = incoming.left + incoming.surplus;
        if left == 0 && !digest && padding(incoming.header.data_len()) == 0 {
            self.dispatch(targets, now);
        }
    }

    fn receive_header(&mut self, targets: &mut Targets, input: &[u8], now: Instant) -> usize {
        let Some(header) = Header::read(input) else { return 0 };
        let full = matches!(self.stage, Stage::Full);
        let digest = full && self.agreed.header_digest;
        let ahs_end = BHS + header.ahs_len();
        let end = ahs_end + if digest { 4 } else { 0 };
        if !full && header.opcode() != request::LOGIN {
            self.refuse_login(targets, &header, Failure::Request);
            return BHS;
        }
        if input.len() < end {
            return 0;
        }
        if digest && crc32c::crc32c(&input[..ahs_end]).to_le_bytes() != input[ahs_end..end] {
            // Nothing in it can be believed, its length neither (RFC 7143 7.8).
            self.close(targets);
            return end;
        }
        self.deadline = now + if full { self.limits.silence } else { self.limits.login };
        self.pinged = false;
        let most = match (full, self.target) {
            (false, _) => LOGIN_DATA_MAX,
            (true, None) => TEXT_MAX,
            (true, Some(_)) => self.limits.offer.receive_max as usize,
        };
        if header.data_len() > most {
            self.reject_and_close(targets, &header, Reason::InvalidField);
            return end;
        }
        if let Some(incoming) = self.route(targets, header) {
            self.incoming = Some(incoming);
            if header.data_len() == 0 {
                self.dispatch(targets, now);
            }
        }
        end
    }

    /// Where the data of a PDU go; for SCSI commands, this begins them. `None`: the session is over.
    fn route(&mut self, targets: &mut Targets, header: Header) -> Option<Incoming> {
        match header.opcode() {
            request::SCSI => self.route_command(targets, header),
            request::DATA => self.route_data(targets, header),
            _ => {
                let len = header.data_len();
                Some(Incoming::new(header, Sink::Own(Vec::with_capacity(len)), None, len))
            }
        }
    }

    fn receive_data(&mut self, targets: &mut Targets, input: &[u8], now: Instant) -> usize {
        let digest = matches!(self.stage, Stage::Full) && self.agreed.data_digest;
        let Some(incoming) = &mut self.incoming else { return 0 };
        let left = incoming.left + incoming.surplus;
        if left > 0 {
            let wanted = if incoming.left > 0 { incoming.left } else { incoming.surplus };
            let bytes = &input[..input.len().min(wanted)];
            if digest {
                incoming.crc = crc32c::crc32c_append(incoming.crc, bytes);
            }
            if incoming.left > 0 {
                if let Sink::Own(own) = &mut incoming.sink {
                    own.extend_from_slice(bytes);
                }
                incoming.left -= bytes.len();
            } else {
                incoming.surplus -= bytes.len();
            }
            let taken = bytes.len();
            self.dispatch_if_whole(targets, now);
            return taken;
        }
        let pad = padding(incoming.header.data_len());
        let end = pad + if digest { 4 } else { 0 };
        if input.len() < end {
            return 0;
        }
        let crc = crc32c::crc32c_append(incoming.crc, &input[..pad]);
        if digest && crc.to_le_bytes() != input[pad..end] {
            let header = incoming.header;
            self.reject_and_close(targets, &header, Reason::DataDigest);
            return end;
        }
        self.dispatch(targets, now);
        end
    }

    /// A PDU is complete.
    fn dispatch(&mut self, targets: &mut Targets, now: Instant) {
        let Some(incoming) = self.incoming.take() else { return };
        let header = incoming.header;
        let data = match incoming.sink {
            Sink::Own(data) => data,
            _ => Vec::new(),
        };
        if matches!(self.stage, Stage::Login(_)) {
            return self.log_in(targets, &header, &data, now);
        }
        match header.opcode() {
            request::SCSI => self.command_arrived(targets, &header, incoming.task, data),
            request::DATA => self.data_arrived(targets, &header, incoming.task, data),
            request::NOP => self.nop(targets, &header, &data),
            request::TASK => self.manage(targets, &header),
            request::TEXT => self.text(targets, &header, &data),
            request::LOGOUT => self.log_out(targets, &header),
            request::SNACK => self.reject_and_close(targets, &header, Reason::Snack),
            request::LOGIN => self.reject_and_close(targets, &header, Reason::Protocol),
            _ => self.reject_and_close(targets, &header, Reason::NotSupported),
        }
    }

    fn log_in(&mut self, targets: &mut Targets, header: &Header, data: &[u8], now: Instant) {
        let Stage::Login(login) = &mut self.stage else { return };
        if self.stat_sn == 0 && self.exp_cmd_sn == 0 {
            self.exp_cmd_sn = header.cmd_sn();
            self.max_cmd_sn = header.cmd_sn().wrapping_sub(1);
            self.stat_sn = header.u32_at(28);
        }
        let outcome = login.request(header, data, targets, &self.limits.offer);
        self.logged_in(targets, header, outcome, now);
    }

    /// Whether a proof of a login is still compared with secrets, some at a time. Nothing is received meanwhile.
    pub fn is_trying(&self) -> bool {
        self.trying.is_some()
    }

    /// Compares it with some more of them, in whose turn that is.
    pub fn go_on(&mut self, targets: &mut Targets, now: Instant) {
        let (Some(header), Stage::Login(login)) = (self.trying.take(), &mut self.stage) else { return };
        let outcome = login.go_on(&header, targets, &self.limits.offer);
        self.logged_in(targets, &header, outcome, now);
    }

    /// Secrets that proofs were compared with since this was last asked: work that is to be charged to somebody.
    pub fn take_tries(&mut self) -> usize {
        std::mem::take(&mut self.tries)
    }

    fn logged_in(
        &mut self,
        targets: &mut Targets,
        header: &Header,
        outcome: Result<Progress, Failure>,
        now: Instant,
    ) {
        if let Stage::Login(login) = &mut self.stage {
            self.tries += login.take_tries();
        }
        match outcome {
            Err(failure) => self.refuse_login(targets, header, failure),
            Ok(Progress::Trying) => self.trying = Some(*header),
            Ok(Progress::Continue(mut reply, text)) => {
                self.stamp(&mut reply, true);
                self.out.pdu(reply, &text);
            }
            Ok(Progress::Done(mut reply, text, accepted)) => {
                let entered = targets.enter(self.nexus, &accepted.initiator, accepted.isid, accepted.target);
                let Some(tsih) = entered else {
                    return self.refuse_login(targets, header, Failure::Resources);
                };
                reply.put_u16(14, tsih);
                self.stamp(&mut reply, true);
                self.out.pdu(reply, &text);
                let target = accepted.target.and_then(|id| targets.get(id)).map(|t| t.name.clone());
                self.names = (accepted.initiator, target.unwrap_or_default());
                (self.target, self.shown) = (accepted.target, accepted.shown);
                self.agreed = accepted.agreed;
                self.out.set_digests(self.agreed.header_digest, self.agreed.data_digest);
                self.stage = Stage::Full;
                self.deadline = now + self.limits.silence;
            }
        }
    }

    fn refuse_login(&mut self, targets: &mut Targets, header: &Header, failure: Failure) {
        let mut reply = refusal(header, failure);
        self.stamp(&mut reply, true);
        self.out.pdu(reply, &[]);
        self.close(targets);
    }

    /// Reject (RFC 7143 11.17): the header comes back as data.
    pub(super) fn reject(&mut self, header: &Header, reason: Reason) {
        let mut reply = Header::reply(response::REJECT);
        reply.put(2, reason as u8).put_u32(16, NO_TAG);
        self.stamp(&mut reply, true);
        self.out.pdu(reply, &header.0);
    }

    /// At error recovery level 0, a broken session ends (RFC 7143 7.1.5).
    pub(super) fn reject_and_close(&mut self, targets: &mut Targets, header: &Header, reason: Reason) {
        self.reject(header, reason);
        self.close(targets);
    }
}
