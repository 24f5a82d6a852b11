//! The routes.
//!
//! | path | is |
//! |---|---|
//! | `GET /` | the page |
//! | `GET /metrics` | for Prometheus |
//! | `GET /api/v1/stream` | server-sent events: `snapshot` first and whenever disks come or go, then `tick`, `events`, `problem` |
//! | `GET /api/v1/live/snapshot` | everything once |
//! | `GET /api/v1/live/sparks?ids=1,2` | the last minute of some disks |
//! | `GET /api/v1/live/disks/{name}` | a disk's history and heat map; with `?after=T` only what is newer |
//! | `PUT /api/v1/live/disks/{name}/contract` | changes terms |
//! | `POST /api/v1/live/disks/{name}/preview` | what that would answer |
//! | `POST /api/v1/live/offer` | what making a disk would answer |
//! | `POST /api/v1/live/disks` | makes a disk, and says how to attach to it |
//! | `DELETE /api/v1/live/disks/{name}` | removes it and its data; with `?force=true` also one that clients use |
//! | `GET /api/v1/live/disks/{name}/attach` | how to attach to it |
//! | `GET /api/v1/live/tenants` | tenants and their quotas |
//! | `PUT /api/v1/live/tenants/{name}/quota` | changes terms of one |
//! | `GET /api/v1/live/nodes/{name}` | a node's history; the same |
//! | `GET /api/v1/live/events?after=N` | what happened |
//! | `POST /api/v1/live/compare` | records the load and simulates it under several schedulers |
//! | `GET, POST, DELETE /api/v1/live/session` | who looks; log in by token; log out |

mod by_turns;
mod disks;
mod live;
mod snapshots;

use crate::assets::asset;
use crate::guard::{cookie, is_local, is_token, may_change, token};
use crate::hub::Hub;
use crate::owner::Caller;
use crate::source::{Asks, Changed, Compare, Problem, Source, Terms, Viewer};
use crate::turns::Turns;
use crate::view::Tick;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Router, http};
use by_turns::{Known, by_turns};
use live::{Streams, Update, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use snapshots::Snapshots;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::broadcast;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::set_header::SetResponseHeaderLayer;

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// The longest request.
const BODY_MAX: usize = 64 << 10;

struct App {
    source: Arc<dyn Source>,
    hub: Mutex<Hub>,
    snapshots: Snapshots,
    updates: broadcast::Sender<Arc<Update>>,
    streams: Mutex<Streams>,
    turns: Turns,
    problem: Mutex<Option<String>>,
}

impl App {
    fn new(source: Arc<dyn Source>) -> Arc<App> {
        Arc::new(App {
            source,
            hub: Mutex::default(),
            snapshots: Snapshots::default(),
            updates: broadcast::channel(4).0,
            streams: Mutex::default(),
            turns: Turns::default(),
            problem: Mutex::new(None),
        })
    }

    fn hub(&self) -> MutexGuard<'_, Hub> {
        self.hub.lock().expect("nobody panics while figuring")
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().expect("nobody panics while counting")
    }
}

type Shared = State<Arc<App>>;

