//! A connection to a manager: dialled, and by TLS where the cluster has certificates.

use super::config::{ManagerConfig, Proof};
use henge_api::manager as wire;
use henge_api::proof;
use henge_tls::{Dial, Duplex, Role, TlsConfig};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, SystemTime};

/// How long a manager may take to answer a handshake, or to take a line.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// A connection's two ways, and the secret by which both ends prove who they are.
pub(super) struct Ends {
    pub reader: Box<dyn Read + Send>,
    pub writer: Box<dyn Write + Send>,
    pub secret: String,
    pub identity: Option<(TlsConfig, Option<henge_tls::Request>)>,
}

/// A connection to a manager, and by what this node proves who it is there.
pub(super) fn ends(stream: &TcpStream, config: &ManagerConfig) -> io::Result<Ends> {
    Ok(match &config.proof {
        Proof::Secret(secret) => Ends {
            reader: Box::new(stream.try_clone()?),
            writer: Box::new(stream.try_clone()?),
            secret: secret.clone(),
            identity: None,
        },
        Proof::Identity(files) => {
            let duplex = secure(stream, files, &config.name)?;
            Ends {
                secret: wire::hex(&duplex.exporter(proof::EXPORTER)?),
                reader: Box::new(duplex.half()),
                writer: Box::new(duplex.half()),
                identity: Some((files.clone(), None)),
            }
        }
    })
}

/// TLS over a connection to a manager of our own cluster.
fn secure(stream: &TcpStream, files: &TlsConfig, name: &str) -> io::Result<Duplex> {
    let dial = Dial::open(files, Role::Manager, None, SystemTime::now()).map_err(io::Error::other)?;
    let own = &dial.own;
    if own.role != Role::Node || own.name != name {
        let why = format!(
            "the certificate in {} is {} {}'s, and [manager] says name = \"{name}\": write the one that it names, or join again",
            files.certificate.display(),
            own.role,
            own.name
        );
        return Err(io::Error::other(why));
    }
    let connection = dial.connection().map_err(io::Error::other)?;
    Duplex::begin(stream.try_clone()?, connection)
}

/// Why a conversation ended, and what to do where certificates are to blame.
pub(super) fn in_words(why: &io::Error, files: Option<&TlsConfig>) -> String {
    let Some(wrong) = henge_tls::of_tls(why) else { return why.to_string() };
    let ca = files.and_then(|files| files.ca.as_ref()).map(|path| path.display().to_string());
    henge_tls::failure(wrong, ca.as_deref().unwrap_or("the cluster's root"))
}
