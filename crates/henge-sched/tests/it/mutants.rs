//! The bugs that `tools/mutants` plants can be planted: each finds its line. (That tests catch them is `make mutants`.)

use std::fs;
use std::path::Path;

#[test]
fn every_planted_bug_finds_its_line_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut bugs = 0;
    for entry in fs::read_dir(root.join("tools/mutants.d")).expect("the list of bugs") {
        let path = entry.expect("a bug").path();
        let bug = fs::read_to_string(&path).expect("a bug is text");
        let field = |name: &str| {
            let line = bug.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": "));
            line.unwrap_or_else(|| panic!("{} has no {name}", path.display()))
        };
        let file = fs::read_to_string(root.join(field("file"))).expect("a file of this repository");
        let lines = file.lines().filter(|l| l.contains(field("find"))).count();
        assert_eq!(lines, 1, "{}: \"{}\" in {}", path.display(), field("find"), field("file"));
        assert_ne!(field("find"), field("make"), "{}", path.display());
        assert!(!field("what").is_empty() && field("test").starts_with("-p "), "{}", path.display());
        bugs += 1;
    }
    assert!(bugs >= 15, "{bugs}");
}
