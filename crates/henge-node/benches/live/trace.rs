//! Why a share is not what it should be: the node's record of its requests, looked at.
//!
//! Under a fair queue a flow has its share while it has something waiting. A client with few requests under way has nothing
//! waiting when it is slower than the device is with them; then the other's request goes first, however far ahead that is.

use std::path::Path;

/// A request, in nanoseconds.
struct Row {
    arrival: u64,
    dispatch: u64,
    completion: u64,
}

/// What the record says of two flows.
pub struct Trace {
    /// Requests of the flow with the long queue that were served …
    pub turns: usize,
    /// … and of these, while the other had nothing waiting.
    pub out_of_turn: usize,
    /// From an answer to the request that it led to, at the client of the short queue: median, 99 %, and the longest, in us.
    pub turnaround: [f64; 3],
}

/// Reads a record as the node writes it. `depth`: requests that the client of `short` has under way.
pub fn read(record: &Path, long: &str, short: &str, depth: usize) -> Option<Trace> {
    let text = std::fs::read_to_string(record).ok()?;
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let columns: Vec<&str> = lines.next()?.split(',').collect();
    let at = |name: &str| columns.iter().position(|column| *column == name);
    let (flow, arrival, dispatch, completion) =
        (at("flow")?, at("arrival")?, at("dispatch")?, at("completion")?);
    let rows = |of: &str| {
        let fields = lines.clone().map(|line| line.split(',').collect::<Vec<_>>());
        let theirs = fields.filter(|f| f.get(flow) == Some(&of));
        let row = |f: Vec<&str>| {
            let number = |i: usize| f.get(i)?.parse().ok();
            Some(Row {
                arrival: number(arrival)?,
                dispatch: number(dispatch)?,
                completion: number(completion)?,
            })
        };
        theirs.filter_map(row).collect::<Vec<Row>>()
    };
    let (long, short) = (rows(long), rows(short));
    // From when both are at work, and in what was written of both.
    let (begin, end) = (short.first()?.dispatch.max(long.first()?.dispatch), short.last()?.dispatch);
    let mut changes: Vec<(u64, i32)> =
        short.iter().flat_map(|r| [(r.arrival, 1), (r.dispatch, -1)]).collect();
    changes.sort_unstable();
    let (mut waiting, mut next) = (0, 0);
    let (mut turns, mut out_of_turn) = (0, 0);
    let mut dispatches: Vec<u64> = long.iter().map(|r| r.dispatch).collect();
    dispatches.sort_unstable();
    for dispatch in dispatches.into_iter().filter(|at| (begin..end).contains(at)) {
        while next < changes.len() && changes[next].0 < dispatch {
            waiting += changes[next].1;
            next += 1;
        }
        turns += 1;
        out_of_turn += usize::from(waiting <= 0);
    }
    let (mut arrivals, mut answers): (Vec<u64>, Vec<u64>) =
        short.iter().map(|r| (r.arrival, r.completion)).unzip();
    arrivals.sort_unstable();
    answers.sort_unstable();
    let led = answers.iter().zip(arrivals.iter().skip(depth));
    let mut took: Vec<f64> = led.map(|(a, b)| b.saturating_sub(*a) as f64 / 1e3).collect();
    took.sort_unstable_by(f64::total_cmp);
    let quantile = |q: usize| took.get(took.len() * q / 1000).copied();
    Some(Trace { turns, out_of_turn, turnaround: [quantile(500)?, quantile(990)?, *took.last()?] })
}
