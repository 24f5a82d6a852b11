//! Who somebody is in a cluster: a role and a name, as a URI in a certificate (SPIFFE: `spiffe://CLUSTER/ROLE/NAME`).

use std::fmt;
use std::str::FromStr;

/// What somebody is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// Decides over disks.
    Manager,
    /// Serves disks.
    Node,
    /// Stands before servers of a parallel file system.
    Proxy,
    /// Uses disks.
    Client,
}

impl Role {
    const ALL: [Role; 4] = [Role::Manager, Role::Node, Role::Proxy, Role::Client];

    /// As it stands in the URI.
    pub fn word(self) -> &'static str {
        match self {
            Role::Manager => "manager",
            Role::Node => "node",
            Role::Proxy => "proxy",
            Role::Client => "client",
        }
    }
}

impl FromStr for Role {
    type Err = String;
    fn from_str(text: &str) -> Result<Role, String> {
        let found = Role::ALL.into_iter().find(|role| role.word() == text);
        found.ok_or_else(|| {
            format!("\"{text}\" is no role; \"node\", \"proxy\", \"client\" and \"manager\" are")
        })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Somebody in a cluster.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Identity {
    /// Of which cluster.
    pub cluster: String,
    /// What.
    pub role: Role,
    /// Who.
    pub name: String,
}

/// Letters, digits, '.', '_' and '-': up to 64 of them.
fn is_part(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=64).contains(&text.len()) && text.bytes().all(fits) && text != "." && text != ".."
}

impl Identity {
    /// What a URI says; nothing where it is another kind of URI.
    pub fn parse(uri: &str) -> Option<Identity> {
        let mut parts = uri.strip_prefix("spiffe://")?.split('/');
        let (cluster, role, name) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || !is_part(cluster) || !is_part(name) {
            return None;
        }
        Some(Identity { cluster: cluster.into(), role: role.parse().ok()?, name: name.into() })
    }

    /// Who the names of a certificate say it is. A certificate that names two is nobody's.
    pub fn of(names: &[String]) -> Option<Identity> {
        let mut found = names.iter().filter_map(|name| Identity::parse(name));
        let one = found.next()?;
        found.next().is_none().then_some(one)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spiffe://{}/{}/{}", self.cluster, self.role, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_says_who_somebody_is_or_nothing() {
        let node = Identity { cluster: "demo".into(), role: Role::Node, name: "n1".into() };
        assert_eq!(Identity::parse("spiffe://demo/node/n1"), Some(node.clone()));
        assert_eq!(node.to_string(), "spiffe://demo/node/n1");
        for other in [
            "https://demo/node/n1",
            "spiffe://demo/node",
            "spiffe://demo/node/",
            "spiffe:///node/n1",
            "spiffe://demo/king/n1",
            "spiffe://demo/node/n1/n2",
            "spiffe://demo/node/..",
            "spiffe://demo/Node/n1",
            "spiffe://demo/node/n 1",
        ] {
            assert_eq!(Identity::parse(other), None, "{other}");
        }
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(Identity::of(&names(&["CN=x", "spiffe://demo/node/n1"])), Some(node));
        assert_eq!(Identity::of(&names(&["spiffe://demo/node/n1", "spiffe://demo/manager/m"])), None);
    }
}
