//! What a session tells its driver.

use crate::Command;
use henge_core::RequestId;

/// What came of some input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEvent {
    /// All of it is taken and nothing came of it yet; or no more is wanted (see [`wants`](crate::Session::wants)).
    Nothing,
    /// A message was taken that the driver has nothing to do for: an option, or a command that is refused. Others may be behind it. So a call
    /// takes one message, whatever it costs, and the driver says how many.
    Answered,
    /// The client chose this export; the transmission phase begins.
    Entered {
        /// Its number.
        export: usize,
    },
    /// The client begins TLS. Once the output is written ([`is_ready_for_tls`](crate::Session::is_ready_for_tls)), all bytes either way are
    /// TLS, and [`encrypted`](crate::Session::encrypted) is to be called.
    StartTls,
    /// A command without payload.
    Command(Command),
    /// A WRITE, of which the payload follows: `len` bytes for its buffer, reported by [`payload`](crate::Session::payload).
    Payload(Command),
    /// The conversation is over. Nothing is read any more; what is in flight may still be answered.
    Closed(Closed),
}

/// Why a conversation is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// The client said so (NBD_CMD_DISC): everything in flight is answered first.
    Disconnect,
    /// The client said so during the handshake (NBD_OPT_ABORT).
    Abort,
    /// EXPORT_NAME for what is not there: closing is the only answer that it has.
    UnknownExport,
    /// It wants an export before TLS, which this server requires.
    TlsRequired,
    /// The handshake took too long.
    Late,
    /// The client does not speak the protocol.
    Garbage(&'static str),
}

/// What the session wants to read next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wants {
    /// Nothing: a bound is reached, or the conversation is over.
    Nothing,
    /// Bytes for [`receive`](crate::Session::receive).
    Bytes,
    /// Payload for the buffer of a WRITE.
    Payload {
        /// Whose buffer.
        id: RequestId,
        /// Position in it.
        at: u32,
        /// How many are missing.
        len: u32,
    },
}
