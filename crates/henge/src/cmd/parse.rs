//! `henge parse`: is a command line, or a file, understood? Nothing is done. The documentation's checks ask it (`tools/test-docs`).

use anyhow::{Result, bail};
use clap::error::ErrorKind;
use henge_manager::ManagerConfig;
use henge_node::NodeConfig;
use henge_study::study::Study;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `henge parse`.
#[derive(clap::Args)]
pub struct Args {
    /// Read this file instead of a command line
    #[arg(long, value_name = "FILE", requires = "kind")]
    file: Option<PathBuf>,
    /// What the file is
    #[arg(long, value_name = "KIND", requires = "file")]
    kind: Option<Kind>,
    /// The command line may lack arguments, as in prose
    #[arg(long)]
    part: bool,
    /// The command line, without its first word
    #[arg(value_name = "WORD", allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<OsString>,
}

/// A configuration, or what a command reads.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    Node,
    Manager,
    Proxy,
    Scenario,
    Admit,
}

/// Asks `understood`, or the reader of a file.
pub fn run(args: Args, understood: impl FnOnce(Vec<OsString>) -> Result<()>) -> Result<ExitCode> {
    if let (Some(file), Some(kind)) = (&args.file, args.kind) {
        read(kind, file)?;
        return Ok(ExitCode::SUCCESS);
    }
    let words = std::iter::once("henge".into()).chain(args.words).collect();
    let Err(why) = understood(words) else { return Ok(ExitCode::SUCCESS) };
    match why.downcast_ref::<clap::Error>().map(clap::Error::kind) {
        Some(ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => Ok(ExitCode::SUCCESS),
        Some(kind) if args.part && lacks(kind) => Ok(ExitCode::SUCCESS),
        // An error of clap's says who it is from.
        Some(_) => bail!("{}", why.to_string().trim_start_matches("error: ").trim_end()),
        None => Err(why),
    }
}

/// Only something is missing.
fn lacks(kind: ErrorKind) -> bool {
    use ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, MissingRequiredArgument, MissingSubcommand};
    matches!(kind, MissingRequiredArgument | MissingSubcommand | DisplayHelpOnMissingArgumentOrSubcommand)
}

fn read(kind: Kind, file: &Path) -> Result<()> {
    match kind {
        Kind::Node => drop(NodeConfig::read(file)?),
        Kind::Manager => drop(ManagerConfig::read(file)?),
        Kind::Proxy => drop(henge_proxy::Config::read(file)?),
        Kind::Scenario => drop(Study::read(file)?.world(None)?),
        Kind::Admit => super::admit::understood(file)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Parser, Subcommand};

    #[derive(Parser)]
    #[command(name = "henge")]
    struct Tool {
        #[command(subcommand)]
        command: Cut,
    }

    #[derive(Subcommand)]
    enum Cut {
        Saw {
            #[arg(long)]
            wood: String,
        },
    }

    fn parse(part: bool, words: &[&str]) -> Result<ExitCode> {
        let args = Args { file: None, kind: None, part, words: words.iter().map(Into::into).collect() };
        run(args, |words| Ok(Tool::try_parse_from(words).map(drop)?))
    }

    #[test]
    fn what_is_missing_is_forgiven_in_prose_and_what_does_not_exist_never_is() {
        assert!(parse(false, &["saw", "--wood", "oak"]).is_ok());
        assert!(parse(false, &["saw"]).unwrap_err().to_string().contains("--wood"));
        assert!(parse(true, &["saw"]).is_ok() && parse(true, &[]).is_ok());
        for wrong in [&["plane"][..], &["saw", "--wod", "oak"]] {
            assert!(parse(true, wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(false, &["saw", "--help"]).is_ok());
    }

    #[test]
    fn a_file_with_an_unknown_key_is_refused_by_its_reader() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("plan.toml");
        let admits = |text: &str| {
            std::fs::write(&file, text).unwrap();
            read(Kind::Admit, &file)
        };
        let node = "[[node]]\nname = \"a\"\niops = \"500/s\"\ncapacity = \"1TB\"\n";
        admits(node).unwrap();
        assert!(admits(&format!("{node}iopps = 5\n")).unwrap_err().to_string().contains("iopps"));
    }
}
