//! What may happen next, and how all becomes well again.

use super::*;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Settle(usize),
    Work(usize),
    Wait(u64),
    Link(usize, usize),
    Cut(usize, usize),
    Claim(usize),
    Leave(usize),
    Ask(usize, usize, u8, u8),
    Write(usize, usize),
    HandOut(usize),
    Send(usize, bool),
    Deliver(usize, usize),
    Apply(usize, usize),
    Wrong(Option<Wrong>),
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let g = 0..GATEWAYS;
    let wrong = prop_oneof![Just(None), Just(Some(Wrong::Lost)), Just(Some(Wrong::Unheard))];
    prop_oneof![
        12 => g.clone().prop_map(Step::Settle),
        6 => g.clone().prop_map(Step::Work),
        2 => prop_oneof![0u64..300, 2000u64..6000].prop_map(Step::Wait),
        2 => (g.clone(), g.clone()).prop_map(|(a, b)| Step::Link(a, b)),
        1 => (g.clone(), g.clone()).prop_map(|(a, b)| Step::Cut(a, b)),
        3 => g.clone().prop_map(Step::Claim),
        1 => g.clone().prop_map(Step::Leave),
        5 => (g.clone(), 0..3usize, 0u8..6, 0u8..3).prop_map(|(g, port, action, kind)| Step::Ask(g, port, action, kind)),
        8 => (g.clone(), 0..3usize).prop_map(|(g, port)| Step::Write(g, port)),
        6 => g.clone().prop_map(Step::HandOut),
        8 => (g.clone(), any::<bool>()).prop_map(|(g, parts)| Step::Send(g, parts)),
        14 => (g.clone(), g.clone()).prop_map(|(a, b)| Step::Deliver(a, b)),
        6 => (g, 0..4usize).prop_map(|(g, at)| Step::Apply(g, at)),
        1 => wrong.prop_map(Step::Wrong),
    ]
}

impl World {
    pub(super) fn step(&mut self, step: &Step) {
        match *step {
            Step::Settle(g) => self.settle(g),
            Step::Work(g) => self.work(g),
            Step::Wait(ms) => self.now += Duration::from_millis(ms),
            Step::Link(a, b) => self.link(a, b),
            Step::Cut(a, b) => self.cut(a, b),
            Step::Claim(g) => self.claim(g),
            Step::Leave(g) => self.leave(g),
            Step::Ask(g, port, action, kind) => {
                let (key, kind) = (port as u8 + 1, KINDS[usize::from(kind)]);
                // REGISTER AND IGNORE, RESERVE, RELEASE, PREEMPT of the next port's key, PREEMPT AND ABORT of it, unregistered
                let other = (key % 3) + 1;
                let (action, new) =
                    [(6, key), (1, 0), (2, 0), (4, other), (5, other), (6, 0)][usize::from(action)];
                self.ask(g, change(port, action, kind, key, new));
            }
            Step::Write(g, port) => self.write(g, port),
            Step::HandOut(g) => self.hand_out(g),
            Step::Send(g, parts) => self.send(g, parts),
            Step::Deliver(a, b) => self.deliver(a, b),
            Step::Apply(g, at) => self.apply(g, at),
            Step::Wrong(wrong) => self.storage.lock().unwrap().wrong.push_back(wrong),
        }
    }

    /// Faults are over.
    pub(super) fn heal(&mut self) {
        self.storage.lock().unwrap().wrong.clear();
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            self.link(a, b);
        }
        // Whoever was shut out finds that, and somebody has the disk.
        let lock = self.storage.lock().unwrap().lock;
        for g in 0..GATEWAYS {
            if self.gateways[g].here.is_some_and(|tenure| (g, tenure) != lock) {
                self.leave(g);
            }
        }
        for round in 0..400 {
            for g in 0..GATEWAYS {
                self.settle(g);
                self.work(g);
                self.settle(g);
                self.hand_out(g);
                self.send(g, true);
                while !self.gateways[g].at_owner.is_empty() {
                    self.apply(g, 0);
                }
                for other in 0..GATEWAYS {
                    while self.wires[g][other].as_ref().is_some_and(|wire| !wire.is_empty()) {
                        self.deliver(g, other);
                    }
                }
            }
            if round == 2 && self.gateways.iter().all(|gateway| gateway.here.is_none()) {
                self.claim(0);
            }
            self.now += Duration::from_millis(50);
        }
    }

    pub(super) fn is_well(&mut self) {
        assert!(self.open.is_empty(), "each change is answered: {:?}", self.open);
        let there = self.storage.lock().unwrap().history.last().cloned().unwrap_or_default();
        for g in 0..GATEWAYS {
            assert!(self.gateways[g].acts, "{} acts", name(g));
            assert_eq!(self.gateways[g].table(), there, "{} knows what holds", name(g));
            let waits =
                self.gateways[g].held.len() + self.gateways[g].queued.len() + self.gateways[g].at_owner.len();
            assert_eq!(waits, 0, "nothing waits at {}", name(g));
        }
    }
}
