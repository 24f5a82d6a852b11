//! One thread writes the lines, all that wait at once: storage that is slow, or hangs, keeps only those waiting whose lines it has.

use super::{Actor, AuditTo, Keep};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// Most lines that wait for the thread; who has a further one waits for room.
const WAITING_MAX: usize = 256;
const DAY_MS: u64 = 86_400_000;
/// The last second of the year 9999: what lies beyond is no date.
const LAST_MS: u64 = 253_402_300_799_000;

/// Of a line: when it was, and whose it is.
pub(super) type Of = (u64, Option<Actor>);

struct Waiting {
    of: Of,
    text: Vec<u8>,
    /// Dropped once it is written, or cannot be.
    _over: oneshot::Sender<()>,
}

/// Speaks to the thread.
#[derive(Debug)]
pub(super) struct Writer(mpsc::Sender<Waiting>);

impl Writer {
    /// Begins the thread; it ends with this.
    pub(super) fn begin(to: AuditTo) -> io::Result<Writer> {
        let (lines, mut inbox) = mpsc::channel(WAITING_MAX);
        std::thread::Builder::new().name("henge-audit".into()).spawn(move || {
            let (mut day, mut batch) = (0, Vec::new());
            while inbox.blocking_recv_many(&mut batch, WAITING_MAX) > 0 {
                if let Err(e) = put(&to, &mut day, &batch) {
                    tracing::error!(error = %e, "the audit log cannot be written");
                }
                batch.clear();
            }
        })?;
        Ok(Writer(lines))
    }

    /// Returns once a line is written, or cannot be.
    pub(super) async fn write(&self, of: Of, text: Vec<u8>) {
        let (over, told) = oneshot::channel();
        if self.0.send(Waiting { of, text, _over: over }).await.is_ok() {
            // Nothing is ever said: it is dropped.
            let _ = told.await;
        }
    }
}

/// Writes lines; `day` is that of the last one before. Says the first error, and goes on.
fn put(to: &AuditTo, day: &mut u64, lines: &[Waiting]) -> io::Result<()> {
    let (mut outcome, mut files) = (Ok(()), BTreeMap::<PathBuf, Vec<u8>>::new());
    for Waiting { of: (time, who), text, .. } in lines {
        let written = match to {
            AuditTo::Nobody => Ok(()),
            AuditTo::Stderr => io::stderr().write_all(text),
            AuditTo::Syslog(socket) => {
                let text = [b"<86>henge-manager: ", text.trim_ascii_end()].concat();
                UnixDatagram::unbound().and_then(|s| s.send_to(&text, socket)).map(drop)
            }
            AuditTo::File(path) => {
                files.entry(path.clone()).or_default().extend(text);
                Ok(())
            }
            AuditTo::Days(folder, keep) => {
                let today = time / DAY_MS;
                let due = std::mem::replace(day, today) != today;
                files.entry(folder.join(file_of(who.as_ref(), today))).or_default().extend(text);
                if due { tidy(folder, keep, today) } else { Ok(()) }
            }
        };
        outcome = outcome.and(written);
    }
    for (path, text) in files {
        outcome = outcome.and(append(&path, &text));
    }
    outcome
}

fn append(path: &Path, text: &[u8]) -> io::Result<()> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text))
}

/// The file of a day's lines of one who asks.
fn file_of(who: Option<&Actor>, day: u64) -> String {
    let of = match who {
        None => "nobody".to_owned(),
        Some(Actor { tenant: None, .. }) => "administrator".to_owned(),
        Some(Actor { tenant: Some(tenant), .. }) => format!("tenant-{tenant}"),
    };
    format!("{of}-{}.jsonl", date(day))
}

/// A day since 1970 as 2026-11-24: texts in the order of days.
pub(super) fn date(day: u64) -> String {
    let begins = UNIX_EPOCH + Duration::from_millis(day.saturating_mul(DAY_MS).min(LAST_MS));
    let mut text = humantime::format_rfc3339_seconds(begins).to_string();
    text.truncate("2026-11-24".len());
    text
}

/// Makes the folder, and removes what is older than it is to be kept.
fn tidy(folder: &Path, keep: &Keep, today: u64) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().into_string().unwrap_or_default();
        // NAME-2026-11-24.jsonl; what is called otherwise is somebody else's.
        let stem = name.strip_suffix(".jsonl").unwrap_or_default();
        let Some((of, written)) = stem.len().checked_sub(11).and_then(|at| stem.split_at_checked(at)) else {
            continue;
        };
        let is_date =
            |b: (usize, u8)| if matches!(b.0, 0 | 5 | 8) { b.1 == b'-' } else { b.1.is_ascii_digit() };
        if !written.bytes().enumerate().all(is_date) {
            continue;
        }
        let days =
            of.strip_prefix("tenant-").and_then(|tenant| keep.tenants.get(tenant)).unwrap_or(&keep.days);
        if written[1..] < *date(today.saturating_sub(*days)) {
            std::fs::remove_file(folder.join(name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        // By `date -u -d @$((DAY * 86400)) +%F`.
        for (day, text) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_781, "2026-11-24"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(date(day), text);
        }
    }
}
