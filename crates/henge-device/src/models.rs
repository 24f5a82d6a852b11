//! Models that come with the crate: files of `models/`, each naming its sources.

/// Name and text of every built-in model.
const BUILT_IN: &[(&str, &str)] = &[("dtla-307075", include_str!("../models/dtla-307075.json"))];

/// The text of a built-in model.
pub fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}
