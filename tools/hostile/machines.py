"""More of what one initiator or one NVMe host can ask that costs others."""
import random
import socket
import struct
import time

from . import wire
from .attacks import MIB, attack, by_turns, hold, many, pour, tell


def blocks(opcode, first, count):
    """A 16-byte CDB of that many blocks of 512 bytes."""
    return struct.pack(">BBQIBB", opcode, 0, first, count, 0, 0)


# Initiators.

@attack("own", quick=True)
def resets_of_a_logical_unit(node):
    """Task management in a storm, among reads that it ends."""
    session = wire.Initiator(node, "rude-scsi")
    read = blocks(0x88, 0, 128)
    pour([session.s], lambda: many(4, lambda i: session.command(read, 65536) + session.manage(5)))


@attack("own")
def aborts_of_tasks_that_are_not_there(node):
    session = wire.Initiator(node, "rude-scsi")
    pour([session.s], lambda: many(64, lambda i: session.manage(1, 0x70000000 + i)))


@attack("own")
def pings_with_8_kib(node):
    """NOP-Out: the node returns what it was sent, and no disk is asked."""
    session = wire.Initiator(node, "rude-scsi")
    pour([session.s], lambda: many(8, lambda i: session.ping(bytes(8192))))


@attack("own")
def unaligned_compare_and_writes(node):
    """Each block of 512 bytes lies in a page that others have locked."""
    session = wire.Initiator(node, "rude-scsi", immediate=True)
    cdb = lambda at: struct.pack(">BBQ3xBBB", 0x89, 0, at, 3, 0, 0)
    pour([session.s], lambda: many(16, lambda i: session.send(cdb(1 + i % 5), bytes(2 * 3 * 512))))


@attack("own")
def digests_of_long_writes(node):
    """CRC-32C of everything, in and out, and one that is wrong now and then ends the connection."""
    session = wire.Initiator(node, "rude-scsi", immediate=True, digests=True)
    cdb = blocks(0x8A, 0, 16)
    pour([session.s], lambda: many(16, lambda i: session.send(cdb, bytes(8192))))


@attack("own")
def commands_to_units_that_are_not_there(node):
    session = wire.Initiator(node, "rude-scsi")
    pour([session.s], lambda: many(64, lambda i: session.command(blocks(0x88, 0, 1), 512, lun=i + 1)))


@attack("own")
def many_sessions_that_read(node):
    sessions = [wire.Initiator(node, "rude-scsi") for _ in range(64)]
    cdb = lambda: blocks(0x88, random.randrange(1 << 20), 128)
    while True:
        for session in sessions:
            session.s.sendall(many(2, lambda i: session.command(cdb(), 65536)))
        for session in sessions:
            session.skip(2 * (48 + 65536))


