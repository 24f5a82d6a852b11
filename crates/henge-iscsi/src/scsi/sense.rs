//! Why a command failed, in SCSI's words (SPC-4, section 4.5).

/// How a command ended (SAM-5, section 5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Done.
    Good,
    /// PRE-FETCH: all of it is in the cache.
    ConditionMet,
    /// Failed, with the reason.
    Check(Sense),
    /// Not now; it may be sent again.
    Busy,
    /// Another initiator holds a reservation.
    ReservationConflict,
    /// No room for the command now; it may be sent again when another has ended.
    TaskSetFull,
}

impl Status {
    /// The byte on the wire.
    pub fn code(&self) -> u8 {
        match self {
            Status::Good => 0x00,
            Status::Check(_) => 0x02,
            Status::ConditionMet => 0x04,
            Status::Busy => 0x08,
            Status::ReservationConflict => 0x18,
            Status::TaskSetFull => 0x28,
        }
    }
}

/// The kind of a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Key {
    /// Nothing to report.
    NoSense = 0x0,
    /// The unit cannot be used now.
    NotReady = 0x2,
    /// The medium lost data or cannot keep it.
    Medium = 0x3,
    /// The hardware below failed.
    Hardware = 0x4,
    /// The command is wrong.
    IllegalRequest = 0x5,
    /// Something has happened that the initiator should know.
    UnitAttention = 0x6,
    /// Writing is not allowed.
    DataProtect = 0x7,
    /// A third-party copy could not go on.
    CopyAborted = 0xa,
    /// Given up.
    Aborted = 0xb,
    /// Data compared unequal.
    Miscompare = 0xe,
}

/// What points more closely at the fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Detail {
    /// Nothing does.
    #[default]
    None,
    /// A byte of the CDB.
    Cdb(u16),
    /// A byte of the parameter list.
    Parameter(u16),
    /// How far an operation is, in 65536ths.
    Progress(u16),
}

/// Sense data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sense {
    /// Its kind.
    pub key: Key,
    /// Additional sense code and its qualifier, as one number: 0x2100 is 21h/00h.
    pub code: u16,
    /// INFORMATION: an LBA, or where data differ.
    pub information: Option<u64>,
    /// Sense-key specific.
    pub detail: Detail,
}

/// A reason without details.
const fn sense(key: Key, code: u16) -> Sense {
    Sense { key, code, information: None, detail: Detail::None }
}

