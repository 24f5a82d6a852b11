//! What is asked, and how it ends, as that travels between nodes.

use henge_iscsi::scsi::{Detail, Key, Sense, Status, Sweep};
use henge_link::{WireSense, WireSweep};

pub(super) fn sweep(what: Sweep) -> WireSweep {
    match what {
        Sweep::Commands => WireSweep::Commands,
        Sweep::Unit => WireSweep::Unit,
        Sweep::Sessions => WireSweep::Sessions,
    }
}

pub(super) fn unsweep(what: WireSweep) -> Sweep {
    match what {
        WireSweep::Commands => Sweep::Commands,
        WireSweep::Unit => Sweep::Unit,
        WireSweep::Sessions => Sweep::Sessions,
    }
}

pub(super) fn wire(sense: &Sense) -> WireSense {
    let at = match sense.detail {
        Detail::Parameter(at) => Some((true, at)),
        Detail::Cdb(at) => Some((false, at)),
        Detail::None | Detail::Progress(_) => None,
    };
    WireSense { key: sense.key as u8, code: sense.code, at }
}

pub(super) fn unwire(status: u8, why: Option<WireSense>) -> Status {
    let plain = [Status::Good, Status::ReservationConflict, Status::Busy, Status::TaskSetFull];
    if let Some(found) = plain.into_iter().find(|plain| plain.code() == status) {
        return found;
    }
    let Some(why) = why else { return Status::Check(Sense::INTERNAL) };
    let base = match why.at {
        Some((true, at)) => Sense::parameter(at),
        Some((false, at)) => Sense::field(at),
        None => Sense::NONE,
    };
    let keys = [Key::NotReady, Key::Medium, Key::IllegalRequest, Key::Aborted];
    let key = keys.into_iter().find(|key| *key as u8 == why.key).unwrap_or(Key::Hardware);
    Status::Check(Sense { key, code: why.code, ..base })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_travel_as_they_are() {
        let checks = [Sense::UNAVAILABLE, Sense::RELEASE, Sense::parameter(8), Sense::field(2), Sense::WRITE];
        let all = checks.into_iter().map(Status::Check).chain([
            Status::Good,
            Status::ReservationConflict,
            Status::Busy,
        ]);
        for status in all {
            let why = if let Status::Check(sense) = status { Some(wire(&sense)) } else { None };
            assert_eq!(unwire(status.code(), why), status);
        }
    }
}
