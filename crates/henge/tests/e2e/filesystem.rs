//! A file system on a virtual disk survives fsck, where the machine allows FUSE and loop devices.

use crate::support::{Node, have, noise, run, skip, try_run};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The disk as a file, by FUSE.
struct Fuse {
    child: Child,
    mountpoint: std::path::PathBuf,
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let _ = try_run("fusermount3", ["-u", self.mountpoint.to_str().expect("a name in ASCII")]);
        let _ = try_run("fusermount", ["-u", self.mountpoint.to_str().expect("a name in ASCII")]);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the file; false where `nbdfuse` gives up.
fn mounted(fuse: &mut Fuse, file: &Path) -> bool {
    let start = Instant::now();
    while !file.exists() {
        if fuse.child.try_wait().unwrap().is_some() {
            return false;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "nbdfuse neither mounts nor ends");
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

#[test]
fn ext4_through_nbdfuse_and_a_loop_device() {
    const NAME: &str = "ext4_through_nbdfuse_and_a_loop_device";
    if !have(NAME, &["nbdfuse", "losetup", "mkfs.ext4", "fsck.ext4", "mount"]) {
        return;
    }
    let node = Node::start(
        "[[pool]]\nname = \"p\"\npath = \"DIR/p\"\ncapacity = \"128MiB\"\n[[disk]]\nname = \"fs\"\ncapacity = \"64MiB\"\n",
    );
    let mountpoint = node.path("fuse");
    std::fs::create_dir(&mountpoint).unwrap();
    let child = Command::new("nbdfuse")
        .arg(mountpoint.join("disk"))
        .arg(node.uri("fs"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut fuse = Fuse { child, mountpoint: mountpoint.clone() };
    let file = mountpoint.join("disk");
    if !mounted(&mut fuse, &file) {
        skip(NAME, "FUSE");
        return;
    }
    let file = file.to_str().unwrap();
    let device = try_run("losetup", ["--direct-io=on", "-f", "--show", file]);
    if !device.status.success() {
        skip(NAME, "loop devices");
        return;
    }
    let device = String::from_utf8(device.stdout).unwrap().trim().to_owned();
    run("mkfs.ext4", ["-q", "-F", &device]);
    let tree = node.path("tree");
    std::fs::create_dir(&tree).unwrap();
    let mounted = try_run("mount", [&device, tree.to_str().unwrap()]);
    if mounted.status.success() {
        for i in 0..40 {
            std::fs::write(tree.join(format!("file{i}")), noise(10_000 + i * 4321)).unwrap();
        }
        for i in (0..40).step_by(3) {
            std::fs::remove_file(tree.join(format!("file{i}"))).unwrap();
        }
        run("umount", [tree.to_str().unwrap()]);
    } else {
        skip(NAME, "mount, for files");
    }
    run("fsck.ext4", ["-f", "-n", &device]);
    run("losetup", ["-d", &device]);
    drop(fuse);
    node.stop();
}
