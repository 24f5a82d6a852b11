//! Files import each other in one direction: a circle of files stays in one folder, and is small in henge-node.
//!
//! [`imports`] reads Rust as far as that needs it. Tests do not count, nor does `mod` alone.
//! A module that only passes on what its child has does not import the child. Who imports by way of it imports from both.

mod imports;

use super::assert_none;
use super::sizes::{crates, module};
use imports::{Import, Imports, Module};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Crates whose circles are bounded: (crate, files of the largest).
const FILES_MOST: &[(&str, usize)] = &[("henge-node", 3)];

/// How many imports of imports are followed.
const STEPS_MOST: usize = 8;

/// The files of one crate, and their modules.
struct Crate {
    /// The path under `src`, and the module that it is.
    files: Vec<(String, Vec<String>)>,
    /// Each module, in a file of its own or within another: its file, and what it has.
    modules: BTreeMap<Vec<String>, (usize, Module)>,
}

/// The names that each file imports of each other, by their numbers.
type Edges = BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>>;

impl Crate {
    fn read(files: &[(PathBuf, String)]) -> Crate {
        let read: Vec<_> = files
            .iter()
            .map(|(path, text)| (path.display().to_string(), module(path), Imports::read(text)))
            .collect();
        let mut of_tests = BTreeSet::new();
        for (_, module, imports) in &read {
            of_tests.extend(
                imports.test_modules.iter().map(|name| [&module[..], std::slice::from_ref(name)].concat()),
            );
        }
        let is_test = |module: &[String]| {
            module.iter().any(|name| name == "tests") || of_tests.iter().any(|test| module.starts_with(test))
        };
        let mut found = Crate { files: Vec::new(), modules: BTreeMap::new() };
        for (path, module, imports) in read.into_iter().filter(|(_, module, _)| !is_test(module)) {
            for inner in imports.modules {
                let name = [&module[..], &inner.under[..]].concat();
                found.modules.insert(name, (found.files.len(), inner));
            }
            found.files.push((path, module));
        }
        found
    }

    /// Adds the modules that a path from `from` leads to: where it ends, and each that passes it on; with the name there.
    fn follow(
        &self,
        from: &[String],
        path: &[String],
        steps: usize,
        into: &mut BTreeSet<(Vec<String>, String)>,
    ) {
        let mut at = from.to_vec();
        let mut name = String::new();
        for (i, part) in path.iter().enumerate() {
            name.clone_from(part);
            let child = [&at[..], std::slice::from_ref(part)].concat();
            match part.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                _ if self.modules.contains_key(&child) => at = child,
                _ => {
                    let Some((_, module)) = self.modules.get(&at) else { return };
                    let is_own = module.items.contains(part);
                    let brings = |import: &&Import| {
                        import.name == *part || import.name == "*" && self.has(&at, &import.path, part)
                    };
                    let imports = if is_own || steps == 0 { &[][..] } else { &module.imports };
                    for import in imports.iter().filter(brings) {
                        let rest = &path[i + usize::from(import.name != "*")..];
                        self.follow(&at, &[&import.path[..], rest].concat(), steps - 1, into);
                    }
                    // Nothing here: the name of another crate, or of the language.
                    if i == 0 && !is_own {
                        return;
                    }
                    break;
                }
            }
        }
        into.insert((at, name));
    }

    /// Whether the module that a path from `from` leads to declares an item.
    fn has(&self, from: &[String], path: &[String], item: &String) -> bool {
        let mut ends = BTreeSet::new();
        self.follow(from, path, 0, &mut ends);
        ends.iter()
            .any(|(end, _)| self.modules.get(end).is_some_and(|(_, module)| module.items.contains(item)))
    }

    fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (at, (file, module)) in &self.modules {
            let is_child = |to: &[String]| to.len() > at.len() && to.starts_with(at);
            let imports = module.imports.iter().map(|import| (&import.path, Some(import)));
            for (path, import) in imports.chain(module.paths.iter().map(|path| (path, None))) {
                let mut ends = BTreeSet::new();
                self.follow(at, path, STEPS_MOST, &mut ends);
                for (to, name) in ends {
                    let Some((other, _)) = self.modules.get(&to) else { continue };
                    let is_passed_on = import.is_some_and(|import| {
                        import.is_shown && is_child(&to) && !module.words.contains(&import.name)
                    });
                    if other != file && !is_passed_on {
                        edges.entry(*file).or_default().entry(*other).or_default().insert(name);
                    }
                }
            }
        }
        edges
    }

    /// Files that import each other in a circle, each circle as large as it is.
    fn circles(&self, edges: &Edges) -> Vec<BTreeSet<usize>> {
        let reached = |from: usize| {
            let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(file) = next.pop() {
                let others = edges.get(&file).into_iter().flat_map(BTreeMap::keys);
                next.extend(others.filter(|other| reached.insert(**other)));
            }
            reached
        };
        let reached: Vec<_> = (0..self.files.len()).map(reached).collect();
        let circle = |file: usize| -> BTreeSet<usize> {
            reached[file].iter().copied().filter(|other| reached[*other].contains(&file)).collect()
        };
        let circles: BTreeSet<_> =
            (0..self.files.len()).map(circle).filter(|circle| circle.len() > 1).collect();
        circles.into_iter().collect()
    }

    /// Whether files are of one folder, of which one may be the module itself.
    fn is_one_folder(&self, circle: &BTreeSet<usize>) -> bool {
        let modules: Vec<&[String]> = circle.iter().map(|file| &self.files[*file].1[..]).collect();
        let is_of = |folder: &[String]| {
            modules.iter().all(|module| {
                *module == folder || module.split_last().is_some_and(|(_, parent)| parent == folder)
            })
        };
        modules
            .iter()
            .any(|module| is_of(module) || module.split_last().is_some_and(|(_, parent)| is_of(parent)))
    }
}

