//! Rules of the house that the compiler does not know: layering, purity, line length, words.

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
    "henge-pvfs2",
    "henge-sched",
    "henge-sim",
    "henge-vdisk",
    "henge-workload",
];

/// What a crate may use of Henge besides henge-core. A protocol never sees a scheduler, nor a scheduler a
/// protocol, a backend or a file. Drivers (sim, node, manager, the command) join the parts.
const MAY_USE: &[(&str, &[&str])] = &[
    ("henge-admission", &[]),
    ("henge-backend", &["henge-device"]),
    ("henge-config", &[]),
    ("henge-core", &[]),
    ("henge-device", &[]),
    ("henge-iscsi", &[]),
    ("henge-manager", &["henge-admission", "henge-config", "henge-node", "henge-sched", "henge-web"]),
    ("henge-link", &[]),
    ("henge-nbd", &[]),
    ("henge-proxy", &["henge-config", "henge-link", "henge-pvfs2", "henge-sched"]),
    ("henge-pvfs2", &[]),
    ("henge-sched", &[]),
    ("henge-sim", &["henge-admission", "henge-sched", "henge-device", "henge-workload", "henge-vdisk"]),
    ("henge-vdisk", &[]),
    ("henge-web", &["henge-node"]),
    ("henge-workload", &[]),
];

/// Words that the glossary replaces, in code: (not this, but that).
const WORDS: &[(&str, &str)] = &[("bricks", "nodes"), ("brick_", "node_"), ("timestamp_tag", "start tag")];

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
    let mut pages = vec![root().join("README.md"), root().join("CHANGELOG.md")];
    for folder in ["docs", "docs/papers", "scenarios", "benches", "contrib"] {
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
            if !page.parent().expect("a folder").join(target).exists() {
                offences.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert_none("links that lead nowhere", offences);
}
