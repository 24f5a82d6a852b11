//! Small files that people write, read as wholes: without waiting, and without end.
//!
//! A name may lead to anything: to a pipe that nobody writes to, to `/dev/zero`, to an image of a disk. Who reads a configuration while it serves
//! others has no time to wait for the first, and no memory for the others. Such names are refused. Errors name the file.

use rustix::fs::{Mode, OFlags, open};
use std::fs::{File, FileType};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Longest file with one secret, in bytes.
const SECRET_MAX: u64 = 4096;

/// The content of a file of at most `most` bytes.
///
/// # Errors
/// The file cannot be read, is no regular file, or is longer.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    contents(path, most).map(|(bytes, _)| bytes).map_err(|e| named(path, &e))
}

/// The text of a file of at most `most` bytes.
///
/// # Errors
/// Those of [`read`]; and of what is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    contents(path, most).and_then(|(bytes, _)| text(bytes)).map_err(|e| named(path, &e))
}

/// The one line of a file that not every user of this machine may read, without its end.
///
/// # Errors
/// Those of [`read_text`]; of a file that every user may read; of one with no line, or with several.
pub fn read_secret(path: &Path) -> io::Result<String> {
    secret(path).map_err(|e| named(path, &e))
}

fn secret(path: &Path) -> io::Result<String> {
    let (bytes, mode) = contents(path, SECRET_MAX)?;
    if mode & 0o007 != 0 {
        let why = format!(
            "every user of this machine may read this secret (mode {:04o}); chmod 600 {}",
            mode & 0o7777,
            path.display()
        );
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    let text = text(bytes)?;
    let line = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    match line {
        "" => Err(wrong("is empty, and a secret has one line")),
        line if line.contains('\n') => Err(wrong("has several lines, and a secret has one")),
        line => Ok(line.to_owned()),
    }
}

/// The bytes, and the file's mode. What is asked of the file is asked of the one that is read, whatever the name leads to by then.
fn contents(path: &Path, most: u64) -> io::Result<(Vec<u8>, u32)> {
    // A pipe without a writer is opened at once, and a terminal does not become this process's.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(wrong(&format!("is {}, not a file", kind(found.file_type()))));
    }
    let long = || wrong(&format!("is longer than {most} bytes"));
    if found.len() > most {
        return Err(long());
    }
    let mut bytes = Vec::with_capacity(found.len() as usize);
    // It may grow meanwhile; files of /proc say that they are empty.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(long());
    }
    Ok((bytes, found.mode()))
}

fn kind(found: FileType) -> &'static str {
    match found {
        found if found.is_dir() => "a directory",
        found if found.is_fifo() => "a pipe",
        found if found.is_char_device() || found.is_block_device() => "a device",
        _ => "something else",
    }
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let line = 1 + e.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
        wrong(&format!("is not UTF-8, in line {line}"))
    })
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn why<T: std::fmt::Debug>(outcome: io::Result<T>) -> String {
        outcome.unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_small_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), Mode::RUSR).unwrap();
        symlink(path("there"), path("back")).unwrap();
        symlink(path("back"), path("there")).unwrap();
        symlink("/dev/zero", path("zero")).unwrap();
        File::create(path("large")).unwrap().set_len(1 << 30).unwrap();
        fs::write(path("bytes"), b"name = 1\n\xff\xfe").unwrap();
        fs::write(path("text"), "name = 1\n").unwrap();
        for (name, says) in [
            ("pipe", "a pipe, not a file"),
            ("back", "symbolic links"),
            ("zero", "a device, not a file"),
            (".", "a directory, not a file"),
            ("large", "longer than 9 bytes"),
            ("none", "No such file"),
        ] {
            let error = why(read(&path(name), 9));
            assert!(error.contains(says) && error.starts_with(&path(name).display().to_string()), "{error}");
        }
        assert!(why(read_text(&path("bytes"), 99)).contains("not UTF-8, in line 2"));
        assert_eq!(read_text(&path("text"), 9).unwrap(), "name = 1\n");
        assert!(why(read_text(&path("text"), 8)).contains("longer than 8 bytes"));
        // Such a file says that it has no bytes, and has some.
        assert!(read_text(Path::new("/proc/self/status"), 1 << 20).unwrap().contains("Pid"));
        assert!(why(read(Path::new("/proc/self/status"), 9)).contains("longer"));
    }

    #[test]
    fn a_secret_is_one_line_that_not_everybody_reads() {
        let dir = tempfile::tempdir().unwrap();
        let file = |text: &str, mode: u32| {
            // Who may not write a file writes another one.
            let path = dir.path().join(format!("{mode:o}-{}", text.len()));
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read_secret(&path)
        };
        assert_eq!(file(" correct horse \r\n", 0o640).unwrap(), " correct horse ");
        assert_eq!(file("correct horse", 0o400).unwrap(), "correct horse");
        for (text, mode, says) in [
            ("correct horse\n", 0o644, "(mode 0644); chmod 600 /"),
            ("\n", 0o600, "is empty"),
            ("correct\nhorse\n", 0o600, "several lines"),
        ] {
            let error = why(file(text, mode));
            assert!(error.contains(says) && !error.contains("horse"), "{error}");
        }
    }
}
