//! What daemons log, and how: events of the disks and troubles of their own, on stderr.

use std::io::IsTerminal;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::{fmt, prelude::*, registry};

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
    text.parse::<Targets>().map(|_| text.to_owned()).map_err(|e| e.to_string())
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
        let filter: Targets = self.log_filter.parse().expect("it was read when it was written");
        let lines = fmt::layer()
            .with_writer(std::io::stderr)
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal());
        let started = match self.log {
            Style::Text => registry().with(lines).with(filter).try_init(),
            Style::Json => {
                let lines = lines.json().flatten_event(true).with_current_span(false).with_span_list(false);
                registry().with(lines).with(filter).try_init()
            }
        };
        debug_assert!(started.is_ok(), "a process starts its log once");
    }
}
