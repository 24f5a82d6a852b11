//! Disks: created, listed, shown, changed, removed; and what admission would say.

use super::App;
use super::extract::{Auth, CheckedQuery, Json, Looking, Name, expected, key, only_fresh};
use super::problem::Problem;
use super::views::{self, Disk};
use crate::access::{self, Access, Secrets};
use crate::audit::Asking;
use crate::machine::{Caller, Created, Decision, Failure, Machine};
use crate::model::{Begins, DiskSpec, Phase};
use crate::tenant::full_name;
use crate::tokens::fingerprint;
use axum::Extension;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use henge_api::manager::Origin;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};

/// How long a request waits for nodes to carry out what was decided, if it does not say.
const WAIT_S: u64 = 5;
const WAIT_MAX_S: u64 = 60;

/// Disks.
#[derive(Serialize, ToSchema)]
pub struct Disks {
    /// By name.
    pub disks: Vec<Disk>,
}

/// A disk to be created.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDisk {
    /// Its name, and its export's: letters, digits, '.', '_', '-'.
    #[schema(example = "mail", pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]
    pub name: String,
    /// Whose, if the administrator asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]
    pub tenant: Option<String>,
    /// What it is promised.
    pub spec: DiskSpec,
    /// Who may attach by NBD: names in certificates, or "anyone" alone; nobody if not stated. By iSCSI and NVMe: who knows the secrets
    /// that the answer shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub nbd: Vec<String>,
    /// An image that is there, on a pool of images: it is served as it is, and stays when the disk is removed. The administrator's to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "vm-17", max_length = 128)]
    pub image: Option<String>,
    /// A snapshot of an image, as which it begins, on a pool of images. The administrator's to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "golden@1", max_length = 256)]
    pub from: Option<String>,
    /// What a former disk of its name has left becomes this one's. The administrator's to ask.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopt: bool,
}

/// Who may attach to a disk from now on.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAccess {
    /// By NBD: names in certificates, or "anyone" alone; as before if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub nbd: Option<Vec<String>>,
}

/// Terms to be changed, as a specification has them.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(try_from = "serde_json::Map<String, serde_json::Value>")]
pub struct DiskPatch(serde_json::Map<String, serde_json::Value>);

impl TryFrom<serde_json::Map<String, serde_json::Value>> for DiskPatch {
    type Error = String;

    fn try_from(terms: serde_json::Map<String, serde_json::Value>) -> Result<DiskPatch, String> {
        if let Some(key) = terms.keys().find(|key| henge_core::Term::of_disk(key).is_none()) {
            return Err(henge_api::typed(key, "").expect_err("what is no term has no value"));
        }
        let stated = terms.iter().filter(|(_, term)| !term.is_null());
        let mut whole =
            stated.map(|(key, term)| (key.clone(), term.clone())).collect::<serde_json::Map<_, _>>();
        whole.entry("capacity").or_insert("0B".into());
        serde_json::from_value::<DiskSpec>(whole.into()).map_err(|e| e.to_string())?;
        Ok(DiskPatch(terms))
    }
}

/// A specification's, of which nothing has to be there.
impl PartialSchema for DiskPatch {
    fn schema() -> RefOr<Schema> {
        let mut schema = DiskSpec::schema();
        if let RefOr::T(Schema::Object(object)) = &mut schema {
            object.required.clear();
            let what = "Terms to be changed; null takes one away, what is not mentioned stays. A disk grows; NBD clients see it when \
                        they connect anew. No disk shrinks, and it stays on as many nodes as it was made on.";
            object.description = Some(what.into());
        }
        schema
    }
}

impl ToSchema for DiskPatch {}

/// How long to wait for nodes.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Wait {
    /// Seconds to wait for the nodes to carry it out; 5 if not stated.
    #[param(minimum = 0, maximum = 60)]
    wait: Option<u64>,
}

