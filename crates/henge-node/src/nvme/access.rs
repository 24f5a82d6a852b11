//! Who may use a disk by NVMe, as the configuration says it.
//!
//! ```toml
//! [[disk]]
//! name = "web"
//! capacity = "96GB"
//! nvme = { hosts = ["nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-2fa1-11d2-883f-0016d3cca427"] }
//! ```

use henge_core::{ParamError, Params, Value};
use henge_nvme::Access;

/// Longest name of a host.
const NAME_MAX: usize = 223;

/// Reads `nvme = { … }` of a disk. Without it, any host may connect, as with NBD.
pub(crate) fn access(p: &mut Params) -> Result<Access, ParamError> {
    let Some(mut table) = p.table("nvme")? else { return Ok(Access::default()) };
    let span = table.error("hosts", String::new()).span;
    let wrong = |span| ParamError {
        message:
            "hosts is a list of names, like [\"nqn.2014-08.org.nvmexpress:uuid:…\"]; a host's own is in \
                  /etc/nvme/hostnqn"
                .into(),
        help: None,
        span,
    };
    let mut hosts = Vec::new();
    match table.take("hosts") {
        None => {}
        Some(Value::List(items)) if !items.is_empty() => {
            for (item, span) in items {
                match item {
                    Value::Text(name) if name.starts_with("nqn.") && name.len() <= NAME_MAX => {
                        hosts.push(name)
                    }
                    _ => return Err(wrong(span)),
                }
            }
        }
        Some(_) => return Err(wrong(span)),
    }
    table.finish()?;
    Ok(Access { hosts })
}
