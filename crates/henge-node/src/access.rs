//! Who may use a disk, as the configuration says it.
//!
//! ```toml
//! [[disk]]
//! name = "web"
//! capacity = "96GB"
//! iscsi = { user = "alice", secret_file = "/etc/henge/web.chap", initiators = ["iqn.2026-11.example:host"] }
//! ```
//! With `target_user` and `target_secret` the node proves itself to the initiator as well. `secret_file` and `target_secret_file` name files with one
//! line each, which not every user of the machine may read.
//!
//! ```toml
//! nbd = "nobody"                       # or "anyone", or { users = ["libvirt-qemu", "1000"], certificates = ["CN=ann"] }
//! ```
//! NBD asks nobody who they are, but the kernel says whose process has connected to a Unix socket: `users` are names or numbers of this
//! machine's users. Who comes by TLS has shown a certificate: `certificates` are names in it. Where nothing is stated, a disk whose
//! `iscsi` or `nvme` says who proves itself is nobody's by NBD, so that
//! no other door stands open beside the guarded one; every other disk is anyone's.

use crate::front::{Door, Doors};
use henge_core::{ParamError, Params, Value};
use henge_iscsi::chap::{Access, Secret};
use std::ops::Range;

/// RFC 7143 9.2.1: below 96 bits a secret can be found by trying.
const SECRET_MIN: usize = 12;
const SECRET_MAX: usize = 255;

/// Reads `iscsi = { … }` of a disk. Without it, anyone may log in, as with NBD.
pub(crate) fn access(p: &mut Params) -> Result<Access, ParamError> {
    let Some(mut table) = p.table("iscsi")? else { return Ok(Access::default()) };
    let user = secret(&mut table, "user", "secret")?;
    let target = secret(&mut table, "target_user", "target_secret")?;
    if let (Some(user), Some(target)) = (&user, &target)
        && user.secret == target.secret
    {
        let message = "target_secret is not the secret of the user: who knows one would know both";
        return Err(table.error("target_secret", message.into()));
    }
    if user.is_none() && target.is_some() {
        return Err(table.error_here("target_user needs a user: the initiator proves itself first".into()));
    }
    let span = table.error("initiators", String::new()).span;
    let mut initiators = Vec::new();
    match table.take("initiators") {
        None => {}
        Some(Value::List(items)) => {
            for (item, span) in items {
                let Value::Text(name) = item else {
                    let message = "initiators is a list of names, like [\"iqn.2026-11.example:host\"]".into();
                    return Err(ParamError { message, help: None, span });
                };
                initiators.push(name);
            }
        }
        Some(_) => {
            let message = "initiators is a list of names, like [\"iqn.2026-11.example:host\"]".into();
            return Err(ParamError { message, help: None, span });
        }
    }
    table.finish()?;
    Ok(Access { users: user.into_iter().collect(), target, initiators })
}

/// Who may use a disk by NBD.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NbdAccess {
    /// Whoever comes.
    Anyone,
    /// It is not shown.
    Nobody,
    /// These alone.
    These {
        /// Processes of these users, by a Unix socket.
        users: Vec<u32>,
        /// Who shows a certificate with one of these names, by TLS.
        certificates: Vec<String>,
    },
}

impl Door for Access {
    fn is_stated(&self) -> bool {
        *self != Access::default()
    }
    fn guards(&self) -> bool {
        !self.users.is_empty()
    }
    fn names_somebody(&self) -> bool {
        self.guards() || !self.initiators.is_empty()
    }
}

/// Who may use a disk by NBD, if its table says so.
#[derive(Debug)]
pub(crate) struct NbdDoor(pub Option<NbdAccess>);

impl Door for NbdDoor {
    fn is_stated(&self) -> bool {
        self.0.is_some()
    }
    fn lets_in(&self) -> bool {
        self.0 != Some(NbdAccess::Nobody)
    }
    /// It may: but who comes by another door comes to the same disk, as its table says there.
    fn guards(&self) -> bool {
        false
    }
}

/// Reads `nbd = …` of a disk.
pub(crate) fn nbd(p: &mut Params) -> Result<NbdDoor, ParamError> {
    stated(p).map(NbdDoor)
}

