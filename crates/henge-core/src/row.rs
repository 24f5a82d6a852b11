//! One request as a line of CSV: what a simulated and a live run both write, so that they can be compared and
//! the one replayed in the other.
//!
//! Rows stand in order of completion. `seq` is what the gate had seen when the request was submitted: submissions, or
//! submissions and completions (which settles closed loops without network between them). Together they repeat a run
//! exactly, if whoever wrote them took one reading of the clock per turn, submitted all that had come, and then polled
//! until nothing was left: that is what both drivers do.

use crate::{Duration, Instant, Op, Served};
use std::fmt::{self, Write};

/// One request at one gate. Times are nanoseconds since the run's epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestRow<'a> {
    /// Whose it was, by name.
    pub flow: &'a str,
    /// What it did.
    pub op: Op,
    /// First byte on the gate's device.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// When the client's command was complete on the wire, or meant to be sent.
    pub arrival: Instant,
    /// When it left the gate.
    pub dispatch: Instant,
    /// When it was over.
    pub completion: Instant,
    /// At which gate, counted from zero.
    pub gate: u32,
    /// How many submissions (and completions) that gate had seen before.
    pub seq: u64,
    /// Of how many parts its command had; each is charged that part of it.
    pub parts: u32,
    /// Service at other nodes that came with it, in the gate's cost unit.
    pub foreign: u64,
}

/// A line that is no such row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowError {
    /// Which column.
    pub field: &'static str,
    /// What stands there.
    pub found: String,
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: \"{}\" cannot be read", self.field, self.found)
    }
}
impl std::error::Error for RowError {}

impl<'a> RequestRow<'a> {
    /// The first line of the file.
    pub const HEADER: &'static str = "flow,op,offset,len,arrival,dispatch,completion,gate,seq,parts,foreign";

    /// What a gate served: there its number, what it had seen before, and of how many parts the command had.
    pub fn new(flow: &'a str, served: &Served, gate: u32, seq: u64, parts: u32) -> Self {
        let Served { request, dispatched, completed, .. } = served;
        RequestRow {
            flow,
            op: request.op,
            offset: request.offset,
            len: request.len,
            arrival: request.arrival,
            dispatch: *dispatched,
            completion: *completed,
            gate,
            seq,
            parts,
            foreign: request.foreign.get(),
        }
    }

    /// Arrival to completion.
    pub const fn latency(&self) -> Duration {
        self.completion.since(self.arrival)
    }

    /// Appends the row and a line feed. Commas and line ends in a flow's name become underscores.
    pub fn write(&self, out: &mut String) {
        out.extend(self.flow.chars().map(|c| if matches!(c, ',' | '\n' | '\r') { '_' } else { c }));
        let RequestRow { op, offset, len, arrival, dispatch, completion, gate, seq, parts, foreign, .. } =
            self;
        let times = [arrival, dispatch, completion].map(|t| t.as_nanos());
        let [arrival, dispatch, completion] = times;
        let op = op.as_str();
        writeln!(
            out,
            ",{op},{offset},{len},{arrival},{dispatch},{completion},{gate},{seq},{parts},{foreign}"
        )
        .expect("writing to a string succeeds");
    }

    /// Reads one line. The last four columns may be absent: one gate, unknown order, whole
    /// commands, nothing elsewhere.
    pub fn parse(line: &'a str) -> Result<Self, RowError> {
        let mut fields = line.trim_end().split(',');
        let flow = fields.next().unwrap_or_default();
        let op = fields.next().unwrap_or_default();
        let op = [Op::Read, Op::Write, Op::Flush, Op::Trim, Op::WriteZeroes]
            .into_iter()
            .find(|o| o.as_str() == op)
            .ok_or_else(|| RowError { field: "op", found: op.to_owned() })?;
        let mut number = |field: &'static str, absent: Option<u64>| match (fields.next(), absent) {
            (None, Some(value)) => Ok(value),
            (text, _) => {
                let text = text.unwrap_or_default();
                text.parse::<u64>().map_err(|_| RowError { field, found: text.to_owned() })
            }
        };
        let (offset, len) = (number("offset", None)?, number("len", None)?);
        let arrival = Instant::from_nanos(number("arrival", None)?);
        let dispatch = Instant::from_nanos(number("dispatch", None)?);
        let completion = Instant::from_nanos(number("completion", None)?);
        let (gate, seq, parts) =
            (number("gate", Some(0))?, number("seq", Some(0))?, number("parts", Some(1))?);
        let foreign = number("foreign", Some(0))?;
        let small = |field: &'static str, value: u64| {
            u32::try_from(value).map_err(|_| RowError { field, found: value.to_string() })
        };
        let (gate, parts) = (small("gate", gate)?, small("parts", parts.max(1))?);
        if completion < dispatch {
            return Err(RowError {
                field: "completion",
                found: format!("{completion:?}, before its dispatch"),
            });
        }
        Ok(RequestRow { flow, op, offset, len, arrival, dispatch, completion, gate, seq, parts, foreign })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            numbers in proptest::array::uniform4(any::<u64>()), wait in 0u64..1 << 40, service in 0u64..1 << 40,
            gate: u32, parts in 1u32..9,
        ) {
            let arrival = Instant::from_nanos(numbers[2] >> 2);
            let dispatch = arrival + Duration::from_nanos(wait);
            let row = RequestRow {
                flow: "VD 1", op: Op::WriteZeroes, offset: numbers[0], len: numbers[1], arrival, dispatch,
                completion: dispatch + Duration::from_nanos(service), gate, seq: numbers[3], parts, foreign: numbers[1] >> 1,
            };
            let mut line = String::new();
            row.write(&mut line);
            prop_assert_eq!(RequestRow::parse(&line), Ok(row));
        }

        #[test]
        fn any_line_is_read_or_refused(line in "[a-z0-9,.\\-]{0,60}") {
            let _ = RequestRow::parse(&line);
        }
    }

    #[test]
    fn seven_columns_do() {
        let row = RequestRow::parse("web,read,4096,512,10,20,35").unwrap();
        assert_eq!((row.gate, row.seq, row.parts, row.latency()), (0, 0, 1, Duration::from_nanos(25)));
        assert_eq!(
            RequestRow::parse("web,reed,1,1,1,1,1").unwrap_err().to_string(),
            "op: \"reed\" cannot be read"
        );
        assert_eq!(RequestRow::parse("web,read,1,1,9,8,7").unwrap_err().field, "completion");
        assert_eq!(RequestRow::parse("web,read,1,-1,1,1,1").unwrap_err().field, "len");
    }
}
