//! What the audit log says of requests to the page.

use super::Page;
use crate::audit::{Audit, AuditTo};
use crate::core::Core;
use crate::machine::Settings;
use crate::store::MemoryStore;
use crate::tokens::{self, Scope};
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, header};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
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
        [json!(200), json!(id), from],
    ];
    assert_eq!(lines.iter().map(of).collect::<Vec<_>>(), expected, "{text}");
    assert_eq!((&lines[0]["before"], &lines[0]["after"]), (&json!({}), &json!({ "disks": 3 })));
    assert_eq!(lines[0]["path"], "/api/v1/live/tenants/ann/quota");
    assert!(lines[1]["why"].as_str().is_some_and(|why| why.contains("may look")), "{text}");
    assert!(lines[2]["why"].as_str().is_some_and(|why| why.contains("token")), "{text}");
}
