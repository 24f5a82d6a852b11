//! An example of a front end, tried by the tests beside it: `disk NAME` says which disk the following is about, `read AT LEN` is answered by
//! `ok LEN` and the bytes, `write AT LEN` and as many bytes by `ok`. What is wrong is answered; what is no line ends the connection.

use super::Front;
use crate::front::{Doors, Kind, Scheme, Stated};
use crate::plane::{Answer, Submitter};
use crate::pump::Pump;
use crate::session::{Around, Departure, Session, Slices, Stop, Taken, Wants};
use henge_backend::Buffer;
use henge_core::RequestId;
use henge_vdisk::{Command, Kind as Verb};
use std::ops::Range;
use std::sync::Arc;

pub(super) const FRONT: Front =
    Front { kind: &KIND, arrive: |_| Some(Box::new(Pump::new(Lines::default()))) };

static KIND: Kind = Kind {
    key: "lines",
    schemes: &[Scheme::tcp("lines", 7777, |at, host, disk| format!("lines://{}/{disk}", at.text(host)))],
    door: |p| Ok(Arc::new(Stated(p.bool("lines")?.unwrap_or(false)))),
    ..Kind::OPEN
};

const MOST: u64 = 64 << 10;
const LINE: usize = 100;

#[derive(Default)]
struct Lines {
    disk: Option<usize>,
    /// The shard of the disk that it has come for.
    away: Option<usize>,
    command: Option<(Command, Buffer, Range<usize>)>,
    submitted: bool,
    stalled: bool,
    out: Vec<u8>,
}

impl Lines {
    /// False where it has to wait for room or memory, or go elsewhere.
    fn obey(&mut self, line: &str, around: &mut Around<'_>) -> Result<bool, &'static str> {
        let plane = &mut *around.plane;
        let words: Vec<&str> = line.split(' ').collect();
        let kind = match words[..] {
            ["disk", name] => {
                self.away = around.catalog.elsewhere(name).filter(|_| self.disk.is_none());
                if self.away.is_some() {
                    return Ok(false);
                }
                let found = plane.disks.number(name).ok_or("there is no such disk")?;
                let shown = plane.disks.of(found).config.doors.shown_by(KIND.key);
                shown.then_some(()).ok_or("there is no such disk")?;
                if *self.disk.get_or_insert(found) != found {
                    return Err("a connection has one disk");
                }
                self.out.extend(b"ok\n");
                return Ok(true);
            }
            ["read", _, _] => Verb::Read,
            ["write", _, _] => Verb::Write,
            _ => return Err("that is no command"),
        };
        let (at, len) = words[1].parse().ok().zip(words[2].parse().ok()).ok_or("these are no numbers")?;
        let disk = self.disk.ok_or("say which disk first")?;
        let vdisk = &plane.disks.of(disk).vdisk;
        if !(1..=MOST).contains(&len) || len > vdisk.capacity() || at > vdisk.capacity() - len {
            return Err("that is beyond the disk, or too long");
        }
        let frame = vdisk.frame(kind, at, len);
        let memory = plane.disks.has_capacity(disk).then(|| plane.take_buffer(disk, frame.len)).flatten();
        let Some(memory) = memory else { return Ok(false) };
        let (from, payload) = (frame.lead as usize, if kind == Verb::Write { len as usize } else { 0 });
        self.command = Some((Command::new(kind, at, len, around.now, 0), memory, from..from + payload));
        self.submit(around);
        Ok(true)
    }

    fn submit(&mut self, around: &mut Around<'_>) {
        if let (Some(disk), Some((command, memory, missing))) = (self.disk, &mut self.command)
            && missing.start == missing.end
        {
            let submitter =
                Submitter { connection: around.id, command: RequestId { slot: 0, generation: 0 } };
            around.plane.submit(disk, *command, std::mem::take(memory), submitter, around.now);
            self.submitted = true;
        }
    }
}

impl Session for Lines {
    fn wants<'a>(&'a mut self, _: &'a mut Around<'_>) -> Wants<'a> {
        match &mut self.command {
            _ if self.submitted || !self.out.is_empty() => Wants::Nothing,
            Some((_, memory, missing)) => Wants::Payload { into: &mut memory[missing.clone()], beyond: LINE },
            None => Wants::Bytes { most: LINE },
        }
    }
    fn received(&mut self, input: &[u8], around: &mut Around<'_>) -> Taken {
        let Some(end) = input.iter().take(LINE).position(|byte| *byte == b'\n') else {
            return Taken { bytes: 0, stop: (input.len() >= LINE).then_some(Stop::Gone) };
        };
        let obeyed = self.obey(&String::from_utf8_lossy(&input[..end]), around);
        self.stalled = obeyed == Ok(false) && self.away.is_none();
        if obeyed == Ok(false) {
            // The line comes again, if not here.
            return Taken { bytes: 0, stop: Some(if self.stalled { Stop::Stalled } else { Stop::Away }) };
        }
        obeyed.map_or_else(|why| self.out.extend(format!("error: {why}\n").bytes()), drop);
        Taken { bytes: end + 1, stop: None }
    }
    fn delivered(&mut self, bytes: usize, around: &mut Around<'_>) -> Option<Stop> {
        self.command.as_mut()?.2.start += bytes;
        self.submit(around);
        None
    }
    fn completed(&mut self, answer: Answer, around: &mut Around<'_>) {
        self.submitted = false;
        match (answer.outcome, self.command.take()) {
            (Ok(()), Some((read, _, from))) if read.kind == Verb::Read => {
                self.out.extend(format!("ok {}\n", read.len).bytes());
                self.out.extend(&answer.frame[from.start..from.start + read.len as usize]);
            }
            (Ok(()), _) => self.out.extend(b"ok\n"),
            (Err(why), _) => self.out.extend(format!("error: {why:?}\n").bytes()),
        }
        around.plane.put_buffer(answer.disk, answer.frame);
    }
    fn output<'a>(&'a mut self, _: &'a mut Around<'_>, out: &mut Slices<'_, 'a>) {
        if !self.out.is_empty() {
            out.push(&self.out);
        }
    }
    fn written(&mut self, bytes: usize, _: &mut Around<'_>) {
        self.out.drain(..bytes);
    }
    fn depart(&mut self, _: &mut Around<'_>) -> Option<Departure> {
        let to = self.away.take()?;
        Some(Departure { to, begin: Box::new(|_| Some(Box::new(Pump::new(Lines::default())))) })
    }
    fn may_stay(&self, doors: &Doors) -> bool {
        doors.shown_by(KIND.key)
    }
    fn close(&mut self, around: &mut Around<'_>) {
        if let (Some((_, memory, _)), Some(disk), false) = (self.command.take(), self.disk, self.submitted) {
            around.plane.put_buffer(disk, memory);
        }
    }
    fn disk(&self) -> Option<usize> {
        self.disk
    }
    fn takes(&self) -> bool {
        !self.submitted && self.out.is_empty()
    }
    fn has_output(&self) -> bool {
        !self.out.is_empty()
    }
    fn is_stalled(&self) -> bool {
        self.stalled
    }
    fn awaits_payload(&self) -> bool {
        self.takes() && self.command.is_some()
    }
}

mod tests;
