//! A test double of a PVFS2 server and of its clients: enough to move data by IO and SMALL_IO over real sockets.
#![allow(dead_code, reason = "each test uses its part")]

use henge_proxy::{Config, Handover, Proxy, Stop};
use henge_pvfs2::*;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Bytes of a strip, and of a bulk-data message.
pub const STRIP: u64 = 65_536;
pub const FLOW_BUFFER: usize = 262_144;

/// Reads one framed message.
pub fn read_message(stream: &mut TcpStream) -> io::Result<(Header, Vec<u8>)> {
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header)?;
    let header = Header::parse(&header).ok_or(io::ErrorKind::InvalidData)?;
    let mut payload = vec![0; header.size as usize];
    stream.read_exact(&mut payload)?;
    Ok((header, payload))
}

fn write_data(stream: &mut TcpStream, tag: i64, data: &[u8]) -> io::Result<()> {
    for piece in data.chunks(FLOW_BUFFER) {
        stream.write_all(&Header::expected(tag, piece.len() as u64).to_bytes())?;
        stream.write_all(piece)?;
    }
    Ok(())
}

/// A disk that moves so many bytes a second, one request after another.
#[derive(Debug)]
struct Disk {
    free_at: Mutex<Instant>,
    bytes_per_second: f64,
    /// Who has this has everybody wait.
    held: Mutex<()>,
}

impl Disk {
    fn serve(&self, bytes: usize) {
        drop(self.held.lock());
        let until = {
            let mut free_at = self.free_at.lock().expect("no panic while held");
            *free_at = (*free_at).max(Instant::now())
                + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
            *free_at
        };
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

/// What the server keeps, and saw.
#[derive(Debug, Default)]
pub struct Store {
    pub files: BTreeMap<u64, Vec<u8>>,
    /// Data file and direction of each request, in the order in which they came.
    pub seen: Vec<(u64, Direction)>,
    /// Requests whose connection ended before they were over.
    pub cut: u64,
    /// Bytes that were written and acknowledged, or read, by data file.
    pub moved: BTreeMap<u64, u64>,
}

impl Store {
    /// Bytes of the files from one number up to another.
    pub fn moved_of(&self, files: std::ops::Range<u64>) -> u64 {
        self.moved.range(files.start * 100..files.end * 100).map(|(_, bytes)| bytes).sum()
    }
}

/// A data server.
pub struct Server {
    pub address: SocketAddr,
    pub store: Arc<Mutex<Store>>,
    disk: Arc<Disk>,
}

impl Server {
    /// On a port that the kernel chooses.
    pub fn start(bytes_per_second: f64, config: &str) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let store = Arc::new(Mutex::new(Store::default()));
        let disk =
            Arc::new(Disk { free_at: Mutex::new(Instant::now()), bytes_per_second, held: Mutex::new(()) });
        let (kept, moves, config) = (store.clone(), disk.clone(), config.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (store, disk, config) = (kept.clone(), moves.clone(), config.clone());
                std::thread::spawn(move || serve(stream, &store, &disk, &config));
            }
        });
        Server { address, store, disk }
    }

    /// It moves nothing as long as one has this.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.disk.held.lock().expect("no panic while held")
    }
}

