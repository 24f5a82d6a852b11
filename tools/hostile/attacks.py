"""What a neighbour does that means harm, or does not know better. Each attack runs in a process of its own until it is killed.

An attack is a function of the node; it works on the disk "rude" (weight 1, as the victims have) unless it says otherwise.
"""
import random
import select
import socket
import struct
import subprocess
import time

from . import wire
from .wire import CACHE, FLUSH, FUA, NO_HOLE, READ, REQ_ONE, STATUS, TRIM, WRITE, ZEROES, request

MIB = 1 << 20
SIZE = 1024 * MIB
# Bytes and processor time of one system call: on two processors a victim's client waits for as long as one takes.
CALL, LONG = 64 << 10, 50e-6
ATTACKS = {}


def attack(item, quick=False):
    """Registers an attack: which item of the list that began this suite it is, or "own"; `quick`: also in the short run."""
    def add(function):
        ATTACKS[function.__name__.replace("_", "-")] = (item, quick, function)
        return function
    return add


def hold(_sockets):
    """Keeps what was opened, for ever."""
    while True:
        time.sleep(60)


def pour(sockets, batch=None):
    """Sends batches on all sockets and throws away what comes, as fast as the node takes them. In a dictionary each has batches of its own."""
    batches = sockets if batch is None else dict.fromkeys(sockets, batch)
    out = {s: b"" for s in batches}
    most = {s: CALL for s in batches}
    for s in batches:
        s.setblocking(False)
    while out:
        readable, writable, _ = select.select(list(out), list(out), [], 1)
        for s in set(readable) | set(writable):
            try:
                if s in readable:
                    begun = time.thread_time()
                    if not s.recv(most[s]):
                        out.pop(s)
                        continue
                    # Where answers are small, the kernel has hundreds of them in so many bytes.
                    most[s] = max(512, most[s] // 2) if time.thread_time() - begun > LONG else min(CALL, most[s] * 2)
                if s in writable and s in out:
                    out[s] = out[s] or memoryview(batches[s]())
                    out[s] = out[s][s.send(out[s][:CALL]):]
            except BlockingIOError:
                pass
            except OSError:
                out.pop(s, None)
        if not readable:
            time.sleep(0.001)
    raise SystemExit("the node has closed all connections")


def tell(s, data):
    """All of it, in short calls; waits where the node takes no more."""
    for at in range(0, len(data), CALL):
        s.sendall(data[at:at + CALL])


def by_turns(s, batch, answers):
    """A batch, its answers, and the next: as many bytes of answers as that, where more at once would end the connection."""
    while True:
        tell(s, batch())
        wire.receive(s, answers)


def many(count, make):
    return b"".join(make(i) for i in range(count))


def anywhere(length, align=4096):
    return random.randrange(0, (SIZE - length) // align) * align


def scatter(node):
    """Writes every other block of 16 MiB, so that holes and data take turns."""
    s = wire.disk(node, "rude")
    for at in range(0, 16 * MIB, 64 * 8192):
        tell(s, many(64, lambda i: request(WRITE, at + i * 8192, 4096) + b"x" * 4096))
        wire.receive(s, 64 * 16)
    s.close()


# Memory.

@attack("8", quick=True)
def reads_of_32_mib_unread(node):
    sockets = [wire.disk(node, f"rude{i}") for i in range(8)]
    for s in sockets:
        s.sendall(many(8, lambda i: request(READ, i % 4 * 32 * MIB, 32 * MIB)))
    hold(sockets)


@attack("8", quick=True)
def headers_of_writes_alone(node):
    sockets = [wire.disk(node, f"rude{i % 8}") for i in range(96)]
    for s in sockets:
        s.sendall(request(WRITE, 0, 32 * MIB) + bytes(1000))
    hold(sockets)


@attack("8")
def polite_reads_of_32_mib(node):
    pour([wire.disk(node, "rude") for _ in range(10)], lambda: request(READ, 0, 32 * MIB))


@attack("own")
def initiators_that_take_nothing(node):
    sessions = [wire.Initiator(node, "rude-scsi") for _ in range(1)]
    for session in sessions:
        read = struct.pack(">BBQIBB", 0x88, 0, 0, 4 * MIB // 512, 0, 0)
        session.s.sendall(many(16, lambda i: session.command(read, 4 * MIB)))
    hold(sessions)


@attack("own", quick=True)
def replies_taken_byte_by_byte(node):
    sockets = [wire.disk(node, "rude") for _ in range(64)]
    for s in sockets:
        s.sendall(many(64, lambda i: request(READ, i * MIB, MIB)))
    while True:
        for s in sockets:
            s.recv(1)
        time.sleep(0.05)


@attack("own")
def payloads_byte_by_byte(node):
    sockets = [wire.disk(node, "rude") for _ in range(200)]
    for s in sockets:
        tell(s, request(WRITE, 0, MIB) + bytes(MIB // 2))
    while True:
        for s in sockets:
            s.sendall(b"\0")
        time.sleep(0.05)


# Commands that once met no gate, or paid too little at it.

@attack("9", quick=True)
def caches_of_everything(node):
    pour([wire.disk(node, "fetching") for _ in range(4)], lambda: many(16, lambda i: request(CACHE, 0, SIZE)))


@attack("9", quick=True)
def questions_about_room(node):
    scatter(node)
    pour([wire.disk(node, "rude", True)], lambda: many(256, lambda i: request(STATUS, 0, SIZE)))


@attack("9")
def questions_of_an_initiator(node):
    session = wire.Initiator(node, "rude-scsi")
    cdb = struct.pack(">BBQIBB", 0x9E, 0x12, 0, 4096, 0, 0)
    pour([session.s], lambda: many(16, lambda i: session.command(cdb, 4096)))


@attack("9", quick=True)
def empty_reads(node):
    pour([wire.disk(node, "limited") for _ in range(4)], lambda: many(1024, lambda i: request(READ, 0, 0)))


@attack("9", quick=True)
def writes_of_a_byte(node):
    pour([wire.disk(node, "rude") for _ in range(16)], lambda: many(256, lambda i: request(WRITE, i, 1) + b"x"))


@attack("9", quick=True)
def flushes(node):
    batch = lambda: many(128, lambda i: request(WRITE, i * 4096, 512) + bytes(512) + request(FLUSH, 0, 0))
    pour([wire.disk(node, "rude") for _ in range(8)], batch)


@attack("9")
def trims_of_everything(node):
    pour([wire.disk(node, "rude") for _ in range(4)], lambda: many(64, lambda i: request(TRIM, 0, SIZE)))


@attack("9")
def zeroes_everywhere(node):
    pour([wire.disk(node, "rude") for _ in range(4)], lambda: many(64, lambda i: request(ZEROES, 0, SIZE)))


@attack("own")
def small_trims(node):
    pour([wire.disk(node, "rude") for _ in range(8)], lambda: many(256, lambda i: request(TRIM, anywhere(4096), 4096)))


@attack("own")
def durable_writes(node):
    batch = lambda: many(64, lambda i: request(WRITE, anywhere(4096), 4096, FUA) + bytes(4096))
    pour([wire.disk(node, "rude") for _ in range(8)], batch)


@attack("own")
def reads_of_a_byte(node):
    pour([wire.disk(node, "rude") for _ in range(16)], lambda: many(256, lambda i: request(READ, anywhere(4096) + 7, 1)))


@attack("own")
def long_writes_on_top_of_each_other(node):
    batch = lambda: request(WRITE, 3, MIB - 5) + bytes(MIB - 5)
    pour([wire.disk(node, "rude") for _ in range(8)], batch)


@attack("own")
def one_extent_at_a_time(node):
    batch = lambda: many(256, lambda i: request(STATUS, anywhere(MIB), MIB, REQ_ONE))
    pour([wire.disk(node, "rude", True) for _ in range(4)], batch)


@attack("own")
def answers_about_room_unread(node):
    sockets = [wire.disk(node, "rude", True) for _ in range(32)]
    for s in sockets:
        s.sendall(many(200, lambda i: request(STATUS, 0, SIZE)))
    hold(sockets)


@attack("own")
def commands_that_do_not_exist(node):
    pour([wire.disk(node, "rude") for _ in range(2)], lambda: many(512, lambda i: request(99, 0, 4096)))


@attack("own")
def commands_beyond_the_end(node):
    pour([wire.disk(node, "rude") for _ in range(2)], lambda: many(512, lambda i: request(READ, 2 * SIZE, 4096)))


# By cost: the dearest that each kind of client can ask for.

@attack("own")
def caches_of_scattered_blocks(node):
    s = wire.disk(node, "fetching")
    for at in range(0, 16 * MIB, 64 * 8192):
        tell(s, many(64, lambda i: request(WRITE, at + i * 8192, 4096) + b"x" * 4096))
        wire.receive(s, 64 * 16)
    pour([wire.disk(node, "fetching") for _ in range(4)], lambda: many(16, lambda i: request(CACHE, 0, 16 * MIB)))


@attack("own", quick=True)
def reads_of_holes(node):
    """Each brings pages into the cache, and they were never there."""
    at = iter(range(0, 1 << 50, MIB))
    pour([wire.disk(node, f"rude{i}") for i in range(4)], lambda: request(READ, next(at) % (128 * MIB), MIB))


@attack("own")
def zeroes_without_holes(node):
    pour([wire.disk(node, "rude") for _ in range(4)], lambda: many(16, lambda i: request(ZEROES, i * 32 * MIB, 32 * MIB, NO_HOLE)))


@attack("own")
def durable_trims_and_flushes(node):
    batch = lambda: many(64, lambda i: request(TRIM, anywhere(65536), 65536, FUA) + request(FLUSH, 0, 0))
    pour([wire.disk(node, "rude") for _ in range(4)], batch)


@attack("own")
def unaligned_long_writes(node):
    batch = lambda: many(4, lambda i: request(WRITE, anywhere(MIB) + 4095, 65538) + bytes(65538))
    pour([wire.disk(node, "rude") for _ in range(8)], batch)


@attack("own")
def lists_that_are_read(node):
    sockets = [wire.connect(node) for _ in range(4)]
    for s in sockets:
        s.sendall(struct.pack(">I", 3))
    pour(sockets, lambda: wire.option(3) * 100)


@attack("own")
def compare_and_writes(node):
    session = wire.Initiator(node, "rude-scsi", immediate=True)
    cdb = struct.pack(">BBQ3xBBB", 0x89, 0, 8, 1, 0, 0)
    pour([session.s], lambda: many(16, lambda i: session.send(cdb, bytes(1024))))


@attack("own")
def the_same_written_everywhere(node):
    session = wire.Initiator(node, "rude-scsi", immediate=True)
    cdb = struct.pack(">BBQIBB", 0x93, 0, 0, 16 * MIB // 512, 0, 0)
    pour([session.s], lambda: many(16, lambda i: session.send(cdb, b"x" * 512)))


@attack("own")
def verifies(node):
    session = wire.Initiator(node, "rude-scsi")
    cdb = struct.pack(">BBQIBB", 0x8F, 0, 0, 4 * MIB // 512, 0, 0)
    pour([session.s], lambda: many(16, lambda i: session.command(cdb, 0)))


@attack("own")
def lists_of_unmaps(node):
    session = wire.Initiator(node, "rude-scsi", immediate=True)
    ranges = many(64, lambda i: struct.pack(">QI4x", i * 4096, 8))
    data = struct.pack(">HH4x", 6 + len(ranges), len(ranges)) + ranges
    cdb = struct.pack(">BB5xHB", 0x42, 0, len(data), 0)
    pour([session.s], lambda: many(16, lambda i: session.send(cdb, data)))


@attack("own", quick=True)
def a_storm_of_reservations(node):
    """Each is remembered in a file before it is answered."""
    session = wire.Initiator(node, "rude-scsi", immediate=True)
    register = struct.pack(">BBB2xIB", 0x5F, 6, 0, 24, 0)  # REGISTER AND IGNORE EXISTING KEY
    status = struct.pack(">BB5xHB", 0x5E, 3, 4096, 0)  # READ FULL STATUS
    key = iter(range(1, 1 << 62))
    batch = lambda: many(8, lambda i: session.send(register, struct.pack(">QQ8x", 0, next(key))) + session.command(status, 4096))
    pour([session.s], batch)


@attack("own")
def inquiries(node):
    session = wire.Initiator(node, "rude-scsi")
    asked = [struct.pack(">BBBHB", 0x12, 1, page, 255, 0) for page in (0, 0x80, 0x83, 0xB0, 0xB1, 0xB2)]
    # MODE SENSE of all pages, REPORT LUNS, READ CAPACITY.
    asked += [struct.pack(">BBBB3xHB", 0x5A, 0, 0x3F, 0, 255, 0), struct.pack(">B5xIBB", 0xA0, 255, 0, 0),
              struct.pack(">BB8xIBB", 0x9E, 0x10, 32, 0, 0)]
    pour([session.s], lambda: b"".join(session.command(cdb, 255) for cdb in asked))


@attack("own")
def logins_in_a_loop(node):
    while True:
        wire.Initiator(node, "rude-scsi").s.close()


@attack("own", quick=True)
def logs_of_a_controller(node):
    host = wire.Nvme(node, "rude")
    # Error, SMART, firmware, changed namespaces, commands, ANA, and what the disk says of its service.
    pages = [1, 2, 3, 4, 5, 12, 0xC0]
    pour([host.admin], lambda: b"".join(host.command(2, [page | 0x3FF << 16], 4096) for page in pages))


@attack("own")
def identifies(node):
    host = wire.Nvme(node, "rude")
    pour([host.admin], lambda: b"".join(host.command(6, [kind], 4096) for kind in (0, 1, 2, 3)))


@attack("own")
def deallocations_by_lists(node):
    host = wire.Nvme(node, "rude")
    ranges = many(256, lambda i: struct.pack("<IIQ", 0, 8, i * 4096))
    by_turns(host.io, lambda: many(64, lambda i: host.command(9, [255, 4], data=ranges)), 64 * 24)


@attack("own")
def zeroes_of_a_host(node):
    host = wire.Nvme(node, "rude")
    by_turns(host.io, lambda: many(64, lambda i: host.command(8, [i % 16 << 16, 0, 0xFFFF])), 64 * 24)


@attack("own")
def hosts_that_come_and_go(node):
    while True:
        host = wire.Nvme(node, "rude")
        host.admin.close()
        host.io.close()


# Connections.

@attack("12", quick=True)
def idle_connections(node):
    sockets = []
    while len(sockets) < 5000:
        try:
            sockets.append(wire.disk(node, "rude"))
        except (OSError, EOFError):
            break
    hold(sockets)


@attack("12")
def connections_that_say_nothing(node):
    sockets = []
    while len(sockets) < 5000:
        try:
            sockets.append(socket.create_connection(("127.0.0.1", node.nbd), 5))
        except OSError:
            break
    hold(sockets)


@attack("12", quick=True)
def a_client_that_comes_again(node):
    """While its disk is removed: see `removal` in judge.py."""
    while True:
        try:
            s = wire.disk(node, "leaving")
            s.sendall(many(32, lambda i: request(READ, 0, 4096)))
            s.recv(4096)
        except (OSError, EOFError):
            time.sleep(0.001)


@attack("own")
def come_ask_and_go(node):
    while True:
        s = wire.disk(node, "rude")
        s.sendall(many(256, lambda i: request(READ, anywhere(65536), 65536)))
        s.close()


@attack("own")
def handshakes_in_a_loop(node):
    while True:
        s = wire.connect(node)
        s.sendall(struct.pack(">I", 3) + wire.option(3) * 200)
        s.close()


@attack("own")
def lists_unread(node):
    sockets = [wire.connect(node) for _ in range(100)]
    for s in sockets:
        s.setblocking(False)
        try:
            s.send(struct.pack(">I", 3) + wire.option(3) * 2000)
        except BlockingIOError:
            pass
    hold(sockets)


@attack("own")
def logins_that_stop_half_way(node):
    hold([wire.Initiator(node, "rude-scsi", finish=False) for _ in range(200)])


@attack("own")
def discoveries_in_a_loop(node):
    session = wire.Initiator(node, "", kind="Discovery")
    pour([session.s], lambda: session.text(b"SendTargets=All\0"))


@attack("own")
def a_paused_client(node):
    """A stock client, stopped as a suspended guest is. By threads: a process of its own would go on, also after the attack."""
    fio = subprocess.Popen(
        ["fio", "--name=p", "--thread", "--ioengine=nbd", f"--uri={node.uri('rude')}", "--rw=randrw", "--bs=1m", "--iodepth=64",
         "--size=512m", "--time_based", "--runtime=600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1)
    fio.send_signal(19)
    hold(fio)


@attack("own")
def garbage(node):
    while True:
        s = wire.connect(node)
        try:
            s.sendall(random.randbytes(random.choice([3, 4, 17, 4096, 65536])))
            s.close()
        except OSError:
            pass
