"""More of what one NBD client can ask that costs others: chosen by what it costs the node or its device, not by its count."""
import itertools
import random
import struct

from . import wire
from .attacks import MIB, SIZE, anywhere, attack, hold, many, pour, tell
from .wire import FLUSH, FUA, NO_HOLE, READ, STATUS, TRIM, WRITE, ZEROES, request

INFO, GO = 6, 7


@attack("own")
def the_disk_written_and_discarded_again(node):
    """Each round makes the file system allocate and free everything."""
    at, turn = itertools.count(), itertools.count(1)
    def batch():
        writes = many(4, lambda i: request(WRITE, next(at) % 256 * MIB, MIB) + bytes(MIB))
        return writes + (b"" if next(turn) % 16 else request(TRIM, 0, SIZE) + request(FLUSH, 0, 0))
    pour([wire.disk(node, "rude") for _ in range(2)], batch)


@attack("own", quick=True)
def durable_writes_of_a_sector(node):
    """A journal's commit for 512 bytes, at a place of its own each."""
    batch = lambda: many(64, lambda i: request(WRITE, anywhere(512, 512), 512, FUA) + bytes(512))
    pour([wire.disk(node, "rude") for _ in range(16)], batch)


@attack("own", quick=True)
def questions_about_a_file_that_is_discarded(node):
    """Zeroes keep every other page; a hole over all of them has the file to itself for long, and many ask what takes room there."""
    at, turn, all = itertools.count(), itertools.count(1), 2048 * 8192
    def batch():
        zeroes = many(256, lambda i: request(ZEROES, next(at) * 8192 % all, 4096, NO_HOLE))
        return (zeroes if next(turn) % 9 else request(TRIM, 0, all)) + many(8, lambda i: request(STATUS, 0, all))
    pour([wire.disk(node, "rude", True) for _ in range(4)], batch)


@attack("own")
def a_stair_of_locks(node):
    """Each write overlaps the one before it by half: all wait for all."""
    step = 64 << 10
    batch = lambda: many(64, lambda i: request(WRITE, i * step + 1, 2 * step) + bytes(2 * step))
    pour([wire.disk(node, "rude") for _ in range(8)], batch)


@attack("own")
def a_long_write_and_a_crowd_below_it(node):
    """Thousands of small commands wait for one lock; then all go at once."""
    def batch():
        return request(WRITE, 1, 8 * MIB) + bytes(8 * MIB) + many(2000, lambda i: request(WRITE, 1 + i * 4096, 2) + b"xx")
    pour([wire.disk(node, "rude") for _ in range(4)], batch)


@attack("own")
def durable_zeroes_without_holes(node):
    batch = lambda: many(64, lambda i: request(ZEROES, anywhere(MIB), MIB, FUA | NO_HOLE))
    pour([wire.disk(node, "rude") for _ in range(4)], batch)


@attack("own")
def holes_in_every_other_page(node):
    """The file's map grows by an extent a command, and every later question about it is longer."""
    at = iter(range(0, 1 << 50, 8192))
    batch = lambda: many(128, lambda i: request(WRITE, next(at) % SIZE, 4096) + b"x" * 4096)
    pour([wire.disk(node, "rude") for _ in range(4)], batch)


@attack("own", quick=True)
def clients_that_come_read_once_and_go(node):
    while True:
        s = wire.disk(node, "rude")
        s.sendall(request(READ, anywhere(4096), 4096))
        wire.receive(s, 16 + 4096)
        s.close()


@attack("own", quick=True)
def questions_about_a_disk(node):
    """INFO with every kind of information, pipelined; nobody ever begins."""
    data = struct.pack(">I", 4) + b"rude" + struct.pack(">H4H", 4, 0, 1, 2, 3)
    sockets = [wire.connect(node) for _ in range(4)]
    for s in sockets:
        s.sendall(struct.pack(">I", 3))
    pour(sockets, lambda: wire.option(INFO, data) * 200)


@attack("own")
def names_of_4096_bytes(node):
    """Looked up in vain."""
    data = struct.pack(">I", 4096) + b"x" * 4096 + struct.pack(">H", 0)
    sockets = [wire.connect(node) for _ in range(4)]
    for s in sockets:
        s.sendall(struct.pack(">I", 3))
    pour(sockets, lambda: wire.option(INFO, data) * 8)


@attack("own")
def writes_that_end_half_way(node):
    """Memory and locks are taken, and the client is gone."""
    while True:
        s = wire.disk(node, "rude")
        tell(s, request(WRITE, anywhere(MIB), MIB) + bytes(random.randrange(MIB // 2)))
        s.close()


@attack("own")
def reads_that_jump(node):
    """What the kernel reads ahead is never used."""
    batch = lambda: many(32, lambda i: request(READ, random.randrange(900) * (128 << 10), 32 << 10))
    pour([wire.disk(node, f"rude{i}") for i in range(8)], batch)


@attack("own")
def clients_that_disconnect_politely(node):
    """DISC behind a queue of long writes: the answers have nobody to go to."""
    while True:
        s = wire.disk(node, "rude")
        tell(s, many(8, lambda i: request(WRITE, anywhere(MIB), 256 << 10) + bytes(256 << 10)) + request(2, 0, 0))
        s.close()


@attack("own")
def connections_that_stop_in_an_option(node):
    sockets = []
    for _ in range(1000):
        try:
            s = wire.connect(node)
            s.sendall(struct.pack(">I", 3) + wire.option(GO, b"x" * 60)[:40])
            sockets.append(s)
        except OSError:
            break
    hold(sockets)


def small_writes_and_flushes():
    return many(64, lambda i: request(WRITE, i * 4096, 512) + bytes(512) + request(FLUSH, 0, 0))


@attack("own")
def flushes_of_eight_disks(node):
    """Each has a file, a sync and a worker of the kernel of its own."""
    pour([wire.disk(node, f"rude{i}") for i in range(8)], small_writes_and_flushes)


def durable_pages():
    return many(32, lambda i: request(WRITE, anywhere(4096) % (64 * MIB), 4096, FUA) + bytes(4096))


@attack("own")
def durable_writes_of_eight_disks(node):
    pour([wire.disk(node, f"rude{i}") for i in range(8)], durable_pages)


@attack("own")
def durable_writes_beside_reads_of_holes(node):
    """Four disks wait for the journal, and for four others pages come into the cache that were never there."""
    at = itertools.count(0, MIB)
    holes = lambda: request(READ, next(at) % (64 * MIB) + 64 * MIB, MIB)
    pour({wire.disk(node, f"rude{i}"): durable_pages if i % 2 else holes for i in range(8)})
