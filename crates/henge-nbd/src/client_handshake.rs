//! Option haggling, the client's side (proto: "Fixed newstyle negotiation"): one option at a time.

use crate::client::State;
use crate::proto::{
    BASE_ALLOCATION, Fields, IHAVEOPT, INIT_PASSWD, Put, STRING_MAX, handshake, info, opt, rep,
};
use crate::{BlockSize, Client, ClientEvent, ClientFailure};

impl Client {
    pub(crate) fn greeting(&mut self, bytes: &[u8]) -> Result<Option<ClientEvent>, &'static str> {
        let mut f = Fields(bytes);
        if f.u64() != Some(INIT_PASSWD) || f.u64() != Some(IHAVEOPT) {
            return Err("not a newstyle server");
        }
        let flags = f.u16().ok_or("a greeting cut short")?;
        if flags & handshake::FIXED_NEWSTYLE == 0 {
            return Err("the server does not speak fixed newstyle");
        }
        let both = flags & (handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
        self.out.bytes(|b| b.u32(u32::from(both)));
        match self.wish.structured {
            true => self.option(opt::STRUCTURED_REPLY, &[]),
            false => self.go(),
        }
        Ok(None)
    }

    fn option(&mut self, option: u32, data: &[u8]) {
        self.out.bytes(|b| {
            b.u64(IHAVEOPT);
            b.u32(option);
            b.u32(data.len() as u32);
            b.raw(data);
        });
        self.state = State::OptionReply { option };
    }

    fn go(&mut self) {
        let mut data = Vec::new();
        data.u32(self.wish.export.len() as u32);
        data.raw(self.wish.export.as_bytes());
        data.u16(1);
        data.u16(info::BLOCK_SIZE);
        self.option(opt::GO, &data);
    }

    fn set_context(&mut self) {
        let mut data = Vec::new();
        data.u32(self.wish.export.len() as u32);
        data.raw(self.wish.export.as_bytes());
        data.u32(1);
        data.u32(BASE_ALLOCATION.len() as u32);
        data.raw(BASE_ALLOCATION.as_bytes());
        self.option(opt::SET_META_CONTEXT, &data);
    }

    pub(crate) fn option_reply(
        &mut self,
        option: u32,
        kind: u32,
        data: &[u8],
    ) -> Result<Option<ClientEvent>, &'static str> {
        self.state = State::OptionReply { option };
        let refused = kind & rep::ERROR != 0;
        match (option, kind) {
            (opt::STRUCTURED_REPLY, _) if refused || kind == rep::ACK => {
                self.negotiated.structured = !refused;
                match !refused && self.wish.allocation {
                    true => self.set_context(),
                    false => self.go(),
                }
            }
            (opt::SET_META_CONTEXT, rep::META_CONTEXT) => {
                self.negotiated.allocation |= data.get(4..) == Some(BASE_ALLOCATION.as_bytes());
            }
            (opt::SET_META_CONTEXT, _) if refused || kind == rep::ACK => self.go(),
            (opt::GO, rep::INFO) => self.info(data).ok_or("an information cut short")?,
            (opt::GO, rep::ACK) => {
                self.state = State::Reply;
                return Ok(Some(ClientEvent::Ready(self.negotiated)));
            }
            (opt::GO, _) if refused => {
                self.state = State::Failed;
                let message = String::from_utf8_lossy(&data[..data.len().min(STRING_MAX)]).into_owned();
                return Ok(Some(ClientEvent::Failed(ClientFailure::Refused { kind, message })));
            }
            _ => return Err("an unexpected reply to an option"),
        }
        Ok(None)
    }

    fn info(&mut self, data: &[u8]) -> Option<()> {
        let mut f = Fields(data);
        match f.u16()? {
            info::EXPORT => {
                self.negotiated.size = f.u64()?;
                self.negotiated.flags = f.u16()?;
            }
            info::BLOCK_SIZE => {
                self.negotiated.block = BlockSize { least: f.u32()?, preferred: f.u32()?, most: f.u32()? };
            }
            _ => {}
        }
        Some(())
    }
}
