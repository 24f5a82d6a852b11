//! `henge trace convert` and `henge trace cut`: a trace, or a part of it, in another format.

use super::sort::sorted;
use super::{Reading, duration, format, notes};
use anyhow::{Context, Result, bail};
use henge_core::{Duration, Instant, parse_duration};
use henge_workload::{Dedup, Format, Record, TraceError, TraceWriter, WRITABLE};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What both commands need.
#[derive(clap::Args)]
struct Common {
    /// The trace; "-" is the standard input
    input: PathBuf,
    /// Where to write; a name that ends in .gz or .zst is packed so, "-" is the standard output
    output: PathBuf,
    /// The format to write: henge (if unsaid), spc, disksim, ssdsim, alibaba, iolog
    #[arg(long, value_name = "FORMAT", value_parser = format, default_value = "henge")]
    to: Format,
    /// Let the first request come at time 0
    #[arg(long)]
    rebase: bool,
    #[command(flatten)]
    reading: Reading,
}

#[derive(clap::Args)]
pub struct ConvertArgs {
    #[command(flatten)]
    common: Common,
    /// Sort by time; a trace of more than a million requests needs room in the temporary directory (TMPDIR)
    #[arg(long)]
    sort: bool,
    /// Leave out a request that repeats its device's previous one within this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    dedup: Option<Duration>,
}

#[derive(clap::Args)]
pub struct CutArgs {
    #[command(flatten)]
    common: Common,
    /// From this time after the first request on
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<Duration>,
    /// Up to this time after the first request, exclusive
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Duration>,
    /// Leave out so many requests first
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// At most so many requests
    #[arg(long, value_name = "N")]
    first: Option<u64>,
    /// Only this device
    #[arg(long)]
    device: Option<u32>,
}

fn time(text: &str) -> Result<Duration> {
    Ok(parse_duration(text)?)
}

pub fn convert(args: &ConvertArgs) -> Result<ExitCode> {
    let common = &args.common;
    let mut trace = common.reading.open(&common.input)?;
    let mut dedup = args.dedup.map(Dedup::new);
    let mut keep = |r: &Result<Record, TraceError>| match (r, &mut dedup) {
        (Ok(record), Some(dedup)) => !dedup.repeats(record),
        _ => true,
    };
    if args.sort {
        write(common, sorted(&mut trace)?.filter(keep))?;
    } else {
        write(common, trace.by_ref().filter(&mut keep))?;
    }
    notes(&trace, &common.input);
    Ok(ExitCode::SUCCESS)
}

pub fn cut(args: &CutArgs) -> Result<ExitCode> {
    let common = &args.common;
    let mut trace = common.reading.open(&common.input)?;
    let (mut origin, mut skip, mut left) = (None, args.skip, args.first.unwrap_or(u64::MAX));
    let chosen = trace.by_ref().filter(|r| {
        // An error is never cut away.
        let Ok(r) = r else { return true };
        let origin = *origin.get_or_insert(r.at);
        let within = args.from.is_none_or(|from| r.at >= origin + from)
            && args.until.is_none_or(|until| r.at < origin + until)
            && args.device.is_none_or(|device| r.device == device);
        if !within || left == 0 {
            return false;
        }
        if skip > 0 {
            skip -= 1;
            return false;
        }
        left -= 1;
        true
    });
    write(common, chosen)?;
    notes(&trace, &common.input);
    Ok(ExitCode::SUCCESS)
}

fn write(common: &Common, records: impl Iterator<Item = Result<Record, TraceError>>) -> Result<()> {
    let path = &common.output;
    if common.input == *path && path != Path::new("-") {
        bail!("{} would be overwritten while it is read", path.display());
    }
    let name = || path.display().to_string();
    let Some(mut writer) = TraceWriter::new(common.to, packed(path)?).with_context(name)? else {
        let names: Vec<_> = WRITABLE.iter().map(|f| f.name()).collect();
        bail!("{} cannot be written; {} can", common.to.name(), names.join(", "));
    };
    let (mut first, mut n) = (None, 0u64);
    for record in records {
        let mut record = record?;
        if common.rebase {
            let first = *first.get_or_insert(record.at);
            record.at = Instant::ZERO + record.at.since(first);
        }
        writer.write(&record).with_context(name)?;
        n += 1;
    }
    let left_out = writer.left_out();
    let mut out = writer.finish().with_context(name)?;
    out.close().with_context(name)?;
    if left_out > 0 {
        let format = common.to.name();
        eprintln!(
            "henge: {left_out} requests left out: {format} has no words for flush, trim or parts of a block"
        );
    }
    eprintln!("henge: {}: {} requests as {}", path.display(), n - left_out, common.to.name());
    Ok(())
}

/// A file, packed as its name says.
enum Packed {
    Plain(BufWriter<Box<dyn Write>>),
    Gzip(Option<flate2::write::GzEncoder<BufWriter<Box<dyn Write>>>>),
    Zstd(Option<zstd::Encoder<'static, BufWriter<Box<dyn Write>>>>),
}

fn packed(path: &Path) -> Result<Packed> {
    let raw: Box<dyn Write> = if path == Path::new("-") {
        Box::new(std::io::stdout())
    } else {
        Box::new(File::create(path).with_context(|| path.display().to_string())?)
    };
    let raw = BufWriter::with_capacity(1 << 18, raw);
    Ok(match path.extension().and_then(|e| e.to_str()) {
        Some("gz") => Packed::Gzip(Some(flate2::write::GzEncoder::new(raw, flate2::Compression::default()))),
        Some("zst") => Packed::Zstd(Some(zstd::Encoder::new(raw, 3)?)),
        _ => Packed::Plain(raw),
    })
}

impl Packed {
    /// Writes what is left, with the packing's own end.
    fn close(&mut self) -> std::io::Result<()> {
        match self {
            Packed::Plain(out) => out.flush(),
            Packed::Gzip(out) => out.take().map_or(Ok(()), |out| out.finish()?.flush()),
            Packed::Zstd(out) => out.take().map_or(Ok(()), |out| out.finish()?.flush()),
        }
    }
    fn inner(&mut self) -> &mut dyn Write {
        const OPEN: &str = "nothing is written after close";
        match self {
            Packed::Plain(out) => out,
            Packed::Gzip(out) => out.as_mut().expect(OPEN),
            Packed::Zstd(out) => out.as_mut().expect(OPEN),
        }
    }
}

impl Write for Packed {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.inner().write(buf)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.inner().flush()
    }
}
