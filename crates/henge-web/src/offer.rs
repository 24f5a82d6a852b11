//! Disks that somebody asks for on the page, how clients attach to them, and what tenants may have.
//!
//! [`ways`] writes what to type from an address as a node shows it. The forms of addresses are the front ends' own:
//!
//! | front end | address |
//! |---|---|
//! | `nbd` | `nbd://HOST:PORT/DISK`, `nbds://…` with TLS, `nbd+unix:///DISK?socket=PATH` |
//! | `iscsi` | `iscsi://HOST:PORT/TARGET/0` |
//! | `nvme` | `nvme connect -t tcp -a HOST -s PORT -n NQN` |

use crate::source::Terms;
use serde::{Deserialize, Serialize};

/// A disk that somebody asks for.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// As the configuration writes it: `"96GB"`.
    pub capacity: String,
    /// At a node: on which pool. A manager chooses.
    #[serde(default)]
    pub pool: String,
    /// At a manager: whose, where the administrator asks; empty for his own.
    #[serde(default)]
    pub tenant: String,
    /// At a manager: who may attach by NBD.
    #[serde(default)]
    pub nbd: Vec<String>,
    /// What it is promised.
    #[serde(default)]
    pub contract: Terms,
}

/// How clients attach to a disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Attach {
    /// The disk, as the page's links call it.
    pub disk: String,
    /// By each front end and address.
    pub ways: Vec<Way>,
    /// Told once, when the disk is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<Secret>,
    /// What else to know.
    pub note: String,
}

/// By one address.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Way {
    /// `NBD`, `iSCSI`, `NVMe/TCP`.
    pub front: String,
    /// The address.
    pub address: String,
    /// What to type: for whom, and the commands.
    pub lines: Vec<(String, String)>,
}

/// A secret that a client has to know.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    /// What it is for.
    pub what: String,
    /// Itself.
    pub text: String,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({})", self.what)
    }
}

/// A tenant: terms of quotas as they are written; what is not stated has no bound.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// What the administrator allows.
    pub ceiling: Terms,
    /// What it allows itself.
    pub own: Terms,
    /// What its disks hold.
    pub used: Terms,
    /// What is left of both.
    pub left: Terms,
    /// Tokens that are its.
    pub tokens: u32,
}

/// What to type at clients to attach to a disk at an address. None for an address of another form.
///
/// ```
/// let way = henge_web::ways("nbd://192.0.2.1:10809/web").unwrap();
/// assert_eq!(way.lines[0].1, "nbd-client -N web 192.0.2.1 10809 /dev/nbd0");
/// ```
pub fn ways(address: &str) -> Option<Way> {
    let (scheme, rest) = match address.strip_prefix("nvme connect ") {
        Some(_) => ("nvme", address),
        None => address.split_once("://")?,
    };
    let (front, lines) = match scheme {
        "nbd" => ("NBD", nbd(address, rest)?),
        "nbds" => ("NBD with TLS", nbds(address)),
        "nbd+unix" => ("NBD, on this machine", unix(address, rest)?),
        "iscsi" => ("iSCSI", iscsi(address, rest)?),
        "nvme" => ("NVMe/TCP", vec![line("Linux", address)]),
        _ => return None,
    };
    Some(Way { front: front.into(), address: address.into(), lines })
}

fn line(who: &str, command: impl Into<String>) -> (String, String) {
    (who.into(), command.into())
}

/// `HOST:PORT` in two; an IPv6 address without its brackets.
fn host_and_port(at: &str) -> Option<(&str, &str)> {
    let (host, port) = at.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']), port))
}

fn nbd(address: &str, rest: &str) -> Option<Vec<(String, String)>> {
    let (at, disk) = rest.split_once('/')?;
    let (host, port) = host_and_port(at)?;
    Some(vec![
        line("Linux", format!("nbd-client -N {disk} {host} {port} /dev/nbd0")),
        line("QEMU", format!("-drive file={address},format=raw,if=virtio")),
        line("try it", format!("nbdinfo {address}")),
    ])
}

fn nbds(address: &str) -> Vec<(String, String)> {
    vec![line("try it", format!("nbdinfo '{address}?tls-certificates=/etc/pki/henge'"))]
}

fn unix(address: &str, rest: &str) -> Option<Vec<(String, String)>> {
    let (disk, socket) = rest.trim_start_matches('/').split_once("?socket=")?;
    Some(vec![
        line("Linux", format!("nbd-client -unix {socket} -N {disk} /dev/nbd0")),
        line("QEMU", format!("-drive 'file={address},format=raw,if=virtio'")),
        line("try it", format!("nbdinfo '{address}'")),
    ])
}

fn iscsi(address: &str, rest: &str) -> Option<Vec<(String, String)>> {
    let mut parts = rest.split('/');
    let (at, target) = (parts.next()?, parts.next()?);
    let (host, port) = host_and_port(at)?;
    let linux =
        format!("iscsiadm -m discovery -t sendtargets -p {at}\niscsiadm -m node -T {target} -p {at} --login");
    let windows = format!(
        "New-IscsiTargetPortal -TargetPortalAddress {host} -TargetPortalPortNumber {port}\n\
         Connect-IscsiTarget -NodeAddress {target} -IsPersistent $true"
    );
    Some(vec![
        line("Linux", linux),
        line("Windows (PowerShell)", windows),
        line("QEMU", format!("-drive file={address},format=raw,if=virtio")),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(address: &str) -> String {
        let way = ways(address).unwrap_or_else(|| panic!("{address}"));
        way.lines.into_iter().map(|(who, command)| format!("{who}: {command}\n")).collect()
    }

    #[test]
    fn each_front_end_has_its_commands() {
        assert!(
            commands("nbd://[2001:db8::1]:10809/web")
                .contains("nbd-client -N web 2001:db8::1 10809 /dev/nbd0")
        );
        assert!(commands("nbds://node:10809/web").contains("nbds://node:10809/web?tls-certificates="));
        let unix = commands("nbd+unix:///web?socket=/run/henge/nbd.sock");
        assert!(unix.contains("nbd-client -unix /run/henge/nbd.sock -N web /dev/nbd0"), "{unix}");
        let iscsi = commands("iscsi://192.0.2.1:3260/iqn.2026-11.local.henge:web/0");
        assert!(
            iscsi.contains("iscsiadm -m node -T iqn.2026-11.local.henge:web -p 192.0.2.1:3260 --login"),
            "{iscsi}"
        );
        assert!(iscsi.contains("Connect-IscsiTarget -NodeAddress iqn.2026-11.local.henge:web"), "{iscsi}");
        let nvme = "nvme connect -t tcp -a 192.0.2.1 -s 4420 -n nqn.2026-11.local.henge:web";
        assert_eq!(commands(nvme), format!("Linux: {nvme}\n"));
    }

    #[test]
    fn other_texts_are_no_addresses() {
        for text in ["", "web", "http://x/y", "nbd://", "nbd://host/web", "iscsi://host:1", "nbd+unix:///web"]
        {
            assert_eq!(ways(text), None, "{text}");
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let secret = Secret { what: "CHAP".into(), text: "correct horse".into() };
        assert!(!format!("{secret:?}").contains("horse"));
    }
}
