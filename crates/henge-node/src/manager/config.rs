//! `[manager]` and a pool's `profile` in the node's configuration.
//!
//! ```toml
//! [manager]
//! address = "10.0.0.1:7101"            # or several: ["10.0.0.1:7101", "10.0.0.2:7101"]
//! name = "node1"                       # what the manager calls this node
//! secret_file = "/etc/henge/secret"    # what all nodes of the cluster and its managers know; nothing, beside an `identity` at the top
//!
//! [[pool]]
//! copies = 2                           # a RAID-1 keeps two; 1 where nothing is said
//! profile = { iops = "500/s", service = "14ms" }   # measured at saturation: `henge profile`
//! ```

use henge_api::is_name;
use henge_api::manager::Profile;
use henge_config::{secret, texts};
use henge_core::{CostUnit, ParamError, Params};
use henge_tls::TlsConfig;

/// `[manager]`
#[derive(Clone, PartialEq, Eq)]
pub struct ManagerConfig {
    /// Where it is, or they are.
    pub addresses: Vec<String>,
    /// This node's name.
    pub name: String,
    /// How each end knows the other.
    pub proof: Proof,
    /// Where clients reach this node, where that is not what it listens on.
    pub advertise: Option<String>,
}

/// How a node and its manager know each other.
#[derive(Clone, PartialEq, Eq)]
pub enum Proof {
    /// Both know the cluster's secret.
    Secret(String),
    /// Each shows its certificate, by TLS.
    Identity(TlsConfig),
}

impl Proof {
    /// The files of TLS, where that is how.
    pub fn files(&self) -> Option<&TlsConfig> {
        match self {
            Proof::Secret(_) => None,
            Proof::Identity(files) => Some(files),
        }
    }
}

impl std::fmt::Debug for ManagerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.name, self.addresses.join(", "))
    }
}

impl ManagerConfig {
    /// Reads the table.
    pub fn from_params(mut p: Params, tls: Option<&TlsConfig>) -> Result<Self, ParamError> {
        let addresses = texts(&mut p, "address")?;
        let addresses = addresses.ok_or_else(|| {
            p.error_here("the manager needs an address, like address = \"10.0.0.1:7101\"".into())
        })?;
        let name = p.text("name")?;
        let name = p.required("name", name)?;
        if !is_name(&name) {
            return Err(p.error(
                "name",
                format!("\"{name}\" is no name; up to 64 letters, digits, '.', '_' and '-' are"),
            ));
        }
        let stated = p.keys().iter().any(|key| key == "secret" || key == "secret_file");
        let identity = tls.filter(|tls| tls.identity.is_some() && !stated);
        let proof = match identity {
            Some(identity) => Proof::Identity(identity.clone()),
            None => Proof::Secret(secret(&mut p)?),
        };
        let advertise = p.text("advertise")?;
        p.finish()?;
        Ok(ManagerConfig { addresses, name, proof, advertise })
    }
}

/// Reads `profile = { iops = "500/s", service = "14ms" }`.
pub fn profile(p: &mut Params) -> Result<Option<Profile>, ParamError> {
    let Some(mut table) = p.table("profile")? else { return Ok(None) };
    let iops = table.rate("iops")?;
    let iops = table.required("iops", iops)?;
    if iops.unit != CostUnit::Requests || iops.per_second == 0 {
        return Err(table.error("iops", "iops counts requests; write it like \"500/s\"".into()));
    }
    let iops = iops.per_second as f64 / 1e6;
    let service = table.duration("service")?.map_or(1.0 / iops, henge_core::Duration::as_secs_f64);
    table.finish()?;
    Ok(Some(Profile { iops, service }))
}
