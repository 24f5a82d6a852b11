//! Pages that are told live, by server-sent events: everything first, then what changes.

use super::{App, Shared, Who, blocking, is_local, token};
use crate::source::{Noted, Problem, Viewer};
use crate::view::Tick;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, StreamExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::wrappers::BroadcastStream;

/// Most pages that are told live at once.
const STREAMS_MAX: usize = 256;
/// Of them, of one tenant: its own leave room for others'.
const STREAMS_EACH: usize = STREAMS_MAX / 4;

/// A second's news, encoded once for everybody who sees everything.
pub(super) struct Update {
    pub tick: Tick,
    pub text: String,
    pub events: Vec<Noted>,
    pub generation: u64,
    pub problem: Option<String>,
}

/// Pages that are told live, by tenant.
pub(super) type Streams = BTreeMap<Option<String>, usize>;

/// Counts a page that is told live, until it goes.
struct Listening(Arc<App>, Option<String>);

impl Listening {
    /// One more of this viewer, if there is room for it.
    fn begin(app: &Arc<App>, viewer: &Viewer) -> Result<Listening, Problem> {
        let mut streams = app.streams();
        let own = streams.get(&viewer.tenant).copied().unwrap_or(0);
        let full = |most: usize, whose: &str| Problem::Gone(format!("{most} pages{whose} are open already"));
        if streams.values().sum::<usize>() >= STREAMS_MAX {
            return Err(full(STREAMS_MAX, ""));
        }
        if viewer.tenant.is_some() && own >= STREAMS_EACH {
            return Err(full(STREAMS_EACH, " of this tenant"));
        }
        streams.insert(viewer.tenant.clone(), own + 1);
        Ok(Listening(Arc::clone(app), viewer.tenant.clone()))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut streams = self.0.streams();
        let Some(own) = streams.get_mut(&self.1) else { return };
        *own -= 1;
        if *own == 0 {
            streams.remove(&self.1);
        }
    }
}

/// Asks the source anew who looks, as its first request did.
type Again = Arc<dyn Fn(&App) -> Result<Viewer, Problem> + Send + Sync>;

