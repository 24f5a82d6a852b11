//! What requests carry: who asks, bodies, entity tags. Every refusal is a problem body.

use super::App;
use super::problem::Problem;
use crate::audit::{Actor, Asking};
use crate::machine::Caller;
use crate::tokens::{self, Known};
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use henge_web::bearer;
use serde::de::DeserializeOwned;

/// Most values and keys of a body, as its commas and opening brackets count them. A longest one of ours has some hundred; thousands of small
/// ones take the thread that serves the API milliseconds to read, and everybody else waits.
const VALUES_MAX: usize = 1024;

/// Whether a body has more. What stands in texts does not count.
fn is_crowded(body: &[u8]) -> bool {
    let (mut count, mut quoted, mut bytes) = (0, false, body.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => quoted = !quoted,
            b'\\' if quoted => drop(bytes.next()),
            b',' | b'[' | b'{' if !quoted => count += 1,
            _ => {}
        }
    }
    count > VALUES_MAX
}

/// Who asks, by the bearer token; a token that may only look is refused where something would change.
pub(crate) struct Auth(pub Caller);

/// The same where nothing changes, whatever the method.
pub(crate) struct Looking(pub Caller);

async fn who(parts: &mut Parts, app: &App) -> Result<Known, Problem> {
    let token = bearer(&parts.headers).map_err(|e| Problem::new(StatusCode::UNAUTHORIZED, e.to_string()))?;
    let token = token.to_owned();
    // Who has a place without waiting for it was asked for just now.
    let known = match parts.extensions.remove::<Known>() {
        Some(known) => known,
        None => app.core.call(move |machine| tokens::known(machine, &token)).await??,
    };
    if let Some(asking) = parts.extensions.get::<Asking>() {
        let tenant = known.caller.tenant().map(str::to_owned);
        asking.asks(Actor { actor: known.name(), token: known.id.clone(), tenant });
    }
    Ok(known)
}

impl FromRequestParts<App> for Auth {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let known = who(parts, app).await?;
        let changes = !matches!(parts.method, Method::GET | Method::HEAD);
        if known.read && changes {
            let why = "this token may look, and change nothing; ask the administrator for another one";
            return Err(Problem::new(StatusCode::FORBIDDEN, why));
        }
        Ok(Auth(known.caller))
    }
}

impl FromRequestParts<App> for Looking {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Ok(Looking(who(parts, app).await?.caller))
    }
}

/// The administrator alone.
pub(crate) struct Admin;

impl FromRequestParts<App> for Admin {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let why = match Auth::from_request_parts(parts, app).await?.0 {
            Caller::Administrator => return Ok(Admin),
            Caller::Tenant(name) => format!("this is the administrator's; the token is \"{name}\"'s"),
            Caller::Disk { .. } => "this is the administrator's; the token is for one disk".into(),
        };
        Err(Problem::new(StatusCode::FORBIDDEN, why))
    }
}

/// A body of JSON, and its bytes.
pub(crate) struct Json<T>(pub T, pub Bytes);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
        let essence = kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
        if essence != "application/json" && !essence.ends_with("+json") {
            let why = "the body is JSON; say so: Content-Type: application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        let bytes = Bytes::from_request(request, app)
            .await
            .map_err(|e| Problem::new(e.status(), format!("the body: {}", e.body_text())))?;
        // What reads objects by their keys would read lists by their order.
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(Problem::new(StatusCode::BAD_REQUEST, "the body: it is a JSON object"));
        }
        if is_crowded(&bytes) {
            let why = format!("the body has more than {VALUES_MAX} values, which no request needs");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        let value = serde_json::from_slice(&bytes)
            .map_err(|e| Problem::new(StatusCode::BAD_REQUEST, format!("the body: {e}")))?;
        Ok(Json(value, bytes))
    }
}

/// A name in the path.
pub(crate) struct Name(pub String);

impl FromRequestParts<App> for Name {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, app).await;
        path.map(|Path(name)| Name(name))
            .map_err(|e| Problem::new(StatusCode::BAD_REQUEST, format!("the path: {}", e.body_text())))
    }
}

/// What stands behind the question mark.
pub(crate) struct CheckedQuery<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<App> for CheckedQuery<T> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let query = Query::<T>::from_request_parts(parts, app).await;
        query
            .map(|Query(asked)| CheckedQuery(asked))
            .map_err(|e| Problem::new(StatusCode::BAD_REQUEST, format!("the query: {}", e.body_text())))
    }
}

/// `If-Match`: the revision that the caller knows; none for none, or for `*`.
pub(crate) fn expected(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or("").trim();
    if text == "*" {
        return Ok(None);
    }
    // A tag that is none of ours matches nothing.
    let tag = text.strip_prefix("W/").unwrap_or(text).trim_matches('"');
    let foreign =
        || Problem::new(StatusCode::PRECONDITION_FAILED, format!("If-Match: {text} is no tag of this disk"));
    tag.parse().map(Some).map_err(|_| foreign())
}

/// `If-None-Match: *`: only if there is none.
pub(crate) fn only_fresh(headers: &HeaderMap) -> bool {
    headers.get(header::IF_NONE_MATCH).is_some_and(|v| v.as_bytes().trim_ascii() == b"*")
}

/// `Idempotency-Key`.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let text = value.to_str().unwrap_or("").trim().trim_matches('"');
    let fits = !text.is_empty() && text.len() <= 128 && text.bytes().all(|b| b.is_ascii_graphic());
    if !fits {
        let why = "an Idempotency-Key is 1 to 128 visible characters";
        return Err(Problem::new(StatusCode::BAD_REQUEST, why));
    }
    Ok(Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_body_are_counted_outside_of_its_texts() {
        let list = |of: &str, times: usize| format!("[{}]", vec![of; times].join(","));
        let crowded = |body: String| is_crowded(body.as_bytes());
        assert!(!crowded(list("1", VALUES_MAX)) && crowded(list("1", VALUES_MAX + 1)));
        assert!(!crowded(list("[]", VALUES_MAX / 2)) && crowded(list("{}", VALUES_MAX / 2 + 1)));
        let text = format!(r#""{}\\\"{}""#, ",[{".repeat(9000), ",[{".repeat(9000));
        assert!(!crowded(text.clone()) && crowded(format!("{text}{}", ",".repeat(VALUES_MAX + 1))));
        // What is no JSON is read no further than it is.
        assert!(!crowded("\\\"".repeat(9000)) && !crowded("\"\\".into()) && !crowded(String::new()));
    }
}
