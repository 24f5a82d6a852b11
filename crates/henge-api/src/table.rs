//! A table of the configuration as JSON: what a disk is, or what one says of front ends.
//!
//! Whoever takes a table from people (a file, a command line, a form) reads it there. From then on its values have kinds, so that
//! nothing is read twice and a pool called `7` keeps its name.
//!
//! ```
//! use henge_api::Table;
//! let mut disk = Table::of_disk("web").with("pool", "7");
//! disk.set_term("weight", "4").unwrap();
//! assert_eq!(serde_json::to_string(&disk).unwrap(), r#"{"contract":{"weight":4},"name":"web","pool":"7"}"#);
//! assert_eq!(disk.to_string(), r#"contract = { weight = 4 } name = "web" pool = "7""#);
//! ```

use henge_core::{ParamError, Params, Term, Value};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value as Json};
use std::fmt;

/// Keys and values. Values are texts, numbers, `true` and `false`, lists, and tables.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Table(Map<String, Json>);

impl<'de> Deserialize<'de> for Table {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Table, D::Error> {
        match Json::deserialize(deserializer)? {
            Json::Object(all) => Ok(Table(all)),
            Json::String(_) => Err(D::Error::custom(
                "a table is an object, like {\"name\":\"web\",\"capacity\":\"1GB\"}. Releases before this one wrote it as a text: \
                 run one release at both ends",
            )),
            _ => Err(D::Error::custom("a table is an object, like {\"name\":\"web\",\"capacity\":\"1GB\"}")),
        }
    }
}

impl Table {
    /// That of a disk, of which only its name is known.
    pub fn of_disk(name: &str) -> Table {
        Table::default().with("name", name)
    }

    /// The same with a key.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Json>) -> Table {
        self.set(key, value);
        self
    }

    /// Adds or replaces a key.
    pub fn set(&mut self, key: &str, value: impl Into<Json>) {
        self.0.insert(key.to_owned(), value.into());
    }

    /// Adds or replaces a term of a disk's contract, as somebody typed it.
    pub fn set_term(&mut self, key: &str, typed: &str) -> Result<(), String> {
        let value = json(&Term::value(key, typed)?);
        match self.0.entry("contract").or_insert_with(|| Map::new().into()) {
            Json::Object(contract) => contract.insert(key.to_owned(), value),
            _ => return Err(format!("contract is a table already, so {key} stands in it")),
        };
        Ok(())
    }

    /// Takes a key away.
    pub fn remove(&mut self, key: &str) -> Option<Json> {
        self.0.remove(key)
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.0.get(key)
    }

    /// All keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Json)> {
        self.0.iter()
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What it calls itself.
    pub fn name(&self) -> Option<&str> {
        self.get("name")?.as_str()
    }

    /// To be read key by key; `what` is how messages call it.
    pub fn params(&self, what: &str) -> Result<Params, ParamError> {
        params(what, &self.0)
    }
}

impl Extend<(String, Json)> for Table {
    fn extend<T: IntoIterator<Item = (String, Json)>>(&mut self, more: T) {
        self.0.extend(more);
    }
}

impl IntoIterator for Table {
    type Item = (String, Json);
    type IntoIter = serde_json::map::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Of a table that was read from a file.
impl From<&Params> for Table {
    fn from(params: &Params) -> Table {
        let mut rest = params.clone();
        let taken =
            params.keys().into_iter().filter_map(|key| rest.take(&key).map(|value| (key, json(&value))));
        Table(taken.collect())
    }
}

/// A key behind the other, as the configuration writes them. Secrets are shown: who logs it hides them.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (key, value)) in self.0.iter().enumerate() {
            write!(f, "{}{} = {}", if i == 0 { "" } else { " " }, written(key), toml(value))?;
        }
        Ok(())
    }
}

