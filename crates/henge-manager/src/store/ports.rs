//! Ports for servers of tests that take no port 0, or whose port must be theirs while they are away.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// An address that nobody has now, and another one each time. None of those that the kernel gives to connections, or one of these may take it first.
pub(crate) fn free() -> SocketAddr {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    loop {
        let nth = std::process::id().wrapping_mul(64).wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
        let address = SocketAddr::from(([127, 0, 0, 1], 10_000 + (nth % 20_000) as u16));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
