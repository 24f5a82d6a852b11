//! Reads a file of Rust, as far as it must be to know its modules, its imports and the paths in its code.

use crate::sizes::source::{ITEMS, behind, closed, is_for_tests, words};

/// A name that `use` brings into a module.
pub(crate) struct Import {
    pub path: Vec<String>,
    /// Its name here; `*` of all that a module has.
    pub name: String,
    /// Whether others may import it from here.
    pub is_shown: bool,
}

/// A module, but for its tests.
#[derive(Default)]
pub(crate) struct Module {
    /// Its path under its file; empty of the file's own.
    pub under: Vec<String>,
    pub imports: Vec<Import>,
    /// Paths of two names or more.
    pub paths: Vec<Vec<String>>,
    /// Items that it declares.
    pub items: Vec<String>,
    /// Every word of its code beside its imports.
    pub words: Vec<String>,
}

/// What a file has, but for its tests.
#[derive(Default)]
pub(crate) struct Imports {
    pub modules: Vec<Module>,
    /// Modules in files of their own that only tests have.
    pub test_modules: Vec<String>,
}

impl Imports {
    pub(crate) fn read(text: &str) -> Imports {
        let mut imports = Imports::default();
        let words = words(text);
        if !words.starts_with(&["#", "!", "[", "cfg", "(", "test", ")"]) {
            imports.module(&words, Vec::new());
        }
        imports
    }

    fn module(&mut self, words: &[&str], under: Vec<String>) {
        let mut module = Module { under, ..Module::default() };
        let mut at = 0;
        while at < words.len() {
            let word = words[at];
            let next = words.get(at + 1).copied().unwrap_or_default();
            if is_for_tests(&words[at..]) {
                let from = closed(words, at + 1);
                at = behind(words, from);
                if let [.., "mod", name, ";"] = words[from..at] {
                    self.test_modules.push(name.to_owned());
                }
            } else if word == "mod" && words.get(at + 2) == Some(&"{") {
                let end = closed(words, at + 2);
                let inner = [&module.under[..], &[next.to_owned()]].concat();
                self.module(&words[at + 3..end - 1], inner);
                at = end;
            } else if word == "use" && next != "<" {
                let end =
                    words[at..].iter().position(|word| *word == ";").map_or(words.len(), |len| at + len);
                let is_shown = words[..at].ends_with(&["pub"]) || words[..at].ends_with(&[")"]);
                module.tree(&words[at + 1..end], &[], is_shown);
                at = end;
            } else if word == "pub" && next == "(" {
                at = closed(words, at + 1);
            } else if is_word(word) {
                if ITEMS.contains(&word) && is_word(next) {
                    module.items.push(next.to_owned());
                }
                let names = path(&words[at..]);
                at += names.len() * 3 - 2;
                module.words.push(word.to_owned());
                if names.len() > 1 {
                    module.paths.push(names);
                }
            } else {
                at += 1;
            }
        }
        self.modules.push(module);
    }
}

fn is_word(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The path that begins here, with two colons between its names.
fn path(words: &[&str]) -> Vec<String> {
    let mut names = vec![words[0].to_owned()];
    while let Some([":", ":", name]) = words.get(names.len() * 3 - 2..names.len() * 3 + 1)
        && is_word(name)
    {
        names.push((*name).to_owned());
    }
    names
}

impl Module {
    /// Takes in a tree of `use`, whose paths begin with `before`.
    fn tree(&mut self, words: &[&str], before: &[String], is_shown: bool) {
        let mut names = before.to_vec();
        let mut at = 0;
        while at < words.len() {
            match words[at] {
                ":" => at += 1,
                "{" => {
                    let end = closed(words, at) - 1;
                    let mut from = at + 1;
                    while from < end {
                        let mut to = from;
                        while to < end && words[to] != "," {
                            to = if words[to] == "{" { closed(words, to) } else { to + 1 };
                        }
                        self.tree(&words[from..to], &names, is_shown);
                        from = to + 1;
                    }
                    return;
                }
                "as" => break,
                "self" if !names.is_empty() => at += 1,
                name => {
                    names.push(name.to_owned());
                    at += 1;
                }
            }
        }
        let is_all = names.last().is_some_and(|name| name == "*");
        let name = words.get(at + 1).copied().map(str::to_owned).or_else(|| names.last().cloned());
        if is_all {
            names.pop();
        }
        if let Some(name) = name {
            self.imports.push(Import { path: names, name, is_shown });
        }
    }
}