impl Sense {
    /// Nothing to report.
    pub const NONE: Sense = sense(Key::NoSense, 0);
    /// INVALID COMMAND OPERATION CODE.
    pub const OPCODE: Sense = sense(Key::IllegalRequest, 0x2000);
    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    pub const RANGE: Sense = sense(Key::IllegalRequest, 0x2100);
    /// LOGICAL UNIT NOT SUPPORTED.
    pub const NO_UNIT: Sense = sense(Key::IllegalRequest, 0x2500);
    /// PARAMETER LIST LENGTH ERROR.
    pub const LIST_LENGTH: Sense = sense(Key::IllegalRequest, 0x1a00);
    /// INVALID FIELD IN CDB, nowhere in particular.
    pub const FIELD: Sense = sense(Key::IllegalRequest, 0x2400);
    /// INVALID RELEASE OF PERSISTENT RESERVATION.
    pub const RELEASE: Sense = sense(Key::IllegalRequest, 0x2604);
    /// INSUFFICIENT REGISTRATION RESOURCES.
    pub const REGISTRATIONS: Sense = sense(Key::IllegalRequest, 0x5504);
    /// SAVING PARAMETERS NOT SUPPORTED.
    pub const SAVING: Sense = sense(Key::IllegalRequest, 0x3900);
    /// WRITE PROTECTED: the disk.
    pub const PROTECTED: Sense = sense(Key::DataProtect, 0x2700);
    /// LOGICAL UNIT SOFTWARE WRITE PROTECTED: by the control page.
    pub const SOFTWARE_PROTECTED: Sense = sense(Key::DataProtect, 0x2702);
    /// SPACE ALLOCATION FAILED WRITE PROTECT: the pool is full.
    pub const NO_SPACE: Sense = sense(Key::DataProtect, 0x2707);
    /// MISCOMPARE DURING VERIFY OPERATION.
    pub const MISCOMPARE: Sense = sense(Key::Miscompare, 0x1d00);
    /// UNRECOVERED READ ERROR.
    pub const READ: Sense = sense(Key::Medium, 0x1100);
    /// WRITE ERROR.
    pub const WRITE: Sense = sense(Key::Medium, 0x0c00);
    /// LOGICAL UNIT COMMUNICATION FAILURE.
    pub const UNREACHABLE: Sense = sense(Key::NotReady, 0x0800);
    /// LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN UNAVAILABLE STATE.
    pub const UNAVAILABLE: Sense = sense(Key::NotReady, 0x040c);
    /// LOGICAL UNIT COMMUNICATION TIME-OUT: what became of a command is not known.
    pub const UNANSWERED: Sense = sense(Key::Aborted, 0x0801);
    /// LOGICAL UNIT NOT READY, INITIALIZING COMMAND REQUIRED.
    pub const STOPPED: Sense = sense(Key::NotReady, 0x0402);
    /// SANITIZE COMMAND FAILED.
    pub const SANITIZE_FAILED: Sense = sense(Key::Medium, 0x3103);
    /// MEDIUM REMOVAL PREVENTED.
    pub const REMOVAL_PREVENTED: Sense = sense(Key::IllegalRequest, 0x5302);
    /// INTERNAL TARGET FAILURE.
    pub const INTERNAL: Sense = sense(Key::Hardware, 0x4400);
    /// Data that do not come as their sequence numbers say (RFC 7143 11.4.7.2: incorrect amount of data).
    pub const DATA_AMOUNT: Sense = sense(Key::Aborted, 0x0c0d);
    /// More unsolicited data than allowed (RFC 7143 11.4.7.2).
    pub const UNEXPECTED_DATA: Sense = sense(Key::Aborted, 0x0c0c);
    /// A data digest that failed (RFC 7143 11.4.7.2: protocol service CRC error).
    pub const DATA_DIGEST: Sense = sense(Key::Aborted, 0x4705);

    /// INVALID FIELD IN CDB, at this byte.
    pub const fn field(byte: u16) -> Sense {
        let mut sense = Sense::FIELD;
        sense.detail = Detail::Cdb(byte);
        sense
    }
    /// INVALID FIELD IN PARAMETER LIST, at this byte.
    pub const fn parameter(byte: u16) -> Sense {
        Sense { detail: Detail::Parameter(byte), ..sense(Key::IllegalRequest, 0x2600) }
    }
    /// LOGICAL UNIT NOT READY, SANITIZE IN PROGRESS.
    pub const fn sanitizing(progress: u16) -> Sense {
        Sense { detail: Detail::Progress(progress), ..sense(Key::NotReady, 0x041b) }
    }
    /// A unit attention condition.
    pub const fn attention(code: u16) -> Sense {
        sense(Key::UnitAttention, code)
    }
    /// A third-party copy that failed.
    pub const fn copy(code: u16) -> Sense {
        sense(Key::CopyAborted, code)
    }
    /// The same, with INFORMATION.
    pub const fn at(mut self, information: u64) -> Sense {
        self.information = Some(information);
        self
    }

    fn specific(&self) -> Option<[u8; 3]> {
        // SKSV; C/D: in the CDB; the pointer (SPC-4 4.5.2.4)
        let (flags, value) = match self.detail {
            Detail::None => return None,
            Detail::Cdb(byte) => (0xc0, byte),
            Detail::Parameter(byte) => (0x80, byte),
            Detail::Progress(progress) => (0x80, progress),
        };
        let [high, low] = value.to_be_bytes();
        Some([flags, high, low])
    }

