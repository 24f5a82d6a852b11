//! Which pools a node has served: the ids of directories and devices, in `state_dir`.
//!
//! # The problem
//! A directory whose file system is not mounted looks like one that nobody has used. It would become a new pool, and its disks would read as zeroes.
//! A device of another node may have a pool of the same name. Its tenants' data would be shown to those who have disks of the same names here.
//!
//! # The rule
//! `state_dir/POOL.pool` holds the id of the pool of that name that was served last. A directory that is no pool now, or another one, is not
//! served. Nor is a device that is another pool, unless it is empty, as it is once it was formatted. Who wants another one there deletes that file. A
//! directory in memory (tmpfs) is empty after each start of the machine, and is not remembered.

use super::StateDir;
use crate::config::{NodeConfig, PoolConfig, at};
use henge_backend::pools;
use henge_core::ParamError;
use std::io;
use std::path::{Path, PathBuf};

/// Of statfs(2): what is in memory alone.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

fn is_in_memory(directory: &Path) -> bool {
    let there = directory.ancestors().find(|path| path.exists());
    there.and_then(|path| rustix::fs::statfs(path).ok()).is_some_and(|fs| IN_MEMORY.contains(&fs.f_type))
}

/// The directories that can be known again, and where that is remembered.
fn known<'a>(
    config: &'a NodeConfig,
    state_dir: &'a StateDir,
) -> impl Iterator<Item = (&'a PoolConfig, &'a Path, PathBuf)> {
    config.pools.iter().filter_map(|pool| {
        let directory = pool.medium.directory().filter(|directory| !is_in_memory(directory))?;
        Some((pool, directory, state_dir.file(&format!("{}.pool", pool.name))?))
    })
}

/// What a node finds on its devices before it opens them: where each is remembered, and its id. Nobody looks at them later, since whoever closes
/// a device gives up the process's lock on it.
pub(crate) type Devices = Vec<(PathBuf, String)>;

/// Whether each directory and each device is the pool that it was. `served`: devices that are not to be looked at.
pub(crate) fn check(
    config: &NodeConfig,
    state_dir: &StateDir,
    served: &dyn Fn(&PoolConfig) -> bool,
) -> Result<Devices, ParamError> {
    for (pool, directory, file) in known(config, state_dir) {
        let now = pools::id(directory).map_err(|e| at(&pool.spans.medium, e.to_string()))?;
        compare(pool, directory, &file, now.as_deref(), "is its file system mounted?")?;
    }
    let mut devices = Devices::new();
    for pool in config.pools.iter().filter(|pool| !served(pool)) {
        let Some(path) = pool.medium.device() else { continue };
        let Some(file) = state_dir.file(&format!("{}.pool", pool.name)) else { continue };
        // What cannot be read is said by whoever opens it; so is a pool of another name.
        let Some(found) = pools::show(path).ok().filter(|found| found.name == pool.name) else { continue };
        if !found.parts.is_empty() {
            compare(pool, path, &file, Some(&found.pool), "is it another node's device?")?;
        }
        devices.push((file, found.pool));
    }
    Ok(devices)
}

