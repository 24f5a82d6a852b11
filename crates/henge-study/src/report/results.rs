//! What experiments showed: one page with figures, and the same lines as Markdown.

use super::{page, plots, table, totals};
use anyhow::{Context, Result};
use henge_sim::{Experiment, Measured, Verdict};
use std::fmt::Write as _;
use std::path::Path;

/// One experiment, done.
pub struct Done {
    /// `stonehenge/fig2`
    pub id: String,
    /// What judged it.
    pub seeds: Vec<u64>,
    /// What was asked.
    pub experiment: Experiment,
    /// What the first seed measured.
    pub measured: Measured,
    /// Its lines.
    pub rows: Vec<Verdict>,
}

/// Whether no line differs.
pub fn holds(rows: &[Verdict]) -> bool {
    rows.iter().all(|row| row.holds() != Some(false))
}

impl Done {
    /// Whether no line differs.
    pub fn holds(&self) -> bool {
        holds(&self.rows)
    }
    fn count(&self, verdict: Option<bool>) -> usize {
        self.rows.iter().filter(|row| row.holds() == verdict).count()
    }
}

/// How many lines hold, in a sentence.
pub fn sum(all: &[Done]) -> String {
    let count = |verdict| all.iter().map(|d| d.count(verdict)).sum::<usize>();
    let (hold, differ) = (count(Some(true)), count(Some(false)));
    let differs = |d: &&Done| !d.holds();
    let which: Vec<&str> = all.iter().filter(differs).map(|d| d.id.as_str()).collect();
    let mut text = format!("{hold} of {} lines hold, in {} experiments", hold + differ, all.len());
    if !which.is_empty() {
        write!(text, "; {differ} differ: {}", which.join(", ")).expect("writing to a string succeeds");
    }
    text
}

/// Writes the figures of each experiment into a directory of its own, and over all index.html and results.md.
pub fn write(all: &[Done], dir: &Path) -> Result<()> {
    let mut page = page::Page { title: "Reproductions".into(), about: sum(all), ..page::Page::default() };
    let mut sections = Vec::new();
    for done in all {
        let own = dir.join(&done.id);
        std::fs::create_dir_all(&own).with_context(|| format!("making {}", own.display()))?;
        let mut pictures = Vec::new();
        for figure in plots::wanted(&done.experiment, &done.measured)? {
            figure.write(&own)?;
            pictures.push(page::Picture::new(&figure, &format!("{}/{}", done.id, figure.name)));
        }
        sections.push(page::Section {
            id: done.id.replace('/', "-"),
            title: format!("{} — {}", done.id, done.experiment.title),
            about: done.experiment.about.clone(),
            verdicts: done.rows.iter().map(page::Line::from).collect(),
            tables: totals::rows(&done.experiment, &done.measured).into_iter().collect(),
            figures: pictures,
        });
    }
    page.sections.push(page::Section { tables: vec![overview(all)], ..page::Section::default() });
    page.sections.extend(sections);
    page.footer = format!(
        "Simulated time; seeds {}. Equal seeds give equal results. Figures and tables of runs are of the first seed.",
        seeds(all)
    );
    let write = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    write("results.md", markdown(all))?;
    write("index.html", page.render()?)
}

/// Which seeds judged; they are the same for all where nobody asked for another first one.
fn seeds(all: &[Done]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for done in all {
        let text = match (done.seeds.first(), done.seeds.last()) {
            (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
            (first, _) => first.map(u64::to_string).unwrap_or_default(),
        };
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.join(", ")
}

fn overview(all: &[Done]) -> page::Rows {
    let row = |d: &Done| {
        let verdict = if d.holds() { "holds" } else { "DIFFERS" };
        let counts = [Some(true), Some(false), None].map(|v| d.count(v).to_string());
        let mut row = vec![d.id.clone()];
        row.extend(counts);
        row.push(verdict.into());
        row
    };
    let head = ["experiment", "lines that hold", "that differ", "reported alone", "verdict"];
    page::Rows {
        title: String::new(),
        head: head.map(String::from).to_vec(),
        rows: all.iter().map(row).collect(),
    }
}

/// Every line, for a repository's pages.
fn markdown(all: &[Done]) -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let mut out = format!("# Reproductions\n\n{}. Seeds {}.\n", sum(all), seeds(all));
    out.push_str(
        "*Here* is the median over the seeds. A line holds where at least nine in ten of them do.\n",
    );
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    for done in all {
        line(format!("\n## {} — {}\n", done.id, done.experiment.title));
        line("| claim | paper | here | range | verdict |\n|---|---|---|---|---|".into());
        for row in &done.rows {
            let here = table::in_unit(row.median(), &row.unit);
            let cells =
                [&row.what, &row.paper, &here, &table::range(row), &table::judged(row)].map(|c| cell(c));
            line(format!("| {} |", cells.join(" | ")));
        }
        for row in done.rows.iter().filter(|row| row.holds() == Some(false)) {
            let why = row.note.as_deref().unwrap_or("the cause is not known");
            let shown = row.shown_by.as_ref().map(|id| format!(" Shown by {id}.")).unwrap_or_default();
            line(format!("\n- **{}**: {}{shown}", cell(&row.what), cell(why)));
        }
    }
    out
}
