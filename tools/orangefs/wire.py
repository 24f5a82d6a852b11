"""PVFS2 by hand, for what no client sends."""

import re
import socket
import struct

from support import MOUNT, ROOT

UNEXPECTED, EAGER, RENDEZVOUS = 2, 4, 8
READ, WRITE = 1, 2


def header(mode, tag, size):
    return struct.pack("<IIqQ", 51_903, mode, tag, size)


def string(text):
    body = struct.pack("<I", len(text)) + text + b"\0"
    return body + b"\0" * (-len(body) % 8)


def entry(offset=0, num_ereqs=1, num_blocks=0, stride=1, ub=1, lb=0, size=1, chunks=1, depth=1, nested=0, ereq=-1, sreq=-1):
    return struct.pack("<qiiqqqqiiiiiiii", offset, num_ereqs, num_blocks, stride, ub, lb, size, chunks, depth, nested, -1, -1, 0, ereq, sreq)


def plain():
    return struct.pack("<ii", 0, 0) + entry()


def vector(blocks, length, stride):
    root = entry(num_ereqs=length, num_blocks=blocks, stride=stride, ub=(blocks - 1) * stride + length, size=blocks * length, chunks=blocks, depth=2,
                 nested=1, ereq=1)
    return struct.pack("<ii", 1, 0) + root + entry()


def stripe(strip=65_536):
    return string(b"simple_stripe") + struct.pack("<q", strip)


def basic():
    return string(b"basic_dist")


class File:
    """What a client knows of a file: its handle, and those of its data."""

    def __init__(self, bed, app, name):
        self.meta = int(re.search(r"Handle +: (\d+)", bed.run(app, "pvfs2-stat", f"{MOUNT}/{name}")).group(1))
        said = bed.run(app, "pvfs2-viewdist", "-f", f"{MOUNT}/{name}")
        self.data = [int(handle) for handle in re.findall(r"handle: (\d+)", said)]
        self.name, self.root, self.entries = name, ROOT, 0


class Wire:
    """A connection to a server, or to the proxy before it."""

    FS = 1_899_051_543

    def __init__(self, port, host="127.0.0.1"):
        self.socket = socket.create_connection((host, port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.tag = 100

    def request(self, op, body, handles=(), meta=None):
        capability = string(b"S:m0") + struct.pack("<ii", self.FS, 0) + struct.pack("<I", 0) + b"\0" * 4
        capability += struct.pack("<qII", 1 << 40, 0xFFFFFFFF, len(handles)) + struct.pack(f"<{len(handles)}Q", *handles)
        return struct.pack("<iiii", 7000, 2, op, 0) + capability + (struct.pack("<I", 0) if meta is None else struct.pack("<IIQ", 1, 3, meta)) + body

    def io(self, direction, file, length, offset=0, tree=None, dist=None, nr=0, ct=1, tag=None):
        handle, known = file.data[0], ([file.meta, *file.data], file.meta)
        body = struct.pack("<QiiiiII", handle, self.FS, 0, direction, 3, nr, ct) + (dist or stripe())
        if dist is None:
            body += b"\0" * (-len(self.request(3, body, *known)) % 8)
        body += (tree or plain()) + struct.pack("<qq", offset, length)
        return self.send(self.request(3, body, *known), tag)

    def send(self, payload, tag=None):
        if tag is None:
            self.tag += 1
            tag = self.tag
        self.socket.sendall(header(UNEXPECTED, tag, len(payload)) + payload)
        return tag

    def take(self, size):
        parts = bytearray()
        while len(parts) < size:
            piece = self.socket.recv(min(size - len(parts), 1 << 20))
            if not piece:
                raise EOFError(f"its end, after {len(parts)} of {size} bytes")
            parts += piece
        return bytes(parts)

    def message(self):
        magic, mode, tag, size = struct.unpack("<IIqQ", self.take(24))
        assert magic == 51_903, magic
        return tag, self.take(size)

    def answer(self):
        """Tag, operation, status, and what follows."""
        tag, payload = self.message()
        op, status = struct.unpack("<ii", payload[8:16])
        return tag, op, status, payload[16:]

    def close(self):
        self.socket.close()
