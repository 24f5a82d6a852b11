//! Whether servers can go through a request.
//!
//! # The problem
//! Servers of OrangeFS 2.9 and 2.10 believe each length that they read, and look afterwards whether the message was as long. So a client ends a
//! server, and everybody's file system with it, by one request that says that it has more than it has.
//!
//! # The rule
//! A body is gone through as its server's decoder does it, before it goes there. Nothing may reach beyond the message, nothing may be left
//! over, texts end where they say, and lists are no longer than servers' buffers for them. Kinds of requests that no client sends end servers, too.
//! Reads and writes have further rules: a tree of pieces in `file_request.rs`, the striping in `distribution.rs`.
//!
//! Directories' hints are as 2.9.7 and later write them. Older clients write them shorter, and a server of another release would read beyond the end.
//!
//! # Price
//! A pass over the message, without a copy.
//!
//! Source: `src/proto/pvfs2-req-proto.h`, `src/proto/pvfs2-attr.h`, `include/pvfs2-types.h` (limits and types), `src/proto/PINT-le-bytefield.c`.

use crate::distribution::Distribution;
use crate::message::Version;
use crate::wire::{Malformed, Reader};

/// Handles in a list, servers in a layout.
const HANDLES_MAX: u32 = 1024;
/// Objects whose attributes are asked for at once.
const OBJECTS_MAX: u32 = 60;
/// The position before the first of many: servers end by one that is it in half.
const START: u32 = 0x7fff_fffe;
/// Groups of a user.
const GROUPS_MAX: u32 = 32;
/// Bytes of a signature, of a certificate, of whoever issued either.
const SIGNATURE_MAX: u32 = 512;
const CERTIFICATE_MAX: u32 = 8192;
const ISSUER_MAX: usize = 128;
/// Bytes of a name in a directory, and of a path, with their ends.
const NAME_MAX: usize = 256;
const PATH_MAX: usize = 4096;
/// Names in a path.
const NAMES_MAX: usize = 40;
/// Attributes in a list, and bytes of a name and a value.
const ATTRIBUTES_MAX: u32 = 16;
const KEY_MAX: u32 = 256;
const VALUE_MAX: u32 = 8192;
/// Counters that servers have. They have fewer timers.
const COUNTERS: u32 = 23;
/// What names of attributes begin with, for whom they are; servers' own may have so many bytes more, with their end.
const PREFIXES: [&[u8]; 4] = [b"system.", b"user.", b"trusted.", b"security."];
const SERVERS_OWN: &[u8] = b"system.pvfs2.";
const OWN_MAX: usize = 128;

/// Which parts of an object's attributes follow.
const CAPABILITY: u32 = 1 << 22;
const DISTRIBUTION: u32 = 1 << 10;
const DATA_FILES: u32 = 1 << 11;
const MIRRORS: u32 = 1 << 13;
const UNSTUFFED: u32 = 1 << 12;
const DATA_SIZE: u32 = 1 << 15;
const LINK: u32 = 1 << 18;
const DIRECTORY: u32 = 1 << 19 | 1 << 20;
const SPREAD_DIRECTORY: u32 = 1 << 21;
/// The kind of object that a file's metadata is.
const METAFILE: u32 = 1;

/// A part of a body.
#[derive(Clone, Copy)]
enum Part {
    /// So many bytes of numbers.
    Bytes(usize),
    /// A text, with its end no longer than this.
    Text(usize),
    /// Names of directories, and of what is in the last one.
    Path,
    /// The handle of an object: there is none of 0.
    Object,
    Credential,
    Attributes,
    Layout,
    /// Ranges of handles; at least one of them.
    Extents,
    SomeExtents,
    /// How many handles are wanted.
    Number,
    /// Their number, then each.
    Handles,
    /// The same, of those whose attributes are asked for.
    Objects,
    /// Where a list of many goes on.
    Position,
    /// Names of attributes, and the lengths that their values may have.
    Keys,
    /// Names of attributes, and values.
    KeysAndValues,
    /// Names, values, lengths.
    KeysValuesAndLengths,
    /// The name of an attribute that goes.
    RemovedKey,
    /// Lengths that names may have.
    Lengths,
    /// Entries that move to another part of a directory.
    Entries,
    /// What a file's mirror is to be.
    Mirror,
    /// Counters: one number more since 2.9.5.
    Counters,
    /// A parameter of a server: a number, or a text.
    Parameter,
}

