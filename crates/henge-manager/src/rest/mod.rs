//! The REST API: routes, and the OpenAPI document made from the same source.

mod disks;
mod extract;
mod others;
mod problem;
pub(crate) mod views;

use crate::core::Core;
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use problem::Problem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tower_http::limit::RequestBodyLimitLayer;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Longest body.
const BODY_MAX: usize = 64 << 10;
/// Most requests at once.
const REQUESTS_MAX: usize = 512;

/// What handlers have.
#[derive(Clone)]
pub(crate) struct App {
    pub core: Core,
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
            .routes(routes!(disks::admit))
            .routes(routes!(others::nodes))
            .routes(routes!(others::node, others::forget))
            .routes(routes!(others::drain, others::undrain))
            .routes(routes!(others::pools))
            .routes(routes!(others::events))
            .routes(routes!(others::list_tokens, others::create_token))
            .routes(routes!(others::remove_token))
            .routes(routes!(others::health)),
    )
}

/// The OpenAPI document, as the repository keeps it in `docs/openapi.json`.
pub fn openapi() -> String {
    let document = routes().split_for_parts().1;
    let mut text = document.to_pretty_json().expect("a document is texts");
    text.push('\n');
    text
}

/// All routes.
pub(crate) fn router(core: Core) -> Router {
    let (router, document) = routes().split_for_parts();
    let document = Arc::new(document);
    let busy = Arc::new(AtomicUsize::new(0));
    router
        .route(
            "/api/v1/openapi.json",
            axum::routing::get(move || async move { axum::Json((*document).clone()) }),
        )
        .fallback(missing)
        .method_not_allowed_fallback(wrong_method)
        .with_state(App { core })
        .layer(RequestBodyLimitLayer::new(BODY_MAX))
        .layer(axum::middleware::from_fn(move |request, next| bounded(Arc::clone(&busy), request, next)))
}

async fn missing(uri: axum::http::Uri) -> Problem {
    let path = crate::machine::shorten(uri.path());
    Problem::new(
        StatusCode::NOT_FOUND,
        format!("there is nothing at {path}; /api/v1/openapi.json says what there is"),
    )
}

async fn wrong_method(method: axum::http::Method) -> Problem {
    let why = format!("{method} is not understood there; /api/v1/openapi.json says what is");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, why)
}

/// So many requests at once, and no more.
async fn bounded(busy: Arc<AtomicUsize>, request: Request, next: Next) -> Response {
    struct Leave(Arc<AtomicUsize>);
    impl Drop for Leave {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let others = busy.fetch_add(1, Ordering::Relaxed);
    let _leave = Leave(busy);
    if others >= REQUESTS_MAX {
        let why = format!("more than {REQUESTS_MAX} requests at once; come again in a second");
        return Problem::new(StatusCode::TOO_MANY_REQUESTS, why).into_response();
    }
    next.run(request).await
}