fn stated(p: &mut Params) -> Result<Option<NbdAccess>, ParamError> {
    const FORMS: &str = "nbd is \"anyone\", \"nobody\", or { users = [\"libvirt-qemu\"], certificates = [\"spiffe://henge/client/ann\"] }";
    let span = p.error("nbd", String::new()).span;
    let wrong = |message: String| ParamError { message, help: None, span: span.clone() };
    match p.take("nbd") {
        None => Ok(None),
        Some(Value::Text(text)) => match text.as_str() {
            "anyone" => Ok(Some(NbdAccess::Anyone)),
            "nobody" => Ok(Some(NbdAccess::Nobody)),
            other => Err(wrong(format!("{FORMS}, not \"{other}\""))),
        },
        Some(Value::Table(mut table)) => {
            let mut list = |key| match table.take(key) {
                None => Ok(None),
                Some(Value::List(items)) => Ok(Some(items)),
                Some(_) => Err(wrong(FORMS.into())),
            };
            let (users, certificates) = (list("users")?, list("certificates")?);
            table.finish()?;
            if users.is_none() && certificates.is_none() {
                return Err(wrong(FORMS.into()));
            }
            let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
            let users = users.iter().flatten().map(|(user, span)| number(user, span, &known));
            let certificates = certificates.iter().flatten().map(|(name, span)| certificate(name, span));
            Ok(Some(NbdAccess::These {
                users: users.collect::<Result<_, _>>()?,
                certificates: certificates.collect::<Result<_, _>>()?,
            }))
        }
        Some(_) => Err(wrong(FORMS.into())),
    }
}

/// Who may use a disk by NBD, as its doors say.
pub(crate) fn by_nbd(doors: &Doors) -> NbdAccess {
    let stated = doors.of::<NbdDoor>().and_then(|door| door.0.clone());
    stated.unwrap_or(if doors.shown_by("nbd") { NbdAccess::Anyone } else { NbdAccess::Nobody })
}

/// The number of a user, by name or number.
fn number(user: &Value, span: &Range<usize>, known: &str) -> Result<u32, ParamError> {
    let wrong = |message: String| ParamError { message, help: None, span: span.clone() };
    match user {
        Value::Integer(n) => u32::try_from(*n).map_err(|_| wrong(format!("{n} is no user's number"))),
        Value::Text(text) => {
            let named = |line: &str| {
                let mut fields = line.split(':');
                (fields.next() == Some(text)).then(|| fields.nth(1)?.parse().ok()).flatten()
            };
            let found = text.parse().ok().or_else(|| known.lines().find_map(named));
            found.ok_or_else(|| {
                wrong(format!("this machine's /etc/passwd has no user \"{text}\"; a number does, too"))
            })
        }
        _ => Err(wrong("users are names or numbers, like [\"libvirt-qemu\", 1000]".into())),
    }
}

/// A name as certificates have it: a URI, a DNS name, or a common name behind `CN=`.
fn certificate(name: &Value, span: &Range<usize>) -> Result<String, ParamError> {
    const FORMS: &str = "a certificate's name is a URI, a DNS name or a common name, like \"spiffe://henge/client/ann\", \
                         \"backup.example.org\" or \"CN=ann\"";
    let wrong = |message: String| ParamError { message, help: None, span: span.clone() };
    let Value::Text(name) = name else { return Err(wrong(FORMS.into())) };
    if name.contains("://") || name.strip_prefix("CN=").is_some_and(|common| !common.is_empty()) {
        return Ok(name.clone());
    }
    let dns = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.contains('.') && name.chars().all(dns) {
        return Ok(name.to_ascii_lowercase());
    }
    Err(wrong(format!("{FORMS}, not \"{name}\"")))
}

