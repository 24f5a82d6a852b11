//! The cluster's authority: invitations, certificates, roots.

use super::App;
use super::extract::{Admin, Json, Name};
use super::problem::Problem;
use crate::audit::{Actor, Asking};
use crate::authority::{AuthorityError, Signed};
use crate::model::{CertificateRecord, InvitationRecord};
use axum::Extension;
use axum::http::StatusCode;
use henge_tls::{Role, Token, serial_of};
use henge_web::Caller;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

type State = axum::extract::State<App>;

/// Most hosts' names of one certificate.
const HOSTS_MAX: usize = 16;

impl From<AuthorityError> for Problem {
    fn from(e: AuthorityError) -> Problem {
        match e {
            AuthorityError::Failure(failure) => failure.into(),
            AuthorityError::Unavailable(why) => why.into(),
            AuthorityError::None => Problem::new(StatusCode::NOT_FOUND, e.to_string()),
            AuthorityError::Issue(_) => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, e.to_string()),
            AuthorityError::Io(_) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, e.to_string()),
        }
    }
}

/// A root.
#[derive(Serialize, ToSchema)]
pub struct RootView {
    /// SHA-256 of its certificate.
    pub fingerprint: String,
    /// Milliseconds since 1970.
    pub created: u64,
    /// Whether it signs.
    pub signs: bool,
}

/// An invitation, without its token.
#[derive(Serialize, ToSchema)]
pub struct InvitationView {
    /// Names it.
    pub id: String,
    /// Who may join, like `node/n1`.
    pub whose: String,
    /// Whose client it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Not after; milliseconds since 1970.
    pub expires: u64,
    /// When it was used; milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
}

/// A certificate that was issued.
#[derive(Serialize, ToSchema)]
pub struct CertificateView {
    /// Its number, in hexadecimal.
    pub serial: String,
    /// Whose it is, like `node/n1`.
    pub whose: String,
    /// Whose client it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Milliseconds since 1970.
    pub issued: u64,
    /// Not after; milliseconds since 1970.
    pub expires: u64,
    /// When it was revoked; milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked: Option<u64>,
}

/// The authority.
#[derive(Serialize, ToSchema)]
pub struct AuthorityView {
    /// The cluster's name.
    pub cluster: String,
    /// The newest first.
    pub roots: Vec<RootView>,
    /// Those that count, and those that were used.
    pub invitations: Vec<InvitationView>,
    /// Those that have not expired.
    pub certificates: Vec<CertificateView>,
}

/// An invitation to be made.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewInvitation {
    /// As what: node, proxy, client or manager.
    #[schema(example = "node")]
    pub role: String,
    /// As whom.
    #[schema(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]
    pub name: String,
    /// Of which tenant a client is: it ends with that.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]
    pub tenant: Option<String>,
    /// By which hosts' names and addresses clients reach it.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// How long it counts; an hour if not stated, 30 days at most.
    #[serde(default)]
    #[schema(example = "1h", max_length = 64)]
    pub lasts: Option<String>,
}

/// An invitation that was made; the token is told this once.
#[derive(Serialize, ToSchema)]
pub struct MadeInvitation {
    /// Names it.
    pub id: String,
    /// For `henge join`.
    pub token: String,
    /// Not after; milliseconds since 1970.
    pub expires: u64,
}

/// Who wants to join.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Joining {
    /// What `henge ca invite` printed.
    #[schema(max_length = 256)]
    pub token: String,
    /// A request for a certificate (PKCS #10, in PEM).
    #[schema(max_length = 16384)]
    pub request: String,
}

/// Who wants a new certificate for the one that it shows.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Renewing {
    /// A request for a certificate (PKCS #10, in PEM).
    #[schema(max_length = 16384)]
    pub request: String,
}

/// What was signed, and whom to believe.
#[derive(Serialize, ToSchema)]
pub struct Joined {
    /// Who it is: `spiffe://CLUSTER/ROLE/NAME`.
    pub identity: String,
    /// The certificate, its root behind it, in PEM.
    pub certificate: String,
    /// The cluster's roots, in PEM.
    pub ca: String,
    /// Lists of certificates that count no more, in PEM; empty for none.
    pub revoked: String,
    /// Not after; seconds since 1970.
    pub until: u64,
}

/// Whose certificates are to count no more.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Revoking {
    /// A number, or somebody, like `node/n1`.
    #[schema(max_length = 256)]
    pub whose: String,
}

