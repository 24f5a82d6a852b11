//! What comes to each component of a disk, window by window: whether its part of the promise is enough there.
//!
//! A disk over n gates is promised f·B/n at each, f being its leeway. Where more than that comes to one of them in a
//! window, that gate owes less than is asked, however little comes to the others (Stonehenge, figure 4(c)). This is a
//! property of the load and its placing alone: no scheduler changes it.

use crate::timing::Timing;
use henge_core::{CostUnit, Duration, Instant, Request};
use std::collections::BTreeMap;

/// What came to a flow's components.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrivals {
    /// Components, each with its windows: this many in all, those without arrivals included.
    pub windows: u64,
    /// Of the components.
    pub components: u32,
    /// How many windows had this much come, in millionths of commands or in bytes; without those that had nothing.
    pub amounts: BTreeMap<u64, u64>,
    /// How long a window is.
    pub width: Duration,
}

impl Arrivals {
    /// The share of windows of components in which more came than `leeway` times an even part of `per_second`.
    pub fn overload(&self, per_second: u64, leeway: f64) -> f64 {
        if self.windows == 0 {
            return f64::NAN;
        }
        let part = leeway * per_second as f64 * self.width.as_secs_f64() / f64::from(self.components.max(1));
        let over: u64 = self.amounts.iter().filter(|(a, _)| **a as f64 > part).map(|(_, n)| n).sum();
        over as f64 / self.windows as f64
    }
}

/// A flow at a gate, in the window that is open.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    window: u64,
    amount: u64,
}

/// Counts while a run goes. Only flows with a promised rate are counted.
#[derive(Debug, Default)]
pub(crate) struct Components {
    width: Duration,
    first: u64,
    end: u64,
    flows: usize,
    /// By gate and flow.
    open: Vec<Open>,
    amounts: Vec<BTreeMap<u64, u64>>,
}

impl Components {
    /// Windows from the end of the warm-up on, whole ones only.
    pub(crate) fn new(timing: &Timing, flows: usize, gates: usize) -> Self {
        let step = timing.window.as_nanos().max(1);
        Components {
            width: timing.window,
            first: timing.warmup.as_nanos().div_ceil(step),
            end: (timing.warmup + timing.duration).as_nanos() / step,
            flows,
            open: vec![Open::default(); flows * gates],
            amounts: vec![BTreeMap::new(); flows],
        }
    }

    /// A request came to a gate; its flow was promised a rate in `unit`.
    pub(crate) fn came(&mut self, gate: u32, request: &Request, unit: CostUnit, now: Instant) {
        let window = now.as_nanos() / self.width.as_nanos().max(1);
        if window < self.first || window >= self.end {
            return;
        }
        let amount = match unit {
            CostUnit::Requests => u64::from(request.commands),
            CostUnit::Bytes => request.len,
            CostUnit::DiskTime => return,
        };
        let flow = request.flow.index();
        let open = &mut self.open[gate as usize * self.flows + flow];
        if open.window != window {
            let before = std::mem::replace(open, Open { window, amount: 0 });
            close(&mut self.amounts[flow], before);
        }
        open.amount += amount;
    }

    /// What came to flow `f` in all.
    pub(crate) fn take(&mut self, f: usize, gates: &[u32]) -> Arrivals {
        let mut amounts = std::mem::take(&mut self.amounts[f]);
        for gate in gates {
            close(&mut amounts, std::mem::take(&mut self.open[*gate as usize * self.flows + f]));
        }
        let windows = self.end.saturating_sub(self.first) * gates.len() as u64;
        Arrivals { windows, components: gates.len() as u32, amounts, width: self.width }
    }
}

fn close(amounts: &mut BTreeMap<u64, u64>, open: Open) {
    if open.amount > 0 {
        *amounts.entry(open.amount).or_insert(0) += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::{FlowId, Op, RequestId};

    #[test]
    fn a_component_is_overloaded_where_more_comes_than_its_part() {
        let second = Duration::from_secs(1);
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let timing = Timing { warmup: second, duration: second * 3, window: second };
        let mut components = Components::new(&timing, 1, 2);
        let request = Request::new(RequestId::default(), FlowId(0), Op::Read, 0, 4096, Instant::ZERO);
        // (gate, when): the warm-up does not count; gate 0 has 3 in its first second, 1 in its last; gate 1 one each.
        let came =
            [(0, 10), (0, 1100), (1, 1200), (0, 1300), (0, 1900), (1, 2000), (1, 3000), (0, 3999), (0, 4000)];
        for (gate, ms) in came {
            components.came(gate, &request, CostUnit::Requests, at(ms));
        }
        let arrivals = components.take(0, &[0, 1]);
        assert_eq!(arrivals.windows, 6);
        assert_eq!(arrivals.amounts, [(1_000_000, 4), (3_000_000, 1)].into());
        // 4/s over two gates: two each. Three are more, and less than twice as many.
        assert_eq!(arrivals.overload(4_000_000, 1.0), 1.0 / 6.0);
        assert_eq!(arrivals.overload(4_000_000, 1.5), 0.0);
        assert_eq!(arrivals.overload(2_000_000, 0.9), 5.0 / 6.0);
        assert!(Arrivals::default().overload(1, 1.0).is_nan());
    }
}
