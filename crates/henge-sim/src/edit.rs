//! Changing a scenario's table before it is read: `node.scheduler = "vc"`, `flow.web.contract.rate = "300/s"`.
//!
//! A name behind the key of a list (`flow`, `node`) picks its entry by `name`, or by number.

use henge_core::{ParamError, Params, Value};

/// Sets the key at a dotted path; tables on the way are made where they are missing.
pub fn set(p: &mut Params, path: &str, value: Value) -> Result<(), ParamError> {
    let (head, rest) = path.split_once('.').unwrap_or((path, ""));
    if head.is_empty() {
        return Err(p.error_here(format!("\"{path}\" is not a path of keys like node.scheduler")));
    }
    let span = p.error(head, String::new()).span;
    if rest.is_empty() {
        p.set(head, value, span);
        return Ok(());
    }
    if p.get_mut(head).is_none() {
        p.set(head, Value::Table(Params::at(head, span)), 0..0);
    }
    match p.get_mut(head) {
        Some(Value::Table(table)) => set(table, rest, value),
        Some(Value::List(items)) => {
            let (name, rest) = rest.split_once('.').unwrap_or((rest, ""));
            let named = |value: &mut Value, i: usize| match value {
                Value::Table(t) => {
                    i.to_string() == name || matches!(t.get_mut("name"), Some(Value::Text(n)) if n == name)
                }
                _ => false,
            };
            let found =
                items.iter_mut().enumerate().find_map(|(i, (v, _))| if named(v, i) { Some(v) } else { None });
            match found {
                Some(Value::Table(table)) if !rest.is_empty() => set(table, rest, value),
                Some(_) => Err(p.error(head, format!("{path} names a whole entry; name a key of it"))),
                None => Err(p.error(head, format!("there is no {head} called \"{name}\""))),
            }
        }
        _ => Err(p.error(head, format!("{head} is no table, so {path} is nowhere"))),
    }
}

/// Replaces every text by what `change` makes of it, all the way down.
pub fn texts<E>(p: &mut Params, change: &mut dyn FnMut(&str) -> Result<Option<Value>, E>) -> Result<(), E> {
    for key in p.keys() {
        if let Some(value) = p.get_mut(&key) {
            text(value, change)?;
        }
    }
    Ok(())
}

fn text<E>(value: &mut Value, change: &mut dyn FnMut(&str) -> Result<Option<Value>, E>) -> Result<(), E> {
    match value {
        Value::Text(t) => {
            if let Some(new) = change(t)? {
                *value = new;
            }
            Ok(())
        }
        Value::Table(table) => texts(table, change),
        Value::List(items) => items.iter_mut().try_for_each(|(item, _)| text(item, change)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Params {
        let web = Params::new("flow").with("name", Value::Text("web".into()));
        let other = Params::new("flow").with("name", Value::Text("other".into()));
        let list = [web, other].map(|t| (Value::Table(t), 0..0)).to_vec();
        Params::new("scenario").with("flow", Value::List(list))
    }

    #[test]
    fn paths_reach_lists_by_name_and_make_tables() {
        let mut p = scenario();
        set(&mut p, "flow.web.contract.rate", Value::Text("5/s".into())).unwrap();
        set(&mut p, "node.scheduler", Value::Text("vc".into())).unwrap();
        set(&mut p, "flow.1.leeway", Value::Float(1.5)).unwrap();
        let mut flows = p.tables("flow").unwrap();
        let mut contract = flows[0].table("contract").unwrap().unwrap();
        assert_eq!(contract.rate("rate").unwrap().unwrap().per_second, 5_000_000);
        assert_eq!(flows[1].number("leeway").unwrap(), Some(1.5));
        assert_eq!(p.table("node").unwrap().unwrap().text("scheduler").unwrap().as_deref(), Some("vc"));
    }

    #[test]
    fn a_path_to_nowhere_says_so() {
        let said = |path: &str| set(&mut scenario(), path, Value::Bool(true)).unwrap_err().message;
        assert_eq!(said("flow.webb.leeway"), "there is no flow called \"webb\"");
        assert!(said("flow.web").contains("names a whole entry"));
        assert!(said("").contains("not a path"));
    }
}
