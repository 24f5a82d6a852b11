//! Rules of the house that the compiler does not know: layering, purity, line length, words.

mod circles;
mod examples;
mod sizes;

use std::fs;
use std::path::{Path, PathBuf};

/// Crates that read no clock, open nothing and start no thread.
const PURE: &[&str] = &[
    "henge-admission",
    "henge-core",
    "henge-device",
    "henge-iscsi",
    "henge-link",
    "henge-nbd",
    "henge-nvme",
    "henge-pvfs2",
    "henge-sched",
    "henge-sim",
    "henge-vdisk",
    "henge-workload",
];

/// What a crate may use of Henge besides henge-core. A protocol never sees a scheduler, nor a scheduler a
/// protocol, a backend or a file. Drivers (sim, study, node, manager, the command) join the parts.
const MAY_USE: &[(&str, &[&str])] = &[
    ("henge-admission", &[]),
    ("henge-api", &["henge-link"]),
    ("henge-backend", &["henge-device", "henge-nbd"]),
    ("henge-config", &["henge-io"]),
    ("henge-core", &[]),
    ("henge-device", &[]),
    ("henge-io", &[]),
    ("henge-iscsi", &[]),
    (
        "henge-manager",
        &[
            "henge-admission",
            "henge-config",
            "henge-api",
            "henge-io",
            "henge-sched",
            "henge-tls",
            "henge-web",
        ],
    ),
    ("henge-link", &[]),
    ("henge-nbd", &[]),
    ("henge-nvme", &[]),
    ("henge-proxy", &["henge-config", "henge-io", "henge-link", "henge-pvfs2", "henge-sched", "henge-tls"]),
    ("henge-pvfs2", &[]),
    ("henge-sched", &[]),
    ("henge-sim", &["henge-admission", "henge-sched", "henge-device", "henge-workload", "henge-vdisk"]),
    ("henge-study", &["henge-config", "henge-device", "henge-sched", "henge-sim", "henge-workload"]),
    ("henge-tls", &["henge-io"]),
    ("henge-vdisk", &[]),
    ("henge-web", &["henge-api", "henge-io", "henge-tls"]),
    ("henge-workload", &[]),
];

