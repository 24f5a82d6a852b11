//! Who asks: a bearer token, or the cookie that logging in leaves.
//!
//! A request without a token counts as local when it comes from this machine, no proxy has forwarded it, and its Host header
//! names this machine: else a page elsewhere could reach a node through its reader's browser (DNS rebinding). And the process
//! that asks belongs to the user who runs the node, or to root: other users of the machine need a token. What changes anything
//! takes JSON alone, or another method than GET and POST: browsers send neither to other sites unasked. Where a browser says which page
//! asks (`Origin`), that is this one. The cookie is SameSite=Strict.

use crate::owner::Caller;
use crate::source::{Problem, Viewer};
use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The cookie that holds the token.
const COOKIE: &str = "henge_token";

/// Why a request's `Authorization` holds no token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoBearer {
    /// There is none.
    #[error(
        "this needs a token: Authorization: Bearer henge_…; the administrator's lies in the manager's state_dir (admin.token)"
    )]
    Missing,
    /// There are several, and each might be meant.
    #[error("there are several Authorization headers: send one")]
    Several,
    /// It is of another kind.
    #[error("the Authorization header is no bearer token's: write Authorization: Bearer henge_…")]
    Other,
    /// What stands behind the kind is none.
    #[error("what stands behind Bearer is no token: write one space, the token, and nothing else")]
    Malformed,
}

/// The bearer token that a request carries (RFC 6750, section 2.1): in one header, behind the kind, in letters of either case, and one space.
pub fn bearer(headers: &HeaderMap) -> Result<&str, NoBearer> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let value = all.next().ok_or(NoBearer::Missing)?;
    if all.next().is_some() {
        return Err(NoBearer::Several);
    }
    let bytes = value.as_bytes();
    let kind = bytes.split(|b| *b == b' ').next().unwrap_or_default();
    if !kind.eq_ignore_ascii_case(b"bearer") {
        return Err(NoBearer::Other);
    }
    let token = value.to_str().ok().and_then(|text| text.get(kind.len() + 1..));
    token.filter(|token| is_token(token)).ok_or(NoBearer::Malformed)
}

/// The token that a request carries. What is said to be one, and is none, opens nothing: neither does then a cookie.
pub fn token(headers: &HeaderMap) -> Option<&str> {
    match bearer(headers) {
        Ok(token) => return Some(token),
        Err(NoBearer::Several | NoBearer::Malformed) => return Some(""),
        Err(NoBearer::Missing | NoBearer::Other) => {}
    }
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|v| v.to_str().ok());
    let mut pairs = cookies.flat_map(|v| v.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

/// What logging in sets, or (without a token) what logging out does. What was set by TLS never crosses a connection in clear.
pub fn cookie(token: Option<&str>, secure: bool) -> String {
    let secure = if secure { "; Secure" } else { "" };
    match token {
        Some(token) => {
            format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict{secure}; Max-Age=2592000")
        }
        None => format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict{secure}; Max-Age=0"),
    }
}

/// Tokens that can stand in a cookie.
pub fn is_token(text: &str) -> bool {
    (1..=512).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b';' | b',' | b'"'))
}

/// Whether a request comes from this machine and means it.
pub fn is_local(parts: &Parts) -> bool {
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    let forwarded =
        ["forwarded", "x-forwarded-for", "x-real-ip"].iter().any(|h| parts.headers.contains_key(*h));
    // A request may name several hosts, and who passes it on may go by any of them.
    let hosts = parts.headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let hosts: Vec<&str> = hosts.chain(parts.uri.authority().map(|host| host.as_str())).collect();
    peer.is_some_and(|ip| ip.to_canonical().is_loopback())
        && !forwarded
        && !hosts.is_empty()
        && hosts.iter().all(|host| names_this_machine(host) && asks_itself(&parts.headers, host))
        && parts.extensions.get::<Arc<Caller>>().is_some_and(|caller| caller.is_ours())
}

/// Whether no other page asks through the browser.
fn asks_itself(headers: &HeaderMap, host: &str) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let page = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    page.is_some_and(|(_, page)| page.eq_ignore_ascii_case(host))
}

fn names_this_machine(host: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let code = match &self {
            Problem::Gone(_) => StatusCode::SERVICE_UNAVAILABLE,
            Problem::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Problem::Unknown(_) => StatusCode::NOT_FOUND,
            Problem::Token(_) => StatusCode::UNAUTHORIZED,
            Problem::Forbidden(_) => StatusCode::FORBIDDEN,
        };
        (code, Json(serde_json::json!({ "error": self.to_string() }))).into_response()
    }
}

/// Whether this viewer may change contracts.
pub fn may_change(viewer: &Viewer) -> Result<(), Problem> {
    match viewer.may_change {
        true => Ok(()),
        false => Err(Problem::Forbidden("this token may look, but not change anything".into())),
    }
}