/// Whose disk, and how long to wait for nodes.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PutQuery {
    /// Seconds to wait for the nodes to carry it out; 5 if not stated.
    #[param(minimum = 0, maximum = 60)]
    wait: Option<u64>,
    /// Whose, if the administrator creates it.
    tenant: Option<String>,
}

/// How to remove.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Removal {
    /// Even if clients are connected.
    force: Option<bool>,
    /// Seconds to wait for the nodes to carry it out; 5 if not stated.
    #[param(minimum = 0, maximum = 60)]
    wait: Option<u64>,
}

fn wait_of(seconds: Option<u64>) -> Duration {
    Duration::from_secs(seconds.unwrap_or(WAIT_S).min(WAIT_MAX_S))
}

/// Secrets for a new disk, of which its owner is told once.
fn guarded(nbd: Vec<String>) -> Result<Access, Problem> {
    access::check(&nbd).map_err(|e| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, e.0))?;
    let secrets = Secrets::new();
    let secrets = secrets.map_err(|e| Problem::new(StatusCode::SERVICE_UNAVAILABLE, e.to_string()))?;
    Ok(Access { nbd, secrets })
}

fn with_tag(status: StatusCode, disk: Disk) -> Response {
    let tag = HeaderValue::from_str(&format!("\"{}\"", disk.revision)).expect("digits are a header's value");
    let location = HeaderValue::from_str(&format!("/api/v1/disks/{}", disk.names.name))
        .expect("names are a header's value");
    let mut response = (status, axum::Json(disk)).into_response();
    response.headers_mut().insert(header::ETAG, tag);
    if status == StatusCode::CREATED || status == StatusCode::ACCEPTED {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Waits until a disk is as wanted, is gone, or time is up.
async fn settled(
    app: &App,
    caller: &Caller,
    name: &str,
    patience: Duration,
    done: impl Fn(Option<&Disk>) -> bool,
) -> Result<(Option<Disk>, Option<String>), Problem> {
    let deadline = tokio::time::Instant::now() + patience;
    let mut versions = app.core.versions();
    loop {
        versions.borrow_and_update();
        let (caller, asked) = (caller.clone(), name.to_owned());
        let look = move |machine: &mut Machine| {
            let disk = machine.inventory.visible(&caller, &asked).ok();
            // What failed is known by the whole name.
            let full = disk.map(|d| d.name.clone()).or(caller.tenant().map(|t| full_name(t, &asked)));
            let failure = machine.failures.of(&full.unwrap_or(asked)).map(str::to_owned);
            (disk.map(|d| views::disk(machine, &caller, d)), failure)
        };
        let (disk, failure) = app.core.call(look).await?;
        if failure.is_some() || done(disk.as_ref()) {
            return Ok((disk, failure));
        }
        if tokio::time::timeout_at(deadline, versions.changed()).await.is_err() {
            return Ok((disk, None));
        }
    }
}

async fn created(
    app: &App,
    caller: &Caller,
    created: Created,
    access: &Access,
    patience: Duration,
) -> Result<Response, Problem> {
    let over = |disk: Option<&Disk>| disk.is_none_or(|d| d.phase != Phase::Creating);
    let (mut disk, failure) = settled(app, caller, &created.name, patience, over).await?;
    if let Some(disk) = disk.as_mut().filter(|_| created.fresh) {
        disk.attach = Some(views::attach(disk, access));
    }
    match (disk, failure) {
        (_, Some(why)) => Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why)),
        (Some(disk), None) if disk.phase == Phase::Creating => Ok(with_tag(StatusCode::ACCEPTED, disk)),
        (Some(disk), None) if created.fresh => Ok(with_tag(StatusCode::CREATED, disk)),
        (Some(disk), None) => Ok(with_tag(StatusCode::OK, disk)),
        (None, None) => {
            let why = format!("disk \"{}\" was removed meanwhile", created.name);
            Err(Problem::new(StatusCode::CONFLICT, why))
        }
    }
}