/// What a body has, by its kind; nothing of a kind that ends servers.
fn parts(op: i32) -> Option<&'static [Part]> {
    use Part::*;
    Some(match op {
        1 => &[Bytes(8), Credential, Attributes, Bytes(4), Layout],
        2 => &[Bytes(12), Credential],
        4 | 38 => &[Bytes(16), Credential],
        5 => &[Bytes(16), Attributes, Credential],
        6 => &[Path, Bytes(8), Object, Bytes(4), Credential],
        7 => &[Credential, Text(NAME_MAX), Bytes(28)],
        8 => &[Text(NAME_MAX), Bytes(12)],
        9 => &[Text(NAME_MAX), Bytes(20)],
        10 => &[Bytes(28)],
        12 => &[Bytes(20), Position],
        11 => &[Bytes(8), Credential, Attributes, Extents, Bytes(12), Layout],
        13 | 17 | 40 => &[],
        15 => &[Bytes(16)],
        16 => &[Bytes(8), Parameter],
        18 | 43 => &[Bytes(4)],
        20 => &[Counters],
        21 => &[Bytes(4), Number, Bytes(4), Position],
        24 | 26 | 46 => &[Bytes(12)],
        25 => &[Bytes(16), Text(NAME_MAX)],
        29 => &[Bytes(12), Keys],
        30 => &[Bytes(20), KeysAndValues],
        31 => &[Bytes(12), RemovedKey],
        32 => &[Bytes(16), Position, Lengths],
        34 => &[Bytes(12), Objects],
        35 => &[Bytes(16), SomeExtents],
        36 => &[Bytes(4), Handles],
        39 => &[Mirror],
        41 => &[Bytes(4), Credential, Bytes(4), Handles],
        42 => &[Bytes(12), Credential, Handles],
        44 => &[Bytes(4), Credential, Bytes(4), Attributes, Bytes(4), Handles],
        45 => &[Bytes(12), Text(NAME_MAX)],
        47 => &[Entries],
        48 => &[Bytes(20), KeysValuesAndLengths],
        49 => &[Bytes(12), Credential, Bytes(4), Handles],
        _ => return None,
    })
}

/// Whether a server can go through a request that is no read or write. Of another protocol than 7000 nothing is known. Which servers have a directory is
/// between servers: they end by what makes no sense there, whoever looks into the directory.
pub(crate) fn check(payload: &[u8], of_client: bool) -> Result<(), Malformed> {
    let mut r = Reader::new(payload);
    if Version::read(&mut r) != Ok(Version::V7000) {
        return Ok(());
    }
    let op = r.i32("operation")?;
    let parts = parts(op).ok_or(r.malformed("its kind"))?;
    r.pad(4)?;
    capability(&mut r)?;
    hints(&mut r)?;
    parts.iter().try_for_each(|part| read(*part, &mut r, of_client))?;
    end(&r)
}

fn handles(r: &mut Reader<'_>, most: u32) -> Result<(), Malformed> {
    let handles = count(r, most, "handles")?;
    r.pad(8 * handles)
}

/// Nothing is left over.
pub(crate) fn end(r: &Reader<'_>) -> Result<(), Malformed> {
    if r.rest().is_empty() { Ok(()) } else { Err(r.malformed("its end")) }
}

fn read(part: Part, r: &mut Reader<'_>, of_client: bool) -> Result<(), Malformed> {
    match part {
        Part::Bytes(len) => r.pad(len),
        Part::Text(most) => text(r, most, "a name"),
        Part::Path => path(r),
        Part::Object => match r.u64("an object")? {
            0 => Err(r.malformed("an object")),
            _ => Ok(()),
        },
        Part::Credential => credential(r),
        Part::Attributes => attributes(r, of_client),
        Part::Layout => {
            r.pad(8)?;
            let servers = count(r, HANDLES_MAX, "servers of a layout")?;
            r.pad(4)?;
            (0..servers).try_for_each(|_| text(r, PATH_MAX, "a server of a layout"))
        }
        Part::Extents => extents(r, 0),
        Part::SomeExtents => extents(r, 1),
        Part::Number => count(r, HANDLES_MAX, "handles wanted").map(drop),
        Part::Handles => handles(r, HANDLES_MAX),
        Part::Objects => handles(r, OBJECTS_MAX),
        Part::Position => {
            let position = r.u64("a position")?;
            let begins = position as u32 == START && position != u64::from(START);
            if begins { Err(r.malformed("a position")) } else { Ok(()) }
        }
        Part::Keys => {
            let keys = keys(r)?;
            lengths(r, keys, VALUE_MAX)
        }
        Part::KeysAndValues => {
            let keys = keys(r)?;
            (0..keys).try_for_each(|_| keyval(r, VALUE_MAX, "an attribute's value"))
        }
        Part::KeysValuesAndLengths => {
            let keys = keys(r)?;
            (0..keys).try_for_each(|_| keyval(r, VALUE_MAX, "an attribute's value"))?;
            lengths(r, keys, VALUE_MAX)
        }
        Part::RemovedKey => removed(r),
        Part::Lengths => {
            let names = count(r, ATTRIBUTES_MAX, "names of attributes")?;
            lengths(r, names, KEY_MAX)
        }
        Part::Entries => entries(r),
        Part::Mirror => mirror(r),
        Part::Counters => counters(r),
        Part::Parameter => match r.i32("a parameter's type")? {
            0 => r.pad(8),
            1 => text(r, PATH_MAX, "a parameter"),
            _ => Err(r.malformed("a parameter's type")),
        },
    }
}

