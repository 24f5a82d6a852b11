//! `henge disk info`: what a disk model is, in numbers and as plots.

use super::disk_ssd;
use anyhow::{Context, Result, anyhow};
use comfy_table::Table;
use henge_core::Duration;
use henge_device::replay::{Mode, Replay, Row, mean};
use henge_device::{Arm, DiskFacts, Hdd, HddOptions, Motion, Position};
use henge_study::sim_disk::{model, model_text};
use kuva::prelude::{EcdfPlot, Layout, LegendPosition, LinePlot, Palette, Plot};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `henge disk`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Geometry, seek curve and service times of a model, as numbers and as plots
    Info {
        /// A built-in model (st34501n), or a facts file
        model: String,
        /// Where the plots go: seek, zones and service, each as SVG and PNG
        #[arg(short, long, value_name = "DIR")]
        output: Option<PathBuf>,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// The built-in models
    List,
}

/// Runs it.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.what {
        What::List => {
            for name in henge_device::model_names() {
                println!("{name:14} {}", henge_device::model_description(name).unwrap_or_default());
            }
        }
        What::Info { model: name, output, json } => {
            if let Some(dir) = &output {
                std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
            }
            let text = model_text(&name)?;
            if text.contains(henge_device::SSD_SCHEMA) {
                disk_ssd::info(&text, &name, output.as_deref(), json)?;
                return Ok(ExitCode::SUCCESS);
            }
            let facts = model(&name)?;
            let info = Info::new(&facts);
            if json {
                println!("{:#}", info.json());
            } else {
                info.print();
            }
            if let Some(dir) = output {
                plots(&info, &dir)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A stream of requests, and what each took.
struct Stream {
    name: &'static str,
    service: Vec<Duration>,
    per_second: f64,
}

struct Info<'a> {
    facts: &'a DiskFacts,
    arm: Arm,
    mean_seek_ms: f64,
    streams: Vec<Stream>,
    /// Known places and seeks: how many there are, how many the model meets.
    places: (usize, usize),
    seeks: (usize, usize),
}

/// Requests of each stream.
const SAMPLES: u64 = 10_000;

impl<'a> Info<'a> {
    fn new(facts: &'a DiskFacts) -> Self {
        let arm = Arm::new(facts);
        let streams = vec![
            stream(facts, "random 512 B reads", 1, false, Mode::Closed, true),
            stream(facts, "random 4 KiB reads", 8, false, Mode::Closed, true),
            stream(facts, "random 4 KiB writes", 8, true, Mode::Closed, true),
            stream(facts, "random 64 KiB reads", 128, false, Mode::Closed, true),
            stream(facts, "sequential 512 B reads", 1, false, Mode::Closed, false),
            stream(facts, "sequential 512 B reads, drained", 1, false, Mode::Drain, false),
            stream(facts, "sequential 64 KiB reads", 128, false, Mode::Closed, false),
        ];
        let mean_seek_ms = mean_seek(&arm);
        let vectors = &facts.vectors;
        let placed = vectors.lbn.iter().filter(|v| {
            let p = arm.geometry().locate(v.lbn);
            (p.cylinder, p.head, p.sector, p.per_track) == (v.cylinder, v.head, v.sector, v.per_track)
        });
        let timed = vectors.seek.iter().filter(|(d, t)| (seek_ms(&arm, *d) - t.as_millis_f64()).abs() < 1e-3);
        let places = (vectors.lbn.len(), placed.count());
        let seeks = (vectors.seek.len(), timed.count());
        Info { facts, arm, mean_seek_ms, streams, places, seeks }
    }

    fn json(&self) -> serde_json::Value {
        let streams = self.streams.iter().map(|s| {
            serde_json::json!({
                "what": s.name, "mean_ms": mean(&s.service) * 1e3, "per_second": s.per_second,
                "p95_ms": quantile(&s.service, 0.95), "p99_ms": quantile(&s.service, 0.99),
            })
        });
        let streams: Vec<_> = streams.collect();
        let g = &self.facts.geometry;
        serde_json::json!({
            "model": self.facts.model, "description": self.facts.description, "source": self.facts.source,
            "capacity_bytes": g.capacity() * u64::from(g.sector_bytes()),
            "cylinders": g.cylinders(), "surfaces": g.surfaces(), "zones": g.zones().len(),
            "rpm": self.facts.mechanics.rpm, "mean_seek_ms": self.mean_seek_ms, "streams": streams,
            "known_places": { "given": self.places.0, "met": self.places.1 },
            "known_seeks": { "given": self.seeks.0, "met": self.seeks.1 },
        })
    }

    fn print(&self) {
        let (f, g) = (self.facts, &self.facts.geometry);
        println!("{}: {}", f.model, f.description);
        println!("{}\n", f.source);
        let bytes = g.capacity() * u64::from(g.sector_bytes());
        println!(
            "capacity     {} blocks of {} B, {}",
            g.capacity(),
            g.sector_bytes(),
            henge_core::format_size(bytes)
        );
        println!(
            "geometry     {} cylinders, {} surfaces, {} zones",
            g.cylinders(),
            g.surfaces(),
            g.zones().len()
        );
        let revolution = self.arm.spindle().revolution();
        println!(
            "rotation     {} rpm, a revolution in {:.3} ms",
            f.mechanics.rpm,
            revolution.as_millis_f64()
        );
        let (one, full) = (seek_ms(&self.arm, 1), seek_ms(&self.arm, self.arm.seek_curve().longest()));
        println!(
            "seek         {one:.3} ms one cylinder, {:.3} ms mean of random pairs, {full:.3} ms full stroke",
            self.mean_seek_ms
        );
        println!(
            "head switch  {:.3} ms, write settle {:.3} ms",
            f.mechanics.head_switch.as_millis_f64(),
            f.mechanics.write_settle.as_millis_f64() - f.mechanics.write_saves.as_millis_f64()
        );
        println!("bus          {:.4} ms a sector", f.bus_sector.as_millis_f64());
        let c = &f.cache;
        let on = if c.enabled { "on" } else { "off" };
        println!(
            "buffer       {on}, {} segments of {} sectors, read-ahead {:?}, early acknowledgement level {}",
            c.segments, c.segment_sectors, c.read_ahead.prefetch, c.write.fast_write
        );
        if self.places.0 + self.seeks.0 > 0 {
            println!(
                "known        {} of {} places, {} of {} seek times met",
                self.places.1, self.places.0, self.seeks.1, self.seeks.0
            );
        }
        self.print_zones();
        self.print_streams();
    }

    fn print_zones(&self) {
        let (f, g) = (self.facts, &self.facts.geometry);
        let mut table = Table::new();
        table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
        table.set_header(["zone", "cylinders", "sectors/track", "blocks", "MB/s"]);
        for (i, z) in g.zones().iter().enumerate() {
            let rate = z.media_rate(f.mechanics.rpm, g.sector_bytes()) / 1e6;
            table.add_row([
                i.to_string(),
                format!("{}-{}", z.cylinders.0, z.cylinders.1),
                z.per_track.to_string(),
                format!("{}-{}", z.blocks.0, z.blocks.1),
                format!("{rate:.2}"),
            ]);
        }
        println!("\n{table}");
    }

    fn print_streams(&self) {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
        table.set_header(["10 000 requests", "mean ms", "median", "p95", "p99", "per s"]);
        for s in &self.streams {
            let q = |q| format!("{:.3}", quantile(&s.service, q));
            table.add_row([
                s.name.to_owned(),
                format!("{:.3}", mean(&s.service) * 1e3),
                q(0.5),
                q(0.95),
                q(0.99),
                format!("{:.1}", s.per_second),
            ]);
        }
        println!("\n{table}");
    }
}

fn seek_ms(arm: &Arm, distance: u32) -> f64 {
    arm.move_time(Position::default(), Position { cylinder: distance, head: 0 }, Motion::Read).as_millis_f64()
}

/// Pseudo-random numbers of one fixed run: a report is the same each time.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * u128::from(n)) >> 64) as u64
    }
}

