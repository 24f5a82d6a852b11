//! What is known of one drive, read from a `henge-disk-facts/1` file and checked.
//!
//! Times in the file are milliseconds, sizes are sectors. Keys that the model has no use for (descriptions,
//! statistics) are not read. A file that contradicts itself is refused, naming the key.

mod cache;

use super::reader::{FactsError, Read, Reader, from_ms};
use super::zones::{self, Geometry, LbnVector};
use henge_core::Duration;
use serde_json::Value;

pub use cache::{Cache, Prefetch, ReadAhead, Watermarks, WriteCache};

/// The schema that files name.
pub const SCHEMA: &str = "henge-disk-facts/1";

/// Everything the model needs to know of a drive.
#[derive(Clone, Debug)]
pub struct DiskFacts {
    /// Name of the model.
    pub model: String,
    /// What it is.
    pub description: String,
    /// Where the numbers come from.
    pub source: String,
    /// Where each sector lies.
    pub geometry: Geometry,
    /// Arm and spindle.
    pub mechanics: Mechanics,
    /// Time of one sector on the host bus.
    pub bus_sector: Duration,
    /// The controller's time.
    pub overheads: Overheads,
    /// The buffer.
    pub cache: Cache,
    /// The drive's own queue.
    pub queue: Queue,
    /// Known answers, to hold the model against.
    pub vectors: Vectors,
}

/// Arm and spindle.
#[derive(Clone, Debug)]
pub struct Mechanics {
    /// Revolutions a minute.
    pub rpm: f64,
    /// Measured (distance in cylinders, time).
    pub seek: Vec<(u32, Duration)>,
    /// Changing the surface on the same cylinder.
    pub head_switch: Duration,
    /// Before a write, on top of seek or switch.
    pub write_settle: Duration,
    /// What a write saves of seek or switch instead: drives whose seeks were measured with the settling of reads.
    pub write_saves: Duration,
    /// Added to a seek that a write follows.
    pub write_seek_extra: Duration,
}

/// Controller time of a command, by what it is and what came before it.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // The names say it all, and are those of the file.
pub struct Overheads {
    pub per_request: Duration,
    pub read_hit_after_read: Duration,
    pub read_hit_after_write: Duration,
    pub read_miss_after_read: Duration,
    pub read_miss_after_write: Duration,
    pub write_hit_after_read: Duration,
    pub write_hit_after_write: Duration,
    pub write_miss_after_read: Duration,
    pub write_miss_after_write: Duration,
    pub read_completion: Duration,
    pub write_completion: Duration,
    pub data_preparation: Duration,
    pub reselect: Duration,
}

impl Overheads {
    /// Before a read: found in the buffer or not, after a read or a write.
    pub fn read(&self, hit: bool, after_read: bool) -> Duration {
        match (hit, after_read) {
            (true, true) => self.read_hit_after_read + self.data_preparation,
            (true, false) => self.read_hit_after_write + self.data_preparation,
            (false, true) => self.read_miss_after_read,
            (false, false) => self.read_miss_after_write,
        }
    }
    /// Before a write: acknowledged early ("hit") or not, after a read or a write.
    pub fn write(&self, early: bool, after_read: bool) -> Duration {
        match (early, after_read) {
            (true, true) => self.write_hit_after_read,
            (true, false) => self.write_hit_after_write,
            (false, true) => self.write_miss_after_read,
            (false, false) => self.write_miss_after_write,
        }
    }
}

/// The drive's own queue.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// Commands it accepts at once.
    pub length: u32,
    /// How it orders them (1 is first come, first served).
    pub policy: u32,
}

/// Known answers.
#[derive(Clone, Debug, Default)]
pub struct Vectors {
    /// Where given blocks lie.
    pub lbn: Vec<LbnVector>,
    /// (distance, time) of given seeks.
    pub seek: Vec<(u32, Duration)>,
}

