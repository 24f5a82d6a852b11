//! A manager that runs: sockets, the core, the first administrator's token.

use crate::audit::Audit;
use crate::authority::{Authority, AuthorityError, Own};
use crate::config::{Cluster, ManagerConfig};
use crate::core::{Core, LoadError, Unavailable, now_ms};
use crate::nodes::{self, Doors, Shared};
use crate::store::{EtcdStore, Leadership, RedbStore, Store, StoreError};
use crate::{rest, tokens};
use henge_tls::{Clients, Tls, TlsConfig};
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
    /// Certificates.
    #[error("{0}")]
    Certificates(String),
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
    /// With which the API speaks TLS.
    tls: Option<Arc<Tls>>,
    authority: Authority,
    /// This manager's certificate, where it signs its own.
    own: Option<Arc<Own>>,
}

/// What a manager with certificates has.
struct Certificates {
    own: Arc<Own>,
    nodes: Arc<Tls>,
    api: Arc<Tls>,
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
        let value_max = store.value_max();
        let core = Core::start(config.settings.clone(), store)?;
        let api = TcpListener::bind(&config.listen).await.map_err(named(&config.listen))?;
        let nodes = TcpListener::bind(&config.nodes).await.map_err(named(&config.nodes))?;
        let authority = Authority::new(core.clone());
        let certificates = match &config.cluster {
            Some(cluster) => Some(certificates(&authority, cluster).await?),
            None => None,
        };
        let tls = match (&config.tls, &certificates) {
            (Some(tls), _) => Some(followed(tls, Clients::Offered)?),
            (None, certificates) => certificates.as_ref().map(|c| Arc::clone(&c.api)),
        };
        let doors = match &certificates {
            Some(certificates) => {
                Doors::Certificates { tls: Arc::clone(&certificates.nodes), authority: authority.clone() }
            }
            None => Doors::Secret(config.secret.unwrap_or_default()),
        };
        let shared = Arc::new(Shared::new(
            core.clone(),
            doors,
            (config.settings.period_ms, value_max),
            config.central_tags,
        ));
        let audit = Audit::new(config.audit).map_err(named("a thread for the audit log"))?;
        let page = match config.page {
            Some(address) => Some(
                crate::page::serve(address, tls.clone(), core.clone(), Arc::clone(&audit))
                    .map_err(named("the web page"))?,
            ),
            None => None,
        };
        let own = certificates.map(|certificates| certificates.own);
        let state_dir = config.state_dir;
        Ok(Manager { core, api, nodes, shared, audit, state_dir, page, tls, authority, own })
    }

    /// The folder with the cluster's roots (`ca.pem`), where this manager is an authority.
    pub fn identity(&self) -> Option<&Path> {
        self.own.as_ref().map(|own| own.dir())
    }

    /// Where the API is, for clients.
    pub fn url(&self) -> io::Result<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}", self.api()?))
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
    pub fn page(&self) -> Option<String> {
        self.page.as_ref().map(henge_web::Serving::url)
    }
    /// Speaks to the core.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Serves until `stop` is done.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        let nodes = tokio::spawn(nodes::serve(self.nodes, self.shared));
        let heir = tokio::spawn(token_of_a_leader(self.core.clone(), self.state_dir));
        let own = self.own.map(|own| tokio::spawn(own.follow()));
        let router = rest::router(self.core.clone(), self.audit, self.authority);
        let api = Bounded::new(self.api, CONNECTIONS_MAX, IDLE);
        henge_web::answer(api, self.tls, router, stop).await;
        nodes.abort();
        heir.abort();
        own.inspect(tokio::task::JoinHandle::abort);
        drop(self.page);
        let core = self.core;
        let _ = tokio::task::spawn_blocking(move || core.stop()).await;
        Ok(())
    }
}

/// The cluster's first root, if there is none, and this manager's own certificate.
async fn certificates(authority: &Authority, cluster: &Cluster) -> Result<Certificates, StartError> {
    let wrong = |e: AuthorityError| StartError::Certificates(e.to_string());
    let own =
        Own::new(authority.clone(), cluster.identity.clone(), cluster.own.clone(), cluster.hosts.clone());
    let files = TlsConfig::of(own.dir());
    match authority.begin(&cluster.name).await {
        Ok(()) => own.keep().await.map_err(wrong)?,
        // Whoever leads signs; what was signed before will do.
        Err(AuthorityError::Unavailable(Unavailable::NotLeader(leader))) if !files.certificate.exists() => {
            let leader = leader.unwrap_or_else(|| "another manager".into());
            let why = format!(
                "{leader} leads, and this manager has no certificate: `henge ca invite manager {}` there, then `henge join` \
                 here with -o {}",
                cluster.own,
                own.dir().display()
            );
            return Err(StartError::Certificates(why));
        }
        Err(AuthorityError::Unavailable(Unavailable::NotLeader(_))) => {}
        Err(e) => return Err(wrong(e)),
    }
    let (nodes, api) = (followed(&files, Clients::Required)?, followed(&files, Clients::Offered)?);
    Ok(Certificates { own: Arc::new(own), nodes, api })
}

fn followed(files: &TlsConfig, clients: Clients) -> Result<Arc<Tls>, StartError> {
    let tls = Tls::open(files, clients).map_err(|e| StartError::Certificates(e.message))?;
    let tls = Arc::new(tls);
    tls.follow(|| ()).map_err(named("a thread for certificates"))?;
    Ok(tls)
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
    if core.call(|machine| machine.tokens.all().next().is_some()).await? {
        return Ok(None);
    }
    let path = dir.join("admin.token");
    let (token, record) =
        tokens::create(tokens::Scope::default(), now_ms(), None).map_err(named("random bytes"))?;
    let _ = std::fs::remove_file(&path);
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let written = file.and_then(|mut file| {
        file.write_all(token.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()
    });
    written.map_err(named(&path.display().to_string()))?;
    core.call(move |machine| machine.tokens.put(&mut machine.journal, record)).await?;
    Ok(Some(path))
}
