//! Where certificates say who is who: ours, and whom we believe.

use crate::config::ProxyError;
use henge_tls::{Clients, Identity, Role, Tls, TlsConfig};
use std::io;
use std::sync::Arc;

/// Our certificate, and those that we believe.
pub(super) struct Certificates {
    pub(super) tls: Arc<Tls>,
    /// Who we are.
    pub(super) own: Identity,
    /// When certificates were last found to count.
    turn: u64,
}

impl Certificates {
    /// Our certificate, by which a proxy of that name is known, and whom we believe.
    pub(super) fn open(files: &TlsConfig, name: &str) -> Result<Self, ProxyError> {
        let what = || files.certificate.display().to_string();
        let wrong = |why: String| ProxyError::io(what(), io::Error::other(why));
        let tls = Tls::open(files, Clients::Required).map_err(|e| wrong(e.message))?;
        let own = tls.dial().map(|dial| dial.own);
        let own = own.filter(|own| own.role == Role::Proxy && own.name == name).ok_or_else(|| {
            wrong(format!("this is not the certificate of proxy {name}: `henge ca invite proxy {name}` at the manager, then `henge join`"))
        })?;
        let tls = Arc::new(tls);
        tls.follow(|| ()).map_err(|e| ProxyError::io("a thread for certificates", e))?;
        Ok(Certificates { tls, own, turn: 0 })
    }

    /// Whether they are others than they were when this was asked last.
    pub(super) fn have_changed(&mut self) -> bool {
        let turn = self.tls.turn();
        std::mem::replace(&mut self.turn, turn) != turn
    }
}
