//! A connection, whichever protocol it speaks.

use crate::front::Doors;
use crate::link::Link;
use crate::plane::Answer;
use crate::pump::Pump;
use crate::session::{Around, Departure, Moves, Session, Stop};
use henge_core::Instant;
use std::any::Any;

/// A socket, and what speaks at this end of it.
pub(crate) struct Client {
    pub link: Link,
    /// It is another node.
    pub is_node: bool,
    /// Nothing is read of it any more.
    pub is_mute: bool,
    pump: Box<dyn Moves>,
}

impl Client {
    pub(crate) fn new(link: Link, pump: Box<dyn Moves>) -> Client {
        Client { link, is_node: false, is_mute: false, pump }
    }

    /// The link to another node.
    pub(crate) fn node(link: Link, session: impl Session) -> Client {
        let mut client = Client::new(link, Box::new(Pump::new(session)));
        client.is_node = true;
        client
    }

    /// The session, if it is one of that kind.
    pub(crate) fn session<S: Session>(&mut self) -> Option<&mut S> {
        let pump: &mut dyn Any = &mut *self.pump;
        pump.downcast_mut().map(|pump: &mut Pump<S>| &mut pump.session)
    }
    /// The same, to be looked at.
    pub(crate) fn seen<S: Session>(&self) -> Option<&S> {
        let pump: &dyn Any = &*self.pump;
        pump.downcast_ref().map(|pump: &Pump<S>| &pump.session)
    }

    pub(crate) fn read(&mut self, around: &mut Around<'_>, chunk: &mut [u8]) -> Stop {
        self.pump.read(&mut self.link, around, chunk)
    }
    /// False when the connection is broken.
    pub(crate) fn write(&mut self, around: &mut Around<'_>) -> bool {
        self.pump.write(&mut self.link, around)
    }
    pub(crate) fn completed(&mut self, answer: Answer, around: &mut Around<'_>) {
        self.pump.session_mut().completed(answer, around);
    }
    /// Whether it goes on where who may use its disk has changed.
    pub(crate) fn may_stay(&self, doors: &Doors) -> bool {
        self.pump.session().may_stay(doors)
    }
    /// The disk that it uses.
    pub(crate) fn disk(&self) -> Option<usize> {
        self.pump.session().disk()
    }
    /// Whether there is something to write.
    pub(crate) fn has_output(&self) -> bool {
        self.pump.session().has_output()
    }
    /// Whether all is said.
    pub(crate) fn is_over(&self) -> bool {
        self.pump.session().is_over()
    }
    /// Whether it is to be put among those that wait for room at its disk; said once.
    pub(crate) fn is_to_wait(&mut self) -> bool {
        self.pump.session_mut().is_to_wait()
    }
    /// Whether it waits for room or memory.
    pub(crate) fn is_stalled(&self) -> bool {
        self.pump.session().is_stalled()
    }
    /// Whether bytes of a payload are to come.
    pub(crate) fn awaits_payload(&self) -> bool {
        self.pump.session().awaits_payload()
    }
    /// Whether nothing of it is at its disk, as far as it would be missed there.
    pub(crate) fn is_quiet(&self) -> bool {
        self.pump.session().is_quiet()
    }
    /// Whether reading would get anywhere as soon as nothing holds it back.
    pub(crate) fn has_input(&self) -> bool {
        let session = self.pump.session();
        let something = self.link.readable || self.pump.keeps();
        session.is_stalled() || session.goes_on() || something && session.takes()
    }
    /// When [`Client::tick`] has something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.pump.session().due()
    }
    /// That time has come. False when it is over.
    pub(crate) fn tick(&mut self, around: &mut Around<'_>) -> bool {
        self.pump.session_mut().tick(around)
    }
    /// Who it is, for people.
    pub(crate) fn describe(&self) -> String {
        let from = match self.link.from {
            Some(address) => address.to_string(),
            None => "this machine".to_owned(),
        };
        format!("{} from {from}", self.pump.session().describe())
    }
    /// The session goes on elsewhere, with the bytes that it has not taken.
    pub(crate) fn depart(&mut self, around: &mut Around<'_>) -> Option<(Departure, Vec<u8>)> {
        self.pump.depart(around)
    }
    /// The connection is gone.
    pub(crate) fn close(&mut self, around: &mut Around<'_>) {
        self.pump.session_mut().close(around);
    }
    /// The node is about to end.
    pub(crate) fn pause(&mut self, around: &mut Around<'_>) {
        self.is_mute = !self.pump.session_mut().pause(around);
    }
    /// What another process needs to go on with it, once it has finished what it has begun.
    pub(crate) fn rest(&self) -> Option<henge_nbd::Rest> {
        self.pump.rest().filter(|_| self.link.stream.is_plain())
    }
}
