//! The manager's configuration file.
//!
//! ```toml
//! listen = "127.0.0.1:7100"            # the API and the web page
//! nodes = "0.0.0.0:7101"               # where nodes dial
//! state_dir = "/var/lib/henge-manager"
//! secret_file = "/etc/henge/secret"    # what all nodes of the cluster know
//! ```
//!
//! Or, in place of a secret, certificates: the manager is the authority of a cluster, and speaks TLS alone (`authority`):
//!
//! ```toml
//! listen = "10.0.0.1:7100"
//! nodes = "10.0.0.1:7101"
//! cluster = "demo"                     # the name in all certificates: spiffe://demo/node/n1
//! name = "m1"                          # this manager's; its machine's name if not stated
//! hosts = ["manager.example.org"]      # by which it is reached, besides the addresses above
//! ```
//!
//! | key | means | default |
//! |---|---|---|
//! | `identity` | a folder that `henge join` wrote, for a manager that never led | `state_dir/identity` |
//! | `tls` | `{ certificate, key }` for `listen` and `page`, where another authority signed them | the cluster's |
//! | `admission` | `"measured"`: by what was seen, where that is more; `"worst-case"`: by arithmetic alone | `"measured"` |
//! | `tags` | `"central"`: finish times for the parts of disks over several nodes are made here, by the disk's whole rate; `"local"`: every node makes its own, by its part of the rate | `"local"` |
//! | `page` | an address for the web page and Prometheus' metrics, like `"127.0.0.1:7180"` | none |
//! | `period` | between two distributions of a node | `"60s"` |
//! | `window` | what a measurement covers | `"24h"` |
//! | `settle` | after an admission, until a pool's measurements are believed again | `"1h"` |
//! | `events` | how many are kept | 10000 |
//! | `audit` | who changed what, a line of JSON each: `"file"` (`audit.jsonl` in `state_dir`), `"stderr"`, `"syslog"`, `"none"`, or `{ keep = "90d", tenants = { ann = "400d" } }`: files a day in `state_dir/audit`, and for how long | `"file"` |
//! | `insecure` | `true`: `listen` or `page` may be an address that other machines reach, in clear | `false` |
//! | `secret` | the secret itself, in place of its file | |
//! | `advertise` | where this manager's API is for others; needed with etcd where `listen` is no address of one machine | `http://LISTEN` |
//!
//! The state is a file in `state_dir`, unless it is in etcd, where several managers share it and one of them leads:
//!
//! ```toml
//! [etcd]
//! endpoints = ["http://10.0.0.1:2379", "http://10.0.0.2:2379", "http://10.0.0.3:2379"]
//! prefix = "henge/"                    # what all keys begin with
//! lease = "5s"                         # another manager takes over after so long without a sign of life
//! user = "henge"                       # as whom, where etcd's users are enabled
//! password_file = "/etc/henge/etcd-password"
//! ca_file = "/etc/henge/etcd-ca.pem"   # https: who signs for etcd; public authorities where nothing is stated
//! cert_file = "/etc/henge/etcd.pem"    # https: our certificate and its key, where etcd asks for one
//! key_file = "/etc/henge/etcd-key.pem"
//! ```
//!
//! The user's role needs readwrite on the prefix. A certificate is leave to connect, not a user's name: where etcd's users are enabled
//! its gateway takes only certificates without a CommonName.

use crate::audit::{AuditTo, Keep};
use crate::machine::Settings;
use crate::store::{EtcdConfig, Login, Tls, certificates, private_key};
use henge_admission::Rules;
use henge_config::{ConfigError, Source};
use henge_core::{ParamError, Params, Value};
use henge_tls::TlsConfig;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Longest file of certificates, or with a key or a password, in bytes.
const FILE_MAX: u64 = 16 << 20;

