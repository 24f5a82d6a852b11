//! Asking a manager: where it is, the token, and its answers.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use ureq::tls::{Certificate, ClientCert, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};

/// Where a manager is by default.
const DEFAULT: &str = "http://127.0.0.1:7100";
/// Where a manager on this machine leaves its cluster's roots.
const CA_FILE: &str = "/var/lib/henge-manager/identity/ca.pem";
/// Where a manager on this machine leaves the administrator's first token.
const TOKEN_FILE: &str = "/var/lib/henge-manager/admin.token";

/// Which manager, and who asks.
#[derive(clap::Args, Clone)]
pub struct ManagerArg {
    /// The manager, as http://127.0.0.1:7100; or several, separated by commas: the one that leads answers
    #[arg(long, value_name = "URL", env = "HENGE_MANAGER")]
    pub manager: Option<String>,
    /// A file with the token; else the token itself in HENGE_TOKEN, else /var/lib/henge-manager/admin.token
    #[arg(long, value_name = "FILE", env = "HENGE_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Who signs for the manager's certificate (PEM); else this machine's manager's roots, where there are some, else public authorities
    #[arg(long, value_name = "FILE", env = "HENGE_CA")]
    pub ca: Option<PathBuf>,
}

/// A manager to ask.
pub struct Api {
    addresses: Vec<String>,
    /// None: a certificate says who asks, or nobody needs to know.
    token: Option<String>,
    agent: ureq::Agent,
    /// Whose roots count, for people.
    believed: String,
    /// Which certificate is shown.
    shown: Option<PathBuf>,
}

/// What it answered.
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body; null if there is none.
    pub body: Value,
}

impl ManagerArg {
    /// Gets ready to ask.
    pub fn connect(&self) -> Result<Api> {
        let (roots, believed) = self.roots()?;
        let agent = agent(roots, None);
        Ok(Api { addresses: self.addresses(), token: Some(self.token()?), agent, believed, shown: None })
    }

    /// Gets ready to ask as who a certificate says: of a folder that `henge join` wrote.
    pub fn showing(&self, folder: &Path) -> Result<Api> {
        let path = folder.join("identity.pem");
        let items = pem(&path)?;
        let mut chain = Vec::new();
        let mut key = None;
        for item in items {
            match item {
                PemItem::Certificate(certificate) => chain.push(certificate),
                PemItem::PrivateKey(found) => key = Some(found),
                _ => {}
            }
        }
        let key = key.with_context(|| format!("{}: no key in it", path.display()))?;
        henge_tls::counts(folder, SystemTime::now())?;
        let ca = self.ca.clone().unwrap_or_else(|| folder.join("ca.pem"));
        let agent = agent(roots(&ca)?, Some(ClientCert::new_with_certs(&chain, key)));
        let signer = henge_tls::signer(folder).filter(|_| self.manager.is_none());
        Ok(Api {
            addresses: signer.map_or_else(|| self.addresses(), |url| vec![url]),
            token: None,
            agent,
            believed: ca.display().to_string(),
            shown: Some(path),
        })
    }

    fn addresses(&self) -> Vec<String> {
        let addresses = self.manager.as_deref().unwrap_or(DEFAULT);
        addresses.split(',').map(|a| a.trim().trim_end_matches('/').to_owned()).collect()
    }

    /// Who signs for managers, and what that is called.
    fn roots(&self) -> Result<(RootCerts, String)> {
        match &self.ca {
            Some(path) => Ok((roots(path)?, path.display().to_string())),
            None if Path::new(CA_FILE).exists() => Ok((roots(CA_FILE.as_ref())?, CA_FILE.to_owned())),
            None => Ok((RootCerts::WebPki, "a public authority".to_owned())),
        }
    }

    fn token(&self) -> Result<String> {
        let read = |path: &std::path::Path| {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            Ok(text.trim().to_owned())
        };
        if let Some(path) = &self.token_file {
            return read(path);
        }
        match std::env::var("HENGE_TOKEN") {
            Ok(token) if !token.trim().is_empty() => Ok(token.trim().to_owned()),
            _ => read(TOKEN_FILE.as_ref())
                .context("no token: set HENGE_TOKEN, or name its file with --token-file"),
        }
    }
}

fn pem(path: &Path) -> Result<Vec<PemItem<'static>>> {
    let text = std::fs::read(path).with_context(|| path.display().to_string())?;
    let items: std::result::Result<Vec<_>, _> = parse_pem(&text).collect();
    items.with_context(|| path.display().to_string())
}

fn roots(path: &Path) -> Result<RootCerts> {
    let certificates = pem(path)?.into_iter().filter_map(|item| match item {
        PemItem::Certificate(certificate) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<Certificate<'static>> = certificates.collect();
    if certificates.is_empty() {
        bail!("{}: no certificate in it (\"-----BEGIN CERTIFICATE-----\")", path.display());
    }
    Ok(RootCerts::from(certificates))
}

fn agent(roots: RootCerts, shows: Option<ClientCert>) -> ureq::Agent {
    let tls = TlsConfig::builder().provider(TlsProvider::Rustls).root_certs(roots).client_cert(shows).build();
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(90)))
        .timeout_connect(Some(Duration::from_secs(5)))
        .http_status_as_error(false)
        .max_redirects(0)
        .tls_config(tls)
        .build();
    config.into()
}

