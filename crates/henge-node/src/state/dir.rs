//! The folder in which a node remembers: `state_dir`.
//!
//! It is one node's alone, as long as that node runs (a lock on the folder). Where the configuration does not say which, it is
//! [`STATE_DIR`], which is made where this process may. A node that gets none serves what its file says, and refuses changes.

use crate::config::{NodeConfig, STATE_DIR};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a node remembers; copies mean the same folder.
#[derive(Clone, Debug, Default)]
pub(crate) enum StateDir {
    /// In this folder. The lock ends with the last copy; a look from outside has none.
    Folder(PathBuf, #[allow(dead_code)] Option<Arc<File>>),
    /// Nowhere, for this reason: what should be remembered is not done.
    None(String),
    /// Nowhere, as the caller wants it: what is done ends with the node.
    #[default]
    Forgets,
}

impl StateDir {
    /// Makes it ours. An error where the configuration says a folder that another node has.
    pub(crate) fn open(config: &NodeConfig) -> io::Result<StateDir> {
        if config.state.forgets {
            return Ok(StateDir::Forgets);
        }
        let dir = &config.state.dir;
        let lock = henge_io::make_directory(dir).and_then(|()| File::open(dir));
        let lock = match lock {
            Ok(lock) => lock,
            Err(e) => return Ok(StateDir::warn(format!("{}: {e}", dir.display()))),
        };
        match lock_soon(&lock) {
            Ok(()) => return Ok(StateDir::Folder(dir.clone(), Some(Arc::new(lock)))),
            // Some network file systems know no locks; then whoever runs nodes there sees to it.
            Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOSYS) => {
                return Ok(StateDir::Folder(dir.clone(), None));
            }
            Err(_) => {}
        }
        let why = format!("{} is in use by another node", dir.display());
        if config.state.is_stated {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, format!("state_dir: {why}")));
        }
        Ok(StateDir::warn(why))
    }

    /// For a look that changes nothing.
    pub(crate) fn look(config: &NodeConfig) -> StateDir {
        if config.state.forgets {
            StateDir::Forgets
        } else {
            StateDir::Folder(config.state.dir.clone(), None)
        }
    }

    fn warn(why: String) -> StateDir {
        tracing::warn!("changes are refused, since they could not be remembered: {why}");
        StateDir::None(why)
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str) -> Option<PathBuf> {
        self.folder().map(|folder| folder.join(name))
    }

    /// The folder, if there is one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        if let StateDir::Folder(folder, _) = self { Some(folder) } else { None }
    }

    /// Whether what is done here may be changed.
    pub(crate) fn check(&self) -> io::Result<()> {
        let StateDir::None(why) = self else { return Ok(()) };
        Err(io::Error::other(format!(
            "{why}; write state_dir = \"{STATE_DIR}\", or a folder that this node may write, into its file"
        )))
    }

    #[cfg(test)]
    pub(crate) fn of(folder: &Path) -> StateDir {
        StateDir::Folder(folder.to_owned(), None)
    }

    #[cfg(test)]
    pub(crate) fn none(why: &str) -> StateDir {
        StateDir::None(why.to_owned())
    }
}

/// Locks a folder. What is left of a process that had it may have it for a moment: a child that has not begun its own program yet.
fn lock_soon(folder: &File) -> Result<(), rustix::io::Errno> {
    for _ in 0..50 {
        match flock(folder, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::AGAIN) => std::thread::sleep(std::time::Duration::from_millis(10)),
            locked => return locked,
        }
    }
    flock(folder, FlockOperation::NonBlockingLockExclusive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_config::Source;

    fn config(line: &str) -> NodeConfig {
        let pool = "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"1MiB\"\n";
        NodeConfig::parse(Source::new("node.toml", format!("{line}\n{pool}"))).unwrap()
    }

    #[test]
    fn a_folder_is_one_nodes_alone_until_that_node_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(&format!("state_dir = {:?}", dir.path().join("state")));
        let first = StateDir::open(&config).unwrap();
        assert_eq!(first.file("epoch"), Some(dir.path().join("state/epoch")));
        let second = StateDir::open(&config).unwrap_err();
        assert!(second.to_string().contains("state is in use by another node"), "{second}");
        let copy = first.clone();
        drop(first);
        assert!(StateDir::open(&config).is_err());
        drop(copy);
        StateDir::open(&config).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_made_refuses_changes_and_nothing_else() {
        let state_dir = StateDir::open(&config("state_dir = \"/proc/henge\"")).unwrap();
        let why = state_dir.check().unwrap_err().to_string();
        assert!(why.contains("/proc/henge: ") && why.contains("state_dir = \"/var/lib/henge\""), "{why}");
        assert_eq!(state_dir.folder(), None);
    }
}
