//! The control socket: a request per line, an answer per line. Its own few threads, off the data path.

use crate::control::{Control, ControlError};
use crate::listen::bind_unix;
use henge_api::{LineError, Reply, Request, decode_line, read_line, write_line};
use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest request.
const LINE_MAX: usize = 64 << 10;
/// Most connections at once. Where one more comes, the one that has asked nothing for the longest goes; it may be half a line that it sends.
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
        let named = std::thread::Builder::new().name("henge-control".into());
        named.spawn(move || {
            henge_io::give_way();
            serve(&listener, &control);
        })?;
        Ok(Socket { path: path.to_owned() })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Held while a question is answered that changes nothing: those who ask without a pause take the loops' time one after another.
type Looking = Arc<Mutex<()>>;

/// Who is connected, by number; and since when it is waited for, unless it is being answered.
#[derive(Default)]
struct Clients(Mutex<BTreeMap<u64, (UnixStream, Option<Instant>)>>);

impl Clients {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, (UnixStream, Option<Instant>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more. False where all are being answered.
    fn enter(&self, number: u64, stream: UnixStream) -> bool {
        let mut all = self.all();
        if all.len() >= CLIENTS_MAX {
            let waited_for = all.iter().filter_map(|(number, (_, since))| Some(((*since)?, *number)));
            let Some((_, longest)) = waited_for.min() else { return false };
            if let Some((stream, _)) = all.remove(&longest) {
                // Its thread finds the end.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        all.insert(number, (stream, Some(Instant::now())));
        true
    }

    fn waits(&self, number: u64, since: Option<Instant>) {
        if let Some(client) = self.all().get_mut(&number) {
            client.1 = since;
        }
    }
}

/// Runs until the process ends: accepting waits for ever, and costs nothing meanwhile.
fn serve(listener: &UnixListener, control: &Control) {
    let clients = Arc::new(Clients::default());
    let looking = Looking::default();
    for (number, stream) in (0..).zip(listener.incoming()) {
        let copy = stream.and_then(|stream| Ok((stream.try_clone()?, stream)));
        let Ok((copy, stream)) = copy else {
            std::thread::sleep(Duration::from_millis(100)); // out of descriptors
            continue;
        };
        if !clients.enter(number, copy) {
            continue;
        }
        let (control, theirs, looking) = (control.clone(), Arc::clone(&clients), Arc::clone(&looking));
        let spawned = std::thread::Builder::new().name("henge-control".into()).spawn(move || {
            // A client that goes away or sends what is too long is gone.
            let _ = converse(stream, &control, &looking, |since| theirs.waits(number, since));
            theirs.all().remove(&number);
        });
        if spawned.is_err() {
            clients.all().remove(&number);
        }
    }
}

/// `waits` hears since when the client is waited for, and when it is not.
fn converse(
    mut stream: UnixStream,
    control: &Control,
    looking: &Looking,
    waits: impl Fn(Option<Instant>),
) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        waits(Some(Instant::now()));
        let line = read_line(&mut reader, LINE_MAX);
        waits(None);
        let (reply, goes_on) = match line {
            Ok(None) => return Ok(()),
            Ok(Some(request)) => {
                let looks = matches!(request, Request::Status | Request::Meters | Request::Events { .. });
                let _turn = looks.then(|| looking.lock().unwrap_or_else(PoisonError::into_inner));
                (answer(request, control), true)
            }
            Err(e @ LineError::NotUnderstood(_)) => (Reply::not_understood(e), true),
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
