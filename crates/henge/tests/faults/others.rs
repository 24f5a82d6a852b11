//! Clients that come by iSCSI and NVMe: one command after the other, each with its end.

use crate::iscsi::Initiator;
use crate::medium::SECTOR;
use crate::model::Since;
use crate::nbd::End;
use crate::nvme::Host;
use crate::schedule::{Gone, Schedule};
use rand::RngExt;
use std::io;

/// A client of either kind.
enum Other {
    Iscsi(Initiator),
    Nvme(Host),
}

impl Other {
    fn write(&mut self, first: u64, data: &[u8], fua: bool) -> io::Result<End> {
        match self {
            Other::Iscsi(initiator) => initiator.write(first, data, fua),
            Other::Nvme(host) => host.write(first, data, fua),
        }
    }
    /// Zeroes by a command of their own, where the client knows one.
    fn zero(&mut self, first: u64, count: u64, fua: bool) -> io::Result<End> {
        match self {
            Other::Iscsi(initiator) => initiator.write(first, &vec![0; (count * SECTOR) as usize], fua),
            Other::Nvme(host) => host.zero(first, count, fua),
        }
    }
    fn flush(&mut self) -> io::Result<End> {
        match self {
            Other::Iscsi(initiator) => initiator.flush(),
            Other::Nvme(host) => host.flush(),
        }
    }
    fn read(&mut self, first: u64, len: usize) -> io::Result<(End, Vec<u8>)> {
        match self {
            Other::Iscsi(initiator) => initiator.read(first, len),
            Other::Nvme(host) => host.read(first, len),
        }
    }
}

impl Schedule {
    /// A client of another kind comes, writes, reads, flushes, and goes.
    pub fn visit(&mut self) -> Result<(), Gone> {
        let Some(name) = self.some_disk() else { return Ok(()) };
        let nvme = self.dice.random();
        let session = self.dice.random();
        let (iscsi_port, nvme_port) = self.ports;
        let connect = || match nvme {
            true => Host::connect(nvme_port, &name).map(Other::Nvme),
            false => Initiator::connect(iscsi_port, &name, session).map(Other::Iscsi),
        };
        let what = format!("using {name} by {}", if nvme { "NVMe" } else { "iSCSI" });
        self.tell(|| what.clone());
        self.tally.visits += 1;
        let outcome = connect().and_then(|mut other| self.use_by(&name, &mut other));
        outcome.map_err(|e| self.ended(&what, e))
    }

    fn use_by(&mut self, name: &str, other: &mut Other) -> io::Result<()> {
        let blocks = self.disks[name].disk.capacity[0] / SECTOR;
        for _ in 0..self.dice.random_range(1..6) {
            // The same places as by NBD, and lengths below and above what travels with its command.
            let unit = if self.dice.random() { 8 } else { 1 };
            let near = self.dice.random_range(0..64) * unit;
            let count = unit * self.dice.random_range(1..4);
            let first = if self.dice.random() { near } else { blocks - near - count };
            let fua = self.dice.random_range(0..4) == 0;
            match self.dice.random_range(0..8) {
                0 | 1 => {
                    let end = other.flush()?;
                    self.tell(|| format!("  flush: {end:?}"));
                    self.flushed(name, end);
                }
                2 | 3 => {
                    let (end, data) = other.read(first, (count * SECTOR) as usize)?;
                    match end {
                        End::Done => self.compare_with(name, first, &data, Since::Nothing),
                        End::Error(error) => self.failed(&format!("a read of {name}"), error),
                    }
                }
                kind => {
                    let zeroes = kind == 4;
                    let (version, data) = self.model(name).begin(first, count, zeroes);
                    let end = match zeroes {
                        true => other.zero(first, count, fua)?,
                        false => other.write(first, &data, fua)?,
                    };
                    self.tell(|| format!("  write {first}+{count} version {version} FUA {fua}: {end:?}"));
                    self.written(name, (first, count, version, fua), end);
                }
            }
        }
        Ok(())
    }
}
