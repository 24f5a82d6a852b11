//! No type owns everything: a struct has at most 15 fields, and a type at most 30 methods of its own.
//!
//! [`source`] reads Rust as far as that needs it. Tests do not count, nor do the methods of traits.

pub(crate) mod source;

use super::{assert_none, root, rust_files};
use source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const FIELDS_MOST: usize = 15;
const METHODS_MOST: usize = 30;

/// Types that may be larger: (crate, type, why).
const LARGER: &[(&str, &str, &str)] = &[
    ("henge", "Passthru", "the kernel's structure, field by field"),
    ("henge-core", "Gate", "the order of its steps is its guarantee"),
    ("henge-iscsi", "Session", "one machine: what a PDU may do depends on all of the connection's state"),
    ("henge-iscsi", "Task", "a command of that machine"),
    ("henge-iscsi", "Unit", "one machine: SCSI commands, sense and reservations of one unit"),
    ("henge-iscsi", "Targets", "one machine: what a session does to others of its target"),
    ("henge-nbd", "Session", "one machine: what a message may do depends on all of the connection's state"),
    ("henge-nvme", "Session", "one machine: what a PDU may do depends on all of the connection's state"),
    ("henge-nvme", "Controller", "one machine: the properties and features that a host sees together"),
    ("henge-nvme", "Subsystems", "one machine: what a host does to others of its subsystem"),
];

/// A type, and how large it is.
struct Type {
    /// Where it is declared, under its crate's `src`.
    module: Vec<String>,
    name: String,
    fields: usize,
    methods: usize,
}

/// The module that a file is.
pub(crate) fn module(file: &Path) -> Vec<String> {
    let file = file.with_extension("");
    let mut names: Vec<String> =
        file.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    if matches!(names.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        names.pop();
    }
    names
}

/// The types of one crate, of the text of its files by their paths under `src`.
fn types(files: &[(PathBuf, String)]) -> Vec<Type> {
    let files: Vec<(Vec<String>, Source)> =
        files.iter().map(|(path, text)| (module(path), Source::read(text))).collect();
    let mut of_tests = BTreeSet::new();
    for (module, source) in &files {
        of_tests.extend(
            source.test_modules.iter().map(|name| [&module[..], std::slice::from_ref(name)].concat()),
        );
    }
    let is_test = |module: &[String]| {
        module.iter().any(|name| name == "tests") || of_tests.iter().any(|test| module.starts_with(test))
    };
    let files: Vec<_> = files.into_iter().filter(|(module, _)| !is_test(module)).collect();
    let mut types = Vec::new();
    for (module, source) in &files {
        types.extend(source.types.iter().map(|(name, fields)| Type {
            module: module.clone(),
            name: name.clone(),
            fields: *fields,
            methods: 0,
        }));
    }
    for (module, source) in &files {
        for (name, methods) in &source.impls {
            // Of several of one name, the nearest.
            let alike = |other: &Type| {
                module.iter().zip(&other.module).take_while(|(one, other)| one == other).count()
            };
            let of = types.iter_mut().filter(|other| other.name == *name);
            if let Some(of) = of.max_by_key(|other| (alike(other), std::cmp::Reverse(other.module.len()))) {
                of.methods += methods;
            }
        }
    }
    types
}

/// What is too large in a crate, but for the exceptions.
fn too_large(name: &str, files: &[(PathBuf, String)]) -> Vec<String> {
    let mut offences = Vec::new();
    for found in types(files) {
        if LARGER.iter().any(|(of, larger, _)| (*of, *larger) == (name, found.name.as_str())) {
            continue;
        }
        let place = format!("{name}: {} ({})", found.name, found.module.join("/"));
        if found.fields > FIELDS_MOST {
            offences.push(format!("{place} has {} fields", found.fields));
        }
        if found.methods > METHODS_MOST {
            offences.push(format!("{place} has {} methods", found.methods));
        }
    }
    offences
}

/// The sources of each crate, by its name.
pub(crate) fn crates() -> BTreeMap<String, Vec<(PathBuf, String)>> {
    let entries = fs::read_dir(root().join("crates")).expect("the crates");
    let folders = entries.map(|e| e.expect("a readable folder").path());
    let read = |folder: PathBuf| {
        let (src, mut paths) = (folder.join("src"), Vec::new());
        rust_files(&src, &mut paths);
        let under = |path: PathBuf| {
            let text = fs::read_to_string(&path).expect("a readable source");
            (path.strip_prefix(&src).expect("a path under it").to_owned(), text)
        };
        let name = folder.file_name().expect("a crate's name").to_string_lossy().into_owned();
        (name, paths.into_iter().map(under).collect())
    };
    folders.map(read).collect()
}

