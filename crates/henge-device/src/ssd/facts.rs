//! What is known of one flash drive: a `henge-ssd/1` file.
//!
//! Over-provisioning is spare / exported capacity: 7 % of 100 GB are 7 GB more than the host sees.

use crate::hdd::FactsError;
use crate::hdd::reader::{Read, Reader};
use henge_core::Duration;
use serde_json::Value;

/// The schema that files name.
pub const SSD_SCHEMA: &str = "henge-ssd/1";

/// Everything the model needs to know.
#[derive(Clone, Debug)]
pub struct SsdFacts {
    /// Name of the model.
    pub model: String,
    /// What it is.
    pub description: String,
    /// Where the numbers come from.
    pub source: String,
    /// How its flash is arranged.
    pub layout: FlashLayout,
    /// How long things take.
    pub times: FlashTimes,
    /// How fast data moves.
    pub rates: FlashRates,
    /// Bytes of the write buffer.
    pub buffer: u64,
    /// The buffer survives a loss of power, so a flush has nothing to do.
    pub power_protected: bool,
}

/// How a drive's flash is arranged.
#[derive(Clone, Debug)]
pub struct FlashLayout {
    /// Bytes that the host sees.
    pub capacity: u64,
    /// Spare capacity, in millionths of the exported one.
    pub spare: u32,
    /// Bytes that are mapped together.
    pub unit: u32,
    /// Bytes that a die programs at once.
    pub page: u32,
    /// Pages that a die erases at once.
    pub pages_per_block: u32,
    /// Channels, and dies on each.
    pub channels: u32,
    /// Dies on each channel.
    pub dies_per_channel: u32,
}

/// What dies and the controller take for a page, a block or a command.
#[derive(Clone, Debug)]
pub struct FlashTimes {
    /// Reading a page on the die.
    pub read: Duration,
    /// Programming a page on the die.
    pub program: Duration,
    /// Erasing a block on the die.
    pub erase: Duration,
    /// Controller time of a read.
    pub read_overhead: Duration,
    /// Controller time of a write.
    pub write_overhead: Duration,
    /// The controller takes up one command in so much time.
    pub command_interval: Duration,
}

/// Bytes a second.
#[derive(Clone, Debug)]
pub struct FlashRates {
    /// Of a channel.
    pub channel: u64,
    /// From the drive to the host.
    pub host_read: u64,
    /// From the host to the drive.
    pub host_write: u64,
}

impl FlashLayout {
    fn parse(layout: &Reader<'_>) -> Read<Self> {
        Ok(FlashLayout {
            capacity: layout.integer("exported_bytes", 1 << 20, 1 << 50)?,
            spare: (layout.number("spare_percent")? * 1e4).round() as u32,
            unit: layout.integer("unit_bytes", 512, 1 << 20)? as u32,
            page: layout.integer("page_bytes", 512, 1 << 24)? as u32,
            pages_per_block: layout.integer("pages_per_block", 1, 1 << 20)? as u32,
            channels: layout.integer("channels", 1, 1024)? as u32,
            dies_per_channel: layout.integer("dies_per_channel", 1, 1024)? as u32,
        })
    }

    /// All dies.
    pub fn dies(&self) -> u32 {
        self.channels * self.dies_per_channel
    }
    /// Units that the host sees.
    pub fn units(&self) -> u64 {
        self.capacity / u64::from(self.unit)
    }
    /// Units of a page.
    pub fn units_per_page(&self) -> u32 {
        self.page / self.unit
    }
    /// Units of a block.
    pub fn units_per_block(&self) -> u32 {
        self.units_per_page() * self.pages_per_block
    }
    /// Blocks of a die, exported and spare capacity together.
    pub fn blocks_per_die(&self) -> u32 {
        let all = u128::from(self.units()) * (1_000_000 + u128::from(self.spare)) / 1_000_000;
        (all / u128::from(self.dies()) / u128::from(self.units_per_block())) as u32
    }
}

impl FlashTimes {
    fn parse(times: &Reader<'_>) -> Read<Self> {
        let us = |key: &str| -> Read<Duration> { Ok(Duration::from_secs_f64(times.number(key)? / 1e6)) };
        Ok(FlashTimes {
            read: us("read_page")?,
            program: us("program_page")?,
            erase: us("erase_block")?,
            read_overhead: us("read_command")?,
            write_overhead: us("write_command")?,
            command_interval: us("command_interval")?,
        })
    }
}