/// A name and its secret, or the file that has it; both or neither.
fn secret(p: &mut Params, name_key: &str, secret_key: &str) -> Result<Option<Secret>, ParamError> {
    let file_key = format!("{secret_key}_file");
    let (at, secret) = match (p.text(secret_key)?, p.text(&file_key)?) {
        (Some(_), Some(_)) => {
            return Err(p.error(secret_key, format!("{secret_key} or {file_key}, not both")));
        }
        (None, Some(path)) => {
            let secret = henge_io::read_secret(path.as_ref());
            (&file_key[..], Some(secret.map_err(|e| p.error(&file_key, e.to_string()))?))
        }
        (stated, None) => (secret_key, stated),
    };
    match (p.text(name_key)?, secret) {
        (None, None) => Ok(None),
        (Some(name), Some(secret)) => {
            if !(SECRET_MIN..=SECRET_MAX).contains(&secret.len()) {
                let message = format!("{secret_key} has {SECRET_MIN} to {SECRET_MAX} bytes");
                return Err(p.error(at, message));
            }
            Ok(Some(Secret { name, secret: secret.into_bytes() }))
        }
        (Some(_), None) => Err(p.error_here(format!("{name_key} needs {secret_key} or {file_key}"))),
        (None, Some(_)) => Err(p.error_here(format!("{at} needs {name_key}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<NbdAccess, String> {
        let source = henge_config::Source::new("node.toml", text);
        let mut p = source.parse("the disk").unwrap();
        let doors = crate::front::Doors::read(&crate::fronts::kinds(), &mut p);
        doors.map(|doors| by_nbd(&doors)).map_err(|e| source.point(e).to_string())
    }

    #[test]
    fn a_secret_stands_in_a_file_of_its_own() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str, mode: u32| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path.display().to_string()
        };
        let read = |iscsi: String| {
            let source = henge_config::Source::new("node.toml", format!("iscsi = {{ {iscsi} }}"));
            access(&mut source.parse("the disk").unwrap()).map_err(|e| source.point(e).to_string())
        };
        let shut = file("shut", "correct horse\n", 0o600);
        let ours = file("ours", "battery staple\n", 0o640);
        let both = format!(
            "user = \"ann\", secret_file = {shut:?}, target_user = \"node\", target_secret_file = {ours:?}"
        );
        let both = read(both).unwrap();
        let known = |name: &str, secret: &[u8]| Secret { name: name.into(), secret: secret.into() };
        assert_eq!(both.users, [known("ann", b"correct horse")]);
        assert_eq!(both.target, Some(known("node", b"battery staple")));
        let open = file("open", "correct horse\n", 0o644);
        let short = file("short", "horse\n", 0o600);
        for (text, says) in [
            (format!("user = \"ann\", secret_file = {open:?}"), "mode 0644); chmod 600 /"),
            (format!("user = \"ann\", secret_file = {short:?}"), "secret has 12 to 255 bytes"),
            (format!("user = \"ann\", secret = \"correct horse\", secret_file = {shut:?}"), "not both"),
            ("user = \"ann\", secret_file = \"/nowhere/at/all\"".into(), "/nowhere/at/all: No such file"),
            (format!("secret_file = {shut:?}"), "secret_file needs user"),
            ("user = \"ann\"".into(), "user needs secret or secret_file"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(says) && !why.contains("horse\n") && !why.contains("correct"), "{why}");
        }
    }

    #[test]
    fn a_guarded_disk_has_no_other_door_unless_it_is_stated() {
        let guarded = "iscsi = { user = \"ann\", secret = \"twelve bytes\" }\n";
        assert_eq!(read(""), Ok(NbdAccess::Anyone));
        assert_eq!(read(guarded), Ok(NbdAccess::Nobody));
        assert_eq!(read("iscsi = { initiators = [\"iqn.2026-11.example:a\"] }"), Ok(NbdAccess::Nobody));
        assert_eq!(read(&format!("{guarded}nbd = \"anyone\"")), Ok(NbdAccess::Anyone));
        let these = |users: &[u32], names: &[&str]| {
            let certificates = names.iter().map(|&name| name.to_owned()).collect();
            Ok(NbdAccess::These { users: users.to_vec(), certificates })
        };
        assert_eq!(read("nbd = { users = [\"root\", 7, \"8\"] }"), these(&[0, 7, 8], &[]));
        assert_eq!(
            read(
                "nbd = { certificates = [\"spiffe://h/Ann\", \"Host.example.org\", \"CN=Ann B\"], users = [1] }"
            ),
            these(&[1], &["spiffe://h/Ann", "host.example.org", "CN=Ann B"])
        );
        for (text, says) in [
            ("nbd = \"nobdy\"", "not \"nobdy\""),
            ("nbd = { users = [\"no such user\"] }", "no user"),
            ("nbd = { user = [\"root\"] }", "users"),
            ("nbd = { users = [-1] }", "no user"),
            ("nbd = {}", "nobody"),
            ("nbd = { certificates = \"CN=ann\" }", "certificates = ["),
            ("nbd = { certificates = [\"ann\"] }", "not \"ann\""),
            ("nbd = { certificates = [\"CN=\"] }", "CN=ann"),
            ("nbd = { certificates = [7] }", "URI"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
        }
    }
}