    /// The bytes, in the fixed format (SPC-4 4.5.3) or as descriptors (SPC-4 4.5.2).
    pub fn bytes(&self, descriptors: bool) -> Vec<u8> {
        if descriptors { self.descriptor_format() } else { self.fixed_format().to_vec() }
    }

    fn fixed_format(&self) -> [u8; 18] {
        let mut b = [0; 18];
        b[0] = 0x70;
        b[2] = self.key as u8;
        b[7] = 10; // bytes that follow the eighth
        // INFORMATION has four bytes here; what does not fit is not valid.
        if let Some(info) = self.information.and_then(|info| u32::try_from(info).ok()) {
            b[0] |= 0x80;
            b[3..7].copy_from_slice(&info.to_be_bytes());
        }
        b[12..14].copy_from_slice(&self.code.to_be_bytes());
        if let Some(specific) = self.specific() {
            b[15..18].copy_from_slice(&specific);
        }
        b
    }

    fn descriptor_format(&self) -> Vec<u8> {
        let [asc, ascq] = self.code.to_be_bytes();
        let mut b = vec![0x72, self.key as u8, asc, ascq, 0, 0, 0, 0];
        if let Some(info) = self.information {
            b.extend_from_slice(&[0x00, 0x0a, 0x80, 0]);
            b.extend_from_slice(&info.to_be_bytes());
        }
        if let Some([flags, high, low]) = self.specific() {
            b.extend_from_slice(&[0x02, 0x06, 0, 0, flags, high, low, 0]);
        }
        b[7] = (b.len() - 8) as u8;
        b
    }
}

/// Unit attention conditions, as [`Sense::attention`] takes them.
pub mod attention {
    /// POWER ON, RESET, OR BUS DEVICE RESET OCCURRED: what a new session finds.
    pub const POWER_ON: u16 = 0x2900;
    /// BUS DEVICE RESET FUNCTION OCCURRED: a LUN or target reset.
    pub const RESET: u16 = 0x2903;
    /// I_T NEXUS LOSS OCCURRED.
    pub const NEXUS_LOSS: u16 = 0x2907;
    /// MODE PARAMETERS CHANGED.
    pub const MODE_CHANGED: u16 = 0x2a01;
    /// RESERVATIONS PREEMPTED.
    pub const RESERVATIONS_PREEMPTED: u16 = 0x2a03;
    /// RESERVATIONS RELEASED.
    pub const RESERVATIONS_RELEASED: u16 = 0x2a04;
    /// REGISTRATIONS PREEMPTED.
    pub const REGISTRATIONS_PREEMPTED: u16 = 0x2a05;
    /// ASYMMETRIC ACCESS STATE CHANGED.
    pub const ACCESS_STATE: u16 = 0x2a06;
    /// CAPACITY DATA HAS CHANGED.
    pub const CAPACITY: u16 = 0x2a09;
    /// COMMANDS CLEARED BY ANOTHER INITIATOR.
    pub const CLEARED: u16 = 0x2f00;
    /// REPORTED LUNS DATA HAS CHANGED.
    pub const LUNS: u16 = 0x3f0e;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_format_points_at_the_fault() {
        // SPC-4 table 53: VALID, key, INFORMATION, length 10, code, field pointer
        let bytes = Sense::MISCOMPARE.at(300).bytes(false);
        assert_eq!(bytes, [0xf0, 0, 0xe, 0, 0, 1, 44, 10, 0, 0, 0, 0, 0x1d, 0, 0, 0, 0, 0]);
        let bytes = Sense::field(2).bytes(false);
        assert_eq!(bytes, [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xc0, 0, 2]);
    }

    #[test]
    fn descriptor_format_holds_the_whole_address() {
        let bytes = Sense::RANGE.at(1 << 40).bytes(true);
        assert_eq!(bytes, [0x72, 5, 0x21, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
        // which does not fit into the fixed format: not valid there
        assert_eq!(Sense::RANGE.at(1 << 40).bytes(false)[0], 0x70);
    }
}
