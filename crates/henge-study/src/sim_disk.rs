//! `henge sim --disk`: a list of requests against one disk, to hold the model against a measurement.

use anyhow::{Context, Result, anyhow, bail};
use comfy_table::Table;
use henge_core::Duration;
use henge_device::replay::{Mode, Replay, Row, demerit, mean, parse};
use henge_device::{DiskFacts, Hdd, HddOptions, built_in, model_names};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What `henge sim` takes for a single disk.
#[derive(clap::Args, Debug)]
pub struct DiskArgs {
    /// Run a list of requests against this disk: a facts file, or a built-in model
    #[arg(long, value_name = "FACTS.json", requires = "requests_in")]
    pub disk: Option<String>,
    /// The list: CSV (or .csv.gz) with columns rw, lbn, sectors, and issue_ms or think_before_ms
    #[arg(long, value_name = "F.csv", requires = "disk")]
    pub requests_in: Option<PathBuf>,
    /// When requests are issued: closed (at the answer before, plus think time), drain (when the drive is
    /// quiet), open (at issue_ms)
    #[arg(long, value_name = "MODE", default_value = "closed", requires = "disk")]
    pub mode: Mode,
    /// The drive's buffer, read-ahead and early acknowledgement: on, off, or as in the file
    #[arg(long, value_name = "on|off", requires = "disk")]
    pub cache: Option<OnOff>,
}

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum OnOff {
    /// There is one.
    On,
    /// There is none.
    Off,
}

/// Runs the list; `requests` is where the answers go, one line each, in the columns of the list.
pub fn run(args: &DiskArgs, requests: Option<&Path>, json: bool) -> Result<ExitCode> {
    let (Some(disk), Some(list)) = (&args.disk, &args.requests_in) else {
        bail!("--disk and --requests-in go together");
    };
    let facts = model(disk)?;
    let rows = read_list(list, facts.geometry.capacity())?;
    let options = HddOptions { cache: args.cache.map(|c| c == OnOff::On), ..HddOptions::default() };
    let mut drive = Hdd::new(facts.clone(), options);
    let mut answers: Vec<_> = Replay::new(&mut drive, &rows, args.mode).collect();
    answers.sort_unstable_by_key(|a| a.index);
    if let Some(path) = requests {
        let mut out = String::from("idx,rw,lbn,sectors,issue_ms,complete_ms,service_ms\n");
        for (row, a) in rows.iter().zip(&answers) {
            let rw = if row.write { 'W' } else { 'R' };
            let ms = |ns: u64| ns as f64 / 1e6;
            let (issue, complete) = (ms(a.issue.as_nanos()), ms(a.complete.as_nanos()));
            out.push_str(&format!(
                "{},{rw},{},{},{issue:.6},{complete:.6},{:.6}\n",
                a.index,
                row.lbn,
                row.sectors,
                a.service().as_millis_f64()
            ));
        }
        write_file(path, out.as_bytes())?;
    }
    let service: Vec<Duration> = answers.iter().map(|a| a.service()).collect();
    let end = answers.iter().map(|a| a.complete).max().unwrap_or_default();
    print(&Summary::new(&facts.model, &rows, &service, end.as_secs_f64()), json);
    Ok(ExitCode::SUCCESS)
}

/// The hard disk of a built-in model, by its name, or of a facts file.
pub fn model(name: &str) -> Result<DiskFacts> {
    DiskFacts::parse(&model_text(name)?).map_err(|e| anyhow!("{name}: {e}"))
}

/// The text of a built-in model or of a file.
pub fn model_text(name: &str) -> Result<String> {
    if let Some(text) = built_in(name) {
        return Ok(text.to_owned());
    }
    std::fs::read_to_string(name).with_context(|| {
        let known = model_names().collect::<Vec<_>>().join(", ");
        format!("{name} is neither a facts file nor a built-in model ({known})")
    })
}

fn read_list(path: &Path, capacity: u64) -> Result<Vec<Row>> {
    let mut bytes = Vec::new();
    let mut file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    file.read_to_end(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
    let text = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut text = String::new();
        let unpacked = flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text);
        unpacked.with_context(|| format!("{} is not a sound gzip file of text", path.display()))?;
        text
    } else {
        String::from_utf8(bytes).with_context(|| format!("{} is not text", path.display()))?
    };
    let rows = parse(&text, capacity).map_err(|e| anyhow!("{}: {e}", path.display()))?;
    if rows.is_empty() {
        bail!("{}: the list has no requests", path.display());
    }
    Ok(rows)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let mut file = std::fs::File::create(path).with_context(failed)?;
    if path.extension().is_some_and(|e| e == "gz") {
        let mut packer = flate2::write::GzEncoder::new(file, flate2::Compression::default());
        packer.write_all(bytes).with_context(failed)?;
        packer.finish().map(|_| ()).with_context(failed)
    } else {
        file.write_all(bytes).with_context(failed)
    }
}