/// All of it.
#[derive(Clone)]
pub struct ManagerConfig {
    /// The API.
    pub listen: String,
    /// Where nodes dial.
    pub nodes: String,
    /// The web page and Prometheus' metrics.
    pub page: Option<SocketAddr>,
    /// What is remembered.
    pub state_dir: PathBuf,
    /// Where the state is, if not there.
    pub etcd: Option<EtcdConfig>,
    /// What nodes know; not needed where certificates say who they are.
    pub secret: Option<String>,
    /// The cluster whose authority this manager is.
    pub cluster: Option<Cluster>,
    /// With which certificate the API and the page speak TLS, if not the cluster's.
    pub tls: Option<TlsConfig>,
    /// It makes finish times for the parts of disks over several nodes.
    pub central_tags: bool,
    /// Where it is written who changed what.
    pub audit: AuditTo,
    /// Others than this machine's processes reach the API or the page, in clear; in words.
    pub open: Vec<String>,
    /// Knobs of the machine.
    pub settings: Settings,
}

/// A cluster of certificates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// This manager's.
    pub own: String,
    /// By which hosts' names and addresses it is reached.
    pub hosts: Vec<String>,
    /// Where its certificate is.
    pub identity: PathBuf,
}

/// The file cannot be read, or does not say what it should.
#[derive(Debug, thiserror::Error)]
pub enum ManagerConfigError {
    /// It cannot be read.
    #[error("{0}")]
    Io(String),
    /// It is wrong somewhere.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl ManagerConfig {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ManagerConfigError> {
        let source = Source::read(path).map_err(|e| ManagerConfigError::Io(e.to_string()))?;
        Ok(Self::parse(source)?)
    }

    /// Reads a text.
    pub fn parse(source: Source) -> Result<Self, ConfigError> {
        let params = source.parse("the manager")?;
        Self::from_params(params).map_err(|e| source.point(e))
    }

    fn from_params(mut p: Params) -> Result<Self, ParamError> {
        let listen = p.text("listen")?.unwrap_or_else(|| "127.0.0.1:7100".into());
        let nodes = p.text("nodes")?.unwrap_or_else(|| "127.0.0.1:7101".into());
        let page = page(&mut p)?;
        let state_dir: PathBuf =
            p.text("state_dir")?.unwrap_or_else(|| "/var/lib/henge-manager".into()).into();
        let (tls, identity) = match TlsConfig::take(&mut p)? {
            Some(TlsConfig { identity: Some(dir), .. }) => (None, Some(dir)),
            tls => (tls, None),
        };
        let identity = identity.unwrap_or_else(|| state_dir.join("identity"));
        let listens = [host_of(&listen), host_of(&nodes)].into_iter();
        let cluster = cluster(&mut p, listens.chain(page.map(|page| page.ip().to_string())), identity)?;
        let secret = secret(&mut p, cluster.is_some())?;
        let rules = rules(&mut p)?;
        let central_tags = central_tags(&mut p)?;
        let settings = settings(&mut p, rules)?;
        let advertise = p.text("advertise")?;
        let etcd = match p.table("etcd")? {
            None => None,
            Some(table) => Some(etcd(table, advertise_or(&p, advertise, &listen)?)?),
        };
        let audit = audit(&mut p, &state_dir)?;
        let secure = tls.is_some() || cluster.is_some();
        let open = open(&mut p, if secure { Vec::new() } else { in_clear(&listen, page) })?;
        p.finish()?;
        Ok(ManagerConfig {
            listen,
            nodes,
            page,
            state_dir,
            etcd,
            secret,
            cluster,
            tls,
            central_tags,
            audit,
            open,
            settings,
        })
    }
}

fn page(p: &mut Params) -> Result<Option<SocketAddr>, ParamError> {
    let Some(text) = p.text("page")? else { return Ok(None) };
    let wrong = |_| p.error("page", format!("page is an address like \"127.0.0.1:7180\", not \"{text}\""));
    text.parse().map(Some).map_err(wrong)
}

