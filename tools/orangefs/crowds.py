"""Parts: an application that asks as much as it can, lists that are too long, links that stand still or are cut, a thousand clients."""

import contextlib
import subprocess
import threading
import time

import asks
from forwarder import Forwarder
from load import CLEAN, EVEN, ONE_TO_FOUR, asking, asks_on, bed, program, reads, small_reads, taken
from support import MOUNT, until
from wire import READ, File, Wire, vector


def metadata(dir):
    """Beside as much metadata of each kind as a neighbour can ask for, a promised rate is kept, and a weight has its part of the server."""
    promised = 20
    for scheduler, flows, least in [("edf = { depth = 4 }", {"one": "pending = 64", "two": f"rate = \"{promised}MB/s\", latency = \"50ms\""}, None),
                                    ("sfq = { depth = 4 }", ONE_TO_FOUR, 0.4)]:
        with bed(dir, flows, metas=0, datas=0, both=1, scheduler=scheduler) as b:
            for app in b.servers.apps:
                b.copied(app, 16 << 20, app)
            mine, theirs = File(b, "two", "two"), File(b, "one", "one")
            asks.find_entries(Wire(b.servers.proxy_port["b0"]["one"]), theirs)
            end, moved = asking(b, "two", mine, small_reads if least is None else reads, 2, 4, "b0")

            def rate(seconds):
                before = sum(moved)
                time.sleep(seconds)
                return (sum(moved) - before) / seconds / 1e6

            time.sleep(1)
            wrong = []
            for kind in asks.KINDS:
                alone = rate(2)
                over, answered = asks_on(b, "b0", "one", theirs, kind, 8, 8)
                time.sleep(0.5)
                due = 0.9 * min(promised, alone) if least is None else least * alone
                # The machine has others, too: one of three looks does.
                for _ in range(3):
                    before = len(answered)
                    beside = rate(3)
                    each = (len(answered) - before) / 3
                    if each and beside >= due:
                        break
                print(f"    {scheduler.split()[0]}: beside {kind.__name__}, {each:.0f} a second: {beside:.0f} MB/s, alone {alone:.0f}", flush=True)
                over()
                if not each or beside < due:
                    wrong.append((kind.__name__, each, beside))
            end()
            assert not wrong, wrong
            assert b.counts() == CLEAN, b.counts()
            until("the proxy is at rest", lambda: b.proxies["b0"].status()["in_flight"] == 0)


def pieces(dir):
    """A list that is too long is answered with an error, by which the library of clients ends it, and others go on."""
    with bed(dir, EVEN, datas=1, more="pieces_max = 1000") as b:
        b.copied("one", 1 << 20, "f")
        file, wire = File(b, "one", "f"), Wire(b.servers.proxy_port["d0"]["one"])
        wire.socket.settimeout(20)
        for blocks, status in [(1001, -(42 | 1 << 30)), (1000, 0)]:
            wire.io(READ, file, blocks, tree=vector(blocks, 1, 7))
            answer = wire.answer()
            assert answer[1:3] == (3, status), answer
        client = program(dir)
        if client:
            said = b.run("one", client, MOUNT, "lib", fails=True, seconds=180)
            assert "too long" in said.lower(), said[-500:]
        b.copied("one", 1 << 20)
        assert b.counts() == CLEAN and b.proxies["d0"].status()["too_long"] > 0


def cuts(dir):
    """Links that stand still in the middle of transfers and heal, and links that are cut: what is written comes back, and nothing stays behind."""
    with bed(dir, EVEN, datas=1) as b:
        link = Forwarder(b.servers.proxy_port["d0"]["one"])
        b.servers.conf.write_text(b.servers.conf.read_text().replace(
            f"tcp-one://127.0.0.1:{b.servers.proxy_port['d0']['one']}", f"tcp-one://127.0.0.1:{link.port}"))
        for name in b.servers.names:
            b.servers.kill(name)
            b.servers.start(name)
        try:
            b.copied("one", 1 << 20)
            stop = threading.Event()

            def stands_still():
                while not stop.wait(0.3):
                    link.pause(0.4)

            thread = threading.Thread(target=stands_still)
            thread.start()
            for _ in range(3):
                b.copied("one", 16 << 20)
            stop.set()
            thread.join()
            assert b.counts() == CLEAN, b.counts()
            failed = 0
            for _ in range(5):
                process = b.begin("one", "pvfs2-cp", f"{MOUNT}/copy1", taken(b, "one"))
                time.sleep(0.05)
                link.cut()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=30)
                process.kill()
                failed += process.wait() != 0
            print(f"    {failed} of 5 copies failed whose link was cut", flush=True)
            b.copied("one", 4 << 20)
            until("nothing stays behind", lambda: b.proxies["d0"].status()["in_flight"] == 0)
        finally:
            link.close()


def crowd(dir):
    """A thousand clients at once, each with a request under way, and a copy beside them."""
    with bed(dir, EVEN, datas=1, more="connections = 2000") as b:
        b.copied("one", 1 << 20, "f")
        file = File(b, "one", "f")
        wires = [Wire(b.servers.proxy_port["d0"]["one"]) for _ in range(1000)]
        begun = time.monotonic()
        for wire in wires:
            asks.noop(wire, file)
            wire.io(READ, file, 65_536)
        b.copied("two", 4 << 20)
        beside = time.monotonic() - begun
        for wire in wires:
            wire.socket.settimeout(60)
            left = 65_536
            while left:
                _, payload = wire.message()
                left -= len(payload) if len(payload) > 1000 else 0
        print(f"    1000 clients, 2000 requests in {time.monotonic() - begun:.1f} s; a copy beside them {beside:.1f} s", flush=True)
        [wire.close() for wire in wires]
        assert beside < 20 and b.counts() == CLEAN, (beside, b.counts())
        until("they are gone", lambda: b.proxies["d0"].status()["connections"] < 10)


PARTS = [metadata, pieces, cuts, crowd]