/// A number of things that follow.
fn count(r: &mut Reader<'_>, most: u32, what: &'static str) -> Result<usize, Malformed> {
    let at = r.clone();
    let count = r.u32(what)?;
    if count <= most { Ok(count as usize) } else { Err(at.malformed(what)) }
}

/// A text: servers look for its end where it is, not where its length says.
fn text(r: &mut Reader<'_>, most: usize, what: &'static str) -> Result<(), Malformed> {
    let at = r.clone();
    let len = text_or_nothing(r, most, what)?;
    if len > 0 { Ok(()) } else { Err(at.malformed(what)) }
}

/// The same, and how long it is. Clients write nothing at all behind a length of 0, not even an end.
fn text_or_nothing(r: &mut Reader<'_>, most: usize, what: &'static str) -> Result<usize, Malformed> {
    let at = r.clone();
    let len = r.string(what)?.len();
    if len < most { Ok(len) } else { Err(at.malformed(what)) }
}

/// A text behind the length by which servers copy it, with its end.
fn copied(r: &mut Reader<'_>, what: &'static str) -> Result<(), Malformed> {
    let at = r.clone();
    let copied = r.u32(what)? as usize;
    r.pad(4)?;
    let len = text_or_nothing(r, PATH_MAX, what)?;
    if copied <= len + usize::from(len > 0) { Ok(()) } else { Err(at.malformed(what)) }
}

/// A path: servers end by names that are too long, and never answer where there are too many, or none.
fn path(r: &mut Reader<'_>) -> Result<(), Malformed> {
    let mut whole = r.clone();
    text(r, PATH_MAX, "a path")?;
    let path = whole.string("a path")?;
    let names = || path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let few = (1..=NAMES_MAX).contains(&names().count());
    if few && names().all(|name| name.len() < NAME_MAX) { Ok(()) } else { Err(r.malformed("a path")) }
}

/// A name or value of an attribute: its length counts its end, if it has one.
fn keyval(r: &mut Reader<'_>, most: u32, what: &'static str) -> Result<(), Malformed> {
    let len = count(r, most, what)?;
    r.pad((4 + len).next_multiple_of(8) - 4)
}

/// A name of an attribute. Servers look for its end, and copy what is behind their own prefix to less memory.
fn key<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let mut whole = r.clone();
    keyval(r, KEY_MAX, "an attribute's name")?;
    let len = whole.u32("an attribute's name")? as usize;
    let name = whole.take(len, "an attribute's name")?;
    let end = name.iter().position(|byte| *byte == 0).ok_or(r.malformed("an attribute's name"))?;
    let own = name[..end].strip_prefix(SERVERS_OWN).is_some_and(|own| own.len() >= OWN_MAX);
    if own { Err(r.malformed("an attribute's name")) } else { Ok(&name[..end]) }
}

/// Where no attribute is asked for, servers never answer, and the object waits for them.
fn keys(r: &mut Reader<'_>) -> Result<usize, Malformed> {
    let keys = count(r, ATTRIBUTES_MAX, "attributes")?;
    (0..keys).try_for_each(|_| key(r).map(drop))?;
    if keys > 0 { Ok(keys) } else { Err(r.malformed("attributes")) }
}

