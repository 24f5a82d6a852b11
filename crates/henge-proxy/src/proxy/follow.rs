//! Whether a proxy of another configuration could begin where one ends.
//!
//! A proxy that is to begin anew lets its connections go first. So what would keep the next one from beginning is looked for before.

use super::gate;
use crate::config::{Config, ProxyError};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Whether a proxy of `next` could begin where one of `now` ends; or why not. Where one of `now` listens, the next one is handed the socket.
pub(super) fn could_follow(next: &Config, now: &Config) -> Result<(), ProxyError> {
    gate(next)?;
    let listens = |config: &Config| -> Vec<SocketAddr> { config.listen.iter().map(|l| l.address).collect() };
    let links = |config: &Config| config.peers.as_ref().map(|peers| peers.listen);
    let (handed, wanted) = (listens(now), listens(next));
    let mut taken = Vec::new();
    for (i, address) in wanted.iter().enumerate() {
        let failed = |e: io::Error| ProxyError::io(format!("listening on {address}"), e);
        if address.port() != 0 && wanted[..i].contains(address) {
            return Err(failed(io::ErrorKind::AddrInUse.into()));
        }
        if !handed.contains(address) {
            taken.push(TcpListener::bind(address).map_err(failed)?);
        }
    }
    if let Some(address) = links(next).filter(|link| links(now) != Some(*link)) {
        let failed = |e| ProxyError::io(format!("listening on {address}"), e);
        taken.push(TcpListener::bind(address).map_err(failed)?);
    }
    for path in [&next.control, &next.record].into_iter().flatten() {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder
            && !folder.is_dir()
        {
            return Err(ProxyError::io(path.display().to_string(), io::Error::from(io::ErrorKind::NotFound)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_config::Source;

    fn config(listen: &[SocketAddr], more: &str) -> Config {
        let ports: String = listen.iter().map(|at| format!("[[listen]]\naddress = \"{at}\"\n")).collect();
        let text = format!("server = \"127.0.0.1:1\"\n{more}{ports}");
        Config::parse(Source::new("proxy.toml", text)).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn a_proxy_that_could_not_begin_follows_nobody() {
        let here = TcpListener::bind("127.0.0.1:0").expect("a port");
        let others = TcpListener::bind("127.0.0.1:0").expect("a port");
        let [here_at, others_at] = [&here, &others].map(|of| of.local_addr().expect("its address"));
        let now = config(&[here_at], "");
        assert!(could_follow(&now, &now).is_ok(), "where it listens is handed over");
        for (next, says) in [
            (config(&[here_at, others_at], ""), format!("listening on {others_at}")),
            (config(&[here_at, here_at], ""), format!("listening on {here_at}")),
            (config(&[here_at], "control = \"/nowhere/at/all.sock\"\n"), "/nowhere/at/all.sock".into()),
        ] {
            let why = could_follow(&next, &now).expect_err("it could not begin").to_string();
            assert!(why.contains(&says), "{why}");
        }
        drop(others);
        assert!(could_follow(&config(&[here_at, others_at], ""), &now).is_ok());
    }
}
