"""What an administrator does to an image, by Ceph's own commands, while a node serves it."""

import json
import re
import subprocess

from support import Node, qemu_io, run, until


def said(node, words):
    until(lambda: f"it is said: {words}: {node.text()[-1000:]}", lambda: words in node.text(), 15)


def attempt(*command):
    """A command that may fail: what it said, and whether it did."""
    done = subprocess.run(["timeout", "-k", "1", "60", *command], capture_output=True, text=True)
    return done.returncode == 0, done.stdout + done.stderr


def outside(bed):
    """Removed, renamed, rolled back, its lock switched off, its header gone, the node blocklisted."""
    node = Node(bed, "n", '[[disk]]\nname = "web"\ncapacity = "64MiB"')
    qemu_io(node.uri(), "write -P 1 0 1M", "flush")
    # Whoever removes it hears that it is in use, and so does who rolls it back: it is locked.
    for command in [["rbd", "rm", "--no-progress", "henge/web"], ["rbd", "trash", "mv", "henge/web"]]:
        done, out = attempt(*command)
        assert not done, f"{command}: {out}"
        qemu_io(node.uri(), "read -P 1 0 1M", "write -P 2 1M 4k")
    run("rbd", "snap", "create", "--no-progress", "henge/web@1")
    qemu_io(node.uri(), "write -P 3 0 1M")
    done, out = attempt("rbd", "snap", "rollback", "--no-progress", "henge/web@1")
    assert not done, out
    qemu_io(node.uri(), "read -P 3 0 1M")
    run("rbd", "snap", "purge", "--no-progress", "henge/web")
    # Renamed: served on; who begins again says that it is missing, and makes none.
    run("rbd", "rename", "henge/web", "henge/renamed")
    qemu_io(node.uri(), "write -P 4 0 1M", "read -P 4 0 1M")
    node.stop()
    node.start()
    said(node, "no image \"web\" any more")
    assert "web" not in run("rbd", "ls", "henge").split()
    run("rbd", "rename", "henge/renamed", "henge/web")
    node.stop()
    node.start()
    qemu_io(node.uri(), "read -P 4 0 1M")
    # Its lock is switched off: said at the next write; then anybody rolls it back, and no hole is taken for known.
    run("rbd", "snap", "create", "--no-progress", "henge/web@2")
    qemu_io(node.uri(), "discard 0 4M", "read -P 0 0 1M")
    run("rbd", "feature", "disable", "henge/web", "fast-diff", "object-map", "exclusive-lock")
    qemu_io(node.uri(), "write -P 5 8M 4k")
    said(node, "exclusive-lock was switched off")
    run("rbd", "snap", "rollback", "--no-progress", "henge/web@2")
    qemu_io(node.uri(), "read -P 4 0 1M")
    holes = json.loads(run("qemu-img", "map", "--output=json", "-f", "raw", node.uri()))
    assert all(part["data"] for part in holes), holes
    run("rbd", "snap", "purge", "--no-progress", "henge/web")
    assert node.ask(op="remove", name="web").get("error") is None
    # Without its header nobody can open it any more; who has it open loses no answered write.
    assert node.add("torn") is None
    qemu_io(node.uri("torn"), "write -P 6 0 1M")
    id = json.loads(run("rbd", "info", "henge/torn", "--format", "json"))["id"]
    run("rados", "-p", "henge", "rm", f"rbd_header.{id}")
    done, out = attempt("qemu-io", "-f", "raw", node.uri("torn"), "-c", "write -P 7 0 1M")
    there = [byte for byte in [6, 7] if "verification failed" not in qemu_io(node.uri("torn"), f"read -P {byte} 0 1M", fails=None)]
    assert there == [7] or there == [6] and not done, f"{out} {there}"
    assert node.child.poll() is None, node.text()[-2000:]
    error = node.ask(op="remove", name="torn").get("error")
    print(f"        an image without its header: {out.strip().splitlines()[-1] if out.strip() else 'served on'}; removed: {error or 'well'}")
    node.stop()
    # Blocklisted by hand.
    node = Node(bed, "two", '[[disk]]\nname = "db"\ncapacity = "64MiB"')
    qemu_io(node.uri("db"), "write -P 8 0 1M")
    address = re.search(r"watcher=(\S+)", run("rbd", "status", "henge/db")).group(1)
    run("ceph", "osd", "blocklist", "add", address)
    until("it serves nothing", lambda: not attempt("qemu-io", "-f", "raw", node.uri("db"), "-c", "write -P 9 8M 1M")[0], 20)
    said(node, "blocklisted")
    qemu_io(node.uri("db"), "read 0 4k", fails=True)
    node.stop()
    node.start()
    qemu_io(node.uri("db"), "read -P 8 0 1M", "write -P 9 0 1M", "read -P 9 0 1M")
