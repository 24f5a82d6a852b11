//! Names from outside, in messages: no longer than a line has space for.

/// The first 64 letters.
pub(crate) fn shorten(text: &str) -> String {
    let short: String = text.chars().take(64).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}
