//! Which threads have a processor before others that want it: those that serve disks.
//!
//! Threads that answer people give way. Who asks a node about itself without a pause keeps a thread busy for each of its connections. The kernel divides a processor
//! among threads, not among tenants. Of 17 threads that want one processor a node's loop would have a seventeenth, and its clients with it.
//!
//! Threads that serve disks want it often and for a moment. Beside them are the kernel's workers, which do what cannot be done at once, such
//! as syncs, and want it for milliseconds. Since Linux 6.12 a thread says how long its turns are to be (sched(7), `sched_runtime`), and whose
//! turns are shorter goes before whoever is in the middle of a longer one.
//!
//! Where the processor is wanted all the time, who wakes often still waits for its part of it. So these threads have three times a worker's part,
//! where they may ask for it: as root, with `CAP_SYS_NICE`, or within `RLIMIT_NICE`. What a worker does for one tenant then keeps
//! the loop from others for less.

/// The least of Linux: about a seventieth of a thread of priority 0, while that wants the processor (sched(7)).
const LEAST: i32 = 19;

/// The calling thread, and each that it starts from now on, takes what others leave. Irrevocable, as raising a priority is a privilege.
pub fn give_way() {
    // On Linux 0 is the calling thread. Lowering is always allowed; what else might fail leaves the thread as it is.
    let _ = rustix::process::setpriority_process(None, LEAST);
}

/// A ninth of a thread of priority 0, while that wants the processor.
const LESS: i32 = 10;

/// The same for work that somebody waits for who is no client yet: less than who is served, more than who only asks.
pub fn give_some_way() {
    let _ = rustix::process::setpriority_process(None, LESS);
}

/// Of the loop's turns most are shorter. The kernel takes no less than this.
const TURN: u64 = 100_000;

/// Three times a thread of priority 0, while that wants the processor.
const MORE: i32 = -5;

/// The calling thread has short turns, and therefore soon, and a larger part of its processor; threads that it starts, and the kernel's workers
/// for it, have ordinary ones. Where an administrator gave it another policy or priority than the ordinary one, that stays.
pub fn go_before_workers() {
    #![allow(unsafe_code)] // neither std nor rustix has these calls
    let size = size_of::<libc::sched_attr>() as libc::c_uint;
    // SAFETY: plain numbers, for which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes `size` bytes at most, and that is how many there are. 0 is the calling thread.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) } == 0;
    if known && attributes.sched_policy == libc::SCHED_OTHER as u32 {
        attributes.sched_runtime = TURN;
        attributes.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
        let own = attributes.sched_nice;
        let nices = if own == 0 { [MORE, own] } else { [own; 2] };
        // The first that is allowed. Older kernels, and policies that forbid both, change nothing.
        for nice in nices {
            attributes.sched_nice = nice;
            // SAFETY: the kernel reads as many bytes as `size` says within them.
            if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } == 0 {
                break;
            }
        }
    }
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

    /// The slice in nanoseconds that the kernel knows of the calling thread, where it shows it.
    fn slice() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/sched").ok()?;
        let line = text.lines().find(|line| line.starts_with("se.slice"))?;
        line.rsplit(':').next()?.trim().parse().ok()
    }

    fn nice() -> i32 {
        rustix::process::getpriority_process(None).unwrap()
    }

    /// Root may raise it, and who else may is said by its limit: whoever may not keeps what it had.
    #[test]
    fn a_thread_has_more_of_its_processor_where_it_may_and_its_children_have_not() {
        let before = nice();
        let may =
            std::thread::spawn(|| rustix::process::setpriority_process(None, MORE).is_ok()).join().unwrap();
        let more = std::thread::spawn(|| {
            go_before_workers();
            (nice(), std::thread::spawn(nice).join().unwrap())
        });
        let want = if may && before == 0 { MORE } else { before };
        assert_eq!(more.join().unwrap(), (want, before.max(0)));
        assert_eq!(nice(), before);
    }

    #[test]
    fn who_was_given_another_priority_keeps_it() {
        let given = std::thread::spawn(|| {
            give_some_way();
            let given = nice();
            go_before_workers();
            (given, nice())
        });
        let (given, kept) = given.join().unwrap();
        assert_eq!(kept, given);
    }

    #[test]
    fn a_thread_has_short_turns_and_its_children_ordinary_ones() {
        let Some(before) = slice() else { return };
        let turns = std::thread::spawn(|| {
            go_before_workers();
            (slice(), std::thread::spawn(slice).join().unwrap())
        });
        let (own, child) = turns.join().unwrap();
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let knows = (numbers.next(), numbers.next()) >= (Some(6), Some(12));
        assert_eq!(own, Some(if knows { TURN } else { before }), "Linux {release}");
        assert_eq!((child, slice()), (Some(before), Some(before)));
    }
}