#[test]
fn no_type_owns_everything() {
    let crates = crates();
    assert!(crates.len() > 20, "the crates were not found");
    let offences = crates.iter().flat_map(|(name, files)| too_large(name, files)).collect();
    assert_none("a struct has at most 15 fields, and a type at most 30 methods of its own", offences);
}

#[test]
fn an_exception_is_of_a_type_that_needs_it() {
    let crates = crates();
    let is_needed = |(name, larger, _): &&(&str, &str, &str)| {
        crates.get(*name).is_some_and(|files| {
            let is_larger = |found: &Type| found.fields > FIELDS_MOST || found.methods > METHODS_MOST;
            types(files).iter().any(|found| found.name == *larger && is_larger(found))
        })
    };
    let offences = LARGER.iter().filter(|exception| !is_needed(exception));
    assert_none(
        "exceptions of types that are not larger",
        offences.map(|(name, larger, _)| format!("{name}: {larger}")).collect(),
    );
}

#[test]
fn what_is_too_large_is_noticed_wherever_it_is() {
    let many = |n: usize, one: &dyn Fn(usize) -> String| (0..n).map(one).collect::<String>();
    let fields = |n| {
        many(n, &|i| format!("    /// Its, {{of course.\n    pub f{i}: [(u8, Box<dyn Fn(u8) -> T>); 2],\n"))
    };
    let methods =
        |n| many(n, &|i| format!("    pub(super) fn m{i}(&self, f: fn(u8)) {{ fn inner() {{}} }}\n"));
    let found = |files: &[(&str, &str)]| {
        let files: Vec<_> = files.iter().map(|(path, text)| (path.into(), (*text).to_owned())).collect();
        too_large("one", &files)
    };
    let of = |n| format!("struct Many<T: Fn(u8) -> u8>\nwhere\n    T: Copy,\n{{\n{}}}\n", fields(n));
    assert!(found(&[("lib.rs", &of(FIELDS_MOST))]).is_empty());
    assert_eq!(found(&[("a/b.rs", &of(16))]), ["one: Many (a/b) has 16 fields"]);
    // In a module, in a function; not in tests, in text, or in comments.
    assert_eq!(found(&[("lib.rs", &format!("mod a {{ {} }}", of(16)))]).len(), 1);
    assert_eq!(found(&[("lib.rs", &format!("fn a() {{ {} }}", of(16)))]).len(), 1);
    assert!(found(&[("lib.rs", &format!("#[cfg(test)]\nmod a {{ {} }}", of(16)))]).is_empty());
    assert!(found(&[("lib.rs", &format!("const A: &str = r#\"{}\"#;", of(16)))]).is_empty());
    assert!(found(&[("lib.rs", &format!("/* {} */", of(16)))]).is_empty());
    assert!(found(&[("lib.rs", "#[cfg(test)]\nmod fake;"), ("fake.rs", &of(16))]).is_empty());
    assert!(found(&[("a/tests.rs", &of(16))]).is_empty());
    // Methods over several blocks and files, and not those of traits or of another type of that name.
    let one = |n| format!("impl<T: A<u8>> a::Many<T>\nwhere\n    T: Copy,\n{{\n{}}}\n", methods(n));
    let declared = "pub struct Many(u8);\n";
    let both = format!("{declared}{}", one(20));
    assert!(found(&[("a.rs", &both), ("a/b.rs", &one(10))]).is_empty());
    assert_eq!(found(&[("a.rs", &both), ("a/b.rs", &one(11))]), ["one: Many (a) has 31 methods"]);
    assert!(found(&[("a.rs", &both), ("b.rs", &both)]).is_empty());
    let other =
        format!("impl Other for Many {{\n{}}}\nimpl<F> O<F> for M where F: for<'a> A<'a> {{ }}", methods(31));
    assert!(found(&[("a.rs", &format!("{declared}{other}"))]).is_empty());
    let bound = format!("impl<T> Many<T> where T: for<'a> A<'a> {{\n{}}}\n", methods(31));
    assert_eq!(found(&[("a.rs", &format!("{declared}{bound}"))]).len(), 1);
    let tested = one(30).replace("fn m0(", "fn m30(&self) {} #[cfg(test)] fn m0(");
    assert!(found(&[("a.rs", &format!("{declared}{tested}"))]).is_empty());
}
