//! Places for connections: nobody takes all of them.
//!
//! Half of the places are divided among those who can be told apart as they come: applications with ports or addresses of their own, and
//! whoever comes otherwise. Each finds its part, whatever others have open. The rest is for whoever comes first. OrangeFS clients
//! cannot cope with connections that end, so nobody who is in makes way.

use crate::config::{Config, Who};

pub(super) struct Places {
    most: usize,
    /// Each one's part.
    each: usize,
    /// Open connections, by application; of whoever comes otherwise last.
    open: Vec<usize>,
    all: usize,
    /// Places that are somebody's part and free.
    kept: usize,
}

impl Places {
    pub(super) fn new(config: &Config) -> Places {
        let otherwise = config.flows.len();
        let mut come = vec![false; otherwise + 1];
        config.listen.iter().for_each(|listen| come[listen.flow.unwrap_or(otherwise)] = true);
        if come[otherwise] {
            let of_addresses = config.rules.iter().filter(|rule| matches!(rule.who, Who::Client { .. }));
            of_addresses.for_each(|rule| come[rule.flow] = true);
        }
        let who = come.iter().filter(|comes| **comes).count();
        let each = config.connections / 2 / who.max(1);
        Places { most: config.connections, each, open: vec![0; otherwise + 1], all: 0, kept: each * who }
    }

    /// Whether one more of this application may come; `None`: whose it is, its port and address do not say.
    pub(super) fn may_enter(&self, flow: Option<usize>) -> bool {
        let own = self.open[self.of(flow)] < self.each;
        self.all < self.most && (own || self.all + self.kept < self.most)
    }

    pub(super) fn enter(&mut self, flow: Option<usize>) {
        let of = self.of(flow);
        self.kept -= usize::from(self.open[of] < self.each);
        self.open[of] += 1;
        self.all += 1;
    }

    pub(super) fn leave(&mut self, flow: Option<usize>) {
        let of = self.of(flow);
        self.open[of] -= 1;
        self.all -= 1;
        self.kept += usize::from(self.open[of] < self.each);
    }

    fn of(&self, flow: Option<usize>) -> usize {
        flow.unwrap_or(self.open.len() - 1)
    }
}
