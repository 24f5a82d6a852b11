//! Traces written in a format that others read.

use super::binary::OwnWriter;
use super::format::Format;
use crate::Record;
use henge_core::Op;
use std::io::{self, Write};

/// The formats that can be written.
pub const WRITABLE: [Format; 6] =
    [Format::Henge, Format::Spc, Format::Disksim, Format::Ssdsim, Format::Alibaba, Format::Iolog];

/// Writes records in one of [`WRITABLE`].
pub struct TraceWriter<W: Write> {
    to: Target<W>,
    left_out: u64,
}

enum Target<W: Write> {
    Own(OwnWriter<W>),
    Text(Format, W, Vec<u32>),
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace; `None` for a format that cannot be written.
    pub fn new(format: Format, mut out: W) -> io::Result<Option<Self>> {
        let to = match format {
            Format::Henge => Target::Own(OwnWriter::new(out)?),
            Format::Iolog => {
                out.write_all(b"fio version 3 iolog\n")?;
                Target::Text(format, out, Vec::new())
            }
            _ if WRITABLE.contains(&format) => Target::Text(format, out, Vec::new()),
            _ => return Ok(None),
        };
        Ok(Some(TraceWriter { to, left_out: 0 }))
    }

    /// Adds a record. What the format has no word for (flush and trim, or parts of a block) is counted and left out.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        let written = match &mut self.to {
            Target::Own(own) => own.write(record).map(|()| true)?,
            Target::Text(Format::Iolog, out, files) => iolog(out, files, record)?,
            Target::Text(format, out, _) => line(*format, out, record)?,
        };
        self.left_out += u64::from(!written);
        Ok(())
    }

    /// How many were left out.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Ends the trace.
    pub fn finish(self) -> io::Result<W> {
        match self.to {
            Target::Own(own) => own.finish(),
            Target::Text(_, mut out, _) => {
                out.flush()?;
                Ok(out)
            }
        }
    }
}

/// One line of a column format; false when it cannot say this.
fn line(format: Format, out: &mut impl Write, r: &Record) -> io::Result<bool> {
    let (letter, bit) = match r.op {
        Op::Read => ('R', 1),
        Op::Write => ('W', 0),
        _ => return Ok(false),
    };
    let units = format.units();
    if !r.offset.is_multiple_of(units.offset) || !r.len.is_multiple_of(units.size) {
        return Ok(false);
    }
    let (at, device) = (r.at.as_nanos(), r.device);
    let (offset, size) = (r.offset / units.offset, r.len / units.size);
    match format {
        Format::Spc => {
            writeln!(
                out,
                "{device},{offset},{size},{letter},{}.{:09}",
                at / 1_000_000_000,
                at % 1_000_000_000
            )
        }
        Format::Disksim => {
            writeln!(out, "{}.{:06} {device} {offset} {size} {bit}", at / 1_000_000, at % 1_000_000)
        }
        Format::Ssdsim => writeln!(out, "{at} {device} {offset} {size} {bit}"),
        Format::Alibaba => writeln!(out, "{device},{letter},{offset},{size},{}", at / 1_000),
        _ => unreachable!("only these formats are written line by line"),
    }?;
    Ok(true)
}

/// fio's iolog version 3, microseconds; a device is a file.
fn iolog(out: &mut impl Write, files: &mut Vec<u32>, r: &Record) -> io::Result<bool> {
    let (us, device) = (r.at.as_nanos() / 1_000, r.device);
    if let Err(place) = files.binary_search(&device) {
        files.insert(place, device);
        writeln!(out, "{us} device{device} add\n{us} device{device} open")?;
    }
    let action = match r.op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Trim => "trim",
        Op::Flush => "sync",
        Op::WriteZeroes => return Ok(false),
    };
    writeln!(out, "{us} device{device} {action} {} {}", r.offset, r.len)?;
    Ok(true)
}
