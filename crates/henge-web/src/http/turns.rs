//! Turns of those who look: one thread serves the page, and a snapshot of thousands of disks has all of it while it is made.

use super::{App, Who};
use crate::guard::token;
use crate::source::Viewer;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most requests that look and are answered at once, of one tenant, or of one token that is no tenant's. The others of it wait, so whoever
/// else asks waits behind no more than these.
const LOOKS_MAX: usize = 2;

/// Turns, by whose they are.
pub(super) type Turns = BTreeMap<String, Arc<Semaphore>>;

/// Who has the turn that a request was let in with, and did not wait for: nobody has to ask again.
#[derive(Clone)]
pub(super) struct Known(pub Viewer);

/// A turn, or somebody who waits for one.
struct Turn {
    app: Arc<App>,
    whose: String,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turn {
    /// With whether it was waited for.
    async fn wait(app: &Arc<App>, whose: String) -> (Turn, bool) {
        let new = || Arc::new(Semaphore::new(LOOKS_MAX));
        let looks = Arc::clone(app.turns().entry(whose.clone()).or_insert_with(new));
        let mut turn = Turn { app: Arc::clone(app), whose, permit: None };
        turn.permit = Arc::clone(&looks).try_acquire_owned().ok();
        let waits = turn.permit.is_none();
        if waits {
            turn.permit = looks.acquire_owned().await.ok();
        }
        (turn, waits)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = self.app.turns();
        drop(self.permit.take());
        // Whoever has a turn, or waits for one, has a share of it.
        if turns.get(&self.whose).is_some_and(|looks| Arc::strong_count(looks) == 1) {
            turns.remove(&self.whose);
        }
    }
}

/// All tokens of a tenant have the same turns, and all of a disk; each other token has its own.
fn whose(viewer: &Viewer, headers: &HeaderMap) -> String {
    match (&viewer.tenant, &viewer.disk) {
        (Some(tenant), _) => format!("tenant {tenant}"),
        (None, Some(disk)) => format!("disk {disk}"),
        (None, None) => format!("token {}", token(headers).unwrap_or_default()),
    }
}

/// Around every route: who looks has a turn until the answer is there. What changes something may wait for nodes, and is not among them.
pub(super) async fn by_turns(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let asks = path.ends_with("/preview") || path.ends_with("/offer");
    if !asks && !matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let viewer = match Who::from_request_parts(&mut parts, &app).await {
        Ok(Who(viewer)) => viewer,
        Err(problem) => return problem.into_response(),
    };
    let (_turn, waited) = Turn::wait(&app, whose(&viewer, &parts.headers)).await;
    // Who waited may have lost the token meanwhile, and is asked for again.
    if !waited {
        parts.extensions.insert(Known(viewer));
    }
    next.run(Request::from_parts(parts, body)).await
}

#[cfg(test)]
mod tests {
    use super::super::live::tests::Both;
    use super::*;
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
            let routes = Router::new()
                .route("/disks", any(stays.clone()))
                .route("/offer", any(stays))
                .layer(axum::middleware::from_fn_with_state(Arc::clone(&app), by_turns));
            let (mut let_in, mut under_way) = (Vec::new(), Vec::new());
            for (method, path, token) in [
                ("GET", "/disks", "ann-1"),
                ("GET", "/disks", "ann-2"),
                ("POST", "/offer", "ann-3"),
                ("GET", "/disks", "bob-1"),
                ("GET", "/disks", "root"),
                ("HEAD", "/disks", "boss"),
                ("POST", "/disks", "ann-1"),
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
            assert_eq!(let_in, [LOOKS_MAX, 0, 0, LOOKS_MAX, LOOKS_MAX, LOOKS_MAX, 20]);
            // Whoever hangs up gives the turn, or the wait for one, back.
            assert_eq!(app.turns().len(), 4);
            under_way.iter().for_each(tokio::task::JoinHandle::abort);
            settle().await;
            assert!(app.turns().is_empty());
        });
    }
}
