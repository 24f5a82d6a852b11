//! Traces: streams of records from whatever wrote them down, in constant memory.
//!
//! ```
//! use henge_workload::{Trace, TraceOptions, Format};
//! let text = "0,303567,3584,w,0.000000\n1,55590,3072,r,0.026214\n";
//! let mut trace = Trace::open("example", Box::new(text.as_bytes()), &TraceOptions::default()).unwrap();
//! assert_eq!(trace.format(), Format::Spc);
//! let first = trace.next().unwrap().unwrap();
//! assert_eq!((first.offset, first.len), (303567 * 512, 3584));
//! assert_eq!(trace.next().unwrap().unwrap().at.as_nanos(), 26_214_000);
//! assert!(trace.next().is_none());
//! ```

mod binary;
mod blkparse;
mod columns;
mod detect;
mod error;
mod events;
mod field;
mod format;
mod input;
mod state;
mod write;

pub use binary::OwnWriter;
pub use error::{Damage, TraceError};
pub use format::Format;
pub use input::Packing;
pub use state::Units;
pub use write::{TraceWriter, WRITABLE};

use crate::Record;
use binary::Vscsi;
use error::{Bad, excerpt};
use format::Reader;
use input::Input;
use state::State;
use std::fmt;
use std::io::{ErrorKind, Read};

/// How a trace is read; everything is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceOptions {
    /// The format; recognized by content where it is not named.
    pub format: Option<Format>,
    /// Nanoseconds of one step of the time column, where the format leaves it open.
    pub time_unit: Option<u64>,
    /// Bytes of one step of the offset column.
    pub offset_unit: Option<u64>,
    /// Bytes of one step of the size column.
    pub size_unit: Option<u64>,
    /// Which event of blkparse counts: Q, D, C …
    pub event: Option<u8>,
    /// Whether Darshan's MPI-IO calls count instead of the POSIX ones.
    pub mpiio: bool,
    /// Whether damaged lines are passed over and counted.
    pub skip_damaged: bool,
}

/// A trace as an iterator over its records. Any error ends it.
pub struct Trace {
    file: String,
    input: Input,
    format: Format,
    /// The version of a trace of that format.
    vscsi: Vscsi,
    units: Units,
    state: State,
    skip_damaged: bool,
    /// Lines or binary records read.
    line: u64,
    damaged: u64,
    first_damage: Option<TraceError>,
    pages: bool,
    named: bool,
    over: bool,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("file", &self.file)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

impl Trace {
    /// Begins to read; `file` is how errors call it.
    pub fn open(
        file: &str,
        reader: Box<dyn Read + Send>,
        options: &TraceOptions,
    ) -> Result<Trace, TraceError> {
        let file = file.to_owned();
        let mut input = Input::new(reader).map_err(|e| io_error(&file, 0, e))?;
        if input.at_end().map_err(|e| io_error(&file, 0, e))? {
            return Err(TraceError::Empty { file, what: "the file is empty".to_owned() });
        }
        let wanted = options.event.or(options.mpiio.then_some(b'M'));
        let format = match options.format {
            Some(format) => format,
            None => detect::recognize(input.rest())
                .map_err(|why| TraceError::Unknown { file: file.clone(), why })?,
        };
        let usual = format.units();
        let units = Units {
            time: options.time_unit.unwrap_or(usual.time),
            offset: options.offset_unit.unwrap_or(usual.offset),
            size: options.size_unit.unwrap_or(usual.size),
        };
        let pages = options.size_unit.is_none() && detect::sizes_look_like_pages(format, input.rest());
        let mut trace = Trace {
            file,
            vscsi: Vscsi::of(input.rest()),
            input,
            format,
            units,
            state: format.state(wanted),
            skip_damaged: options.skip_damaged,
            line: 0,
            damaged: 0,
            first_damage: None,
            pages,
            named: options.format.is_some(),
            over: false,
        };
        trace.pass_header()?;
        Ok(trace)
    }

    /// The format, named or recognized.
    pub fn format(&self) -> Format {
        self.format
    }
    /// What one step of each column is.
    pub fn units(&self) -> Units {
        self.units
    }
    /// How the file was packed.
    pub fn packing(&self) -> Packing {
        self.input.packing
    }
    /// How many damaged lines were passed over.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }
    /// How many reads are marked as read-ahead.
    pub fn read_ahead(&self) -> u64 {
        self.state.read_ahead
    }
    /// The bytes of those.
    pub fn read_ahead_bytes(&self) -> u64 {
        self.state.read_ahead_bytes
    }
    /// How many lines had no operation or no address although their format lets them; they are no requests.
    pub fn incomplete(&self) -> u64 {
        self.state.incomplete
    }
    /// The first of the damaged ones.
    pub fn first_damage(&self) -> Option<&TraceError> {
        self.first_damage.as_ref()
    }
    /// Whether the size column looks like 4 KiB pages although it was read in the format's own unit.
    pub fn sizes_look_like_pages(&self) -> bool {
        self.pages
    }

    fn pass_header(&mut self) -> Result<(), TraceError> {
        let magic = self.format.has_magic(self.input.rest());
        match self.format.reader() {
            Reader::Lines(_) | Reader::Vscsi => {}
            _ if !magic => return Err(self.wrong("header", "does not begin as this format does")),
            Reader::Henge => self.input.skip(binary::MAGIC.len()),
            Reader::Srt => {
                let header = binary::srt_header(self.input.rest()).expect("the magic was just found");
                self.input.skip(header);
            }
        }
        Ok(())
    }

    fn wrong(&self, field: &'static str, why: &'static str) -> TraceError {
        self.refused(Bad { field, why }, &excerpt(self.input.rest()))
    }

