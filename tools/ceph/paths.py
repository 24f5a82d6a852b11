"""Initiators and hosts with a way by each gateway."""

import contextlib
import os
import signal
import struct
import sys
import time

from support import STRICT, TOOLS, seated, two_ways, until


class Paths:
    """An initiator or a host with a way by each gateway: what it sends by one that fails, it sends by another, as multipath does."""

    def __init__(self, opens):
        self.opens, self.ways, self.errors = opens, {}, 0
        self.again = {}

    def state(self, name):
        """How the way leads to the disk, as the gateway says: 1 is optimized, 2 is not."""
        way = self.way(name)
        return way and way.state()

    def way(self, name):
        if name not in self.ways and self.again.get(name, 0) <= time.monotonic():
            try:
                self.ways[name] = self.opens[name]()
            except OSError:
                self.again[name] = time.monotonic() + 0.2
        return self.ways.get(name)

    def lose(self, name):
        self.errors += 1
        self.ways.pop(name, None)

    def ask(self, what, seconds=30):
        """By the first way that answers, those that are optimized before the others."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            states = {}
            for name in self.opens:
                with contextlib.suppress(OSError):
                    states[name] = self.state(name)
                if name in self.ways and name not in states:
                    self.lose(name)
            for name in sorted((n for n in states if states[n]), key=lambda n: states[n]):
                try:
                    return what(self.ways[name])
                except OSError:
                    self.lose(name)
            time.sleep(0.05)
        raise SystemExit(f"no way leads to the disk for {seconds} s")


class Initiator:
    """A session of libiscsi."""

    def __init__(self, libiscsi, port, name):
        at = type("At", (), {"address": "127.0.0.1", "iscsi": port})
        self.session = libiscsi.Session(at, "web", os.getpid() & 0xFFFF, name, timeout=8)
        self.told = []
        self.own = self.again(lambda: self.session.page(0x83) and self.session.own_group())

    def again(self, what):
        """Past unit attentions, which are noted."""
        for _ in range(8):
            status = self.session.ready()
            if status == 0:
                return what()
            self.told.append(status)
        raise OSError(f"it says {self.told[-1]} all the time")

    def state(self):
        return {0: 1, 1: 2, 3: 3}[self.again(self.session.groups)[self.own]]

    def others(self):
        return {port: state for port, state in self.again(self.session.groups).items() if port != self.own}

    def write(self, block, byte):
        status = self.again(lambda: self.session.write(block * 8, bytes([byte]) * 4096))
        if status != 0:
            raise OSError(f"a write ended with {status}")

    def read(self, block):
        status, data = self.again(lambda: self.session.read(block * 8, 8))
        if status != 0:
            raise OSError(f"a read ended with {status}")
        return data[0]


class Host:
    """Queues of a host by NVMe/TCP."""

    def __init__(self, nvme, port, host=bytes(16)):
        self.nvme, nqn = nvme, "nqn.2026-11.local.henge:web"
        try:
            self.admin = nvme.Queue(port, nqn, 0, 0xFFFF, host)
            self.admin.run(bytes([0x7F]) + bytes(43) + struct.pack("<II", 0x14, 0x460001), 0)
            self.io = nvme.Queue(port, nqn, 1, self.admin.result & 0xFFFF, host)
        except nvme.Refused as e:
            raise OSError(str(e)) from e
        self.admin.stream.settimeout(8)
        self.io.stream.settimeout(8)

    def run(self, queue, opcode, first, length, data=b"", nsid=1):
        entry = bytearray(64)
        entry[0], entry[4:8] = opcode, struct.pack("<I", nsid)
        entry[40:48] = struct.pack("<Q", first)
        entry[48] = 7 if queue is self.io else 0
        try:
            return queue.run(entry, length, data)[1]
        except self.nvme.Refused as e:
            raise OSError(str(e)) from e

    def state(self):
        return self.run(self.admin, 2, 0x0C | 15 << 16, 64, nsid=0xFFFFFFFF)[32]

    def write(self, block, byte):
        self.run(self.io, 1, block * 8, 0, bytes([byte]) * 4096)

    def read(self, block):
        return self.run(self.io, 2, block * 8, 4096)[0]


def paths(bed):
    """Initiators (iSCSI) and hosts (NVMe/TCP) with a way by each gateway: told which one has the disk, and go on when it is drained or killed."""
    sys.path += [str(TOOLS / "cluster"), str(TOOLS / "security")]
    import libiscsi
    import nvme
    nodes, fronts = two_ways(bed)
    n1, n2 = nodes.values()
    clients = {"NVMe": Paths({name: lambda at=at: Host(nvme, at["nvme"]) for name, at in fronts.items()})}
    if libiscsi.library() is None:
        print("        skipped iSCSI: no libiscsi.so.7")
    else:
        clients["iSCSI"] = Paths({name: lambda name=name, at=at: Initiator(libiscsi, at["iscsi"], name) for name, at in fronts.items()})
    marks, longest = {}, 0.0

    def write(count=8):
        nonlocal longest
        for who, client in clients.items():
            for _ in range(count):
                block, byte = 1 + len(marks), 1 + len(marks) % 250
                began = time.monotonic()
                client.ask(lambda way, block=block, byte=byte: way.write(block, byte))
                longest = max(longest, time.monotonic() - began)
                marks[block] = byte

    def states(expected):
        for who, client in clients.items():
            until(lambda: f"{who} hears {expected}, not { {n: client.state(n) for n in nodes} }",
                  lambda: {n: client.state(n) for n in nodes} == expected, 10)

    write()
    states({"n1": 1, "n2": 2})
    if "iSCSI" in clients:
        assert set(clients["iSCSI"].way("n2").others().values()) == {0}, "n2 says that n1 has it"
    # Drained: no way fails, and each hears which is the better one.
    assert n1.ask(op="drain", on=True).get("error") is None
    while n2.seat() != "n2":
        write(1)
    write()
    states({"n1": 2, "n2": 1})
    assert all(client.errors == 0 for client in clients.values()), {who: client.errors for who, client in clients.items()}
    drained, longest = longest, 0.0
    if "iSCSI" in clients:
        assert (2, 6, 0x2A06) in clients["iSCSI"].way("n2").told, "ASYMMETRIC ACCESS STATE CHANGED"
    assert n1.ask(op="drain", on=False).get("error") is None
    # Killed, each in its turn: the other way goes on, and nothing answered is lost.
    for killed, left in [(n2, n1), (n1, n2)]:
        seated([n1, n2], at=killed.name)
        killed.stop(signal.SIGKILL)
        write()
        for who, client in clients.items():
            until(lambda: f"{who} hears that {left.name} has it", lambda: client.state(left.name) == 1, 10)
        if "iSCSI" in clients:
            way = clients["iSCSI"].way(left.name)
            until(f"{left.name} says that {killed.name} is unavailable", lambda: set(way.others().values()) == {3}, 10)
        wrong = {block: byte for block, byte in marks.items() if clients["NVMe"].ask(lambda way, block=block: way.read(block)) != byte}
        assert not wrong, f"answered and lost: {wrong}"
        killed.start()
        seated([n1, n2])
        states({left.name: 1, killed.name: 2})
        write()
    print(f"        the slowest write: {drained:.2f} s when its gateway was drained, {longest:.1f} s when it was killed")
    assert longest < (5 if STRICT else 15), "initiators go on within 5 s"
