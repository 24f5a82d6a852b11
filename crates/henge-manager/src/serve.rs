//! A manager that runs: sockets, the core, the first administrator's token.

use crate::config::ManagerConfig;
use crate::core::{Core, LoadError, Unavailable, now_ms};
use crate::nodes::{self, Shared};
use crate::store::{RedbStore, StoreError};
use crate::{rest, tokens};
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
    token: Option<PathBuf>,
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
        let store = RedbStore::open(&dir.join("state.redb"))?;
        let core = Core::start(config.settings.clone(), store)?;
        let api = TcpListener::bind(&config.listen).await.map_err(named(&config.listen))?;
        let nodes = TcpListener::bind(&config.nodes).await.map_err(named(&config.nodes))?;
        let token = first_token(&core, dir).await?;
        let shared = Arc::new(Shared::new(core.clone(), config.secret, config.settings.period_ms));
        let page = match config.page {
            Some(address) => Some(crate::page::serve(address, core.clone()).map_err(named("the web page"))?),
            None => None,
        };
        Ok(Manager { core, api, nodes, shared, token, page })
    }

    /// Where the API is.
    pub fn api(&self) -> io::Result<SocketAddr> {
        self.api.local_addr()
    }
    /// Where nodes dial.
    pub fn nodes(&self) -> io::Result<SocketAddr> {
        self.nodes.local_addr()
    }
    /// The file of the administrator's token, where it was made now.
    pub fn new_token(&self) -> Option<&Path> {
        self.token.as_deref()
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
        let router = rest::router(self.core.clone());
        let served = axum::serve(self.api, router).with_graceful_shutdown(stop).await;
        nodes.abort();
        drop(self.page);
        self.core.stop();
        served
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
