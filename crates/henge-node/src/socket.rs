//! The control socket: a request per line, an answer per line. Its own few threads, off the data path.

use crate::control::{Reply, Request};
use crate::listen::bind_unix;
use crate::node::{Control, ControlError};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Longest request.
const LINE_MAX: u64 = 64 << 10;
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
    let mut line = Vec::new();
    loop {
        line.clear();
        let n = reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)?;
        if n == 0 {
            return Ok(());
        }
        let whole = line.ends_with(b"\n");
        let reply = if whole || n < LINE_MAX as usize { answer_line(&line, control) } else { too_long() };
        let mut text = serde_json::to_vec(&reply).map_err(io::Error::other)?;
        text.push(b'\n');
        stream.write_all(&text)?;
        if !whole {
            return Ok(());
        }
    }
}

fn too_long() -> Reply {
    Reply::failed(format_args!("a request is at most {LINE_MAX} bytes"))
}

/// What a line of the control socket asks for, done.
pub fn answer_line(line: &[u8], control: &Control) -> Reply {
    let request: Request = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(e) => return Reply::failed(format_args!("not understood: {e}")),
    };
    match control.ask(request) {
        Ok(reply) => reply,
        Err(ControlError::Refused(why)) => Reply::failed(why),
        Err(ControlError::Ended) => Reply::failed("the node is ending"),
    }
}

/// Asks a node by its control socket.
pub fn ask(path: &Path, request: &Request) -> io::Result<Reply> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let mut stream = UnixStream::connect(path).map_err(named)?;
    let mut line = serde_json::to_vec(request).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut text = String::new();
    BufReader::new(stream).read_line(&mut text)?;
    serde_json::from_str(&text).map_err(|e| io::Error::other(format!("the node's answer: {e}")))
}