/// All routes. To be called inside a tokio runtime, which then takes a look at the source once a second.
pub fn router(source: Arc<dyn Source>) -> Router {
    let app = App::new(Arc::clone(&source));
    tokio::spawn(look(Arc::downgrade(&app)));
    let live = Router::new()
        .route("/snapshot", get(snapshot))
        .route("/sparks", get(sparks))
        .route("/offer", post(disks::offer))
        .route("/disks", post(disks::create))
        .route("/disks/{name}", get(disk).delete(disks::remove))
        .route("/disks/{name}/attach", get(disks::attach))
        .route("/tenants", get(disks::tenants))
        .route("/tenants/{name}/quota", put(disks::set_quota))
        .route("/disks/{name}/contract", put(change))
        .route("/disks/{name}/preview", post(preview))
        .route("/nodes/{name}", get(node))
        .route("/events", get(events))
        .route("/compare", post(compare))
        .route("/session", get(session).post(log_in).delete(log_out));
    let fixed = |name: &'static str, value: &'static str| {
        SetResponseHeaderLayer::if_not_present(HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    let routes = Router::new()
        .nest("/api/v1/live", live)
        .route("/api/v1/stream", get(stream))
        .route("/metrics", get(metrics))
        .route_layer(axum::middleware::from_fn_with_state(Arc::clone(&app), by_turns))
        .fallback(page)
        .with_state(app);
    // Who notes refusals reads them, so they are compressed after that.
    source
        .around(routes)
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(CompressionLayer::new().quality(CompressionLevel::Fastest))
        .layer(fixed("x-content-type-options", "nosniff"))
        .layer(fixed("referrer-policy", "no-referrer"))
        .layer(fixed("cache-control", "no-store"))
        .layer(fixed(
            "content-security-policy",
            "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'",
        ))
}

fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Looks once a second for as long as the router lives.
async fn look(app: std::sync::Weak<App>) {
    let mut every = tokio::time::interval(PERIOD);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut newest = None;
    loop {
        every.tick().await;
        let Some(app) = app.upgrade() else { return };
        let after = newest;
        let seen = tokio::task::spawn_blocking(move || update(&app, after).map(|update| (app, update))).await;
        let Ok(Some((app, update))) = seen else { continue };
        newest = update.events.last().map(|noted| noted.event.seq).or(newest);
        // Nobody may be listening.
        let _ = app.updates.send(Arc::new(update));
    }
}

fn update(app: &App, after: Option<u64>) -> Option<Update> {
    let sample = app.source.sample();
    // Only what comes from now on is news.
    let everybody = Viewer::default();
    let events = match after {
        None => app.source.events(&everybody, None, 0, 1),
        Some(after) => app.source.events(&everybody, None, after, 100),
    };
    let events = events.unwrap_or_default();
    let mut hub = app.hub();
    let (tick, problem) = match sample {
        Ok(sample) => (hub.see(sample, wall()), None),
        Err(problem) => (Tick { at: wall(), ..Tick::default() }, Some(problem.to_string())),
    };
    app.problem.lock().expect("nobody panics with it").clone_from(&problem);
    let text = serde_json::to_string(&tick).expect("a tick is plain data");
    let generation = hub.generation;
    drop(hub);
    app.snapshots.forget();
    Some(Update { tick, text, events, generation, problem })
}

/// Who asks; refuses those without the token that is needed.
struct Who(Viewer);

impl FromRequestParts<Arc<App>> for Who {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        if let Some(Known(viewer)) = parts.extensions.remove() {
            return Ok(Who(viewer));
        }
        let (token, local) = (token(&parts.headers).map(str::to_owned), is_local(parts));
        let viewer = blocking(app, move |app| app.source.viewer(token.as_deref(), local)).await?;
        if let Some(asks) = parts.extensions.get::<Asks>() {
            let _ = asks.set(viewer.clone());
        }
        Ok(Who(viewer))
    }
}

/// Runs what may block on a thread for such.
async fn blocking<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&App) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let app = Arc::clone(app);
    let done = tokio::task::spawn_blocking(move || work(&app)).await;
    done.unwrap_or_else(|_| Err(Problem::Gone("this failed inside the server; its log says more".into())))
}

async fn page(uri: Uri, method: http::Method) -> Response {
    match uri.path() {
        path if path.starts_with("/api/") => Problem::Unknown(format!("there is no {path}")).into_response(),
        _ if method != http::Method::GET && method != http::Method::HEAD => {
            StatusCode::METHOD_NOT_ALLOWED.into_response()
        }
        path => asset(path),
    }
}

async fn metrics(State(app): Shared, Who(viewer): Who, headers: HeaderMap) -> Result<Response, Problem> {
    if !viewer.sees_all() {
        return Err(Problem::Forbidden("metrics are of all tenants; this token is one tenant's".into()));
    }
    let open = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    let open = open.is_some_and(|accept| accept.contains("application/openmetrics-text"));
    let text = blocking(&app, move |app| {
        let text = crate::metrics::text(app.hub().sample());
        Ok(if open { text } else { crate::metrics::classic(&text) })
    });
    let kind = match open {
        true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        false => "text/plain; version=0.0.4; charset=utf-8",
    };
    Ok(([(header::CONTENT_TYPE, kind)], text.await?).into_response())
}

