//! Disks made and removed on the page, how to attach to them, and tenants.

use super::{App, Shared, Who, blocking, done, no_disk, read};
use crate::guard::{may_change, may_create};
use crate::offer::Wanted;
use crate::source::{Problem, Terms, Viewer};
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde::Deserialize;

type Body<T> = Result<Json<T>, JsonRejection>;

pub(super) async fn offer(
    State(app): Shared,
    Who(viewer): Who,
    body: Body<Wanted>,
) -> Result<Response, Problem> {
    let wanted = read(body)?;
    Ok(Json(blocking(&app, move |app| app.source.offer(&viewer, &wanted)).await?).into_response())
}

pub(super) async fn create(
    State(app): Shared,
    Who(viewer): Who,
    body: Body<Wanted>,
) -> Result<Response, Problem> {
    may_create(&viewer)?;
    let wanted = read(body)?;
    let made = blocking(&app, move |app| app.source.create(&viewer, &wanted)).await?;
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

#[derive(Deserialize)]
pub(super) struct Removal {
    #[serde(default)]
    force: bool,
}

pub(super) async fn remove(
    State(app): Shared,
    Who(viewer): Who,
    Path(name): Path<String>,
    Query(removal): Query<Removal>,
) -> Result<Response, Problem> {
    may_create(&viewer)?;
    seen(&app, &viewer, &name)?;
    Ok(done(blocking(&app, move |app| app.source.remove(&viewer, &name, removal.force)).await?))
}

pub(super) async fn attach(
    State(app): Shared,
    Who(viewer): Who,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    seen(&app, &viewer, &name)?;
    Ok(Json(blocking(&app, move |app| app.source.attach(&viewer, &name)).await?).into_response())
}

/// Somebody else's disk is as none.
fn seen(app: &App, viewer: &Viewer, name: &str) -> Result<(), Problem> {
    app.hub().disk(viewer, name).map(drop).ok_or_else(|| no_disk(name))
}

pub(super) async fn tenants(State(app): Shared, Who(viewer): Who) -> Result<Response, Problem> {
    Ok(Json(blocking(&app, move |app| app.source.tenants(&viewer)).await?).into_response())
}

pub(super) async fn set_quota(
    State(app): Shared,
    Who(viewer): Who,
    Path(name): Path<String>,
    body: Body<Terms>,
) -> Result<Response, Problem> {
    may_change(&viewer)?;
    let terms = read(body)?;
    Ok(done(blocking(&app, move |app| app.source.set_quota(&viewer, &name, &terms)).await?))
}
