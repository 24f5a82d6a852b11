//! Who may use a disk by NVMe, and how it proves who it is, as the configuration says it.
//!
//! ```toml
//! [[disk]]
//! name = "web"
//! capacity = "96GB"
//! nvme = { hosts = ["nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-2fa1-11d2-883f-0016d3cca427"] }
//! ```
//! A name is no proof. With secrets, hosts prove by DH-HMAC-CHAP who they are:
//!
//! ```toml
//! nvme = { secret_file = "/etc/henge/web.dhchap" }                          # one secret for all hosts
//! nvme = { hosts = [{ nqn = "nqn.2014-08.org.nvmexpress:uuid:…", secret = "DHHC-1:00:…:" }], target_secret = "DHHC-1:00:…:" }
//! ```
//! With `target_secret` (or `target_secret_file`) the node proves itself to hosts that ask. `group` is the weakest group in which a
//! host may prove itself: "null" (the default), "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144" or "ffdhe8192".

use crate::front::Door;
use henge_core::{ParamError, Params, Value};
use henge_nvme::Access;
use henge_nvme::auth::{Group, Key};
use std::ops::Range;

/// Longest name of a host.
const NAME_MAX: usize = 223;
/// Longest file of a secret, in bytes.
const FILE_MAX: u64 = 4096;

/// Reads `nvme = { … }` of a disk. Without it, any host may connect, as with NBD.
pub(crate) fn access(p: &mut Params) -> Result<Access, ParamError> {
    let Some(mut table) = p.table("nvme")? else { return Ok(Access::default()) };
    let mut access = Access {
        key: key(&mut table, "secret")?,
        controller_key: key(&mut table, "target_secret")?,
        weakest: group(&mut table)?,
        ..Access::default()
    };
    hosts(&mut table, &mut access)?;
    let proves = access.key.is_some() || !access.keys.is_empty();
    if proves && !access.is_guarded() {
        let open = access.hosts.iter().find(|host| !access.keys.contains_key(*host));
        let message = format!(
            "host {} has no secret, so whoever takes its name comes in beside those that prove who they are",
            open.map_or("", String::as_str)
        );
        return Err(table.error("hosts", message));
    }
    if !proves && access.controller_key.is_some() {
        return Err(table.error_here("target_secret needs a secret: the host proves itself first".into()));
    }
    if !proves && access.weakest != Group::Null {
        return Err(
            table.error("group", "group says how hosts prove who they are; they need a secret".into())
        );
    }
    if access
        .controller_key
        .as_ref()
        .is_some_and(|ours| access.key.iter().chain(access.keys.values()).any(|key| key == ours))
    {
        let message = "target_secret is not the secret of a host: who knows one would know both";
        return Err(table.error("target_secret", message.into()));
    }
    table.finish()?;
    Ok(access)
}

impl Door for Access {
    fn is_stated(&self) -> bool {
        *self != Access::default()
    }
    fn guards(&self) -> bool {
        self.is_guarded()
    }
}

/// The list of hosts: names, or names with secrets of their own.
fn hosts(table: &mut Params, access: &mut Access) -> Result<(), ParamError> {
    let span = table.error("hosts", String::new()).span;
    let items = match table.take("hosts") {
        None => return Ok(()),
        Some(Value::List(items)) if !items.is_empty() => items,
        Some(_) => return Err(wrong(span)),
    };
    for (item, span) in items {
        let (name, key) = match item {
            Value::Text(name) => (name, None),
            Value::Table(mut host) => {
                let name = host.text("nqn")?.ok_or_else(|| wrong(span.clone()))?;
                let key = key(&mut host, "secret")?;
                host.finish()?;
                (name, key)
            }
            _ => return Err(wrong(span)),
        };
        if !name.starts_with("nqn.") || name.len() > NAME_MAX {
            return Err(wrong(span));
        }
        if access.hosts.contains(&name) {
            return Err(ParamError { message: format!("host {name} is there twice"), help: None, span });
        }
        access.keys.extend(key.map(|key| (name.clone(), key)));
        access.hosts.push(name);
    }
    Ok(())
}

fn wrong(span: Range<usize>) -> ParamError {
    let message = "hosts is a list of names, like [\"nqn.2014-08.org.nvmexpress:uuid:…\"], or of names and secrets, like \
                   [{ nqn = \"nqn.…\", secret = \"DHHC-1:…\" }]; a host's own name is in its /etc/nvme/hostnqn";
    ParamError { message: message.into(), help: None, span }
}

