//! The one thread of a page or an API.

use tokio::runtime::Builder;

/// Tasks between two looks at sockets and clocks, and between two at what other threads have woken. A list of thousands of disks is a task of
/// milliseconds: by tokio's own numbers, which are for tasks of microseconds, whoever comes beside such requests waits for 61 tasks to be
/// heard, and for 31 once another thread has made the answer. A look costs a microsecond.
const BETWEEN_LOOKS: u32 = 1;
const BETWEEN_WOKEN: u32 = 2;

/// A runtime of one thread that hears of sockets, and of other threads, after each task or two.
pub fn runtime() -> Builder {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().event_interval(BETWEEN_LOOKS).global_queue_interval(BETWEEN_WOKEN);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::AsyncReadExt;
    use tokio::sync::oneshot;

    /// Beside two tasks that always have work: their turns, at most, until bytes are read that have come, and until another thread's word is heard.
    async fn turns_waited() -> (usize, usize) {
        let turns = Arc::new(AtomicUsize::new(0));
        let now = || turns.load(Ordering::Relaxed);
        for _ in 0..2 {
            let turns = Arc::clone(&turns);
            // It has been woken when it ends its turn: `yield_now` has the runtime look.
            tokio::spawn(std::future::poll_fn(move |cx| {
                turns.fetch_add(1, Ordering::Relaxed);
                cx.waker().wake_by_ref();
                std::task::Poll::<()>::Pending
            }));
        }
        let (mut by_socket, mut by_thread) = (0, 0);
        for round in 0..100 {
            // Each round begins elsewhere between two looks.
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            let (mut says, hears) = std::os::unix::net::UnixStream::pair().unwrap();
            hears.set_nonblocking(true).unwrap();
            let mut hears = tokio::net::UnixStream::from_std(hears).unwrap();
            let read = tokio::spawn(async move { hears.read_u8().await });
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            let since = now();
            says.write_all(b"x").unwrap();
            read.await.unwrap().unwrap();
            by_socket = by_socket.max(now() - since);
            let (tell, told) = oneshot::channel();
            let heard = tokio::spawn(told);
            tokio::task::yield_now().await;
            let since = now();
            std::thread::spawn(move || tell.send(())).join().unwrap().unwrap();
            heard.await.unwrap().unwrap();
            by_thread = by_thread.max(now() - since);
        }
        (by_socket, by_thread)
    }

    #[test]
    fn whoever_comes_beside_long_tasks_is_heard_after_one_or_two() {
        let runtime = runtime().build().unwrap();
        let (by_socket, by_thread) = runtime.block_on(async { tokio::spawn(turns_waited()).await }).unwrap();
        assert!(
            by_socket <= 8 && by_thread <= 8,
            "{by_socket} turns until a socket is heard, {by_thread} until a thread is"
        );
    }
}
