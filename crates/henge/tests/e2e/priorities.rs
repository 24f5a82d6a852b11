//! Whose threads have the processor first.

use crate::support::Node;

/// Whoever asks a node about itself without a pause takes what its disks leave (test-hostile `questions-about-everything` measures it).
#[test]
fn threads_that_answer_give_way_and_the_loop_does_not() {
    let node = Node::start("[[pool]]\nname = \"m\"\nmemory = true\ncapacity = \"8MiB\"\n");
    node.status(); // so the control socket's thread has begun
    let tasks = std::fs::read_dir(format!("/proc/{}/task", node.pid())).unwrap();
    // A thread that ends meanwhile has no file any more.
    let stats: Vec<String> =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok()).collect();
    // NUMBER (NAME) STATE …; the nice value is the 17th field after the name (proc_pid_stat(5)).
    let read = |stat: &str| -> Option<(String, i32)> {
        let (head, rest) = stat.rsplit_once(')')?;
        Some((head.split_once('(')?.1.to_owned(), rest.split_whitespace().nth(16)?.parse().ok()?))
    };
    let nice = |name: &str| -> Vec<i32> {
        stats.iter().filter_map(|stat| read(stat)).filter(|(of, _)| of == name).map(|(_, n)| n).collect()
    };
    let own = read(&std::fs::read_to_string("/proc/self/stat").unwrap()).expect("Linux says").1;
    assert!(!nice("henge-control").is_empty() && nice("henge-control").iter().all(|n| *n == 19));
    // Priorities are a privilege: of whoever has CAP_SYS_NICE (23), and within RLIMIT_NICE of others, which is not looked at here.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("Linux says");
    let may = u64::from_str_radix(effective.trim(), 16).unwrap() >> 23 & 1 == 1;
    let loops = nice("henge-node");
    let allowed = if own != 0 {
        vec![own]
    } else if may {
        vec![-5]
    } else {
        vec![0, -5]
    };
    assert!(loops.len() == 1 && allowed.contains(&loops[0]), "{loops:?}, of {allowed:?}");
    node.stop();
}
