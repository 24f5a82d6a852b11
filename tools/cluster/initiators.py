"""Initiators with sessions by way of two nodes: one disk, one table of reservations, and what becomes of both when a node goes."""

import glob, os, signal, subprocess, threading, time
from support import *
import libiscsi
from libiscsi import BUSY, CHECK, CONFLICT, GOOD, PREFIX, UNAVAILABLE, Session

REGISTER, RESERVE, RELEASE, PREEMPT, PREEMPT_ABORT = 0, 1, 2, 4, 5
EXCLUSIVE, REGISTRANTS = 1, 5  # write exclusive; the same, registrants only
PREEMPTED, ACCESS_CHANGED, CAPACITY_CHANGED = 0x2A05, 0x2A06, 0x2A09
CLEAR_TASKS, UNIT_RESET, WARM_RESET, COLD_RESET = 4, 5, 6, 7
CLEARED, RESET = 0x2F00, 0x2903
MIB = 1 << 20


def nodes(directory):
    """n1 and n2 with half of "web" each; "one" lies on n1 alone, "slow" takes its time there; n2 reaches both."""
    both = [Node(directory, "n1"), Node(directory, "n2")]
    for node in both:
        node.iscsi = free_port()
    for node in both:
        pool = f'[[pool]]\nname = "p"\npath = "{directory}/{node.name}.pool"\ncapacity = "256MiB"\ndirect = false\n'
        disk = '[[disk]]\nname = "{}"\npools = [{}]\ncapacity = "{}"\n{}'
        disks = disk.format("web", '"n1/p", "n2/p"', "24MiB", 'stripe = "64KiB"\n')
        disks += disk.format("one", '"n1/p"', "16MiB", 'through = ["n2"]\n')
        disks += disk.format("slow", '"n1/p"', "16MiB", 'through = ["n2"]\n'
                             'contract = { limit = "64KiB/s", burst = "64KiB" }\ncommands = { quantum = "1MiB" }\n')
        if node.name == "n1":
            disks += '[[disk]]\nname = "lone"\npool = "p"\ncapacity = "16MiB"\n'
        peers = [(n.name, n.link_address(), f"{n.address}:{n.iscsi}") for n in both if n is not node]
        node.write(peers, pool + disks)
    return both


def run():
    if libiscsi.library() is None:
        return skip("initiators", "libiscsi.so.7 (package libiscsi7)")
    with Directory() as directory:
        n1, n2 = both = nodes(directory)
        try:
            for node in both:
                node.start()
            until("both are linked", lambda: n1.is_linked() and n2.is_linked())
            until("n2 acts by n1's reservations", lambda: usable(n2, "one") and usable(n2, "web"))
            one_disk(n1, n2)
            one_table(n1, n2)
            aborts(n1, n2)
            resets(n1, n2)
            stands_still(n1, n2)
            node_dies(n1, n2)
            keeper_dies(n1, n2)
            grows(n1)
        finally:
            for node in both:
                if node.process:
                    node.process.send_signal(signal.SIGCONT)
                    node.stop()


def usable(node, disk):
    try:
        session = Session(node, disk, 99, "probe", timeout=5)
    except ConnectionError:
        return False
    try:
        return session.ready() == GOOD
    finally:
        session.close()


def have_qemu(what, url):
    """QEMU, with its driver for iSCSI."""
    if not have(what, "qemu-io", "qemu-img"):
        return False
    if subprocess.run(["timeout", "30", "qemu-img", "info", url], capture_output=True).returncode == 0:
        return True
    skip(what, "QEMU's iSCSI driver (package qemu-block-extra)")
    return False


def settle(session):
    """Hears what there is to hear."""
    until("a session is ready", lambda: session.ready() == GOOD)


def patient(session, action, **more):
    """A change may come just when the link is being made: BUSY is asked again."""
    for _ in range(50):
        status = session.reserve(action, **more)
        if status != BUSY:
            return status
        time.sleep(0.1)
    return status


