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
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use problem::Problem;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_http::limit::RequestBodyLimitLayer;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Longest body.
const BODY_MAX: usize = 64 << 10;
/// Most requests at once.
const REQUESTS_MAX: usize = 512;
/// Of them of one token, whoever holds it: requests may wait for nodes, and one tenant's must leave room for others'.
const EACH_MAX: usize = 64;
/// Of these, requests that look and wait for nothing: a list of thousands of disks has all of the core while it is made, and the others' requests
/// wait behind as many as one token has there.
const LOOKS_MAX: usize = 2;

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
    let app = App { core, authority };
    let (router, document) = described(routes());
    // Anybody may ask for it: it is written once.
    let document = Bytes::from(serde_json::to_vec(&document).expect("a document is texts"));
    let busy = Arc::<Busy>::default();
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
        .layer(axum::middleware::from_fn(move |request, next| bounded(Arc::clone(&busy), request, next)))
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

/// Requests under way, by a hash of what they carry as their token.
#[derive(Default)]
struct Busy(Mutex<HashMap<String, Mine>>, AtomicUsize);

/// Those of one token.
struct Mine {
    requests: usize,
    looks: Arc<Semaphore>,
}

impl Default for Mine {
    fn default() -> Mine {
        Mine { requests: 0, looks: Arc::new(Semaphore::new(LOOKS_MAX)) }
    }
}

impl Busy {
    /// One more of this token; how many others there are, of all and of this one.
    fn enter(&self, whose: &str) -> (usize, usize) {
        let mut each = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = each.entry(whose.to_owned()).or_default();
        mine.requests += 1;
        (self.1.fetch_add(1, Ordering::Relaxed), mine.requests - 1)
    }

    /// A turn to look; the others of this token wait meanwhile.
    async fn turn(&self, whose: &str) -> Option<OwnedSemaphorePermit> {
        let looks = {
            let each = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(&each.get(whose)?.looks)
        };
        looks.acquire_owned().await.ok()
    }

    fn leave(&self, whose: &str) {
        let mut each = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.1.fetch_sub(1, Ordering::Relaxed);
        if let Some(mine) = each.get_mut(whose) {
            mine.requests -= 1;
            if mine.requests == 0 {
                each.remove(whose);
            }
        }
    }
}

/// So many requests at once, and no more.
async fn bounded(busy: Arc<Busy>, request: Request, next: Next) -> Response {
    struct Leave(Arc<Busy>, String);
    impl Drop for Leave {
        fn drop(&mut self) {
            self.0.leave(&self.1);
        }
    }
    let token = henge_web::bearer(request.headers()).ok();
    let (carries, whose) = (token.is_some(), crate::tokens::fingerprint(token.unwrap_or("").as_bytes()));
    let (others, own) = busy.enter(&whose);
    let leave = Leave(busy, whose);
    let refuse = |most| {
        let why = format!("more than {most} requests at once; come again in a second");
        Problem::new(StatusCode::TOO_MANY_REQUESTS, why).into_response()
    };
    // Who carries no token is answered without waiting for anything.
    if others >= REQUESTS_MAX {
        return refuse(REQUESTS_MAX);
    }
    if own >= EACH_MAX && carries {
        return refuse(EACH_MAX);
    }
    let looks =
        matches!(*request.method(), Method::GET | Method::HEAD) || request.uri().path().ends_with("/admit");
    let _turn = if looks && carries { leave.0.turn(&leave.1).await } else { None };
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that are never over: of each token as many are let in as may look, and all that do more than look.
    #[tokio::test]
    async fn one_token_looks_by_turns() {
        use tower_service::Service;
        let (busy, inside) = (Arc::<Busy>::default(), Arc::<AtomicUsize>::default());
        let counted = Arc::clone(&inside);
        let stays = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<()>()
        };
        let routes = Router::new().route("/", axum::routing::get(stays.clone()).post(stays));
        let router = routes
            .layer(axum::middleware::from_fn(move |request, next| bounded(Arc::clone(&busy), request, next)));
        let mut let_in = Vec::new();
        for (method, whose) in [("GET", "ann"), ("GET", "bob"), ("POST", "ann")] {
            for _ in 0..20 {
                let request = Request::builder()
                    .method(method)
                    .header(header::AUTHORIZATION, format!("Bearer {whose}"));
                let mut router = router.clone();
                tokio::spawn(async move { router.call(request.body(Body::empty()).unwrap()).await });
            }
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let_in.push(inside.swap(0, Ordering::Relaxed));
        }
        assert_eq!(let_in, [LOOKS_MAX, LOOKS_MAX, 20]);
    }

    #[test]
    fn places_are_counted_for_each_token_and_given_back() {
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