fn serve(mut stream: TcpStream, store: &Mutex<Store>, disk: &Disk, config: &str) -> io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let (header, payload) = read_message(&mut stream)?;
        let request = Request::parse(&payload).map_err(|_| io::ErrorKind::InvalidData)?;
        match (&request.body, request.op) {
            (RequestBody::Io(io), _) => {
                let served = serve_io(&mut stream, header.tag, &request, io, &payload, store, disk);
                store.lock().expect("no panic while held").cut += u64::from(served.is_err());
                served?;
            }
            (_, Op::GetConfig) => stream.write_all(&encode_config(header.tag, config))?,
            _ => return Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Where the bytes of a contiguous access lie in this server's data file.
fn extent(io: &IoRequest) -> (usize, usize) {
    let Distribution::SimpleStripe { strip_size } = io.distribution else {
        panic!("the double stripes simply")
    };
    let stripe = SimpleStripe { strip_size, server_nr: io.server_nr, server_ct: io.server_ct };
    let from = stripe.local(io.file_req_offset);
    (from as usize, stripe.local(io.file_req_offset + io.aggregate_size) as usize)
}

fn serve_io(
    stream: &mut TcpStream,
    tag: i64,
    request: &Request,
    io: &IoRequest,
    payload: &[u8],
    store: &Mutex<Store>,
    disk: &Disk,
) -> io::Result<()> {
    let (from, to) = extent(io);
    let size = {
        let mut store = store.lock().expect("no panic while held");
        store.seen.push((io.handle, io.direction));
        store.files.entry(io.handle).or_default().len()
    };
    match (io.direction, io.small) {
        (Direction::Read, small) => {
            let data = store.lock().expect("no panic while held").files[&io.handle]
                [from.min(size)..to.min(size)]
                .to_vec();
            disk.serve(data.len());
            *store.lock().expect("no panic while held").moved.entry(io.handle).or_default() +=
                data.len() as u64;
            if small {
                return stream.write_all(&encode_small_io_response(
                    tag,
                    request.version,
                    io,
                    size as u64,
                    &data,
                    0,
                ));
            }
            stream.write_all(&encode_io_response(tag, request.version, Ok(size as u64)))?;
            write_data(stream, tag, &data)
        }
        (Direction::Write, true) => {
            put(store, io.handle, from, &payload[payload.len() - io.total_bytes as usize..]);
            disk.serve(io.total_bytes as usize);
            stream.write_all(&encode_small_io_response(
                tag,
                request.version,
                io,
                size as u64,
                &[],
                io.total_bytes,
            ))
        }
        (Direction::Write, false) => {
            stream.write_all(&encode_io_response(tag, request.version, Ok(size as u64)))?;
            let mut at = from;
            while at < to {
                let (header, data) = read_message(stream)?;
                if header.tag != tag {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                disk.serve(data.len());
                put(store, io.handle, at, &data);
                at += data.len();
            }
            stream.write_all(&encode_write_completion(tag, request.version, Ok((to - from) as u64)))
        }
    }
}

fn put(store: &Mutex<Store>, handle: u64, at: usize, data: &[u8]) {
    let mut store = store.lock().expect("no panic while held");
    let file = store.files.entry(handle).or_default();
    file.resize(file.len().max(at + data.len()), 0);
    file[at..at + data.len()].copy_from_slice(data);
    *store.moved.entry(handle).or_default() += data.len() as u64;
}

/// A client process with a connection to each server of a file.
pub struct Client {
    streams: Vec<TcpStream>,
    file: u64,
    tag: i64,
    uid: Option<u32>,
}

impl Client {
    pub fn connect(servers: &[SocketAddr], file: u64) -> Client {
        Client::try_connect(servers, file).expect("a server")
    }

    pub fn try_connect(servers: &[SocketAddr], file: u64) -> io::Result<Client> {
        let streams = servers.iter().map(|s| {
            let stream = TcpStream::connect(s)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(60)))?;
            Ok(stream)
        });
        Ok(Client { streams: streams.collect::<io::Result<_>>()?, file, tag: 1, uid: None })
    }

    /// Speaks protocol 6000, as this user.
    pub fn with_user(mut self, uid: u32) -> Client {
        self.uid = Some(uid);
        self
    }

    fn request(&self, server: usize, direction: Direction, offset: u64, len: u64, small: bool) -> Request {
        let io = IoRequest {
            small,
            direction,
            handle: self.file * 100 + server as u64,
            fs_id: 9,
            server_nr: server as u32,
            server_ct: self.streams.len() as u32,
            distribution: Distribution::SimpleStripe { strip_size: STRIP },
            file_request: FileRequest::contiguous(),
            file_req_offset: offset,
            aggregate_size: len,
            total_bytes: 0,
        };
        let (version, user) = match self.uid {
            Some(uid) => (Version::V6000, Some(Credential { uid, gid: Some(uid) })),
            None => (Version::V7000, None),
        };
        let capability = match user {
            Some(_) => Capability::default(),
            None => {
                Capability { issuer: b"S:s0".to_vec(), handles: vec![self.file], ..Capability::default() }
            }
        };
        let hints = Hints { handle: Some(self.file), ..Hints::default() };
        let op = if small { Op::SmallIo } else { Op::Io };
        Request { version, op, capability, user, hints, body: RequestBody::Io(Box::new(io)) }
    }

    /// The pieces of `data` that belong to each server, in order.
    fn parts(&self, offset: u64, data: &[u8]) -> Vec<Vec<u8>> {
        let mut parts = vec![Vec::new(); self.streams.len()];
        let (mut at, end) = (offset, offset + data.len() as u64);
        while at < end {
            let next = ((at / STRIP + 1) * STRIP).min(end);
            let server = (at / STRIP % self.streams.len() as u64) as usize;
            parts[server].extend_from_slice(&data[(at - offset) as usize..(next - offset) as usize]);
            at = next;
        }
        parts
    }

    /// One write, to all servers of the file.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let parts = self.parts(offset, data);
        let first = self.tag;
        for (server, _) in parts.iter().enumerate().filter(|(_, p)| !p.is_empty()) {
            let request = self.request(server, Direction::Write, offset, data.len() as u64, false);
            self.streams[server].write_all(&encode_io(first + server as i64, &request))?;
        }
        for (server, part) in parts.iter().enumerate().filter(|(_, p)| !p.is_empty()) {
            let tag = first + server as i64;
            let stream = &mut self.streams[server];
            expect(read_message(stream)?, tag, Op::Io)?;
            write_data(stream, tag, part)?;
            expect(read_message(stream)?, tag, Op::WriteCompletion)?;
        }
        self.tag += self.streams.len() as i64;
        Ok(())
    }

    /// One read, from all servers of the file; `data` is what it should be.
    pub fn read_and_compare(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let parts = self.parts(offset, data);
        let first = self.tag;
        for (server, _) in parts.iter().enumerate().filter(|(_, p)| !p.is_empty()) {
            let request = self.request(server, Direction::Read, offset, data.len() as u64, false);
            self.streams[server].write_all(&encode_io(first + server as i64, &request))?;
        }
        for (server, part) in parts.iter().enumerate().filter(|(_, p)| !p.is_empty()) {
            let tag = first + server as i64;
            expect(read_message(&mut self.streams[server])?, tag, Op::Io)?;
            let mut got = Vec::new();
            while got.len() < part.len() {
                let (header, piece) = read_message(&mut self.streams[server])?;
                assert_eq!(header.tag, tag, "data of another request");
                got.extend(piece);
            }
            assert!(got == *part, "server {server} returned other data");
        }
        self.tag += self.streams.len() as i64;
        Ok(())
    }

    /// A write with the data inside the request, to the first server.
    pub fn write_small(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut request = self.request(0, Direction::Write, offset, data.len() as u64, true);
        let RequestBody::Io(io) = &mut request.body else { unreachable!("just built") };
        io.total_bytes = data.len() as u64;
        self.streams[0].write_all(&encode_small_io(self.tag, &request, data))?;
        expect(read_message(&mut self.streams[0])?, self.tag, Op::SmallIo)?;
        self.tag += 1;
        Ok(())
    }
}

