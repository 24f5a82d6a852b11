//! Replies, as the client's end understands them (proto: "Simple reply message", "Structured reply types").

use crate::client::{CHUNK_MAX, EMPTY_MAX, State};
use crate::proto::{
    Error, Fields, SIMPLE_REPLY_MAGIC, STATE_HOLE, STATE_ZERO, STRING_MAX, STRUCTURED_REPLY_MAGIC, chunk,
};
use crate::{Ask, Client, ClientEvent, Extent};
use henge_core::RequestId;

type Item = Result<Option<ClientEvent>, &'static str>;

impl Client {
    /// Sixteen bytes: a simple reply, or the start of a chunk.
    pub(crate) fn reply_head(&mut self, bytes: &[u8]) -> Item {
        let mut f = Fields(bytes);
        match f.u32() {
            Some(SIMPLE_REPLY_MAGIC) => {}
            Some(STRUCTURED_REPLY_MAGIC) if self.negotiated.structured => {
                self.head.copy_from_slice(bytes);
                self.state = State::ChunkRest;
                return Ok(None);
            }
            _ => return Err("no reply magic"),
        }
        let (Some(code), Some(cookie)) = (f.u32(), f.u64()) else { return Err("a reply cut short") };
        let id = self.pending_id(cookie)?;
        let sent = self.pending.get_mut(id).expect("its name was just looked up");
        self.message.clear();
        if code != 0 {
            sent.error = Some(Error::from_code(code));
        } else if matches!(sent.ask, Ask::Read | Ask::BlockStatus) {
            if self.negotiated.structured {
                return Err("a simple reply with data after structured replies were negotiated");
            }
            sent.covered = u64::from(sent.len);
            if sent.len > 0 {
                let left = sent.len;
                self.state = State::Payload { id, done: true, left };
                return Ok(Some(ClientEvent::Payload { id, at: 0, len: left }));
            }
        }
        Ok(Some(self.done(id)?))
    }

    /// The last four bytes of a chunk's header.
    pub(crate) fn chunk_head(&mut self, bytes: &[u8]) -> Item {
        let head = self.head;
        let mut f = Fields(&head[4..]);
        let (Some(flags), Some(kind), Some(cookie)) = (f.u16(), f.u16(), f.u64()) else {
            return Err("a chunk cut short");
        };
        let len = Fields(bytes).u32().ok_or("a chunk cut short")?;
        let id = self.pending_id(cookie)?;
        let done = flags & chunk::FLAG_DONE != 0;
        // A read's bytes are not gathered: eight bytes of offset, then the driver takes over.
        let need = match kind {
            chunk::OFFSET_DATA if len < 9 => return Err("a content chunk without content"),
            chunk::OFFSET_DATA => {
                let sent = self.pending.get_mut(id).expect("its name was just looked up");
                if sent.ask != Ask::Read {
                    return Err("content for what is not a read");
                }
                // Kept here until the offset is read too.
                self.head[..4].copy_from_slice(&(len - 8).to_be_bytes());
                8
            }
            _ if len > CHUNK_MAX => return Err("an absurdly long chunk"),
            chunk::OFFSET_HOLE => len,
            _ => {
                let sent = self.pending.get_mut(id).expect("its name was just looked up");
                sent.empty += 1;
                if sent.empty > EMPTY_MAX {
                    return Err("chunks without content and without end");
                }
                len
            }
        };
        self.state = State::ChunkData { id, kind, done, len: need };
        Ok(None)
    }

    /// The rest of a chunk.
    pub(crate) fn chunk_data(&mut self, id: RequestId, kind: u16, done: bool, bytes: &[u8]) -> Item {
        self.state = State::Reply;
        let mut f = Fields(bytes);
        let event = match kind {
            chunk::NONE if !done || !bytes.is_empty() => return Err("a wrong final chunk"),
            chunk::NONE => None,
            chunk::OFFSET_DATA => {
                let len = Fields(&self.head[..4]).u32().unwrap_or(0);
                let at = self.cover(id, f.u64(), len)?;
                self.state = State::Payload { id, done, left: len };
                return Ok(Some(ClientEvent::Payload { id, at, len }));
            }
            chunk::OFFSET_HOLE => {
                let (offset, len) = (f.u64(), f.u32().filter(|n| *n > 0).ok_or("an empty hole")?);
                let at = self.cover(id, offset, len)?;
                Some(ClientEvent::Hole { id, at, len })
            }
            chunk::BLOCK_STATUS => Some(self.status(id, bytes)?),
            _ if kind & chunk::ERROR_BIT != 0 => {
                self.error(id, bytes)?;
                None
            }
            _ => return Err("an unknown chunk"),
        };
        match (event, done) {
            (event, false) => Ok(event),
            (None, true) => self.done(id).map(Some),
            (Some(event), true) => {
                self.after = Some(id);
                Ok(Some(event))
            }
        }
    }