/// The cluster's secret, where no certificates say who is who.
fn secret(p: &mut Params, certified: bool) -> Result<Option<String>, ParamError> {
    let stated = p.keys().into_iter().find(|key| key == "secret" || key == "secret_file");
    match (certified, stated) {
        (false, _) => henge_config::secret(p).map(Some),
        (true, None) => Ok(None),
        (true, Some(key)) => {
            let message = "the cluster's certificates say who is who; take the secret out".into();
            Err(p.error(&key, message))
        }
    }
}

/// `admission`: by which rules what was measured counts; `None`, where it does not.
fn rules(p: &mut Params) -> Result<Option<Rules>, ParamError> {
    match p.text("admission")?.as_deref() {
        None | Some("measured") => Ok(Some(Rules::OURS)),
        Some("worst-case") => Ok(None),
        Some(other) => {
            let message = format!("admission is \"measured\" or \"worst-case\", not \"{other}\"");
            Err(p.error("admission", message))
        }
    }
}

fn central_tags(p: &mut Params) -> Result<bool, ParamError> {
    match p.text("tags")?.as_deref() {
        None | Some("local") => Ok(false),
        Some("central") => Ok(true),
        Some(other) => {
            let message = format!(
                "tags are \"local\" (every node's own) or \"central\" (this manager's), not \"{other}\""
            );
            Err(p.error("tags", message))
        }
    }
}

/// `period`, `window`, `settle` and `events`.
fn settings(p: &mut Params, rules: Option<Rules>) -> Result<Settings, ParamError> {
    let defaults = Settings::default();
    let mut span = |key: &str, default: u64| -> Result<u64, ParamError> {
        match p.duration(key)? {
            None => Ok(default),
            Some(d) if d.as_nanos() < 1_000_000_000 => Err(p.error(key, format!("{key} is at least 1s"))),
            Some(d) => Ok(d.as_nanos() / 1_000_000),
        }
    };
    let period_ms = span("period", defaults.period_ms)?;
    let window_ms = span("window", defaults.window_ms)?;
    let settle_ms = span("settle", defaults.settle_ms.min(window_ms))?;
    if window_ms < period_ms {
        return Err(p.error("window", "a window is at least one period".into()));
    }
    let events_max = p.integer("events", 1, 1_000_000)?.unwrap_or(defaults.events_max as u64) as usize;
    Ok(Settings { rules, period_ms, window_ms, settle_ms, events_max })
}

/// Why others may read what goes over these addresses; an error, unless `insecure` says that this is known.
fn open(p: &mut Params, in_clear: Vec<(&'static str, String)>) -> Result<Vec<String>, ParamError> {
    let insecure = p.bool("insecure")?.unwrap_or(false);
    if let Some((key, why)) = in_clear.first().filter(|_| !insecure) {
        let help = "write cluster = \"NAME\", so that this manager speaks TLS with certificates of its own; or insecure = true where \
                    nobody listens";
        return Err(ParamError { help: Some(help.into()), ..p.error(key, why.clone()) });
    }
    Ok(in_clear.into_iter().map(|(_, why)| why).collect())
}

/// The host of `HOST:PORT`.
fn host_of(address: &str) -> String {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']']).to_owned()
}

/// `cluster`, `name` and `hosts`.
fn cluster(
    p: &mut Params,
    listens: impl Iterator<Item = String>,
    identity: PathBuf,
) -> Result<Option<Cluster>, ParamError> {
    let Some(name) = p.text("cluster")? else { return Ok(None) };
    let own = p.text("name")?.unwrap_or_else(|| {
        rustix::system::uname().nodename().to_string_lossy().split('.').next().unwrap_or_default().to_owned()
    });
    for (key, text) in [("cluster", &name), ("name", &own)] {
        if !henge_api::is_name(text) {
            let message = format!("\"{text}\" is no name; up to 64 letters, digits, '.', '_' and '-' are");
            return Err(p.error(key, message));
        }
    }
    let mut hosts = henge_config::texts(p, "hosts")?.unwrap_or_default();
    hosts.extend(listens);
    hosts.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    // Of all addresses of a machine none is meant.
    hosts.retain(|host| !matches!(host.as_str(), "0.0.0.0" | "::" | ""));
    hosts.sort_unstable();
    hosts.dedup();
    Ok(Some(Cluster { name, own, hosts, identity }))
}

