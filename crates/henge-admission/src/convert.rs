//! A delay bound becomes bandwidth.
//!
//! # The problem
//! A disk asks for "every request within D". What a Virtual-Clock scheduler can reserve is a rate. Which rate keeps
//! the bound?
//!
//! # The rule
//! With at most `pending` requests of the disk queued before one, and one of another disk in service, Virtual Clock
//! answers within
//!
//! ```text
//!   D ≤ (pending + 1)/IOPS + 1/IOPSmax                                              (10)
//!   D ≤ (total_overhead·T + σ + Smax)/B + (Smax + avg_overhead·T)/T                 (9)
//!   D ≤ ((pending + 1)/IOPS + 1/IOPSmax)·(Q(E) + s)                                 (11)
//! ```
//!
//! solved here for IOPS or B. Q(E) is the E-quantile of actual over worst-case delay; s = 0.2 leaves room for a
//! newcomer.
//!
//! # Worked example
//! 120 ms, 7 pending, a device of 500 requests/s: IOPS″ = 8 / (0.120 − 0.002) = 67.8/s, so that 7 such disks fill
//! 95 % of it.
//!
//! # Where we depart
//! - 1/IOPSmax should be t(E), the E-quantile of one request's service time: a lone disk with D = 10 ms was admitted
//!   and 27.5 % late on four spindles, where 1/IOPSmax is 2 ms and a request takes 13–15 ms. [`Fixed::service`] is that time.
//! - Q in (11) depends on the reservation that (11) yields. With a = the measured E-quantile of delay in seconds, iterating
//!   it converges to IOPS″ = (pending + 1)/((D − a)/s − service): [`Fixed::settled`]. No oscillation, the same counts.
//!
//! Source: Stonehenge, equations (9), (10), (11).

use henge_core::Duration;
use std::fmt;

/// No bandwidth keeps the bound on this node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TooTight {
    /// The smallest bound that could be kept with the whole node.
    pub smallest: Duration,
}

impl fmt::Display for TooTight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no bandwidth of this node keeps the bound; the smallest that it could keep is {}",
            self.smallest
        )
    }
}
impl std::error::Error for TooTight {}

/// Every request costs the same.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fixed {
    /// Requests a second at saturation, with this scheduler, depth and mix.
    pub iops_max: f64,
    /// Seconds that one request of another disk may be in service: 1/IOPSmax in the paper, t(E) in ours.
    pub service: f64,
}

impl Fixed {
    /// The paper's: one request takes 1/IOPSmax.
    pub fn paper(iops_max: f64) -> Self {
        Fixed { iops_max, service: 1.0 / iops_max }
    }

    /// Worst-case delay in seconds at a reservation, equation (10).
    pub fn worst_case(&self, iops: f64, pending: u32) -> f64 {
        f64::from(pending + 1) / iops + self.service
    }

    /// Equation (10).
    pub fn worst(&self, delay: Duration, pending: u32) -> Result<f64, TooTight> {
        self.solve(delay.as_secs_f64() - self.service, pending, 1.0)
    }

    /// Equation (11): `quantile` is Q(E), `slack` is s.
    pub fn paper_measured(
        &self,
        delay: Duration,
        pending: u32,
        quantile: f64,
        slack: f64,
    ) -> Result<f64, TooTight> {
        let factor = quantile + slack;
        self.solve(delay.as_secs_f64() / factor - self.service, pending, factor)
    }

    /// The fixed point of (11): `delay_quantile` is the measured E-quantile of delay in seconds.
    pub fn settled(
        &self,
        delay: Duration,
        pending: u32,
        delay_quantile: f64,
        slack: f64,
    ) -> Result<f64, TooTight> {
        let room = (delay.as_secs_f64() - delay_quantile) / slack - self.service;
        self.solve(room, pending, slack)
            .map_err(|tight| TooTight { smallest: tight.smallest + Duration::from_secs_f64(delay_quantile) })
    }

