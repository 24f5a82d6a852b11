//! What a disk says about itself: INQUIRY and its vital product data (SPC-4, sections 6.4 and 7.8; SBC-3, 6.6).

use super::cdb::be16;
use super::{Plan, Sense, Unit, UnitProperties};

/// Bytes that one transfer may have. A longer one would hold the node's buffers too long.
pub const TRANSFER_MAX: u64 = 4 << 20;
/// Bytes that one WRITE SAME may cover.
pub const WRITE_SAME_MAX: u64 = 16 << 20;
/// Most bytes of COMPARE AND WRITE.
pub const COMPARE_MAX: u64 = 64 << 10;
/// Bytes that one UNMAP may cover, and descriptors that it may have.
pub const UNMAP_MAX: u64 = 64 << 20;
/// Most descriptors of one UNMAP.
pub const UNMAP_DESCRIPTORS: u32 = 256;

const PAGES: [u8; 7] = [0x00, 0x80, 0x83, 0x87, 0xb0, 0xb1, 0xb2];

/// Mode page policy (SPC-4 7.8.10): all pages and subpages, each target port has its own: what one node is told to, others are not.
const MODE_PAGE_POLICY: [u8; 4] = [0x3f, 0xff, 0x01, 0];

/// INQUIRY. `target` is the iSCSI name of the target, `port` its port's relative identifier.
pub fn inquiry(unit: &Unit, cdb: &[u8; 16], target: &str, port: u16) -> Plan {
    let allocated = usize::from(be16(cdb, 3));
    if cdb[1] & 1 == 0 {
        if cdb[2] != 0 {
            return Sense::field(2).into();
        }
        let mut data = standard(0);
        data[5] = if unit.is_shared() { 0x10 } else { 0 }; // TPGS: access states that change by themselves
        return Plan::data(data, allocated);
    }
    let disk = &unit.properties;
    let body = match cdb[2] {
        // Provisioning is a page of thin disks only, and the policy one of disks with several target ports.
        0x00 => {
            let has = |page: u8| (disk.thin || page != 0xb2) && (unit.is_shared() || page != 0x87);
            PAGES.iter().copied().filter(|&page| has(page)).collect()
        }
        0x80 => disk.serial.as_bytes().to_vec(),
        0x83 => identification(disk, target, port),
        0x87 if unit.is_shared() => MODE_PAGE_POLICY.to_vec(),
        0xb0 => block_limits(disk),
        0xb1 => characteristics(disk),
        0xb2 if disk.thin => provisioning(),
        _ => return Sense::field(2).into(),
    };
    let mut page = vec![0, cdb[2]];
    page.extend_from_slice(&(body.len() as u16).to_be_bytes());
    page.extend_from_slice(&body);
    Plan::data(page, allocated)
}

/// Standard INQUIRY data (SPC-4 6.4.2). `peripheral` is 0 for a disk, 0x7f where there is none.
pub fn standard(peripheral: u8) -> Vec<u8> {
    let mut b = vec![0; 96];
    b[0] = peripheral;
    b[2] = 6; // SPC-4
    b[3] = 0x12; // HISUP; response format 2
    b[4] = (b.len() - 5) as u8;
    b[7] = 0x02; // CMDQUE
    b[8..16].copy_from_slice(b"HENGE   ");
    b[16..32].copy_from_slice(b"VIRTUAL-DISK    ");
    b[32..36].copy_from_slice(&revision());
    // Version descriptors: SAM-5, SPC-4, SBC-3, iSCSI, none of them with a revision claimed
    for (at, version) in [0x00a0_u16, 0x0460, 0x04c0, 0x0960].iter().enumerate() {
        b[58 + 2 * at..60 + 2 * at].copy_from_slice(&version.to_be_bytes());
    }
    b
}

/// The package's version, four characters.
fn revision() -> [u8; 4] {
    let mut revision = *b"    ";
    for (to, from) in revision.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *to = from;
    }
    revision
}

/// Device identification (SPC-4 7.8.6): the disk by T10 vendor and NAA, the port by number and name.
fn identification(disk: &UnitProperties, target: &str, port: u16) -> Vec<u8> {
    let mut page = Vec::new();
    let mut designator = |codes: u8, kind: u8, bytes: &[u8]| {
        page.extend_from_slice(&[codes, kind, 0, bytes.len() as u8]);
        page.extend_from_slice(bytes);
    };
    let mut vendor = b"HENGE   ".to_vec();
    vendor.extend_from_slice(disk.serial.as_bytes());
    designator(0x02, 0x01, &vendor);
    designator(0x01, 0x03, &disk.naa());
    // Of the target port: relative identifier, target port group, and its SCSI name. 0x5_ = iSCSI.
    let [high, low] = port.to_be_bytes();
    designator(0x51, 0x94, &[0, 0, high, low]);
    designator(0x51, 0x95, &[0, 0, high, low]);
    let mut name = format!("{target},t,0x{port:04x}").into_bytes();
    name.truncate(248);
    name.push(0);
    name.resize(name.len().next_multiple_of(4), 0);
    designator(0x53, 0x98, &name);
    page
}

/// Block limits (SBC-3 6.6.4).
fn block_limits(disk: &UnitProperties) -> Vec<u8> {
    let blocks = |bytes: u64| (bytes >> disk.block_shift) as u32;
    let mut b = vec![0; 60];
    b[0] = 1; // WSNZ: a WRITE SAME of "all the rest" is not taken
    b[1] = blocks(COMPARE_MAX).min(255) as u8;
    b[2..4].copy_from_slice(&(blocks(4096).max(1) as u16).to_be_bytes());
    b[4..8].copy_from_slice(&blocks(TRANSFER_MAX).to_be_bytes());
    b[8..12].copy_from_slice(&blocks(1 << 20).to_be_bytes());
    b[12..16].copy_from_slice(&blocks(TRANSFER_MAX).to_be_bytes()); // maximum prefetch
    if disk.thin {
        b[16..20].copy_from_slice(&blocks(UNMAP_MAX).to_be_bytes());
        b[20..24].copy_from_slice(&UNMAP_DESCRIPTORS.to_be_bytes());
        b[24..28].copy_from_slice(&blocks(4096).max(1).to_be_bytes()); // optimal unmap granularity
        b[28..32].copy_from_slice(&0x8000_0000_u32.to_be_bytes()); // UGAVALID, alignment 0
    }
    b[32..40].copy_from_slice(&u64::from(blocks(WRITE_SAME_MAX)).to_be_bytes());
    b
}

/// Block device characteristics (SBC-3 6.6.3): what lies below may turn or not, so we do not say.
fn characteristics(disk: &UnitProperties) -> Vec<u8> {
    let mut b = vec![0; 60];
    // WABEREQ, only where BLOCK ERASE exists: reads after SANITIZE give zeroes
    b[3] = if disk.thin { 0x40 } else { 0 };
    b
}

/// Logical block provisioning (SBC-3 6.6.5): UNMAP and both WRITE SAME; zeroes afterwards; thin.
fn provisioning() -> Vec<u8> {
    vec![0, 0b1110_0100, 2, 0]
}
