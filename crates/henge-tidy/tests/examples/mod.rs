//! A crate that says `doctest = false` saves a run of rustdoc over it. Then no example of its documentation would be tried, so it has none.

use crate::{assert_none, root, rust_files};
use std::fs;

/// Whether rustdoc takes a block for Rust, by the words behind its fence.
fn is_rust(words: &str) -> bool {
    let known = |word: &str| {
        ["rust", "no_run", "should_panic", "compile_fail", "test_harness", "standalone_crate"].contains(&word)
            || word.starts_with("ignore")
            || word.starts_with("edition")
            || word
                .strip_prefix('E')
                .is_some_and(|code| code.len() == 4 && code.bytes().all(|b| b.is_ascii_digit()))
    };
    words.split([',', ' ']).filter(|word| !word.is_empty()).all(known)
}

/// The lines where examples begin: at a fence, or four columns further in after an empty line.
fn examples(source: &str) -> Vec<usize> {
    let (mut found, mut is_fenced, mut is_after_empty) = (Vec::new(), false, true);
    for (i, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let Some(text) = line.strip_prefix("//!").or_else(|| line.strip_prefix("///")) else {
            (is_fenced, is_after_empty) = (false, true);
            continue;
        };
        if let Some(words) = text.trim_start().strip_prefix("```") {
            if !is_fenced && is_rust(words) {
                found.push(i + 1);
            }
            is_fenced = !is_fenced;
        } else if !is_fenced && is_after_empty && text.starts_with("     ") && !text.trim().is_empty() {
            found.push(i + 1);
        }
        is_after_empty = text.trim().is_empty();
    }
    found
}

#[test]
fn whose_examples_are_not_tried_has_none() {
    let (mut offences, mut untried) = (Vec::new(), 0);
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let folder = entry.expect("a readable folder").path();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        if !manifest.lines().any(|line| line == "doctest = false") {
            continue;
        }
        untried += 1;
        let mut files = Vec::new();
        rust_files(&folder.join("src"), &mut files);
        for file in files {
            let lines = examples(&fs::read_to_string(&file).expect("a readable source"));
            offences.extend(lines.iter().map(|line| format!("{}:{line}", file.display())));
        }
    }
    assert!(untried > 0, "the manifests were not found");
    assert_none("examples of crates with `doctest = false`, which nothing tries", offences);
}

#[test]
fn an_example_is_noticed_however_it_is_written() {
    let text = "//! A drawing:\n//!\n//! ```text\n//!\n//!      a ─▶ b\n//! ```\n\n/// ```toml\n/// a = 1\n/// ```\nfn f() {}\n";
    assert_eq!(examples(text), [0; 0]);
    for words in ["", "rust", "no_run", "should_panic", "compile_fail,E0277", "ignore"] {
        let text = format!("/// Two:\n/// ```{words}\n/// f();\n/// ```\nfn f() {{}}\n");
        assert_eq!(examples(&text), [2], "{words}");
    }
    assert_eq!(examples("    /// Two:\n    ///\n    ///     f();\n    fn f() {}\n"), [3]);
}
