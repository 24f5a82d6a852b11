//! Which terms of a contract a scheduler keeps, and how it refuses the others.

use henge_core::{Contract, CostUnit, Keeps, Need, Refused, Term, check_units};

/// What a scheduler is given when it is built: which terms it claims to keep, and in which unit the gate charges. (`pending` is kept by the gate.)
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The scheduler's name.
    pub name: &'static str,
    /// Keys of the terms that it keeps.
    pub keeps: &'static [&'static str],
    /// Terms that go with others.
    pub needs: &'static [Need],
    /// In which unit the gate charges.
    pub unit: CostUnit,
    /// Where the gate charges time, rates and limits are counted in units of their own beside it.
    pub own_units: bool,
    /// Strike the terms that it does not keep instead of refusing the contract: for comparisons of schedulers
    /// under one set of contracts.
    pub ignore: bool,
    /// The schedulers that keep a term, as a list for people.
    pub keepers: fn(&str) -> String,
}

impl Terms {
    /// The contract as this scheduler will keep it, or why it cannot.
    pub fn admit(&self, contract: &Contract) -> Result<Contract, Refused> {
        let mut kept = contract.clone();
        let stated = Term::kept().filter(|term| contract.states(term.key));
        for term in stated.filter(|term| !self.keeps.contains(&term.key)) {
            if !self.ignore {
                return Err(Refused::unsupported(self.name, term.key, &(self.keepers)(term.key)));
            }
            kept.strike(term.key);
        }
        self.needs.iter().try_for_each(|need| need.check(self.name, &kept))?;
        check_units(self.units(), &kept)?;
        Ok(kept)
    }

    /// The same, for whoever decides far from here.
    pub fn keeps(&self) -> Keeps {
        Keeps {
            scheduler: self.name.into(),
            terms: self.keeps.to_vec(),
            needs: self.needs.to_vec(),
            units: self.units().to_vec(),
            ..Keeps::default()
        }
    }

    fn units(&self) -> &'static [CostUnit] {
        const ALL: [CostUnit; 3] = [CostUnit::DiskTime, CostUnit::Requests, CostUnit::Bytes];
        match self.unit {
            CostUnit::DiskTime if self.own_units => &ALL,
            CostUnit::DiskTime => &ALL[..1],
            CostUnit::Requests => &ALL[1..2],
            CostUnit::Bytes => &ALL[2..],
        }
    }
}

#[cfg(test)]
impl Terms {
    /// Of a scheduler that keeps none.
    pub(crate) const FIFO: Terms = Terms {
        name: "fifo",
        keeps: &[],
        needs: &[],
        unit: CostUnit::Bytes,
        own_units: false,
        ignore: false,
        keepers: crate::schedulers_that_keep,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SCHEDULERS, schedulers_that_keep};
    use henge_core::{Duration, Latency, Rate};

    #[test]
    fn what_schedulers_keep_are_terms_that_need_them() {
        for (entry, key) in
            SCHEDULERS.iter().flat_map(|entry| entry.keeps.iter().map(move |key| (entry, key)))
        {
            assert!(Term::of(key).is_some_and(|term| term.kept), "{}: {key}", entry.name);
        }
        assert!(
            Term::kept().all(|term| schedulers_that_keep(term.key) != "none"),
            "a term that nobody keeps"
        );
    }

    #[test]
    fn a_refusal_names_the_term_and_who_can() {
        let refused = Terms::FIFO.admit(&Contract::weighted(3)).unwrap_err();
        assert_eq!(refused.term, "weight");
        assert_eq!(refused.instead, format!("schedulers that do: {}", schedulers_that_keep("weight")));
    }

    #[test]
    fn a_rate_in_another_unit_is_refused() {
        let terms = Terms { keeps: &["rate"], ..Terms::FIFO };
        let refused = terms.admit(&Contract::reserved(Rate::requests(5))).unwrap_err();
        assert!(refused.why.contains("counts requests, but this gate charges bytes"), "{refused}");
        let own = Terms { unit: CostUnit::DiskTime, own_units: true, ..terms };
        own.admit(&Contract::reserved(Rate::requests(5))).unwrap();
    }

    #[test]
    fn ignored_terms_are_struck() {
        let latency = Some(Latency { bound: Duration::from_millis(5), percentile: 950_000 });
        let contract = Contract { latency, pending: Some(7), ..Contract::weighted(3) };
        let kept = Terms { ignore: true, ..Terms::FIFO }.admit(&contract).unwrap();
        assert_eq!(kept, Contract { pending: Some(7), ..Contract::best_effort() });
    }
}
