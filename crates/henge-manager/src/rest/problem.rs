//! What failed, and what would work: problem details by RFC 9457.

use crate::core::Unavailable;
use crate::decide::{Because, Instead};
use crate::machine::Failure;
use crate::tenant::Quota;
use crate::tokens::BadToken;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// What a problem's body is said to be.
pub(super) const CONTENT_TYPE: &str = "application/problem+json";

/// What failed, and what would work (RFC 9457).
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct Problem {
    /// Names the kind of problem: `about:blank` and the status says it all.
    #[serde(rename = "type")]
    #[schema(example = "about:blank")]
    pub kind: String,
    /// The status in words.
    pub title: String,
    /// The status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// What failed here, and what to do about it.
    pub detail: String,
    /// What would be admitted, each with everything else as asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead: Option<Box<Instead>>,
    /// What is left of the tenant's quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<Box<Quota>>,
    /// The manager that leads, where this one does not: ask there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "http://10.0.0.1:7100")]
    pub leader: Option<String>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        Problem {
            kind: "about:blank".into(),
            title: status.canonical_reason().unwrap_or("Problem").into(),
            status: status.as_u16(),
            detail: detail.into(),
            instead: None,
            left: None,
            leader: None,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).expect("a problem is texts and numbers");
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"henge\""));
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        let detail = failure.to_string();
        match failure {
            Failure::Bad(_) => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail),
            Failure::Forbidden(_) => Problem::new(StatusCode::FORBIDDEN, detail),
            Failure::Missing(_) => Problem::new(StatusCode::NOT_FOUND, detail),
            Failure::Conflict(_) => Problem::new(StatusCode::CONFLICT, detail),
            Failure::Often(_) => Problem::new(StatusCode::TOO_MANY_REQUESTS, detail),
            Failure::Changed(_) => Problem::new(StatusCode::PRECONDITION_FAILED, detail),
            Failure::Quota { left, .. } => {
                Problem { left: Some(left), ..Problem::new(StatusCode::CONFLICT, detail) }
            }
            Failure::Refused(refusal) => {
                let status = match refusal.because {
                    Because::Impossible => StatusCode::UNPROCESSABLE_ENTITY,
                    Because::Full | Because::Nobody => StatusCode::CONFLICT,
                };
                let words = refusal.instead.words();
                let detail = match words.is_empty() {
                    true => detail,
                    false => format!("{detail}. What would fit, all else as asked: {words}"),
                };
                Problem { instead: Some(Box::new(refusal.instead)), ..Problem::new(status, detail) }
            }
        }
    }
}

impl From<Unavailable> for Problem {
    fn from(e: Unavailable) -> Problem {
        let detail = e.to_string();
        let leader = match e {
            Unavailable::NotLeader(leader) => leader,
            _ => None,
        };
        Problem { leader, ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail) }
    }
}

impl From<BadToken> for Problem {
    fn from(e: BadToken) -> Problem {
        Problem::new(StatusCode::UNAUTHORIZED, e.to_string())
    }
}
