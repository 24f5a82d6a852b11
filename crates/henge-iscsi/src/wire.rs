//! The 48-byte headers of iSCSI, and what their fields are called (RFC 7143, section 11).
//!
//! ```text
//! byte 0        1        2..4          4            5..8              8..16        16..20
//!      opcode   flags    by opcode     AHS words    data segment      LUN, or      initiator
//!      + I bit                         (4 bytes)    length in bytes   ISID, TSIH   task tag (ITT)
//!
//!      20..48: by opcode. Then: AHS, header digest, data segment, padding to 4, data digest.
//! ```

/// Bytes of a basic header segment.
pub const BHS: usize = 48;
/// The tag that names nothing.
pub const NO_TAG: u32 = 0xffff_ffff;

/// Opcodes of initiators (RFC 7143 11.1).
pub mod request {
    /// NOP-Out.
    pub const NOP: u8 = 0x00;
    /// SCSI Command.
    pub const SCSI: u8 = 0x01;
    /// Task Management Function Request.
    pub const TASK: u8 = 0x02;
    /// Login Request.
    pub const LOGIN: u8 = 0x03;
    /// Text Request.
    pub const TEXT: u8 = 0x04;
    /// SCSI Data-Out.
    pub const DATA: u8 = 0x05;
    /// Logout Request.
    pub const LOGOUT: u8 = 0x06;
    /// SNACK Request.
    pub const SNACK: u8 = 0x10;
}

/// Opcodes of targets (RFC 7143 11.1).
pub mod response {
    /// NOP-In.
    pub const NOP: u8 = 0x20;
    /// SCSI Response.
    pub const SCSI: u8 = 0x21;
    /// Task Management Function Response.
    pub const TASK: u8 = 0x22;
    /// Login Response.
    pub const LOGIN: u8 = 0x23;
    /// Text Response.
    pub const TEXT: u8 = 0x24;
    /// SCSI Data-In.
    pub const DATA: u8 = 0x25;
    /// Logout Response.
    pub const LOGOUT: u8 = 0x26;
    /// Ready To Transfer.
    pub const R2T: u8 = 0x31;
    /// Asynchronous Message.
    pub const ASYNC: u8 = 0x32;
    /// Reject.
    pub const REJECT: u8 = 0x3f;
}

/// Why a PDU is rejected (RFC 7143 11.17.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reason {
    /// The digest of a data segment did not match.
    DataDigest = 0x02,
    /// A SNACK; there is none at error recovery level 0.
    Snack = 0x03,
    /// What the PDU says contradicts the protocol.
    Protocol = 0x04,
    /// An opcode that this target does not have.
    NotSupported = 0x05,
    /// More immediate commands than the target holds.
    TooManyImmediate = 0x06,
    /// The task tag is in use.
    TaskInProgress = 0x07,
    /// A field of the PDU has a value that cannot be.
    InvalidField = 0x09,
}

/// A header, by value: fields are read where they lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header(pub [u8; BHS]);

impl Header {
    /// The first 48 bytes of `bytes`, if there are as many.
    pub fn read(bytes: &[u8]) -> Option<Header> {
        Some(Header(*bytes.first_chunk::<BHS>()?))
    }
    /// A header of `opcode` with the final bit, all else zero.
    pub fn reply(opcode: u8) -> Header {
        let mut bytes = [0; BHS];
        bytes[0] = opcode;
        bytes[1] = 0x80;
        Header(bytes)
    }
    /// What kind it is.
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }
    /// Whether it goes past the command window.
    pub fn immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }
    /// The F bit (T in a login).
    pub fn is_final(&self) -> bool {
        self.0[1] & 0x80 != 0
    }
    /// Bytes of additional header segments.
    pub fn ahs_len(&self) -> usize {
        usize::from(self.0[4]) * 4
    }
    /// Bytes of the data segment, without padding.
    pub fn data_len(&self) -> usize {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]]) as usize
    }
    /// The initiator task tag.
    pub fn itt(&self) -> u32 {
        self.u32_at(16)
    }
    /// The target transfer tag, or what lies in its place.
    pub fn ttt(&self) -> u32 {
        self.u32_at(20)
    }
    /// The logical unit number as sent.
    pub fn lun(&self) -> [u8; 8] {
        *self.0[8..].first_chunk().expect("a header has 48 bytes")
    }
    /// The command's number.
    pub fn cmd_sn(&self) -> u32 {
        self.u32_at(24)
    }
    /// Four bytes, big-endian.
    pub fn u32_at(&self, at: usize) -> u32 {
        u32::from_be_bytes(*self.0[at..].first_chunk().expect("fields lie within the header"))
    }
    /// Two bytes, big-endian.
    pub fn u16_at(&self, at: usize) -> u16 {
        u16::from_be_bytes(*self.0[at..].first_chunk().expect("fields lie within the header"))
    }
    /// Writes four bytes, big-endian.
    pub fn put_u32(&mut self, at: usize, value: u32) -> &mut Self {
        self.0[at..at + 4].copy_from_slice(&value.to_be_bytes());
        self
    }
    /// Writes two bytes, big-endian.
    pub fn put_u16(&mut self, at: usize, value: u16) -> &mut Self {
        self.0[at..at + 2].copy_from_slice(&value.to_be_bytes());
        self
    }
    /// Writes one byte.
    pub fn put(&mut self, at: usize, value: u8) -> &mut Self {
        self.0[at] = value;
        self
    }
    /// Writes the LUN field.
    pub fn put_lun(&mut self, lun: [u8; 8]) -> &mut Self {
        self.0[8..16].copy_from_slice(&lun);
        self
    }
    /// Writes the length of the data segment.
    pub fn put_data_len(&mut self, len: usize) -> &mut Self {
        debug_assert!(len < 1 << 24, "a data segment length has 24 bits");
        self.0[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
        self
    }
}

/// Bytes of padding after `len` bytes of data (RFC 7143 11.2.3).
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// `a < b` among sequence numbers that wrap (RFC 1982).
pub const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The number of a logical unit, from its eight bytes: peripheral or flat addressing of SAM-5, one level.
/// `None` for what no disk of this target can be.
pub fn unit_number(lun: [u8; 8]) -> Option<u16> {
    if lun[2..] != [0; 6] {
        return None;
    }
    match lun[0] >> 6 {
        0 if lun[0] == 0 => Some(u16::from(lun[1])),
        1 => Some(u16::from_be_bytes([lun[0] & 0x3f, lun[1]])),
        _ => None,
    }
}

/// The eight bytes of a logical unit's number: peripheral addressing below 256, flat above.
pub fn unit_address(unit: u16) -> [u8; 8] {
    let [high, low] = if unit < 256 { [0, unit as u8] } else { (0x4000 | unit).to_be_bytes() };
    [high, low, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_wrap() {
        assert!(before(0xffff_ffff, 0));
        assert!(!before(0, 0xffff_ffff));
        assert!(!before(7, 7));
    }

    #[test]
    fn unit_addresses_go_there_and_back() {
        for unit in [0, 1, 255, 256, 300, 0x3fff] {
            assert_eq!(unit_number(unit_address(unit)), Some(unit));
        }
        assert_eq!(unit_number([0, 1, 0, 1, 0, 0, 0, 0]), None);
        assert_eq!(unit_number([0x81, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
