//! The control socket: a request per line, an answer per line. Its own few threads, off the data path.

use crate::control::{Control, ControlError};
use crate::listen::bind_unix;
use henge_api::{LineError, Reply, Request, decode_line, read_line, write_line};
use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest request.
const LINE_MAX: usize = 64 << 10;
/// Most connections at once. Where one more comes, the one that has asked nothing for the longest goes; it may be half a line that it sends.
const CLIENTS_MAX: usize = 32;
/// Where all are being answered, a newcomer waits for so long until one of them is waited for.
const NEWCOMER: Duration = Duration::from_secs(1);
/// A client that says nothing, or takes nothing, for so long is disconnected.
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

struct Client {
    stream: UnixStream,
    /// Since when it is waited for, to ask or to take an answer, unless that is being made.
    since: Option<Instant>,
    /// It has its answers, and may ask again.
    answered: bool,
}

impl Client {
    /// Who has just come is about to ask, and who has just been answered about to take that: they make way for nobody yet.
    fn makes_way(&self) -> bool {
        self.since.is_some_and(|since| self.answered || since.elapsed() >= NEWCOMER)
    }
}

/// Who is connected, by number.
type Connected = BTreeMap<u64, Client>;

#[derive(Default)]
struct Clients {
    all: Mutex<Connected>,
    /// One of them is waited for, or gone.
    changed: Condvar,
}

impl Clients {
    fn all(&self) -> MutexGuard<'_, Connected> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more. False where all are being answered for as long as a newcomer waits.
    fn enter(&self, number: u64, stream: UnixStream, patience: Duration) -> bool {
        let full = |all: &mut Connected| all.len() >= CLIENTS_MAX && !all.values().any(Client::makes_way);
        let waited = self.changed.wait_timeout_while(self.all(), patience, full);
        let (mut all, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if all.len() >= CLIENTS_MAX {
            let waited_for = all.iter().filter(|(_, client)| client.makes_way());
            let waited_for = waited_for.filter_map(|(number, client)| Some((client.since?, *number)));
            let Some((_, longest)) = waited_for.min() else { return false };
            if let Some(Client { stream, .. }) = all.remove(&longest) {
                // Its thread finds the end.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        all.insert(number, Client { stream, since: Some(Instant::now()), answered: false });
        true
    }

    fn waits(&self, number: u64, since: Option<Instant>, answered: bool) {
        if let Some(client) = self.all().get_mut(&number) {
            (client.since, client.answered) = (since, answered);
        }
        self.changed.notify_one();
    }

    fn leave(&self, number: u64) {
        self.all().remove(&number);
        self.changed.notify_one();
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
        if !clients.enter(number, copy, NEWCOMER) {
            continue;
        }
        let (control, theirs, looking) = (control.clone(), Arc::clone(&clients), Arc::clone(&looking));
        let spawned = std::thread::Builder::new().name("henge-control".into()).spawn(move || {
            // A client that goes away or sends what is too long is gone.
            let _ =
                converse(stream, &control, &looking, |since, answered| theirs.waits(number, since, answered));
            theirs.leave(number);
        });
        if spawned.is_err() {
            clients.leave(number);
        }
    }
}

/// `waits` hears since when the client is waited for, and when it is not; and whether it has taken its answers.
fn converse(
    mut stream: UnixStream,
    control: &Control,
    looking: &Looking,
    waits: impl Fn(Option<Instant>, bool),
) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    for asked in 0u64.. {
        waits(Some(Instant::now()), asked > 0);
        let line = read_line(&mut reader, LINE_MAX);
        waits(None, false);
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
        // Who takes no answer makes way as who asks nothing does.
        waits(Some(Instant::now()), false);
        write_line(&mut stream, &reply)?;
        if !goes_on {
            return Ok(());
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().unwrap()
    }

    /// All are being answered when one more comes; then one of them is to take its answer.
    #[test]
    fn a_newcomer_waits_until_somebody_is_waited_for() {
        let clients = Arc::new(Clients::default());
        let mut theirs: Vec<UnixStream> = Vec::new();
        for number in 0..CLIENTS_MAX as u64 {
            let (ours, end) = pair();
            assert!(clients.enter(number, ours, Duration::ZERO));
            clients.waits(number, None, false);
            theirs.push(end);
        }
        assert!(!clients.enter(98, pair().0, Duration::ZERO));
        // One that has come a moment ago, and is about to ask, does not make way for the next.
        clients.leave(31);
        assert!(clients.enter(97, pair().0, Duration::ZERO) && !clients.enter(98, pair().0, Duration::ZERO));
        let also = Arc::clone(&clients);
        let newcomer = std::thread::spawn(move || also.enter(99, pair().0, PATIENCE));
        // Mostly it waits by then; where it has not come yet, it has its place all the same.
        std::thread::sleep(Duration::from_millis(50));
        clients.waits(7, Some(Instant::now()), true);
        assert!(newcomer.join().unwrap());
        assert_eq!(theirs[7].read(&mut [0]).unwrap(), 0, "the one that was waited for has made way");
        assert!(!clients.all().contains_key(&7) && clients.all().contains_key(&99));
    }
}
