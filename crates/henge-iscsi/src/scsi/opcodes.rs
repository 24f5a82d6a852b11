//! The commands that a disk here has: one table, which decides what is accepted, what a reservation
//! holds back, and what REPORT SUPPORTED OPERATION CODES says (SPC-4, section 6.35).

/// Which command it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// TEST UNIT READY.
    TestUnitReady,
    /// REQUEST SENSE.
    RequestSense,
    /// INQUIRY.
    Inquiry,
    /// REPORT LUNS.
    ReportLuns,
    /// MODE SENSE.
    ModeSense,
    /// MODE SELECT.
    ModeSelect,
    /// RESERVE(6).
    Reserve,
    /// RELEASE(6).
    Release,
    /// PERSISTENT RESERVE IN.
    ReserveIn,
    /// PERSISTENT RESERVE OUT.
    ReserveOut,
    /// START STOP UNIT.
    StartStop,
    /// PREVENT ALLOW MEDIUM REMOVAL.
    PreventAllow,
    /// READ CAPACITY.
    ReadCapacity,
    /// GET LBA STATUS.
    LbaStatus,
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// WRITE AND VERIFY.
    WriteVerify,
    /// VERIFY.
    Verify,
    /// COMPARE AND WRITE.
    CompareWrite,
    /// ORWRITE.
    OrWrite,
    /// WRITE SAME.
    WriteSame,
    /// UNMAP.
    Unmap,
    /// SYNCHRONIZE CACHE.
    Synchronize,
    /// PRE-FETCH.
    PreFetch,
    /// READ DEFECT DATA.
    DefectData,
    /// SANITIZE.
    Sanitize,
    /// REPORT TARGET PORT GROUPS.
    ReportGroups,
    /// REPORT SUPPORTED OPERATION CODES.
    ReportOpcodes,
    /// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
    ReportFunctions,
}

/// What a command does to the unit, as far as reservations and readiness mind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Always goes through, even before a unit attention.
    Report,
    /// Goes through every persistent reservation, but not RESERVE(6), nor a unit attention.
    Free,
    /// Manages reservations: decides for itself.
    Reservation,
    /// Reads the medium.
    Read,
    /// Writes the medium.
    Write,
    /// Changes or asks for something else that a reservation protects.
    Manage,
}

/// One command.
#[derive(Debug)]
pub struct Command {
    /// Operation code.
    pub opcode: u8,
    /// Service action, where the operation code has them.
    pub action: Option<u8>,
    /// Which it is.
    pub kind: Kind,
    /// What it does.
    pub class: Class,
    /// Needs logical block provisioning.
    pub thin: bool,
    /// The bits of the CDB that it looks at; others must be zero. As many as the CDB has bytes.
    pub usage: &'static [u8],
}

const fn row(opcode: u8, kind: Kind, class: Class, usage: &'static [u8]) -> Command {
    Command { opcode, action: None, kind, class, thin: false, usage }
}
const fn service(opcode: u8, action: u8, kind: Kind, class: Class, usage: &'static [u8]) -> Command {
    Command { opcode, action: Some(action), kind, class, thin: false, usage }
}
const fn thin(mut command: Command) -> Command {
    command.thin = true;
    command
}

// CONTROL bytes are 0: NACA is not supported. GROUP NUMBER (0x1f) is taken and not used. RDPROTECT,
// WRPROTECT and VRPROTECT are 0: there is no protection information.
use Class::{Free, Manage, Read, Report, Reservation, Write};

