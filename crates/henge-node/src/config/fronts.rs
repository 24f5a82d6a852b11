//! Where clients come: `listen` and `http`.

use crate::tls::TlsConfig;
use henge_core::{ParamError, Params, Value};
use henge_nbd::Tls;
use std::ops::Range;
use std::path::PathBuf;

/// Where a node listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// `nbd://HOST:PORT`
    Tcp(String),
    /// `nbds://HOST:PORT`, or `{ at = "nbd://HOST:PORT", tls = "allow" }`
    Tls(String, Tls),
    /// `nbd+unix:///PATH`
    Unix(PathBuf),
    /// `iscsi://HOST:PORT`
    Iscsi(String),
    /// `nvme://HOST:PORT`
    Nvme(String),
}

/// `http = "127.0.0.1:8080"`, or a table with `listen` and `token_file`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Http {
    /// Where the web page and the metrics are.
    pub listen: std::net::SocketAddr,
    /// One token a line.
    pub token_file: Option<PathBuf>,
}

/// `listen = "…"` or a list of such.
pub(super) fn listen(p: &mut Params) -> Result<Vec<Listen>, ParamError> {
    let span = p.error("listen", String::new()).span;
    let texts = match p.take("listen") {
        None => return Ok(Vec::new()),
        Some(Value::List(items)) => items,
        Some(one) => vec![(one, span)],
    };
    let parse = |(value, span): (Value, Range<usize>)| {
        let wrong = || ParamError {
            message:
                "listen is an address like \"nbds://10.0.0.5:10809\" (with TLS), \"nbd://127.0.0.1:10809\", \
                 \"nbd+unix:///run/henge/nbd.sock\", \"iscsi://127.0.0.1:3260\" or \"nvme://127.0.0.1:4420\""
                    .into(),
            help: None,
            span: span.clone(),
        };
        if let Value::Table(table) = value {
            return door(table);
        }
        let Value::Text(text) = &value else { return Err(wrong()) };
        if let Some(path) = text.strip_prefix("nbd+unix://").filter(|p| p.starts_with('/')) {
            return Ok(Listen::Unix(path.into()));
        }
        let (made, host, port): (fn(String) -> Listen, _, _) = match text.split_once("://") {
            Some(("nbd", host)) if !host.is_empty() => (Listen::Tcp, host, 10809),
            Some(("nbds", host)) if !host.is_empty() => (|host| Listen::Tls(host, Tls::Require), host, 10809),
            Some(("iscsi", host)) if !host.is_empty() => (Listen::Iscsi, host, 3260),
            Some(("nvme", host)) if !host.is_empty() => (Listen::Nvme, host, crate::nvme::PORT),
            _ => return Err(wrong()),
        };
        Ok(made(with_port(host, port)))
    };
    texts.into_iter().map(parse).collect()
}

fn with_port(host: &str, port: u16) -> String {
    let (_, tail) = host.rsplit_once(']').unwrap_or(("", host));
    if tail.contains(':') { host.to_owned() } else { format!("{host}:{port}") }
}

/// `{ at = "nbd://HOST:PORT", tls = "allow" }`
fn door(mut table: Params) -> Result<Listen, ParamError> {
    let at = table.text("at")?;
    let at = table.required("at", at)?;
    let Some(host) = at.strip_prefix("nbd://").filter(|host| !host.is_empty()) else {
        return Err(
            table.error("at", format!("at is an address like \"nbd://10.0.0.5:10809\", not \"{at}\""))
        );
    };
    let tls = table.text("tls")?;
    let host = with_port(host, 10809);
    let listen = match table.required("tls", tls)?.as_str() {
        "require" => Listen::Tls(host, Tls::Require),
        "allow" => Listen::Tls(host, Tls::Allow),
        "no" => Listen::Tcp(host),
        other => {
            let message = format!("tls is \"require\", \"allow\" or \"no\", not \"{other}\"");
            return Err(table.error("tls", message));
        }
    };
    table.finish()?;
    Ok(listen)
}

/// TLS needs a certificate, and who is let in by a certificate needs somebody who asks for it: what is missing, if so.
pub(super) fn missing(
    listen: &[Listen],
    tls: Option<&TlsConfig>,
    disks: &[super::DiskConfig],
) -> Option<ParamError> {
    const TABLE: &str = "tls = { certificate = \"/etc/henge/node.pem\", key = \"/etc/henge/node.key\", ca = \"/etc/henge/ca.pem\" }";
    let secure = listen.iter().find_map(|listen| match listen {
        Listen::Tls(host, _) => Some(host),
        _ => None,
    });
    if let (Some(host), None) = (secure, tls) {
        let message = format!("{host} speaks TLS, and nothing says with which certificate");
        return Some(ParamError { message, help: Some(format!("write {TABLE}")), span: 0..0 });
    }
    if let (None, Some(tls)) = (secure, tls) {
        let message = "no listener speaks TLS".into();
        let help = Some("write listen = \"nbds://10.0.0.5:10809\", or take tls out".into());
        return Some(ParamError { message, help, span: tls.span.clone() });
    }
    if tls.is_some_and(|tls| tls.ca.is_some()) {
        return None;
    }
    let by_certificate = |disk: &&super::DiskConfig| matches!(&disk.nbd, crate::access::NbdAccess::These { certificates, .. } if !certificates.is_empty());
    let disk = disks.iter().find(by_certificate)?;
    let message = format!("disk {} lets certificates in, and no listener asks for one", disk.name);
    Some(ParamError {
        message,
        help: Some(format!("write listen = \"nbds://10.0.0.5:10809\" and {TABLE}")),
        span: disk.span.clone(),
    })
}

