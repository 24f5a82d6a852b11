//! Tests that run themselves again, and those that close sockets: a child has all that is open until it begins its own program.

use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, TryLockError};

static CHILDREN: RwLock<()> = RwLock::new(());

/// While somebody has this, no child begins: what is closed is closed.
pub(crate) fn none_begins() -> RwLockReadGuard<'static, ()> {
    CHILDREN.read().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this process runs `test` alone. Otherwise another one has, and it passed.
pub(crate) fn is_alone(test: &str) -> bool {
    const ALONE: &str = "HENGE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut again = Command::new(std::env::current_exe().expect("this program"));
    again.args([test, "--exact", "--nocapture"]).env(ALONE, "1");
    again.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = loop {
        match CHILDREN.try_write() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(std::time::Duration::from_millis(1)),
            _nobody_closes => break again.spawn().expect("it begins"),
        }
    };
    let ended = child.wait_with_output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stdout);
    print!("{said}");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(said.contains("ok. 1 passed"), "{test} is no test's name");
    false
}
