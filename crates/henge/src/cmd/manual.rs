//! `henge man` and `henge completions`: manual pages and shell completions, from the command's own definitions.

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `henge man`.
#[derive(clap::Args)]
pub struct ManArgs {
    /// Write a page for henge and one for each of its commands into this folder, instead of henge's alone to the terminal
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Arguments of `henge completions`.
#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// For which shell: source <(henge completions bash)
    shell: clap_complete::Shell,
}

/// Writes manual pages.
pub fn man<C: CommandFactory>(args: ManArgs) -> Result<ExitCode> {
    let command = C::command();
    match args.dir {
        Some(dir) => pages(&dir, command)?,
        None => clap_mangen::Man::new(command).render(&mut std::io::stdout())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a shell's completions to the terminal.
pub fn completions<C: CommandFactory>(args: CompletionsArgs) -> ExitCode {
    let mut command = C::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(args.shell, &mut command, name, &mut std::io::stdout());
    ExitCode::SUCCESS
}

/// Writes a command's page and those of the commands below it; `henge help` has none.
fn pages(dir: &Path, command: Command) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    page(dir, &command)
}

fn page(dir: &Path, command: &Command) -> Result<()> {
    let man = clap_mangen::Man::new(command.clone());
    let path = dir.join(man.get_filename());
    let mut text = Vec::new();
    man.render(&mut text)?;
    let text = as_written(&String::from_utf8(text)?);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    command.get_subcommands().filter(|below| !below.is_hide_set()).try_for_each(|below| page(dir, below))
}

/// Examples are indented; their lines stay as they are written.
fn as_written(page: &str) -> String {
    let (mut text, mut inside) = (String::new(), false);
    for line in page.lines() {
        let is_example = line.starts_with("    ") || (inside && line.is_empty());
        if is_example != inside {
            text.push_str(if is_example { ".nf\n" } else { ".fi\n" });
            inside = is_example;
        }
        text.push_str(line);
        text.push('\n');
    }
    text + if inside { ".fi\n" } else { "" }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    #[command(name = "tool", about = "Cuts")]
    enum Tool {
        /// Deeply
        Saw,
        /// Thinly
        Plane,
    }

    #[test]
    fn each_command_has_a_page_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        super::pages(dir.path(), Tool::command()).unwrap();
        for (page, says) in [("tool.1", "Cuts"), ("tool-saw.1", "Deeply"), ("tool-plane.1", "Thinly")] {
            let text = std::fs::read_to_string(dir.path().join(page)).unwrap();
            assert!(text.contains(says), "{page}: {text}");
        }
    }

    #[test]
    fn lines_of_examples_are_not_joined() {
        let page = ".SH EXTRA\nSay:\n    a = 1\n\n    b = 2\nand more\n    c\n";
        let said = ".SH EXTRA\nSay:\n.nf\n    a = 1\n\n    b = 2\n.fi\nand more\n.nf\n    c\n.fi\n";
        assert_eq!(super::as_written(page), said);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let error = super::pages("/dev/null/man".as_ref(), Tool::command()).unwrap_err();
        assert!(format!("{error:#}").contains("/dev/null/man"), "{error:#}");
    }
}
