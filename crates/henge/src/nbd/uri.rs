//! Where an export is: `nbd://host:port/export`, `nbd+unix:///export?socket=PATH`.

use anyhow::{Result, anyhow, bail};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port of NBD where none is said.
const PORT: u16 = 10809;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
}

/// The address of a server and the name of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    pub address: Address,
    pub export: String,
}

impl FromStr for Uri {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Uri> {
        let forms = "write nbd://host:port/export or nbd+unix:///export?socket=PATH";
        let (scheme, rest) =
            text.split_once("://").ok_or_else(|| anyhow!("\"{text}\" is no NBD URI; {forms}"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = place.split_once('/').unwrap_or((place, ""));
        let export = decoded(export)?;
        let address = match scheme {
            "nbd" => tcp(authority)?,
            "nbd+unix" => {
                let socket = query.split('&').find_map(|part| part.strip_prefix("socket="));
                let socket = socket.ok_or_else(|| anyhow!("\"{text}\" has no ?socket=PATH; {forms}"))?;
                Address::Unix(decoded(socket)?.into())
            }
            "nbds" | "nbds+unix" => bail!("\"{text}\" asks for TLS, which this client does not speak"),
            _ => bail!("\"{text}\" is no NBD URI; {forms}"),
        };
        Ok(Uri { address, export })
    }
}

fn tcp(authority: &str) -> Result<Address> {
    // An IPv6 address stands in brackets.
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) =
                rest.split_once(']').ok_or_else(|| anyhow!("\"{authority}\" lacks a bracket"))?;
            (host, port.strip_prefix(':'))
        }
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        bail!("the URI names no host; write nbd://localhost/export");
    }
    let port = port.filter(|p| !p.is_empty()).map_or(Ok(PORT), str::parse);
    let port = port.map_err(|_| anyhow!("\"{authority}\" has no port that can be read"))?;
    Ok(Address::Tcp(host.to_owned(), port))
}

/// `%20` and the like.
fn decoded(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&b, after)) = rest.split_first() {
        rest = after;
        if b != b'%' {
            bytes.push(b);
            continue;
        }
        let digits = rest.get(..2).and_then(|d| std::str::from_utf8(d).ok());
        let byte = digits.and_then(|d| u8::from_str_radix(d, 16).ok());
        bytes.push(byte.ok_or_else(|| anyhow!("\"{text}\" has a % without two hexadecimal digits"))?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| anyhow!("\"{text}\" is not UTF-8"))
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Tcp(host, port) if host.contains(':') => {
                write!(f, "nbd://[{host}]:{port}/{}", self.export)
            }
            Address::Tcp(host, port) => write!(f, "nbd://{host}:{port}/{}", self.export),
            Address::Unix(path) => write!(f, "nbd+unix:///{}?socket={}", self.export, path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_read_as_written() {
        let tcp = |host: &str, port, export: &str| Uri {
            address: Address::Tcp(host.to_owned(), port),
            export: export.to_owned(),
        };
        for (text, expected) in [
            ("nbd://localhost", tcp("localhost", 10809, "")),
            ("nbd://localhost/", tcp("localhost", 10809, "")),
            ("nbd://127.0.0.1:99/web%20shop", tcp("127.0.0.1", 99, "web shop")),
            ("nbd://[::1]:99/a/b", tcp("::1", 99, "a/b")),
        ] {
            assert_eq!(text.parse::<Uri>().unwrap(), expected, "{text}");
        }
        let unix: Uri = "nbd+unix:///web?socket=/run/henge%2Fnode.sock".parse().unwrap();
        assert_eq!(unix, Uri { address: Address::Unix("/run/henge/node.sock".into()), export: "web".into() });
        for text in
            ["web", "nbd:///web", "nbd://h:x/", "nbd+unix:///web", "nbds://h/web", "http://h/", "nbd://h/%2"]
        {
            assert!(text.parse::<Uri>().is_err(), "{text}");
        }
    }
}
