//! Mode pages: caching, control, read-write error recovery, informational exceptions (SPC-4, 7.5; SBC-3, 6.5).

use super::cdb::be16;
use super::{Plan, Sense, Unit};

/// What initiators may change. Kept for the unit, not for each initiator, and not over restarts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Modes {
    /// Sense data as descriptors.
    pub descriptor_sense: bool,
    /// No writes until it is taken back.
    pub write_protect: bool,
}

/// Longest list that is taken: each page once has less than 100 bytes.
const LIST_MAX: usize = 4096;
/// Pages in the order that "all pages" returns them.
const PAGES: [u8; 4] = [0x01, 0x08, 0x0a, 0x1c];

/// Which values are asked for (the PC field).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    Current,
    Changeable,
    Default,
}

/// MODE SENSE(6) and (10).
pub fn sense(unit: &Unit, cdb: &[u8; 16]) -> Plan {
    let long = cdb[0] == 0x5a;
    let values = match cdb[2] >> 6 {
        0 => Values::Current,
        1 => Values::Changeable,
        2 => Values::Default,
        _ => return Sense::SAVING.into(),
    };
    let (code, subpage) = (cdb[2] & 0x3f, cdb[3]);
    let mut pages = Vec::new();
    match (code, subpage) {
        (0x3f, 0 | 0xff) => PAGES.iter().for_each(|&code| pages.extend(page(code, values, unit.modes))),
        (_, 0) if PAGES.contains(&code) => pages.extend(page(code, values, unit.modes)),
        (0x3f, _) => return Sense::field(3).into(),
        (_, 0) => return Sense::field(2).into(),
        _ => return Sense::field(3).into(),
    }
    let no_descriptors = cdb[1] & 0x08 != 0;
    let descriptor =
        if no_descriptors { Vec::new() } else { block_descriptor(unit, long && cdb[1] & 0x10 != 0) };
    // WP, and DPOFUA: the bits are supported
    let protected = unit.properties.read_only || unit.modes.write_protect;
    let specific = if protected { 0x90 } else { 0x10 };
    let mut out;
    let allocated;
    if long {
        let length = (descriptor.len() + pages.len() + 6) as u16;
        out = length.to_be_bytes().to_vec();
        out.extend_from_slice(&[0, specific, u8::from(descriptor.len() == 16), 0, 0, descriptor.len() as u8]);
        allocated = usize::from(be16(cdb, 7));
    } else {
        let length = (descriptor.len() + pages.len() + 3) as u8;
        out = vec![length, 0, specific, descriptor.len() as u8];
        allocated = usize::from(cdb[4]);
    }
    out.extend_from_slice(&descriptor);
    out.extend_from_slice(&pages);
    Plan::data(out, allocated)
}

/// Number and length of the blocks (SBC-3 6.5.2).
fn block_descriptor(unit: &Unit, long: bool) -> Vec<u8> {
    let (blocks, size) = (unit.properties.blocks(), unit.properties.block_size());
    let mut out = Vec::with_capacity(16);
    if long {
        out.extend_from_slice(&blocks.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
    } else {
        out.extend_from_slice(&u32::try_from(blocks).unwrap_or(u32::MAX).to_be_bytes());
    }
    out.extend_from_slice(&size.to_be_bytes());
    out
}

fn page(code: u8, values: Values, modes: Modes) -> Vec<u8> {
    let mut body = match code {
        0x01 => vec![0; 10],
        0x08 => vec![0; 18],
        0x0a | 0x1c => vec![0; 10],
        _ => unreachable!("only pages of PAGES are asked for"),
    };
    match (code, values) {
        // WCE: writes are done before they are durable; SYNCHRONIZE CACHE and FUA make them so
        (0x08, Values::Current | Values::Default) => body[0] = 0x04,
        (0x0a, Values::Current | Values::Default) => {
            let current = if values == Values::Default { Modes::default() } else { modes };
            body[0] = if current.descriptor_sense { 0x04 } else { 0 };
            body[1] = 0x10; // QUEUE ALGORITHM MODIFIER: unrestricted reordering
            body[2] = if current.write_protect { 0x08 } else { 0 };
            body[6..8].copy_from_slice(&[0xff, 0xff]); // busy timeout: unlimited
        }
        (0x0a, Values::Changeable) => {
            body[0] = 0x04;
            body[2] = 0x08;
        }
        _ => {}
    }
    let mut page = vec![code, body.len() as u8];
    page.extend_from_slice(&body);
    page
}

/// How long a parameter list MODE SELECT brings.
pub fn select(cdb: &[u8; 16]) -> Plan {
    if cdb[1] & 1 != 0 {
        return Sense::field(1).into(); // SP: nothing is saved
    }
    let len = if cdb[0] == 0x55 { usize::from(be16(cdb, 7)) } else { usize::from(cdb[4]) };
    match len {
        0 => Plan::GOOD,
        1..=LIST_MAX => Plan::Parameters(len),
        _ => Sense::LIST_LENGTH.into(),
    }
}

/// MODE SELECT: the modes that the list asks for.
pub fn parse(unit: &Unit, cdb: &[u8; 16], list: &[u8]) -> Result<Modes, Sense> {
    let (header, descriptors) = if cdb[0] == 0x55 {
        let header = list.first_chunk::<8>().ok_or(Sense::LIST_LENGTH)?;
        (8, usize::from(be16(header, 6)))
    } else {
        let header = list.first_chunk::<4>().ok_or(Sense::LIST_LENGTH)?;
        (4, usize::from(header[3]))
    };
    if descriptors != 0 && descriptors != 8 && descriptors != 16 {
        return Err(Sense::parameter(header - 1));
    }
    let start = usize::from(header) + descriptors;
    let descriptor = list.get(usize::from(header)..start).ok_or(Sense::LIST_LENGTH)?;
    // The block length is what it is.
    if let Some(tail) = descriptor.last_chunk::<4>() {
        let mask = if descriptors == 8 { 0x00ff_ffff } else { u32::MAX };
        let size = u32::from_be_bytes(*tail) & mask;
        if size != 0 && size != unit.properties.block_size() {
            return Err(Sense::parameter(start as u16 - 4));
        }
    }
    let mut modes = unit.modes;
    let mut at = start;
    while at < list.len() {
        let head = list.get(at..at + 2).ok_or(Sense::LIST_LENGTH)?;
        let code = head[0] & 0x7f; // PS is reserved here
        if !PAGES.contains(&code) {
            return Err(Sense::parameter(at as u16));
        }
        let len = usize::from(head[1]);
        let now = page(code, Values::Current, modes);
        if len + 2 != now.len() {
            return Err(Sense::parameter(at as u16 + 1));
        }
        let body = list.get(at..at + 2 + len).ok_or(Sense::LIST_LENGTH)?;
        let changeable = page(code, Values::Changeable, modes);
        let wrong = |i: &usize| (body[*i] ^ now[*i]) & !changeable[*i] != 0;
        if let Some(byte) = (2..body.len()).find(wrong) {
            return Err(Sense::parameter((at + byte) as u16));
        }
        if code == 0x0a {
            modes = Modes { descriptor_sense: body[2] & 0x04 != 0, write_protect: body[4] & 0x08 != 0 };
        }
        at += 2 + len;
    }
    Ok(modes)
}