pub(super) async fn stream(State(app): Shared, Stays(viewer, again): Stays) -> Result<Response, Problem> {
    let listening = Listening::begin(&app, &viewer)?;
    let updates = BroadcastStream::new(app.updates.subscribe());
    let news = told(listening, viewer, again, updates);
    let alive = KeepAlive::new().interval(Duration::from_secs(10));
    let no_buffering = [(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"))];
    Ok((no_buffering, Sse::new(news).keep_alive(alive)).into_response())
}

/// Who looks, and how to ask that again.
pub(super) struct Stays(Viewer, Again);

impl FromRequestParts<Arc<App>> for Stays {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let Who(viewer) = Who::from_request_parts(parts, app).await?;
        let (token, local) = (token(&parts.headers).map(str::to_owned), is_local(parts));
        Ok(Stays(viewer, Arc::new(move |app| app.source.viewer(token.as_deref(), local))))
    }
}

/// Whether who looks may still look: not once the token is removed or has expired. A source that does not answer takes nothing away.
async fn may_stay(app: &Arc<App>, again: &Again) -> bool {
    let again = Arc::clone(again);
    let viewer = blocking(app, move |app| again(app)).await;
    !matches!(viewer, Err(Problem::Token(_) | Problem::Forbidden(_)))
}

/// Everything, then what changes; everything again when disks came or went, or when a slow page missed something.
fn told(
    listening: Listening,
    viewer: Viewer,
    again: Again,
    updates: BroadcastStream<Arc<Update>>,
) -> impl Stream<Item = Result<Sent, Infallible>> {
    let whole = move |listening: &Listening, viewer: &Viewer| {
        let (text, generation) = listening.0.snapshots.of(&listening.0.hub, viewer);
        let text = std::str::from_utf8(&text).expect("JSON is text");
        (Sent::default().event("snapshot").data(text), generation)
    };
    let (first, generation) = whole(&listening, &viewer);
    let mut known = Some(generation);
    let app = Arc::clone(&listening.0);
    let allowed = updates.then(move |update| {
        let (app, again) = (Arc::clone(&app), Arc::clone(&again));
        async move { may_stay(&app, &again).await.then_some(update) }
    });
    let rest = allowed.take_while(|update| std::future::ready(update.is_some())).flat_map(move |update| {
        let mut out = Vec::new();
        match update.expect("the stream ends where there is none") {
            Ok(update) if update.problem.is_some() => {
                let problem = json!({ "error": update.problem, "at": update.tick.at });
                out.push(Sent::default().event("problem").data(problem.to_string()));
                known = None;
            }
            Ok(update) if known == Some(update.generation) => {
                let own = listening.0.hub().restrict(&viewer, &update.tick);
                let text = own.map_or_else(
                    || update.text.clone(),
                    |tick| serde_json::to_string(&tick).expect("a tick is plain data"),
                );
                out.push(Sent::default().event("tick").data(text));
                let events: Vec<&Noted> =
                    update.events.iter().filter(|noted| viewer.may_know(noted)).collect();
                if !events.is_empty() {
                    let text = serde_json::to_string(&events).expect("events are plain data");
                    out.push(Sent::default().event("events").data(text));
                }
            }
            _ => {
                let (event, generation) = whole(&listening, &viewer);
                known = Some(generation);
                out.push(event);
            }
        }
        futures_util::stream::iter(out.into_iter().map(Ok))
    });
    futures_util::stream::iter([Ok(first)]).chain(rest)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::offer::{Attach, Tenant, Wanted};
    use crate::source::{Changed, Compare, Comparison, DiskMeta, NodeSample, Preview, Sample, Source, Terms};
    use henge_api::{DiskStatus, Event, EventKind, Status};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Two tenants' disks, of which one has the name that the other's had before; an event of each a second. Tokens of tenants are like `ann-1`.
    pub(in crate::http) struct Both;

    impl Source for Both {
        fn sample(&self) -> Result<Sample, Problem> {
            let disk = |name: &str| DiskStatus { name: name.into(), ..DiskStatus::default() };
            let status = Status { disks: vec![disk("anns"), disk("bobs")], ..Status::default() };
            let node =
                NodeSample { name: "n".into(), up: true, status: Arc::new(status), ..NodeSample::default() };
            let of = |tenant: &str| DiskMeta { tenant: Some(tenant.into()), ..DiskMeta::default() };
            let disks = BTreeMap::from([("anns".to_owned(), of("ann")), ("bobs".to_owned(), of("bob"))]);
            Ok(Sample { nodes: vec![node], disks, ..Sample::default() })
        }
        fn viewer(&self, token: Option<&str>, _: bool) -> Result<Viewer, Problem> {
            let tenant = token.and_then(|token| token.split_once('-')).map(|(tenant, _)| tenant.to_owned());
            Ok(Viewer { tenant, ..Viewer::default() })
        }
        fn events(&self, _: &Viewer, _: Option<&str>, after: u64, _: usize) -> Result<Vec<Noted>, Problem> {
            let one = |seq: u64, detail: &str, tenant: Option<&str>| {
                let (name, detail) = ("anns".to_owned(), detail.to_owned());
                let event = Event { seq, at: 0, kind: EventKind::Changed, name, detail };
                Noted { event, tenant: tenant.map(str::to_owned) }
            };
            Ok(vec![
                one(after + 1, "of ann", Some("ann")),
                one(after + 2, "of bob, who had the name", Some("bob")),
                one(after + 3, "of the node", None),
            ])
        }
        fn change(&self, _: &Viewer, _: &str, _: &Terms) -> Result<Changed, Problem> {
            Ok(Changed::default())
        }
        fn preview(&self, _: &Viewer, _: &str, _: &Terms) -> Result<Preview, Problem> {
            Ok(Preview::default())
        }
        fn offer(&self, _: &Viewer, _: &Wanted) -> Result<Preview, Problem> {
            Ok(Preview::default())
        }
        fn create(&self, _: &Viewer, _: &Wanted) -> Result<Attach, Problem> {
            Ok(Attach::default())
        }
        fn remove(&self, _: &Viewer, _: &str, _: bool) -> Result<Changed, Problem> {
            Ok(Changed::default())
        }
        fn attach(&self, _: &Viewer, _: &str) -> Result<Attach, Problem> {
            Ok(Attach::default())
        }
        fn tenants(&self, _: &Viewer) -> Result<Vec<Tenant>, Problem> {
            Ok(Vec::new())
        }
        fn set_quota(&self, _: &Viewer, _: &str, _: &Terms) -> Result<Changed, Problem> {
            Ok(Changed::default())
        }
        fn compare(&self, _: &Viewer, _: &Compare) -> Result<Comparison, Problem> {
            Ok(Comparison::default())
        }
    }

    /// What a page hears until the second update.
    fn heard(tenant: Option<&str>) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let app = App::new(Arc::new(Both));
            let first = super::super::update(&app, None).unwrap();
            let newest = first.events.last().map(|noted| noted.event.seq);
            let viewer = Viewer { tenant: tenant.map(str::to_owned), ..Viewer::default() };
            let updates = BroadcastStream::new(app.updates.subscribe());
            let again: Again = Arc::new(|app| app.source.viewer(None, true));
            let told = told(Listening::begin(&app, &viewer).unwrap(), viewer, again, updates).take(3);
            assert!(app.updates.send(Arc::new(super::super::update(&app, newest).unwrap())).is_ok());
            let body = Sse::new(told).into_response().into_body();
            let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            String::from_utf8(bytes.to_vec()).unwrap()
        })
    }

    #[test]
    fn a_page_whose_token_is_removed_hears_no_more() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let app = App::new(Arc::new(Both));
            let first = super::super::update(&app, None).unwrap();
            let newest = first.events.last().map(|noted| noted.event.seq);
            let asked = AtomicUsize::new(0);
            // Known at the first update, away at the second, unknown at the third.
            let again: Again = Arc::new(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
                0 => Ok(Viewer::default()),
                1 => Err(Problem::Gone("away".into())),
                _ => Err(Problem::Token("removed".into())),
            });
            let updates = BroadcastStream::new(app.updates.subscribe());
            let listening = Listening::begin(&app, &Viewer::default()).unwrap();
            let told = told(listening, Viewer::default(), again, updates);
            for _ in 0..4 {
                assert!(app.updates.send(Arc::new(super::super::update(&app, newest).unwrap())).is_ok());
            }
            // The stream ends by itself, though updates go on; what it is counted by is given back.
            assert_eq!(app.streams().len(), 1);
            let body = Sse::new(told).into_response().into_body();
            let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            assert_eq!(text.matches("event: tick").count(), 2, "{text}");
            assert!(app.streams().is_empty());
        });
    }

    #[test]
    fn one_tenants_pages_leave_room_for_others() {
        let app = App::new(Arc::new(Both));
        let of = |tenant: Option<&str>| Viewer { tenant: tenant.map(str::to_owned), ..Viewer::default() };
        let begin = |tenant| Listening::begin(&app, &of(tenant));
        let mut anns: Vec<_> = (0..STREAMS_EACH).map(|_| begin(Some("ann")).ok().unwrap()).collect();
        let why = begin(Some("ann")).err().unwrap().to_string();
        assert!(why.contains("of this tenant") && begin(Some("bob")).is_ok() && begin(None).is_ok(), "{why}");
        anns.pop();
        assert!(begin(Some("ann")).is_ok());
        drop(anns);
        assert!(app.streams().is_empty());
        let all: Vec<_> = (0..STREAMS_MAX).map(|_| begin(None).ok().unwrap()).collect();
        assert!(begin(None).is_err() && begin(Some("bob")).is_err());
        drop(all);
    }

    #[test]
    fn a_viewer_of_one_disk_sees_that_one_of_its_tenant() {
        let viewer = Viewer { tenant: Some("ann".into()), disk: Some("a".into()), ..Viewer::default() };
        let sees = |name, tenant| viewer.may_see(name, tenant);
        assert!(
            sees("a", Some("ann")) && !sees("b", Some("ann")) && !sees("a", Some("bob")) && !sees("a", None)
        );
        let of_nobody = Viewer { disk: Some("a".into()), ..Viewer::default() };
        assert!(
            of_nobody.may_see("a", None) && !of_nobody.may_see("a", Some("ann")) && !of_nobody.sees_all()
        );
        assert!(Viewer::default().may_see("a", Some("ann")) && Viewer::default().sees_all());
    }

    #[test]
    fn a_tenant_hears_of_its_own_disks_alone() {
        let all = heard(None);
        assert!(all.contains("of ann") && all.contains("of bob") && all.contains("of the node"), "{all}");
        assert!(all.contains("\"anns\"") && all.contains("\"bobs\""), "{all}");
        let anns = heard(Some("ann"));
        assert!(anns.contains("of ann") && anns.contains("event: events"), "{anns}");
        assert!(!anns.contains("bob") && !anns.contains("of the node"), "{anns}");
    }
}