/// All disks that the token's owner may see
#[utoipa::path(get, path = "/disks", tag = "disks", operation_id = "listDisks",
    responses((status = 200, body = Disks), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    app: axum::extract::State<App>,
    Auth(caller): Auth,
) -> Result<axum::Json<Disks>, Problem> {
    let all = move |machine: &mut Machine| {
        machine.disks().filter(|d| caller.owns(d)).map(|d| views::disk(machine, &caller, d)).collect()
    };
    Ok(axum::Json(Disks { disks: app.core.call(all).await? }))
}

/// Create a disk: admitted and placed, or refused with the reason and what would fit
#[utoipa::path(post, path = "/disks", tag = "disks", operation_id = "createDisk", request_body = NewDisk,
    params(Wait, ("Idempotency-Key" = Option<String>, Header, description = "The same key makes the same disk, once")),
    responses((status = 201, body = Disk, description = "Created and served"),
    (status = 202, body = Disk, description = "Admitted; its node has yet to make it"),
    (status = 200, body = Disk, description = "Created before by this key"),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    app: axum::extract::State<App>,
    Auth(caller): Auth,
    headers: HeaderMap,
    CheckedQuery(asked): CheckedQuery<Wait>,
    Json(new, bytes): Json<NewDisk>,
) -> Result<Response, Problem> {
    let key = key(&headers)?;
    let hash = fingerprint(&bytes);
    let (who, access) = (caller.clone(), guarded(new.nbd)?);
    let origin = Origin { image: new.image, from: new.from, adopt: new.adopt };
    let begins = Begins { access: Some(access.clone()), origin };
    let create = move |machine: &mut Machine| {
        let key = key.as_deref().map(|key| (key, hash.as_str()));
        machine.create_for(&who, &new.name, &new.spec, new.tenant.as_deref(), key, begins)
    };
    let made = app.core.call(create).await??;
    created(&app, &caller, made, &access, wait_of(asked.wait)).await
}

/// One disk
#[utoipa::path(get, path = "/disks/{name}", tag = "disks", operation_id = "showDisk", params(("name" = String, Path)),
    responses((status = 200, body = Disk), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    app: axum::extract::State<App>,
    Auth(caller): Auth,
    Name(name): Name,
) -> Result<Response, Problem> {
    let one = move |machine: &mut Machine| {
        machine.inventory.visible(&caller, &name).map(|d| views::disk(machine, &caller, d))
    };
    Ok(with_tag(StatusCode::OK, app.core.call(one).await??))
}

