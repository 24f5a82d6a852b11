//! `henge pool`: make, look at and mend pools while no node serves them.

use anyhow::{Context, Result};
use comfy_table::Table;
use henge_backend::pools;
use henge_core::format_size;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `henge pool`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a pool of a block device, or of one big file; a directory becomes one when a node first serves it
    Format {
        /// The device
        device: PathBuf,
        /// As the configuration's `[[pool]]` is to call it
        #[arg(long)]
        name: String,
        /// Whatever it holds may be lost
        #[arg(long)]
        force: bool,
    },
    /// What a pool says of itself, and its parts; a node may be serving it
    Show {
        /// A device or a directory
        path: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Write wrong copies of a device's superblock and table again, from the right ones
    Repair {
        /// The device
        device: PathBuf,
    },
    /// Give a pool another name, as the configuration is to call it
    Rename {
        /// A device or a directory
        path: PathBuf,
        /// Its name from now on
        name: String,
    },
    /// Give a part that no disk has any more to the next disk of its name
    Adopt {
        /// A device or a directory
        path: PathBuf,
        /// The part's id, or its beginning: `henge pool show`
        part: String,
    },
    /// Delete a part that no disk has any more
    Discard {
        /// A device or a directory
        path: PathBuf,
        /// The part's id, or its beginning: `henge pool show`
        part: String,
    },
    /// Make a pool of a device that an older version served, whose table stood in STATE_DIR/POOL.extents; its disks stay
    Import {
        /// The device
        device: PathBuf,
        /// As the configuration's `[[pool]]` calls it
        #[arg(long)]
        name: String,
        /// That file
        #[arg(long, value_name = "FILE")]
        table: PathBuf,
    },
}

/// Does it.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Format { device, name, force } => {
            let id = pools::format(&device, &name, force)?;
            println!("{} is the pool \"{name}\" now ({id})", device.display());
        }
        Command::Show { path, json } => {
            let shown = pools::show(&path)?;
            if json { println!("{}", as_json(&shown)?) } else { print(&shown) }
        }
        Command::Repair { device } => {
            let done = pools::repair(&device)?;
            if done.is_empty() {
                println!("nothing is wrong with it");
            }
            done.iter().for_each(|line| println!("{line}"));
        }
        Command::Rename { path, name } => {
            pools::rename(&path, &name)?;
            println!("{} is the pool \"{name}\" now", path.display());
        }
        Command::Adopt { path, part } => {
            println!("{} is the next disk's of its name", pools::adopt(&path, &part)?);
        }
        Command::Discard { path, part } => println!("{} is gone", pools::discard(&path, &part)?),
        Command::Import { device, name, table } => {
            pools::import(&device, &name, &table)?.iter().for_each(|line| println!("{line}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(shown: &pools::Shown) {
    println!("pool     {} ({}), a {} of format {}", shown.name, shown.pool, shown.kind, shown.version);
    if let Some(capacity) = shown.capacity {
        let taken: u64 = shown.parts.iter().map(|p| p.len.next_multiple_of(1 << 20)).sum();
        println!(
            "room     {}, of which {} are free",
            format_size(capacity),
            format_size(capacity.saturating_sub(taken))
        );
    }
    shown.notes.iter().for_each(|note| println!("note     {note}"));
    if shown.parts.is_empty() {
        return println!("parts    none");
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_header(["part", "bytes", "from byte", "is", "id"]);
    for part in &shown.parts {
        let from = part.at.map_or_else(|| "-".into(), |at| at.to_string());
        let whose = if part.used { "a disk's" } else { "kept" };
        table.add_row([&part.name, &part.len.to_string(), &from, whose, &part.id]);
    }
    println!("{table}");
}

fn as_json(shown: &pools::Shown) -> Result<String> {
    let part = |p: &pools::Part| {
        let id = (!p.id.is_empty()).then_some(&p.id);
        serde_json::json!({ "name": p.name, "id": id, "bytes": p.len, "from": p.at, "kept": !p.used })
    };
    let parts: Vec<_> = shown.parts.iter().map(part).collect();
    let whole = serde_json::json!({
        "name": shown.name, "id": shown.pool, "kind": shown.kind, "format": shown.version,
        "room": shown.capacity, "notes": shown.notes, "parts": parts,
    });
    serde_json::to_string_pretty(&whole).context("a pool is plain data")
}