@attack("own")
def writes_whose_data_never_comes(node):
    """Each is asked for its data (R2T), and holds its place."""
    session = wire.Initiator(node, "rude-scsi")
    cdb = blocks(0x8A, 0, MIB // 512)
    session.s.sendall(many(32, lambda i: session.announce(cdb, MIB)))
    hold(session)


# Hosts.

@attack("own", quick=True)
def compares_of_a_host(node):
    host = wire.Nvme(node, "rude")
    by_turns(host.io, lambda: many(32, lambda i: host.blocks(5, i * 16, 16, data=bytes(8192))), 32 * 24)


@attack("own")
def compares_of_a_host_that_differ(node):
    host = wire.Nvme(node, "rude")
    by_turns(host.io, lambda: many(32, lambda i: host.blocks(5, i * 16, 16, data=b"y" * 8192)), 32 * 24)


@attack("own")
def compares_of_a_megabyte(node):
    """One at a time: what is compared is in the loop."""
    host = wire.Nvme(node, "rude")
    while True:
        host.io.sendall(host.blocks(5, 0, 2048))
        kind, body = host.pdu()
        if kind == 9:
            command, tag, offset, length = struct.unpack_from("<HHII", body)
            head = struct.pack("<BBBBIHHII4x", 6, 4, 24, 24, 24 + length, command, tag, offset, length)
            tell(host.io, head + bytes(length))
            host.pdu()


@attack("own")
def megabytes_behind_a_page(node):
    """An empty error log, asked for with room for a megabyte."""
    host = wire.Nvme(node, "rude")
    pour([host.admin], lambda: many(32, lambda _: host.command(2, [1 | 0xFFFF << 16, 3], 1 << 20)))


@attack("own", quick=True)
def verifies_of_a_host(node):
    """A megabyte is read for an answer of 16 bytes."""
    host = wire.Nvme(node, "rude")
    by_turns(host.io, lambda: many(64, lambda i: host.blocks(12, i * 2048, 2048)), 64 * 24)


@attack("own")
def the_whole_disk_deallocated_256_times_a_command(node):
    host = wire.Nvme(node, "rude")
    ranges = many(256, lambda i: struct.pack("<IIQ", 0, 1 << 21, 0))
    by_turns(host.io, lambda: many(16, lambda i: host.command(9, [255, 4], data=ranges)), 16 * 24)


@attack("own")
def writes_of_hosts_whose_data_never_comes(node):
    """127 writes of a megabyte, asked for by R2T, on eight queues."""
    hosts = [wire.Nvme(node, "rude") for _ in range(8)]
    for host in hosts:
        host.io.sendall(many(120, lambda i: host.blocks(1, i * 2048, 2048)))
    hold(hosts)


@attack("own")
def data_of_a_host_in_pieces_of_4_bytes(node):
    host = wire.Nvme(node, "rude")
    while True:
        host.io.sendall(host.blocks(1, 0, 128))
        kind, body = host.pdu()
        if kind != 9:
            continue
        command, tag, offset, length = struct.unpack_from("<HHII", body)
        for at in range(0, length, 4):
            last = 4 if at + 4 == length else 0
            host.io.sendall(struct.pack("<BBBBIHHII4x", 6, last, 24, 24, 28, command, tag, offset + at, 4) + b"data")
        host.pdu()


@attack("own", quick=True)
def aborts_of_a_host(node):
    host = wire.Nvme(node, "rude")
    by_turns(host.admin, lambda: many(64, lambda i: host.command(8, [1 | i << 16])), 64 * 24)


@attack("own")
def features_in_a_storm(node):
    """Keep-alives, features, and questions that nobody answers."""
    host = wire.Nvme(node, "rude")
    ask = [(0x18, []), (10, [7]), (10, [1]), (9, [11, 0x1FF]), (10, [0x0E])]
    by_turns(host.admin, lambda: many(60, lambda i: host.command(*ask[i % len(ask)])), 60 * 24)


@attack("own")
def reservations_of_a_host(node):
    """Each change is remembered in a file before it is answered."""
    host = wire.Nvme(node, "rude")
    register = struct.pack("<QQ", 0, 7)
    def batch():
        return host.command(0x0D, [1 << 3 | 0], data=register) + host.command(0x0D, [1 << 3 | 1], data=register)
    by_turns(host.io, batch, 2 * 24)


@attack("own")
def halves_of_a_greeting(node):
    """ICReq of which 64 bytes come."""
    sockets = []
    for _ in range(1000):
        try:
            s = socket.create_connection(("127.0.0.1", node.nvme), 5)
            s.sendall(struct.pack("<BBBBI", 0, 0, 128, 0, 128) + bytes(56))
            sockets.append(s)
        except OSError:
            break
    hold(sockets)


@attack("own")
def controllers_without_number(node):
    """Admin queues that are made and kept: each is a controller."""
    hosts = []
    while len(hosts) < 500:
        try:
            hosts.append(wire.Nvme(node, "rude"))
        except (OSError, EOFError):
            time.sleep(0.01)
    hold(hosts)


@attack("own")
def copies_of_a_host(node):
    """Eight megabytes for a command of 256 bytes."""
    host = wire.Nvme(node, "rude")
    sources = many(8, lambda i: struct.pack("<QQH14x", 0, i * 2048, 2047))
    by_turns(host.io, lambda: many(16, lambda i: host.command(0x19, [1 << 18, 0, 7], data=sources)), 16 * 24)


@attack("own")
def writes_that_are_verified(node):
    session = wire.Initiator(node, "rude-scsi", immediate=True)
    cdb = blocks(0x8E, 0, 16)
    pour([session.s], lambda: many(32, lambda i: session.send(cdb, bytes(8192))))


@attack("own")
def writes_that_are_combined(node):
    """ORWRITE reads, combines and writes."""
    session = wire.Initiator(node, "rude-scsi", immediate=True)
    cdb = blocks(0x8B, 0, 16)
    pour([session.s], lambda: many(32, lambda i: session.send(cdb, bytes(8192))))