/// The circles of a crate that are over folders, or too large.
fn too_wide(name: &str, files: &[(PathBuf, String)]) -> Vec<String> {
    let found = Crate::read(files);
    let edges = found.edges();
    let most = FILES_MOST.iter().find(|(of, _)| *of == name).map_or(usize::MAX, |(_, most)| *most);
    let mut offences = Vec::new();
    for circle in found.circles(&edges) {
        let is_wide = !found.is_one_folder(&circle);
        if !is_wide && circle.len() <= most {
            continue;
        }
        let folders = if is_wide { "folders" } else { "one folder" };
        let mut offence = format!("{name}: a circle of {} files over {folders}", circle.len());
        for file in &circle {
            for (other, names) in edges[file].iter().filter(|(other, _)| circle.contains(other)) {
                let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                let (file, other) = (&found.files[*file].0, &found.files[*other].0);
                offence += &format!("\n  {file} imports {names} of {other}");
            }
        }
        offences.push(offence);
    }
    offences
}

#[test]
fn no_circle_of_files_is_over_folders() {
    let crates = crates();
    assert!(crates.len() > 20, "the crates were not found");
    let offences = crates.iter().flat_map(|(name, files)| too_wide(name, files)).collect();
    assert_none(
        "a circle of files that import each other stays in one folder, and has at most 3 files in henge-node",
        offences,
    );
}

#[test]
fn a_circle_is_noticed_wherever_it_is() {
    let found = |name: &str, files: &[(&str, &str)]| {
        let files: Vec<_> = files.iter().map(|(path, text)| (path.into(), (*text).to_owned())).collect();
        too_wide(name, &files)
    };
    let one = |files: &[(&str, &str)]| found("one", files);
    // Two files of one folder; a module and its child; a module of the folder's own name.
    assert!(
        one(&[("a/b.rs", "use super::c::C; struct B;"), ("a/c.rs", "use super::b::B; struct C;")]).is_empty()
    );
    assert!(one(&[("a.rs", "mod b; use b::B; struct A;"), ("a/b.rs", "use super::A; struct B;")]).is_empty());
    assert!(
        one(&[("a/mod.rs", "use crate::b::B; struct A;"), ("b.rs", "use crate::a::A; struct B;")]).is_empty()
    );
    // Over folders, by each kind of import.
    let b = ("b.rs", "mod c; pub(crate) use c::C;\nstruct B;");
    let c = "pub(crate) struct C; fn c() -> crate::a::A {}";
    assert_eq!(
        one(&[("a.rs", "use crate::b::c::{self, C as D};\nstruct A;"), b, ("b/c.rs", c)]),
        ["one: a circle of 2 files over folders\n  a.rs imports C, c of b/c.rs\n  b/c.rs imports A of a.rs"]
    );
    for import in [
        "use crate::b::c::C; struct A;",
        "use super::b::{B, c::{C}}; struct A;",
        "use crate::{b}; struct A(b::c::C);",
        "use super::b::c::*; struct A(C);",
        "struct A(Vec<crate::b::c::C>);",
        "impl Trait for super::b::c::C {} struct A;",
        "mod inner { use super::super::b::c::C; } struct A;",
        // By way of whoever passes it on.
        "use crate::b::C; struct A;",
    ] {
        assert_eq!(one(&[("a.rs", import), b, ("b/c.rs", c)]).len(), 1, "{import}");
    }
    let root = ("lib.rs", "mod a; mod b; pub use a::A; pub use b::c::*;");
    let by_root = "use crate::A; pub(crate) struct C;";
    assert_eq!(one(&[root, ("a.rs", "use crate::C; struct A;"), b, ("b/c.rs", by_root)]).len(), 1);
    // Whoever passes on what its child has does not need it, and may.
    let (a, c_of_both) =
        (("a.rs", "use crate::b::B; struct A;"), ("b/c.rs", "use super::B; use crate::a::A;"));
    assert!(one(&[a, b, c_of_both]).is_empty());
    assert_eq!(one(&[a, ("b.rs", "mod c; pub(crate) use c::C;\nstruct B(C);"), c_of_both]).len(), 1);
    // Not in tests, in text, in comments, of other crates, or to say who sees an item.
    for other in [
        "#[cfg(test)] mod tests { use crate::b::c::C; } struct A;",
        "#[cfg(test)] use crate::b::c::C; struct A;",
        "const TEXT: &str = \"crate::b::c::C\"; struct A;",
        "/// As [`C`](crate::b::c::C).\nstruct A; // crate::b::c::C",
        "use b::c::C; use ::b::c::D; struct A;",
        "pub(in crate::b::c) struct A;",
        "mod b; struct A;",
    ] {
        assert!(one(&[("a.rs", other), b, ("b/c.rs", c)]).is_empty(), "{other}");
    }
    assert!(
        one(&[("a.rs", "#[cfg(test)] mod d; struct A;"), ("a/d.rs", "use crate::b::c::C;"), b]).is_empty()
    );
    // Large ones of one folder, where they are bounded.
    let ring = |n: usize| -> Vec<(String, String)> {
        let next = |i: usize| format!("use super::f{}::F; struct F;", (i + 1) % n);
        (0..n).map(|i| (format!("a/f{i}.rs"), next(i))).collect()
    };
    for (name, n, offences) in [("henge-node", 3, 0), ("henge-node", 4, 1), ("henge-sched", 4, 0)] {
        let ring = ring(n);
        let ring: Vec<_> = ring.iter().map(|(path, text)| (&path[..], &text[..])).collect();
        assert_eq!(found(name, &ring).len(), offences, "{name}, {n} files");
    }
}
