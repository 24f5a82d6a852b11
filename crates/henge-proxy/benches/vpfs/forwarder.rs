//! The peer: bytes from socket to socket through a pipe, one thread for all connections, and nothing else.

use rustix::event::epoll;
use rustix::pipe::SpliceFlags;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One forwarder per server.
pub struct Forwarder {
    pub addresses: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<f64>>,
}

impl Forwarder {
    pub fn start(servers: &[SocketAddr]) -> Forwarder {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut addresses, mut threads) = (Vec::new(), Vec::new());
        for server in servers.iter().copied() {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            addresses.push(listener.local_addr().expect("its address"));
            let stop = stop.clone();
            let named = std::thread::Builder::new().name("forwarder".into());
            let thread = named.spawn(move || {
                run(&listener, server, &stop);
                crate::thread_cpu()
            });
            threads.push(thread.expect("a thread"));
        }
        Forwarder { addresses, stop, threads }
    }

    /// Stops it; its CPU seconds.
    pub fn stop(self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|t| t.join().expect("it ran")).sum()
    }
}

fn run(listener: &TcpListener, server: SocketAddr, stop: &AtomicBool) {
    listener.set_nonblocking(true).expect("a socket");
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    let accept = epoll::EventData::new_u64(u64::MAX);
    epoll::add(&epoll, listener, accept, epoll::EventFlags::IN).expect("epoll");
    let (from, into) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    let capacity = rustix::pipe::fcntl_setpipe_size(&into, 1 << 20).unwrap_or(64 << 10);
    let mut sockets: Vec<[TcpStream; 2]> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let mut events = [std::mem::MaybeUninit::uninit(); 64];
        let tenth = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let (events, _) = epoll::wait(&epoll, &mut events[..], Some(&tenth)).expect("epoll");
        for event in events.iter() {
            let name = event.data.u64();
            if name == u64::MAX {
                let Ok((client, _)) = listener.accept() else { continue };
                let pair = [client, TcpStream::connect(server).expect("the server")];
                for (side, socket) in pair.iter().enumerate() {
                    socket.set_nodelay(true).expect("a socket");
                    let data = epoll::EventData::new_u64((sockets.len() as u64) << 1 | side as u64);
                    epoll::add(&epoll, socket, data, epoll::EventFlags::IN).expect("epoll");
                }
                sockets.push(pair);
                continue;
            }
            let (pair, side) = (&sockets[(name >> 1) as usize], (name & 1) as usize);
            if !forward(&pair[side], &pair[1 - side], &from, &into, capacity) {
                let _ = epoll::delete(&epoll, &pair[side]);
                let _ = pair[1 - side].shutdown(std::net::Shutdown::Write);
            }
        }
    }
}

/// Moves once; false at the end. Writing waits for whoever reads, who always does in this bench.
fn forward(read: &TcpStream, write: &TcpStream, from: &OwnedFd, into: &OwnedFd, capacity: usize) -> bool {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    let mut left = match rustix::pipe::splice(read, None, into, None, capacity, flags) {
        Ok(0) => return false,
        Ok(n) => n,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return true,
        Err(_) => return false,
    };
    while left > 0 {
        match rustix::pipe::splice(from, None, write, None, left, SpliceFlags::MOVE) {
            Ok(n) => left -= n,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}