/// One part of a path, as a URL has it.
pub fn escaped(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    name.bytes().map(|b| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}

impl Api {
    /// One manager, by a root that is known already, as nobody.
    pub fn trusting(url: &str, root: &[u8]) -> Result<Api> {
        let root = Certificate::from_der(root).to_owned();
        let addresses = vec![url.trim_end_matches('/').to_owned()];
        Ok(Api {
            addresses,
            token: None,
            agent: agent(RootCerts::from(vec![root]), None),
            believed: "the root of this token".to_owned(),
            shown: None,
        })
    }

    /// The manager that was named first.
    pub fn first(&self) -> &str {
        self.addresses.first().map_or("", String::as_str)
    }

    /// Asks; an error says what the manager said.
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Result<Answer> {
        let mut last = None;
        let mut addresses: VecDeque<String> = self.addresses.clone().into();
        let mut asked = BTreeSet::new();
        while let Some(address) = addresses.pop_front() {
            if !asked.insert(address.clone()) {
                continue;
            }
            match self.ask_at(&address, method, path, body, headers) {
                // Another one leads; it may say which.
                Ok(answer) if answer.status == 503 => {
                    if let Some(leader) = answer.body.get("leader").and_then(Value::as_str) {
                        self.follow(leader, &mut addresses, &asked)?;
                    }
                    last = Some(Ok(answer));
                }
                Ok(answer) => return done(answer),
                Err(e) => last = last.or(Some(Err(e))),
            }
        }
        last.context("no manager was named").flatten().and_then(done)
    }

    /// Asks the leader next, if it is one of the managers that were named: the token goes nowhere else, whoever says so.
    fn follow(&self, leader: &str, addresses: &mut VecDeque<String>, asked: &BTreeSet<String>) -> Result<()> {
        let leader = leader.trim_end_matches('/');
        if self.addresses.iter().any(|address| address == leader) {
            addresses.push_front(leader.to_owned());
        } else if addresses.iter().all(|address| asked.contains(address)) {
            let named = self.addresses.join(",");
            bail!(
                "another manager leads, {leader} as this one says; your token is not sent there unasked. If that is one of \
                 yours, name it too: --manager {named},{leader} (or HENGE_MANAGER)"
            );
        }
        Ok(())
    }

    fn ask_at(
        &self,
        address: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Result<Answer> {
        let mut request =
            ureq::http::Request::builder().method(method).uri(format!("{address}/api/v1/{path}"));
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let text = match body {
            Some(body) => {
                request = request.header("Content-Type", "application/json");
                serde_json::to_vec(body)?
            }
            None => Vec::new(),
        };
        let request = request.body(text).with_context(|| format!("{address} is no address of a manager"))?;
        let mut response = self
            .agent
            .run(request)
            .map_err(|e| anyhow::anyhow!("the manager {address}: {}", self.unreached(address, &e)))?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(256 << 20).read_to_string()?;
        let body = if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        };
        Ok(Answer { status, body })
    }

    /// Why nobody answered, and what to do.
    fn unreached(&self, address: &str, why: &ureq::Error) -> String {
        let tls = match why {
            ureq::Error::Rustls(why) => Some(why),
            ureq::Error::Io(why) => henge_tls::of_tls(why),
            _ => None,
        };
        match (tls, &self.shown) {
            (Some(why), _) => henge_tls::failure(why, &self.believed),
            // Who refuses a certificate may hang up before the reason is read.
            (None, Some(path)) if hung_up(why) => format!(
                "{why}; it may refuse the certificate in {}, and its log says why; `henge join` fetches another, by an invitation",
                path.display()
            ),
            (None, _) if matches!(why, ureq::Error::Protocol(_)) && address.starts_with("http://") => {
                format!("{why}; what answers there is not HTTP, try https://")
            }
            (None, _) => format!("{why}; is `henge manager` running there?"),
        }
    }

    /// Reads.
    pub fn get(&self, path: &str) -> Result<Value> {
        Ok(self.ask("GET", path, None, &[])?.body)
    }
}

fn hung_up(why: &ureq::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let kinds = [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof];
    matches!(why, ureq::Error::Io(why) if kinds.contains(&why.kind()))
}

fn done(answer: Answer) -> Result<Answer> {
    if answer.status < 400 {
        return Ok(answer);
    }
    match answer.body.get("detail").and_then(Value::as_str) {
        Some(detail) => bail!("{detail}"),
        None => bail!("the manager answered {} {}", answer.status, answer.body),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_escaped() {
        assert_eq!(super::escaped("a b/é"), "a%20b%2F%C3%A9");
    }
}