async fn snapshot(State(app): Shared, Who(viewer): Who) -> Result<Response, Problem> {
    if let Some(problem) = app.problem.lock().expect("nobody panics with it").clone() {
        return Err(Problem::Gone(problem));
    }
    let (text, _) = app.snapshots.of(&app.hub, &viewer);
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

#[derive(Deserialize)]
struct Ids {
    ids: String,
}

async fn sparks(State(app): Shared, Who(viewer): Who, Query(wanted): Query<Ids>) -> Response {
    let ids: Vec<u32> = wanted.ids.split(',').filter_map(|id| id.parse().ok()).take(200).collect();
    Json(app.hub().sparks(&viewer, &ids)).into_response()
}

fn no_disk(name: &str) -> Problem {
    Problem::Unknown(format!("there is no disk \"{name}\""))
}

#[derive(Deserialize)]
struct After {
    /// Only what is newer, by the server's clock.
    #[serde(default)]
    after: u64,
}

async fn disk(
    State(app): Shared,
    Who(viewer): Who,
    Path(name): Path<String>,
    Query(since): Query<After>,
) -> Result<Response, Problem> {
    let hub = app.hub();
    let view = hub.disk(&viewer, &name).ok_or_else(|| no_disk(&name))?;
    let history = hub.history(&name, since.after);
    let heat: Vec<&[u16]> = history.iter().map(|p| p.heat.as_slice()).collect();
    let edges: Vec<u64> = (0..crate::hub::HEAT).map(|i| 1u64 << (15 + i)).collect();
    Ok(Json(
        json!({ "disk": view, "history": history, "heat": heat, "edges_ns": edges, "kept": hub.kept(&name) }),
    )
    .into_response())
}

async fn node(
    State(app): Shared,
    Who(viewer): Who,
    Path(name): Path<String>,
    Query(since): Query<After>,
) -> Result<Response, Problem> {
    if !viewer.sees_all() {
        return Err(Problem::Forbidden("nodes are not shown to tenants".into()));
    }
    let hub = app.hub();
    if !hub.sample().nodes.iter().any(|n| n.name == name) {
        return Err(Problem::Unknown(format!("there is no node \"{name}\"")));
    }
    Ok(Json(json!({ "history": hub.node_history(&name, since.after) })).into_response())
}

#[derive(Deserialize)]
struct Since {
    #[serde(default)]
    after: u64,
    #[serde(default)]
    disk: Option<String>,
}

async fn events(
    State(app): Shared,
    Who(viewer): Who,
    Query(since): Query<Since>,
) -> Result<Response, Problem> {
    let events = move |app: &App| app.source.events(&viewer, since.disk.as_deref(), since.after, 500);
    Ok(Json(blocking(&app, events).await?).into_response())
}

fn read<T>(body: Result<Json<T>, JsonRejection>) -> Result<T, Problem> {
    body.map(|Json(body)| body).map_err(|e| Problem::Refused(e.body_text()))
}

/// Terms that somebody wants changed of a disk that the viewer may see.
struct Wish {
    viewer: Viewer,
    disk: String,
    terms: Terms,
}

impl FromRequest<Arc<App>> for Wish {
    type Rejection = Problem;
    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let Who(viewer) = Who::from_request_parts(&mut parts, app).await?;
        let path = Path::<String>::from_request_parts(&mut parts, app).await;
        let Path(disk) = path.map_err(|e| Problem::Unknown(e.body_text()))?;
        let terms = read(Json::from_request(Request::from_parts(parts, body), app).await)?;
        app.hub().disk(&viewer, &disk).ok_or_else(|| no_disk(&disk))?;
        Ok(Wish { viewer, disk, terms })
    }
}

async fn change(State(app): Shared, wish: Wish) -> Result<Response, Problem> {
    may_change(&wish.viewer)?;
    let changed = blocking(&app, move |app| app.source.change(&wish.viewer, &wish.disk, &wish.terms));
    Ok(done(changed.await?))
}

/// What was changed is for who notes it.
fn done(changed: Changed) -> Response {
    (Extension(changed), Json(json!({ "ok": true }))).into_response()
}

async fn preview(State(app): Shared, wish: Wish) -> Result<Response, Problem> {
    let preview = move |app: &App| app.source.preview(&wish.viewer, &wish.disk, &wish.terms);
    Ok(Json(blocking(&app, preview).await?).into_response())
}

async fn compare(
    State(app): Shared,
    Who(viewer): Who,
    body: Result<Json<Compare>, JsonRejection>,
) -> Result<Response, Problem> {
    let wanted = read(body)?;
    if !viewer.may_compare {
        return Err(Problem::Forbidden("this token may not record the load".into()));
    }
    if !(1..=300).contains(&wanted.seconds) || !(1..=6).contains(&wanted.schedulers.len()) {
        return Err(Problem::Refused("record for 1 to 300 seconds, and compare 1 to 6 schedulers".into()));
    }
    Ok(Json(blocking(&app, move |app| app.source.compare(&viewer, &wanted)).await?).into_response())
}

async fn session(Who(viewer): Who) -> Json<Viewer> {
    Json(viewer)
}

#[derive(Deserialize)]
struct LogIn {
    token: String,
}

/// Whether a request came by TLS.
type By = Option<Extension<Arc<Caller>>>;

fn secure(by: By) -> bool {
    by.is_some_and(|Extension(caller)| caller.is_secure())
}

async fn log_in(
    State(app): Shared,
    by: By,
    asks: Option<Extension<Asks>>,
    body: Result<Json<LogIn>, JsonRejection>,
) -> Result<Response, Problem> {
    let LogIn { token } = read(body)?;
    let wrong = || Problem::Token("nobody has this token".into());
    if !is_token(&token) {
        return Err(wrong());
    }
    let tried = token.clone();
    let viewer = blocking(&app, move |app| app.source.viewer(Some(&tried), false)).await;
    if viewer.is_err() {
        // Guessing is slow.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    if let (Ok(viewer), Some(Extension(asks))) = (&viewer, asks) {
        let _ = asks.set(viewer.clone());
    }
    Ok(([(header::SET_COOKIE, cookie(Some(&token), secure(by)))], Json(json!({ "viewer": viewer? })))
        .into_response())
}

async fn log_out(by: By) -> ([(HeaderName, String); 1], Json<Value>) {
    ([(header::SET_COOKIE, cookie(None, secure(by)))], Json(json!({ "ok": true })))
}
