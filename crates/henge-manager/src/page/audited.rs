//! What the audit log says of requests to the page.

use super::Page;
use crate::audit::{Audit, AuditTo};
use crate::authority::Authority;
use crate::core::Core;
use crate::machine::Settings;
use crate::store::MemoryStore;
use crate::tokens::{self, Scope};
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, header};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use tower_service::Service;

/// The administrator's token and one that may look, with their ids.
fn tokens(core: &Core) -> [(String, String); 2] {
    let give = |read: bool| {
        let (token, record) = tokens::create(Scope { read, ..Scope::default() }, 0, None).unwrap();
        let id = record.id.clone();
        core.call_and_wait(move |machine| machine.tokens.put(&mut machine.journal, record)).unwrap();
        (token, id)
    };
    [give(false), give(true)]
}

async fn ask(routes: &axum::Router, method: &str, path: &str, token: Option<&str>, body: &Value) -> u16 {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("/api/v1/live/{path}"))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT_ENCODING, "gzip");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let mut request = request.body(Body::from(body.to_string())).unwrap();
    request.extensions_mut().insert(ConnectInfo("127.0.0.1:5".parse::<SocketAddr>().unwrap()));
    routes.clone().call(request).await.unwrap().status().as_u16()
}

/// A change by the page has a line as one by the API has: token, address, before and after. So has what was refused.
#[test]
fn the_page_is_noted_as_the_api_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let core = Core::start(Settings::default(), MemoryStore::default()).unwrap();
    let [(admin, id), (reader, reads)] = tokens(&core);
    let page = Page::new(core.clone(), Audit::new(AuditTo::File(path.clone())).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (quota, wanted) = (json!({ "disks": "3" }), json!({ "name": "web", "capacity": "1GB" }));
    runtime.block_on(async {
        let routes = henge_web::router(Arc::new(page));
        let at = "tenants/ann/quota";
        assert_eq!(ask(&routes, "PUT", at, Some(&admin), &quota).await, 200);
        assert_eq!(ask(&routes, "PUT", at, Some(&reader), &quota).await, 403);
        assert_eq!(ask(&routes, "PUT", at, None, &quota).await, 401);
        assert_eq!(ask(&routes, "POST", "offer", Some(&admin), &wanted).await, 200, "nothing changes");
        assert_eq!(
            ask(&routes, "DELETE", "disks/preview", Some(&admin), &json!({})).await,
            404,
            "it is a name"
        );
        assert_eq!(ask(&routes, "POST", "session", None, &json!({ "token": admin })).await, 200);
    });
    core.stop();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains(&admin) && !text.contains(&reader), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |line: &Value| ["status", "token", "address"].map(|key| line[key].clone());
    let from = json!("127.0.0.1:5");
    let expected = [
        [json!(200), json!(id), from.clone()],
        [json!(403), json!(reads), from.clone()],
        [json!(401), Value::Null, from.clone()],
        [json!(404), json!(id), from.clone()],
        [json!(200), json!(id), from],
    ];
    assert_eq!(lines.iter().map(of).collect::<Vec<_>>(), expected, "{text}");
    assert_eq!((&lines[0]["before"], &lines[0]["after"]), (&json!({}), &json!({ "disks": 3 })));
    assert_eq!(lines[0]["path"], "/api/v1/live/tenants/ann/quota");
    assert!(lines[1]["why"].as_str().is_some_and(|why| why.contains("may look")), "{text}");
    assert!(lines[2]["why"].as_str().is_some_and(|why| why.contains("token")), "{text}");
}

/// A client that hangs up once its request is there: what it changes is changed, and noted, by the API and by the page.
#[test]
fn who_hangs_up_has_its_line_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    log.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let core = Core::start(Settings::default(), MemoryStore::default()).unwrap();
    let [(admin, _), _] = tokens(&core);
    let audit = Audit::new(AuditTo::Syslog(path)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let api = crate::rest::router(core.clone(), Arc::clone(&audit), Authority::new(core.clone()));
        let page = henge_web::router(Arc::new(Page::new(core.clone(), audit)));
        let (log, quota) = (Arc::new(log), json!({ "disks": 3 }).to_string());
        for (mut routes, method, path) in
            [(api, "PATCH", "/api/v1/tenants/ann"), (page, "PUT", "/api/v1/live/tenants/ann/quota")]
        {
            let quota = if method == "PUT" { quota.replace('3', "\"3\"") } else { quota.clone() };
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::AUTHORIZATION, format!("Bearer {admin}"));
            let mut request = request.body(Body::from(quota)).unwrap();
            request.extensions_mut().insert(ConnectInfo("127.0.0.1:5".parse::<SocketAddr>().unwrap()));
            // The core answers nobody meanwhile.
            let (busy, (begins, begun), (free, freed)) = (core.clone(), mpsc::channel(), mpsc::channel());
            std::thread::spawn(move || busy.call_and_wait(move |_| begins.send(()).and(Ok(freed.recv()))));
            begun.recv().unwrap();
            tokio::select! {
                biased;
                _ = routes.call(request) => panic!("it is answered at once"),
                () = std::future::ready(()) => {}
            }
            free.send(()).unwrap();
            let log = Arc::clone(&log);
            let line = tokio::task::spawn_blocking(move || {
                let mut bytes = [0; 4096];
                log.recv(&mut bytes).map(|n| String::from_utf8_lossy(&bytes[..n]).into_owned())
            });
            let line = line.await.unwrap().unwrap_or_else(|e| panic!("{method} has no line: {e}"));
            assert!(line.contains(path) && line.contains("\"status\":200"), "{line}");
        }
    });
    core.stop();
}