/// A value as the configuration writes it, on one line.
pub fn toml(value: &Json) -> String {
    match value {
        Json::String(text) => quoted(text),
        Json::Array(items) => format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Json::Object(table) if table.is_empty() => "{}".into(),
        Json::Object(table) => {
            let pair = |(key, value): (&String, &Json)| format!("{} = {}", written(key), toml(value));
            format!("{{ {} }}", table.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}

fn written(key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if plain { key.to_owned() } else { quoted(key) }
}

/// A text in quotes: JSON's escapes are TOML's.
fn quoted(text: &str) -> String {
    Json::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A value that was read from a file, as JSON.
pub fn json(value: &Value) -> Json {
    match value {
        Value::Bool(b) => (*b).into(),
        Value::Integer(n) => (*n).into(),
        Value::Float(x) => (*x).into(),
        Value::Text(text) => text.as_str().into(),
        Value::Table(table) => Json::Object(Table::from(table).0),
        Value::List(items) => items.iter().map(|(item, _)| json(item)).collect(),
    }
}

fn params(what: &str, table: &Map<String, Json>) -> Result<Params, ParamError> {
    table.iter().try_fold(Params::new(what), |params, (key, json)| Ok(params.with(key, value(key, json)?)))
}

fn value(key: &str, json: &Json) -> Result<Value, ParamError> {
    let unreadable = |what| ParamError { message: format!("{key} is {what}"), help: None, span: 0..0 };
    Ok(match json {
        Json::Null => return Err(unreadable("null; leave it out")),
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(n), _) => Value::Integer(n),
            (None, Some(x)) if !n.is_u64() => Value::Float(x),
            _ => return Err(unreadable("too large a number")),
        },
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(items) => {
            Value::List(items.iter().map(|item| Ok((value(key, item)?, 0..0))).collect::<Result<_, _>>()?)
        }
        Json::Object(table) => Value::Table(params(key, table)?),
    })
}

/// How a scheduler is written: its name, or a table with the name as its one key and its knobs within.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Choice(pub Json);

impl Choice {
    /// As the value of a key.
    pub fn value(&self, key: &str) -> Result<Value, ParamError> {
        match &self.0 {
            Json::String(text) if text.trim_start().starts_with(['{', '"', '\'']) => Err(ParamError {
                message: format!(
                    "{key} is a name like \"edf\", or an object like {{\"edf\":{{\"depth\":8}}}}. Releases before this one wrote the \
                     latter as a text: run one release at both ends"
                ),
                help: None,
                span: 0..0,
            }),
            other => value(key, other),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Json::String(name) => f.write_str(name),
            table => f.write_str(&toml(table)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_table_is_refused_with_what_would_be_right() {
        let read = |text: &str| serde_json::from_str::<Table>(text).map_err(|e| e.to_string());
        let old = read(r#""name = \"web\"\n""#).unwrap_err();
        assert!(old.contains("{\"name\":\"web\"") && old.contains("one release at both ends"), "{old}");
        assert!(read("7").unwrap_err().contains("is an object"));
        assert!(read("{}").unwrap().is_empty());
    }

    #[test]
    fn values_keep_their_kinds_and_what_has_none_is_named() {
        let table: Table =
            serde_json::from_str(r#"{"a":7,"b":"7","c":7.0,"d":true,"e":["x",1],"f":{"g":"h"}}"#).unwrap();
        let mut p = table.params("it").unwrap();
        assert_eq!(p.take("a"), Some(Value::Integer(7)));
        assert_eq!(p.take("b"), Some(Value::Text("7".into())));
        assert_eq!(p.take("c"), Some(Value::Float(7.0)));
        assert_eq!(p.take("d"), Some(Value::Bool(true)));
        assert_eq!(
            p.take("e"),
            Some(Value::List(vec![(Value::Text("x".into()), 0..0), (Value::Integer(1), 0..0)]))
        );
        assert_eq!(p.table("f").unwrap().unwrap().text("g"), Ok(Some("h".into())));
        for (text, says) in [
            (r#"{"capacity":null}"#, "capacity is null"),
            (r#"{"x":18446744073709551615}"#, "x is too large"),
            (r#"{"t":{"y":null}}"#, "y is null"),
        ] {
            let table: Table = serde_json::from_str(text).unwrap();
            let why = table.params("it").unwrap_err().message;
            assert!(why.contains(says), "{text}: {why}");
        }
    }

    #[test]
    fn a_scheduler_is_a_name_or_an_object() {
        let read = |text: &str| serde_json::from_str::<Choice>(text).unwrap().value("scheduler");
        assert_eq!(read(r#""edf""#), Ok(Value::Text("edf".into())));
        assert!(matches!(read(r#"{"edf":{"depth":8}}"#), Ok(Value::Table(_))));
        let old = read(r#""{ edf = { depth = 8 } }""#).unwrap_err().message;
        assert!(old.contains(r#"{"edf":{"depth":8}}"#), "{old}");
        assert_eq!(
            Choice(serde_json::json!({"cvc": {"per": "spindle"}})).to_string(),
            "{ cvc = { per = \"spindle\" } }"
        );
    }

    fn values() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            // As people write them: of others a reader of JSON may take the last digit for its neighbour.
            any::<i32>().prop_map(|n| Json::from(f64::from(n) / 1000.0)),
            any::<String>().prop_map(Json::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|all| Json::Object(all.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Said, heard, read and made again: the same table.
        #[test]
        fn a_table_goes_round_unchanged(all in prop::collection::btree_map(any::<String>(), values(), 0..6)) {
            let table = Table(all.into_iter().collect());
            let heard: Table = serde_json::from_slice(&serde_json::to_vec(&table).unwrap()).unwrap();
            prop_assert_eq!(&heard, &table);
            prop_assert_eq!(Table::from(&heard.params("it").unwrap()), table);
        }
    }
}