/// A secret, or the file that has it.
fn key(p: &mut Params, name: &str) -> Result<Option<Key>, ParamError> {
    let file = format!("{name}_file");
    let (at, text) = match (p.text(name)?, p.text(&file)?) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(p.error(name, format!("{name} or {file}, not both"))),
        (Some(text), None) => (name, text),
        (None, Some(path)) => {
            let text = henge_io::read_text(path.as_ref(), FILE_MAX);
            let text = text.map_err(|e| p.error(&file, e.to_string()))?;
            (&file[..], text)
        }
    };
    let mut error = p.error(at, String::new());
    Key::parse(&text).map(Some).map_err(|why| {
        why.clone_into(&mut error.message);
        error
    })
}

/// The weakest group.
fn group(p: &mut Params) -> Result<Group, ParamError> {
    let Some(name) = p.text("group")? else { return Ok(Group::Null) };
    Group::named(&name).ok_or_else(|| {
        let names: Vec<&str> = Group::ALL.iter().map(|group| group.name()).collect();
        p.error("group", format!("group is one of {}, not \"{name}\"", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    const B: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:a";

    fn parse(text: &str) -> Result<Access, String> {
        let source = henge_config::Source::new("node.toml", text);
        let mut p = source.parse("the disk").unwrap();
        access(&mut p).map_err(|e| source.point(e).to_string())
    }

    #[test]
    fn hosts_and_secrets_are_read() {
        let open = parse("").unwrap();
        assert!(!open.is_guarded() && open.key(HOST).is_none());
        let named = parse(&format!("nvme = {{ hosts = [\"{HOST}\"] }}")).unwrap();
        assert!(!named.is_guarded() && named.allows(HOST) && !named.allows("nqn.b"));
        let one = parse(&format!("nvme = {{ secret = \"{A}\", group = \"ffdhe3072\" }}")).unwrap();
        assert!(one.is_guarded() && one.key("nqn.b").is_some() && one.weakest == Group::Ffdhe3072);
        let own = format!(
            "nvme = {{ hosts = [{{ nqn = \"{HOST}\", secret = \"{A}\" }}], target_secret = \"{B}\" }}"
        );
        let own = parse(&own).unwrap();
        assert!(own.is_guarded() && own.key(HOST).is_some() && own.key("nqn.b").is_none());
        assert!(own.controller_key.is_some() && !own.allows("nqn.b"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, format!("{A}\n")).unwrap();
        let by_file = parse(&format!("nvme = {{ secret_file = {path:?} }}")).unwrap();
        assert_eq!(by_file.key, one.key);
    }

    #[test]
    fn what_is_wrong_is_said_without_the_secret() {
        let damaged = A.replace("AAEC", "AAED");
        for (text, says) in [
            ("hosts = []".into(), "list of names"),
            ("hosts = [\"web\"]".into(), "hostnqn"),
            (format!("hosts = [\"{HOST}\", \"{HOST}\"]"), "twice"),
            (format!("hosts = [{{ nqn = \"{HOST}\", key = \"{A}\" }}]"), "key"),
            (format!("hosts = [{{ secret = \"{A}\" }}]"), "list of names"),
            (
                format!("hosts = [\"{HOST}\", {{ nqn = \"nqn.b\", secret = \"{A}\" }}]"),
                "uuid:a has no secret",
            ),
            (format!("secret = \"{damaged}\""), "checksum"),
            ("secret = \"correct horse\"".into(), "gen-dhchap-key"),
            ("secret_file = \"/nowhere/at/all\"".into(), "/nowhere/at/all"),
            (format!("secret = \"{A}\", secret_file = \"/x\""), "not both"),
            (format!("target_secret = \"{A}\""), "proves itself first"),
            (format!("secret = \"{A}\", target_secret = \"{A}\""), "know both"),
            ("group = \"ffdhe2048\"".into(), "need a secret"),
            (format!("secret = \"{A}\", group = \"modp2048\""), "ffdhe4096"),
        ] {
            let why = parse(&format!("nvme = {{ {text} }}")).expect_err(&text);
            assert!(why.contains(says) && !why.contains("AwQFBg") && !why.contains("horse"), "{text}: {why}");
        }
    }
}