/// `audit = "file"`, or `{ keep = "90d", tenants = { ann = "400d" } }`.
fn audit(p: &mut Params, state_dir: &Path) -> Result<AuditTo, ParamError> {
    let span = p.error("audit", String::new()).span;
    let wrong = |other: &str| {
        let message = format!(
            "audit is \"file\" (state_dir/audit.jsonl), \"stderr\", \"syslog\", \"none\" or {{ keep = \"90d\" }}, not {other}"
        );
        ParamError { message, help: None, span: span.clone() }
    };
    let mut table = match p.take("audit") {
        None => return Ok(AuditTo::File(state_dir.join("audit.jsonl"))),
        Some(Value::Text(text)) => {
            return match text.as_str() {
                "file" => Ok(AuditTo::File(state_dir.join("audit.jsonl"))),
                "stderr" => Ok(AuditTo::Stderr),
                "syslog" => Ok(AuditTo::Syslog("/dev/log".into())),
                "none" => Ok(AuditTo::Nobody),
                other => Err(wrong(&format!("\"{other}\""))),
            };
        }
        Some(Value::Table(table)) => table,
        Some(_) => return Err(wrong("that")),
    };
    let days = days(&mut table, "keep")?;
    let days = table.required("keep", days)?;
    let mut tenants = BTreeMap::new();
    if let Some(mut each) = table.table("tenants")? {
        for name in each.keys() {
            let days = self::days(&mut each, &name)?;
            tenants.insert(name.clone(), each.required(&name, days)?);
        }
        each.finish()?;
    }
    table.finish()?;
    Ok(AuditTo::Days(state_dir.join("audit"), Keep { days, tenants }))
}

/// Whole days, at least one.
fn days(p: &mut Params, key: &str) -> Result<Option<u64>, ParamError> {
    const DAY: u64 = 86_400_000_000_000;
    match p.duration(key)? {
        Some(time) if time.as_nanos() < DAY || !time.as_nanos().is_multiple_of(DAY) => {
            Err(p.error(key, format!("{key} is whole days, like \"90d\"")))
        }
        time => Ok(time.map(|time| time.as_nanos() / DAY)),
    }
}

/// Addresses by which tokens would cross a network in clear: their keys, and why.
fn in_clear(listen: &str, page: Option<SocketAddr>) -> Vec<(&'static str, String)> {
    let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host).trim_matches(['[', ']']);
    let local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    let api = (!local).then(|| {
        (
            "listen",
            format!(
                "http://{listen}: whoever is on the way reads the tokens of all who ask, and may use them"
            ),
        )
    });
    let page = page.filter(|page| !page.ip().to_canonical().is_loopback()).map(|page| {
        (
            "page",
            format!(
                "http://{page}: whoever is on the way reads the tokens of all who log in, and may use them"
            ),
        )
    });
    api.into_iter().chain(page).collect()
}

/// Where others find this manager's API.
fn advertise_or(p: &Params, stated: Option<String>, listen: &str) -> Result<String, ParamError> {
    match stated {
        Some(url) if url.starts_with("http://") || url.starts_with("https://") => {
            Ok(url.trim_end_matches('/').to_owned())
        }
        Some(other) => {
            let message =
                format!("advertise is an address like \"http://10.0.0.1:7100\", not \"{other}\"");
            Err(p.error("advertise", message))
        }
        None if ["0.0.0.0", "[::]", "*"].iter().any(|any| listen.starts_with(any)) => Err(p.error(
            "listen",
            format!(
                "{listen} is no address that others could come to; say advertise = \"http://THIS-MACHINE:7100\""
            ),
        )),
        None => Ok(format!("http://{listen}")),
    }
}

