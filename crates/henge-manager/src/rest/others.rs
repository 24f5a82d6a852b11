//! Nodes, pools, events, tokens, and the manager itself.

use super::App;
use super::extract::{Admin, Auth, CheckedQuery, Json, Name};
use super::problem::Problem;
use super::views::{self, Node, Pool};
use crate::audit::Asking;
use crate::core::{Unavailable, now_ms};
use crate::machine::{Caller, Failure, Machine};
use crate::model::{Event, TokenRecord};
use crate::store::Leadership;
use crate::tokens::{self, Scope};
use axum::Extension;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// How long the core may take to say that it is there.
const HEALTH: std::time::Duration = std::time::Duration::from_secs(5);

type State = axum::extract::State<App>;

/// Nodes.
#[derive(Serialize, ToSchema)]
pub struct Nodes {
    /// By name.
    pub nodes: Vec<Node>,
}

/// Pools.
#[derive(Serialize, ToSchema)]
pub struct Pools {
    /// By node and name.
    pub pools: Vec<Pool>,
}

/// Events.
#[derive(Serialize, ToSchema)]
pub struct Events {
    /// The oldest first.
    pub events: Vec<Event>,
}

/// A token without its secret.
#[derive(Serialize, ToSchema)]
pub struct Token {
    /// Names it.
    pub id: String,
    /// Whose; none: an administrator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Milliseconds since 1970.
    pub created: u64,
    /// Not after; milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// It may look, and change nothing.
    pub read: bool,
    /// It opens this disk alone, as nodes call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
}

/// Tokens.
#[derive(Serialize, ToSchema)]
pub struct Tokens {
    /// By id.
    pub tokens: Vec<Token>,
}

/// A token to be made.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Whose; none: an administrator's.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]
    pub tenant: Option<String>,
    /// How long it opens anything; none: until it is removed.
    #[serde(default)]
    #[schema(example = "24h", max_length = 64)]
    pub lasts: Option<String>,
    /// It may look, and change nothing.
    #[serde(default)]
    pub read: bool,
    /// It opens this disk alone, as its tenant calls it.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]
    pub disk: Option<String>,
}

/// A token that was made; the secret is told this once.
#[derive(Serialize, ToSchema)]
pub struct MadeToken {
    /// Names it.
    pub id: String,
    /// The secret.
    pub token: String,
}

/// The manager.
#[derive(Serialize, ToSchema)]
pub struct Health {
    /// Whether this manager decides.
    pub leads: bool,
    /// Who does, if it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Its release.
    pub version: String,
}

/// Which events.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Only later than this one.
    after: Option<u64>,
    /// Only of this disk.
    disk: Option<String>,
    /// The newest so many; 1000 if not stated.
    #[param(minimum = 1, maximum = 10000)]
    limit: Option<u64>,
}