/// Create a disk of that name, or make its contract so
#[utoipa::path(put, path = "/disks/{name}", tag = "disks", operation_id = "putDisk", request_body = DiskSpec,
    params(("name" = String, Path), PutQuery,
    ("If-Match" = Option<String>, Header, description = "Change only if this is its entity tag"),
    ("If-None-Match" = Option<String>, Header, description = "*: create only")),
    responses((status = 200, body = Disk, description = "It is so"), (status = 201, body = Disk, description = "Created"),
    (status = 202, body = Disk, description = "Decided; a node has yet to carry it out"),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn put(
    app: axum::extract::State<App>,
    Auth(caller): Auth,
    Name(name): Name,
    headers: HeaderMap,
    CheckedQuery(asked): CheckedQuery<PutQuery>,
    Extension(asking): Extension<Asking>,
    Json(spec, _bytes): Json<DiskSpec>,
) -> Result<Response, Problem> {
    let (expected, only_fresh) = (expected(&headers)?, only_fresh(&headers));
    let (who, called) = (caller.clone(), name.clone());
    let conditional = headers.contains_key(header::IF_MATCH);
    let access = guarded(Vec::new())?;
    let begins = Begins { access: Some(access.clone()), ..Begins::default() };
    let put = move |machine: &mut Machine| {
        let tenant = who.tenant().or(asked.tenant.as_deref());
        // Somebody else's disk is as none: what is in the way of a new one, creating it says.
        let known = machine.inventory.resolve(tenant, &called).filter(|d| who.owns(d));
        if let Some(disk) = known {
            asking.before(&disk.spec);
        }
        match known.map(|d| d.spec == spec) {
            None if conditional => {
                Err(Failure::Changed(format!("there is no disk \"{called}\" that could match")))
            }
            None => machine.create_for(&who, &called, &spec, asked.tenant.as_deref(), None, begins).map(Some),
            Some(_) if only_fresh => Err(Failure::Changed(format!("there is a disk \"{called}\" already"))),
            Some(false) if !conditional => {
                let why = format!(
                    "there is a disk \"{called}\" with another specification; send If-Match with its entity tag to change it"
                );
                Err(Failure::Conflict(why))
            }
            Some(_) => {
                let full = tenant.map_or_else(|| called.clone(), |tenant| full_name(tenant, &called));
                let full = if machine.inventory.disk(&full).is_some() { full } else { called };
                machine.change(&who, &full, &spec, expected).map(|()| None)
            }
        }
    };
    match app.core.call(put).await?? {
        Some(made) => created(&app, &caller, made, &access, wait_of(asked.wait)).await,
        None => changed(&app, &caller, &name, wait_of(asked.wait)).await,
    }
}

/// Change terms of a contract (RFC 7396); at once, for queued and new requests
#[utoipa::path(patch, path = "/disks/{name}", tag = "disks", operation_id = "changeDisk", request_body = DiskPatch,
    params(("name" = String, Path), Wait,
    ("If-Match" = Option<String>, Header, description = "Change only if this is its entity tag")),
    responses((status = 200, body = Disk), (status = 202, body = Disk, description = "Decided; a node has yet to take it"),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn patch(
    app: axum::extract::State<App>,
    Auth(caller): Auth,
    Name(name): Name,
    headers: HeaderMap,
    CheckedQuery(asked): CheckedQuery<Wait>,
    Extension(asking): Extension<Asking>,
    Json(DiskPatch(terms), _bytes): Json<DiskPatch>,
) -> Result<Response, Problem> {
    let expected = expected(&headers)?;
    let (who, called) = (caller.clone(), name.clone());
    let patch = move |machine: &mut Machine| {
        let before = &machine.inventory.visible(&who, &called)?.spec;
        asking.before(before);
        let spec = merged(before, terms)?;
        machine.change(&who, &called, &spec, expected)?;
        asking.after(&spec);
        Ok::<(), Failure>(())
    };
    app.core.call(patch).await??;
    changed(&app, &caller, &name, wait_of(asked.wait)).await
}

/// RFC 7396 on a specification.
pub(super) fn merged<T: Serialize + serde::de::DeserializeOwned>(
    before: &T,
    terms: serde_json::Map<String, serde_json::Value>,
) -> Result<T, Failure> {
    let mut value = serde_json::to_value(before).expect("it is texts and numbers");
    let object = value.as_object_mut().expect("it is an object");
    for (key, term) in terms {
        if term.is_null() {
            object.remove(&key);
        } else {
            object.insert(key, term);
        }
    }
    serde_json::from_value(value).map_err(|e| Failure::Bad(e.to_string()))
}

async fn changed(app: &App, caller: &Caller, name: &str, patience: Duration) -> Result<Response, Problem> {
    changed_to(app, caller, name, patience, None).await
}

/// `access`: what its owner is told this once.
async fn changed_to(
    app: &App,
    caller: &Caller,
    name: &str,
    patience: Duration,
    access: Option<&Access>,
) -> Result<Response, Problem> {
    let over = |disk: Option<&Disk>| disk.is_none_or(|d| d.phase != Phase::Changing);
    let (mut disk, failure) = settled(app, caller, name, patience, over).await?;
    if let (Some(disk), Some(access)) = (&mut disk, access) {
        disk.attach = Some(views::attach(disk, access));
    }
    match (disk, failure) {
        (_, Some(why)) => Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why)),
        (Some(disk), None) if matches!(disk.phase, Phase::Changing | Phase::Creating) => {
            Ok(with_tag(StatusCode::ACCEPTED, disk))
        }
        (Some(disk), None) => Ok(with_tag(StatusCode::OK, disk)),
        (None, None) => {
            Err(Problem::new(StatusCode::CONFLICT, format!("disk \"{name}\" was removed meanwhile")))
        }
    }
}

