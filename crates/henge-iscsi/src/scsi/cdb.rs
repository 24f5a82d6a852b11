//! Where a CDB of each length has its address and its length (SBC-3, section 5; SPC-4, section 4.2.5).

/// Which blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocks {
    /// The first.
    pub lba: u64,
    /// How many.
    pub count: u64,
}

/// Two bytes, big-endian.
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
/// Four bytes, big-endian.
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
/// Eight bytes, big-endian.
pub fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

/// Address and length, by the group that the operation code's top three bits name.
pub fn blocks(cdb: &[u8; 16]) -> Blocks {
    match cdb[0] >> 5 {
        0 => Blocks {
            lba: u64::from(be32(cdb, 0) & 0x001f_ffff),
            count: if cdb[4] == 0 { 256 } else { u64::from(cdb[4]) },
        },
        1 | 2 => Blocks { lba: u64::from(be32(cdb, 2)), count: u64::from(be16(cdb, 7)) },
        5 => Blocks { lba: u64::from(be32(cdb, 2)), count: u64::from(be32(cdb, 6)) },
        _ => Blocks { lba: be64(cdb, 2), count: u64::from(be32(cdb, 10)) },
    }
}

/// Which byte of the CDB the length begins at, for whoever points at it.
pub fn count_at(cdb: &[u8; 16]) -> u16 {
    match cdb[0] >> 5 {
        0 => 4,
        1 | 2 => 7,
        5 => 6,
        _ => 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_has_its_places() {
        let cdb = |bytes: &[u8]| {
            let mut cdb = [0; 16];
            cdb[..bytes.len()].copy_from_slice(bytes);
            blocks(&cdb)
        };
        assert_eq!(cdb(&[0x08, 0xff, 0x02, 0x03, 0]), Blocks { lba: 0x1f_0203, count: 256 });
        assert_eq!(cdb(&[0x28, 0, 0, 1, 2, 3, 0, 0x10, 0]), Blocks { lba: 0x0001_0203, count: 4096 });
        assert_eq!(cdb(&[0xa8, 0, 0, 1, 2, 3, 0, 1, 0, 0]), Blocks { lba: 0x0001_0203, count: 65536 });
        let long = [0x88, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0];
        assert_eq!(cdb(&long), Blocks { lba: 1 << 56 | 2, count: 9 });
    }
}
