//! Terms of a disk in JSON and as forms ask for them, by henge-core's table.

use henge_core::{Given, PLACING, TERMS, Term, Value, Written};
use serde::{Deserialize, Serialize};

/// A term as forms ask for it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Field {
    /// Its key.
    pub key: String,
    /// What to call it.
    pub label: String,
    /// An example.
    pub example: String,
    /// What it says.
    pub help: String,
    /// It is said when a disk is made, and stays.
    pub fresh: bool,
    /// A tenant sets it only where its quota states it.
    pub given: bool,
}

/// The terms of a node's disks, or of a manager's. Managers count requests; nodes count bytes and disk time as well.
pub fn fields(of_manager: bool) -> Vec<Field> {
    let more = |term: &Term| match term.written {
        Written::Rate if !of_manager => " or 20MB/s",
        Written::Amount if !of_manager => " or 4MiB",
        _ => "",
    };
    let field = |term: &Term, fresh| Field {
        key: term.key.into(),
        label: term.label.into(),
        example: term.example.to_owned() + more(term),
        help: term.help.into(),
        fresh,
        given: matches!(term.given, Given::Within(_)),
    };
    let placing = PLACING.iter().filter(|term| of_manager && term.key != "capacity");
    TERMS.iter().map(|term| field(term, false)).chain(placing.map(|term| field(term, true))).collect()
}

/// A term of a manager's disk in JSON, as somebody typed it.
pub fn typed(key: &str, text: &str) -> Result<serde_json::Value, String> {
    if Term::of_disk(key).is_none() {
        let known: Vec<&str> = PLACING.iter().chain(&TERMS).map(|term| term.key).collect();
        return Err(format!("a disk has no \"{key}\"; it has: {}", known.join(", ")));
    }
    Ok(match Term::value(key, text)? {
        Value::Integer(n) => n.into(),
        Value::Float(x) => x.into(),
        _ => text.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_numbers_where_the_table_says_so() {
        assert_eq!(typed("weight", "4"), Ok(4.into()));
        assert_eq!(typed("percentile", "95%"), Ok(95.0.into()));
        assert_eq!(typed("burst", "64"), Ok("64".into()));
        assert!(typed("pending", "x").unwrap_err().contains("whole number"));
        assert!(typed("latncy", "x").unwrap_err().contains("latency"));
    }
}
