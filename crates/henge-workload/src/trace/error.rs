//! What can be wrong with a trace, and where.

use henge_core::Duration;

/// Where a trace is damaged, and how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {field}: {why}: \"{text}\"")]
pub struct Damage {
    /// Which trace.
    pub file: String,
    /// Which line, or which record of a binary format, from 1.
    pub line: u64,
    /// Which column or field.
    pub field: &'static str,
    /// What is wrong with it.
    pub why: &'static str,
    /// The beginning of the line, or the bytes of the record.
    pub text: String,
}

/// An error in a trace. Line and record numbers begin at 1.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The input could not be read.
    #[error("{file}: {why}")]
    Io {
        /// Which trace.
        file: String,
        /// Why.
        why: std::io::Error,
    },
    /// A line, or a binary record, that cannot be understood.
    #[error("{0}")]
    Damaged(Box<Damage>),
    /// No request at all.
    #[error("{file}: {what}")]
    Empty {
        /// Which trace.
        file: String,
        /// What is missing.
        what: String,
    },
    /// The input ends in the middle of an archive, a record or a header.
    #[error("{file}: truncated after {records} requests: {what}")]
    Truncated {
        /// Which trace.
        file: String,
        /// How many requests came before.
        records: u64,
        /// What is cut.
        what: String,
    },
    /// The named format does not fit from the first data line on.
    #[error("{damage}: this is not {named}{hint}")]
    WrongFormat {
        /// The first line that does not fit.
        damage: Box<Damage>,
        /// The format that was named.
        named: &'static str,
        /// What it looks like instead, in words; may be empty.
        hint: String,
    },
    /// No format fits.
    #[error("{file}: {why}")]
    Unknown {
        /// Which trace.
        file: String,
        /// What was found, and what would do.
        why: String,
    },
    /// A record is earlier than its predecessor.
    #[error(
        "{place}request {record} is {by} earlier than one before it; keep some requests to sort them (reorder = 1000, \
         --reorder 1000), sort the trace (henge trace convert --sort), or let late ones leave at once \
         (backwards = \"clamp\")"
    )]
    Backwards {
        /// Where it stands: `file:line: `, or nothing where that is not known.
        place: String,
        /// Which record.
        record: u64,
        /// How much earlier.
        by: Duration,
    },
    /// A request that does not lie on the disk.
    #[error(
        "{place}request {record} ends at byte {end}, beyond the disk of {capacity} bytes; enlarge the disk, or set \
         place = \"wrap\" or \"scale\" (--place wrap)"
    )]
    Beyond {
        /// Where it stands: `file:line: `, or nothing where that is not known.
        place: String,
        /// Which record.
        record: u64,
        /// Its end.
        end: u64,
        /// What the disk, or the slice of it, has.
        capacity: u64,
    },
}

/// What is wrong with one field; becomes a [`TraceError`] where file and line are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bad {
    pub field: &'static str,
    pub why: &'static str,
}

pub(crate) const fn bad(field: &'static str, why: &'static str) -> Bad {
    Bad { field, why }
}

/// The beginning of a line, printable.
pub(crate) fn excerpt(line: &[u8]) -> String {
    const MOST: usize = 80;
    let shown: String = line[..line.len().min(MOST)]
        .iter()
        .map(|b| if (0x20..0x7f).contains(b) { *b as char } else { '.' })
        .collect();
    if line.len() > MOST { format!("{shown}…") } else { shown }
}