    /// (pending + 1)/room, or the bound at which the whole node would do.
    fn solve(&self, room: f64, pending: u32, factor: f64) -> Result<f64, TooTight> {
        let iops = f64::from(pending + 1) / room;
        // A hair of tolerance, so that the smallest bound we name is one that we keep.
        if room > 0.0 && iops <= self.iops_max * (1.0 + 1e-9) {
            return Ok(iops);
        }
        Err(TooTight { smallest: Duration::from_secs_f64(self.worst_case(self.iops_max, pending) * factor) })
    }
}

/// Requests differ in size, and each has overhead that is charged as bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sized {
    /// T: bytes a second of the device.
    pub bytes_per_second: f64,
    /// Mean seek + rotation of a request in seconds, divided by the number of spindles.
    pub overhead: f64,
    /// Largest request in bytes.
    pub largest: f64,
    /// Mean request in bytes.
    pub mean: f64,
}

impl Sized {
    /// Equation (9), solved for B″ in bytes a second, overhead bytes included.
    pub fn worst(&self, delay: Duration, pending: u32) -> Result<f64, TooTight> {
        let t = self.bytes_per_second;
        let total =
            self.overhead * f64::from(pending + 1) * t + f64::from(pending) * self.mean + self.largest;
        let fixed = self.largest / t + self.overhead;
        let room = delay.as_secs_f64() - fixed;
        if room <= 0.0 {
            return Err(TooTight { smallest: Duration::from_secs_f64(total / t + fixed) });
        }
        Ok(total / room)
    }

    /// A throughput of payload bytes in the same currency: each request brings its overhead. Without it, 8 KB
    /// requests get about 1/39 of what was promised.
    pub fn with_overhead(&self, payload_bytes_per_second: f64) -> f64 {
        payload_bytes_per_second * (1.0 + self.overhead * self.bytes_per_second / self.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS_120: Duration = Duration::from_millis(120);

    /// The worked example: 8 / (0.120 − 0.002).
    #[test]
    fn equation_10() {
        let iops = Fixed::paper(500.0).worst(MS_120, 7).unwrap();
        assert!((iops - 67.7966).abs() < 1e-3, "{iops}");
    }

    #[test]
    fn equation_11_with_q_and_s_adding_to_one_is_equation_10() {
        let node = Fixed::paper(500.0);
        assert_eq!(node.paper_measured(MS_120, 7, 0.8, 0.2), node.worst(MS_120, 7));
    }

    /// Substituting the fixed point back: Q = a / worst case there.
    #[test]
    fn the_settled_rate_is_the_fixed_point_of_equation_11() {
        let node = Fixed::paper(500.0);
        let (delay_quantile, slack) = (0.040, 0.2);
        let iops = node.settled(MS_120, 7, delay_quantile, slack).unwrap();
        let q = delay_quantile / node.worst_case(iops, 7);
        let again = node.paper_measured(MS_120, 7, q, slack).unwrap();
        assert!((again - iops).abs() / iops < 1e-9, "{again} {iops}");
    }

    #[test]
    fn a_bound_below_one_request_is_refused_with_the_smallest_that_could_be() {
        let node = Fixed { iops_max: 500.0, service: 0.014 };
        let tight = node.worst(Duration::from_millis(10), 0).unwrap_err();
        assert_eq!(tight.smallest, Duration::from_millis(16)); // one of its own at 500/s, one in service
        assert!(node.worst(tight.smallest, 0).is_ok_and(|iops| (iops - 500.0).abs() < 1e-6));
    }

    #[test]
    fn equation_9_keeps_the_bound_exactly() {
        let node = Sized { bytes_per_second: 50e6, overhead: 0.008, largest: 65536.0, mean: 8192.0 };
        let b = node.worst(Duration::from_millis(200), 4).unwrap();
        let bytes = 0.008 * 5.0 * 50e6 + 4.0 * 8192.0 + 65536.0;
        let delay = bytes / b + (65536.0 + 0.008 * 50e6) / 50e6;
        assert!((delay - 0.2).abs() < 1e-12);
        // 0.010 s · 31.4 MB/s = 314 000 bytes of overhead beside 8192 of payload: one in 39 is payload.
        let small = Sized { bytes_per_second: 31.4e6, overhead: 0.010, largest: 8192.0, mean: 8192.0 };
        assert!((small.with_overhead(1.0) - 39.33).abs() < 0.01);
    }
}
