//! Around every route of the page: who looks has a turn.

use super::{App, Who};
use crate::guard::token;
use crate::source::Viewer;
use crate::turns::only_looks;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Who has the turn that a request was let in with, and did not wait for: nobody has to ask again.
#[derive(Clone)]
pub(super) struct Known(pub Viewer);

/// All tokens of a tenant have the same turns, and all of a disk; each other token has its own.
fn whose(viewer: &Viewer, headers: &HeaderMap) -> String {
    match (&viewer.tenant, &viewer.disk) {
        (Some(tenant), _) => format!("tenant {tenant}"),
        (None, Some(disk)) => format!("disk {disk}"),
        (None, None) => format!("token {}", token(headers).unwrap_or_default()),
    }
}

/// Who looks has a turn until the answer is there. What changes something may wait for nodes, and is not among them.
pub(super) async fn by_turns(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    // What a browser asks first on behalf of a page elsewhere is refused by its route, whoever asks.
    if !only_looks(request.method(), request.uri().path()) || *request.method() == Method::OPTIONS {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let viewer = match Who::from_request_parts(&mut parts, &app).await {
        Ok(Who(viewer)) => viewer,
        Err(problem) => return problem.into_response(),
    };
    let turn = app.turns.take(whose(&viewer, &parts.headers)).await;
    // Who waited may have lost the token meanwhile, and is asked for again.
    if !turn.waited() {
        parts.extensions.insert(Known(viewer));
    }
    next.run(Request::from_parts(parts, body)).await
}

#[cfg(test)]
mod tests {
    use super::super::live::tests::Both;
    use super::*;
    use crate::turns::LOOKS_MAX;
    use axum::Router;
    use axum::body::Body;
    use axum::http::header;
    use axum::routing::any;
    use tower_service::Service;

    /// The runtime looks at some sixty tasks between two looks at the test.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// Requests that are never over: how many of each twenty are let in.
    #[test]
    fn a_tenant_has_two_of_its_looks_answered_at_once() {
        // One thread that may block: whoever asks for it has it after all who asked before.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.max_blocking_threads(1).build().unwrap().block_on(async {
            let app = App::new(Arc::new(Both));
            let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
            let stays = move || {
                tell.send(()).unwrap();
                std::future::pending::<()>()
            };
            let live = Router::new().route("/disks", any(stays.clone())).route("/offer", any(stays));
            let routes = Router::new()
                .nest("/api/v1/live", live)
                .route_layer(axum::middleware::from_fn_with_state(Arc::clone(&app), by_turns));
            let (mut let_in, mut under_way) = (Vec::new(), Vec::new());
            for (method, path, token) in [
                ("GET", "/api/v1/live/disks", "ann-1"),
                ("GET", "/api/v1/live/disks", "ann-2"),
                ("POST", "/api/v1/live/offer", "ann-3"),
                ("GET", "/api/v1/live/disks", "bob-1"),
                ("GET", "/api/v1/live/disks", "root"),
                ("HEAD", "/api/v1/live/disks", "boss"),
                ("POST", "/api/v1/live/disks", "ann-1"),
                ("OPTIONS", "/api/v1/live/disks", "nobody's"),
            ] {
                for _ in 0..20 {
                    let bearer = format!("Bearer {token}");
                    let request =
                        Request::builder().method(method).uri(path).header(header::AUTHORIZATION, bearer);
                    let mut routes = routes.clone();
                    under_way.push(tokio::spawn(async move {
                        routes.call(request.body(Body::empty()).unwrap()).await
                    }));
                }
                settle().await;
                tokio::task::spawn_blocking(|| ()).await.unwrap();
                settle().await;
                let_in.push(std::iter::from_fn(|| told.try_recv().ok()).count());
            }
            assert_eq!(let_in, [LOOKS_MAX, 0, 0, LOOKS_MAX, LOOKS_MAX, LOOKS_MAX, 20, 20]);
            // Whoever hangs up gives the turn, or the wait for one, back.
            assert_eq!(app.turns.len(), 4);
            under_way.iter().for_each(tokio::task::JoinHandle::abort);
            settle().await;
            assert_eq!(app.turns.len(), 0);
        });
    }
}