/// All of them, by operation code and service action.
pub static COMMANDS: &[Command] = &[
    row(0x00, Kind::TestUnitReady, Free, &[0x00, 0, 0, 0, 0, 0]),
    row(0x03, Kind::RequestSense, Report, &[0x03, 0x01, 0, 0, 0xff, 0]),
    row(0x08, Kind::Read, Read, &[0x08, 0x1f, 0xff, 0xff, 0xff, 0]),
    row(0x0a, Kind::Write, Write, &[0x0a, 0x1f, 0xff, 0xff, 0xff, 0]),
    row(0x12, Kind::Inquiry, Report, &[0x12, 0x01, 0xff, 0xff, 0xff, 0]),
    row(0x15, Kind::ModeSelect, Manage, &[0x15, 0x11, 0, 0, 0xff, 0]),
    row(0x16, Kind::Reserve, Reservation, &[0x16, 0, 0, 0, 0, 0]),
    row(0x17, Kind::Release, Reservation, &[0x17, 0, 0, 0, 0, 0]),
    row(0x1a, Kind::ModeSense, Manage, &[0x1a, 0x08, 0xff, 0xff, 0xff, 0]),
    row(0x1b, Kind::StartStop, Manage, &[0x1b, 0x01, 0, 0x0f, 0xf7, 0]),
    row(0x1e, Kind::PreventAllow, Manage, &[0x1e, 0, 0, 0, 0x03, 0]),
    row(0x25, Kind::ReadCapacity, Free, &[0x25, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]),
    row(0x28, Kind::Read, Read, &[0x28, 0x18, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0]),
    row(0x2a, Kind::Write, Write, &[0x2a, 0x18, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0]),
    row(0x2e, Kind::WriteVerify, Write, &[0x2e, 0x12, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0]),
    row(0x2f, Kind::Verify, Read, &[0x2f, 0x12, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0]),
    row(0x34, Kind::PreFetch, Read, &[0x34, 0x02, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0]),
    row(0x35, Kind::Synchronize, Write, &[0x35, 0x06, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0]),
    row(0x37, Kind::DefectData, Read, &[0x37, 0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0]),
    row(0x41, Kind::WriteSame, Write, &[0x41, 0x18, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0]),
    thin(row(0x42, Kind::Unmap, Write, &[0x42, 0, 0, 0, 0, 0, 0x1f, 0xff, 0xff, 0])),
    service(0x48, 0x01, Kind::Sanitize, Write, &[0x48, 0xbf, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    thin(service(0x48, 0x02, Kind::Sanitize, Write, &[0x48, 0xbf, 0, 0, 0, 0, 0, 0xff, 0xff, 0])),
    service(0x48, 0x1f, Kind::Sanitize, Write, &[0x48, 0xbf, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    row(0x55, Kind::ModeSelect, Manage, &[0x55, 0x11, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    row(0x5a, Kind::ModeSense, Manage, &[0x5a, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0]),
    service(0x5e, 0x00, Kind::ReserveIn, Reservation, &[0x5e, 0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    service(0x5e, 0x01, Kind::ReserveIn, Reservation, &[0x5e, 0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    service(0x5e, 0x02, Kind::ReserveIn, Reservation, &[0x5e, 0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    service(0x5e, 0x03, Kind::ReserveIn, Reservation, &[0x5e, 0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    service(0x5f, 0x00, Kind::ReserveOut, Reservation, &[0x5f, 0x1f, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    service(0x5f, 0x01, Kind::ReserveOut, Reservation, &[0x5f, 0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    service(0x5f, 0x02, Kind::ReserveOut, Reservation, &[0x5f, 0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    service(0x5f, 0x03, Kind::ReserveOut, Reservation, &[0x5f, 0x1f, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    service(0x5f, 0x04, Kind::ReserveOut, Reservation, &[0x5f, 0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    service(0x5f, 0x05, Kind::ReserveOut, Reservation, &[0x5f, 0x1f, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    service(0x5f, 0x06, Kind::ReserveOut, Reservation, &[0x5f, 0x1f, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    service(0x5f, 0x07, Kind::ReserveOut, Reservation, &[0x5f, 0x1f, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    row(0x88, Kind::Read, Read, &long(0x88, 0x18)),
    row(
        0x89,
        Kind::CompareWrite,
        Write,
        &[0x89, 0x18, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0xff, 0x1f, 0],
    ),
    row(0x8a, Kind::Write, Write, &long(0x8a, 0x18)),
    row(0x8b, Kind::OrWrite, Write, &long(0x8b, 0x18)),
    row(0x8e, Kind::WriteVerify, Write, &long(0x8e, 0x12)),
    row(0x8f, Kind::Verify, Read, &long(0x8f, 0x12)),
    row(0x90, Kind::PreFetch, Read, &long(0x90, 0x02)),
    row(0x91, Kind::Synchronize, Write, &long(0x91, 0x06)),
    row(0x93, Kind::WriteSame, Write, &long(0x93, 0x19)),
    service(
        0x9e,
        0x10,
        Kind::ReadCapacity,
        Free,
        &[0x9e, 0x1f, 255, 255, 255, 255, 255, 255, 255, 255, 0xff, 0xff, 0xff, 0xff, 0, 0],
    ),
    service(
        0x9e,
        0x12,
        Kind::LbaStatus,
        Read,
        &[0x9e, 0x1f, 255, 255, 255, 255, 255, 255, 255, 255, 0xff, 0xff, 0xff, 0xff, 0, 0],
    ),
    row(0xa0, Kind::ReportLuns, Report, &[0xa0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    service(0xa3, 0x0a, Kind::ReportGroups, Free, &[0xa3, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    service(
        0xa3,
        0x0c,
        Kind::ReportOpcodes,
        Free,
        &[0xa3, 0x1f, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
    ),
    service(
        0xa3,
        0x0d,
        Kind::ReportFunctions,
        Free,
        &[0xa3, 0x1f, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
    ),
    row(0xa8, Kind::Read, Read, &medium(0xa8, 0x18)),
    row(0xaa, Kind::Write, Write, &medium(0xaa, 0x18)),
    row(0xae, Kind::WriteVerify, Write, &medium(0xae, 0x12)),
    row(0xaf, Kind::Verify, Read, &medium(0xaf, 0x12)),
    row(0xb7, Kind::DefectData, Read, &[0xb7, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
];

/// A 16-byte CDB with an LBA and a length.
const fn long(opcode: u8, flags: u8) -> [u8; 16] {
    [opcode, flags, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0x1f, 0]
}
/// A 12-byte CDB with an LBA and a length.
const fn medium(opcode: u8, flags: u8) -> [u8; 12] {
    [opcode, flags, 255, 255, 255, 255, 255, 255, 255, 255, 0x1f, 0]
}

/// For each operation code, the index of its first row; 255 when there is none.
static FIRST: [u8; 256] = {
    let mut first = [255; 256];
    let mut index = COMMANDS.len();
    while index > 0 {
        index -= 1;
        first[COMMANDS[index].opcode as usize] = index as u8;
    }
    first
};

/// Why there is no such command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unknown {
    /// Nothing of this operation code.
    Opcode,
    /// Nothing of this service action.
    Action,
}

/// The command of a CDB.
pub fn find(opcode: u8, action: u8) -> Result<&'static Command, Unknown> {
    let first = usize::from(FIRST[usize::from(opcode)]);
    let Some(command) = COMMANDS.get(first) else { return Err(Unknown::Opcode) };
    if command.action.is_none() {
        return Ok(command);
    }
    let rows = COMMANDS[first..].iter().take_while(|c| c.opcode == opcode);
    rows.into_iter().find(|c| c.action == Some(action)).ok_or(Unknown::Action)
}

impl Command {
    /// The first byte of `cdb` with a bit that the command does not have.
    pub fn stray_bit(&self, cdb: &[u8; 16]) -> Option<u16> {
        let stray = |(&byte, &usage): (&u8, &u8)| byte & !usage != 0;
        // The first byte is the operation code.
        cdb[1..].iter().zip(&self.usage[1..]).position(stray).map(|at| at as u16 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_complete() {
        for pair in COMMANDS.windows(2) {
            assert!((pair[0].opcode, pair[0].action) < (pair[1].opcode, pair[1].action), "{:?}", pair[1]);
        }
        for command in COMMANDS {
            assert_eq!(command.usage[0], command.opcode);
            assert!(matches!(command.usage.len(), 6 | 10 | 12 | 16), "{command:?}");
            let found = find(command.opcode, command.action.unwrap_or(0x1c)).expect("is in the table");
            assert!(std::ptr::eq(found, command));
        }
        assert!(matches!(find(0xff, 0), Err(Unknown::Opcode)));
        assert!(matches!(find(0x5e, 9), Err(Unknown::Action)));
    }

    #[test]
    fn stray_bits_are_named() {
        let mut cdb = [0; 16];
        cdb[0] = 0x28;
        let command = find(0x28, 0).expect("READ(10)");
        assert_eq!(command.stray_bit(&cdb), None);
        cdb[1] = 0x20; // RDPROTECT
        assert_eq!(command.stray_bit(&cdb), Some(1));
    }
}
