//! The control socket: a request per line, an answer per line. Its own few threads, off the data path.

use crate::listen::bind_unix;
use crate::node::{Control, ControlError};
use henge_api::{LineError, Reply, Request, decode_line, read_line, write_line};
use std::io::{self, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Longest request.
const LINE_MAX: usize = 64 << 10;
/// Most connections at once; more are closed at once.
const CLIENTS_MAX: usize = 32;
/// A client that says nothing for so long is disconnected.
const PATIENCE: Duration = Duration::from_secs(60);

/// The socket; it goes when this does.
pub(crate) struct Socket {
    path: PathBuf,
}

impl Socket {
    pub(crate) fn open(path: &Path, control: Control) -> io::Result<Socket> {
        let listener = bind_unix(path)?;
        std::thread::Builder::new().name("henge-control".into()).spawn(move || serve(&listener, &control))?;
        Ok(Socket { path: path.to_owned() })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Runs until the process ends: accepting waits for ever, and costs nothing meanwhile.
fn serve(listener: &UnixListener, control: &Control) {
    let clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            std::thread::sleep(Duration::from_millis(100)); // out of descriptors
            continue;
        };
        if clients.load(Ordering::Relaxed) >= CLIENTS_MAX {
            continue;
        }
        clients.fetch_add(1, Ordering::Relaxed);
        let (control, count) = (control.clone(), Arc::clone(&clients));
        let spawned = std::thread::Builder::new().name("henge-control".into()).spawn(move || {
            // A client that goes away or sends what is too long is gone.
            let _ = converse(stream, &control);
            count.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            clients.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn converse(mut stream: UnixStream, control: &Control) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let (reply, goes_on) = match read_line(&mut reader, LINE_MAX) {
            Ok(None) => return Ok(()),
            Ok(Some(request)) => (answer(request, control), true),
            Err(e @ LineError::NotUnderstood(_)) => (Reply::failed(e), true),
            Err(e @ (LineError::TooLong(_) | LineError::Torn)) => (Reply::failed(e), false),
            Err(LineError::Io(e)) => return Err(e),
        };
        write_line(&mut stream, &reply)?;
        if !goes_on {
            return Ok(());
        }
    }
}

fn answer(request: Request, control: &Control) -> Reply {
    match control.ask(request) {
        Ok(reply) => reply,
        Err(ControlError::Refused(why)) => Reply::failed(why),
        Err(why @ ControlError::Unremembered(_)) => Reply::failed(why),
        Err(ControlError::Ended) => Reply::failed("the node is ending"),
    }
}

/// What a line of the control socket asks for, done.
pub fn answer_line(line: &[u8], control: &Control) -> Reply {
    let whole = [line, b"\n"].concat();
    match decode_line(&whole, LINE_MAX) {
        Ok(request) => answer(request, control),
        Err(e) => Reply::failed(e),
    }
}
