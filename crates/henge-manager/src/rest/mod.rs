//! The REST API: routes, and the OpenAPI document made from the same source.

mod disks;
mod extract;
pub mod harness;
mod identities;
mod others;
mod problem;
mod tenants;
pub(crate) mod views;

use crate::audit::{Audit, audited, received, to_its_end};
use crate::authority::Authority;
use crate::core::Core;
use crate::machine::Caller;
use crate::tokens;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use henge_web::{Turns, only_looks};
use problem::Problem;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tower_http::limit::RequestBodyLimitLayer;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Longest body.
const BODY_MAX: usize = 64 << 10;
/// Most requests at once.
const REQUESTS_MAX: usize = 512;
/// Of them of one tenant, by whichever of its tokens, and of one token of the administrator: requests may wait for nodes, and one tenant's must
/// leave room for others'.
const EACH_MAX: usize = 64;

/// What handlers have.
#[derive(Clone)]
pub(crate) struct App {
    pub core: Core,
    pub authority: Authority,
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Henge", description = "Virtual disks on request: admitted, placed, remembered.",
        license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT"), contact()),
    security(("token" = [])),
    modifiers(&Tokens),
)]
struct Document;

struct Tokens;

impl Modify for Tokens {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi()).nest(
        "/api/v1",
        OpenApiRouter::new()
            .routes(routes!(disks::list, disks::create))
            .routes(routes!(disks::show, disks::put, disks::patch, disks::remove))
            .routes(routes!(disks::rekey))
            .routes(routes!(disks::admit))
            .routes(routes!(others::nodes))
            .routes(routes!(others::node, others::forget))
            .routes(routes!(others::drain, others::undrain))
            .routes(routes!(others::pools))
            .routes(routes!(others::events))
            .routes(routes!(others::list_tokens, others::create_token))
            .routes(routes!(others::remove_token))
            .routes(routes!(identities::show))
            .routes(routes!(identities::invite))
            .routes(routes!(identities::uninvite))
            .routes(routes!(identities::join))
            .routes(routes!(identities::trust))
            .routes(routes!(identities::renew))
            .routes(routes!(identities::revoke))
            .routes(routes!(identities::rotate))
            .routes(routes!(identities::retire))
            .routes(routes!(tenants::list))
            .routes(routes!(tenants::show, tenants::patch, tenants::remove))
            .routes(routes!(others::health)),
    )
}

/// Routes and their description, with the terms that a table has.
fn described(routes: OpenApiRouter<App>) -> (Router<App>, utoipa::openapi::OpenApi) {
    let (router, mut document) = routes.split_for_parts();
    crate::model::describe(&mut document);
    views::describe(&mut document);
    (router, document)
}

/// The OpenAPI document, as the repository keeps it in `docs/openapi.json`.
pub fn openapi() -> String {
    let document = described(routes()).1;
    let mut text = document.to_pretty_json().expect("a document is texts");
    text.push('\n');
    text
}

/// All routes.
pub(crate) fn router(core: Core, audit: Arc<Audit>, authority: Authority) -> Router {
    let audited = axum::middleware::from_fn_with_state(Arc::clone(&audit), audited);
    let to_its_end = axum::middleware::from_fn_with_state(audit, to_its_end);
    let places =
        Places { asking: Arc::default(), busy: Arc::default(), looks: Turns::default(), core: core.clone() };
    let app = App { core, authority };
    let (router, document) = described(routes());
    // Anybody may ask for it: it is written once.
    let document = Bytes::from(serde_json::to_vec(&document).expect("a document is texts"));
    router
        .route(
            "/api/v1/openapi.json",
            axum::routing::get(move || async move {
                ([(header::CONTENT_TYPE, "application/json")], document.clone())
            }),
        )
        .fallback(missing)
        .method_not_allowed_fallback(wrong_method)
        .with_state(app)
        .layer(audited)
        .layer(RequestBodyLimitLayer::new(BODY_MAX))
        .layer(axum::middleware::map_response(too_long))
        .layer(axum::middleware::from_fn_with_state(places, bounded))
        .layer(to_its_end)
        .layer(axum::middleware::from_fn(whole))
}

/// A request has a place once all of it is there: who sends slowly keeps nobody else out.
async fn whole(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    // One that says that it is too long is not read.
    let length =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > BODY_MAX) {
        return next.run(Request::from_parts(parts, body)).await;
    }
    let body = received(body).await;
    next.run(Request::from_parts(parts, Body::from(body))).await
}

