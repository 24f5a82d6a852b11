//! The table of a contract's terms: what each is called, how it is written, who may give it.
//!
//! Configuration, control socket, manager, command, page and reference take a term's key, kind and words from here. What a term
//! *means* is [`Contract::from_params`](crate::Contract::from_params)'s.
//!
//! ```
//! use henge_core::{Term, Value};
//! assert_eq!(Term::value("weight", "4"), Ok(Value::Integer(4)));
//! assert_eq!(Term::value("kind", "7"), Ok(Value::Text("7".into()))); // a word stays a word
//! assert!(Term::value("weight", "much").unwrap_err().contains("whole number"));
//! ```

use crate::{ParamError, Params, Value, parse_duration, parse_rate, parse_share, parse_size};

/// How a term is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// `675/s`
    Rate,
    /// `20ms`
    Time,
    /// `7`, `1MB` or `5ms`
    Amount,
    /// `96GB`
    Size,
    /// `25%`
    Share,
    /// A name.
    Word,
    /// `95`, with or without a sign for percent.
    Number,
    /// `4`
    Count,
}

impl Written {
    /// Whether JSON and TOML have it as a number. Everything else is a text there, whatever it looks like.
    pub const fn is_number(self) -> bool {
        matches!(self, Written::Number | Written::Count)
    }

    /// The value of a text that somebody typed.
    pub fn value(self, text: &str) -> Result<Value, &'static str> {
        match self {
            Written::Count => text.parse().map(Value::Integer).map_err(|_| "a whole number"),
            Written::Number => match text.trim_end_matches('%').trim_end().parse::<f64>() {
                Ok(x) if x.is_finite() => Ok(Value::Float(x)),
                _ => Err("a number"),
            },
            _ => Ok(Value::Text(text.to_owned())),
        }
    }
}

/// Which of two values of a term promises more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum More {
    /// The larger one; any is more than none.
    Larger,
    /// The smaller one; any is more than none.
    Smaller,
    /// The larger one; none is no less than any, as with a limit.
    LargerOfTwo,
    /// The smaller one; none is no less than any.
    SmallerOfTwo,
    /// Any is more than none; two cannot be compared.
    ThanNone,
}

/// Who gives a term to a tenant's disk, and within what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Given {
    /// The tenant, within its quota.
    Quota,
    /// The tenant, as it likes: it goes with another term.
    Freely,
    /// The tenant, where its quota states the term of this key; otherwise the administrator alone.
    Within(&'static str),
}

/// A term of a contract, or of where a disk lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Term {
    /// As everything that is read and written calls it.
    pub key: &'static str,
    /// As forms call it.
    pub label: &'static str,
    /// An example.
    pub example: &'static str,
    /// What it says.
    pub help: &'static str,
    /// How it is written.
    pub written: Written,
    /// Which of two values promises more.
    pub more: More,
    /// Who gives it to a tenant's disk.
    pub given: Given,
    /// Each of several gates or nodes is given a part of it, not the whole.
    pub divided: bool,
    /// It needs a scheduler that keeps it. Others go with such a term, or are kept by the gate.
    pub kept: bool,
    /// It is one amount, which a contract has under its key ([`Contract::amount`](crate::Contract::amount)).
    pub plain: bool,
}

const fn term(
    (key, label, example, help): (&'static str, &'static str, &'static str, &'static str),
    written: Written,
    more: More,
    given: Given,
    divided: bool,
) -> Term {
    Term { key, label, example, help, written, more, given, divided, kept: false, plain: false }
}

/// A term that needs a scheduler that keeps it.
const fn kept(term: Term) -> Term {
    Term { kept: true, ..term }
}

macro_rules! amounts {
    ($($name:ident,)*) => {
        $(mod $name;)*
        const AMOUNTS: [Term; [$($name::TERM,)*].len()] = [$(Term { plain: true, ..$name::TERM },)*];
    };
}

// Terms that are one amount, of which a contract needs to know no more. One line each: `name` is the file `terms/name.rs`, which has a `TERM`.
amounts! {
    min_share,
}

/// The terms of a contract, in the order of forms.
pub const TERMS: [Term; OURS.len() + AMOUNTS.len()] = {
    let mut all = [OURS[0]; OURS.len() + AMOUNTS.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = if i < OURS.len() { OURS[i] } else { AMOUNTS[i - OURS.len()] };
        i += 1;
    }
    all
};

