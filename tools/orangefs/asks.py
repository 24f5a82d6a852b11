"""Metadata by hand: what an application can ask a server for without end. Bodies are as servers' sources decode them (`pvfs2-req-proto.h`), and as
captured clients send them. A server believes each length that it reads: a body that is four bytes off ends it."""

import struct

from wire import Wire, string

ALL = 0x7FFF & ~0x400  # what stat asks for
ONE_SIZE = 1 << 15  # of a data file, its size alone
START = 0x7FFFFFFE  # of a directory


def with_credential(body, user=0):
    """A body that goes on with a user of one group, without a signature. Hints of one handle leave a body at a multiple of eight."""
    body += b"\0" * 8 + struct.pack("<III", user, 1, user)
    body += b"\0" * (-len(body) % 8)
    return body + string(b"C:any") + struct.pack("<q", 1 << 40) + struct.pack("<II", 0, 0) + struct.pack("<II", 0, 0)


def key(text):
    """The name of an attribute: its length counts its end."""
    body = struct.pack("<I", len(text) + 1) + text + b"\0"
    return body + b"\0" * (-len(body) % 8)


def ask(wire, file, op, body):
    return wire.send(wire.request(op, body, [file.root, file.entries, file.meta, *file.data], file.meta))


def noop(wire, file):
    return ask(wire, file, 17, b"")


def statfs(wire, file):
    return ask(wire, file, 18, struct.pack("<i", Wire.FS))


def getattr_(wire, file):
    return ask(wire, file, 4, with_credential(struct.pack("<QiI", file.meta, Wire.FS, ALL)))


def listattr(objects):
    def asks(wire, file):
        return ask(wire, file, 34, struct.pack(f"<iIII{objects}Q", Wire.FS, ONE_SIZE, 0, objects, *file.data[:1] * objects))

    asks.__name__ = f"listattr of {objects}"
    return asks


def iterate(wire, file):
    return ask(wire, file, 21, struct.pack("<iiiQ", Wire.FS, 1024, 0, START))


def perf_mon(wire, file):
    return ask(wire, file, 20, struct.pack("<IIII", 0, 0, 23, 10))


def geteattr(wire, file):
    return ask(wire, file, 29, struct.pack("<Qii", file.meta, Wire.FS, 1) + key(b"user.none") + struct.pack("<q", 256))


def listeattr(wire, file):
    return ask(wire, file, 32, struct.pack("<QiIQIq", file.meta, Wire.FS, 0, START, 1, 64))


def truncate(wire, file):
    return ask(wire, file, 10, struct.pack("<QiIqi", file.data[0], Wire.FS, 0, 1 << 20, 0))


def flush(wire, file):
    return ask(wire, file, 15, struct.pack("<Qii", file.data[0], Wire.FS, 0))


def readdir(wire, file):
    return ask(wire, file, 12, struct.pack("<QiIIQ", file.entries, Wire.FS, 512, 0, START))


def lookup(wire, file):
    return ask(wire, file, 6, with_credential(string(b"/" + file.name.encode()) + struct.pack("<iIQI", Wire.FS, 0, file.root, ALL)))


def find_entries(wire, file):
    """Where the root's entries are: of the objects that the server has, the one that reads as a directory with entries."""
    iterate(wire, file)
    known = wire.answer()[3]
    for file.entries in struct.unpack_from(f"<{struct.unpack_from('<i', known, 12)[0]}Q", known, 16):
        readdir(wire, file)
        _, _, status, entries = wire.answer()
        if status == 0 and struct.unpack_from("<I", entries, 20)[0] > 0:
            return
    raise SystemExit("no object of the server reads as a directory that has entries")


KINDS = [noop, statfs, getattr_, listattr(1), listattr(60), iterate, perf_mon, geteattr, listeattr, truncate, flush, readdir, lookup]
