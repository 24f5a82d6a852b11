//! A virtual disk's knobs.

use crate::command::{Frame, Kind};
use crate::plan;
use henge_core::{ParamError, Params};

/// How commands are cut and counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// A read or write counts as one command for each begun piece of this length (`command`).
    pub command_bytes: u64,
    /// No request for data is longer, so that one does not hold the device (`quantum`).
    pub quantum: u64,
    /// TRIM and WRITE_ZEROES are cut into pieces of this length, and count once for each (`span`): they move no data, and
    /// formatting a terabyte must not cost four million commands.
    pub span: u64,
    /// Address and length of every request are multiples of it; what is not is read, modified and written
    /// (`align`). 1 where the storage takes any.
    pub align: u64,
    /// Most commands of the disk pending at once, all its clients together (`commands`).
    pub commands_max: u32,
    /// A CACHE command reads the range and drops the data (`prefetch`); otherwise it takes its turn and does nothing,
    /// which is right where no cache is below.
    pub prefetch: bool,
    /// Every extent of the disk is a virtual disk of its own, somewhere, that completes blocks, compares, and keeps the
    /// locks for both: so several coordinators may serve the disk at once. Parts then begin and end where the command
    /// does. No knob: the driver knows.
    pub owners: bool,
    /// Zeroes that may be holes are sent as TRIM (`holes`): right where trimmed space reads as zeroes.
    pub holes: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            command_bytes: 256 << 10,
            quantum: 1 << 20,
            span: 32 << 20,
            align: 1,
            commands_max: 4096,
            prefetch: false,
            owners: false,
            holes: false,
        }
    }
}

impl Settings {
    /// Takes the knobs that are written in `params`; the others keep their defaults.
    pub fn take(params: &mut Params) -> Result<Self, ParamError> {
        let mut s = Settings::default();
        let sizes: [(&str, &mut u64); 4] = [
            ("command", &mut s.command_bytes),
            ("quantum", &mut s.quantum),
            ("span", &mut s.span),
            ("align", &mut s.align),
        ];
        for (key, value) in sizes {
            *value = params.size(key)?.unwrap_or(*value);
        }
        if let Some(commands) = params.integer("commands", 1, 1 << 20)? {
            s.commands_max = commands as u32;
        }
        s.prefetch = params.bool("prefetch")?.unwrap_or(s.prefetch);
        s.holes = params.bool("holes")?.unwrap_or(s.holes);
        match s.fault() {
            None => Ok(s),
            Some((key, message)) => Err(params.error(key, message)),
        }
    }

    /// The buffer that a command needs at a disk of these settings.
    ///
    /// # Panics
    /// When the range is beyond 64 bits; ranges are checked against the capacity first.
    pub fn frame(&self, kind: Kind, offset: u64, len: u64) -> Frame {
        plan::frame(kind, offset, len, self)
    }

    /// The first knob that does not fit, and why.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        if !self.align.is_power_of_two() || self.align > 1 << 20 {
            return Some(("align", "align is a power of two, at most 1MiB".into()));
        }
        if self.command_bytes == 0 {
            return Some(("command", "command is at least one byte".into()));
        }
        for (key, bytes) in [("quantum", self.quantum), ("span", self.span)] {
            if bytes == 0 || !bytes.is_multiple_of(self.align) || bytes > 1 << 30 {
                return Some((key, format!("{key} is a multiple of align, at most 1GiB")));
            }
        }
        // One request's count is 32 bits of millionths.
        if self.quantum.div_ceil(self.command_bytes) > 4000 {
            return Some(("command", "command is at least 1/4000 of quantum".into()));
        }
        None
    }
}
