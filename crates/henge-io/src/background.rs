//! Threads that answer people give way to threads that serve disks.
//!
//! Who asks a node about itself without a pause keeps a thread busy for each of its connections. The kernel divides a processor among
//! threads, not among tenants. Of 17 threads that want one processor a node's loop would have a seventeenth, and its clients with it.

/// The least of Linux: about a seventieth of a thread of priority 0, while that wants the processor (sched(7)).
const LEAST: i32 = 19;

/// The calling thread, and each that it starts from now on, takes what others leave. Irrevocable, as raising a priority is a privilege.
pub fn give_way() {
    // On Linux 0 is the calling thread. Lowering is always allowed; what else might fail leaves the thread as it is.
    let _ = rustix::process::setpriority_process(None, LEAST);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_and_its_children_give_way_and_no_other() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        let asked = std::thread::spawn(move || {
            give_way();
            (priority(), std::thread::spawn(priority).join().unwrap())
        });
        assert_eq!(asked.join().unwrap(), (LEAST, LEAST));
        assert_eq!(priority(), before);
    }
}
