//! Which terms of a contract a scheduler keeps, and how it refuses the others.

use crate::registry::keepers;
use henge_core::{Contract, CostUnit, Rate, Refused};

/// A term of a contract that needs a scheduler to keep it. (`pending` is kept by the gate.)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Term {
    /// A relative share.
    Weight,
    /// A reservation.
    Rate,
    /// A highest rate.
    Limit,
    /// So much at once.
    Burst,
    /// An answer in time.
    Latency,
    /// A share of the disk's time.
    Share,
    /// HYBRID's least share of one node.
    MinShare,
}

impl Term {
    /// All of them.
    pub const ALL: [Term; 7] =
        [Term::Weight, Term::Rate, Term::Limit, Term::Burst, Term::Latency, Term::Share, Term::MinShare];

    /// As configuration writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Term::Weight => "weight",
            Term::Rate => "rate",
            Term::Limit => "limit",
            Term::Burst => "burst",
            Term::Latency => "latency",
            Term::Share => "share",
            Term::MinShare => "min_share",
        }
    }
    fn stated(self, contract: &Contract) -> bool {
        match self {
            Term::Weight => contract.weight.is_some_and(|w| w != 1),
            Term::Rate => contract.rate.is_some(),
            Term::Limit => contract.limit.is_some(),
            Term::Burst => contract.burst.is_some(),
            Term::Latency => contract.latency.is_some(),
            Term::Share => contract.disk_time.is_some(),
            Term::MinShare => contract.min_share.is_some(),
        }
    }
    fn strike(self, contract: &mut Contract) {
        match self {
            Term::Weight => contract.weight = None,
            Term::Rate => contract.rate = None,
            Term::Limit => contract.limit = None,
            Term::Burst => contract.burst = None,
            Term::Latency => contract.latency = None,
            Term::Share => contract.disk_time = None,
            Term::MinShare => contract.min_share = None,
        }
    }
}

/// What a scheduler is given when it is built: which terms it claims to keep, and in which unit the gate charges.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The scheduler's name.
    pub name: &'static str,
    /// The terms that it keeps.
    pub keeps: &'static [Term],
    /// In which unit the gate charges.
    pub unit: CostUnit,
    /// Strike the terms that it does not keep instead of refusing the contract: for comparisons of schedulers
    /// under one set of contracts.
    pub ignore: bool,
}

impl Terms {
    /// The contract as this scheduler will keep it, or why it cannot.
    pub fn admit(&self, contract: &Contract) -> Result<Contract, Refused> {
        let mut kept = contract.clone();
        for term in Term::ALL.into_iter().filter(|t| t.stated(contract) && !self.keeps.contains(t)) {
            if !self.ignore {
                return Err(Refused::unsupported(self.name, term.as_str(), &keepers(term)));
            }
            term.strike(&mut kept);
        }
        self.unit("rate", kept.rate)?;
        self.unit("limit", kept.limit)?;
        Ok(kept)
    }

    /// The same for schedulers that count rates and limits in units of their own where the gate charges time.
    pub fn admit_in_units(&self, contract: &Contract) -> Result<Contract, Refused> {
        match self.unit {
            CostUnit::DiskTime => {
                let (rate, limit) = (contract.rate, contract.limit);
                let mine = |r: Option<Rate>| r.map(|r| Rate { unit: self.unit, ..r });
                let kept =
                    self.admit(&Contract { rate: mine(rate), limit: mine(limit), ..contract.clone() })?;
                Ok(Contract {
                    rate: rate.filter(|_| kept.rate.is_some()),
                    limit: limit.filter(|_| kept.limit.is_some()),
                    ..kept
                })
            }
            _ => self.admit(contract),
        }
    }

    fn unit(&self, term: &'static str, rate: Option<Rate>) -> Result<(), Refused> {
        match rate {
            Some(rate) if rate.unit != self.unit => Err(Refused::unit(term, rate.unit, self.unit)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::{Duration, Latency};

    const FIFO: Terms = Terms { name: "fifo", keeps: &[], unit: CostUnit::Bytes, ignore: false };

    #[test]
    fn every_term_that_needs_a_scheduler_is_a_term() {
        assert!(Term::ALL.iter().all(|term| henge_core::Term::of(term.as_str()).is_some()));
    }

    #[test]
    fn a_refusal_names_the_term_and_who_can() {
        let refused = FIFO.admit(&Contract::weighted(3)).unwrap_err();
        assert_eq!(refused.term, "weight");
        assert_eq!(refused.instead, format!("schedulers that do: {}", keepers(Term::Weight)));
    }

    #[test]
    fn a_rate_in_another_unit_is_refused() {
        let terms = Terms { keeps: &[Term::Rate], ..FIFO };
        let refused = terms.admit(&Contract::reserved(Rate::requests(5))).unwrap_err();
        assert!(refused.why.contains("counts requests, but this gate charges bytes"), "{refused}");
    }

    #[test]
    fn ignored_terms_are_struck() {
        let latency = Some(Latency { bound: Duration::from_millis(5), percentile: 950_000 });
        let contract = Contract { latency, pending: Some(7), ..Contract::weighted(3) };
        let kept = Terms { ignore: true, ..FIFO }.admit(&contract).unwrap();
        assert_eq!(kept, Contract { pending: Some(7), ..Contract::best_effort() });
    }
}
