//! Who may use a disk by iSCSI, as the configuration says it.
//!
//! ```toml
//! [[disk]]
//! name = "web"
//! capacity = "96GB"
//! iscsi = { user = "alice", secret = "correct horse", initiators = ["iqn.2026-11.example:host"] }
//! ```
//! With `target_user` and `target_secret` the node proves itself to the initiator as well.

use henge_core::{ParamError, Params, Value};
use henge_iscsi::chap::{Access, Secret};

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

/// A name and its secret; both or neither.
fn secret(p: &mut Params, name_key: &str, secret_key: &str) -> Result<Option<Secret>, ParamError> {
    match (p.text(name_key)?, p.text(secret_key)?) {
        (None, None) => Ok(None),
        (Some(name), Some(secret)) => {
            if !(SECRET_MIN..=SECRET_MAX).contains(&secret.len()) {
                let message = format!("{secret_key} has {SECRET_MIN} to {SECRET_MAX} bytes");
                return Err(p.error(secret_key, message));
            }
            Ok(Some(Secret { name, secret: secret.into_bytes() }))
        }
        (Some(_), None) => Err(p.error_here(format!("{name_key} needs {secret_key}"))),
        (None, Some(_)) => Err(p.error_here(format!("{secret_key} needs {name_key}"))),
    }
}
