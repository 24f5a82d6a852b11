"""NBD, iSCSI and NVMe over TCP, as far as somebody who means harm needs them: nothing is checked, little is read."""
import itertools
import os
import socket
import struct

READ, WRITE, FLUSH, TRIM, CACHE, ZEROES, STATUS = 0, 1, 3, 4, 5, 6, 7
FUA, NO_HOLE, REQ_ONE = 1, 2, 8
SESSIONS = itertools.count()


def connect(node):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(node.socket)
    return s


def receive(s, n):
    data = b""
    while len(data) < n:
        got = s.recv(n - len(data))
        if not got:
            raise EOFError("the node has closed the connection")
        data += got
    return data


def option(number, data=b""):
    return b"IHAVEOPT" + struct.pack(">II", number, len(data)) + data


def disk(node, name, contexts=False):
    """A connection to a disk; with structured replies and base:allocation where `contexts` says so."""
    s = connect(node)
    receive(s, 18)
    s.sendall(struct.pack(">I", 3))
    if contexts:
        name_ = struct.pack(">I", len(name)) + name.encode()
        query = b"base:allocation"
        s.sendall(option(8) + option(10, name_ + struct.pack(">II", 1, len(query)) + query))
        for _ in range(3):
            head = receive(s, 20)
            receive(s, struct.unpack(">I", head[16:])[0])
    s.sendall(option(1, name.encode()))
    receive(s, 10)
    return s


def request(kind, offset, length, flags=0, cookie=0):
    return struct.pack(">IHHQQI", 0x25609513, flags, kind, cookie, offset, length)


TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
    TABLE.append(_byte)
KNOWN = {}


def crc32c(data):
    """The digest of a PDU's part; the long ones are always the same, and remembered."""
    data = bytes(data)
    if data not in KNOWN:
        crc = 0xFFFFFFFF
        for byte in data:
            crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
        digest = struct.pack("<I", crc ^ 0xFFFFFFFF)
        if len(data) < 1024:
            return digest
        KNOWN[data] = digest
    return KNOWN[data]


class Initiator:
    """An iSCSI session: login without authentication, then SCSI commands."""

    def __init__(self, node, name, kind="Normal", finish=True, immediate=False, digests=False):
        self.s = socket.create_connection(("127.0.0.1", node.iscsi), 20)
        self.itt, self.cmd, self.digests = 1, 1, False
        self.isid = struct.pack(">IH", os.getpid(), next(SESSIONS) & 0xFFFF)
        text = {"InitiatorName": "iqn.2026-11.local.hostile:i", "SessionType": kind, "AuthMethod": "None"}
        if kind == "Normal":
            text["TargetName"] = f"iqn.2026-11.local.henge:{name}"
        self._login(text, 0, 1)
        if finish:
            immediate = "Yes" if immediate else "No"
            digest = "CRC32C" if digests else "None"
            operational = {"HeaderDigest": digest, "DataDigest": digest, "InitialR2T": "Yes", "ImmediateData": immediate}
            self._login(operational, 1, 3)
        self.digests = digests

    def _login(self, keys, stage, following):
        text = b"".join(f"{k}={v}".encode() + b"\0" for k, v in keys.items())
        head = bytearray(48)
        head[0], head[1] = 0x43, 0x80 | stage << 2 | following
        head[5:8] = len(text).to_bytes(3, "big")
        head[8:14] = self.isid
        struct.pack_into(">II", head, 16, self.itt, 0)
        struct.pack_into(">I", head, 24, self.cmd)
        self.s.sendall(bytes(head) + text + bytes(-len(text) % 4))
        answer = receive(self.s, 48)
        length = int.from_bytes(answer[5:8], "big")
        receive(self.s, length + -length % 4)
        if answer[36]:
            raise OSError(f"login was refused: {answer[36]}.{answer[37]}")

    def _pdu(self, head, data=b""):
        head[5:8] = len(data).to_bytes(3, "big")
        data = data + bytes(-len(data) % 4)
        if self.digests:
            return bytes(head) + crc32c(head) + (data + crc32c(data) if data else b"")
        return bytes(head) + data

    def _scsi(self, flags, cdb, length, data=b"", lun=0):
        self.itt += 1
        self.cmd += 1
        head = bytearray(48)
        head[0], head[1], head[9] = 0x01, flags, lun
        struct.pack_into(">IIII", head, 16, self.itt, length, self.cmd - 1, 1)
        head[32:32 + len(cdb)] = cdb
        return self._pdu(head, data)

    def command(self, cdb, into, lun=0):
        """The bytes of a SCSI command that reads `into` bytes."""
        return self._scsi(0xC1, cdb, into, lun=lun)

    def announce(self, cdb, length):
        """The bytes of a SCSI command whose data is to be asked for."""
        return self._scsi(0xA1, cdb, length)

    def manage(self, function, task=0xFFFFFFFF):
        """The bytes of a task management request, immediate: it counts no command."""
        self.itt += 1
        head = bytearray(48)
        head[0], head[1] = 0x42, 0x80 | function
        struct.pack_into(">IIII", head, 16, self.itt, task, self.cmd, 1)
        return self._pdu(head)

    def ping(self, data):
        """The bytes of a NOP-Out that wants an answer."""
        self.itt += 1
        head = bytearray(48)
        head[0], head[1] = 0x40, 0x80
        struct.pack_into(">IIII", head, 16, self.itt, 0xFFFFFFFF, self.cmd, 1)
        return self._pdu(head, data)

    def skip(self, n):
        """Reads at least so many bytes, and all that is there."""
        while n > 0:
            got = len(self.s.recv(65536))
            if not got:
                raise EOFError("the node has closed the connection")
            n -= got

    def send(self, cdb, data):
        """The bytes of a SCSI command with its data, of a session with immediate data."""
        return self._scsi(0xA1, cdb, len(data), data)

    def text(self, data):
        """A text request (discovery)."""
        self.itt += 1
        head = bytearray(48)
        head[0], head[1] = 0x44, 0x80
        head[5:8] = len(data).to_bytes(3, "big")
        struct.pack_into(">IIII", head, 16, self.itt, 0xFFFFFFFF, self.cmd, 1)
        return bytes(head) + data + bytes(-len(data) % 4)


