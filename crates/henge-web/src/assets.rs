//! The page itself, as `make web` built it; without it, a plain page that says how to build it.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct Dist;

const PLAIN: &str = include_str!("plain.html");

/// The file of that path, or the page: it finds its way itself.
pub fn asset(path: &str) -> Response {
    let path = path.trim_start_matches('/');
    let named = if path.is_empty() { "index.html" } else { path };
    if let Some(file) = Dist::get(named) {
        let kind = match named.rsplit('.').next() {
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            Some("html") => "text/html; charset=utf-8",
            _ => "application/octet-stream",
        };
        // Names under assets/ carry a hash of what is in them.
        let keep =
            if named.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
        let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, keep)];
        return (headers, Body::from(file.data)).into_response();
    }
    if path.is_empty() {
        let plain = [(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"))];
        return (plain, PLAIN).into_response();
    }
    (StatusCode::NOT_FOUND, "there is no such page").into_response()
}
