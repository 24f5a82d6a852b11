//! Where an NBD server is: `nbd://HOST[:PORT][/EXPORT]`, `nbd+unix:///[EXPORT]?socket=PATH`.

use std::fmt;
use std::path::PathBuf;

const PORT: u16 = 10809;
/// Longest name of an export (proto: "strings").
const NAME_MAX: usize = 4096;

/// How a server is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Server {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// A server, and the export that was named beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Uri {
    pub server: Server,
    pub export: String,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Tcp { host, port } if host.contains(':') => write!(f, "nbd://[{host}]:{port}"),
            Server::Tcp { host, port } => write!(f, "nbd://{host}:{port}"),
            Server::Unix(path) => write!(f, "nbd+unix:///?socket={}", path.display()),
        }
    }
}

const RIGHT: &str = "right are \"nbd://HOST:PORT/EXPORT\" and \"nbd+unix:///EXPORT?socket=/PATH\"";

/// Reads it; what is wrong with it, and what would be right.
pub(crate) fn parse(text: &str) -> Result<Uri, String> {
    let wrong = |why: &str| format!("\"{text}\": {why}; {RIGHT}");
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(wrong("it names no protocol"));
    };
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let export = decoded(path).filter(|name| name.len() <= NAME_MAX && !name.contains('\0'));
    let export = export.ok_or_else(|| wrong("its export is no name"))?;
    let server = match scheme {
        "nbd" if query.is_some() => return Err(wrong("nbd:// takes no \"?\"")),
        "nbd" => tcp(authority).ok_or_else(|| wrong("its host or port cannot be read"))?,
        "nbd+unix" if !authority.is_empty() => {
            return Err(wrong("a Unix socket has no host: three slashes follow the protocol"));
        }
        "nbd+unix" => {
            let socket = query.and_then(|query| query.strip_prefix("socket=")).and_then(decoded);
            let socket = socket.filter(|path| path.starts_with('/') && !path.contains('\0'));
            Server::Unix(socket.ok_or_else(|| wrong("it lacks socket= with an absolute path"))?.into())
        }
        "nbds" | "nbds+unix" => {
            return Err(wrong("TLS is not spoken to servers; put a tunnel before this one"));
        }
        _ => return Err(wrong("its protocol is unknown")),
    };
    Ok(Uri { server, export })
}

fn tcp(authority: &str) -> Option<Server> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => match authority.find(':') {
            Some(at) => authority.split_at(at),
            None => (authority, ""),
        },
    };
    let port = match port {
        "" => PORT,
        port => port.strip_prefix(':')?.parse().ok().filter(|port| *port > 0)?,
    };
    let plain = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:%".contains(&b));
    plain.then(|| Server::Tcp { host: host.to_owned(), port })
}

/// With `%2F` and the like as what they stand for.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
        let value = digit()? * 16 + digit()?;
        bytes.push(value as u8);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_exports_are_read() {
        let tcp = |host: &str, port, export: &str| {
            Ok(Uri { server: Server::Tcp { host: host.into(), port }, export: export.into() })
        };
        assert_eq!(parse("nbd://store"), tcp("store", 10809, ""));
        assert_eq!(parse("nbd://store/"), tcp("store", 10809, ""));
        assert_eq!(parse("nbd://10.0.0.5:7/a%2Fb%20c"), tcp("10.0.0.5", 7, "a/b c"));
        assert_eq!(parse("nbd://[fe80::1%eth0]:7/x/y"), tcp("fe80::1%eth0", 7, "x/y"));
        let unix =
            |path: &str, export: &str| Ok(Uri { server: Server::Unix(path.into()), export: export.into() });
        assert_eq!(parse("nbd+unix:///?socket=/run/a%3fb"), unix("/run/a?b", ""));
        assert_eq!(parse("nbd+unix:///web?socket=/s"), unix("/s", "web"));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        let long = format!("nbd://h/{}", "x".repeat(5000));
        for (text, why) in [
            ("10.0.0.5:10809", "no protocol"),
            ("nbd://", "host or port"),
            ("nbd://h:0", "host or port"),
            ("nbd://h:99999", "host or port"),
            ("nbd://[::1:10809", "host or port"),
            ("nbd://a b", "host or port"),
            ("nbd://h/%zz", "no name"),
            ("nbd://h/%f", "no name"),
            (&long, "no name"),
            ("nbd://h/x?socket=/s", "takes no"),
            ("nbd+unix://h/x?socket=/s", "has no host"),
            ("nbd+unix:///x", "lacks socket="),
            ("nbd+unix:///x?socket=s", "lacks socket="),
            ("nbds://h/x", "TLS"),
            ("http://h/x", "unknown"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(why) && message.contains(RIGHT), "{message}");
        }
    }
}
