"""A host by NVMe/TCP that proves who it is by DH-HMAC-CHAP (SHA-256, no group): connect, read, write. Base 8.13.5, TCP 3.6."""

import base64
import hashlib
import hmac
import socket
import struct

HOST = b"nqn.2026-11.example:security"


class Refused(Exception):
    """The node said no, or hung up."""


class Queue:
    def __init__(self, port, nqn, qid, cntlid, host=bytes(16)):
        self.nqn = nqn.encode()
        self.stream = socket.create_connection(("127.0.0.1", port))
        self.stream.settimeout(20)
        self.cid = 0
        self.stream.sendall(struct.pack("<BBBBI", 0, 0, 128, 0, 128) + bytes(120))
        self.exactly(128)
        data = bytearray(1024)
        data[0:16] = host
        data[16:18] = struct.pack("<H", cntlid)
        data[256 : 256 + len(self.nqn)] = self.nqn
        data[512 : 512 + len(HOST)] = HOST
        entry = bytearray(64)
        entry[0], entry[4] = 0x7F, 1
        entry[42:46] = struct.pack("<HH", qid, 31)
        self.result, _ = self.run(entry, 0, bytes(data))

    def exactly(self, n):
        data = b""
        while len(data) < n:
            piece = self.stream.recv(n - len(data))
            if not piece:
                raise Refused("hung up")
            data += piece
        return data

    def run(self, entry, length, data=b""):
        """A command: its result, and what came."""
        self.cid += 1
        entry = bytearray(bytes(entry) + bytes(64 - len(entry)))
        entry[1] = 0x40
        entry[2:4] = struct.pack("<H", self.cid)
        entry[32:36] = struct.pack("<I", length or len(data))
        entry[39] = 1 if data else 0x5A
        self.stream.sendall(struct.pack("<BBBBI", 4, 0, 72, 72 if data else 0, 72 + len(data)) + entry + data)
        came = b""
        while True:
            kind, _, _, at, size = struct.unpack("<BBBBI", self.exactly(8))
            rest = self.exactly(size - 8)
            if kind == 7:
                came += rest[at - 8 :]
            elif kind == 5:
                status = struct.unpack_from("<H", rest, 14)[0] >> 1 & 0x7FF
                if status:
                    raise Refused(f"status {status:#x}")
                return struct.unpack_from("<Q", rest, 0)[0], came
            else:
                raise Refused(f"a PDU of type {kind}")

    def prove(self, secret):
        """As the host whose secret this is, where the node asks."""
        if not self.result >> 16:
            return
        if secret is None:
            raise Refused("a proof is asked for")
        key = base64.b64decode(secret.split(":")[2])[:-4]
        negotiate = bytearray(72)
        negotiate[4], negotiate[7], negotiate[8] = 1, 1, 1
        negotiate[10], negotiate[11], negotiate[12] = 1, 1, 1
        challenge = self.exchange(negotiate)
        if challenge[:2] != b"\x01\x01":
            raise Refused("no challenge")
        text = challenge[16:48] + challenge[12:16] + b"\1\0\0" + b"HostHost" + HOST + b"\0" + self.nqn
        reply = bytearray(16)
        reply[0], reply[1], reply[4], reply[6] = 1, 2, 1, 32
        answer = self.exchange(bytes(reply) + hmac.digest(key, text, hashlib.sha256) + bytes(32))
        if answer[:2] != b"\x01\x03":
            raise Refused("the proof is not believed")

    def exchange(self, message):
        entry = bytearray(64)
        entry[0], entry[4], entry[41:44] = 0x7F, 5, bytes([1, 1, 0xE9])
        entry[44:48] = struct.pack("<I", len(message))
        self.run(entry, 0, bytes(message))
        entry[4] = 6
        entry[44:48] = struct.pack("<I", 4096)
        return self.run(entry, 4096)[1]


def attach(port, disk, secret, what):
    """Whether a host that knows `secret` (none: nothing) may connect, read or write."""
    nqn = "nqn.2026-11.local.henge:" + disk
    try:
        admin = Queue(port, nqn, 0, 0xFFFF)
        admin.prove(secret)
        admin.run(bytes([0x7F]) + bytes(43) + struct.pack("<II", 0x14, 0x460001), 0)
        if what == "connect":
            return True
        io = Queue(port, nqn, 1, admin.result & 0xFFFF)
        io.prove(secret)
        entry = bytearray(64)
        entry[0], entry[4], entry[48] = (2 if what == "read" else 1), 1, 0
        io.run(entry, 512 if what == "read" else 0, b"" if what == "read" else bytes(512))
        return True
    except (Refused, OSError):
        return False