fn expect((header, payload): (Header, Vec<u8>), tag: i64, op: Op) -> io::Result<()> {
    assert_eq!(header.tag, tag, "an answer to another request");
    let answered = i32::from_le_bytes(payload[8..12].try_into().expect("four bytes"));
    let status = i32::from_le_bytes(payload[12..16].try_into().expect("four bytes"));
    assert_eq!((answered, status), (op.number(), 0));
    Ok(())
}

/// A proxy on a thread of its own; stops when dropped.
pub struct Running {
    pub addresses: Vec<SocketAddr>,
    stop: Stop,
    thread: Option<std::thread::JoinHandle<Option<Handover>>>,
}

impl Running {
    pub fn start(config: &str) -> Running {
        Self::adopt(config, Handover::default())
    }

    fn adopt(config: &str, left: Handover) -> Running {
        let mut config =
            Config::parse(henge_config::Source::new("proxy.toml", config)).unwrap_or_else(|e| panic!("{e}"));
        config.state_dir = None;
        let mut proxy = Proxy::adopt(config, left).unwrap_or_else(|e| panic!("{e}"));
        let (addresses, stop) = (proxy.addresses(), proxy.stopper());
        let thread = Some(std::thread::spawn(move || {
            proxy.run().expect("the proxy runs");
            proxy.handover()
        }));
        Running { addresses, stop, thread }
    }

    /// Has it hand over to another, of this configuration.
    pub fn hand_over(mut self, config: &str) -> Running {
        self.stop.hand_over();
        let left = self.thread.take().expect("it runs").join().expect("the proxy did not panic");
        Self::adopt(config, left.expect("it was asked to hand over"))
    }
}

impl Running {
    /// Asks it to leave, and waits until it has.
    pub fn leave(self) {
        self.stop.leave();
        let thread = self.thread.as_ref().expect("it runs");
        let begun = Instant::now();
        while !thread.is_finished() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it stays");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        let Some(thread) = self.thread.take() else { return };
        let joined = thread.join();
        if !std::thread::panicking() {
            joined.expect("the proxy did not panic");
        }
    }
}

/// Ports that are free now, each another one. None of those that the kernel gives to connections, or one of these may take it
/// before its listener does.
pub fn free_ports<const N: usize>() -> [u16; N] {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    std::array::from_fn(|_| {
        loop {
            let nth = std::process::id().wrapping_mul(64).wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
            let port = 10_000 + (nth % 20_000) as u16;
            if TcpListener::bind(("127.0.0.1", port)).is_ok() {
                return port;
            }
        }
    })
}

/// Lets threads wait for each other's progress.
#[derive(Default)]
pub struct Progress<T> {
    state: Mutex<T>,
    changed: Condvar,
}

impl<T> Progress<T> {
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.state.lock().expect("no panic while held"));
        self.changed.notify_all();
    }
    /// Waits until `done`; panics after a minute.
    pub fn wait(&self, what: &str, mut done: impl FnMut(&T) -> bool) {
        let state = self.state.lock().expect("no panic while held");
        let (_held, timeout) = self
            .changed
            .wait_timeout_while(state, Duration::from_secs(20), |s| !done(s))
            .expect("no panic while held");
        assert!(!timeout.timed_out(), "waited in vain for {what}");
    }
}

/// Bytes that tell where they belong: the n-th eight count from 31 n + 7 of the file's number, and so 256 of these come again.
pub fn pattern(file: u64, offset: u64, len: usize) -> Vec<u8> {
    const TURN: usize = 256 * 8;
    let skipped = (offset % TURN as u64) as usize;
    let turn = (0..TURN as u64).map(|i| (i / 8 * 31 + file * 7 + i % 8) as u8).collect::<Vec<_>>();
    let mut bytes = turn.repeat((skipped + len).div_ceil(TURN));
    bytes.truncate(skipped + len);
    bytes.split_off(skipped)
}
