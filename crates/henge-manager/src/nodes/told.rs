//! What a node was told last of whom to believe, and when that is tried again.

use crate::authority::Authority;
use henge_api::manager::Trust;
use std::time::{Duration, Instant};

/// After a failure it is tried again no sooner: a node may have the manager say something as often as it likes.
const AGAIN: Duration = Duration::from_secs(5);

/// What a node was told.
#[derive(Default)]
pub(super) struct Told {
    edition: Option<u64>,
    failed: Option<Instant>,
}

impl Told {
    /// Whom to believe, where the node has not heard it.
    pub(super) async fn news(&mut self, authority: &Authority, now: Instant) -> Option<Trust> {
        if self.failed.is_some_and(|failed| now.duration_since(failed) < AGAIN) {
            return None;
        }
        let edition = authority.edition().await.ok().filter(|edition| self.edition != Some(*edition))?;
        let trust = authority.trust().await;
        self.failed = trust.is_err().then_some(now);
        let trust = trust.ok()?;
        self.edition = Some(edition);
        Some(trust)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Core;
    use crate::machine::Settings;
    use crate::model::AuthorityRecord;
    use crate::store::MemoryStore;

    /// The list of a root that cannot be opened is not signed; once that is mended, each node hears it.
    #[tokio::test]
    async fn what_failed_is_said_later_and_not_at_each_word() {
        let core = Core::start(Settings::default(), MemoryStore::default()).unwrap();
        let authority = Authority::new(core.clone());
        authority.begin("demo").await.unwrap();
        let good = core.call(|machine| machine.identities.authority().cloned()).await.unwrap().unwrap();
        let mut bad = good.clone();
        bad.roots[0].key.clear();
        let put = |record: AuthorityRecord| {
            core.call(move |machine| machine.identities.put_authority(&mut machine.journal, record))
        };
        put(bad).await.unwrap();
        let (mut told, began) = (Told::default(), Instant::now());
        assert_eq!(told.news(&authority, began).await, None);
        put(good).await.unwrap();
        let soon = told.news(&authority, began + AGAIN / 2).await;
        assert_eq!(soon, None, "it is dear, and the node may ask for it");
        let later = told.news(&authority, began + AGAIN).await;
        assert!(later.is_some_and(|trust| trust.ca.contains("CERTIFICATE")), "the node never hears it");
        assert_eq!(told.news(&authority, began + AGAIN * 3).await, None, "it has heard it");
        core.stop();
    }
}
