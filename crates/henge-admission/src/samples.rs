//! Measured distributions, as admission needs them: quantiles of what was seen.

/// Samples in ascending order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Samples {
    sorted: Vec<f64>,
}

impl Samples {
    /// From values in any order; those that are no numbers are left out.
    pub fn new(mut values: Vec<f64>) -> Self {
        values.retain(|v| v.is_finite());
        values.sort_unstable_by(f64::total_cmp);
        Samples { sorted: values }
    }
    /// How many.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }
    /// Whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
    /// The smallest value that at least the share `q` of all is not above; `None` while empty.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let rank = (q * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(rank.clamp(1, self.sorted.len().max(1)) - 1).copied()
    }
    /// All of them, ascending.
    pub fn values(&self) -> &[f64] {
        &self.sorted
    }
    /// The largest.
    pub fn max(&self) -> Option<f64> {
        self.sorted.last().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let s = Samples::new(vec![4.0, 1.0, f64::NAN, 3.0, 2.0]);
        assert_eq!(s.quantile(0.5), Some(2.0));
        assert_eq!(s.quantile(0.51), Some(3.0));
        assert_eq!(s.quantile(1.0), Some(4.0));
        assert_eq!(s.quantile(0.0), Some(1.0));
        assert_eq!(Samples::default().quantile(0.5), None);
    }
}
