//! TCP sockets as the proxy wants them.

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Where descriptors have run out, nobody is accepted for so long: whoever waits would wake the loop without end.
pub const REST: henge_core::Duration = henge_core::Duration::from_millis(100);

/// Whether there is nothing left to accept somebody with.
pub fn lacks_descriptors(e: &io::Error) -> bool {
    use rustix::io::Errno;
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    lacks.iter().any(|errno| e.raw_os_error() == Some(errno.raw_os_error()))
}

/// A connection, begun: whoever is slow to answer, or away, delays nobody else. The poller says how it went.
pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS | rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let socket = TcpStream::from(socket);
    prepare(&socket)?;
    Ok(socket)
}

/// A host that has vanished does not say so: silent connections are asked after this time, and so often again, each as long after the last.
const SILENT: Duration = Duration::from_secs(60);
const ASKED_AGAIN: Duration = Duration::from_secs(10);
const ASKED_MOST: u32 = 6;

/// Never waits, sends small messages at once, and ends when its other end has vanished.
pub fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, SILENT)?;
    sockopt::set_tcp_keepintvl(socket, ASKED_AGAIN)?;
    Ok(sockopt::set_tcp_keepcnt(socket, ASKED_MOST)?)
}

/// A connection that stays on this machine is not paced: congestion control that paces (BBR) sets a timer for each small
/// message, where nothing can be congested.
pub fn unpace_within_machine(socket: &TcpStream) {
    let ends = (socket.local_addr(), socket.peer_addr());
    let within = matches!(ends, (Ok(here), Ok(there)) if here.ip() == there.ip() || there.ip().is_loopback());
    if within {
        // Reno is always there; where it is refused, things go on as the system would have it.
        let _ = rustix::net::sockopt::set_tcp_congestion(socket, "reno");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn connections_within_this_machine_are_not_paced() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("its address")).expect("connected");
        unpace_within_machine(&socket);
        assert_eq!(rustix::net::sockopt::tcp_congestion(&socket).expect("Linux says"), "reno");
    }

    #[test]
    fn who_has_vanished_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = connect(listener.local_addr().expect("its address")).expect("begun");
        let (client, _) = listener.accept().expect("it came");
        prepare(&client).expect("a socket");
        for socket in [&server, &client] {
            assert!(sockopt::socket_keepalive(socket).expect("Linux says"));
            assert_eq!(sockopt::tcp_keepidle(socket).expect("Linux says"), SILENT);
        }
    }

    #[test]
    fn whoever_does_not_answer_delays_nobody() {
        // A listener that is not accepted from: its queue is full, and who comes next is not answered.
        let listener = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        rustix::net::bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        rustix::net::listen(&listener, 0).expect("it listens");
        let listener = TcpListener::from(listener);
        let address = listener.local_addr().expect("its address");
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            tell.send((0..4).map(|_| connect(address).expect("begun")).collect::<Vec<TcpStream>>())
        });
        // The kernel would try for two minutes.
        told.recv_timeout(std::time::Duration::from_secs(30)).expect("nobody was waited for");
    }
}
