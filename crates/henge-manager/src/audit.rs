//! Who changed what, and who tried: one line of JSON for each request that would change something or was not let in.
//!
//! The file is opened for each line, to append: it may be moved away (logrotate) at any time. `audit = "stderr"` writes the lines
//! there, for a journal; `"none"` writes nothing. Tokens and their secrets never stand in it, but the ids that `henge token list` shows.

use crate::rest::App;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most of a request's body that a line has.
const ASKED_MAX: usize = 4 << 10;
/// Longest body that is looked at; longer ones are refused behind this.
const BODY_MAX: usize = 64 << 10;

/// Where the lines go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuditTo {
    /// This file.
    File(PathBuf),
    /// Standard error.
    Stderr,
    /// Nowhere.
    Nobody,
}

/// Who asked, once that is known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Actor {
    /// A tenant's name, or "administrator".
    pub actor: String,
    /// The token's id.
    pub token: String,
}

/// Filled by whoever checks the token.
pub(crate) type Asking = Arc<OnceLock<Actor>>;

/// One line.
#[derive(Serialize)]
struct Line<'a> {
    /// Milliseconds since 1970.
    time: u64,
    /// None: no token, or none that is known.
    #[serde(flatten)]
    who: Option<&'a Actor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<SocketAddr>,
    method: &'a str,
    path: &'a str,
    status: u16,
    /// The request's body.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<serde_json::Value>,
}

/// Writes the lines.
#[derive(Debug)]
pub(crate) struct Audit {
    to: AuditTo,
    one_at_a_time: Mutex<()>,
}

impl Audit {
    pub(crate) fn new(to: AuditTo) -> Arc<Audit> {
        Arc::new(Audit { to, one_at_a_time: Mutex::new(()) })
    }

    fn write(&self, line: &Line<'_>) {
        let mut text = serde_json::to_vec(line).expect("a line is texts and numbers");
        text.push(b'\n');
        let _one = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match &self.to {
            AuditTo::Nobody => Ok(()),
            AuditTo::Stderr => io::stderr().write_all(&text),
            AuditTo::File(path) => {
                let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
                file.and_then(|mut file| file.write_all(&text))
            }
        };
        if let Err(e) = written {
            tracing::error!(error = %e, "the audit log cannot be written");
        }
    }

    /// A change by the web page.
    pub(crate) fn page(&self, actor: &str, disk: &str, terms: &henge_web::Terms, done: bool) {
        let who = Actor { actor: actor.to_owned(), token: String::new() };
        self.write(&Line {
            time: crate::core::now_ms(),
            who: Some(&who),
            address: None,
            method: "PAGE",
            path: &format!("/api/v1/disks/{disk}"),
            status: if done { 200 } else { 422 },
            asked: serde_json::to_value(terms).ok(),
        });
    }
}

/// Around every request of the API.
pub(crate) async fn audited(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let asking = Asking::default();
    request.extensions_mut().insert(Arc::clone(&asking));
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let changes = !matches!(method, Method::GET | Method::HEAD | Method::OPTIONS);
    let address = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|from| from.0);
    let mut asked = None;
    if changes {
        let (parts, body) = request.into_parts();
        // A body that is too long, or does not come, is as good as one that is broken: the handler says so.
        let body = axum::body::to_bytes(body, BODY_MAX).await.unwrap_or_else(|_| Bytes::from_static(b"\xff"));
        asked = shown(&body);
        request = Request::from_parts(parts, Body::from(body));
    }
    let response = next.run(request).await;
    let status = response.status();
    if changes || matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        let (time, method) = (crate::core::now_ms(), method.as_str());
        let path = crate::machine::shorten(&path).to_string();
        let who = asking.get();
        app.audit.write(&Line { time, who, address, method, path: &path, status: status.as_u16(), asked });
    }
    response
}

/// A body as a line has it: what is no JSON, or long, is only said to be there.
fn shown(body: &[u8]) -> Option<serde_json::Value> {
    match body.len() {
        0 => None,
        n if n > ASKED_MAX => Some(format!("{n} bytes").into()),
        n => Some(serde_json::from_slice(body).unwrap_or_else(|_| format!("{n} bytes").into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn lines_are_whole_private_and_go_on_where_the_file_was_moved_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let audit = Audit::new(AuditTo::File(path.clone()));
        let terms = [("limit".to_owned(), "9/s\n".to_owned())].into();
        audit.page("ann", "web", &terms, true);
        audit.page("bob", "web", &terms, false);
        let moved = dir.path().join("audit.1");
        std::fs::rename(&path, &moved).unwrap();
        audit.page("ann", "web", &terms, true);
        let lines = |path: &std::path::Path| -> Vec<serde_json::Value> {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o077, 0);
            let text = std::fs::read_to_string(path).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        assert_eq!((lines(&moved).len(), lines(&path).len()), (2, 1));
        assert_eq!((&lines(&moved)[1]["actor"], &lines(&moved)[1]["status"]), (&"bob".into(), &422.into()));
    }

    #[test]
    fn bodies_are_shown_within_bounds() {
        assert_eq!(shown(b""), None);
        assert_eq!(shown(b"{\"a\":1}"), Some(serde_json::json!({"a": 1})));
        assert_eq!(shown(b"\xff"), Some("1 bytes".into()));
        assert_eq!(shown(&vec![b' '; ASKED_MAX + 1]), Some("4097 bytes".into()));
    }
}