def one_disk(n1, n2):
    a, b = Session(n1, "web", 1, "a"), Session(n2, "web", 2, "b")
    check("one name by both nodes", a.world_wide_name() == b.world_wide_name(), a.world_wide_name())
    check("one serial number", a.page(0x80) == b.page(0x80) and len(a.page(0x80)) > 4, a.page(0x80)[4:].decode())
    check("both tell of both groups", a.groups() == b.groups() == {a.own_group(): 0, b.own_group(): 0}, b.groups())
    data = bytes(random.Random(5).randbytes(4 * 65536))
    check("what is written by n1 ...", a.write(64, data) == GOOD and a.flush() == GOOD)
    check("... is read by n2", b.read(64, len(data) // 512) == (GOOD, data))
    check("and the other way", b.write(9, data[:1024]) == GOOD and a.read(9, 2) == (GOOD, data[:1024]))
    # 64 blocks before and behind the border of two places
    check("ORWRITE over two places", a.write(64, b"\x01" * 65536) == GOOD and b.orwrite(64, b"\x82" * 65536) == GOOD
          and a.read(64, 128) == (GOOD, b"\x83" * 65536))
    check("COMPARE AND WRITE within one", b.compare_and_write(64, b"\x83" * 512, b"\x05" * 512) == GOOD
          and b.compare_and_write(64, b"\x83" * 512, b"\x06" * 512)[:2] == (CHECK, 0xE) and a.read(64) == (GOOD, b"\x05" * 512))
    check("COMPARE AND WRITE over two places is refused in words",
          b.compare_and_write(127, b"\x83" * 1024, b"\x06" * 1024) == (CHECK, 5, 0x2400))
    check("a flush by n2 reaches both homes", b.flush() == GOOD)
    url = f"iscsi://{n2.address}:{n2.iscsi}/{PREFIX}:web/0"
    if have_qemu("QEMU by n2", url):
        done = subprocess.run(["timeout", "60", "qemu-io", "-f", "raw", "-c", "write -P 7 1M 256k", "-c", "flush",
                               "-c", "read -P 7 1M 256k", url], capture_output=True, text=True)
        check("qemu-io by n2", done.returncode == 0, done.stderr.strip()[-80:])
        check("what it wrote is read by n1", a.read(2048, 512) == (GOOD, bytes([7]) * 262144))
    if have("iscsi-inq by both", "iscsi-inq"):
        serial = [subprocess.run(["timeout", "20", "iscsi-inq", "-e", "1", "-c", "128", u], capture_output=True, text=True).stdout
                  for u in (url, url.replace(f":{n2.iscsi}/", f":{n1.iscsi}/"))]
        check("iscsi-inq shows one serial number", serial[0] == serial[1] and "Serial" in serial[0], serial[0].split()[-1])
    alone = Session(n1, "lone", 1, "a")
    check("one physical block by both nodes, and of a disk of one node", a.physical_block() == b.physical_block() == alone.physical_block() == 512)
    for session in (a, b, alone):
        session.close()


def one_table(n1, n2):
    a, b, c = Session(n1, "web", 1, "a"), Session(n2, "web", 2, "b"), Session(n2, "web", 3, "c")
    block = bytes(512)
    check("registered by n1", patient(a, REGISTER, new=1) == GOOD)
    check("seen by n2", b.keys() == [1], b.keys())
    check("registered by n2", b.reserve(REGISTER, new=2) == GOOD and a.keys() == [1, 2], a.keys())
    check("reserved by n1", a.reserve(RESERVE, EXCLUSIVE, key=1) == GOOD)
    check("n2 says so", b.reservation() == (1, EXCLUSIVE), b.reservation())
    check("who is registered by n2 does not write", b.write(0, block) == CONFLICT)
    check("nor who is not", c.write(0, block) == CONFLICT)
    check("both read", b.read(0)[0] == GOOD and c.read(0)[0] == GOOD)
    check("the holder writes", a.write(0, block) == GOOD)
    check("n2's initiator cannot release it", b.reserve(RELEASE, EXCLUSIVE, key=2) == GOOD and b.write(0, block) == CONFLICT)
    check("it preempts", b.reserve(PREEMPT, REGISTRANTS, key=2, new=1) == GOOD)
    check("the holder is told by n1", a.attention(PREEMPTED))
    check("and does not write any more", a.write(0, block) == CONFLICT)
    check("the new one does", b.write(0, block) == GOOD)
    check("a wrong key conflicts", a.reserve(RESERVE, EXCLUSIVE, key=1) == CONFLICT)
    check("registered anew, it writes too", a.reserve(REGISTER, new=3) == GOOD and a.write(0, block) == GOOD)
    begun = time.monotonic()
    for _ in range(50):
        b.reserve(REGISTER, key=2, new=2)
    each = (time.monotonic() - begun) / 50
    check("a change by way of another node, with its file", each < 0.5, f"{each * 1000:.1f} ms")
    check("all leave", a.reserve(REGISTER, key=3) == GOOD and b.reserve(REGISTER, key=2) == GOOD and a.keys() == [])
    for session in (a, b, c):
        session.close()


def aborts(n1, n2):
    """PREEMPT AND ABORT by n1 while a write by n2 waits in its queue: it is not done afterwards."""
    a, b = Session(n1, "slow", 1, "a"), Session(n2, "slow", 2, "b", timeout=4)
    check("both register", patient(a, REGISTER, new=1) == GOOD and patient(b, REGISTER, new=2) == GOOD)
    ended = []

    def write():
        try:
            ended.append(b.write(0, b"x" * 65536))
        except ConnectionError as why:
            ended.append(str(why))

    # What is beyond the limit is waited for by the next one: eight seconds.
    check("a long write is let through", b.write(4096, b"y" * (MIB // 2)) == GOOD)
    writer = threading.Thread(target=write)
    writer.start()
    time.sleep(1.0)
    begun = time.monotonic()
    status = a.reserve(PREEMPT_ABORT, REGISTRANTS, key=1, new=2)
    took = time.monotonic() - begun
    check("a write by n2 is preempted and aborted by n1", status == GOOD and not ended, f"{took:.1f} s")
    writer.join()
    check("it never ended for its initiator", ended and ended[0] != GOOD, ended)
    time.sleep(6.0)
    check("nothing of it comes later", a.read(0, 128) == (GOOD, bytes(65536)))
    a.reserve(REGISTER, key=1)
    a.close()


def resets(n1, n2):
    """Task management by way of one node takes away what waits at the other."""
    for here, there, function, what, code in ((n1, n2, UNIT_RESET, "LOGICAL UNIT RESET", RESET),
                                              (n2, n1, UNIT_RESET, "LOGICAL UNIT RESET", RESET),
                                              (n1, n2, WARM_RESET, "TARGET WARM RESET", RESET),
                                              (n2, n1, CLEAR_TASKS, "CLEAR TASK SET", CLEARED)):
        what = f"{what} by {here.name}"
        a, b = Session(here, "slow", 1, "a"), Session(there, "slow", 2, "b", timeout=8)
        settle(a), settle(b)
        marker = bytes([function]) * 65536
        ended = []

        def write():
            try:
                ended.append(b.write(0, marker))
            except ConnectionError as why:
                ended.append(str(why))

        # What is beyond the limit is waited for by the next one.
        check(f"{what}: a long write before it", b.write(4096, bytes(MIB // 2)) == GOOD)
        writer = threading.Thread(target=write)
        writer.start()
        time.sleep(1.0)
        begun = time.monotonic()
        done = a.manage(function)
        check(f"{what} while a write by {there.name} waits", done and not ended, f"{time.monotonic() - begun:.2f} s")
        check("its own initiator is told" if code == RESET else "its own initiator is not told",
              a.attention(code) == (code == RESET))
        writer.join()
        check("the write never ended for its initiator", ended and ended[0] != GOOD, ended)
        b.close()
        b = Session(there, "slow", 2, "b")
        time.sleep(2.0)
        check("nothing of it comes later", marker not in a.read(0, 128)[1])
        a.close(), b.close()
    a, b, c = Session(n1, "one", 1, "a"), Session(n2, "one", 2, "b"), Session(n2, "one", 3, "c")
    check("registered", patient(b, REGISTER, new=2) == GOOD and b.reserve(RESERVE, EXCLUSIVE, key=2) == GOOD)
    settle(a), settle(c)
    check("LOGICAL UNIT RESET by n1", a.manage(UNIT_RESET))
    check("each session by n2 is told, once", all(s.attention(RESET) and s.ready() == GOOD for s in (b, c)))
    settle(a)
    check("reservations stay", a.keys() == [2] and a.write(0, bytes(512)) == CONFLICT)
    check("CLEAR TASK SET by n2", c.manage(CLEAR_TASKS))
    check("the others are told, by both nodes", a.attention(CLEARED) and b.attention(CLEARED) and c.ready() == GOOD)
    check("released", b.reserve(REGISTER, key=2) == GOOD)
    check("RESERVE(6) is refused in words, for it would bind one node", a.command([0x16] + 5 * [0])[0] == (CHECK, 5, 0x2000))
    check("SANITIZE as well", a.command([0x48, 0x82] + 8 * [0])[0] == (CHECK, 5, 0x2400))
    check("STOP as well", a.command([0x1B, 0, 0, 0, 0, 0])[0] == (CHECK, 5, 0x2400))
    check("both are there", alive(a) and alive(c))
    check("TARGET COLD RESET by n2 ends its session", c.manage(COLD_RESET) and not alive(c))
    check("and those by n1", not alive(a))
    check("new ones are welcome", usable(n1, "one") and usable(n2, "one"))
    for session in (a, b, c):
        session.close()
    stop(n2)
    a = Session(n1, "one", 1, "a")
    settle(a)
    begun = time.monotonic()
    done = a.manage(UNIT_RESET)
    took = time.monotonic() - begun
    n2.process.send_signal(signal.SIGCONT)
    check("a reset by n1 while n2 stands still waits until n2 must have stopped", done and 2.0 < took < 8.0, f"{took:.1f} s")
    a.close()
    until("n2 is itself again", lambda: usable(n2, "one"))


def stop(node):
    """Stops a node, and waits until each of its threads stands: one may still answer after the signal was sent."""
    node.process.send_signal(signal.SIGSTOP)
    stats = lambda: glob.glob(f"/proc/{node.process.pid}/task/*/stat")
    until("it stands", lambda: all(open(stat).read().rpartition(")")[2].split()[0] == "T" for stat in stats()))


def alive(session):
    """Whether somebody answers; where the connection is gone, the library makes up a status of more than a byte."""
    try:
        status = session.ready()
    except ConnectionError:
        return False
    return isinstance(status, tuple) or status < 0x100


def stands_still(n1, n2):
    """n2 is stopped for a while: who preempts by n1 waits until n2 must have given up, and n2 does nothing when it wakes."""
    a, b = Session(n1, "one", 1, "a"), Session(n2, "one", 2, "b", timeout=30)
    check("both register", patient(a, REGISTER, new=1) == GOOD and patient(b, REGISTER, new=2) == GOOD)
    check("n2's initiator reserves", b.reserve(RESERVE, REGISTRANTS, key=2) == GOOD and b.write(0, b"b" * 512) == GOOD)
    settle(a)
    stop(n2)
    begun = time.monotonic()
    status = a.reserve(PREEMPT, EXCLUSIVE, key=1, new=2)
    took = time.monotonic() - begun
    check("preempted while n2 stands still", status == GOOD and 2.0 < took < 8.0, f"after {took:.1f} s")
    settle(a)
    check("and written", a.write(0, b"a" * 512) == GOOD)
    found = []
    writer = threading.Thread(target=lambda: found.append(b.write(0, b"b" * 512)))
    writer.start()
    time.sleep(0.3)
    n2.process.send_signal(signal.SIGCONT)
    writer.join()
    # It may be told of the change of its port's state first.
    check("woken, n2 does not write", found[0] in (UNAVAILABLE, CONFLICT, (CHECK, 6, ACCESS_CHANGED), (CHECK, 6, PREEMPTED)), found)
    settle(a)
    check("what is there is as written by n1", a.read(0) == (GOOD, b"a" * 512))
    until("n2 is itself again", lambda: usable(n2, "one"))
    told = [b.ready() for _ in range(3)]
    check("its initiator was told", (CHECK, 6, PREEMPTED) in told or found[0] == (CHECK, 6, PREEMPTED), told)
    check("and conflicts", b.write(0, b"b" * 512) == CONFLICT and b.keys() == [1], b.keys())
    a.reserve(REGISTER, key=1)
    a.close(), b.close()


def node_dies(n1, n2):
    a, b = Session(n1, "one", 1, "a"), Session(n2, "one", 2, "b")
    wide = Session(n1, "web", 1, "a")
    group = b.own_group()
    until("n1 tells of n2, which has no place of it", lambda: a.groups().get(group) == 1)
    until("and of its place of the other disk", lambda: wide.groups().get(group) == 0)
    settle(a), settle(wide)
    check("n2's initiator reserves", patient(b, REGISTER, new=2) == GOOD and b.reserve(RESERVE, EXCLUSIVE, key=2) == GOOD)
    check("n1's is registered", a.reserve(REGISTER, new=1) == GOOD and a.write(0, bytes(512)) == CONFLICT)
    n2.kill()
    took = until("n1 tells its initiators", lambda: a.attention(ACCESS_CHANGED))
    check("n1 says that n2 is unavailable", a.groups().get(group) == 3, f"after {took:.1f} s")
    check("of the other disk too", wide.attention(ACCESS_CHANGED) and wide.groups().get(group) == 3, wide.groups())
    begun = time.monotonic()
    status = a.reserve(PREEMPT, EXCLUSIVE, key=1, new=2)
    check("n1's initiator takes over", status == GOOD, f"after {time.monotonic() - begun:.1f} s")
    check("and goes on", a.write(0, b"a" * 512) == GOOD and a.read(0) == (GOOD, b"a" * 512))
    check("n1's part of the other disk goes on", wide.read(0)[0] == GOOD)
    check("n2's part of it is not there, in words", wide.read(128)[0] == (CHECK, 2, 0x0800), wide.read(128)[0])
    b.close()
    n2.start()
    until("n2 is back", lambda: usable(n2, "one"))
    took = until("n1 tells its initiators", lambda: a.attention(ACCESS_CHANGED))
    check("n2 is available again", a.groups().get(group) == 1, a.groups())
    b = Session(n2, "one", 2, "b")
    check("the preempted one conflicts by n2", b.write(0, bytes(512)) == CONFLICT and b.keys() == [1], b.keys())
    check("it reads what was written", b.read(0) == (GOOD, b"a" * 512))
    until("the other disk is whole", lambda: wide.read(128)[0] == GOOD)
    settle(wide)
    check("and n2 a way to it as before", wide.groups().get(group) == 0, wide.groups())
    for session in (a, b, wide):
        session.close()


def keeper_dies(n1, n2):
    """Without n1, nobody knows who may use its disks."""
    b = Session(n2, "web", 2, "b")
    check("n2's initiator reserves", patient(b, REGISTER, new=2) == GOOD and b.reserve(RESERVE, EXCLUSIVE, key=2) == GOOD)
    own = b.own_group()
    n1.kill()
    took = until("n2 is unavailable", lambda: b.write(128, bytes(512)) == UNAVAILABLE)
    check("n2 stops once it may be out of date", took < 6.0, f"after {took:.1f} s")
    check("it says so of itself", b.groups().get(own) == 3, b.groups())
    check("an inquiry is answered", b.page(0x80) != b"")
    check("nothing is decided", b.reserve(RELEASE, EXCLUSIVE, key=2) == UNAVAILABLE)
    n1.start()
    took = until("n2 is available", lambda: b.write(128, bytes(512)) == GOOD)
    check("and goes on when n1 is back", True, f"after {took:.1f} s")
    a = Session(n1, "web", 1, "a")
    check("n1 still knows", a.keys() == [2] and a.reservation() == (2, EXCLUSIVE), a.reservation())
    check("and enforces it", a.write(0, bytes(512)) == CONFLICT)
    check("changes go on", patient(b, RELEASE, kind=EXCLUSIVE, key=2) == GOOD and a.write(0, bytes(512)) == GOOD)
    a.close(), b.close()


def grows(n1):
    """A disk grows while sessions are open."""
    s = Session(n1, "lone", 1, "a")
    check("as large as configured", s.capacity() == 16 * MIB, s.capacity())
    check("nothing beyond", s.write(16 * MIB // 512, bytes(512)) == (CHECK, 5, 0x2100))
    check("it grows", n1.ask({"op": "grow", "name": "lone", "capacity": "24MiB"}).get("ok", True))
    check("CAPACITY DATA HAS CHANGED", s.attention(CAPACITY_CHANGED))
    check("once", s.ready() == GOOD)
    check("the new size", s.capacity() == 24 * MIB, s.capacity())
    check("and room", s.write(24 * MIB // 512 - 1, b"e" * 512) == GOOD)
    s.close()
    url = f"iscsi://{n1.address}:{n1.iscsi}/{PREFIX}:lone/0"
    if not have_qemu("a size that QEMU asks for again", url):
        return
    qemu = subprocess.Popen(["timeout", "60", "qemu-io", "-f", "raw", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, bufsize=1)
    # QEMU asks for the size again when it is told to truncate. It looks for one line whenever something has come.
    for line in ("read 0 4k\n", "truncate 32M\n"):
        qemu.stdin.write(line)
        qemu.stdin.flush()
        time.sleep(1.0)
    n1.ask({"op": "grow", "name": "lone", "capacity": "32MiB"})
    out, _ = qemu.communicate("truncate 32M\nlength\nwrite -P 5 30M 64k\nread -P 5 30M 64k\nquit\n")
    check("QEMU's open session sees it, too", "Cannot grow" in out and "wrote 65536/65536" in out and "read 65536/65536" in out,
          "32 MiB" in out)
