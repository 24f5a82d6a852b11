//! Where clients come: `listen` and `http`.

use crate::access::{NbdAccess, by_nbd};
use crate::front::{At, Kind, Listen};
use henge_core::{ParamError, Params, Value};
use henge_nbd::Tls;
use henge_tls::TlsConfig;
use std::ops::Range;
use std::path::PathBuf;

/// `http = "127.0.0.1:8080"`, `"https://10.0.0.5:8080"`, or a table with `listen` and `token_file`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Http {
    /// Where the web page and the metrics are.
    pub listen: std::net::SocketAddr,
    /// By TLS, with the node's certificate.
    pub secure: bool,
    /// One token a line.
    pub token_file: Option<PathBuf>,
}

/// `listen = "…"` or a list of such.
pub(crate) fn listen(p: &mut Params, kinds: &[&'static Kind]) -> Result<Vec<Listen>, ParamError> {
    let span = p.error("listen", String::new()).span;
    let texts = match p.take("listen") {
        None => return Ok(Vec::new()),
        Some(Value::List(items)) => items,
        Some(one) => vec![(one, span)],
    };
    let schemes = || kinds.iter().flat_map(|kind| kind.schemes);
    let parse = |(value, span): (Value, Range<usize>)| {
        let wrong = || {
            let examples: Vec<&str> =
                schemes().map(|scheme| scheme.example).filter(|e| !e.is_empty()).collect();
            let (last, most) = examples.split_last().expect("there are front ends");
            let message = format!("listen is an address like {} or {last}", most.join(", "));
            ParamError { message, help: None, span: span.clone() }
        };
        if let Value::Table(table) = value {
            return door(table, kinds);
        }
        let Value::Text(text) = &value else { return Err(wrong()) };
        let (name, rest) = text.split_once("://").ok_or_else(wrong)?;
        let scheme = schemes().find(|scheme| scheme.name == name).ok_or_else(wrong)?;
        let at = match scheme.port {
            None if rest.starts_with('/') => At::Path(rest.into()),
            Some(port) if !rest.is_empty() => At::Host(with_port(rest, port)),
            _ => return Err(wrong()),
        };
        Ok(Listen { scheme, at, tls: scheme.tls })
    };
    texts.into_iter().map(parse).collect()
}

fn with_port(host: &str, port: u16) -> String {
    let (_, tail) = host.rsplit_once(']').unwrap_or(("", host));
    if tail.contains(':') { host.to_owned() } else { format!("{host}:{port}") }
}

/// `{ at = "nbd://HOST:PORT", tls = "allow" }`
fn door(mut table: Params, kinds: &[&'static Kind]) -> Result<Listen, ParamError> {
    let at = table.text("at")?;
    let at = table.required("at", at)?;
    let kind = kinds.iter().find(|kind| kind.may_be_tls);
    let schemes = kind.map_or(&[][..], |kind| kind.schemes);
    let by = |tls| schemes.iter().find(|scheme| scheme.tls == tls && scheme.port.is_some());
    let plain = by(Tls::No);
    let host = plain.and_then(|plain| at.strip_prefix(plain.name)?.strip_prefix("://"));
    let (Some(plain), Some(host)) = (plain, host.filter(|host| !host.is_empty())) else {
        return Err(
            table.error("at", format!("at is an address like \"nbd://10.0.0.5:10809\", not \"{at}\""))
        );
    };
    let tls = table.text("tls")?;
    let at = At::Host(with_port(host, plain.port.unwrap_or(0)));
    let listen = match table.required("tls", tls)?.as_str() {
        "require" => Listen { scheme: by(Tls::Require).unwrap_or(plain), at, tls: Tls::Require },
        "allow" => Listen { scheme: plain, at, tls: Tls::Allow },
        "no" => Listen { scheme: plain, at, tls: Tls::No },
        other => {
            let message = format!("tls is \"require\", \"allow\" or \"no\", not \"{other}\"");
            return Err(table.error("tls", message));
        }
    };
    table.finish()?;
    Ok(listen)
}

/// TLS needs a certificate, and who is let in by a certificate needs somebody who asks for it: what is missing, if so.
pub(crate) fn missing(
    listen: &[Listen],
    http: Option<&Http>,
    tls: Option<&TlsConfig>,
    disks: &[super::DiskConfig],
) -> Option<ParamError> {
    const TABLE: &str = "tls = { certificate = \"/etc/henge/node.pem\", key = \"/etc/henge/node.key\", ca = \"/etc/henge/ca.pem\" }";
    let listener = listen.iter().find(|listen| listen.tls != Tls::No);
    let host = listener.and_then(|listen| match &listen.at {
        At::Host(host) => Some(host.clone()),
        At::Path(_) => None,
    });
    let secure = host.or_else(|| http.filter(|http| http.secure).map(|http| http.listen.to_string()));
    if let (Some(host), None) = (&secure, tls) {
        let message = format!("{host} speaks TLS, and nothing says with which certificate");
        return Some(ParamError { message, help: Some(format!("write {TABLE}")), span: 0..0 });
    }
    if let (None, Some(tls)) = (secure, tls.filter(|tls| tls.identity.is_none())) {
        let message = "no listener speaks TLS".into();
        let help = Some("write listen = \"nbds://10.0.0.5:10809\", or take tls out".into());
        return Some(ParamError { message, help, span: tls.span.clone() });
    }
    if tls.is_some_and(|tls| tls.ca.is_some()) {
        return None;
    }
    let by_certificate = |disk: &&super::DiskConfig| matches!(by_nbd(&disk.doors), NbdAccess::These { certificates, .. } if !certificates.is_empty());
    let disk = disks.iter().find(by_certificate)?;
    let message = format!("disk {} lets certificates in, and no listener asks for one", disk.name);
    Some(ParamError {
        message,
        help: Some(format!("write listen = \"nbds://10.0.0.5:10809\" and {TABLE}")),
        span: disk.spans.whole.clone(),
    })
}

/// The web page's address; one that other machines reach needs tokens.
pub(crate) fn http(p: &mut Params) -> Result<Option<Http>, ParamError> {
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
    let secure = listen.strip_prefix("https://");
    let text = secure.or_else(|| listen.strip_prefix("http://")).unwrap_or(&listen);
    let secure = secure.is_some();
    let address = text.replacen("localhost:", "127.0.0.1:", 1).parse::<std::net::SocketAddr>();
    let Ok(listen) = address else { return Err(at(format!("http is {ADDRESS}, not \"{listen}\""), None)) };
    if token_file.is_none() && !listen.ip().to_canonical().is_loopback() {
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
    Ok(Some(Http { listen, secure, token_file }))
}

/// A page that other machines reach: its tokens cross the network in clear.
pub(crate) fn page_in_clear(http: &Http) -> Option<String> {
    let clear = !http.secure && !http.listen.ip().to_canonical().is_loopback();
    clear.then(|| {
        format!(
            "http://{}: whoever is on the way reads the tokens of all who log in, and may use them",
            http.listen
        )
    })
}

/// Why others than this machine's users could use disks unasked: nothing for each door at which somebody asks who comes.
pub(crate) fn open_doors(
    listen: &[Listen],
    kinds: &[&'static Kind],
    tls: Option<&TlsConfig>,
    disks: &[super::DiskConfig],
    managed: bool,
) -> Vec<String> {
    let proves = tls.is_some_and(|tls| tls.ca.is_some());
    let open = kinds.iter().flat_map(|kind| {
        let open = disks.iter().find(|disk| disk.doors.unguarded(&[kind]).is_some());
        let open = open.map(|disk| disk.name.as_str()).or(managed.then_some("of a manager"));
        let theirs = listen.iter().filter(|listen| kind.schemes.contains(listen.scheme));
        theirs.filter_map(move |listen| (kind.risk)(listen, listen.reached_at()?, proves, open))
    });
    open.collect()
}

/// The front ends by which other machines come, and of which each disk has to say who may.
pub(crate) fn asked(listen: &[Listen], kinds: &[&'static Kind]) -> Vec<&'static Kind> {
    let asked = |kind: &&'static Kind| {
        let theirs = |listen: &Listen| kind.schemes.contains(listen.scheme);
        kind.demand.is_some() && listen.iter().any(|l| theirs(l) && l.reached_at().is_some())
    };
    kinds.iter().copied().filter(asked).collect()
}
