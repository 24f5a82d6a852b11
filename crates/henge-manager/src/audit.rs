//! Who changed what, and who tried: one line of JSON for each request that would change something or was not let in.
//!
//! A line says who asked (a token's id, never its secret), from where, for what, how it ended and, where it was refused, why; and what was
//! changed, before and after. Where it goes:
//!
//! | `audit =` | lines go |
//! |---|---|
//! | `"file"` | to `state_dir/audit.jsonl`, opened for each line: it may be moved away (logrotate) at any time |
//! | `{ keep = "90d", tenants = { ann = "400d" } }` | to a file a day for each who asks, in `state_dir/audit`; days beyond are removed |
//! | `"stderr"` | to standard error, for a journal |
//! | `"syslog"` | to `/dev/log`, facility authpriv |
//! | `"none"` | nowhere |

mod writer;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use henge_web::{Asks, Changed, Viewer, only_looks};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::Semaphore;
use writer::Writer;

/// Most of a request's body that a line has.
const ASKED_MAX: usize = 4 << 10;
/// Longest body that is looked at; longer ones are refused behind this.
const BODY_MAX: usize = 64 << 10;
/// Lines in a second of who has no known token, and of each who is refused: what changes nothing fills no disk. How many more there were,
/// one line says.
const IDLE_MAX: u64 = 10;
/// Most requests at once that would change something; those whose clients have gone are among them.
const CHANGES_MAX: usize = 1024;

/// Where the lines go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuditTo {
    /// This file.
    File(PathBuf),
    /// Files of this folder, one a day for each who asks.
    Days(PathBuf, Keep),
    /// Standard error.
    Stderr,
    /// This socket of syslog's.
    Syslog(PathBuf),
    /// Nowhere.
    Nobody,
}

/// For how many days lines are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keep {
    /// Where a tenant has no other.
    pub days: u64,
    /// By tenant.
    pub tenants: BTreeMap<String, u64>,
}

/// Who asked, once that is known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Actor {
    /// A tenant's name, or "administrator".
    pub actor: String,
    /// The token's id.
    pub token: String,
    /// The tenant.
    #[serde(skip)]
    pub tenant: Option<String>,
}

/// What is found out of a request while it is answered.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    actor: OnceLock<Actor>,
    before: OnceLock<Value>,
    after: OnceLock<Value>,
}

impl Noted {
    /// Who asks.
    pub(crate) fn asks(&self, actor: Actor) {
        let _ = self.actor.set(actor);
    }
    /// What is about to be changed, as it is.
    pub(crate) fn before(&self, what: &impl Serialize) {
        let _ = self.before.set(serde_json::to_value(what).unwrap_or_default());
    }
    /// As it is now.
    pub(crate) fn after(&self, what: &impl Serialize) {
        let _ = self.after.set(serde_json::to_value(what).unwrap_or_default());
    }
}

/// Filled by whoever checks the token, and whoever changes something.
pub(crate) type Asking = Arc<Noted>;

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
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// The request's body.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<&'a Value>,
}

/// Writes the lines.
#[derive(Debug)]
pub(crate) struct Audit {
    /// None: lines go nowhere.
    writer: Option<Writer>,
    idle: Mutex<Idle>,
    /// Of requests that would change something.
    places: Arc<Semaphore>,
}

/// Requests of one second that change nothing, by who asks: of who has no known token, and those that were refused.
#[derive(Debug, Default)]
struct Idle {
    second: u64,
    asked: BTreeMap<Option<String>, (Option<Actor>, u64)>,
}

impl Idle {
    /// At a line's time: of whom lines of an earlier second were left out, and how many.
    fn left_out(&mut self, time: u64) -> Vec<(Option<Actor>, u64)> {
        let second = time / 1000;
        if second == self.second {
            return Vec::new();
        }
        let before = std::mem::replace(self, Idle { second, asked: BTreeMap::new() });
        let all = before.asked.into_values().map(|(who, asked)| (who, asked.saturating_sub(IDLE_MAX)));
        all.filter(|(_, more)| *more > 0).collect()
    }

    /// Whether one more has a line.
    fn may_ask(&mut self, who: Option<&Actor>) -> bool {
        let of = self.asked.entry(who.map(|who| who.actor.clone())).or_insert_with(|| (who.cloned(), 0));
        of.1 += 1;
        of.1 <= IDLE_MAX
    }
}