/// Those that contracts have fields for.
const OURS: [Term; 11] = {
    use Given::{Freely, Quota, Within};
    use More::{Larger, LargerOfTwo, Smaller, SmallerOfTwo, ThanNone};
    use Written::{Amount, Count, Number, Rate, Share, Time, Word};
    [
        kept(term(
            ("rate", "Reserved rate", "500/s", "what it gets whatever the others do"),
            Rate,
            Larger,
            Quota,
            true,
        )),
        kept(term(("limit", "Limit", "900/s", "the most it gets"), Rate, LargerOfTwo, Quota, true)),
        kept(term(
            ("weight", "Weight", "4", "its share of what nobody reserved"),
            Count,
            LargerOfTwo,
            Quota,
            false,
        )),
        kept(term(
            ("latency", "Latency bound", "20ms", "how long a request may take"),
            Time,
            Smaller,
            Quota,
            false,
        )),
        term(
            ("percentile", "Percentile", "95", "of the requests are within the latency"),
            Number,
            Larger,
            Freely,
            false,
        ),
        term(
            ("pending", "Most pending", "32", "most requests waiting and in flight"),
            Count,
            LargerOfTwo,
            Freely,
            true,
        ),
        kept(term(
            ("burst", "Burst", "64", "what may come at once on top of rate or limit"),
            Amount,
            ThanNone,
            Within("burst"),
            true,
        )),
        kept(term(
            ("share", "Share of disk time", "25%", "a share of the device's time"),
            Share,
            Larger,
            Within("share"),
            false,
        )),
        term(
            ("kind", "Kind of share", "rent", "rent, latency or throughput"),
            Word,
            ThanNone,
            Within("share"),
            false,
        ),
        term(
            ("throughput", "Throughput of the share", "900/s", "what a share of kind throughput promises"),
            Rate,
            Larger,
            Within("share"),
            false,
        ),
        term(
            ("tolerance", "Tolerance of the share", "10%", "how far below its throughput lending may go"),
            Share,
            SmallerOfTwo,
            Within("share"),
            false,
        ),
    ]
};

/// What else a manager is told of a disk: how large it is, and where it may lie.
pub const PLACING: [Term; 4] = {
    use Given::Freely;
    use More::ThanNone;
    use Written::{Count, Number, Size};
    [
        term(("capacity", "Capacity", "96GB", "how large"), Size, ThanNone, Given::Quota, true),
        term(
            ("parts", "Over how many nodes", "2", "over how many nodes it is striped"),
            Count,
            ThanNone,
            Freely,
            false,
        ),
        term(
            ("copies", "Copies", "2", "copies that the storage behind it keeps"),
            Count,
            ThanNone,
            Freely,
            false,
        ),
        term(
            ("leeway", "Leeway", "1.1", "room for uneven load over the parts"),
            Number,
            ThanNone,
            Freely,
            false,
        ),
    ]
};