async fn missing(uri: axum::http::Uri) -> Problem {
    let path = crate::shorten::shorten(uri.path());
    Problem::new(
        StatusCode::NOT_FOUND,
        format!("there is nothing at {path}; /api/v1/openapi.json says what there is"),
    )
}

async fn wrong_method(method: axum::http::Method) -> Problem {
    let why = format!("{method} is not understood there; /api/v1/openapi.json says what is");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, why)
}

/// The limit's own refusal is plain text, and all of ours are problems.
async fn too_long(response: Response) -> Response {
    let problem =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == problem::CONTENT_TYPE);
    if response.status() != StatusCode::PAYLOAD_TOO_LARGE || problem {
        return response;
    }
    let why = format!("the body has more than {} KiB, which no request needs", BODY_MAX >> 10);
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, why).into_response()
}

/// Requests under way, by whose they are.
#[derive(Default)]
struct Busy(Mutex<HashMap<String, usize>>, AtomicUsize);

impl Busy {
    /// One more of this one; how many others there are, of all and of this one.
    fn enter(&self, whose: &str) -> (usize, usize) {
        let mut each = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = each.entry(whose.to_owned()).or_default();
        *mine += 1;
        (self.1.fetch_add(1, Ordering::Relaxed), *mine - 1)
    }

    fn leave(&self, whose: &str) {
        let mut each = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.1.fetch_sub(1, Ordering::Relaxed);
        if let Some(mine) = each.get_mut(whose) {
            *mine -= 1;
            if *mine == 0 {
                each.remove(whose);
            }
        }
    }
}

/// A request's place, until it is answered.
struct Place(Arc<Busy>, String);

impl Place {
    /// With how many others there are, of all and of this one.
    fn take(busy: &Arc<Busy>, whose: String) -> (Place, usize, usize) {
        let (others, own) = busy.enter(&whose);
        (Place(Arc::clone(busy), whose), others, own)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.leave(&self.1);
    }
}

/// Places for requests.
#[derive(Clone)]
struct Places {
    /// By a hash of what they carry as their token, from when they come.
    asking: Arc<Busy>,
    /// By whose token it is, from when that is known.
    busy: Arc<Busy>,
    /// Of those that look. A list of thousands of disks has all of the core while it is made.
    looks: Turns,
    core: Core,
}

/// Whose place a request of this caller has: all of a tenant's tokens have the same, and each of the administrator's its own.
fn whose(known: &tokens::Known) -> String {
    match (known.caller.tenant(), &known.caller) {
        (Some(tenant), _) => format!("tenant {tenant}"),
        (None, Caller::Disk { name, .. }) => format!("disk {name}"),
        (None, _) => format!("token {}", known.id),
    }
}

fn crowded(most: usize) -> Response {
    let why = format!("more than {most} requests at once; come again in a second");
    Problem::new(StatusCode::TOO_MANY_REQUESTS, why).into_response()
}

