//! `henge reproduce`: repeat a paper's experiment, and say whether it came out as it says.

use crate::report::{json, page, plots, table, totals};
use crate::scenarios;
use crate::study::{Options, Study};
use anyhow::{Context, Result};
use henge_config::Source;
use henge_sim::{Judged, Measured};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `henge reproduce`.
#[derive(clap::Args)]
pub struct Args {
    /// stonehenge/fig2, or a family (stonehenge/all), or all; without any: a list
    pub ids: Vec<String>,
    /// Instead of the scenarios' seeds
    #[arg(long)]
    pub seed: Option<u64>,
    /// Where plots and index.html go
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// For programs
    #[arg(long)]
    pub json: bool,
    /// Scenarios from this directory instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    pub scenarios: Option<PathBuf>,
}

/// One experiment, done.
struct Done {
    id: String,
    study: Study,
    measured: Measured,
    rows: Vec<Judged>,
}

impl Done {
    fn holds(&self) -> bool {
        self.rows.iter().all(|row| row.holds != Some(false))
    }
}

/// Runs it. The exit code says whether everything held.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.ids.is_empty() {
        return list();
    }
    let mut all = Vec::new();
    // A directory of one's own may hold experiments that are not built in.
    let own =
        |id: &&String| args.scenarios.as_ref().is_some_and(|dir| dir.join(format!("{id}.toml")).is_file());
    let (own, built_in): (Vec<_>, Vec<_>) = args.ids.iter().partition(own);
    let mut ids: Vec<String> = own.into_iter().cloned().collect();
    if !built_in.is_empty() {
        ids.extend(scenarios::choose(&built_in.into_iter().cloned().collect::<Vec<_>>())?);
    }
    for id in ids {
        let done = one(&id, &args).with_context(|| id.clone())?;
        if !args.json {
            println!("{}: {}", done.id, done.study.experiment.title);
            println!("{}", table::verdicts(&done.rows));
            for row in &done.rows {
                if let (Some(note), Some(false)) = (&row.note, row.holds) {
                    println!("{}: {note}", row.what);
                }
            }
            if let Some(summary) = totals::summary(&done.measured) {
                println!("{summary}");
            }
            println!("{}\n", if done.holds() { "holds" } else { "DIFFERS from the paper" });
        }
        all.push(done);
    }
    if args.json {
        let list: Vec<_> = all.iter().map(|d| json::verdict(&d.id, d.holds(), &d.rows)).collect();
        println!("{:#}", serde_json::Value::from(list));
    }
    if let Some(dir) = &args.output {
        write(&all, dir)?;
        eprintln!("{}", dir.join("index.html").display());
    }
    Ok(if all.iter().all(Done::holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn list() -> Result<ExitCode> {
    let mut table = table::table(&["experiment"]);
    table.set_header(["experiment", "shows"]);
    for id in scenarios::ids() {
        let study = load(id, None)?;
        table.add_row([id.to_owned(), study.experiment.title]);
    }
    println!("{table}");
    Ok(ExitCode::SUCCESS)
}

fn load(id: &str, dir: Option<&Path>) -> Result<Study> {
    match dir {
        Some(dir) => Study::read(&dir.join(format!("{id}.toml"))),
        None => {
            let text = scenarios::text(id).expect("a chosen id is known");
            Study::new(Source::new(format!("{id}.toml"), text), Path::new("."))
        }
    }
}

fn one(id: &str, args: &Args) -> Result<Done> {
    let study = load(id, args.scenarios.as_deref())?;
    let options = Options { seed: args.seed, quiet: args.json, ..Options::default() };
    let measured = study.run(&options)?;
    let rows = study.experiment.judge(&measured).map_err(|e| study.source.point(e))?;
    Ok(Done { id: id.to_owned(), study, measured, rows })
}

/// Writes the figures of each experiment into a directory of its own, and one page over all.
fn write(all: &[Done], dir: &Path) -> Result<()> {
    let mut page = page::Page { title: "Reproductions".into(), ..page::Page::default() };
    let mut overview =
        page::Rows { head: ["experiment", "verdict"].map(String::from).to_vec(), ..page::Rows::default() };
    let mut sections = Vec::new();
    for done in all {
        let own = dir.join(&done.id);
        std::fs::create_dir_all(&own).with_context(|| format!("making {}", own.display()))?;
        let mut pictures = Vec::new();
        for figure in plots::wanted(&done.study.experiment, &done.measured)? {
            figure.write(&own)?;
            pictures.push(page::Picture::new(&figure, &format!("{}/{}", done.id, figure.name)));
        }
        overview.rows.push(vec![done.id.clone(), if done.holds() { "holds" } else { "DIFFERS" }.into()]);
        sections.push(page::Section {
            id: done.id.replace('/', "-"),
            title: format!("{} — {}", done.id, done.study.experiment.title),
            about: done.study.experiment.about.clone(),
            verdicts: done.rows.iter().map(page::Line::from).collect(),
            tables: totals::rows(&done.study.experiment, &done.measured).into_iter().collect(),
            figures: pictures,
        });
    }
    page.sections.push(page::Section { tables: vec![overview], ..page::Section::default() });
    page.sections.extend(sections);
    let seeds: Vec<String> =
        all.iter().filter_map(|d| d.measured.runs().next()).map(|(_, o)| o.seed.to_string()).collect();
    page.footer = format!("Simulated time; seeds {}. Equal seeds give equal results.", seeds.join(", "));
    let path = dir.join("index.html");
    std::fs::write(&path, page.render()?).with_context(|| format!("writing {}", path.display()))
}
