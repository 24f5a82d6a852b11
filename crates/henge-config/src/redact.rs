//! Texts of configurations without their secrets, for logs and error messages.

/// What stands in place of a secret.
pub(crate) const HIDDEN: &str = "\"…\"";

/// Whether the value of this key is nobody's business.
fn is_secret(key: &str) -> bool {
    let last = key.rsplit('.').next().unwrap_or(key).to_ascii_lowercase();
    !last.ends_with("_file") && ["secret", "password", "token"].iter().any(|word| last.contains(word))
}

/// The text with the values of `secret`, `target_secret`, `password` and the like hidden. It need not be valid TOML: errors
/// show texts that are not.
pub fn redacted(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(equals) = rest.find('=') {
        let (before, after) = rest.split_at(equals + 1);
        shown.push_str(before);
        let bare = before[..equals].trim_end().trim_end_matches(['"', '\'']);
        let key_start = bare.rfind(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')));
        let key = &bare[key_start.map_or(0, |at| at + bare[at..].chars().next().map_or(1, char::len_utf8))..];
        let value = after.trim_start_matches([' ', '\t']);
        if is_secret(key) {
            shown.push_str(&after[..after.len() - value.len()]);
            shown.push_str(HIDDEN);
            rest = &value[value_len(value)..];
        } else {
            rest = after;
        }
    }
    shown.push_str(rest);
    without_keys(&shown)
}

/// Whether a line that begins at `at` does so within a secret.
pub(crate) fn begins_within(text: &str, at: usize) -> bool {
    at > 0 && !redacted(&text[..at]).ends_with('\n')
}

/// What secrets of NVMe hosts begin with: they are hidden by whatever key they stand, or in a list.
const HOSTS_SECRET: &str = "DHHC-1:";

fn without_keys(text: &str) -> String {
    let mut parts = text.split(HOSTS_SECRET);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '+' | '/' | '=');
        shown.push('…');
        shown.push_str(part.trim_start_matches(is_part));
    }
    shown
}

/// How far a value goes: a quoted text to its end (or the text's, where it has none), else to the next separator.
fn value_len(value: &str) -> usize {
    for quotes in ["\"\"\"", "'''", "\"", "'"] {
        let Some(inside) = value.strip_prefix(quotes) else { continue };
        let mut escaped = false;
        for (at, c) in inside.char_indices() {
            if !escaped && inside[at..].starts_with(quotes) {
                return quotes.len() + at + quotes.len();
            }
            escaped = !escaped && c == '\\' && quotes.starts_with('"');
        }
        return value.len();
    }
    value.find([',', '}', ']', '\n', '#']).unwrap_or(value.len())
}

#[cfg(test)]
mod tests {
    use super::redacted;

    #[test]
    fn secrets_are_hidden_wherever_they_stand() {
        for (text, shown) in [
            ("name = \"web\"", "name = \"web\""),
            ("secret = \"abc\" # mine", "secret = \"…\" # mine"),
            (
                "iscsi = { user = \"ann\", secret = \"a\\\"b,c\", initiators = [] }",
                "iscsi = { user = \"ann\", secret = \"…\", initiators = [] }",
            ),
            ("iscsi.target_secret='x' ", "iscsi.target_secret=\"…\" "),
            ("\"secret\" = \"abc\"", "\"secret\" = \"…\""),
            ("secret = \"\"\"a\nb\"\"\"\nname = 1", "secret = \"…\"\nname = 1"),
            ("password = 12345, x = 1", "password = \"…\", x = 1"),
            ("secret = \"never closed", "secret = \"…\""),
            ("secret_file = \"/etc/henge/secret\"", "secret_file = \"/etc/henge/secret\""),
            ("key = \"DHHC-1:00:AA+/=:\"", "key = \"…\""),
            ("hosts = [\"DHHC-1:00:AA==:\", \"b\"]", "hosts = [\"…\", \"b\"]"),
            ("é = 1\nsecret = \"é\"", "é = 1\nsecret = \"…\""),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }

    #[test]
    fn an_error_shows_its_line_without_the_secret() {
        let source = crate::Source::new("node.toml", "iscsi = { secret = \"hush\", user = 7 }\n");
        let mut file = source.parse("node.toml").unwrap();
        let mut table = file.table("iscsi").unwrap().unwrap();
        for error in [table.text("user").unwrap_err(), table.error("secret", "too short".into())] {
            let shown = source.point(error).to_string();
            assert!(!shown.contains("hush") && shown.contains("secret = \"…\""), "{shown}");
        }
    }

    #[test]
    fn an_error_within_a_secret_of_several_lines_does_not_show_its_line() {
        let text = "a = 1\nsecret = \"\"\"\nhush \\q\n\"\"\"\n";
        let shown = crate::Source::new("node.toml", text).parse("node.toml").unwrap_err().to_string();
        assert!(shown.contains("node.toml:3:7") && shown.contains("3 | \"…\""), "{shown}");
        assert!(!shown.contains("hush"), "{shown}");
    }
}
