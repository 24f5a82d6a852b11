//! The way of bulk data: from socket to socket through a pipe, with the headers before it.

use super::{Pair, SPLICE_MIN, Towards};
use crate::conduit::Conduit;
use henge_pvfs2::{ConnectionEvent, HEADER_LEN, News};
use std::io;

/// Bulk data that a pair may move before others have their turn.
const TURN: usize = 2 << 20;

/// How what comes next is moved.
enum Next {
    /// Through the pipe.
    Splice,
    /// Past our eyes.
    Read,
    /// Nothing has come.
    Nothing,
}

impl Pair {
    /// Bulk data of which nothing is in our hands goes from socket to socket through the pipe, behind its header, which was
    /// looked at where it was. All that is there goes into the pipe before it goes on, since each step on has its
    /// price. Returns whether nothing is to be read now, or others have their turn: the poller will say when there is more.
    pub(super) fn splice(
        &mut self,
        towards: Towards,
        conduit: &mut Conduit,
        news: &mut Vec<News>,
    ) -> io::Result<bool> {
        let (mut dry, mut turn) = (false, 0);
        while !dry && self.to(towards).has_written() {
            let mut inside = 0;
            while !dry && inside < conduit.capacity() {
                match self.next(towards, inside > 0)? {
                    Next::Nothing => {
                        dry = true;
                        break;
                    }
                    Next::Read => break,
                    Next::Splice => {}
                }
                let left = self.bulk(towards).saturating_add(self.ahead[towards as usize] as u64);
                let most = left.min((conduit.capacity() - inside) as u64) as usize;
                let from = self.from(towards);
                match conduit.fill_from(&from.socket, most) {
                    Ok(0) => {
                        from.ended = true;
                        break;
                    }
                    Ok(taken) => {
                        dry = taken < most;
                        inside += taken;
                        self.moved(towards, taken, news);
                    }
                    // Also where it is the pipe that is full.
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => dry = true,
                    Err(e) => return Err(e),
                }
            }
            if inside == 0 {
                return Ok(dry);
            }
            // The end of a message must not wait for what comes behind it.
            let more = !self.connection.is_opaque() && self.bulk(towards) > 0;
            self.to(towards).take_from(conduit, inside, more)?;
            turn += inside;
            dry |= turn >= TURN || (self.bulk(towards) == 0 && !self.expects_bulk(towards));
            // Nobody says anything of a side that is watched no longer.
            dry &= self.from(towards).told.is_some();
        }
        Ok(dry)
    }

    /// What to do with what comes next. At the end of a message the header of the next is looked at in the socket; if data
    /// follows, it goes through the pipe with it.
    fn next(&mut self, towards: Towards, on_its_way: bool) -> io::Result<Next> {
        let bulk = self.bulk(towards);
        if self.from(towards).unread() > 0 {
            return Ok(Next::Read);
        }
        if bulk > 0 {
            return Ok(if bulk >= SPLICE_MIN || on_its_way { Next::Splice } else { Next::Read });
        }
        // What was released meanwhile goes before the next message.
        let waits = match towards {
            Towards::Server => !self.released.is_empty(),
            Towards::Client => !self.answers.is_empty(),
        };
        if waits || !self.expects_bulk(towards) {
            return Ok(Next::Read);
        }
        let mut header = [0; HEADER_LEN];
        match self.from(towards).peek(&mut header)? {
            None => return Ok(Next::Nothing),
            Some(HEADER_LEN) => {}
            Some(_) => return Ok(Next::Read),
        }
        let begins = match towards {
            Towards::Server => self.connection.begins_bulk_from_client(&header),
            Towards::Client => self.connection.begins_bulk_from_server(&header),
        };
        if !begins {
            return Ok(Next::Read);
        }
        let event = match towards {
            Towards::Server => self.connection.from_client(&header).what,
            // Of data, the header alone says nothing.
            Towards::Client => self.connection.from_server(&header).0.what,
        };
        debug_assert_eq!(event, ConnectionEvent::Pass);
        self.ahead[towards as usize] = HEADER_LEN;
        Ok(Next::Splice)
    }

    /// So many bytes went into the pipe.
    fn moved(&mut self, towards: Towards, bytes: usize, news: &mut Vec<News>) {
        let ahead = &mut self.ahead[towards as usize];
        let header = bytes.min(*ahead);
        *ahead -= header;
        let bulk = (bytes - header) as u64;
        match towards {
            Towards::Server => self.connection.moved_from_client(bulk),
            Towards::Client => news.extend(self.connection.moved_from_server(bulk)),
        }
    }
}