fn etcd(mut p: Params, advertise: String) -> Result<EtcdConfig, ParamError> {
    let endpoints = henge_config::texts(&mut p, "endpoints")?;
    let endpoints = p.required("endpoints", endpoints)?;
    let is_secure = |endpoint: &String| endpoint.starts_with("https://");
    if let Some(strange) = endpoints.iter().find(|e| !e.starts_with("http://") && !is_secure(e)) {
        let message = format!("an endpoint is like \"http://10.0.0.1:2379\", not \"{strange}\"");
        return Err(p.error("endpoints", message));
    }
    let secure = endpoints.iter().any(is_secure);
    if secure && !endpoints.iter().all(is_secure) {
        let message = "all endpoints are https, or none: else what is secret goes where nobody looks".into();
        return Err(p.error("endpoints", message));
    }
    let prefix = p.text("prefix")?.unwrap_or_else(|| "henge/".into());
    if prefix.is_empty() {
        return Err(p.error("prefix", "a prefix keeps our keys apart from others'; \"henge/\" is one".into()));
    }
    let lease = p.duration("lease")?.map_or(5, |d| d.as_nanos() / 1_000_000_000);
    if !(2..=60).contains(&lease) {
        return Err(p.error("lease", "a lease is from 2s to 60s".into()));
    }
    let (login, tls) = (login(&mut p)?, tls(&mut p, secure)?);
    p.finish()?;
    let endpoints = endpoints.iter().map(|e| e.trim_end_matches('/').to_owned()).collect();
    Ok(EtcdConfig { endpoints, prefix, lease, advertise, login, tls })
}

fn login(p: &mut Params) -> Result<Option<Login>, ParamError> {
    let (user, stated) = (p.text("user")?, p.text("password")?);
    let password = match (stated, file(p, "password_file")?) {
        (Some(_), Some(_)) => {
            return Err(p.error("password", "password or password_file, not both".into()));
        }
        (Some(password), None) => Some(password),
        (None, Some(bytes)) => {
            let text =
                String::from_utf8(bytes).map_err(|_| p.error("password_file", "it is no text".into()))?;
            Some(text.trim_end_matches(['\r', '\n']).to_owned())
        }
        (None, None) => None,
    };
    match (user, password) {
        (None, None) => Ok(None),
        (Some(user), Some(password)) => Ok(Some(Login { user, password })),
        (Some(user), None) => Err(p.error("user", format!("user \"{user}\" needs a password_file"))),
        (None, Some(_)) => {
            Err(p.error("password", "a password is of a user; say whose: user = \"henge\"".into()))
        }
    }
}

/// Certificates; read here, so that what is wrong with them is said where they are named.
fn tls(p: &mut Params, secure: bool) -> Result<Option<Tls>, ParamError> {
    let authority = file(p, "ca_file")?;
    if let Some(Err(why)) = authority.as_deref().map(certificates) {
        return Err(p.error("ca_file", why));
    }
    let own = match (file(p, "cert_file")?, file(p, "key_file")?) {
        (None, None) => None,
        (Some(chain), Some(key)) => {
            certificates(&chain).map_err(|why| p.error("cert_file", why))?;
            private_key(&key).map_err(|why| p.error("key_file", why))?;
            Some((chain, key))
        }
        (Some(_), None) => return Err(p.error("cert_file", "a certificate needs its key_file".into())),
        (None, Some(_)) => return Err(p.error("key_file", "a key needs its cert_file".into())),
    };
    if !secure && (authority.is_some() || own.is_some()) {
        let key = if authority.is_some() { "ca_file" } else { "cert_file" };
        return Err(p.error(key, "certificates are of use with endpoints that begin with https://".into()));
    }
    Ok(secure.then_some(Tls { authority, own }))
}