impl DiskFacts {
    /// Reads and checks the text of a facts file.
    pub fn parse(text: &str) -> Result<DiskFacts, FactsError> {
        let value: Value =
            serde_json::from_str(text).map_err(|e| FactsError::new("", format!("not JSON: {e}")))?;
        let root = Reader::root(&value);
        let schema = root.text("schema")?;
        if schema != SCHEMA {
            return root.wrong("schema", format!("is \"{schema}\"; this reads \"{SCHEMA}\""));
        }
        let mut vectors = vectors(&root)?;
        vectors.lbn.sort_by_key(|v| v.lbn);
        let geometry = zones::read(&root.object("geometry")?, &vectors.lbn)?;
        let mechanics = mechanics(&root.object("mechanics")?, geometry.cylinders())?;
        let facts = DiskFacts {
            model: root.text("model")?,
            description: root.text_or("description", ""),
            source: root.text_or("source", ""),
            bus_sector: root.object("bus")?.said_ms("sector_transfer_ms")?,
            overheads: overheads(&root.object("overheads_ms")?)?,
            cache: Cache::read(&root.object("cache")?)?,
            queue: queue(&root)?,
            vectors,
            geometry,
            mechanics,
        };
        Ok(facts)
    }
}

fn mechanics(r: &Reader<'_>, cylinders: u32) -> Read<Mechanics> {
    let rpm = r.number("rpm")?;
    if !(60.0..=100_000.0).contains(&rpm) {
        return r.wrong("rpm", format!("is {rpm}, not from 60 to 100000"));
    }
    let revolution = r.number_or("revolution_ms", 60e3 / rpm)?;
    if (revolution * rpm / 60e3 - 1.0).abs() > 1e-3 {
        return r.wrong("revolution_ms", format!("is {revolution}, but {rpm} rpm make {} ms", 60e3 / rpm));
    }
    let (write_settle, write_saves) = r.signed_ms("write_settle_ms")?;
    Ok(Mechanics {
        rpm,
        seek: seek_points(r, cylinders)?,
        head_switch: r.said_ms("head_switch_ms")?,
        write_settle,
        write_saves,
        write_seek_extra: r.ms("write_seek_extra_ms")?,
    })
}

/// A measured curve is noisy and has single points that are far too high. A point is held against the median of
/// the five before it, and may lie this share below.
const SEEK_FALL: f64 = 0.15;
/// Curves measured at this many distances may hold single spoiled points that are far too low (the IBM DNES's has two);
/// in shorter ones a point that falls is a mistake.
const SEEK_MANY: usize = 120;

fn median_of_last(points: &[(u32, Duration)]) -> f64 {
    let mut last: Vec<Duration> = points.iter().rev().take(5).map(|(_, t)| *t).collect();
    last.sort_unstable();
    last.get(last.len() / 2).map_or(0.0, |t| t.as_millis_f64())
}

fn seek_points(r: &Reader<'_>, cylinders: u32) -> Read<Vec<(u32, Duration)>> {
    const KEY: &str = "seek_curve_distance_cyl_time_ms";
    let mut points: Vec<(u32, Duration)> = Vec::new();
    let items = r.array(KEY)?;
    let pair = |i: usize| {
        let pair = items.get(i)?.as_array().filter(|p| p.len() == 2)?;
        Some((pair[0].as_f64()?, pair[1].as_f64()?))
    };
    for i in 0..items.len() {
        let at = format!("{KEY}[{i}]");
        let Some((d, ms)) = pair(i) else { return r.wrong(&at, "is not [distance, time]") };
        if d < 0.0 || d.fract() != 0.0 || d > f64::from(cylinders) || !(0.0..60_000.0).contains(&ms) {
            return r.wrong(&at, format!("[{d}, {ms}] is not a seek on {cylinders} cylinders"));
        }
        if d == 0.0 {
            continue;
        }
        if points.last().is_some_and(|(before, _)| f64::from(*before) >= d) {
            return r.wrong(&at, format!("distance {d} does not rise"));
        }
        let before = median_of_last(&points);
        let least = before * (1.0 - SEEK_FALL);
        let spoiled = items.len() >= SEEK_MANY && pair(i + 1).is_some_and(|(_, next)| next >= least);
        if ms < least && !spoiled {
            let what =
                format!("{ms} ms over {d} cylinders, but shorter ones take {before} ms: seek times fall");
            return r.wrong(&at, what);
        }
        points.push((d as u32, from_ms(ms)));
    }
    if points.is_empty() { r.wrong(KEY, "has no points") } else { Ok(points) }
}

