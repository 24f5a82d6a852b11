//! One of several names, in parameters: which it is, or which was probably meant.

use henge_core::{ParamError, Params};

/// Takes a text that is one of `names`, and gives what it stands for.
pub(crate) fn one_of<T: Copy>(
    params: &mut Params,
    key: &str,
    names: &[(&'static str, T)],
) -> Result<Option<T>, ParamError> {
    let Some(text) = params.text(key)? else { return Ok(None) };
    let known: Vec<_> = names.iter().map(|(name, _)| *name).collect();
    match names.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(Some(*value)),
        None => {
            let message = format!("{key} is one of {}, not \"{text}\"", known.join(", "));
            let mut error = params.error(key, message);
            error.help = nearest(&text, &known).map(|near| format!("did you mean \"{near}\"?"));
            Err(error)
        }
    }
}

/// An error that lists what there is, and names what was probably meant.
pub(crate) fn unknown(
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'static str>,
    params: &Params,
) -> ParamError {
    let known: Vec<_> = known.collect();
    let mut error =
        params.error_here(format!("there is no {what} \"{name}\"; there are: {}", known.join(", ")));
    error.help = nearest(name, &known).map(|near| format!("did you mean \"{near}\"?"));
    error
}

/// The known name that shares most of its letter pairs with `name`, if that is at least a third.
fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let letters = |s: &str| -> Vec<char> {
        s.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let name = letters(name);
    let near = |k: &&&str| {
        let k = letters(k);
        let pairs = |s: &[char]| s.windows(2).map(|w| (w[0], w[1])).collect::<Vec<_>>();
        let (a, b) = (pairs(&name), pairs(&k));
        let common = a.iter().filter(|p| b.contains(p)).count();
        if a.is_empty() || b.is_empty() { 0 } else { 200 * common / (a.len() + b.len()) }
    };
    known.iter().max_by_key(near).filter(|k| near(k) >= 34).copied()
}
