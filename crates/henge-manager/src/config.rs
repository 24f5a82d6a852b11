//! The manager's configuration file.
//!
//! ```toml
//! listen = "127.0.0.1:7100"            # the API and the web page
//! nodes = "0.0.0.0:7101"               # where nodes dial
//! state_dir = "/var/lib/henge-manager"
//! secret_file = "/etc/henge/secret"    # what all nodes of the cluster know
//! ```
//!
//! | key | means | default |
//! |---|---|---|
//! | `admission` | `"measured"`: by what was seen, where that is more; `"worst-case"`: by arithmetic alone | `"measured"` |
//! | `page` | an address for the web page and Prometheus' metrics, like `"127.0.0.1:7180"` | none |
//! | `period` | between two distributions of a node | `"60s"` |
//! | `window` | what a measurement covers | `"24h"` |
//! | `settle` | after an admission, until a pool's measurements are believed again | `"1h"` |
//! | `events` | how many are kept | 10000 |
//! | `secret` | the secret itself, in place of its file | |

use crate::machine::Settings;
use henge_admission::Rules;
use henge_config::{ConfigError, Source};
use henge_core::{ParamError, Params};
use std::path::{Path, PathBuf};

/// All of it.
#[derive(Clone)]
pub struct ManagerConfig {
    /// The API.
    pub listen: String,
    /// Where nodes dial.
    pub nodes: String,
    /// The web page and Prometheus' metrics.
    pub page: Option<std::net::SocketAddr>,
    /// What is remembered.
    pub state_dir: PathBuf,
    /// What nodes know.
    pub secret: String,
    /// Knobs of the machine.
    pub settings: Settings,
}

/// The file cannot be read, or does not say what it should.
#[derive(Debug, thiserror::Error)]
pub enum ManagerConfigError {
    /// It cannot be read.
    #[error("{0}")]
    Io(String),
    /// It is wrong somewhere.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl ManagerConfig {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ManagerConfigError> {
        let source =
            Source::read(path).map_err(|e| ManagerConfigError::Io(format!("{}: {e}", path.display())))?;
        Ok(Self::parse(source)?)
    }

    /// Reads a text.
    pub fn parse(source: Source) -> Result<Self, ConfigError> {
        let params = source.parse("the manager")?;
        Self::from_params(params).map_err(|e| source.point(e))
    }

    fn from_params(mut p: Params) -> Result<Self, ParamError> {
        let listen = p.text("listen")?.unwrap_or_else(|| "127.0.0.1:7100".into());
        let nodes = p.text("nodes")?.unwrap_or_else(|| "127.0.0.1:7101".into());
        let page = match p.text("page")? {
            None => None,
            Some(text) => {
                let wrong = |_| {
                    p.error("page", format!("page is an address like \"127.0.0.1:7180\", not \"{text}\""))
                };
                Some(text.parse().map_err(wrong)?)
            }
        };
        let state_dir = p.text("state_dir")?.unwrap_or_else(|| "/var/lib/henge-manager".into()).into();
        let secret = henge_node::manager::secret(&mut p)?;
        let defaults = Settings::default();
        let rules = match p.text("admission")?.as_deref() {
            None | Some("measured") => Some(Rules::OURS),
            Some("worst-case") => None,
            Some(other) => {
                let message = format!("admission is \"measured\" or \"worst-case\", not \"{other}\"");
                return Err(p.error("admission", message));
            }
        };
        let mut span = |key: &str, default: u64| -> Result<u64, ParamError> {
            match p.duration(key)? {
                None => Ok(default),
                Some(d) if d.as_nanos() < 1_000_000_000 => Err(p.error(key, format!("{key} is at least 1s"))),
                Some(d) => Ok(d.as_nanos() / 1_000_000),
            }
        };
        let period_ms = span("period", defaults.period_ms)?;
        let window_ms = span("window", defaults.window_ms)?;
        let settle_ms = span("settle", defaults.settle_ms.min(window_ms))?;
        if window_ms < period_ms {
            return Err(p.error("window", "a window is at least one period".into()));
        }
        let events_max = p.integer("events", 1, 1_000_000)?.unwrap_or(defaults.events_max as u64) as usize;
        p.finish()?;
        let settings = Settings { rules, period_ms, window_ms, settle_ms, events_max };
        Ok(ManagerConfig { listen, nodes, page, state_dir, secret, settings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ManagerConfig, String> {
        ManagerConfig::parse(Source::new("manager.toml", text)).map_err(|e| e.to_string())
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let config = parse("secret = \"0123456789abcdef\"\nperiod = \"5s\"").unwrap();
        assert_eq!((config.settings.period_ms, config.listen.as_str()), (5_000, "127.0.0.1:7100"));
        for (text, says) in [
            ("listen = \"x\"", "secret"),
            ("secret = \"short\"", "16 characters"),
            ("secret = \"0123456789abcdef\"\nadmission = \"lax\"", "worst-case"),
            ("secret = \"0123456789abcdef\"\nperiod = \"5\"", "5"),
            ("secret = \"0123456789abcdef\"\nwindow = \"2s\"", "period"),
            ("secret = \"0123456789abcdef\"\nperoid = \"5s\"", "did you mean"),
        ] {
            let Err(error) = parse(text) else { panic!("{text} is accepted") };
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