/// Whether this viewer may make and remove disks.
pub fn may_create(viewer: &Viewer) -> Result<(), Problem> {
    may_change(viewer)?;
    match viewer.may_create {
        true => Ok(()),
        false => Err(Problem::Forbidden("this token is for one disk; it makes and removes none".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn parts(peer: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut parts = request.body(()).unwrap().into_parts().0;
        parts.extensions.insert(ConnectInfo(peer.parse::<SocketAddr>().unwrap()));
        parts.extensions.insert(Arc::new(Caller::of(Some(rustix::process::geteuid().as_raw()))));
        parts
    }

    #[test]
    fn local_is_who_comes_from_here_and_means_it() {
        for host in ["localhost:8080", "127.0.0.1", "[::1]:8080", "LOCALHOST"] {
            assert!(is_local(&parts("127.0.0.1:5", &[("host", host)])), "{host}");
        }
        assert!(is_local(&parts("[::ffff:127.0.0.1]:5", &[("host", "127.0.0.1:1")])));
        assert!(!is_local(&parts("192.0.2.1:5", &[("host", "localhost")])));
        assert!(!is_local(&parts("127.0.0.1:5", &[("host", "evil.example:8080")])));
        assert!(!is_local(&parts("127.0.0.1:5", &[("host", "localhost"), ("x-forwarded-for", "192.0.2.7")])));
        assert!(!is_local(&parts("127.0.0.1:5", &[("host", "localhost"), ("host", "evil.example")])));
        let mut absolute = parts("127.0.0.1:5", &[("host", "localhost")]);
        absolute.uri = "http://evil.example/".parse().unwrap();
        assert!(!is_local(&absolute));
        assert!(!is_local(&parts("127.0.0.1:5", &[])));
        let from =
            |origin| is_local(&parts("127.0.0.1:5", &[("host", "localhost:8080"), ("origin", origin)]));
        assert!(from("http://localhost:8080") && from("https://LOCALHOST:8080"));
        for other in ["http://evil.example", "http://localhost:3000", "http://127.0.0.1:8080", "null", ""] {
            assert!(!from(other), "{other}");
        }
        for stranger in [None, Some(u32::MAX - 7)] {
            let mut parts = parts("127.0.0.1:5", &[("host", "localhost")]);
            parts.extensions.insert(Arc::new(Caller::of(stranger)));
            assert!(!is_local(&parts), "user {stranger:?}");
        }
    }

    #[test]
    fn a_header_holds_one_token_or_none() {
        let read = |values: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, axum::http::HeaderValue::from_bytes(value).unwrap());
            }
            bearer(&headers).map(str::to_owned)
        };
        for good in ["Bearer henge_0a", "bearer henge_0a", "BEARER henge_0a"] {
            assert_eq!(read(&[good.as_bytes()]).as_deref(), Ok("henge_0a"), "{good}");
        }
        assert_eq!(read(&[]), Err(NoBearer::Missing));
        assert_eq!(read(&[b"Bearer a", b"Bearer a"]), Err(NoBearer::Several));
        for other in ["Basic abc", "", "henge_0a", "Bearerhenge_0a", "Bearer\thenge_0a", " Bearer a"] {
            assert_eq!(read(&[other.as_bytes()]), Err(NoBearer::Other), "{other:?}");
        }
        let malformed: [&[u8]; 7] = [
            b"Bearer",
            b"Bearer ",
            b"Bearer  a",
            b"Bearer a b",
            b"Bearer a, Bearer b",
            b"Bearer \xff",
            b"Bearer a\xc3\xa9",
        ];
        for malformed in malformed {
            assert_eq!(read(&[malformed]), Err(NoBearer::Malformed), "{malformed:?}");
        }
    }

    #[test]
    fn tokens_come_by_header_or_cookie() {
        let get = |headers: &[(&str, &str)]| token(&parts("127.0.0.1:5", headers).headers).map(str::to_owned);
        assert_eq!(get(&[("authorization", "Bearer abc")]).as_deref(), Some("abc"));
        // Never by who he is, or by a cookie, where a header says otherwise.
        assert_eq!(
            get(&[("authorization", "Bearer a b"), ("cookie", "henge_token=xyz")]).as_deref(),
            Some("")
        );
        assert_eq!(get(&[("cookie", "a=b; henge_token=xyz; c=d")]).as_deref(), Some("xyz"));
        assert_eq!(get(&[("cookie", "a=b"), ("authorization", "Basic abc")]), None);
        assert!(is_token("abc-DEF_09==") && !is_token("a;b") && !is_token("") && !is_token("a b"));
    }
}