/// Words that the glossary replaces, in code: (not this, but that).
const WORDS: &[(&str, &str)] = &[
    ("bricks", "nodes"),
    ("brick_", "node_"),
    ("timestamp_tag", "start tag"),
    ("has_room", "has_capacity"),
    ("home_of", "extent_of"),
    ("struct Flight", "struct InFlight"),
    ("struct Asked", "a submitted request, a query or an answer that is awaited, by its own name"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn rust_files(under: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(under) else { return };
    for entry in entries.map(|e| e.expect("a readable folder").path()) {
        let name = entry.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        if entry.is_dir() && !name.starts_with('.') && name != "target" && name != "node_modules" {
            rust_files(&entry, into);
        } else if name.ends_with(".rs") {
            into.push(entry);
        }
    }
}

fn assert_none(rule: &str, offences: Vec<String>) {
    assert!(offences.is_empty(), "{rule}:\n{}", offences.join("\n"));
}

#[test]
fn pure_crates_have_the_lint_that_keeps_them_pure() {
    let lint =
        fs::read_to_string(root().join("crates/henge-core/clippy.toml")).expect("henge-core's clippy.toml");
    let missing = |name: &&&str| {
        fs::read_to_string(root().join("crates").join(name).join("clippy.toml")).ok() != Some(lint.clone())
    };
    let offences = PURE.iter().filter(|n| root().join("crates").join(n).exists()).filter(missing);
    assert_none("without henge-core's clippy.toml", offences.map(|n| (*n).to_owned()).collect());
}

#[test]
fn arrows_between_crates_point_to_the_core() {
    let mut offences = Vec::new();
    for (name, allowed) in MAY_USE {
        let Ok(manifest) = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")) else {
            continue;
        };
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        for line in dependencies.lines().filter(|l| l.starts_with("henge-")) {
            let used = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if used != "henge-core" && !allowed.contains(&used) {
                offences.push(format!("{name} uses {used}"));
            }
        }
    }
    assert_none("arrows that the architecture does not have", offences);
}

#[test]
fn lines_fit_a_screen_and_use_our_words() {
    let mut files = Vec::new();
    rust_files(&root(), &mut files);
    assert!(files.len() > 20, "the sources were not found");
    let mut offences = Vec::new();
    for file in files.iter().filter(|f| !f.ends_with("tidy.rs")) {
        let text = fs::read_to_string(file).expect("a readable source");
        let name = file.strip_prefix(root()).unwrap_or(file).display().to_string();
        for (i, line) in text.lines().enumerate() {
            let is_table = line.trim_start().starts_with("//! |") || line.trim_start().starts_with("/// |");
            if line.chars().count() > 170 && !is_table {
                offences.push(format!("{name}:{}: {} columns", i + 1, line.chars().count()));
            }
            for (word, instead) in WORDS {
                if line.contains(word) {
                    offences.push(format!("{name}:{}: \"{word}\" is \"{instead}\" here", i + 1));
                }
            }
        }
    }
    assert_none("lines", offences);
}

#[test]
fn every_source_file_says_what_it_is() {
    let mut files = Vec::new();
    rust_files(&root().join("crates"), &mut files);
    let offences = files.iter().filter(|f| {
        let text = fs::read_to_string(f).expect("a readable source");
        !text.starts_with("//!") && !text.starts_with("#!") && !f.ends_with("tests.rs")
    });
    assert_none(
        "files without a first line that says what they are",
        offences.map(|f| f.display().to_string()).collect(),
    );
}

#[test]
fn every_link_in_the_docs_leads_somewhere() {
    let mut pages = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|page| root().join(page)).to_vec();
    for folder in ["docs", "docs/papers", "scenarios", "benches", "benches/history", "contrib"] {
        let Ok(entries) = fs::read_dir(root().join(folder)) else { continue };
        pages.extend(
            entries
                .map(|e| e.expect("a readable folder").path())
                .filter(|p| p.extension().is_some_and(|x| x == "md")),
        );
    }
    let mut offences = Vec::new();
    for page in pages {
        let Ok(text) = fs::read_to_string(&page) else { continue };
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            // The site is made of docs/ alone, and does not build with links that leave it.
            let file = page.parent().expect("a folder").join(target).canonicalize();
            let docs = root().join("docs");
            if !file.is_ok_and(|file| !page.starts_with(&docs) || file.starts_with(&docs)) {
                offences.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert_none("links that lead nowhere", offences);
}

/// The names that `source` quotes after `before`: `p.text("name")` has `name` after `text("`.
fn quoted<'s>(source: &'s str, before: &[&str]) -> Vec<&'s str> {
    let after =
        |b: &&str| source.split(*b).skip(1).filter_map(|rest| rest.split('"').next()).collect::<Vec<_>>();
    before.iter().flat_map(after).collect()
}

/// What a user may write or meet stands in the reference: keys of a node's file, events, metrics.
#[test]
fn the_reference_tells_of_every_key_event_and_metric() {
    let reference = fs::read_to_string(root().join("docs/reference.md")).expect("the reference");
    let is_told = |name: &str| reference.contains(&format!("`{name}`"));
    let mut sources = Vec::new();
    rust_files(&root().join("crates/henge-node/src/config"), &mut sources);
    let others =
        ["henge-node/src/config_file.rs", "henge-node/src/link_config.rs", "henge-core/src/contract.rs"];
    sources.extend(others.map(|path| root().join("crates").join(path)));
    let mut names = Vec::new();
    let reads =
        ["text(\"", "size(\"", "integer(\"", "bool(\"", "duration(\"", "number(\"", "table(\"", "share(\""];
    for path in &sources {
        let source = fs::read_to_string(path).expect("a readable source");
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        names.extend(quoted(code, &reads).into_iter().map(str::to_owned));
    }
    assert!(names.len() > 30, "the keys of a node's file were not found");
    let metrics = fs::read_to_string(root().join("crates/henge-web/src/metrics.rs")).expect("the metrics");
    let metrics = metrics.split("#[cfg(test)]").next().unwrap_or_default();
    names.extend(quoted(metrics, &["\"henge_"]).iter().map(|rest| format!("henge_{rest}")));
    let events = fs::read_to_string(root().join("crates/henge-api/src/event.rs")).expect("the events");
    names.extend(quoted(&events, &["=> \""]).into_iter().map(str::to_owned));
    names.sort();
    names.dedup();
    let offences = names.into_iter().filter(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
    assert_none("not in docs/reference.md", offences.filter(|name| !is_told(name)).collect());
}
