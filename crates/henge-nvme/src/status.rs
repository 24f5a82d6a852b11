//! How commands end (NVMe Base 2.0, section 3.3.3.2; NVM Command Set 1.0, section 3.2; Fabrics 3.3).

use henge_core::Fault;

/// A status: type and code, and whether trying again is useless.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status(u16);

const DO_NOT_RETRY: u16 = 1 << 14;

impl Status {
    /// As it should.
    pub const SUCCESS: Status = Status(0);
    /// No such opcode.
    pub const OPCODE: Status = Status::final_of(0x01);
    /// A field is wrong.
    pub const FIELD: Status = Status::final_of(0x02);
    /// The name is in use.
    pub const CID_CONFLICT: Status = Status(0x03);
    /// Our own fault, or the storage's.
    pub const INTERNAL: Status = Status(0x06);
    /// Given up because the host asked for it.
    pub const ABORTED: Status = Status(0x07);
    /// The other command of a fused pair has failed.
    pub const FUSED_FAILED: Status = Status(0x09);
    /// The other command of a fused pair did not come.
    pub const FUSED_MISSING: Status = Status::final_of(0x0a);
    /// No such namespace, or none where one is needed.
    pub const NAMESPACE: Status = Status::final_of(0x0b);
    /// Not now: the controller is not ready, or the queue is not connected.
    pub const SEQUENCE: Status = Status::final_of(0x0c);
    /// The length of the data is not the command's.
    pub const SGL_LENGTH: Status = Status::final_of(0x0f);
    /// Such a description of data is not supported.
    pub const SGL_TYPE: Status = Status::final_of(0x11);
    /// The offset into the capsule is not zero.
    pub const SGL_OFFSET: Status = Status::final_of(0x16);
    /// More than is written atomically.
    pub const ATOMIC_UNIT: Status = Status::final_of(0x14);
    /// Host identifiers have 128 bits, and a structure for 64 was asked for.
    pub const HOST_ID_FORMAT: Status = Status::final_of(0x18);
    /// The keep alive timeout is not supported.
    pub const KEEP_ALIVE: Status = Status::final_of(0x1a);
    /// Given up because the host was preempted.
    pub const PREEMPTED: Status = Status::final_of(0x1b);
    /// What the disk held could not be erased.
    pub const SANITIZE_FAILED: Status = Status::final_of(0x1c);
    /// What the disk holds is being erased.
    pub const SANITIZING: Status = Status(0x1d);
    /// The namespace cannot be written.
    pub const PROTECTED: Status = Status::final_of(0x20);
    /// The data were damaged on their way.
    pub const TRANSPORT: Status = Status(0x22);
    /// Blocks beyond the end.
    pub const RANGE: Status = Status::final_of(0x80);
    /// No room is left.
    pub const CAPACITY: Status = Status::final_of(0x81);
    /// Not now; it may be sent again.
    pub const NOT_READY: Status = Status(0x82);
    /// A reservation is in the way.
    pub const RESERVATION: Status = Status::final_of(0x83);
    /// More asynchronous event requests than are kept.
    pub const EVENTS: Status = Status::final_of(0x105);
    /// No such log page.
    pub const LOG_PAGE: Status = Status::final_of(0x109);
    /// The value cannot be saved.
    pub const NOT_SAVEABLE: Status = Status::final_of(0x10d);
    /// The feature cannot be changed.
    pub const NOT_CHANGEABLE: Status = Status::final_of(0x10e);
    /// A Connect of another format.
    pub const CONNECT_FORMAT: Status = Status::final_of(0x180);
    /// No controller is left to be had.
    pub const CONNECT_BUSY: Status = Status::final_of(0x181);
    /// A parameter of Connect is wrong; the result says which.
    pub const CONNECT_PARAMETERS: Status = Status::final_of(0x182);
    /// More ranges, or longer ones, than one Copy takes.
    pub const COPY_LIMIT: Status = Status::final_of(0x183);
    /// The host may not use the subsystem.
    pub const CONNECT_HOST: Status = Status::final_of(0x184);
    /// The host has yet to prove who it is.
    pub const AUTHENTICATE: Status = Status::final_of(0x191);
    /// The storage could not take a write.
    pub const WRITE_FAULT: Status = Status(0x280);
    /// The storage could not give what was asked for.
    pub const READ_ERROR: Status = Status(0x281);
    /// What was compared is unequal.
    pub const UNEQUAL: Status = Status::final_of(0x285);
    /// This way to the namespace cannot be used; another one may.
    pub const INACCESSIBLE: Status = Status(0x302);

    const fn final_of(code: u16) -> Status {
        Status(code | DO_NOT_RETRY)
    }

    /// Status field of a completion, without its phase bit.
    pub fn bits(self) -> u16 {
        self.0
    }
    /// Whether all went well.
    pub fn is_success(self) -> bool {
        self.0 == 0
    }

    /// What the host is told of a failure of the storage.
    pub fn of(fault: Fault, writes: bool) -> Status {
        match fault {
            Fault::Io if writes => Status::WRITE_FAULT,
            Fault::Io => Status::READ_ERROR,
            Fault::NoSpace => Status::CAPACITY,
            Fault::OutOfRange => Status::RANGE,
            Fault::Unsupported => Status::FIELD,
            Fault::Cancelled => Status::ABORTED,
            // Not a path error: hosts repeat those for ever where the other paths end at the same node.
            Fault::Unreachable => Status::INTERNAL,
        }
    }
}

/// How a command ends, and its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ending {
    /// Status.
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
}

impl From<Status> for Ending {
    fn from(status: Status) -> Ending {
        Ending { status, result: 0 }
    }
}
