//! One self-contained HTML page: no script, no font, no picture from elsewhere; light and dark by the reader's
//! setting.

use super::figure::{Figure, Look};
use super::table;
use anyhow::{Context, Result};
use henge_sim::Verdict;
use minijinja::Environment;
use serde::Serialize;

/// A page, as the template wants it.
#[derive(Serialize, Default)]
pub struct Page {
    /// Above everything.
    pub title: String,
    /// Below it.
    pub about: String,
    /// Its parts.
    pub sections: Vec<Section>,
    /// How it was made.
    pub footer: String,
}

/// A part of a page.
#[derive(Serialize, Default)]
pub struct Section {
    /// To link to it.
    pub id: String,
    /// Above it.
    pub title: String,
    /// In words.
    pub about: String,
    /// paper / here / verdict.
    pub verdicts: Vec<Line>,
    /// Tables.
    pub tables: Vec<Rows>,
    /// Figures.
    pub figures: Vec<Picture>,
}

/// A line of a verdict.
#[derive(Serialize)]
pub struct Line {
    what: String,
    paper: String,
    here: String,
    range: String,
    verdict: String,
    class: &'static str,
    note: Option<String>,
    shown_by: Option<String>,
}

impl From<&Verdict> for Line {
    fn from(row: &Verdict) -> Self {
        let class = match row.holds() {
            Some(true) => "holds",
            Some(false) => "differs",
            None => "reported",
        };
        Line {
            what: row.what.clone(),
            paper: row.paper.clone(),
            here: table::in_unit(row.median(), &row.unit),
            range: table::range(row),
            verdict: table::judged(row),
            class,
            note: row.note.clone(),
            shown_by: row.shown_by.clone(),
        }
    }
}

/// A table.
#[derive(Serialize, Default)]
pub struct Rows {
    /// Above it.
    pub title: String,
    /// Its first row.
    pub head: Vec<String>,
    /// The others.
    pub rows: Vec<Vec<String>>,
}

/// A figure in both looks.
#[derive(Serialize)]
pub struct Picture {
    light: String,
    dark: String,
    /// Where its files are, without ending; empty when there are none.
    path: String,
}

impl Picture {
    /// Draws it; `path` is where its files are, seen from the page.
    pub fn new(figure: &Figure, path: &str) -> Self {
        // Names inside an SVG are the page's as soon as it stands in one.
        let own = |svg: String, look: &str| {
            let prefix = format!("{}-{look}-", path.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
            svg.replace("id=\"", &format!("id=\"{prefix}")).replace("url(#", &format!("url(#{prefix}"))
        };
        // The page scales it to its column; the size in it becomes its shape.
        let scalable = |svg: String| {
            let shape = svg.split_once(" width=\"").and_then(|(_, rest)| {
                let (w, rest) = rest.split_once("\" height=\"")?;
                let (h, _) = rest.split_once('"')?;
                Some(format!("<svg viewBox=\"0 0 {w} {h}\""))
            });
            match shape {
                Some(shape) if !svg.contains("viewBox") => svg.replacen("<svg", &shape, 1),
                _ => svg,
            }
        };
        Picture {
            light: scalable(own(figure.svg(Look::Light), "light")),
            dark: scalable(own(figure.svg(Look::Dark), "dark")),
            path: path.to_owned(),
        }
    }
}

impl Page {
    /// As HTML.
    pub fn render(&self) -> Result<String> {
        let mut environment = Environment::new();
        environment.add_template("page.html", include_str!("page.html")).context("the page's template")?;
        let template = environment.get_template("page.html").context("the page's template")?;
        template.render(minijinja::value::Serde(self)).context("rendering the page")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_figures_are_inline() {
        let figure = Figure {
            name: "f".into(),
            title: "F".into(),
            x_label: "x".into(),
            y_label: "y".into(),
            ..Figure::default()
        };
        let section = Section {
            about: "a <b> c".into(),
            figures: vec![Picture::new(&figure, "f")],
            ..Section::default()
        };
        let page = Page { title: "A & B".into(), sections: vec![section], ..Page::default() };
        let html = page.render().unwrap();
        assert!(html.contains("a &lt;b&gt; c") && html.contains("<title>A &amp; B</title>"));
        assert_eq!(html.matches("<svg").count(), 2);
        assert!(
            !html.contains("http://")
                || html.matches("http://www.w3.org").count() == html.matches("http://").count()
        );
    }
}
