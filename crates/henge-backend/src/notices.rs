//! Notices of a store to people, until somebody takes them.

use std::collections::VecDeque;

/// Notices that nobody has taken; older ones are forgotten.
const MOST: usize = 16;

/// Notices about one thing. Each begins with its name.
#[derive(Debug)]
pub(crate) struct Notices {
    name: String,
    texts: VecDeque<String>,
}

impl Notices {
    pub(crate) fn about(name: impl Into<String>) -> Notices {
        Notices { name: name.into(), texts: VecDeque::new() }
    }

    pub(crate) fn tell(&mut self, text: &str) {
        if self.texts.len() == MOST {
            self.texts.pop_front();
        }
        self.texts.push_back(format!("{}: {text}", self.name));
    }

    /// The oldest.
    pub(crate) fn take(&mut self) -> Option<String> {
        self.texts.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let mut notices = Notices::about("it");
        (0..=MOST).for_each(|i| notices.tell(&i.to_string()));
        assert_eq!(notices.take().as_deref(), Some("it: 1"));
        assert_eq!(std::iter::from_fn(|| notices.take()).last(), Some(format!("it: {MOST}")));
    }
}
