//! One line of a verdict, judged over many seeds.
//!
//! A single seed shows that something can come out so, not that it does. A line shows the median of what the seeds gave
//! and its range, and holds where at least nine in ten of them do.

use crate::Judged;

/// A line holds where this many in ten seeds do.
const HOLD_OF_TEN: usize = 9;

/// A line of the verdict over all seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What is compared.
    pub what: String,
    /// What the paper says.
    pub paper: String,
    /// In which unit.
    pub unit: String,
    /// Why it differs.
    pub note: Option<String>,
    /// The experiment whose lines show that this is why.
    pub shown_by: Option<String>,
    /// What came out, seed by seed.
    pub here: Vec<f64>,
    /// At how many of the seeds it holds; `None` where it is reported alone.
    pub held: Option<usize>,
}

impl Verdict {
    /// The line of one seed.
    pub fn new(line: &Judged) -> Verdict {
        Verdict {
            what: line.what.clone(),
            paper: line.paper.clone(),
            unit: line.unit.clone(),
            note: line.note.clone(),
            shown_by: line.shown_by.clone(),
            here: vec![line.here],
            held: line.holds.map(usize::from),
        }
    }

    /// Each line over all seeds, whose lines are `seeds`, in the first one's order. What concerns only some of the seeds
    /// (a theorem that does not cover all their runs) is judged over those.
    pub fn over(seeds: &[Vec<Judged>]) -> Vec<Verdict> {
        // Each line with the seed that it has last.
        let mut lines: Vec<(Verdict, usize)> = Vec::new();
        for (number, seed) in seeds.iter().enumerate() {
            for (i, judged) in seed.iter().enumerate() {
                let one = Verdict::new(judged);
                // Two lines may say the same of different things: the same place first, and no line twice.
                let same = |(v, last): &(Verdict, usize)| v.what == one.what && *last < number;
                let at = match lines.get(i) {
                    Some(line) if same(line) => Some(i),
                    _ => lines.iter().position(same),
                };
                let Some((line, last)) = at.map(|at| &mut lines[at]) else {
                    lines.push((one, number));
                    continue;
                };
                *last = number;
                line.here.extend(one.here);
                line.held = line.held.zip(one.held).map(|(a, b)| a + b);
            }
        }
        lines.into_iter().map(|(line, _)| line).collect()
    }

    /// How many seeds there were.
    pub fn of(&self) -> usize {
        self.here.len()
    }

    /// The middle of what came out; where a seed gave no number, none.
    pub fn median(&self) -> f64 {
        let mut all = self.here.clone();
        if all.iter().any(|x| x.is_nan()) {
            return f64::NAN;
        }
        all.sort_by(f64::total_cmp);
        let middle = all.len() / 2;
        match all.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => all[middle],
            _ => f64::midpoint(all[middle - 1], all[middle]),
        }
    }

    /// The least and the most that came out.
    pub fn range(&self) -> (f64, f64) {
        let numbers = || self.here.iter().copied().filter(|x| !x.is_nan());
        (numbers().fold(f64::INFINITY, f64::min), numbers().fold(f64::NEG_INFINITY, f64::max))
    }

    /// Whether it holds; `None` where it is reported alone.
    pub fn holds(&self) -> Option<bool> {
        self.held.map(|held| 10 * held >= HOLD_OF_TEN * self.of())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(what: &str, here: f64, holds: Option<bool>) -> Judged {
        Judged {
            what: what.into(),
            paper: String::new(),
            here,
            unit: String::new(),
            holds,
            note: None,
            shown_by: None,
        }
    }

    #[test]
    fn nine_of_ten_hold_and_eight_do_not() {
        let seeds = |good: usize| -> Vec<Vec<Judged>> {
            (0..10).map(|i| vec![judged("a", i as f64, Some(i < good)), judged("b", 1.0, None)]).collect()
        };
        let lines = Verdict::over(&seeds(9));
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].holds(), lines[0].held, lines[0].of()), (Some(true), Some(9), 10));
        assert_eq!((lines[0].median(), lines[0].range()), (4.5, (0.0, 9.0)));
        assert_eq!(lines[1].holds(), None);
        assert_eq!(Verdict::over(&seeds(8))[0].holds(), Some(false));
        // Fewer seeds: one of five is more than a tenth.
        let five: Vec<Vec<Judged>> = (0..5).map(|i| vec![judged("a", 0.0, Some(i > 0))]).collect();
        assert_eq!(Verdict::over(&five)[0].holds(), Some(false));
    }

    #[test]
    fn a_line_of_some_seeds_alone_and_lines_that_are_called_the_same() {
        let seeds = [
            vec![judged("x", 1.0, Some(true)), judged("x", 5.0, Some(true))],
            vec![judged("x", 3.0, Some(true)), judged("x", 7.0, Some(true)), judged("t", 0.5, Some(true))],
        ];
        let lines = Verdict::over(&seeds);
        assert_eq!(lines.iter().map(Verdict::median).collect::<Vec<_>>(), [2.0, 6.0, 0.5]);
        assert_eq!(lines[2].of(), 1);
    }

    #[test]
    fn what_is_no_number_is_not_hidden() {
        let seeds = [vec![judged("x", 1.0, Some(true))], vec![judged("x", f64::NAN, Some(false))]];
        let line = &Verdict::over(&seeds)[0];
        assert!(line.median().is_nan());
        assert_eq!(line.range(), (1.0, 1.0));
        assert_eq!(line.holds(), Some(false));
    }
}
