//! The seek curve: measured points, straight lines between them.
//!
//! Distance 0 costs nothing. Before the first point (distance 1 as a rule) the first point's time holds; beyond
//! the last the last line is continued. The points are turned into a table by distance once, so a look-up is one
//! memory access.

use henge_core::Duration;

/// Time by distance in cylinders.
#[derive(Clone, Debug)]
pub struct SeekCurve {
    by_distance: Vec<u32>,
}

impl SeekCurve {
    /// Through `points` of (distance, time), distances rising and above zero, for drives of `cylinders`.
    pub fn new(points: &[(u32, Duration)], cylinders: u32) -> Self {
        assert!(!points.is_empty(), "a seek curve has points");
        let mut by_distance = vec![0; cylinders.max(1) as usize];
        let mut segment = 0;
        for (distance, time) in by_distance.iter_mut().enumerate().skip(1) {
            while segment + 2 < points.len() && points[segment + 1].0 < distance as u32 {
                segment += 1;
            }
            let (d0, t0) = points[segment];
            let (d1, t1) = points[(segment + 1).min(points.len() - 1)];
            let ns = if d1 == d0 || (distance as u32) < d0 {
                t0.as_nanos() as f64
            } else {
                let slope = (t1.as_nanos() as f64 - t0.as_nanos() as f64) / f64::from(d1 - d0);
                t0.as_nanos() as f64 + slope * (distance as f64 - f64::from(d0))
            };
            *time = ns.round().clamp(0.0, f64::from(u32::MAX)) as u32;
        }
        SeekCurve { by_distance }
    }
    /// For a move over `distance` cylinders.
    pub fn time(&self, distance: u32) -> Duration {
        let last = self.by_distance.len() - 1;
        Duration::from_nanos(u64::from(self.by_distance[(distance as usize).min(last)]))
    }
    /// The farthest move there is.
    pub fn longest(&self) -> u32 {
        self.by_distance.len() as u32 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn straight_lines_between_points() {
        let ms = Duration::from_millis;
        let curve = SeekCurve::new(&[(1, ms(1)), (3, ms(2)), (5, ms(3))], 9);
        let at = |d| curve.time(d).as_millis_f64();
        assert_eq!([at(0), at(1), at(2), at(3), at(4), at(5), at(7)], [0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0]);
        let single = SeekCurve::new(&[(1, ms(1))], 9);
        assert_eq!(single.time(8), ms(1));
    }
}