impl FlashRates {
    fn parse(rates: &Reader<'_>) -> Read<Self> {
        let rate = |key: &str| -> Read<u64> { Ok(rates.integer(key, 1, 1 << 20)? * 1_000_000) };
        Ok(FlashRates {
            channel: rate("channel")?,
            host_read: rate("host_read")?,
            host_write: rate("host_write")?,
        })
    }
}

impl SsdFacts {
    /// Reads and checks the text of a file.
    pub fn parse(text: &str) -> Result<SsdFacts, FactsError> {
        let value: Value =
            serde_json::from_str(text).map_err(|e| FactsError::new("", format!("not JSON: {e}")))?;
        let root = Reader::root(&value);
        let schema = root.text("schema")?;
        if schema != SSD_SCHEMA {
            return root.wrong("schema", format!("is \"{schema}\"; this reads \"{SSD_SCHEMA}\""));
        }
        let (layout, times) = (root.object("layout")?, root.object("times_us")?);
        let (rates, buffer) = (root.object("rates_mb_per_s")?, root.object("buffer")?);
        let facts = SsdFacts {
            model: root.text("model")?,
            description: root.text_or("description", ""),
            source: root.text_or("source", ""),
            layout: FlashLayout::parse(&layout)?,
            times: FlashTimes::parse(&times)?,
            rates: FlashRates::parse(&rates)?,
            buffer: buffer.integer("bytes", 1, 1 << 40)?,
            power_protected: buffer.flag("power_protected")?,
        };
        facts.check().map_err(|(key, what)| FactsError::new(key, what))?;
        Ok(facts)
    }

    /// Whether the parts fit each other; else the key and what is wrong.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let layout = &self.layout;
        if !layout.page.is_multiple_of(layout.unit) {
            return Err((
                "layout.page_bytes",
                format!("is {}, no multiple of unit_bytes {}", layout.page, layout.unit),
            ));
        }
        if self.buffer < 2 * u64::from(layout.page) {
            return Err((
                "buffer.bytes",
                format!("is {}, less than two pages of {}", self.buffer, layout.page),
            ));
        }
        let blocks = layout.blocks_per_die();
        let room = u64::from(blocks) * u64::from(layout.dies()) * u64::from(layout.units_per_block());
        let reserve = u64::from(layout.dies())
            * u64::from(layout.units_per_block())
            * u64::from(super::blocks::RESERVE + 2);
        if room < layout.units() + reserve {
            let least = reserve as f64 / layout.units() as f64 * 100.0;
            let what = format!("leaves no blocks to collect into; with this layout it is above {least:.1}");
            return Err(("layout.spare_percent", what));
        }
        if room >= u64::from(u32::MAX) {
            return Err(("layout.exported_bytes", format!("makes {room} units, more than the map can name")));
        }
        Ok(())
    }

    /// The same drive made smaller, so that it is worn in quickly: `pages_per_block` at most, and as few blocks on each die as leave some to
    /// collect into, 512 at least. Spare share, dies and times are the same, and so is the share of time that erasing takes.
    #[must_use]
    pub fn shrunk(&self, pages_per_block: u32) -> SsdFacts {
        let pages_per_block = pages_per_block.min(self.layout.pages_per_block);
        let mut small = (9..31).map(|doubled| self.with_blocks(1 << doubled, pages_per_block));
        small.find(|small| small.check().is_ok()).unwrap_or_else(|| self.clone())
    }

    /// `blocks` of `pages_per_block` on each die.
    fn with_blocks(&self, blocks: u32, pages_per_block: u32) -> SsdFacts {
        let layout = &self.layout;
        let units = u64::from(layout.dies())
            * u64::from(blocks)
            * u64::from(layout.units_per_page() * pages_per_block);
        let exported = u128::from(units) * 1_000_000 / (1_000_000 + u128::from(layout.spare));
        let capacity = exported as u64 * u64::from(layout.unit);
        let erase = self.times.erase.mul_ratio(u64::from(pages_per_block), u64::from(layout.pages_per_block));
        SsdFacts {
            layout: FlashLayout { capacity, pages_per_block, ..layout.clone() },
            times: FlashTimes { erase, ..self.times.clone() },
            ..self.clone()
        }
    }
}