    /// A content chunk must lie within the read, and no more may come than was asked for.
    fn cover(&mut self, id: RequestId, offset: Option<u64>, len: u32) -> Result<u32, &'static str> {
        let sent = self.pending.get_mut(id).expect("a chunk's command is in flight");
        let offset = offset.ok_or("a chunk cut short")?;
        let at = offset.checked_sub(sent.offset).ok_or("content before the read")?;
        sent.covered += u64::from(len);
        let inside = at.checked_add(len.into()).is_some_and(|end| end <= sent.len.into());
        if sent.ask != Ask::Read || !inside || sent.covered > sent.len.into() {
            return Err("content beyond the read");
        }
        Ok(at as u32)
    }

    fn status(&mut self, id: RequestId, bytes: &[u8]) -> Result<ClientEvent, &'static str> {
        let sent = self.pending.get_mut(id).expect("a chunk's command is in flight");
        if sent.ask != Ask::BlockStatus || bytes.len() < 12 || bytes.len() % 8 != 4 {
            return Err("a wrong block status");
        }
        self.extents.clear();
        let mut f = Fields(&bytes[4..]);
        while let (Some(len), Some(flags)) = (f.u32(), f.u32()) {
            let (hole, zero) = (flags & STATE_HOLE != 0, flags & STATE_ZERO != 0);
            self.extents.push(Extent { len, hole, zero });
        }
        match self.extents.iter().all(|e| e.len > 0) && f.0.is_empty() {
            true => Ok(ClientEvent::Extents(id)),
            false => Err("a wrong block status"),
        }
    }

    fn error(&mut self, id: RequestId, bytes: &[u8]) -> Result<(), &'static str> {
        let mut f = Fields(bytes);
        let (Some(code), Some(len)) = (f.u32(), f.u16()) else { return Err("an error cut short") };
        let message = f.bytes(usize::from(len)).ok_or("an error's message cut short")?;
        self.message = String::from_utf8_lossy(&message[..message.len().min(STRING_MAX)]).into_owned();
        let sent = self.pending.get_mut(id).expect("a chunk's command is in flight");
        sent.error.get_or_insert(Error::from_code(code));
        Ok(())
    }

    /// `n` bytes of payload were put into the buffer; the command's end, if this was it.
    ///
    /// # Panics
    /// When that is more than was announced.
    pub fn payload(&mut self, n: u32) -> ClientEvent {
        let State::Payload { id, done, left } = self.state else { panic!("no payload is awaited") };
        let left = left.checked_sub(n).expect("no more payload than was announced");
        self.state = State::Payload { id, done, left };
        if left > 0 {
            return ClientEvent::Nothing;
        }
        self.state = State::Reply;
        match done {
            true => self.done(id).unwrap_or_else(|why| self.protocol(why)),
            false => ClientEvent::Nothing,
        }
    }

    pub(crate) fn done(&mut self, id: RequestId) -> Result<ClientEvent, &'static str> {
        let sent = self.pending.remove(id).expect("a command that is done was in flight");
        if sent.unsent {
            // Its buffer is still needed.
            return Err("an answer to a write that was not sent whole");
        }
        if sent.ask == Ask::Read && sent.error.is_none() && sent.covered != u64::from(sent.len) {
            return Err("a read that claims success without all its bytes");
        }
        Ok(ClientEvent::Done { id, outcome: sent.error.map_or(Ok(()), Err) })
    }

    fn pending_id(&self, cookie: u64) -> Result<RequestId, &'static str> {
        let id = RequestId { slot: cookie as u32, generation: (cookie >> 32) as u32 };
        self.pending.get(id).map(|_| id).ok_or("a reply to nothing that was asked")
    }
}
