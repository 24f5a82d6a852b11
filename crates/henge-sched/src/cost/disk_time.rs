//! The time during which the device was busy with a request: measured when it is over, estimated before.
//!
//! The gate attributes to each request the time since its dispatch or the completion before it, whichever is later,
//! so that the times of all requests add up to the time the device was busy. The estimate is what requests of the
//! same operation and about the same length took lately: a mean over about 16 of them, per power of two of the
//! length. Schedulers charge the estimate at dispatch and correct it on completion, so that an estimate that is
//! wrong for one flow (one seeks, another does not) is not paid by the others: charging estimates alone gave
//! 20/28/52 % of disk time for a promised 14/29/57 %.

use henge_core::{Cost, CostModel, CostUnit, Duration, Op, ParamError, Params, Request};

/// Classes of length: powers of two up to 2³¹ and beyond.
const CLASSES: usize = 32;
/// A new measurement counts 1/16.
const SMOOTHING_BITS: u32 = 4;

/// Disk time with a learning estimate.
#[derive(Clone, Debug)]
pub struct DiskTimeCost {
    first: Duration,
    /// Mean by kind of operation and class of length, in ns; zero where none was measured yet.
    means: [[u64; CLASSES]; 3],
}

impl DiskTimeCost {
    /// `first` is the estimate before anything was measured.
    pub fn new(first: Duration) -> Self {
        DiskTimeCost { first: first.max(Duration::from_nanos(1)), means: [[0; CLASSES]; 3] }
    }
    fn mean(&mut self, request: &Request) -> &mut u64 {
        let kind = match request.op {
            Op::Read => 0,
            Op::Write => 1,
            Op::Flush | Op::Trim | Op::WriteZeroes => 2,
        };
        let class = (64 - request.len.leading_zeros()) as usize;
        &mut self.means[kind][class.min(CLASSES - 1)]
    }
}

impl CostModel for DiskTimeCost {
    fn unit(&self) -> CostUnit {
        CostUnit::DiskTime
    }
    fn estimate(&mut self, request: &Request) -> Cost {
        let first = self.first.as_nanos();
        let mean = *self.mean(request);
        Cost::new(if mean == 0 { first } else { mean })
    }
    fn actual(&mut self, request: &Request, disk_time: Duration) -> Cost {
        let measured = disk_time.as_nanos().max(1);
        let mean = self.mean(request);
        *mean = match *mean {
            0 => measured,
            old => (old - (old >> SMOOTHING_BITS) + (measured >> SMOOTHING_BITS)).max(1),
        };
        Cost::new(measured)
    }
}

/// `"disk time" = { estimate = "1ms" }`
pub(super) fn build(params: &mut Params) -> Result<Box<dyn CostModel>, ParamError> {
    let first = params.duration("estimate")?.unwrap_or(Duration::from_millis(1));
    Ok(Box::new(DiskTimeCost::new(first)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::{FlowId, Instant, RequestId};

    #[test]
    fn the_estimate_follows_the_measurements_of_its_class() {
        let read = |len| Request::new(RequestId::default(), FlowId(0), Op::Read, 0, len, Instant::ZERO);
        let mut model = DiskTimeCost::new(Duration::from_millis(1));
        assert_eq!(model.estimate(&read(4096)), Cost::new(1_000_000));
        assert_eq!(model.actual(&read(4096), Duration::from_millis(8)), Cost::new(8_000_000));
        assert_eq!(model.estimate(&read(5000)), Cost::new(8_000_000));
        assert_eq!(model.estimate(&read(1 << 20)), Cost::new(1_000_000));
        for _ in 0..200 {
            model.actual(&read(4096), Duration::from_millis(2));
        }
        let estimate = model.estimate(&read(4096)).get();
        assert!(estimate.abs_diff(2_000_000) < 2_000, "{estimate}");
        assert_eq!(model.actual(&read(4096), Duration::ZERO), Cost::new(1));
    }
}