/// The web page's address; one that other machines reach needs tokens.
pub(super) fn http(p: &mut Params) -> Result<Option<Http>, ParamError> {
    const ADDRESS: &str = "an address and a port, like \"127.0.0.1:8080\" or \"[::1]:8080\"";
    let span = p.error("http", String::new()).span;
    let at = |message: String, help: Option<String>| ParamError { message, help, span: span.clone() };
    let (listen, token_file) = match p.take("http") {
        None => return Ok(None),
        Some(Value::Text(listen)) => (listen, None),
        Some(Value::Table(mut table)) => {
            let listen = table.text("listen")?;
            let listen = table.required("listen", listen)?;
            let token_file = table.text("token_file")?.map(PathBuf::from);
            table.finish()?;
            (listen, token_file)
        }
        Some(_) => return Err(at(format!("http is {ADDRESS}"), None)),
    };
    let text = listen.strip_prefix("http://").unwrap_or(&listen);
    let address = text.replacen("localhost:", "127.0.0.1:", 1).parse::<std::net::SocketAddr>();
    let Ok(listen) = address else { return Err(at(format!("http is {ADDRESS}, not \"{listen}\""), None)) };
    if token_file.is_none() && !listen.ip().is_loopback() {
        return Err(at(
            format!(
                "other machines reach {listen}, so it needs tokens; or let it be 127.0.0.1:{}",
                listen.port()
            ),
            Some(format!(
                "write http = {{ listen = \"{listen}\", token_file = \"/etc/henge/tokens\" }}, with one token a line, \
                 like `head -c 24 /dev/urandom | base64` gives"
            )),
        ));
    }
    Ok(Some(Http { listen, token_file }))
}

/// Whether only this machine's processes reach a host and port.
fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// The portal for iSCSI that other machines reach, if there is one.
pub(super) fn by_iscsi_from_elsewhere(listen: &[Listen]) -> Option<&str> {
    let elsewhere = |listen: &'_ &Listen| matches!(listen, Listen::Iscsi(host) if !is_loopback(host));
    listen.iter().find(elsewhere).and_then(|listen| match listen {
        Listen::Iscsi(host) => Some(host.as_str()),
        _ => None,
    })
}

/// The listener for NVMe that other machines reach, if there is one.
pub(super) fn by_nvme_from_elsewhere(listen: &[Listen]) -> Option<&str> {
    listen.iter().find_map(|listen| match listen {
        Listen::Nvme(host) if !is_loopback(host) => Some(host.as_str()),
        _ => None,
    })
}

/// Why others than this machine's users could use disks unasked: nothing for each door at which somebody asks who comes.
pub(super) fn open_doors(
    listen: &[Listen],
    tls: Option<&TlsConfig>,
    disks: &[super::DiskConfig],
    managed: bool,
) -> Vec<String> {
    let asks = tls.is_some_and(|tls| tls.ca.is_some());
    let nbd = listen.iter().filter_map(|listen| match listen {
        Listen::Tcp(host) if !is_loopback(host) => Some(format!(
            "nbd://{host}: whoever reaches it uses every disk that NBD shows, for it asks nobody who they are"
        )),
        Listen::Tls(host, Tls::Require) if !asks && !is_loopback(host) => Some(format!(
            "nbds://{host}: whoever reaches it uses every disk that NBD shows, for tls names no ca whose certificates clients need"
        )),
        Listen::Tls(host, Tls::Allow) if !is_loopback(host) => Some(format!(
            "nbd://{host}: whoever reaches it uses every disk that is anyone's, for it allows TLS and does not require it"
        )),
        _ => None,
    });
    let unproved = disks.iter().find(|disk| disk.shown_by_nvme() && !disk.hosts.is_guarded());
    let unproved = unproved.map(|disk| disk.name.as_str()).or(managed.then_some("of a manager"));
    let nvme = by_nvme_from_elsewhere(listen).zip(unproved).map(|(host, disk)| {
        format!("nvme://{host}: whoever reaches it uses disk {disk}, which has no nvme = {{ secret_file = … }}, for a name proves nothing")
    });
    let unguarded = disks.iter().find(|disk| disk.shown_by_iscsi() && disk.access.users.is_empty());
    let unguarded = unguarded.map(|disk| disk.name.as_str());
    let unguarded = unguarded.or(managed.then_some("of a manager"));
    let iscsi = by_iscsi_from_elsewhere(listen).zip(unguarded).map(|(host, disk)| {
        format!("iscsi://{host}: whoever reaches it logs in to disk {disk}, which has no iscsi = {{ user = …, secret = … }}")
    });
    nbd.chain(nvme).chain(iscsi).collect()
}