fn mean_seek(arm: &Arm) -> f64 {
    let mut random = Lcg(1);
    let capacity = arm.geometry().capacity();
    let pairs = 200_000;
    let mut sum = 0.0;
    for _ in 0..pairs {
        let [a, b] = [(); 2].map(|()| arm.geometry().locate(random.below(capacity)).cylinder);
        sum += arm.seek_curve().time(a.abs_diff(b)).as_millis_f64();
    }
    sum / f64::from(pairs)
}

fn stream(
    facts: &DiskFacts,
    name: &'static str,
    sectors: u64,
    write: bool,
    mode: Mode,
    random: bool,
) -> Stream {
    let mut numbers = Lcg(7);
    let places = (facts.geometry.capacity() / sectors).max(1);
    let row = |i: u64, numbers: &mut Lcg| {
        let lbn = if random { numbers.below(places) } else { i % places } * sectors;
        Row { write, lbn, sectors, ..Row::default() }
    };
    let rows: Vec<Row> = (0..SAMPLES).map(|i| row(i, &mut numbers)).collect();
    let mut drive = Hdd::new(facts.clone(), HddOptions::default());
    let answers: Vec<_> = Replay::new(&mut drive, &rows, mode).collect();
    let end = answers.iter().map(|a| a.complete).max().unwrap_or_default();
    let end = if mode == Mode::Drain { drive.quiet_at() } else { end };
    let service = answers.iter().map(|a| a.service()).collect();
    Stream { name, service, per_second: rows.len() as f64 / end.as_secs_f64() }
}

