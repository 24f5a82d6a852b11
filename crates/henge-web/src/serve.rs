//! The page: a thread of its own.

use crate::bounded::{Bounded, CONNECTIONS_MAX, IDLE};
use crate::http::router;
use crate::source::Source;
use henge_tls::Tls;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use tokio::sync::oneshot;

/// The shortest token.
const TOKEN_MIN: usize = 16;

/// Longest file of tokens, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// Who may come with which token.
#[derive(Clone, Debug, Default)]
pub struct Access {
    tokens: Vec<(String, bool)>,
}

impl Access {
    /// Reads a file of tokens: one a line, `read` behind it where it may only look; `#` begins a comment.
    pub fn read(path: &Path) -> io::Result<Access> {
        let named =
            |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()));
        let text = henge_io::read_text(path, FILE_MAX)?;
        let mut access = Access::default();
        for (i, line) in text.lines().enumerate() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(token) = words.next() else { continue };
            let changes = match words.next() {
                None => true,
                Some("read") => false,
                Some(other) => {
                    let line = i + 1;
                    return Err(named(format!(
                        "line {line}: \"{other}\" is no right; a token alone may change, \"read\" may look"
                    )));
                }
            };
            if token.len() < TOKEN_MIN || !crate::guard::is_token(token) {
                let line = i + 1;
                return Err(named(format!(
                    "line {line}: a token is {TOKEN_MIN} characters at least, like `head -c 24 /dev/urandom | base64` gives"
                )));
            }
            access.tokens.push((token.to_owned(), changes));
        }
        if access.tokens.is_empty() {
            return Err(named("holds no token".into()));
        }
        Ok(access)
    }

    /// Whether any token is needed.
    pub fn is_open(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Whether this token is known; if so, whether it may change anything. Takes equally long for every wrong one.
    pub fn check(&self, token: &str) -> Option<bool> {
        let mut found = None;
        for (known, changes) in &self.tokens {
            if bool::from(known.as_bytes().ct_eq(token.as_bytes())) {
                found = Some(*changes);
            }
        }
        found
    }
}

/// The page, as long as this lives.
pub struct Serving {
    address: SocketAddr,
    scheme: &'static str,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Serving {
    /// Where it is, with the port that was chosen for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it is, for a browser.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves a source at an address, by TLS where that is said. `begin` is called by the page's thread first: beside a node's disks it gives way.
pub fn serve(
    address: SocketAddr,
    tls: Option<Arc<Tls>>,
    source: Arc<dyn Source>,
    begin: fn(),
) -> io::Result<Serving> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{scheme}://{address}: {e}"));
    let listener = TcpListener::bind(address).map_err(named)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = crate::runtime().max_blocking_threads(16).thread_name("henge-http").build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::Builder::new().name("henge-http".into()).spawn(move || {
        begin();
        runtime.block_on(async move {
            let listener = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(e) => return tracing::error!(error = %e, "the web page cannot be served"),
            };
            let bounded = Bounded::new(listener, CONNECTIONS_MAX, IDLE);
            tokio::select! {
                // Live pages would hold up an orderly end; they come back by themselves.
                _ = stopped => {}
                () = crate::door::answer(bounded, tls, router(source), std::future::pending()) => {}
            }
        });
        runtime.shutdown_background();
    })?;
    Ok(Serving { address, scheme, stop: Some(stop), thread: Some(thread) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_and_checked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Access::read(&path).map_err(|e| e.to_string())
        };
        let access = read("# mine\nabcdefghijklmnop\nABCDEFGHIJKLMNOP read # a screen\n").unwrap();
        assert_eq!(access.check("abcdefghijklmnop"), Some(true));
        assert_eq!(access.check("ABCDEFGHIJKLMNOP"), Some(false));
        assert_eq!(access.check("abcdefghijklmno"), None);
        assert!(read("short").unwrap_err().contains("line 1: a token is 16 characters"));
        assert!(read("\n# nothing\n").unwrap_err().contains("holds no token"));
        assert!(read("abcdefghijklmnop write").unwrap_err().contains("\"write\" is no right"));
    }
}
