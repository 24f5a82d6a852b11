//! The papers' experiments, built into the command so that they run anywhere. Their files are in `scenarios/`.

use anyhow::{Result, anyhow};

macro_rules! built_in {
    ($($id:literal),* $(,)?) => {
        &[$(($id, include_str!(concat!("../../../scenarios/", $id, ".toml")))),*]
    };
}

/// In the order in which `all` runs them.
const ALL: &[(&str, &str)] = built_in![
    "stonehenge/fig2",
    "stonehenge/fig3a",
    "stonehenge/fig3b",
    "stonehenge/fig3c",
    "stonehenge/fig4",
    "stonehenge/fig5",
    "stonehenge/tab2",
    "stonehenge/tab3",
    "stonehenge/tab4",
    "dsfq/fig8",
    "dsfq/fig9",
    "dsfq/fig10",
    "dsfq/fig11",
    "dsfq/fig12",
    "dsfq/fig13",
    "dsfq/fig14",
    "dsfq/bursts",
    "dsfq/returns",
    "twolevel/motivation",
    "twolevel/fig3",
    "twolevel/fig4",
    "twolevel/fig5",
    "twolevel/nodes",
    "locality/fig2",
    "locality/fig3",
    "locality/fig4",
    "locality/fig5",
    "locality/fig6",
    "locality/fig8",
    "checks/two-level",
    "checks/mclock",
    "checks/rent-a-disk",
    "checks/disk-kinds",
    "vpfs/iors",
    "vpfs/predict",
    "vpfs/btio",
    "vpfs/sync",
    "vpfs/dynamic",
    "vpfs/messages",
    "vpfs/patterns",
    "robust/dsfq",
    "robust/stonehenge",
    "robust/drives",
    "robust/twolevel",
    "robust/locality",
    "robust/turns",
    "robust/vpfs",
];

/// All ids.
pub fn ids() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(id, _)| *id)
}

/// The text of a scenario.
pub fn text(id: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == id).map(|(_, text)| *text)
}

/// The experiments that are meant by ids, `FAMILY/all` and `all`; each once, in the built-in order.
pub fn choose(wanted: &[String]) -> Result<Vec<String>> {
    let means = |want: &str, id: &str| {
        want == "all"
            || want == id
            || want.strip_suffix("/all").is_some_and(|f| id.starts_with(&format!("{f}/")))
    };
    for want in wanted {
        if !ids().any(|id| means(want, id)) {
            let known: Vec<&str> = ids().collect();
            return Err(anyhow!(
                "there is no experiment \"{want}\"; there are: {}, FAMILY/all, all",
                known.join(", ")
            ));
        }
    }
    Ok(ids().filter(|id| wanted.iter().any(|want| means(want, id))).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_file_is_built_in_and_readable() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let mut files = Vec::new();
        for family in std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()) {
            for file in std::fs::read_dir(&family).unwrap().map(|e| e.unwrap().path()) {
                if file.extension().is_some_and(|e| e == "toml") {
                    let id = file.strip_prefix(&dir).unwrap().with_extension("");
                    files.push(id.to_str().unwrap().to_owned());
                }
            }
        }
        // Those draw a page's pictures, and are no experiments.
        let (pictures, mut files): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|id| id.starts_with("choose/"));
        assert!(pictures.len() >= 6, "{pictures:?}");
        for id in pictures {
            let study = crate::study::Study::read(&dir.join(format!("{id}.toml"))).unwrap();
            let drawn: Vec<_> = study.experiment.plots.iter().filter(|plot| plot.small).collect();
            let name = id.trim_start_matches("choose/");
            assert!(drawn.len() == 1 && drawn[0].name == name, "{id} draws one picture of its name");
        }
        files.sort();
        let mut known: Vec<String> = ids().map(str::to_owned).collect();
        known.sort();
        assert_eq!(files, known);
        for id in ids() {
            let source = henge_config::Source::new(id, text(id).unwrap());
            let study = crate::study::Study::new(source, &dir).unwrap_or_else(|e| panic!("{e:#}"));
            for row in &study.experiment.rows {
                let shown = row.shown_by.as_deref().unwrap_or(id);
                assert!(text(shown).is_some(), "{id}, \"{}\": there is no experiment {shown}", row.what);
            }
        }
    }

    #[test]
    fn families_are_chosen_by_name() {
        assert_eq!(choose(&["stonehenge/fig2".into()]).unwrap(), ["stonehenge/fig2"]);
        assert_eq!(
            choose(&["stonehenge/all".into(), "stonehenge/fig2".into()]).unwrap().len(),
            ids().filter(|i| i.starts_with("stonehenge/")).count()
        );
        assert!(
            choose(&["fig2".into()]).unwrap_err().to_string().contains("there is no experiment \"fig2\"")
        );
    }
}
