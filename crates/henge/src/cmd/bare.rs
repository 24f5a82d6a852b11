//! Files of secrets that every user of this machine may read: said at start, as other doors that stand open are.

use henge_config::Source;
use henge_core::{Params, Value};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Tells of those that a configuration names.
pub(super) fn tell(config: &Path) {
    let Ok(mut params) = Source::read(config).map_err(drop).and_then(|s| s.parse("").map_err(drop)) else {
        return; // whoever reads it for its own sake says what is wrong
    };
    let mut files = BTreeSet::new();
    look(&mut params, config, &mut files);
    for why in files.iter().filter_map(|path| bare(path)) {
        eprintln!("henge: insecure: {why}");
    }
}

/// The files that hold secrets: the configuration itself, where it states one.
fn look(p: &mut Params, config: &Path, files: &mut BTreeSet<PathBuf>) {
    for key in p.keys() {
        match (key.as_str(), p.get_mut(&key)) {
            (
                "secret_file" | "target_secret_file" | "token_file" | "password_file",
                Some(Value::Text(path)),
            ) => {
                files.insert(PathBuf::from(path.as_str()));
            }
            ("secret" | "target_secret" | "password", Some(Value::Text(_))) => {
                files.insert(config.into());
            }
            (_, Some(value)) => within(value, config, files),
            (_, None) => {}
        }
    }
}

fn within(value: &mut Value, config: &Path, files: &mut BTreeSet<PathBuf>) {
    match value {
        Value::Table(table) => look(table, config, files),
        Value::List(items) => items.iter_mut().for_each(|(item, _)| within(item, config, files)),
        _ => {}
    }
}

/// Why, if so.
fn bare(path: &Path) -> Option<String> {
    let mode = path.metadata().ok()?.mode();
    let path = path.display();
    (mode & 0o007 != 0).then(|| {
        format!(
            "every user of this machine may read what {path} holds, a secret (mode {:04o}); chmod 600 {path}",
            mode & 0o7777
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secrets_that_every_user_may_read_are_found_wherever_they_stand() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, mode: u32| {
            let path = dir.path().join(name);
            std::fs::write(&path, "0123456789abcdef").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let (open, shut, group) = (file("open", 0o644), file("shut", 0o600), file("group", 0o640));
        let (token, of_disk, of_etcd) = (file("token", 0o604), file("disk", 0o666), file("etcd", 0o644));
        let text = format!(
            "secret_file = {shut:?}\ncontrol = {open:?}\nhttp = {{ listen = \"a\", token_file = {token:?} }}\n\
             [link]\nsecret_file = {open:?}\n[manager]\nsecret_file = {group:?}\n\
             [[disk]]\nnvme = {{ hosts = [{{ nqn = \"a\", secret_file = {of_disk:?} }}] }}\n[etcd]\npassword_file = {of_etcd:?}\n"
        );
        let found = |text: &str| {
            let mut files = BTreeSet::new();
            look(&mut Source::new("node.toml", text).parse("").unwrap(), Path::new("node.toml"), &mut files);
            files
        };
        let files = found(&text);
        assert_eq!(files, [&open, &shut, &group, &token, &of_disk, &of_etcd].map(Clone::clone).into());
        let told = |path: &PathBuf| bare(path).is_some_and(|why| why.contains("; chmod 600 "));
        let all = [&open, &token, &of_disk, &of_etcd, &shut, &group];
        assert_eq!(all.map(told), [true, true, true, true, false, false]);
        let chap = "[[disk]]\niscsi = { user = \"ann\", secret = \"hush-hush-hush\" }";
        assert_eq!(found(chap), [PathBuf::from("node.toml")].into());
    }
}
