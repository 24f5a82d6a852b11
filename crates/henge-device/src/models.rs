//! Models that come with the crate: files of `models/`, each naming its sources.

/// Name and text of every built-in model.
const BUILT_IN: &[(&str, &str)] = &[
    ("atlas10k", include_str!("../models/atlas10k.json")),
    ("dtla-307075", include_str!("../models/dtla-307075.json")),
    ("nvme-dc", include_str!("../models/nvme-dc.json")),
    ("sata-ssd", include_str!("../models/sata-ssd.json")),
    ("st32171w", include_str!("../models/st32171w.json")),
    ("st34501n", include_str!("../models/st34501n.json")),
    ("st39102lw", include_str!("../models/st39102lw.json")),
];

/// The text of a built-in model.
pub fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// What a built-in model is, in one line.
pub fn description(name: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(built_in(name)?).ok()?;
    value.get("description")?.as_str().map(str::to_owned)
}
