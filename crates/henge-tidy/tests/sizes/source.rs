//! Reads a file of Rust, as far as it must be to count fields and methods: words and signs, without comments and text.

/// What a file declares, but for its tests.
#[derive(Default)]
pub(crate) struct Source {
    /// Structs with their named fields, and enums.
    pub types: Vec<(String, usize)>,
    /// Blocks of inherent methods: whose, and how many.
    pub impls: Vec<(String, usize)>,
    /// Modules in files of their own that only tests have.
    pub test_modules: Vec<String>,
}

/// Words and signs, without comments, literals and lifetimes.
pub(crate) fn words(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let is_word =
        |at: usize| bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b >= 128);
    let mut words = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let from = at;
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            at += comment(rest);
        } else if let Some(len) = raw_string(rest) {
            at += len;
        } else if rest.starts_with('"') {
            at += quoted(rest, b'"');
        } else if rest.starts_with("b'") {
            at += 1 + quoted(&rest[1..], b'\'');
        } else if rest.starts_with('\'') {
            // A letter, or a lifetime.
            let second = rest.chars().nth(1).map_or(0, char::len_utf8);
            let is_letter = rest.starts_with("'\\") || rest[1 + second..].starts_with('\'');
            at += if is_letter { quoted(rest, b'\'') } else { 1 };
            while !is_letter && is_word(at) {
                at += 1;
            }
        } else if is_word(at) {
            while is_word(at) {
                at += 1;
            }
            words.push(&text[from..at]);
        } else {
            at += 1;
            if !bytes[from].is_ascii_whitespace() {
                words.push(&text[from..at]);
            }
        }
    }
    words
}

/// The length of a comment, which may have others in it.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let pair = text.as_bytes().get(at..at + 2);
        let step = match pair {
            Some(b"/*") => 1,
            Some(b"*/") => -1,
            _ => 0,
        };
        depth += step;
        at += if step == 0 { 1 } else { 2 };
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of a raw string, if one begins here.
fn raw_string(text: &str) -> Option<usize> {
    let rest = ["r", "br", "cr"].iter().find_map(|prefix| text.strip_prefix(prefix))?;
    let signs = rest.len() - rest.trim_start_matches('#').len();
    let inner = rest[signs..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(signs));
    let len = inner.find(&end).map_or(inner.len(), |at| at + end.len());
    Some(text.len() - inner.len() + len)
}

