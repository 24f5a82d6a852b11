//! Tenants: what each may have, what it has, and what is left.

use super::App;
use super::extract::{Admin, Auth, Json, Name};
use super::problem::Problem;
use crate::audit::Asking;
use crate::machine::{Failure, Forgotten, Machine, Tenant};
use crate::tenant::QuotaPatch;
use axum::Extension;
use serde::Serialize;
use utoipa::ToSchema;

type State = axum::extract::State<App>;

/// Tenants.
#[derive(Serialize, ToSchema)]
pub struct Tenants {
    /// By name.
    pub tenants: Vec<Tenant>,
}

/// All tenants; a tenant sees itself
#[utoipa::path(get, path = "/tenants", tag = "tenants", operation_id = "listTenants",
    responses((status = 200, body = Tenants), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(app: State, Auth(caller): Auth) -> Result<axum::Json<Tenants>, Problem> {
    let all = move |machine: &mut Machine| machine.tenants(&caller);
    Ok(axum::Json(Tenants { tenants: app.core.call(all).await? }))
}

/// One tenant: what it may have, what it has, and what is left
#[utoipa::path(get, path = "/tenants/{name}", tag = "tenants", operation_id = "showTenant",
    params(("name" = String, Path)),
    responses((status = 200, body = Tenant), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    app: State,
    Auth(caller): Auth,
    Name(name): Name,
) -> Result<axum::Json<Tenant>, Problem> {
    Ok(axum::Json(app.core.call(move |machine| machine.tenant(&caller, &name)).await??))
}

/// Set a quota (RFC 7396): the administrator the ceiling, a tenant its own below it
#[utoipa::path(patch, path = "/tenants/{name}", tag = "tenants", operation_id = "changeTenant",
    request_body = QuotaPatch, params(("name" = String, Path)),
    responses((status = 200, body = Tenant), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn patch(
    app: State,
    Auth(caller): Auth,
    Name(name): Name,
    Extension(asking): Extension<Asking>,
    Json(terms, _): Json<QuotaPatch>,
) -> Result<axum::Json<Tenant>, Problem> {
    let set = move |machine: &mut Machine| {
        let before = machine.quotas.set_by(&caller, &name)?;
        asking.before(&before);
        let quota = terms.on(before);
        let tenant = machine.set_quota(&caller, &name, quota.clone())?;
        asking.after(&quota);
        Ok::<_, Failure>(tenant)
    };
    Ok(axum::Json(app.core.call(set).await??))
}

/// Forget a tenant that has no disks, with its tokens and its clients' certificates: what they have open ends
#[utoipa::path(delete, path = "/tenants/{name}", tag = "tenants", operation_id = "removeTenant",
    params(("name" = String, Path)),
    responses((status = 200, body = Forgotten),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn remove(app: State, _: Admin, Name(name): Name) -> Result<axum::Json<Forgotten>, Problem> {
    Ok(axum::Json(app.core.call(move |machine| machine.remove_tenant(&name)).await??))
}