impl Term {
    /// A contract's term by its key.
    pub fn of(key: &str) -> Option<&'static Term> {
        TERMS.iter().find(|term| term.key == key)
    }

    /// Those that need a scheduler that keeps them.
    pub fn kept() -> impl Iterator<Item = &'static Term> {
        TERMS.iter().filter(|term| term.kept)
    }

    /// Those that are one amount.
    pub fn plain() -> impl Iterator<Item = &'static Term> {
        TERMS.iter().filter(|term| term.plain)
    }

    /// The amount of a plain term in a contract's table: millionths of a share, nanoseconds, bytes, or how many.
    pub(crate) fn amount_in(&self, p: &mut Params) -> Result<Option<u64>, ParamError> {
        match self.written {
            Written::Share => Ok(p.share(self.key)?.map(u64::from)),
            Written::Time => Ok(p.duration(self.key)?.map(|time| time.as_nanos())),
            Written::Size => p.size(self.key),
            Written::Count => p.integer(self.key, 1, 1 << 53),
            _ => Err(p.error(self.key, format!("{} is more than an amount", self.key))),
        }
    }

    /// A contract's term, or what else a manager is told of a disk.
    pub fn of_disk(key: &str) -> Option<&'static Term> {
        Term::of(key).or_else(|| PLACING.iter().find(|term| term.key == key))
    }

    /// The value of a term as somebody typed it. One that is not known is a text: who reads the contract refuses it by its key.
    pub fn value(key: &str, text: &str) -> Result<Value, String> {
        let Some(term) = Term::of_disk(key) else { return Ok(Value::Text(text.to_owned())) };
        let wrong = |kind| format!("{key} is {kind}, not \"{text}\"; write it like {}", term.example);
        term.written.value(text).map_err(wrong)
    }

    /// Whether `theirs` promises more than `ours`; what cannot be read promises nothing.
    pub fn promises_more(&self, ours: Option<&str>, theirs: &str) -> bool {
        let alone = matches!(self.more, More::Larger | More::Smaller | More::ThanNone);
        let (Some(ours), theirs) = (ours, self.amount(theirs)) else {
            return alone && (self.more == More::ThanNone || self.amount(theirs).is_some());
        };
        let both = self.amount(ours).zip(theirs);
        match self.more {
            More::Larger | More::LargerOfTwo => both.is_some_and(|(ours, theirs)| theirs > ours),
            // A latency of zero is none that anybody keeps.
            More::Smaller => both.is_some_and(|(ours, theirs)| theirs < ours && theirs > 0.0),
            More::SmallerOfTwo => both.is_some_and(|(ours, theirs)| theirs < ours),
            More::ThanNone => false,
        }
    }

    /// As a number, to be compared with others of the term.
    fn amount(&self, text: &str) -> Option<f64> {
        match self.written {
            Written::Rate => parse_rate(text).ok().map(|rate| rate.per_second as f64),
            Written::Time => parse_duration(text).ok().map(|time| time.as_nanos() as f64),
            Written::Share => parse_share(text).ok().map(f64::from),
            Written::Number | Written::Count => text.parse().ok(),
            Written::Size => parse_size(text).ok().map(|bytes| bytes as f64),
            Written::Amount | Written::Word => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Contract;

    /// The reader asks for every term of the table, and for no other key.
    #[test]
    fn the_table_is_what_a_contract_reads() {
        for term in TERMS {
            let typed = Term::value(term.key, term.example).unwrap();
            let mut p = Params::new("the contract").with(term.key, typed);
            let read = Contract::from_params(&mut p);
            assert!(read.is_err() || p.finish().is_ok(), "{} is not read", term.key);
        }
        let mut p = Params::new("the contract").with("~", Value::Bool(true));
        Contract::from_params(&mut p).unwrap();
        let help = p.finish().unwrap_err().help.unwrap();
        let mut known: Vec<&str> = help.trim_start_matches("known here: ").split(", ").collect();
        known.sort_unstable();
        let mut keys = TERMS.map(|term| term.key);
        keys.sort_unstable();
        assert_eq!(known, keys);
    }

    /// A contract has no field for it, and no more is asked of it than what the table says.
    #[test]
    fn a_plain_term_is_an_amount_that_is_stated_struck_and_compared() {
        for term in Term::plain() {
            let typed = Term::value(term.key, term.example).unwrap();
            let read = Contract::from_params(&mut Params::new("the contract").with(term.key, typed)).unwrap();
            let amount = read.amount(term.key).unwrap();
            assert!(amount > 1 && read.states(term.key), "{}: an example that says something", term.key);
            assert_eq!(read, Contract::default().with(term.key, amount));
            let alone = matches!(term.more, More::Larger | More::Smaller | More::ThanNone);
            assert_eq!(term.promises_more(None, term.example), alone, "{}: as the table says", term.key);
            let mut struck = read.clone();
            struck.strike(term.key);
            assert_eq!((struck, read.part(1_000_000, 1)), (Contract::default(), read));
        }
    }

    /// A part of a contract differs from the whole in just the terms that the table says.
    #[test]
    fn the_table_says_what_is_divided() {
        let text = |key: &str| match key {
            "kind" => "throughput".to_owned(),
            _ => Term::of(key).unwrap().example.to_owned(),
        };
        let read = |without: &str| {
            let keys = TERMS.iter().filter(|term| term.key != without);
            let fill =
                |p: Params, term: &Term| p.with(term.key, Term::value(term.key, &text(term.key)).unwrap());
            Contract::from_params(&mut keys.fold(Params::new("the contract"), fill)).unwrap()
        };
        let whole = read("");
        let part = whole.part(1_000_000, 2);
        let differs = |key: &str| match key {
            "rate" => part.rate != whole.rate,
            "limit" => part.limit != whole.limit,
            "weight" => part.weight != whole.weight,
            "latency" | "percentile" => part.latency != whole.latency,
            "pending" => part.pending != whole.pending,
            "burst" => part.burst != whole.burst,
            "share" | "kind" | "throughput" | "tolerance" => part.disk_time != whole.disk_time,
            key if Term::of(key).is_some_and(|term| term.plain) => part.amount(key) != whole.amount(key),
            key => panic!("{key} is new: say here what of the contract it is"),
        };
        for term in TERMS {
            assert_eq!(differs(term.key), term.divided, "{}", term.key);
        }
    }

    #[test]
    fn of_two_values_one_promises_more() {
        let more =
            |key: &str, ours: Option<&str>, theirs: &str| Term::of(key).unwrap().promises_more(ours, theirs);
        assert!(
            more("rate", None, "5/s")
                && more("rate", Some("4/s"), "5/s")
                && !more("rate", Some("5/s"), "5/s")
        );
        assert!(more("latency", Some("20ms"), "19ms") && !more("latency", Some("20ms"), "0s"));
        assert!(more("latency", None, "1s") && !more("latency", None, "soon"));
        assert!(
            more("limit", Some("4/s"), "5/s") && !more("limit", None, "5/s"),
            "no limit is more than any"
        );
        assert!(more("share", Some("25%"), "0.3") && !more("kind", Some("rent"), "latency"));
        let size = |ours, theirs| {
            Term { written: Written::Size, ..*Term::of("rate").unwrap() }.promises_more(ours, theirs)
        };
        assert!(size(Some("900KiB"), "1MiB") && size(None, "1MiB") && !size(Some("1MiB"), "900KiB"));
        assert!(more("burst", None, "64") && !more("tolerance", None, "5%"), "a tolerance promises less");
    }
}
