//! What daemons log, and how: events of the disks and troubles of their own, on stderr.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Arguments of every daemon.
#[derive(clap::Args)]
pub struct LogArgs {
    /// How the log on stderr is written
    #[arg(long, value_enum, default_value_t = Style::Text, value_name = "STYLE")]
    log: Style,
    /// What is logged: error, warn, info, debug, or by part like warn,henge_node=info
    #[arg(long, env = "HENGE_LOG", default_value = "info", value_name = "FILTER", value_parser = filter)]
    log_filter: String,
}

/// Checked where it is written; small until it is used.
fn filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|e| e.to_string())
}

/// How a line of the log looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Style {
    /// For people
    Text,
    /// One object a line, for collectors
    Json,
}

impl LogArgs {
    /// Logs from now on.
    pub fn start(self) {
        let log = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(self.log_filter))
            .with_writer(std::io::stderr)
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal());
        let started = match self.log {
            Style::Text => log.try_init(),
            Style::Json => {
                log.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init()
            }
        };
        debug_assert!(started.is_ok(), "a process starts its log once");
    }
}
