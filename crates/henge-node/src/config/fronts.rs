//! Where clients come: `listen` and `http`.

use henge_core::{ParamError, Params, Value};
use std::ops::Range;
use std::path::PathBuf;

/// Where a node listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// `nbd://HOST:PORT`
    Tcp(String),
    /// `nbd+unix:///PATH`
    Unix(PathBuf),
    /// `iscsi://HOST:PORT`
    Iscsi(String),
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
                "listen is an address like \"nbd://127.0.0.1:10809\", \"nbd+unix:///run/henge/nbd.sock\" or \
                 \"iscsi://127.0.0.1:3260\""
                    .into(),
            help: None,
            span: span.clone(),
        };
        let Value::Text(text) = &value else { return Err(wrong()) };
        if let Some(path) = text.strip_prefix("nbd+unix://").filter(|p| p.starts_with('/')) {
            return Ok(Listen::Unix(path.into()));
        }
        let (host, iscsi) = match text.split_once("://") {
            Some(("nbd", host)) if !host.is_empty() => (host, false),
            Some(("iscsi", host)) if !host.is_empty() => (host, true),
            _ => return Err(wrong()),
        };
        let (_, tail) = host.rsplit_once(']').unwrap_or(("", host));
        let port = if iscsi { 3260 } else { 10809 };
        let host = if tail.contains(':') { host.to_owned() } else { format!("{host}:{port}") };
        Ok(if iscsi { Listen::Iscsi(host) } else { Listen::Tcp(host) })
    };
    texts.into_iter().map(parse).collect()
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