/// So many requests at once, and no more.
async fn bounded(State(places): State<Places>, mut request: Request, next: Next) -> Response {
    // Who carries no known token is answered without waiting for anything, and has a place of all alone.
    let (mut asks, mut stranger) = (None, String::new());
    if let Ok(token) = henge_web::bearer(request.headers()) {
        let (place, _, own) = Place::take(&places.asking, tokens::fingerprint(token.as_bytes()));
        if own >= EACH_MAX {
            return crowded(EACH_MAX);
        }
        stranger.clone_from(&place.1);
        asks = Some(place);
        let token = token.to_owned();
        // Whether it is known is the handlers' to say.
        if let Ok(Ok(known)) = places.core.call(move |machine| tokens::known(machine, &token)).await {
            stranger.clear();
            request.extensions_mut().insert(known);
        }
    }
    let known = request.extensions().get::<tokens::Known>();
    let (place, others, own) = Place::take(&places.busy, known.map_or(stranger, whose));
    if others >= REQUESTS_MAX {
        return crowded(REQUESTS_MAX);
    }
    if own >= EACH_MAX && known.is_some() {
        return crowded(EACH_MAX);
    }
    let mut turn = None;
    if known.is_some() && only_looks(request.method(), request.uri().path()) {
        let mine = places.looks.take(place.1.clone()).await;
        // Meanwhile its token may have been removed.
        if mine.waited() {
            request.extensions_mut().remove::<tokens::Known>();
        }
        turn = Some(mine);
    }
    let response = next.run(request).await;
    drop((turn, place, asks));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Machine, Settings};
    use crate::store::MemoryStore;
    use crate::tokens::Scope;
    use axum::http::Method;
    use henge_web::LOOKS_MAX;
    use tower_service::Service;

    /// Tokens of these tenants, and two of the administrator.
    fn furnished(tenants: &[&str]) -> (Places, Vec<String>) {
        let core = Core::start(Settings::default(), MemoryStore::default()).unwrap();
        let all = tenants.iter().map(|tenant| Some((*tenant).to_owned())).chain([None, None]);
        let made = all.map(|tenant| tokens::create(Scope { tenant, ..Scope::default() }, 1, None).unwrap());
        let (given, records): (Vec<_>, Vec<_>) = made.unzip();
        let put = move |machine: &mut Machine| {
            records.into_iter().for_each(|record| machine.tokens.put(&mut machine.journal, record));
        };
        core.call_and_wait(put).unwrap();
        (Places { asking: Arc::default(), busy: Arc::default(), looks: Turns::default(), core }, given)
    }

    /// The runtime looks at some sixty tasks between two looks at the test.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// So many requests, one after the other, that are never over: how many of each are let in, and how many are refused.
    async fn let_in(places: Places, asked: &[(Method, &str, usize)]) -> Vec<(usize, usize)> {
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let inside = tell.clone();
        let stays = move || {
            inside.send(true).unwrap();
            std::future::pending::<()>()
        };
        let routes = Router::new().route("/", axum::routing::get(stays.clone()).post(stays));
        let routes = routes.layer(axum::middleware::from_fn_with_state(places.clone(), bounded));
        let mut all = Vec::new();
        for (method, token, times) in asked {
            for _ in 0..*times {
                let request = Request::builder()
                    .method(method)
                    .header(header::AUTHORIZATION, format!("Bearer {token}"));
                let (mut routes, tell) = (routes.clone(), tell.clone());
                tokio::spawn(async move {
                    let answer = routes.call(request.body(Body::empty()).unwrap()).await.unwrap();
                    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
                    tell.send(false).unwrap();
                });
            }
            // Each asks the core; whoever asks it after them is answered after them; then each goes on as far as it comes.
            settle().await;
            places.core.call(|_| ()).await.unwrap();
            settle().await;
            let heard: Vec<bool> = std::iter::from_fn(|| told.try_recv().ok()).collect();
            let inside = heard.iter().filter(|inside| **inside).count();
            all.push((inside, heard.len() - inside));
        }
        all
    }

    #[tokio::test]
    async fn a_tenant_looks_by_turns() {
        let (places, given) = furnished(&["ann", "ann", "bob"]);
        let asked = [
            (Method::GET, &*given[0], 20),
            (Method::GET, &given[1], 20),
            (Method::GET, &given[2], 20),
            (Method::POST, &given[0], 20),
        ];
        assert_eq!(let_in(places, &asked).await, [(LOOKS_MAX, 0), (0, 0), (LOOKS_MAX, 0), (20, 0)]);
    }

    /// All of them have as many places as one, and more than the rest would be: others have theirs.
    #[tokio::test]
    async fn a_tenant_of_many_tokens_leaves_others_their_places() {
        let (places, given) = furnished(&["ann"; 9]);
        let (mut asked, mut expected) = (Vec::new(), Vec::new());
        for token in &given[..9] {
            asked.push((Method::POST, &**token, 60));
            expected.push(if expected.is_empty() { (60, 0) } else { (0, 60) });
        }
        expected[1] = (EACH_MAX - 60, 60 - (EACH_MAX - 60));
        // Each token of the administrator has as many of its own.
        for token in &given[9..] {
            asked.push((Method::POST, token, EACH_MAX + 1));
            expected.push((EACH_MAX, 1));
        }
        assert_eq!(let_in(places, &asked).await, expected);
    }

    #[test]
    fn places_are_counted_for_each_and_given_back() {
        let busy = Busy::default();
        assert_eq!([busy.enter("ann"), busy.enter("ann"), busy.enter("bob")], [(0, 0), (1, 1), (2, 0)]);
        busy.leave("ann");
        busy.leave("ann");
        assert_eq!(busy.enter("ann"), (1, 0));
        busy.leave("ann");
        busy.leave("bob");
        assert!(busy.0.lock().unwrap().is_empty());
    }
}
