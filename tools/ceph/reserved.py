"""Reservations of a disk of two gateways: the table lies with the image, and goes with the seat."""

import contextlib
import os
import signal
import struct
import sys
import threading
import time

from paths import Host
from support import STRICT, TOOLS, Node, qemu_io, run, seated, two_ways, until

CONFLICT, BUSY = 0x18, 8
OURS, THEIRS = 0xA1, 0xB2  # keys


class Way:
    """A session of an initiator by way of one gateway; a lost one is made anew."""

    def __init__(self, libiscsi, at, who):
        self.libiscsi, self.who = libiscsi, who
        self.at = type("At", (), {"address": "127.0.0.1", "iscsi": at})
        self.session = None

    def ask(self, what, seconds=20):
        """Past unit attentions, BUSY, lost connections, and changes of which nobody knows what became of them."""
        end, found = time.monotonic() + seconds, None
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if self.session is None:
                    self.session = self.libiscsi.Session(self.at, "web", os.getpid() & 0xFFFF, self.who, timeout=15)
                found = what(self.session)
                status = found[0] if isinstance(found, tuple) and isinstance(found[0], tuple) else found
                if status != BUSY and not (isinstance(status, tuple) and status[:2] in [(2, 6), (2, 0xB)]):
                    return found
                time.sleep(0.02)
                continue
            self.session = None
            time.sleep(0.1)
        raise SystemExit(f"{self.who}: {found} for {seconds} s")

    def write(self, lba, byte):
        return self.ask(lambda s: s.write(lba, bytes([byte]) * 512))

    def table(self):
        return self.ask(lambda s: s.keys()), self.ask(lambda s: s.reservation())


def register(host, key):
    """A host registers, whatever key it has."""
    entry = struct.pack("<QQ", 0, key)
    command = bytearray(64)
    command[0], command[4], command[40] = 0x0D, 1, 2 | 1 << 3
    host.io.run(command, 0, entry)