/// What a run came to, and how that compares with what the list says.
#[derive(serde::Serialize)]
struct Summary {
    model: String,
    requests: usize,
    mean_ms: f64,
    std_ms: f64,
    median_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    iops: f64,
    mb_per_s: f64,
    /// Against the list's own service times.
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<Comparison>,
    /// Against a real drive's.
    #[serde(skip_serializing_if = "Option::is_none")]
    real_drive: Option<Comparison>,
}

#[derive(serde::Serialize)]
struct Comparison {
    mean_ms: f64,
    mean_off_percent: f64,
    demerit_ms: f64,
    demerit_percent: f64,
    /// The list's own demerit, where it has both.
    #[serde(skip_serializing_if = "Option::is_none")]
    reference_demerit_percent: Option<f64>,
}

impl Summary {
    fn new(model: &str, rows: &[Row], service: &[Duration], elapsed_s: f64) -> Self {
        let mut sorted = service.to_vec();
        sorted.sort_unstable();
        let at = |q: f64| {
            sorted[((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1].as_millis_f64()
        };
        let mean_s = mean(service);
        let variance: f64 =
            service.iter().map(|d| (d.as_secs_f64() - mean_s).powi(2)).sum::<f64>() / service.len() as f64;
        let bytes: u64 = rows.iter().map(|r| r.sectors * 512).sum();
        let reference: Option<Vec<_>> = rows.iter().map(|r| r.reference).collect();
        let real: Option<Vec<_>> = rows.iter().map(|r| r.real).collect();
        let real_drive = real.as_ref().map(|real| Comparison::new(service, real, reference.as_deref()));
        Summary {
            model: model.to_owned(),
            requests: rows.len(),
            mean_ms: mean_s * 1e3,
            std_ms: variance.sqrt() * 1e3,
            median_ms: at(0.5),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            max_ms: at(1.0),
            iops: rows.len() as f64 / elapsed_s,
            mb_per_s: bytes as f64 / 1e6 / elapsed_s,
            reference: reference.as_ref().map(|r| Comparison::new(service, r, None)),
            real_drive,
        }
    }
}

impl Comparison {
    fn new(ours: &[Duration], theirs: &[Duration], reference: Option<&[Duration]>) -> Self {
        let their_mean = mean(theirs);
        let share = |list: &[Duration]| demerit(list, theirs).map(|d| d / their_mean * 100.0);
        let demerit_percent = share(ours).unwrap_or(f64::NAN);
        Comparison {
            mean_ms: their_mean * 1e3,
            mean_off_percent: (mean(ours) / their_mean - 1.0) * 100.0,
            demerit_ms: demerit_percent / 100.0 * their_mean * 1e3,
            demerit_percent,
            reference_demerit_percent: reference.and_then(share),
        }
    }
}

fn print(s: &Summary, json: bool) {
    if json {
        println!("{:#}", serde_json::json!(s));
        return;
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_header(["", "requests", "mean ms", "std", "median", "p95", "p99", "max", "per s", "MB/s"]);
    let number = |x: f64| format!("{x:.3}");
    table.add_row([
        s.model.clone(),
        s.requests.to_string(),
        number(s.mean_ms),
        number(s.std_ms),
        number(s.median_ms),
        number(s.p95_ms),
        number(s.p99_ms),
        number(s.max_ms),
        format!("{:.1}", s.iops),
        format!("{:.2}", s.mb_per_s),
    ]);
    println!("{table}");
    for (what, c) in [("the list", &s.reference), ("the real drive", &s.real_drive)] {
        let Some(c) = c else { continue };
        let theirs =
            c.reference_demerit_percent.map_or(String::new(), |d| format!(" (the list's own: {d:.2} %)"));
        println!(
            "against {what}: mean {:.3} ms, {:+.2} % off; demerit {:.4} ms = {:.2} %{theirs}",
            c.mean_ms, c.mean_off_percent, c.demerit_ms, c.demerit_percent
        );
    }
}