/// In ms; the list need not be sorted.
fn quantile(list: &[Duration], q: f64) -> f64 {
    let mut sorted = list.to_vec();
    sorted.sort_unstable();
    let rank = ((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len());
    sorted[rank - 1].as_millis_f64()
}

fn plots(info: &Info<'_>, dir: &Path) -> Result<()> {
    let name = &info.facts.model;
    let longest = info.arm.seek_curve().longest();
    let curve = (0..=1000)
        .map(|i| (u64::from(longest) * i / 1000) as u32)
        .map(|d| (f64::from(d), seek_ms(&info.arm, d)));
    let measured = info.facts.mechanics.seek.iter().map(|(d, t)| (f64::from(*d), t.as_millis_f64()));
    let line = LinePlot::new().with_data(curve.collect::<Vec<_>>()).with_stroke_width(1.5);
    let dots = kuva::plot::ScatterPlot::new()
        .with_data(measured.collect::<Vec<_>>())
        .with_size(2.5)
        .with_color("#d62728");
    save(
        vec![line.into(), dots.into()],
        &format!("{name}: seek time"),
        "distance, cylinders",
        "ms",
        dir,
        "seek",
        false,
    )?;

    let g = &info.facts.geometry;
    let mut steps = Vec::new();
    for z in g.zones() {
        let rate = z.media_rate(info.facts.mechanics.rpm, g.sector_bytes()) / 1e6;
        steps.push((z.blocks.0 as f64 * 512.0 / 1e9, rate));
        steps.push(((z.blocks.1 + 1) as f64 * 512.0 / 1e9, rate));
    }
    let zones = LinePlot::new().with_data(steps).with_stroke_width(2.0);
    save(
        vec![zones.into()],
        &format!("{name}: rate of the medium by place"),
        "GB from the outer edge",
        "MB/s",
        dir,
        "zones",
        true,
    )?;

    let mut ecdf = EcdfPlot::new().with_stroke_width(1.5);
    for s in info.streams.iter().filter(|s| s.name.starts_with("random")) {
        ecdf = ecdf.with_data(s.name, s.service.iter().map(|d| d.as_millis_f64()).collect::<Vec<_>>());
    }
    let ecdf = ecdf.with_legend("");
    save(
        vec![ecdf.into()],
        &format!("{name}: service time"),
        "ms",
        "share of requests",
        dir,
        "service",
        false,
    )
}

pub(super) fn save(
    plots: Vec<Plot>,
    title: &str,
    x: &str,
    y: &str,
    dir: &Path,
    name: &str,
    from_zero: bool,
) -> Result<()> {
    let mut layout = Layout::auto_from_plots(&plots)
        .with_title(title)
        .with_x_label(x)
        .with_y_label(y)
        .with_palette(Palette::category10())
        .with_legend_position(LegendPosition::InsideBottomRight);
    if from_zero {
        layout.y_axis_min = Some(0.0);
    }
    let scene = kuva::render::render::render_multiple(plots, layout);
    let svg = kuva::backend::svg::SvgBackend.render_scene(&scene);
    let png = kuva::PngBackend::new().with_scale(2.0).render_scene(&scene);
    let png = png.map_err(|e| anyhow!("{name}.png: {e}"))?;
    let files: [(&str, &[u8]); 2] = [("svg", svg.as_bytes()), ("png", &png)];
    for (extension, bytes) in files {
        let path = dir.join(format!("{name}.{extension}"));
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("{}", path.display());
    }
    Ok(())
}
