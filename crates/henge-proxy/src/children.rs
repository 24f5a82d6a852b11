//! Tests that run themselves again, and those that close sockets: a child has all that is open until it begins its own program.

use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, TryLockError};

static CHILDREN: RwLock<()> = RwLock::new(());

/// While somebody has this, no child begins: what is closed is closed.
pub(crate) fn none_begins() -> RwLockReadGuard<'static, ()> {
    CHILDREN.read().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test alone, in a process of its own that `variable` tells of it.
pub(crate) fn alone(test: &str, variable: &str) {
    let mut again = Command::new(std::env::current_exe().expect("this program"));
    again.args([test, "--exact", "--nocapture"]).env(variable, "1");
    again.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = loop {
        match CHILDREN.try_write() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(std::time::Duration::from_millis(1)),
            _nobody_closes => break again.spawn().expect("it begins"),
        }
    };
    let ended = child.wait_with_output().expect("it runs");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
