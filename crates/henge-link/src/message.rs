//! What travels on a link.

use serde::{Deserialize, Serialize};

/// Bytes before each body: its length, and the length of the data behind it.
pub const FRAME_HEADER: usize = 8;
/// Longest body.
pub const BODY_MAX: usize = 64 << 10;
/// Longest data behind a body.
pub const DATA_MAX: usize = 32 << 20;

/// One message. Flows are numbered by the sender, which introduces each by name first; nodes go by name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// The sender calls this flow by this number from now on.
    Flow {
        /// The sender's number.
        id: u32,
        /// The cluster's name for it.
        name: String,
    },
    /// What the sender knows of a flow's service ([`henge_core::Sync`]).
    Sync {
        /// Counted by a coordinator, of what it sent to other nodes; else by a node, of what it served.
        coordinator: bool,
        /// Grows when the sender starts anew.
        epoch: u64,
        /// Grows with each message of an epoch.
        sequence: u64,
        /// The sender's number of the flow.
        flow: u32,
        /// What there is to tell.
        news: WireNews,
    },
    /// A user was given a capability of the parallel file system; an opaque key for whoever meets it again.
    Identity {
        /// The capability, as both ends write it.
        capability: Vec<u8>,
        /// The user.
        uid: u32,
    },
    /// Nothing else to say.
    Ping,
}

/// [`henge_core::News`] on the wire.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WireNews {
    /// Service so far, and as announced the time before.
    Total {
        /// In cost units.
        total: u64,
        /// The same.
        before: u64,
    },
    /// Striped like this.
    Layout {
        /// Bytes of one stripe.
        stripe: u64,
        /// Names, in the order of the stripes.
        nodes: Vec<String>,
    },
    /// Quiet for a while.
    Departed,
}

/// A body in its frame; `data` bytes follow it.
pub(crate) fn frame<T: Serialize>(body: &T, data: usize) -> Vec<u8> {
    let body = postcard::to_allocvec(body).expect("messages of ours always encode");
    assert!(body.len() <= BODY_MAX && data <= DATA_MAX, "messages of ours fit a frame");
    let mut frame = Vec::with_capacity(FRAME_HEADER + body.len());
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.extend_from_slice(&(data as u32).to_le_bytes());
    frame.extend_from_slice(&body);
    frame
}