/// The same where servers' own keys are to go: these have no prefix.
fn removed(r: &mut Reader<'_>) -> Result<(), Malformed> {
    let name = key(r)?;
    if PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        Ok(())
    } else {
        Err(r.malformed("an attribute's name"))
    }
}

/// Ranges of handles.
fn extents(r: &mut Reader<'_>, least: usize) -> Result<(), Malformed> {
    r.pad(4)?;
    let extents = count(r, HANDLES_MAX, "ranges of handles")?;
    r.pad(16 * extents)?;
    if extents >= least { Ok(()) } else { Err(r.malformed("ranges of handles")) }
}

fn lengths(r: &mut Reader<'_>, number: usize, most: u32) -> Result<(), Malformed> {
    for _ in 0..number {
        if !(0..=i64::from(most)).contains(&r.i64("a length")?) {
            return Err(r.malformed("a length"));
        }
    }
    Ok(())
}

/// As [`Capability`](crate::Capability) reads it, without a copy.
fn capability(r: &mut Reader<'_>) -> Result<(), Malformed> {
    text_or_nothing(r, ISSUER_MAX, "capability issuer")?;
    r.pad(8)?;
    let signature = count(r, SIGNATURE_MAX, "capability signature size")?;
    r.pad(signature)?;
    r.align8()?;
    r.pad(12)?;
    let handles = count(r, HANDLES_MAX, "capability handles")?;
    r.pad(8 * handles)?;
    r.align8()
}

fn hints(r: &mut Reader<'_>) -> Result<(), Malformed> {
    for _ in 0..r.u32("hint count")? {
        match r.u32("hint type")? {
            3 => r.pad(8)?,
            1..=14 => r.pad(4)?,
            _ => {
                text_or_nothing(r, NAME_MAX, "hint name")?;
                text_or_nothing(r, PATH_MAX, "hint value")?;
            }
        }
    }
    Ok(())
}

fn credential(r: &mut Reader<'_>) -> Result<(), Malformed> {
    r.pad(12)?;
    let groups = count(r, GROUPS_MAX, "credential groups")?;
    r.pad(4 * groups)?;
    r.align8()?;
    text_or_nothing(r, ISSUER_MAX, "credential issuer")?;
    r.pad(8)?;
    let signature = count(r, SIGNATURE_MAX, "credential signature size")?;
    r.pad(signature)?;
    r.align8()?;
    r.pad(4)?;
    let certificate = count(r, CERTIFICATE_MAX, "certificate size")?;
    r.pad(certificate)?;
    r.align8()
}

fn attributes(r: &mut Reader<'_>, of_client: bool) -> Result<(), Malformed> {
    r.pad(40)?;
    let (mask, kind) = (r.u32("attribute mask")?, r.u32("kind of object")?);
    let has = |bits: u32| mask & bits != 0;
    if has(CAPABILITY) {
        capability(r)?;
    }
    if kind == METAFILE && !has(UNSTUFFED) {
        r.pad(8)?;
    }
    if has(DISTRIBUTION) {
        Distribution::read(r)?;
    }
    let mut files = 0;
    if has(DATA_FILES) {
        files = count(r, HANDLES_MAX, "data files")?;
        r.pad(4 + 8 * files + 8)?;
    }
    if has(MIRRORS) && !has(DATA_FILES) {
        return Err(r.malformed("mirrors of no data files"));
    }
    if has(MIRRORS) {
        let copies = count(r, HANDLES_MAX, "mirror copies")?;
        r.pad(4 + 8 * files * copies)?;
    }
    if has(DATA_SIZE) {
        r.pad(8)?;
    }
    if has(LINK) {
        copied(r, "a link's target")?;
    }
    if has(SPREAD_DIRECTORY) && of_client {
        return Err(r.malformed("servers of a directory"));
    }
    if has(SPREAD_DIRECTORY) {
        r.pad(4)?;
        let servers = count(r, HANDLES_MAX, "servers of a directory")?;
        let bits = count(r, HANDLES_MAX, "bits of a directory")?;
        r.pad(12 + 4 * bits + 4 + 8 * servers)?;
    }
    if has(DIRECTORY) {
        r.pad(8)?;
        copied(r, "a directory's distribution")?;
        copied(r, "its parameters")?;
        r.pad(4 + 4 + 4)?; // data files, algorithm, number of servers
        let at = r.clone();
        let copied = r.u32("a directory's servers")? as usize;
        let len = text_or_nothing(r, PATH_MAX, "a directory's servers")?;
        if copied > len + usize::from(len > 0) {
            return Err(at.malformed("a directory's servers"));
        }
    }
    Ok(())
}

