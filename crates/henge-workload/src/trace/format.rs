//! The formats, their names and their units.

use super::error::Bad;
use super::state::{State, Units};
use super::{binary, blkparse, columns, events};
use crate::Record;

/// A trace format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Format {
    /// SPC (UMass Financial and WebSearch).
    Spc,
    /// DiskSim ASCII.
    Disksim,
    /// SSDSim and MQSim ASCII.
    Ssdsim,
    /// The five-column "replayer" format with offsets and sizes in bytes.
    Replayer,
    /// MSR Cambridge CSV.
    Msr,
    /// Tencent CBS CSV.
    Tencent,
    /// Alibaba CSV.
    Alibaba,
    /// Systor '17 CSV.
    Systor,
    /// blkparse text.
    Blkparse,
    /// blkreplay .load.
    Blkreplay,
    /// fio iolog version 2 and 3.
    Iolog,
    /// vSCSI versions 1 and 2, binary.
    Vscsi,
    /// vSCSI as CSV.
    VscsiCsv,
    /// HP SRT, record versions 4 and 7.
    Srt,
    /// Darshan DXT text.
    Dxt,
    /// Henge's own binary format.
    Henge,
}

pub(crate) type LineReader = fn(&mut State, &Units, &[u8]) -> Result<Option<Record>, Bad>;

/// How a format is read.
pub(crate) enum Reader {
    Lines(LineReader),
    Vscsi,
    Srt,
    Henge,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 16] = [
        Format::Spc,
        Format::Disksim,
        Format::Ssdsim,
        Format::Replayer,
        Format::Msr,
        Format::Tencent,
        Format::Alibaba,
        Format::Systor,
        Format::Blkparse,
        Format::Blkreplay,
        Format::Iolog,
        Format::Vscsi,
        Format::VscsiCsv,
        Format::Srt,
        Format::Dxt,
        Format::Henge,
    ];

    /// By which name configuration and command line know it.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Spc => "spc",
            Format::Disksim => "disksim",
            Format::Ssdsim => "ssdsim",
            Format::Replayer => "replayer",
            Format::Msr => "msr",
            Format::Tencent => "tencent",
            Format::Alibaba => "alibaba",
            Format::Systor => "systor",
            Format::Blkparse => "blkparse",
            Format::Blkreplay => "blkreplay",
            Format::Iolog => "iolog",
            Format::Vscsi => "vscsi",
            Format::VscsiCsv => "vscsi-csv",
            Format::Srt => "srt",
            Format::Dxt => "dxt",
            Format::Henge => "henge",
        }
    }

    /// The format of that name.
    pub fn by_name(name: &str) -> Option<Format> {
        let lower = name.to_ascii_lowercase();
        let lower = match lower.as_str() {
            "mqsim" => "ssdsim",
            "load" => "blkreplay",
            "fio" => "iolog",
            "darshan" => "dxt",
            other => other,
        };
        Format::ALL.into_iter().find(|f| f.name() == lower)
    }

    /// All names, for messages.
    pub fn names() -> String {
        let names: Vec<_> = Format::ALL.iter().map(|f| f.name()).collect();
        names.join(", ")
    }

    /// The columns of a line, where all lines have the same, as errors call them.
    pub(crate) const fn columns(self) -> Option<&'static str> {
        Some(match self {
            Format::Spc => "ASU,LBA,Size,Opcode,Timestamp",
            Format::Disksim | Format::Replayer => "time device offset size flags",
            Format::Ssdsim => "time device LBA size op",
            Format::Msr => "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
            Format::Tencent => "Timestamp,Offset,Size,IOType,VolumeID",
            Format::Alibaba => "device_id,opcode,offset,length,timestamp",
            Format::Systor => "Timestamp,Response,IOType,LUN,Offset,Size",
            Format::VscsiCsv => "version,time,op,size,lbn",
            _ => return None,
        })
    }

    /// The units that its columns have unless told otherwise.
    pub const fn units(self) -> Units {
        const S: u64 = 1_000_000_000;
        const MS: u64 = 1_000_000;
        const US: u64 = 1_000;
        let (time, offset, size) = match self {
            Format::Spc => (S, 512, 1),
            Format::Disksim => (MS, 512, 512),
            Format::Ssdsim => (1, 512, 512),
            Format::Replayer => (MS, 1, 1),
            Format::Msr => (100, 1, 1),
            Format::Tencent => (S, 512, 512),
            Format::Alibaba => (US, 1, 1),
            Format::Systor => (S, 1, 1),
            Format::Blkparse | Format::Blkreplay => (S, 512, 512),
            Format::Iolog => (US, 1, 1),
            Format::Vscsi => (US, 512, 1),
            Format::VscsiCsv => (S, 512, 1),
            // Version 4 counts sectors of 256 bytes, version 7 bytes; the reader knows.
            Format::Srt => (US, 256, 1),
            Format::Dxt => (S, 1, 1),
            Format::Henge => (1, 1, 1),
        };
        Units { time, offset, size }
    }

    pub(crate) fn reader(self) -> Reader {
        Reader::Lines(match self {
            Format::Spc => columns::spc,
            Format::Disksim | Format::Replayer => columns::five,
            Format::Ssdsim => columns::ssdsim,
            Format::Msr => columns::msr,
            Format::Tencent => columns::tencent,
            Format::Alibaba => columns::alibaba,
            Format::Systor => columns::systor,
            Format::VscsiCsv => columns::vscsi_csv,
            Format::Blkparse => blkparse::blkparse,
            Format::Blkreplay => events::blkreplay,
            Format::Iolog => events::iolog,
            Format::Dxt => events::dxt,
            Format::Vscsi => return Reader::Vscsi,
            Format::Srt => return Reader::Srt,
            Format::Henge => return Reader::Henge,
        })
    }

    /// What readers of this format remember to begin with; `wanted` chooses an event or a module.
    pub(crate) fn state(self, wanted: Option<u8>) -> State {
        let usual = match self {
            Format::Blkparse => b'Q',
            Format::Dxt => b'P',
            _ => 0,
        };
        State::wanting(wanted.unwrap_or(usual))
    }

    /// Whether the bytes begin as this binary format does.
    pub(crate) fn has_magic(self, head: &[u8]) -> bool {
        match self {
            Format::Henge => head.starts_with(binary::MAGIC),
            Format::Srt => binary::srt_header(head).is_some(),
            Format::Vscsi => binary::looks_like_vscsi(head),
            _ => false,
        }
    }
}