fn overheads(r: &Reader<'_>) -> Read<Overheads> {
    Ok(Overheads {
        per_request: r.ms("per_request")?,
        read_hit_after_read: r.ms("read_hit_after_read")?,
        read_hit_after_write: r.ms("read_hit_after_write")?,
        read_miss_after_read: r.ms("read_miss_after_read")?,
        read_miss_after_write: r.ms("read_miss_after_write")?,
        write_hit_after_read: r.ms("write_hit_after_read")?,
        write_hit_after_write: r.ms("write_hit_after_write")?,
        write_miss_after_read: r.ms("write_miss_after_read")?,
        write_miss_after_write: r.ms("write_miss_after_write")?,
        read_completion: r.ms("read_completion")?,
        write_completion: r.ms("write_completion")?,
        data_preparation: r.ms("data_preparation")?,
        reselect: r.ms("first_reselect")?,
    })
}

fn queue(root: &Reader<'_>) -> Read<Queue> {
    if root.get("queue").is_none() {
        return Ok(Queue { length: 1, policy: 1 });
    }
    let r = root.object("queue")?;
    Ok(Queue {
        length: r.integer_or("max_queue_length", 1, 1 << 16, 1)? as u32,
        policy: r.integer_or("on_board_policy", 0, 1000, 1)? as u32,
    })
}

fn vectors(root: &Reader<'_>) -> Read<Vectors> {
    let mut vectors = Vectors::default();
    if root.get("test_vectors").is_none() {
        return Ok(vectors);
    }
    let r = root.object("test_vectors")?;
    let rows = |key: &str, width: usize| -> Read<Vec<Vec<f64>>> {
        if r.get(key).is_none() {
            return Ok(Vec::new());
        }
        let row = |(i, item): (usize, &Value)| {
            let numbers: Option<Vec<f64>> =
                item.as_array().and_then(|a| a.iter().map(Value::as_f64).collect());
            match numbers.filter(|n| n.len() == width) {
                Some(numbers) => Ok(numbers),
                None => r.wrong(&format!("{key}[{i}]"), format!("is not a list of {width} numbers")),
            }
        };
        r.array(key)?.iter().enumerate().map(row).collect()
    };
    let whole = |x: f64| x >= 0.0 && x.fract() == 0.0 && x <= f64::from(u32::MAX);
    for (i, v) in rows("lbn", 6)?.iter().enumerate() {
        if !v[..5].iter().all(|x| whole(*x)) || v[3] >= v[4] || !(0.0..=1.0).contains(&v[5]) {
            let what = "is not [block, cylinder, head, sector, sectors per track, revolutions] of a block";
            return r.wrong(&format!("lbn[{i}]"), what);
        }
        let [cylinder, head, sector, per_track] = [v[1] as u32, v[2] as u32, v[3] as u32, v[4] as u32];
        vectors.lbn.push(LbnVector { lbn: v[0] as u64, cylinder, head, sector, per_track, angle: v[5] });
    }
    for (i, v) in rows("seek", 2)?.iter().enumerate() {
        if !whole(v[0]) || !(0.0..60_000.0).contains(&v[1]) {
            return r.wrong(&format!("seek[{i}]"), "is not [distance, ms] of a seek");
        }
        vectors.seek.push((v[0] as u32, from_ms(v[1])));
    }
    Ok(vectors)
}
