//! Reservations as text: to be kept over restarts, and told to other nodes.
//!
//! ```text
//! generation 7
//! register 00000000000000aa iqn.2026-11.example:host,i,0x800000000001
//! reserve 5 iqn.2026-11.example:host,i,0x800000000001
//! ```

use super::{Effects, Holder, Kind, REGISTRATIONS_MAX, Registration, Reservations};
use crate::scsi::{Sweep, attention};
use std::fmt::Write;

const WRITTEN: &str = "a String takes all that is written";

impl Reservations {
    /// The text from which [`Reservations::restore`] makes them again, if they are to survive a loss of power; else none.
    pub fn save(&self) -> String {
        if self.through_power_loss { self.text() } else { String::new() }
    }

    /// The text from which [`Reservations::restore`] makes them again.
    pub fn text(&self) -> String {
        let mut out = String::new();
        if !self.through_power_loss {
            out.push_str("volatile\n");
        }
        writeln!(out, "generation {}", self.generation).expect(WRITTEN);
        for r in &self.registrations {
            writeln!(out, "register {:016x} {}", r.key, r.port).expect(WRITTEN);
        }
        if let Some(holder) = &self.holder {
            writeln!(out, "reserve {} {}", holder.kind.0, holder.port).expect(WRITTEN);
        }
        if self.sweeps != [0; 3] {
            let [commands, unit, sessions] = self.sweeps;
            writeln!(out, "swept {commands} {unit} {sessions}").expect(WRITTEN);
        }
        out
    }

    /// What was saved. An error names the line.
    pub fn restore(text: &str) -> Result<Reservations, String> {
        Reservations::told(text).map(|(found, _)| found)
    }

    /// The text of reservations and of what became of those before them: for other nodes.
    pub fn tell(&self, effects: &Effects) -> String {
        let mut out = self.text();
        for (port, code) in &effects.attentions {
            writeln!(out, "attend {code:04x} {port}").expect(WRITTEN);
        }
        for port in &effects.abort {
            writeln!(out, "abort {port}").expect(WRITTEN);
        }
        if let Some((what, by)) = &effects.sweep {
            writeln!(out, "sweep {} {by}", *what as usize).expect(WRITTEN);
        }
        out
    }

    /// What was told. An error names the line.
    pub fn told(text: &str) -> Result<(Reservations, Effects), String> {
        let mut found = Reservations { through_power_loss: !text.is_empty(), ..Default::default() };
        let mut effects = Effects::default();
        for line in text.lines() {
            let wrong = || format!("cannot read {line:?}");
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let pair = || rest.split_once(' ').ok_or_else(wrong);
            match word {
                "volatile" => found.through_power_loss = false,
                "generation" => found.generation = rest.parse().map_err(|_| wrong())?,
                "register" => {
                    let (key, port) = pair()?;
                    let key = u64::from_str_radix(key, 16).map_err(|_| wrong())?;
                    if found.registrations.len() >= REGISTRATIONS_MAX {
                        return Err(format!("more than {REGISTRATIONS_MAX} registrations"));
                    }
                    found.registrations.push(Registration { key, port: port.to_owned() });
                }
                "reserve" => {
                    let (code, port) = pair()?;
                    let kind = code.parse().ok().and_then(Kind::new);
                    let kind = kind.ok_or_else(|| format!("no such type in {line:?}"))?;
                    found.holder = Some(Holder { port: port.to_owned(), kind });
                }
                "attend" => {
                    let (code, port) = pair()?;
                    let code = u16::from_str_radix(code, 16).map_err(|_| wrong())?;
                    effects.attentions.push((port.to_owned(), code));
                }
                "abort" => effects.abort.push(rest.to_owned()),
                "swept" => {
                    let counts: Result<Vec<u32>, _> = rest.split(' ').map(str::parse).collect();
                    found.sweeps = counts.ok().and_then(|c| c.try_into().ok()).ok_or_else(wrong)?;
                }
                "sweep" => {
                    let (what, by) = pair()?;
                    let what = what.parse().ok().and_then(|what: usize| Sweep::ALL.get(what));
                    effects.sweep = Some((*what.ok_or_else(wrong)?, by.to_owned()));
                }
                _ => return Err(wrong()),
            }
        }
        Ok((found, effects))
    }

    /// What has become of these on the way to `next`, when that way is not known: whoever is registered no more was
    /// preempted, and nothing that it has begun goes on; what was swept meanwhile is swept here, too.
    pub fn missed(&self, next: &Reservations) -> Effects {
        let gone = self.registrations.iter().filter(|r| next.key_of(&r.port).is_none());
        let abort: Vec<String> = gone.map(|r| r.port.clone()).collect();
        let attentions = abort.iter().map(|port| (port.clone(), attention::REGISTRATIONS_PREEMPTED));
        let sweep = self.swept(next).map(|what| (what, String::new()));
        Effects { attentions: attentions.collect(), abort, keep: false, sweep }
    }
}
