"""Parts: sites of other kinds than the usual one."""

import contextlib
import os
import shutil
import signal
import socket
import threading
import time

from load import CLEAN, EVEN, bed
from support import MOUNT, until
from wire import READ, File, Wire


def systems(dir):
    """Several file systems at the same servers, each with its own mount."""
    with bed(dir, EVEN, datas=2, systems=2) as b:
        for app in b.servers.apps:
            for mount in (MOUNT, f"{MOUNT}2"):
                there, back = b.dir / "there", b.dir / "back"
                there.write_bytes(os.urandom(3 << 20))
                b.run(app, "pvfs2-cp", there, f"{mount}/{app}")
                b.run(app, "pvfs2-cp", f"{mount}/{app}", back)
                assert back.read_bytes() == there.read_bytes(), mount
                back.unlink()
            b.run(app, "pvfs2-statfs", "-m", f"{MOUNT}2")
        assert b.counts() == CLEAN, b.counts()
        assert all(bytes >= 4 * (3 << 20) for app, bytes in b.moved().items() if app in b.servers.apps), b.moved()


def six(dir):
    """Whoever comes by IPv6, and proxies that know each other by it; servers and clients of OrangeFS know IPv4 alone."""
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
            port = s.getsockname()[1]
    except OSError:
        return "skipped: no IPv6"
    tables = f'[[listen]]\naddress = "[::1]:{port}"\n[[rule]]\nclient = "::1"\nflow = "two"\n'
    with bed(dir, EVEN, metas=0, datas=0, both=1, tables=tables) as b:
        b.copied("one", 1 << 20, "f")
        file, wire = File(b, "one", "f"), Wire(port, "::1")
        wire.io(READ, file, 1 << 20)
        assert wire.answer()[2] == 0
        left = 1 << 20
        while left:
            left -= len(wire.message()[1])
        assert b.moved()["two"] == 1 << 20 and b.counts() == CLEAN, b.moved()
    with bed(dir, EVEN, datas=3, sync="{ predict = { every = \"1MiB\" } }", link="[::1]") as b:
        b.copied("one", 8 << 20)
        b.copied("two", 8 << 20)
        assert b.counts() == CLEAN and all(b.proxies[name].status()["messages_received"] for name in ("d0", "d1", "d2")), b.proxies["d0"].status()


def buffers(dir):
    """Servers that move data by small and by large messages."""
    for size in [4096, 16_384, 1 << 20, 8 << 20]:
        with bed(dir, EVEN, datas=2, options=f"FlowBufferSizeBytes {size}") as b:
            for length in [1, 65_537, (3 << 20) + 5]:
                b.copied("one", length)
            b.copied("two", 24 << 20, None, "-b", str(20 << 20))
            assert b.counts() == CLEAN, (size, b.counts())
            assert b.moved()["two"] >= 2 * (24 << 20), (size, b.moved())
            until("the proxies are at rest", lambda: all(proxy.status()["in_flight"] == 0 for proxy in b.proxies.values()))


def restarts(dir):
    """Servers that stop and start again, one after another, while applications copy: whoever is there afterwards is served, and nothing stays behind."""
    with bed(dir, EVEN, datas=2) as b:
        stop, ended = threading.Event(), []

        def copies(app):
            while not stop.is_set():
                process = b.begin(app, "pvfs2-cp", f"{MOUNT}/{app}", b.dir / f"taken-{app}")
                try:
                    process.communicate(timeout=100)
                    ended.append(process.returncode)
                except Exception:
                    process.kill()
                    process.wait()
                    ended.append("hung")

        for app in b.servers.apps:
            b.copied(app, 16 << 20, app)
        threads = [threading.Thread(target=copies, args=(app,)) for app in b.servers.apps * 2]
        [thread.start() for thread in threads]
        for _ in range(2):
            for name in ("d0", "m0", "d1"):
                b.servers.kill(name, signal.SIGTERM)
                time.sleep(0.7)
                b.servers.start(name)
                time.sleep(1)
        stop.set()
        [thread.join() for thread in threads]
        failed = sum(code != 0 for code in ended)
        away = sum(proxy.status()["unreachable"] for proxy in b.proxies.values())
        print(f"    {len(ended)} copies, {failed} failed; {away} connections found no server", flush=True)
        assert "hung" not in ended
        for app in b.servers.apps:
            b.copied(app, 4 << 20)
        until("nothing stays behind", lambda: all(proxy.status()["in_flight"] == 0 for proxy in b.proxies.values()), 20)
        counts = b.counts()
        assert counts.pop("unanswered") >= 0 and counts == {key: 0 for key in counts}, counts


def users(dir):
    """One port for everybody: rules tell users apart, by the capability that each was given, also of files that grow out of their first server."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return "skipped: it takes root, and setpriv"
    rules = "".join(f"[[rule]]\nuser = {uid}\nflow = \"{flow}\"\n" for uid, flow in [(20_001, "one"), (20_002, "two")])
    size = 3 << 20
    for stuffing in ["no", "yes"]:
        with bed(dir, {"one": "weight = 1", "two": "weight = 1", "all": "weight = 1"}, metas=0, datas=0, both=3, stuffing=stuffing, tables=rules,
                 sync="{ predict = { every = \"1MiB\" } }", by_rule=["all"]) as b:
            for path in [b.dir, b.dir.parent]:
                path.chmod(0o755)
            there = b.dir / "there"
            for uid, app in [(20_001, "one"), (20_002, "two")]:
                there.write_bytes(os.urandom(size))
                back = b.dir / f"back-{uid}"
                as_user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
                back.touch()
                os.chown(back, uid, uid)
                cp = b.client / "bin" / "pvfs2-cp"
                for words in [(there, f"{MOUNT}/{app}"), (f"{MOUNT}/{app}", back)]:
                    # In small calls: it grows while it is open.
                    b.run("all", shutil.which(as_user[0]), *as_user[1:], cp, "-b", 40_000, *words)
                assert back.read_bytes() == there.read_bytes()
            moved = b.moved()
            print(f"    stuffing {stuffing}: {moved}", flush=True)
            assert moved["one"] >= 2 * size and moved["two"] >= 2 * size and moved["other"] == 0, moved
            assert b.counts() == CLEAN, b.counts()


PARTS = [systems, six, buffers, restarts, users]
