//! A manager that runs: sockets, the core, the first administrator's token.

use crate::audit::Audit;
use crate::config::ManagerConfig;
use crate::core::{Core, LoadError, Unavailable, now_ms};
use crate::nodes::{self, Shared};
use crate::store::{EtcdStore, Leadership, RedbStore, Store, StoreError};
use crate::{rest, tokens};
use henge_web::{Bounded, CONNECTIONS_MAX, IDLE};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpListener;

/// Why a manager does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket or a file.
    #[error("{0}")]
    Io(String),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What it holds.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The core.
    #[error(transparent)]
    Core(#[from] Unavailable),
}

/// A manager with its sockets open.
pub struct Manager {
    core: Core,
    api: TcpListener,
    nodes: TcpListener,
    shared: Arc<Shared>,
    audit: Arc<Audit>,
    state_dir: PathBuf,
    page: Option<henge_web::Serving>,
}

fn named(what: &str) -> impl Fn(io::Error) -> StartError {
    move |e| StartError::Io(format!("{what}: {e}"))
}

impl Manager {
    /// Opens the state and the sockets.
    pub async fn start(config: ManagerConfig) -> Result<Manager, StartError> {
        let dir = &config.state_dir;
        std::fs::create_dir_all(dir).map_err(named(&dir.display().to_string()))?;
        let store: Box<dyn Store> = match &config.etcd {
            None => Box::new(RedbStore::open(&dir.join("state.redb"))?),
            Some(etcd) => Box::new(EtcdStore::open(etcd.clone())?),
        };
        let core = Core::start(config.settings.clone(), store)?;
        let api = TcpListener::bind(&config.listen).await.map_err(named(&config.listen))?;
        let nodes = TcpListener::bind(&config.nodes).await.map_err(named(&config.nodes))?;
        let shared = Arc::new(Shared::new(
            core.clone(),
            config.secret,
            config.settings.period_ms,
            config.central_tags,
        ));
        let audit = Audit::new(config.audit);
        let page = match config.page {
            Some(address) => Some(
                crate::page::serve(address, core.clone(), Arc::clone(&audit))
                    .map_err(named("the web page"))?,
            ),
            None => None,
        };
        Ok(Manager { core, api, nodes, shared, audit, state_dir: config.state_dir, page })
    }

    /// Where the API is.
    pub fn api(&self) -> io::Result<SocketAddr> {
        self.api.local_addr()
    }
    /// Where nodes dial.
    pub fn nodes(&self) -> io::Result<SocketAddr> {
        self.nodes.local_addr()
    }
    /// Makes the administrator's first token where there is none yet and this manager leads; its file.
    pub async fn first_token(&self) -> Result<Option<PathBuf>, StartError> {
        match self.core.leadership() {
            Leadership::Ours => first_token(&self.core, &self.state_dir).await,
            Leadership::Theirs(_) => Ok(None),
        }
    }
    /// Who leads, as far as is known.
    pub fn leadership(&self) -> Leadership {
        self.core.leadership()
    }
    /// Where the web page is.
    pub fn page(&self) -> Option<SocketAddr> {
        self.page.as_ref().map(henge_web::Serving::address)
    }
    /// Speaks to the core.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Serves until `stop` is done.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        let nodes = tokio::spawn(nodes::serve(self.nodes, self.shared));
        let heir = tokio::spawn(token_of_a_leader(self.core.clone(), self.state_dir));
        let router = rest::router(self.core.clone(), self.audit);
        let api = Bounded::new(self.api, CONNECTIONS_MAX, IDLE);
        henge_web::answer(api, router, stop).await;
        nodes.abort();
        heir.abort();
        drop(self.page);
        let core = self.core;
        let _ = tokio::task::spawn_blocking(move || core.stop()).await;
        Ok(())
    }
}

/// A manager that comes to lead before there is any token makes the first one.
async fn token_of_a_leader(core: Core, dir: PathBuf) {
    let mut leaders = core.leaders();
    while leaders.changed().await.is_ok() {
        let leads = *leaders.borrow_and_update() == Leadership::Ours;
        if !leads {
            continue;
        }
        match first_token(&core, &dir).await {
            Ok(None) => {}
            Ok(Some(path)) => tracing::info!("the administrator's token is in {}", path.display()),
            Err(e) => tracing::error!("no administrator's token: {e}"),
        }
    }
}

/// Makes the administrator's first token. It is remembered only once its file is there, so that nobody is locked out.
async fn first_token(core: &Core, dir: &Path) -> Result<Option<PathBuf>, StartError> {
    if core.call(|machine| machine.tokens().next().is_some()).await? {
        return Ok(None);
    }
    let path = dir.join("admin.token");
    let (token, record) = tokens::create(None, now_ms(), None).map_err(named("random bytes"))?;
    let _ = std::fs::remove_file(&path);
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let written = file.and_then(|mut file| {
        file.write_all(token.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()
    });
    written.map_err(named(&path.display().to_string()))?;
    core.call(move |machine| machine.put_token(record)).await?;
    Ok(Some(path))
}