    /// An error about the current line: damage, or a wrong name for the format when nothing fitted so far.
    fn refused(&self, bad: Bad, text: &str) -> TraceError {
        let damage = Box::new(Damage {
            file: self.file.clone(),
            line: self.line.max(1),
            field: bad.field,
            why: bad.why,
            text: text.to_owned(),
        });
        if self.named && self.state.records == 0 && self.damaged == 0 {
            let hint = detect::hint(self.format, text);
            return TraceError::WrongFormat { damage, named: self.format.name(), hint };
        }
        TraceError::Damaged(damage)
    }

    /// The next record, or `None` at the end.
    fn read(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            let (parsed, text) = match self.format.reader() {
                Reader::Lines(read) => match self.input.line() {
                    Ok(None) => return self.end(),
                    Ok(Some(line)) => {
                        self.line += 1;
                        match read(&mut self.state, &self.units, line) {
                            Ok(None) => continue,
                            Ok(Some(record)) => {
                                self.state.records += 1;
                                return Ok(Some(record));
                            }
                            Err(bad) => (bad, excerpt(line)),
                        }
                    }
                    Err(e) => return Err(io_error(&self.file, self.state.records, e)),
                },
                reader => match self.read_binary(&reader)? {
                    Ok(None) => continue,
                    Ok(Some(Some(record))) => {
                        self.state.records += 1;
                        return Ok(Some(record));
                    }
                    Ok(Some(None)) => return self.end(),
                    Err(damage) => damage,
                },
            };
            let error = self.refused(parsed, &text);
            if !self.skip_damaged {
                return Err(error);
            }
            self.damaged += 1;
            self.first_damage.get_or_insert(error);
        }
    }

    /// One binary record: nothing to report, a record, the end, or damage.
    #[allow(clippy::type_complexity)]
    fn read_binary(
        &mut self,
        reader: &Reader,
    ) -> Result<Result<Option<Option<Record>>, (Bad, String)>, TraceError> {
        let fail = |e| io_error(&self.file, self.state.records, e);
        self.line += 1;
        let mut head = [0; 4];
        let size = match reader {
            Reader::Vscsi => self.vscsi.size,
            Reader::Henge => binary::OWN_RECORD,
            Reader::Srt | Reader::Lines(_) => match self.input.bytes(4).map_err(fail)? {
                None => return Ok(Ok(Some(None))),
                Some(word) => {
                    head.copy_from_slice(word);
                    match binary::srt_size(word) {
                        Ok(size) => size,
                        // Where the next record begins is not known, so that this cannot be passed over.
                        Err(bad) => return Err(self.refused(bad, &hex(&head))),
                    }
                }
            },
        };
        match reader {
            Reader::Henge => match self.input.bytes(size).map_err(fail)? {
                None => Err(self.truncated("the end record is missing")),
                Some(bytes) => match binary::own(bytes) {
                    Ok(binary::Own::Record(record)) => Ok(Ok(Some(Some(record)))),
                    Ok(binary::Own::End(n)) if n == self.state.records + self.damaged => Ok(Ok(Some(None))),
                    Ok(binary::Own::End(_)) => Err(self.truncated("the end record counts more requests")),
                    Err(bad) => Ok(Err((bad, hex(bytes)))),
                },
            },
            Reader::Vscsi => match self.input.bytes(size).map_err(fail)? {
                None => Ok(Ok(Some(None))),
                Some(bytes) => Ok(self
                    .vscsi
                    .read(&self.units, bytes)
                    .map(|r| r.map(Some))
                    .map_err(|bad| (bad, hex(bytes)))),
            },
            Reader::Srt | Reader::Lines(_) => {
                let Some(rest) = self.input.bytes(size - 4).map_err(fail)? else {
                    return Err(self.truncated("the last record has 4 bytes alone"));
                };
                let mut record = [0; binary::SRT_RECORD_MAX];
                record[..4].copy_from_slice(&head);
                record[4..size].copy_from_slice(rest);
                let record = &record[..size];
                Ok(binary::srt(&mut self.state, &self.units, record)
                    .map(|r| r.map(Some))
                    .map_err(|bad| (bad, hex(record))))
            }
        }
    }

    fn truncated(&self, what: &str) -> TraceError {
        TraceError::Truncated { file: self.file.clone(), records: self.state.records, what: what.to_owned() }
    }

    /// The end of the input: an error when nothing was read.
    fn end(&mut self) -> Result<Option<Record>, TraceError> {
        if self.state.records == 0 && self.damaged == 0 {
            let (file, others) = (self.file.clone(), self.state.passed_over());
            let what = match self.format {
                _ if others.is_empty() => "no request in it".to_owned(),
                Format::Dxt => {
                    "no call of the module that was asked for; try with or without --mpiio".to_owned()
                }
                _ => {
                    let wanted = char::from(self.state.wanted);
                    format!("no event {wanted} in it, but {others}; choose one with --event")
                }
            };
            return Err(TraceError::Empty { file, what });
        }
        Ok(None)
    }
}

impl crate::Source for Trace {
    fn name(&self) -> &str {
        &self.file
    }
    fn line(&self) -> u64 {
        self.line
    }
}

impl Iterator for Trace {
    type Item = Result<Record, TraceError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.read().transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}

fn io_error(file: &str, records: u64, why: std::io::Error) -> TraceError {
    let cut = why.kind() == ErrorKind::UnexpectedEof || why.to_string().contains("incomplete frame");
    let file = file.to_owned();
    if cut {
        return TraceError::Truncated { file, records, what: why.to_string() };
    }
    TraceError::Io { file, why }
}

/// The bytes of a record, for messages.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(32).map(|b| format!("{b:02x}")).collect()
}
