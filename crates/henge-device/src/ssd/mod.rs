//! Flash.

mod blocks;
mod die;
mod drive;
mod facts;
mod map;

pub use drive::{FlashCounts, Ssd};
pub use facts::{FlashLayout, FlashRates, FlashTimes, SSD_SCHEMA, SsdFacts};