/// Servers that know two kinds of counters write beyond their answer's memory where fewer are asked for than they have.
fn counters(r: &mut Reader<'_>) -> Result<(), Malformed> {
    if r.rest().len() == 12 {
        return r.pad(12); // before 2.9.5
    }
    r.pad(8)?;
    let at = r.clone();
    if r.u32("counters")? < COUNTERS {
        return Err(at.malformed("counters"));
    }
    r.pad(4)
}

fn entries(r: &mut Reader<'_>) -> Result<(), Malformed> {
    r.pad(12)?;
    Distribution::read(r)?;
    r.pad(8)?;
    let entries = count(r, HANDLES_MAX, "entries")?;
    r.pad(8 * entries)?;
    (0..entries).try_for_each(|_| text(r, NAME_MAX, "an entry"))
}

fn mirror(r: &mut Reader<'_>) -> Result<(), Malformed> {
    r.pad(12)?;
    Distribution::read(r)?;
    r.pad(8)?;
    let copies = count(r, HANDLES_MAX, "copies")?;
    r.pad(8 + 12 * copies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Writer;
    use crate::{Capability, Hints};

    /// Of this kind, nobody's, without hints; what follows begins four bytes before a multiple of eight.
    fn begun(op: i32) -> Writer {
        let mut w = Writer::new();
        w.i32(7000).i32(2).i32(op).pad(4);
        Capability::default().write(&mut w);
        Hints::default().write(&mut w);
        w
    }

    fn asking(op: i32, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut w = begun(op);
        body(&mut w);
        w.into_bytes()
    }

    fn credential(w: &mut Writer, groups: u32) {
        w.pad(8).u32(20_001).u32(groups).pad(4 * groups.min(2000) as usize).align8();
        w.string(b"C:vm").i64(1 << 40).u32(0).align8().pad(4).u32(0).align8();
    }

    fn key(w: &mut Writer, name: &[u8]) {
        let len = name.len() + 1;
        w.u32(len as u32).bytes(name).pad((4 + len).next_multiple_of(8) - 3 - len);
    }

    /// Of a file, or of another kind of object.
    fn attributes(w: &mut Writer, mask: u32, kind: u32) {
        w.pad(40).u32(mask).u32(kind);
        if kind == METAFILE {
            w.pad(8);
        }
    }

    fn sound(payload: &[u8]) -> bool {
        check(payload, true).is_ok()
    }

    /// A server of 2.10 was seen to end by each of these, to hang, or never to answer and keep the object from everybody; the first of each pair it answers.
    #[test]
    fn what_ends_a_server_does_not_go_there() {
        type Body = fn(&mut Writer, u32);
        let pairs: [(i32, Body, u32, &[u32]); 18] = [
            (
                6,
                |w, n| {
                    w.string(b"/a").i32(9).pad(4).u64(u64::from(n)).u32(0);
                    credential(w, 0)
                },
                1,
                &[0],
            ),
            (
                1,
                |w, n| {
                    w.i32(9).pad(4);
                    credential(w, 0);
                    attributes(w, 0, METAFILE);
                    w.i32(1).i32(5).pad(4).i32(1).pad(4).u32(n).bytes(b"tcp://h:1\0\0\0");
                },
                9,
                &[0, 77, u32::MAX],
            ),
            (20, |w, n| _ = w.u32(0).u32(0).u32(n).u32(10), 23, &[22, 1, 0]),
            (29, |w, n| _ = w.u64(1).i32(9).u32(n), 0, &[]), // no attribute: it is never answered
            (
                4,
                |w, n| {
                    w.u64(1).i32(9).u32(0);
                    credential(w, n)
                },
                32,
                &[33, 1000, u32::MAX],
            ),
            (
                34,
                |w, n| _ = w.i32(9).u32(1 << 15).pad(4).u32(n).pad(8 * n.min(2000) as usize),
                60,
                &[61, 1024, u32::MAX],
            ),
            (
                21,
                |w, n| _ = w.i32(9).u32(n).i32(0).u64(0x7fff_fffe),
                1024,
                &[1025, i32::MAX as u32, u32::MAX],
            ),
            (12, |w, n| _ = w.u64(1).i32(9).u32(512).pad(4).u32(0x7fff_fffe).u32(n), 0, &[1, 7]),
            (
                32,
                |w, n| _ = w.u64(1).i32(9).pad(4).u64(0x7fff_fffe).u32(1).i64(i64::from(n as i32)),
                256,
                &[257, -5_i32 as u32],
            ),
            (
                29,
                |w, n| {
                    w.u64(1).i32(9).u32(1);
                    key(w, b"user.a");
                    w.i64(i64::from(n as i32));
                },
                8192,
                &[8193, u32::MAX],
            ),
            (
                29,
                |w, n| {
                    w.u64(1).i32(9).u32(1);
                    key(w, &[b"system.pvfs2.", &vec![b'k'; n as usize][..]].concat());
                    w.i64(1);
                },
                127,
                &[128],
            ),
            (
                30,
                |w, n| {
                    w.u64(1).pad(12).u32(n);
                    (0..n.min(17)).for_each(|_| key(w, b"user.a"));
                    w.pad(8 * n.min(17) as usize);
                },
                16,
                &[0, 17, u32::MAX],
            ),
            (
                31,
                |w, n| {
                    w.u64(1).i32(9);
                    key(w, [&b"user.dh"[..], b"dh"][n as usize]);
                },
                0,
                &[1],
            ),
            (
                6,
                |w, n| {
                    w.string(&b"/a".repeat(n as usize)).i32(9).pad(4).u64(1).u32(0);
                    credential(w, 0)
                },
                40,
                &[0, 41],
            ),
            (
                6,
                |w, n| {
                    w.string(&vec![b'a'; n as usize]).i32(9).pad(4).u64(1).u32(0);
                    credential(w, 0)
                },
                255,
                &[256, 4096],
            ),
            (8, |w, n| _ = w.string(&vec![b'a'; n as usize]).u64(1).i32(9), 255, &[0, 256, 5000]),
            (
                35,
                |w, n| _ = w.i32(9).i32(2).u32(1).pad(8).u32(n).pad(16 * n.min(2000) as usize),
                1,
                &[0, 1025, u32::MAX],
            ),
            (
                5,
                |w, n| {
                    w.u64(1).i32(9).pad(4);
                    attributes(w, [0, MIRRORS, SPREAD_DIRECTORY][n as usize], 4);
                    w.pad([0, 8, 24][n as usize]);
                    credential(w, 0)
                },
                0,
                &[1, 2],
            ),
        ];
        for (op, body, good, bad) in pairs {
            assert_eq!(sound(&asking(op, |w| body(w, good))), op != 29 || good > 0, "{op} with {good}");
            for bad in bad {
                assert!(!sound(&asking(op, |w| body(w, *bad))), "{op} with {bad}");
            }
        }
        for op in [0, 14, 19, 22, 23, 27, 28, 37, 50, 51, 52, 77, -1, i32::MAX] {
            assert!(!sound(&asking(op, |_| {})), "{op}");
        }
    }

    /// What is left out at the end, or stands behind it, and texts that do not end.
    #[test]
    fn a_body_is_neither_shorter_nor_longer_than_it_says() {
        let statfs = asking(18, |w| _ = w.i32(9));
        assert!(sound(&statfs) && !sound(&[&statfs[..], &[0; 4]].concat()));
        for len in 12..statfs.len() {
            assert!(!sound(&statfs[..len]), "{len}");
        }
        let named = asking(8, |w| _ = w.u32(3).bytes(b"abc\0").u64(1).i32(9));
        let endless = asking(8, |w| _ = w.u32(3).bytes(b"abcd").u64(1).i32(9));
        let longer = asking(8, |w| _ = w.u32(0x7fff_fff0).bytes(b"abc\0").u64(1).i32(9));
        assert!(sound(&named) && !sound(&endless) && !sound(&longer));
    }

    /// A server's directory says which servers have it: between them, no client does.
    #[test]
    fn servers_say_which_of_them_have_a_directory() {
        let spread = asking(5, |w| {
            w.u64(1).i32(9).pad(4);
            attributes(w, SPREAD_DIRECTORY, 4);
            w.i32(1).u32(1).u32(1).pad(12).u32(1).pad(4).u64(3);
            credential(w, 0);
        });
        assert!(check(&spread, false).is_ok() && check(&spread, true).is_err());
    }

    /// Of an older protocol nothing is known.
    #[test]
    fn an_older_protocol_is_not_looked_into() {
        let mut old = asking(18, |_| {});
        old[..4].copy_from_slice(&6000_i32.to_le_bytes());
        assert!(sound(&old));
    }
}