/// The bytes of a file that a key names.
fn file(p: &mut Params, key: &str) -> Result<Option<Vec<u8>>, ParamError> {
    let Some(name) = p.text(key)? else { return Ok(None) };
    henge_io::read(name.as_ref(), FILE_MAX).map(Some).map_err(|e| p.error(key, e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ManagerConfig, String> {
        ManagerConfig::parse(Source::new("manager.toml", text)).map_err(|e| e.to_string())
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let config = parse("secret = \"0123456789abcdef\"\nperiod = \"5s\"").unwrap();
        assert_eq!((config.settings.period_ms, config.listen.as_str()), (5_000, "127.0.0.1:7100"));
        let text = "secret = \"0123456789abcdef\"\nstate_dir = \"/s\"\naudit = { keep = \"90d\", tenants = { ann = \"400d\" } }";
        let keep = Keep { days: 90, tenants: [("ann".to_owned(), 400)].into() };
        assert_eq!(parse(text).unwrap().audit, AuditTo::Days("/s/audit".into(), keep));
        for (text, says) in [
            ("listen = \"x\"", "secret"),
            ("secret = \"short\"", "16 characters"),
            ("secret = \"0123456789abcdef\"\nadmission = \"lax\"", "worst-case"),
            ("secret = \"0123456789abcdef\"\nperiod = \"5\"", "5"),
            ("secret = \"0123456789abcdef\"\ntags = \"remote\"", "central"),
            ("secret = \"0123456789abcdef\"\nwindow = \"2s\"", "period"),
            ("secret = \"0123456789abcdef\"\nperoid = \"5s\"", "did you mean"),
            ("secret = \"0123456789abcdef\"\nlisten = \"0.0.0.0:1\"", "insecure = true"),
            ("secret = \"0123456789abcdef\"\npage = \"[2001:db8::1]:1\"", "insecure = true"),
            ("secret = \"0123456789abcdef\"\naudit = \"paper\"", "syslog"),
            ("secret = \"0123456789abcdef\"\naudit = {}", "keep"),
            ("secret = \"0123456789abcdef\"\naudit = { keep = \"90min\" }", "whole days"),
            (
                "secret = \"0123456789abcdef\"\naudit = { keep = \"9d\", tenants = { ann = \"1h\" } }",
                "whole days",
            ),
            ("secret = \"0123456789abcdef\"\n[etcd]", "endpoints"),
            ("secret = \"0123456789abcdef\"\n[etcd]\nendpoints = \"10.0.0.1\"", "http://10.0.0.1:2379"),
            ("secret = \"0123456789abcdef\"\n[etcd]\nendpoints = [\"https://a\", \"http://b\"]", "or none"),
            (
                "secret = \"0123456789abcdef\"\n[etcd]\nendpoints = \"http://a\"\nuser = \"u\"",
                "password_file",
            ),
            (
                "secret = \"0123456789abcdef\"\n[etcd]\nendpoints = \"http://a\"\npassword = \"p\"",
                "say whose",
            ),
            (
                concat!(
                    "secret = \"0123456789abcdef\"\n[etcd]\nendpoints = \"https://a\"\nca_file = \"",
                    env!("CARGO_MANIFEST_DIR"),
                    "/Cargo.toml\""
                ),
                "CERTIFICATE",
            ),
            (
                "secret = \"0123456789abcdef\"\n[etcd]\nendpoints = \"https://a\"\nca_file = \"/dev/null\"",
                "is a device, not a file",
            ),
            (
                concat!(
                    "secret = \"0123456789abcdef\"\n[etcd]\nendpoints = \"https://a\"\nkey_file = \"",
                    env!("CARGO_MANIFEST_DIR"),
                    "/Cargo.toml\""
                ),
                "cert_file",
            ),
            (
                "secret = \"0123456789abcdef\"\n[etcd]\nendpoints = \"https://a\"\nca_file = \"/nowhere\"",
                "/nowhere",
            ),
            ("secret = \"0123456789abcdef\"\n[etcd]\nendpoints = \"http://a\"\nlease = \"1s\"", "2s to 60s"),
            (
                "listen = \"0.0.0.0:1\"\nsecret = \"0123456789abcdef\"\n[etcd]\nendpoints = \"http://a\"",
                "advertise",
            ),
        ] {
            let Err(error) = parse(text) else { panic!("{text} is accepted") };
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