class Nvme:
    """A host of one disk: a controller that is enabled, its admin queue `admin`, and one queue for I/O, `io`, of 128 entries."""

    def __init__(self, node, name):
        self.node, self.nqn, self.n = node, f"nqn.2026-11.local.henge:{name}".encode(), 0
        self.admin, controller = self._connect(0, 0xFFFF)
        # CC: enabled, entries of 64 and 16 bytes.
        self.admin.sendall(self._capsule(bytes([0x7F, 0x40, 9, 0]) + bytes(40) + struct.pack("<II", 0x14, 0x460001)))
        receive(self.admin, 24)
        self.io, _ = self._connect(1, controller)

    @staticmethod
    def _capsule(entry, data=b""):
        entry = entry + bytes(64 - len(entry))
        return struct.pack("<BBBBI", 4, 0, 72, 72 if data else 0, 72 + len(data)) + entry + data

    def _connect(self, queue, controller):
        s = socket.create_connection(("127.0.0.1", self.node.nvme), 20)
        s.sendall(struct.pack("<BBBBI", 0, 0, 128, 0, 128) + bytes(120))
        receive(s, 128)
        data = bytearray(1024)
        data[16:18] = struct.pack("<H", controller)
        data[256:256 + len(self.nqn)] = self.nqn
        data[512:539] = b"nqn.2026-11.local.hostile:h"
        entry = bytearray(64)
        entry[0], entry[1], entry[4], entry[39] = 0x7F, 0x40, 1, 1
        entry[32:36] = struct.pack("<I", 1024)
        entry[42:46] = struct.pack("<HH", queue, 127)
        s.sendall(self._capsule(bytes(entry), bytes(data)))
        reply = receive(s, 24)
        if struct.unpack_from("<H", reply, 22)[0] >> 1:
            raise OSError("NVMe Connect was refused")
        return s, struct.unpack_from("<H", reply, 8)[0]

    def command(self, opcode, dwords, into=0, data=b""):
        """The bytes of a command with its dwords from 10 on, that reads `into` bytes or brings `data`."""
        self.n = self.n % 0x7FFF + 1
        entry = bytearray(64)
        entry[0], entry[1], entry[4] = opcode, 0x40, 1
        entry[2:4] = struct.pack("<H", self.n)
        entry[32:36] = struct.pack("<I", len(data) or into)
        entry[39] = 1 if data else 0x5A
        for i, dword in enumerate(dwords):
            struct.pack_into("<I", entry, 40 + 4 * i, dword)
        return self._capsule(bytes(entry), data)

    def blocks(self, opcode, first, count, data=b""):
        """The bytes of a command of `count` blocks of 512 bytes; data that is not here is to be asked for, or read."""
        return self.command(opcode, [first & 0xFFFFFFFF, first >> 32, count - 1], count * 512, data)

    def pdu(self):
        """The next PDU of the I/O queue: its kind, and what follows its first eight bytes."""
        head = receive(self.io, 8)
        return head[0], receive(self.io, struct.unpack("<I", head[4:])[0] - 8)