/// All nodes
#[utoipa::path(get, path = "/nodes", tag = "nodes", operation_id = "listNodes",
    responses((status = 200, body = Nodes), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn nodes(app: State, _: Admin) -> Result<axum::Json<Nodes>, Problem> {
    let all = |machine: &mut Machine| machine.inventory.nodes().map(|n| views::node(machine, n)).collect();
    Ok(axum::Json(Nodes { nodes: app.core.call(all).await? }))
}

/// One node
#[utoipa::path(get, path = "/nodes/{name}", tag = "nodes", operation_id = "showNode", params(("name" = String, Path)),
    responses((status = 200, body = Node), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn node(app: State, _: Admin, Name(name): Name) -> Result<axum::Json<Node>, Problem> {
    one_node(&app, name).await
}

async fn one_node(app: &App, name: String) -> Result<axum::Json<Node>, Problem> {
    let asked = name.clone();
    let one = move |machine: &mut Machine| machine.inventory.node(&asked).map(|n| views::node(machine, n));
    let missing = || {
        let short = crate::shorten::shorten(&name);
        Problem::new(StatusCode::NOT_FOUND, format!("there is no node \"{short}\""))
    };
    app.core.call(one).await?.map(axum::Json).ok_or_else(missing)
}

/// Place no new disks there. Disks that other gateways can serve go to them; `leaving` says of each disk where it is with that, or why it stays
#[utoipa::path(post, path = "/nodes/{name}/drain", tag = "nodes", operation_id = "drainNode",
    params(("name" = String, Path)),
    responses((status = 200, body = Node), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn drain(app: State, _: Admin, Name(name): Name) -> Result<axum::Json<Node>, Problem> {
    let asked = name.clone();
    app.core.call(move |machine| machine.drain(&asked, true)).await??;
    one_node(&app, name).await
}

/// Place new disks there again, and let it have disks of gateways
#[utoipa::path(delete, path = "/nodes/{name}/drain", tag = "nodes", operation_id = "undrainNode",
    params(("name" = String, Path)),
    responses((status = 200, body = Node), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn undrain(app: State, _: Admin, Name(name): Name) -> Result<axum::Json<Node>, Problem> {
    let asked = name.clone();
    app.core.call(move |machine| machine.drain(&asked, false)).await??;
    one_node(&app, name).await
}

/// Forget a node that is away and has no disks
#[utoipa::path(delete, path = "/nodes/{name}", tag = "nodes", operation_id = "forgetNode",
    params(("name" = String, Path)),
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn forget(app: State, _: Admin, Name(name): Name) -> Result<StatusCode, Problem> {
    app.core.call(move |machine| machine.forget_node(&name)).await??;
    Ok(StatusCode::NO_CONTENT)
}

/// All pools, and what is left of them
#[utoipa::path(get, path = "/pools", tag = "nodes", operation_id = "listPools",
    responses((status = 200, body = Pools), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn pools(app: State, _: Admin) -> Result<axum::Json<Pools>, Problem> {
    let all =
        |machine: &mut Machine| machine.inventory.nodes().flat_map(|n| views::pools(machine, n)).collect();
    Ok(axum::Json(Pools { pools: app.core.call(all).await? }))
}

/// What happened
#[utoipa::path(get, path = "/events", tag = "events", operation_id = "listEvents", params(EventsQuery),
    responses((status = 200, body = Events), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn events(
    app: State,
    Auth(caller): Auth,
    CheckedQuery(asked): CheckedQuery<EventsQuery>,
) -> Result<axum::Json<Events>, Problem> {
    let some = move |machine: &mut Machine| {
        let mine = |e: &&Event| match &caller {
            Caller::Administrator => true,
            Caller::Tenant(name) => e.tenant.as_deref() == Some(name),
            Caller::Disk { tenant, name } => e.tenant == *tenant && e.disk.as_ref() == Some(name),
        };
        let called = |e: &Event| e.disk.as_deref().map(|full| caller.calls(full).to_owned());
        let of_disk = |e: &&Event| asked.disk.is_none() || e.disk == asked.disk || called(e) == asked.disk;
        let events: Vec<&Event> =
            machine.events(asked.after.unwrap_or(0)).filter(mine).filter(of_disk).collect();
        let limit = asked.limit.unwrap_or(1000).min(10_000) as usize;
        let newest = events.into_iter().rev().take(limit).rev();
        // Where is the administrator's business.
        let place = |e: &Event| e.node.clone().filter(|_| caller.is_administrator());
        newest.map(|e| Event { disk: called(e), node: place(e), ..e.clone() }).collect()
    };
    Ok(axum::Json(Events { events: app.core.call(some).await? }))
}

fn shown(t: &TokenRecord) -> Token {
    Token {
        id: t.id.clone(),
        tenant: t.tenant.clone(),
        created: t.created,
        expires: t.expires,
        read: t.read,
        disk: t.disk.clone(),
    }
}

/// All tokens, without their secrets
#[utoipa::path(get, path = "/tokens", tag = "tokens", operation_id = "listTokens",
    responses((status = 200, body = Tokens), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list_tokens(app: State, _: Admin) -> Result<axum::Json<Tokens>, Problem> {
    let all = |machine: &mut Machine| machine.tokens.all().map(shown).collect();
    Ok(axum::Json(Tokens { tokens: app.core.call(all).await? }))
}

/// A tenant's disk, or one without a tenant, as nodes call it.
fn disk_of(machine: &Machine, tenant: Option<&str>, name: &str) -> Result<String, Failure> {
    let disk = machine.inventory.resolve(tenant, name).filter(|d| d.tenant.as_deref() == tenant);
    disk.map(|d| d.name.clone()).ok_or_else(|| {
        let whose = tenant.map_or("without a tenant".into(), |t| format!("of \"{t}\""));
        let name = crate::shorten::shorten(name);
        Failure::Missing(format!("there is no disk \"{name}\" {whose}; make it first"))
    })
}

/// Make a token for a tenant; its secret is told this once
#[utoipa::path(post, path = "/tokens", tag = "tokens", operation_id = "createToken", request_body = NewToken,
    responses((status = 201, body = MadeToken),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create_token(
    app: State,
    _: Admin,
    Extension(asking): Extension<Asking>,
    Json(new, _bytes): Json<NewToken>,
) -> Result<(StatusCode, axum::Json<MadeToken>), Problem> {
    let bad = |why: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why);
    if new.tenant.as_deref().is_some_and(|t| !henge_api::is_name(t)) {
        return Err(bad(
            "the tenant's name is no name; up to 64 letters, digits, '.', '_' and '-' are".into()
        ));
    }
    let now = now_ms();
    let expires = match &new.lasts {
        None => None,
        Some(text) => {
            let lasts = henge_core::parse_duration(text).map_err(|e| bad(format!("lasts: {}", e.0)))?;
            Some(now.saturating_add(lasts.as_nanos() / 1_000_000))
        }
    };
    let made = tokens::create(Scope { tenant: new.tenant, read: new.read, disk: None }, now, expires);
    let (token, record) = made.map_err(|e| Problem::new(StatusCode::SERVICE_UNAVAILABLE, e.to_string()))?;
    let id = record.id.clone();
    // At once: a token of a disk that is removed meanwhile would open the next one of its name.
    let put = move |machine: &mut Machine| {
        let disk = new.disk.map(|name| disk_of(machine, record.tenant.as_deref(), &name)).transpose()?;
        let record = TokenRecord { disk, ..record };
        asking.after(&shown(&record));
        machine.tokens.put(&mut machine.journal, record);
        Ok::<_, Failure>(())
    };
    app.core.call(put).await??;
    Ok((StatusCode::CREATED, axum::Json(MadeToken { id, token })))
}

/// Remove a token; it opens nothing from now on
#[utoipa::path(delete, path = "/tokens/{id}", tag = "tokens", operation_id = "removeToken",
    params(("id" = String, Path)),
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn remove_token(
    app: State,
    _: Admin,
    Name(id): Name,
    Extension(asking): Extension<Asking>,
) -> Result<StatusCode, Problem> {
    let remove = move |machine: &mut Machine| {
        if let Some(token) = machine.tokens.all().find(|token| token.id == id) {
            asking.before(&shown(token));
        }
        machine.tokens.remove(&mut machine.journal, &id)
    };
    app.core.call(remove).await??;
    Ok(StatusCode::NO_CONTENT)
}

/// Whether this manager decides, as the part of it that decides says; needs no token. 503 where that cannot answer
#[utoipa::path(get, path = "/health", tag = "manager", operation_id = "health", security(()),
    responses((status = 200, body = Health), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn health(app: State) -> Result<axum::Json<Health>, Problem> {
    let health =
        |leads, leader| axum::Json(Health { leads, leader, version: env!("CARGO_PKG_VERSION").into() });
    if let Leadership::Theirs(leader) = app.core.leadership() {
        return Ok(health(false, leader));
    }
    let asked = tokio::time::timeout(HEALTH, app.core.call(|machine| machine.journal.now()));
    match asked.await {
        Ok(Ok(_)) => Ok(health(true, None)),
        Ok(Err(Unavailable::NotLeader(leader))) => Ok(health(false, leader)),
        Ok(Err(why)) => Err(why.into()),
        Err(_) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the manager's core does not answer")),
    }
}