/// The length of what ends with the sign that it begins with.
fn quoted(text: &str, sign: u8) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != sign {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// How a sign changes the depth of brackets.
fn bracket(word: &str) -> i32 {
    match word {
        "(" | "[" | "{" => 1,
        ")" | "]" | "}" => -1,
        _ => 0,
    }
}

/// Behind the bracket that closes the one at `at`.
pub(crate) fn closed(words: &[&str], at: usize) -> usize {
    let mut depth = 0;
    for (i, word) in words.iter().enumerate().skip(at) {
        depth += bracket(word);
        if depth == 0 {
            return i + 1;
        }
    }
    words.len()
}

/// Whether an attribute for tests alone begins here.
pub(crate) fn is_for_tests(words: &[&str]) -> bool {
    words.starts_with(&["#", "[", "cfg", "(", "test", ")"])
        || words.starts_with(&["#", "[", "cfg", "(", "all", "(", "test", ","])
        || words.starts_with(&["#", "[", "test", "]"])
}

/// Words that an item begins with. The rest may have a comma at its end.
pub(crate) const ITEMS: &[&str] = &[
    "pub",
    "fn",
    "impl",
    "struct",
    "enum",
    "mod",
    "use",
    "const",
    "static",
    "type",
    "trait",
    "unsafe",
    "macro_rules",
];

/// Behind an item, a method or a field: its block, its semicolon or its comma.
pub(crate) fn behind(words: &[&str], mut at: usize) -> usize {
    while words.get(at) == Some(&"#") {
        at = closed(words, at + 1);
    }
    let is_item = words.get(at).is_some_and(|word| ITEMS.contains(word));
    while at < words.len() {
        match words[at] {
            ";" => return at + 1,
            "," if !is_item => return at + 1,
            "{" => return closed(words, at),
            "}" => return at,
            word if bracket(word) > 0 => at = closed(words, at),
            _ => at += 1,
        }
    }
    at
}

/// Behind generics, if they begin here.
fn behind_generics(words: &[&str], mut at: usize) -> usize {
    if words.get(at) != Some(&"<") {
        return at;
    }
    let mut depth = 0;
    while at < words.len() {
        match words[at] {
            "<" => depth += 1,
            ">" if words[at - 1] != "-" => depth -= 1,
            word if bracket(word) > 0 => at = closed(words, at) - 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

/// How many fields the braces at `at` have.
fn fields(words: &[&str], at: usize) -> usize {
    let end = closed(words, at) - 1;
    let (mut at, mut count) = (at + 1, 0);
    while at < end {
        if is_for_tests(&words[at..end]) {
            at = field(words, at, end);
            continue;
        }
        count += 1;
        at = field(words, at, end);
    }
    count
}

/// Behind a field's comma. Commas of generics are not its own.
fn field(words: &[&str], mut at: usize, end: usize) -> usize {
    while at < end {
        match words[at] {
            "," => return at + 1,
            "<" => at = behind_generics(words, at),
            word if bracket(word) > 0 => at = closed(words, at),
            _ => at += 1,
        }
    }
    end
}

/// How many methods the braces at `at` have.
fn methods(words: &[&str], at: usize) -> usize {
    let end = closed(words, at) - 1;
    let (mut at, mut count) = (at + 1, 0);
    while at < end {
        if is_for_tests(&words[at..end]) {
            at = behind(words, closed(words, at + 1));
        } else if words[at] == "fn" {
            count += 1;
            at = behind(words, at);
        } else if bracket(words[at]) > 0 {
            at = closed(words, at);
        } else {
            at += 1;
        }
    }
    count
}

/// Whose inherent methods follow, and where their braces are; `None` of a trait's.
fn owner<'w>(words: &[&'w str], at: usize) -> Option<(&'w str, usize)> {
    let mut at = behind_generics(words, at + 1);
    let (mut name, mut is_trait, mut is_bound) = ("", false, false);
    while at < words.len() && words[at] != "{" {
        match words[at] {
            "<" => {
                at = behind_generics(words, at);
                continue;
            }
            "where" => is_bound = true,
            "for" if !is_bound => is_trait = true,
            word if word.starts_with(|c: char| c.is_alphabetic()) && !is_bound => name = word,
            _ => {}
        }
        at += 1;
    }
    (!is_trait && at < words.len()).then_some((name, at))
}

impl Source {
    pub(crate) fn read(text: &str) -> Source {
        let words = words(text);
        let mut source = Source::default();
        let mut at = 0;
        while at < words.len() {
            let is_first = at == 0 || matches!(words[at - 1], "}" | ";" | "]" | "{" | "unsafe");
            if is_for_tests(&words[at..]) {
                let from = closed(&words, at + 1);
                at = behind(&words, from);
                if let [.., "mod", name, ";"] = words[from..at] {
                    source.test_modules.push(name.to_owned());
                }
            } else if words[at] == "macro_rules" {
                at = behind(&words, at);
            } else if let ("struct" | "enum", Some(name)) = (words[at], words.get(at + 1)) {
                source.declare(name, &words, at);
                at += 2;
            } else if words[at] == "impl" && is_first {
                if let Some((name, braces)) = owner(&words, at) {
                    source.impls.push((name.to_owned(), methods(&words, braces)));
                }
                at += 1;
            } else {
                at += 1;
            }
        }
        source
    }

    fn declare(&mut self, name: &str, words: &[&str], at: usize) {
        let mut braces = behind_generics(words, at + 2);
        if words.get(braces) == Some(&"where") {
            while braces < words.len() && !matches!(words[braces], "{" | ";") {
                braces += 1;
            }
        }
        let has_names = words[at] == "struct" && words.get(braces) == Some(&"{");
        self.types.push((name.to_owned(), if has_names { fields(words, braces) } else { 0 }));
    }
}
