//! Bytes, and bytes with an overhead per command.
//!
//! Overhead makes one cost of both: at `overhead = "4KiB"` a 4 KiB read costs 8 KiB, and a 1 MiB read 1028 KiB, so a
//! flow of small requests pays for the commands that it keeps the device busy with. A part of a split command pays
//! its part of the overhead.

use super::transferred;
use henge_core::{Cost, CostModel, CostUnit, ParamError, Params, Request};

/// Bytes, plus `overhead` bytes per client command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytes {
    overhead: u64,
}

impl Bytes {
    /// Bytes alone.
    pub fn new() -> Self {
        Self::default()
    }
    /// Bytes and `overhead` more per command.
    pub fn with_overhead(overhead: u64) -> Self {
        Bytes { overhead }
    }
}

impl CostModel for Bytes {
    fn unit(&self) -> CostUnit {
        CostUnit::Bytes
    }
    fn estimate(&mut self, request: &Request) -> Cost {
        // Overheads are kilobytes, so the product stays far below 2⁶⁴.
        let overhead = self.overhead * u64::from(request.commands) / u64::from(Request::WHOLE);
        Cost::new(transferred(request)) + Cost::new(overhead)
    }
}

pub(super) fn build(_: &mut Params) -> Result<Box<dyn CostModel>, ParamError> {
    Ok(Box::new(Bytes::new()))
}

/// `"bytes+overhead" = { overhead = "4KiB" }`
pub(super) fn build_with_overhead(params: &mut Params) -> Result<Box<dyn CostModel>, ParamError> {
    let overhead = params.size("overhead")?.unwrap_or(4096);
    if overhead > 1 << 30 {
        return Err(params.error("overhead", "an overhead per command is at most \"1GiB\"".to_owned()));
    }
    Ok(Box::new(Bytes::with_overhead(overhead)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::{FlowId, Instant, Op, RequestId};

    #[test]
    fn parts_pay_their_part_and_nothing_is_free() {
        let whole = Request::new(RequestId::default(), FlowId(0), Op::Read, 0, 4096, Instant::ZERO);
        let half = Request { commands: Request::WHOLE / 2, ..whole };
        let mut model = Bytes::with_overhead(1000);
        assert_eq!(model.estimate(&whole), Cost::new(5096));
        assert_eq!(model.estimate(&half), Cost::new(4596));
        let empty = Request { op: Op::Trim, len: 0, ..whole };
        assert_eq!(Bytes::new().estimate(&empty), Cost::new(1));
        let flush = Request { op: Op::Flush, len: 0, ..whole };
        assert_eq!(Bytes::new().estimate(&flush), Cost::new(65_536));
    }
}