/// Lines that were left out.
#[derive(Serialize)]
struct LeftOut<'a> {
    /// Milliseconds since 1970.
    time: u64,
    #[serde(flatten)]
    who: Option<&'a Actor>,
    left_out: u64,
}

impl Audit {
    pub(crate) fn new(to: AuditTo) -> io::Result<Arc<Audit>> {
        let writer = if to == AuditTo::Nobody { None } else { Some(Writer::begin(to)?) };
        let places = Arc::new(Semaphore::new(CHANGES_MAX));
        Ok(Arc::new(Audit { writer, idle: Mutex::default(), places }))
    }

    /// Returns once a line is where it belongs: whoever asked is answered after that.
    async fn write(&self, line: &Line<'_>) {
        let Some(writer) = &self.writer else { return };
        let (left_out, due) = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let left_out = idle.left_out(line.time);
            let changes = line.who.is_some() && line.status < 400;
            (left_out, changes || idle.may_ask(line.who))
        };
        let time = line.time;
        for (who, left_out) in left_out {
            let text = text(&LeftOut { time, who: who.as_ref(), left_out });
            writer.write((time, who), text).await;
        }
        if due {
            writer.write((time, line.who.cloned()), text(line)).await;
        }
    }
}

fn text(line: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).expect("a line is texts and numbers");
    text.push(b'\n');
    text
}

impl From<&Viewer> for Actor {
    fn from(viewer: &Viewer) -> Actor {
        let Viewer { name, token, tenant, .. } = viewer.clone();
        Actor { actor: name, token, tenant }
    }
}

/// Around [`audited`]: a request that would change something goes on to its end, and has its line, if whoever sent it hangs up.
pub(crate) async fn to_its_end(State(audit): State<Arc<Audit>>, request: Request, next: Next) -> Response {
    if only_looks(request.method(), request.uri().path()) {
        return next.run(request).await;
    }
    // Who hangs up while waiting for a place has changed nothing.
    let place = Arc::clone(&audit.places).acquire_owned().await.expect("never closed");
    let request = tokio::spawn(async move {
        let response = next.run(request).await;
        drop(place);
        response
    });
    request.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

/// Around every request of the API and of the page.
pub(crate) async fn audited(State(audit): State<Arc<Audit>>, mut request: Request, next: Next) -> Response {
    let (asking, asks) = (Asking::default(), Asks::default());
    request.extensions_mut().insert(Arc::clone(&asking));
    request.extensions_mut().insert(Arc::clone(&asks));
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let changes = !only_looks(&method, &path);
    let address = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|from| from.0);
    let mut body = Bytes::new();
    if changes {
        let (parts, whole) = request.into_parts();
        body = received(whole).await;
        request = Request::from_parts(parts, Body::from(body.clone()));
    }
    let mut response = next.run(request).await;
    let status = response.status();
    let mut why = None;
    if status.is_client_error() || status.is_server_error() {
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, BODY_MAX).await.unwrap_or_default();
        let problem: Option<Value> = serde_json::from_slice(&body).ok();
        why = problem.and_then(|p| p.get("detail").or(p.get("error"))?.as_str().map(str::to_owned));
        response = Response::from_parts(parts, Body::from(body));
    }
    if changes || matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        let method = crate::shorten::shorten(method.as_str()).to_string();
        let path = crate::shorten::shorten(&path).to_string();
        let viewer = asks.get().map(Actor::from);
        let who = asking.actor.get().or(viewer.as_ref());
        let changed = response.extensions().get::<Changed>().cloned().unwrap_or_default();
        let line = Line {
            time: crate::core::now_ms(),
            who,
            address,
            method: &method,
            path: &path,
            status: status.as_u16(),
            why,
            asked: asked(&body, who),
            before: asking.before.get().or(changed.before.as_ref()),
            after: asking.after.get().or(changed.after.as_ref()),
        };
        audit.write(&line).await;
    }
    response
}

/// A body. One that is too long, or does not come, is as good as one that is broken: the handler says so.
pub(crate) async fn received(body: Body) -> Bytes {
    axum::body::to_bytes(body, BODY_MAX).await.unwrap_or_else(|_| Bytes::from_static(b"\xff"))
}