def reserved(bed):
    """Registered and reserved at one gateway: the same at the other one when the first is drained, killed, hung; and nobody passes it by."""
    sys.path += [str(TOOLS / "cluster"), str(TOOLS / "security")]
    import libiscsi
    import nvme
    if libiscsi.library() is None:
        return print("        skipped: no libiscsi.so.7")
    nodes, fronts = two_ways(bed)
    n1, n2 = nodes.values()
    ours = {name: Way(libiscsi, at["iscsi"], "ours") for name, at in fronts.items()}
    strangers = {name: Way(libiscsi, at["iscsi"], "stranger") for name, at in fronts.items()}

    def by_nvme(name, byte=9):
        """How a host ends that nobody has registered."""
        host = Host(nvme, fronts[name]["nvme"])
        try:
            host.write(100, byte)
        except OSError as e:
            return str(e)
        return "done"

    def comes(name):
        """How a new initiator's first look at the disk ends."""
        try:
            libiscsi.Session(strangers[name].at, "web", 7, "newcomer", timeout=5).close()
        except OSError as e:
            return str(e)
        return "it is ready"

    # One registers by both gateways, and reserves for registrants by the one without the seat; a host registers, too.
    for way in ours.values():
        assert way.ask(lambda s: s.reserve(0, new=OURS)) == 0
    assert ours["n2"].ask(lambda s: s.reserve(1, kind=5, key=OURS)) == 0
    register(Host(nvme, fronts["n2"]["nvme"], b"host" * 4), THEIRS)
    holds = ([OURS, OURS, THEIRS], (OURS, 5))

    def is_kept(*names):
        for name in names:
            assert ours[name].table() == holds, f"{name}: {ours[name].table()}"
            assert strangers[name].write(8, 1) == CONFLICT, f"a stranger by way of {name}"
            assert by_nvme(name) == "status 0x83", f"a host by way of {name}: {by_nvme(name)}"
            assert ours[name].write(8, 2) == 0, f"a registrant by way of {name}"

    is_kept("n1", "n2")
    # Drained there and back.
    for source, target in [(n1, n2), (n2, n1)]:
        assert source.ask(op="drain", on=True).get("error") is None
        seated([n1, n2], at=target.name)
        assert source.ask(op="drain", on=False).get("error") is None
        is_kept("n1", "n2")
    # Killed: the other one has it by what lies beside the image.
    waits = []
    for killed, left in [(n1, n2), (n2, n1)]:
        seated([n1, n2], at=killed.name)
        killed.stop(signal.SIGKILL)
        ours[killed.name].session = strangers[killed.name].session = None
        began = time.monotonic()
        assert strangers[left.name].write(8, 3) == CONFLICT, "from the first moment on"
        assert ours[left.name].write(8, 4) == 0
        waits.append(time.monotonic() - began)
        assert ours[left.name].ask(lambda s: s.reserve(0, key=OURS, new=OURS)) == 0, "and it changes there"
        is_kept(left.name)
        killed.start()
        seated([n1, n2], at=left.name)
        is_kept("n1", "n2")
    assert max(waits) < (5 if STRICT else 15), f"{waits} s"
    # Hung, with a registrant's write before its storage; meanwhile that registrant is preempted at the other one.
    home = nodes[seated([n1, n2])]
    other = n2 if home is n1 else n1
    mine = "n1" if home is n1 else "n2"
    preempter = Way(libiscsi, fronts[other.name]["iscsi"], "preempter")
    assert ours[mine].write(16, 5) == 0
    home.hang()
    ends = []
    late = threading.Thread(target=lambda: ends.append(late_write(ours[mine].session)))
    late.start()
    assert preempter.ask(lambda s: s.reserve(6, new=0xC3)) == 0
    assert preempter.ask(lambda s: s.reserve(5, kind=1, key=0xC3, new=OURS)) == 0, "PREEMPT AND ABORT"
    assert preempter.write(17, 7) == 0
    home.send(signal.SIGCONT)
    late.join(40)
    assert not late.is_alive() and ends[0] != 0, f"a preempted initiator's write ends: {ends}"
    data = preempter.ask(lambda s: s.read(16))[1]
    assert data == bytes([5]) * 512, "it is not done"
    until(lambda: f"it is said: {home.text()[-1000:]}", lambda: "shut out" in home.text(), 10)
    assert strangers[home.name].write(8, 6) == CONFLICT, "also by way of the gateway that was shut out"
    home.stop(signal.SIGKILL)
    home.start()
    seated([n1, n2])
    holds = ([THEIRS, 0xC3], (0xC3, 1))
    assert (sorted(preempter.table()[0]), preempter.table()[1]) == holds
    # Nobody understands it: closed to initiators and hosts of both, and said; clients by NBD go on; mended, it is read again.
    good = run("rbd", "image-meta", "get", "henge/web", "henge.reservations").rstrip("\n") + "\n"
    for node in [n1, n2]:
        node.stop()
    run("rbd", "image-meta", "set", "henge/web", "henge.reservations", "no reservations")
    for node in [n1, n2]:
        node.start()
    home = nodes[seated([n1, n2])]
    until(lambda: f"it is said: {home.text()[-1000:]}", lambda: 'disk "web" is closed to iSCSI initiators and NVMe hosts' in home.text(), 10)
    for name in nodes:
        strangers[name].session = preempter.session = None
        until(lambda: f"{name} is closed: {comes(name)}", lambda: "0x040c" in comes(name), 10)
        assert "0x30" in by_nvme(name), by_nvme(name)
        qemu_io(nodes[name].uri(), "write -P 7 1M 4k", "read -P 7 1M 4k")
    run("rbd", "image-meta", "set", "henge/web", "henge.reservations", good)
    for name in nodes:
        until(f"{name} is open", lambda: strangers[name].ask(lambda s: s.write(8, bytes(512))) == CONFLICT, 10)
    preempter.session = None
    assert (sorted(preempter.table()[0]), preempter.table()[1]) == holds
    # It goes with the disk, and another disk has none.
    for node in [n2, n1]:
        assert node.ask(op="remove", name="web").get("error") is None
    print(f"        reserved at a killed gateway: kept by the other one from the first moment on, and its registrants go on after {max(waits):.1f} s")


def late_write(session):
    try:
        return session.write(16, bytes([6]) * 512)
    except OSError as e:
        return str(e)
