//! Terms of a disk in JSON and as the configuration writes them, by henge-core's table.

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
    /// A tenant does not set it.
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
        given: term.given == Given::Administrator,
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

/// The table of a `[[disk]]` as the configuration writes it, from keys and terms as somebody typed them. A pool called `7`, `true` or
/// `1e5` keeps its name: what a value is, its key says, and not how it looks.
pub fn disk_table<'a>(
    name: &str,
    keys: impl IntoIterator<Item = (&'a str, &'a str)>,
    contract: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut table = format!("name = {}\n", quoted(name));
    for (key, text) in keys {
        table.push_str(&format!("{} = {}\n", written(key), disk_value(key, text)));
    }
    for (key, text) in contract {
        let number = Term::of(key).filter(|term| term.written.is_number());
        let value = match number.map(|term| term.written.value(text)) {
            Some(Ok(Value::Integer(n))) => n.to_string(),
            Some(Ok(Value::Float(x))) => format!("{x:?}"),
            _ => quoted(text),
        };
        table.push_str(&format!("contract.{} = {value}\n", written(key)));
    }
    table
}

/// The value of a disk's own key.
pub fn disk_value(key: &str, text: &str) -> String {
    let bare = match key {
        "leeway" => text.parse::<f64>().is_ok_and(f64::is_finite),
        "read_only" | "adopt" | "fence" => matches!(text, "true" | "false"),
        "pools" | "gateways" => text.starts_with('['),
        "commands" | "contract" | "iscsi" | "nvme" | "nbd" => text.starts_with('{'),
        _ => false,
    };
    if bare { text.to_owned() } else { quoted(text) }
}

fn written(key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain { key.to_owned() } else { quoted(key) }
}

/// A text in quotes: JSON's escapes are TOML's.
pub fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("texts are JSON").replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_names_and_terms_have_their_kinds() {
        let keys = [
            ("pool", "7"),
            ("capacity", "1GB"),
            ("adopt", "true"),
            ("leeway", "1.5"),
            ("nbd", "{ users = [] }"),
        ];
        let contract =
            [("weight", "4"), ("percentile", "95%"), ("burst", "7"), ("kind", "true"), ("x\" = 1\ny", "z")];
        assert_eq!(
            disk_table("1e5", keys, contract),
            "name = \"1e5\"\npool = \"7\"\ncapacity = \"1GB\"\nadopt = true\nleeway = 1.5\nnbd = { users = [] }\n\
             contract.weight = 4\ncontract.percentile = 95.0\ncontract.burst = \"7\"\ncontract.kind = \"true\"\n\
             contract.\"x\\\" = 1\\ny\" = \"z\"\n"
        );
    }

    #[test]
    fn json_has_numbers_where_the_table_says_so() {
        assert_eq!(typed("weight", "4"), Ok(4.into()));
        assert_eq!(typed("percentile", "95%"), Ok(95.0.into()));
        assert_eq!(typed("burst", "64"), Ok("64".into()));
        assert!(typed("pending", "x").unwrap_err().contains("whole number"));
        assert!(typed("latncy", "x").unwrap_err().contains("latency"));
    }
}