/// A body as a line has it: of a stranger's only how long it is.
fn asked(body: &[u8], who: Option<&Actor>) -> Option<Value> {
    match who {
        None if !body.is_empty() => Some(format!("{} bytes", body.len()).into()),
        _ => shown(body),
    }
}

/// A body as a line has it: what is no JSON, or long, is only said to be there.
fn shown(body: &[u8]) -> Option<Value> {
    match body.len() {
        0 => None,
        n if n > ASKED_MAX => Some(format!("{n} bytes").into()),
        n => Some(serde_json::from_slice(body).map_or_else(|_| format!("{n} bytes").into(), redacted)),
    }
}

/// Without what opens anything.
fn redacted(mut body: serde_json::Value) -> serde_json::Value {
    if let Some(fields) = body.as_object_mut() {
        let secret = fields.iter_mut().filter(|(key, _)| matches!(key.as_str(), "token" | "secret"));
        secret.for_each(|(_, value)| *value = "…".into());
    }
    body
}

#[cfg(test)]
mod tests {
    use super::writer::date;
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixDatagram;

    const DAY_MS: u64 = 86_400_000;

    fn write(audit: &Audit, line: &Line<'_>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(audit.write(line));
    }

    #[test]
    fn lines_are_whole_private_and_go_on_where_the_file_was_moved_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let audit = Audit::new(AuditTo::File(path.clone())).unwrap();
        let (ann, bob) = (actor(Some("ann")), actor(Some("bob")));
        let says = |who, why: Option<&str>| Line { why: why.map(str::to_owned), ..line(0, Some(who), None) };
        write(&audit, &says(&ann, None));
        write(&audit, &Line { status: 422, ..says(&bob, Some("it is\nfull")) });
        let moved = dir.path().join("audit.1");
        std::fs::rename(&path, &moved).unwrap();
        write(&audit, &says(&ann, None));
        let lines = |path: &std::path::Path| -> Vec<serde_json::Value> {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o077, 0);
            let text = std::fs::read_to_string(path).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        assert_eq!((lines(&moved).len(), lines(&path).len()), (2, 1));
        let refused = &lines(&moved)[1];
        assert_eq!((&refused["actor"], &refused["status"]), (&"bob".into(), &422.into()));
        assert_eq!(refused["why"], "it is\nfull");
    }

    fn line<'a>(day: u64, who: Option<&'a Actor>, before: Option<&'a Value>) -> Line<'a> {
        Line {
            time: day * DAY_MS + 5,
            who,
            address: None,
            method: "PATCH",
            path: "/",
            status: 200,
            why: None,
            asked: None,
            before,
            after: None,
        }
    }

    fn actor(tenant: Option<&str>) -> Actor {
        let tenant = tenant.map(str::to_owned);
        Actor { actor: tenant.clone().unwrap_or("administrator".into()), token: "id".into(), tenant }
    }

    #[test]
    fn each_tenants_days_are_kept_as_long_as_is_stated() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("audit");
        let keep = Keep { days: 2, tenants: [("ann".to_owned(), 4)].into() };
        let audit = Audit::new(AuditTo::Days(folder.clone(), keep)).unwrap();
        // A tenant may be called so, and is not the administrator.
        let who = [None, Some(actor(None)), Some(actor(Some("ann"))), Some(actor(Some("administrator")))];
        let before = Value::from(1);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("note"), "of somebody else").unwrap();
        for day in 100..106 {
            who.iter().for_each(|who| write(&audit, &line(day, who.as_ref(), Some(&before))));
        }
        let names =
            std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let names: std::collections::BTreeSet<_> = names.collect();
        let file = |who: &str, day| format!("{who}-{}.jsonl", date(day));
        let of = |who: &str, first: u64| (first..106).map(|day| file(who, day)).collect::<Vec<_>>();
        let kept = [
            of("nobody", 103),
            of("administrator", 103),
            of("tenant-administrator", 103),
            of("tenant-ann", 101),
        ];
        let kept: std::collections::BTreeSet<_> =
            kept.concat().into_iter().chain(["note".to_owned()]).collect();
        assert_eq!(names, kept);
        assert_eq!(folder.join(file("nobody", 105)).metadata().unwrap().permissions().mode() & 0o077, 0);
        let text = std::fs::read_to_string(folder.join(file("tenant-ann", 105))).unwrap();
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["actor"], &line["before"]), (&"ann".into(), &1.into()));
    }

    /// A pipe that nobody reads stands for storage that hangs: whoever has a line waits, and everybody else is answered by the same thread.
    #[test]
    fn a_log_that_hangs_keeps_only_those_waiting_who_have_lines() {
        use axum::http::Method;
        use axum::routing::get;
        use tower_service::Service;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let audit = Audit::new(AuditTo::File(path.clone())).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async move {
                let mut routes = axum::Router::new()
                    .route("/", get(async || "here").post(async || "changed"))
                    .layer(axum::middleware::from_fn_with_state(audit, audited));
                let mut ask = |method| {
                    let request = Request::builder().method(method).uri("/");
                    tokio::spawn(routes.call(request.body(Body::empty()).unwrap()))
                };
                let changes = ask(Method::POST);
                let looks = ask(Method::GET).await.unwrap().unwrap();
                tell.send((looks.status(), changes.is_finished())).unwrap();
                tell.send((changes.await.unwrap().unwrap().status(), true)).unwrap();
            });
        });
        let patience = std::time::Duration::from_secs(20);
        assert_eq!(told.recv_timeout(patience), Ok((StatusCode::OK, false)), "a request that has no line");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"method\":\"POST\"") && text.ends_with('\n'), "{text}");
        assert_eq!(told.recv_timeout(patience), Ok((StatusCode::OK, true)));
    }

    #[test]
    fn syslog_is_sent_a_line_each() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = UnixDatagram::bind(&path).unwrap();
        let audit = Audit::new(AuditTo::Syslog(path)).unwrap();
        write(&audit, &line(1, Some(&actor(None)), None));
        let mut bytes = [0; 1024];
        let n = log.recv(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..n]).unwrap();
        let json = text.strip_prefix("<86>henge-manager: ").unwrap();
        let value: Value = serde_json::from_str(json).unwrap();
        assert!(value["actor"] == "administrator" && !json.ends_with('\n'), "{text}");
    }

    #[test]
    fn strangers_fill_no_disk_and_what_they_do_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let audit = Audit::new(AuditTo::File(path.clone())).unwrap();
        let known = actor(Some("ann"));
        let line = |time: u64, who| Line { time, ..line(0, who, None) };
        (0..1000).for_each(|at| write(&audit, &line(5000 + at % 1000, None)));
        (0..20).for_each(|_| write(&audit, &line(5999, Some(&known))));
        // Nor does who is refused.
        (0..30).for_each(|_| write(&audit, &Line { status: 409, ..line(5999, Some(&known)) }));
        let lines = || -> Vec<Value> {
            let text = std::fs::read_to_string(&path).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        assert_eq!(lines().len(), 10 + 20 + 10, "who changes something has all lines");
        (0..3).for_each(|_| write(&audit, &line(6000, None)));
        let after = lines();
        assert_eq!(after.len(), 40 + 2 + 3);
        assert_eq!(after[40], serde_json::json!({ "time": 6000, "left_out": 990 }));
        assert_eq!(
            after[41],
            serde_json::json!({ "time": 6000, "actor": "ann", "token": "id", "left_out": 20 })
        );
        // A clock that is set back begins another second.
        (0..3).for_each(|_| write(&audit, &line(1000, None)));
        assert_eq!(lines().len(), 45 + 3);
    }

    #[test]
    fn bodies_are_shown_within_bounds() {
        assert_eq!((asked(b"{\"a\":1}", None), asked(b"", None)), (Some("7 bytes".into()), None));
        assert_eq!(asked(b"{\"a\":1}", Some(&actor(None))), Some(serde_json::json!({"a": 1})));
        assert_eq!(shown(b""), None);
        assert_eq!(shown(b"{\"a\":1}"), Some(serde_json::json!({"a": 1})));
        assert_eq!(shown(b"{\"token\":\"s3\",\"b\":1}"), Some(serde_json::json!({"token": "…", "b": 1})));
        assert_eq!(shown(b"\xff"), Some("1 bytes".into()));
        assert_eq!(shown(&vec![b' '; ASKED_MAX + 1]), Some("4097 bytes".into()));
    }
}