/// Whether what is at a path is what is remembered.
fn compare(
    pool: &PoolConfig,
    path: &Path,
    file: &Path,
    now: Option<&str>,
    perhaps: &str,
) -> Result<(), ParamError> {
    let was = match std::fs::read_to_string(file) {
        Ok(text) => text.trim().to_owned(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(at(&pool.spans.medium, format!("{}: {e}", file.display()))),
    };
    if now == Some(&was) {
        return Ok(());
    }
    let (name, path) = (&pool.name, path.display());
    let now = now.map_or("no pool at all".to_owned(), |id| format!("another pool ({id})"));
    let why = format!("pool \"{name}\" was {was} when it was served last, and {path} is {now}");
    let wanted = if pool.medium.device().is_some() {
        "that one is wanted"
    } else {
        "its disks are to be new, and empty"
    };
    let help = Some(format!("{perhaps} Where {wanted}, delete {}", file.display()));
    Err(ParamError { help, ..at(&pool.spans.medium, why) })
}

/// They are served now.
pub(crate) fn remember(config: &NodeConfig, state_dir: &StateDir, mut found: Devices) -> io::Result<()> {
    for (_, directory, file) in known(config, state_dir) {
        found.extend(pools::id(directory)?.map(|id| (file, id)));
    }
    for (file, id) in found {
        let line = format!("{id}\n");
        if std::fs::read_to_string(&file).ok().as_ref() != Some(&line) {
            henge_io::replace(&file, line.as_bytes())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Node;
    use henge_config::Source;

    fn config(dir: &Path) -> NodeConfig {
        let dir = dir.display();
        let text = format!(
            "state_dir = \"{dir}/state\"\n[[pool]]\nname = \"p\"\npath = \"{dir}/pool\"\ncapacity = \"8MiB\"\n\
             [[disk]]\nname = \"web\"\npool = \"p\"\ncapacity = \"1MiB\"\n"
        );
        NodeConfig::parse(Source::new("node.toml", text)).unwrap()
    }

    /// Serves, and ends; or why not.
    fn serve(dir: &Path) -> Result<(), String> {
        Node::start(config(dir)).map_err(|e| e.to_string())?.stop().map_err(|e| e.to_string())
    }

    #[test]
    fn a_directory_that_is_not_mounted_is_no_new_pool() {
        let dir = tempfile::tempdir().unwrap();
        let (pool, aside, remembered) =
            (dir.path().join("pool"), dir.path().join("aside"), dir.path().join("state/p.pool"));
        serve(dir.path()).unwrap();
        if is_in_memory(dir.path()) {
            assert!(!remembered.exists(), "it is empty after each start of the machine");
            return;
        }
        std::fs::rename(&pool, &aside).unwrap();
        // The directory is there and empty, or not there.
        for there in [true, false] {
            if there {
                std::fs::create_dir(&pool).unwrap();
            }
            let (why, looked) =
                (serve(dir.path()).unwrap_err(), crate::check(&config(dir.path())).unwrap_err());
            assert!(
                why.contains("no pool at all") && why.contains("mounted?") && why.contains("p.pool"),
                "{why}"
            );
            assert_eq!(why, looked.to_string());
            assert_eq!(pool.exists(), there);
            if there {
                std::fs::remove_dir(&pool).unwrap(); // nothing was written there
            }
        }
        // Another one of that name is there.
        let elsewhere = tempfile::tempdir().unwrap();
        serve(elsewhere.path()).unwrap();
        std::fs::rename(elsewhere.path().join("pool"), &pool).unwrap();
        let why = serve(dir.path()).unwrap_err();
        assert!(why.contains("another pool ("), "{why}");
        std::fs::remove_dir_all(&pool).unwrap();
        std::fs::rename(&aside, &pool).unwrap();
        serve(dir.path()).unwrap();
        // Who wants a new one says so.
        std::fs::remove_dir_all(&pool).unwrap();
        std::fs::remove_file(&remembered).unwrap();
        serve(dir.path()).unwrap();
        assert!(remembered.exists());
    }

    /// Two nodes have pools and disks of the same names, and somebody swaps their devices. An empty one is anybody's.
    #[test]
    fn another_nodes_device_is_not_served() {
        let dir = tempfile::tempdir().unwrap();
        let device = |node: &str| dir.path().join(node).join("device");
        let on_device = |node: &str| {
            let at = dir.path().join(node).display().to_string();
            let text = format!(
                "state_dir = \"{at}/state\"\n[[pool]]\nname = \"p\"\ndevice = \"{at}/device\"\ndirect = false\n\
                 [[disk]]\nname = \"web\"\npool = \"p\"\ncapacity = \"1MiB\"\n"
            );
            NodeConfig::parse(Source::new("node.toml", text)).unwrap()
        };
        let serve = |node: &str| {
            Node::start(on_device(node)).map_err(|e| e.to_string())?.stop().map_err(|e| e.to_string())
        };
        let format = |node: &str, force| pools::format(&device(node), "p", force).unwrap();
        for node in ["a", "b"] {
            std::fs::create_dir(dir.path().join(node)).unwrap();
            std::fs::File::create(device(node)).unwrap().set_len(16 << 20).unwrap();
            format(node, false);
            serve(node).unwrap();
        }
        let swap = || {
            std::fs::rename(device("a"), dir.path().join("aside")).unwrap();
            std::fs::rename(device("b"), device("a")).unwrap();
            std::fs::rename(dir.path().join("aside"), device("b")).unwrap();
        };
        swap();
        let why = serve("a").unwrap_err();
        assert!(why.contains("another pool (") && why.contains("another node's"), "{why}");
        assert_eq!(why, crate::check(&on_device("a")).unwrap_err().to_string());
        swap();
        serve("a").unwrap();
        // What is served is not looked at, and keeps its lock.
        let node = Node::start(on_device("b")).unwrap();
        crate::could_follow(&on_device("b"), &on_device("b")).unwrap();
        node.stop().unwrap();
        // A device is formatted anew: nobody's data is there. It is this node's from then on.
        format("a", true);
        serve("a").unwrap();
        swap();
        assert!(serve("a").is_err());
        std::fs::remove_file(dir.path().join("a/state/p.pool")).unwrap();
        serve("a").unwrap();
    }

    /// A node is to begin anew by a file of which none could begin: its clients would be let go, and nobody be there. So that is known before.
    #[test]
    fn who_could_not_begin_is_known_before_the_other_ends() {
        let dir = tempfile::tempdir().unwrap();
        let now = config(dir.path());
        let node = Node::start(now.clone()).unwrap();
        let with = |medium: &str| {
            let text = now.source.text().to_owned() + "[[pool]]\nname = \"more\"\n" + medium;
            NodeConfig::parse(Source::new("node.toml", text)).unwrap()
        };
        let at = dir.path().display();
        std::fs::File::create(dir.path().join("device")).unwrap().set_len(16 << 20).unwrap();
        let device = with(&format!("device = \"{at}/device\"\n"));
        let why = crate::could_follow(&device, &now).unwrap_err().to_string();
        assert!(why.contains("is blank") && why.contains("node.toml"), "{why}");
        let more = with(&format!("path = \"{at}/more\"\ncapacity = \"8MiB\"\n"));
        crate::could_follow(&more, &now).unwrap();
        assert!(!dir.path().join("more").exists(), "nothing is made");
        crate::could_follow(&now, &now).unwrap();
        // Storage that is served is not opened, and has no room for more than it says; nor is every contract kept.
        let edited = |from: &str, to: &str| {
            let text = now.source.text().replace(from, to);
            assert_ne!(text, now.source.text());
            NodeConfig::parse(Source::new("node.toml", text)).unwrap()
        };
        let large = edited("\"1MiB\"", "\"9MiB\"");
        let why = crate::could_follow(&large, &now).unwrap_err().to_string();
        assert!(why.contains("9MiB of 8MiB") && why.contains("node.toml"), "{why}");
        crate::could_follow(&edited("\"1MiB\"", "\"8MiB\""), &now).unwrap();
        let promised = "\"1MiB\"\ncontract = { rate = \"10/s\" }\n";
        let scheduler = |most: &str| {
            let pool = format!(
                "\"8MiB\"\nscheduler = {{ mclock = {{ cost = \"requests\", capacity = \"{most}\" }} }}\n"
            );
            let text = now.source.text().replace("\"8MiB\"\n", &pool).replace("\"1MiB\"\n", promised);
            NodeConfig::parse(Source::new("node.toml", text)).unwrap()
        };
        crate::could_follow(&scheduler("10/s"), &now).unwrap();
        let why = crate::could_follow(&scheduler("9/s"), &now).unwrap_err().to_string();
        assert!(why.contains("disk \"web\"") && why.contains("node.toml"), "{why}");
        if !is_in_memory(dir.path()) {
            let aside = dir.path().join("aside");
            std::fs::rename(dir.path().join("pool"), &aside).unwrap();
            assert!(crate::could_follow(&now, &now).unwrap_err().to_string().contains("no pool at all"));
            std::fs::rename(&aside, dir.path().join("pool")).unwrap();
        }
        node.stop().unwrap();
    }
}