/// How many certificates.
#[derive(Serialize, ToSchema)]
pub struct Counted {
    /// How many.
    pub certificates: usize,
}

/// What counts no more.
#[derive(Serialize, ToSchema)]
pub struct RevokedView {
    /// Certificates.
    pub certificates: usize,
    /// Invitations that were open.
    pub invitations: usize,
}

/// A root that was made.
#[derive(Serialize, ToSchema)]
pub struct MadeRoot {
    /// SHA-256 of its certificate.
    pub fingerprint: String,
}

/// Which root ends.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retiring {
    /// Also while certificates of it count.
    #[serde(default)]
    pub anyway: bool,
}

/// The cluster's roots, invitations and certificates
#[utoipa::path(get, path = "/ca", tag = "ca", operation_id = "showAuthority",
    responses((status = 200, body = AuthorityView), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(app: State, _: Admin) -> Result<axum::Json<AuthorityView>, Problem> {
    let one = |i: &InvitationRecord| InvitationView {
        id: i.id.clone(),
        whose: i.whose(),
        tenant: i.tenant.clone(),
        expires: i.expires,
        used: i.used,
    };
    let certificate = |c: &CertificateRecord| CertificateView {
        serial: c.serial.clone(),
        whose: c.whose(),
        tenant: c.tenant.clone(),
        issued: c.issued,
        expires: c.expires,
        revoked: c.revoked,
    };
    let all = app.core.call(move |machine| {
        let authority = machine.identities.authority()?;
        let root = |(i, r): (usize, &crate::model::RootRecord)| RootView {
            fingerprint: henge_tls::fingerprint(&r.certificate).unwrap_or_default(),
            created: r.created,
            signs: i == 0,
        };
        Some(AuthorityView {
            cluster: authority.cluster.clone(),
            roots: authority.roots.iter().enumerate().map(root).collect(),
            invitations: machine.identities.invitations(machine.journal.now()).map(one).collect(),
            certificates: machine.identities.certificates(machine.journal.now()).map(certificate).collect(),
        })
    });
    Ok(axum::Json(all.await?.ok_or(AuthorityError::None)?))
}

/// Invite somebody to join the cluster; the token is told this once, and opens the door once
#[utoipa::path(post, path = "/ca/invitations", tag = "ca", operation_id = "invite", request_body = NewInvitation,
    responses((status = 201, body = MadeInvitation),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn invite(
    app: State,
    _: Admin,
    Json(new, _bytes): Json<NewInvitation>,
) -> Result<(StatusCode, axum::Json<MadeInvitation>), Problem> {
    let bad = |why: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why);
    let role: Role = new.role.parse().map_err(bad)?;
    if !henge_api::is_name(&new.name) {
        return Err(bad("the name is none; up to 64 letters, digits, '.', '_' and '-' are".into()));
    }
    match &new.tenant {
        Some(_) if role != Role::Client => return Err(bad(format!("a {role} is no tenant's; clients are"))),
        Some(tenant) if !henge_api::is_name(tenant) => {
            return Err(bad(
                "the tenant's name is none; up to 64 letters, digits, '.', '_' and '-' are".into()
            ));
        }
        _ => {}
    }
    let long = new.hosts.iter().any(|host| host.is_empty() || host.len() > 253);
    if new.hosts.len() > HOSTS_MAX || long {
        return Err(bad(format!("up to {HOSTS_MAX} hosts, of 253 characters each at most")));
    }
    let lasts = match &new.lasts {
        None => Duration::from_secs(3600),
        Some(text) => {
            let lasts = henge_core::parse_duration(text).map_err(|e| bad(format!("lasts: {}", e.0)))?;
            Duration::from_nanos(lasts.as_nanos())
        }
    };
    let (token, record) = app.authority.invite(role, (new.name, new.tenant), new.hosts, lasts).await?;
    Ok((StatusCode::CREATED, axum::Json(MadeInvitation { id: record.id, token, expires: record.expires })))
}

/// Take an invitation back
#[utoipa::path(delete, path = "/ca/invitations/{id}", tag = "ca", operation_id = "uninvite",
    params(("id" = String, Path)),
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn uninvite(app: State, _: Admin, Name(id): Name) -> Result<StatusCode, Problem> {
    app.core.call(move |machine| machine.identities.uninvite(&mut machine.journal, &id)).await??;
    Ok(StatusCode::NO_CONTENT)
}

fn joined(signed: Signed) -> axum::Json<Joined> {
    axum::Json(Joined {
        identity: signed.who.to_string(),
        certificate: signed.certificate,
        ca: signed.trust.ca,
        revoked: signed.trust.revoked,
        until: signed.until,
    })
}

/// Join the cluster by an invitation: a certificate for the key of the request
#[utoipa::path(post, path = "/ca/join", tag = "ca", operation_id = "join", request_body = Joining, security(()),
    responses((status = 200, body = Joined),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn join(
    app: State,
    asking: Option<Extension<Asking>>,
    Json(new, _bytes): Json<Joining>,
) -> Result<axum::Json<Joined>, Problem> {
    let token: Token =
        new.token.parse().map_err(|e| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{e}")))?;
    let signed = app.authority.join(&token, new.request).await?;
    if let Some(Extension(asking)) = asking {
        asking.asks(Actor { actor: signed.who.to_string(), token: String::new(), tenant: None });
    }
    Ok(joined(signed))
}

/// Whom the cluster believes.
#[derive(Serialize, ToSchema)]
pub struct TrustView {
    /// The cluster's roots, in PEM.
    pub ca: String,
    /// Lists of certificates that count no more, in PEM; empty for none.
    pub revoked: String,
}

/// Whom the cluster believes: its roots, and the lists of certificates that count no more. Nobody is asked who they are
#[utoipa::path(get, path = "/ca/trust", tag = "ca", operation_id = "showTrust", security(()),
    responses((status = 200, body = TrustView),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn trust(app: State) -> Result<axum::Json<TrustView>, Problem> {
    let henge_api::manager::Trust { ca, revoked } = app.authority.trust().await?;
    Ok(axum::Json(TrustView { ca, revoked }))
}

/// Exchange the certificate that this connection shows for a new one, with the same names
#[utoipa::path(post, path = "/ca/renew", tag = "ca", operation_id = "renew", request_body = Renewing, security(()),
    responses((status = 200, body = Joined),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn renew(
    app: State,
    caller: Option<Extension<Arc<Caller>>>,
    asking: Option<Extension<Asking>>,
    Json(new, _bytes): Json<Renewing>,
) -> Result<axum::Json<Joined>, Problem> {
    let shown = caller.as_ref().and_then(|Extension(caller)| caller.identity());
    let Some((who, certificate)) = shown else {
        let why =
            "this needs a certificate of the cluster that counts: `henge join` fetches one, by an invitation";
        return Err(Problem::new(StatusCode::UNAUTHORIZED, why));
    };
    if let Some(Extension(asking)) = asking {
        asking.asks(Actor { actor: who.to_string(), token: String::new(), tenant: None });
    }
    let serial = serial_of(certificate).unwrap_or_default();
    Ok(joined(app.authority.renew(&serial, new.request).await?))
}

/// Revoke a certificate, or all of somebody, with the invitations
#[utoipa::path(post, path = "/ca/revoke", tag = "ca", operation_id = "revoke", request_body = Revoking,
    responses((status = 200, body = RevokedView),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn revoke(
    app: State,
    _: Admin,
    Json(asked, _bytes): Json<Revoking>,
) -> Result<axum::Json<RevokedView>, Problem> {
    let revoked =
        app.core.call(move |machine| machine.identities.revoke(&mut machine.journal, &asked.whose)).await??;
    Ok(axum::Json(RevokedView { certificates: revoked.certificates, invitations: revoked.invitations }))
}

/// Make a second root, which signs from now on; both are believed
#[utoipa::path(post, path = "/ca/rotate", tag = "ca", operation_id = "rotate",
    responses((status = 201, body = MadeRoot),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn rotate(app: State, _: Admin) -> Result<(StatusCode, axum::Json<MadeRoot>), Problem> {
    let fingerprint = app.authority.rotate().await?;
    Ok((StatusCode::CREATED, axum::Json(MadeRoot { fingerprint })))
}

/// End the older of two roots; its certificates count no more
#[utoipa::path(post, path = "/ca/retire", tag = "ca", operation_id = "retire", request_body = Retiring,
    responses((status = 200, body = Counted),
    (status = "4XX", body = Problem, content_type = "application/problem+json"),
    (status = 503, body = Problem, content_type = "application/problem+json")))]
pub(super) async fn retire(
    app: State,
    _: Admin,
    Json(asked, _bytes): Json<Retiring>,
) -> Result<axum::Json<Counted>, Problem> {
    Ok(axum::Json(Counted { certificates: app.authority.retire(asked.anyway).await? }))
}