/// Give a disk other secrets: those from before open nothing, and who is attached by them is sent away
#[utoipa::path(post, path = "/disks/{name}/access", tag = "disks", operation_id = "rekeyDisk", request_body = NewAccess,
    params(("name" = String, Path), Wait),
    responses((status = 200, body = Disk), (status = 202, body = Disk, description = "Decided; a node that is away still knows those from before"),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn rekey(
    app: axum::extract::State<App>,
    Auth(caller): Auth,
    Name(name): Name,
    CheckedQuery(asked): CheckedQuery<Wait>,
    Json(new, _bytes): Json<NewAccess>,
) -> Result<Response, Problem> {
    let Access { nbd, secrets } = guarded(new.nbd.clone().unwrap_or_default())?;
    let (who, called) = (caller.clone(), name.clone());
    let rekey = move |machine: &mut Machine| machine.rekey(&who, &called, secrets, new.nbd.map(|_| nbd));
    let access = app.core.call(rekey).await??;
    changed_to(&app, &caller, &name, wait_of(asked.wait), Some(&access)).await
}

/// Remove a disk and its data
#[utoipa::path(delete, path = "/disks/{name}", tag = "disks", operation_id = "removeDisk",
    params(("name" = String, Path), Removal,
    ("If-Match" = Option<String>, Header, description = "Remove only if this is its entity tag")),
    responses((status = 204, description = "Gone, and its place is free"),
    (status = 202, body = Disk, description = "It goes when its node is back"),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn remove(
    app: axum::extract::State<App>,
    Auth(caller): Auth,
    Name(name): Name,
    headers: HeaderMap,
    CheckedQuery(asked): CheckedQuery<Removal>,
    Extension(asking): Extension<Asking>,
) -> Result<Response, Problem> {
    let expected = expected(&headers)?;
    let (who, called) = (caller.clone(), name.clone());
    let force = asked.force.unwrap_or(false);
    let remove = move |machine: &mut Machine| {
        if let Ok(disk) = machine.inventory.visible(&who, &called) {
            asking.before(&disk.spec);
        }
        machine.remove(&who, &called, expected, force)
    };
    let here = app.core.call(remove).await??;
    // A node that is away comes when it comes.
    let patience = if here { wait_of(asked.wait) } else { Duration::ZERO };
    match settled(&app, &caller, &name, patience, |d| d.is_none_or(|d| d.phase != Phase::Removing)).await? {
        (Some(disk), _) if disk.phase == Phase::Removing => Ok(with_tag(StatusCode::ACCEPTED, disk)),
        _ => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

/// What admission would say: yes and where, or no, why, and what would fit
#[utoipa::path(post, path = "/admit", tag = "disks", operation_id = "previewDisk", request_body = DiskSpec,
    responses((status = 200, body = Decision),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn admit(
    app: axum::extract::State<App>,
    Looking(caller): Looking,
    Json(spec, _bytes): Json<DiskSpec>,
) -> Result<axum::Json<Decision>, Problem> {
    let nobody_else = !caller.is_administrator();
    let mut decision = app.core.call(move |machine| machine.preview(&caller, &spec)).await??;
    if nobody_else {
        // Where is the administrator's business.
        decision.places.clear();
    }
    Ok(axum::Json(decision))
}
