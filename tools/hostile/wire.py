"""NBD and iSCSI, as far as somebody who means harm needs them: nothing is checked, little is read."""
import os
import socket
import struct

READ, WRITE, FLUSH, TRIM, CACHE, ZEROES, STATUS = 0, 1, 3, 4, 5, 6, 7
FUA, REQ_ONE = 1, 8


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


class Initiator:
    """An iSCSI session: login without authentication, then SCSI commands."""

    def __init__(self, node, name, kind="Normal", finish=True):
        self.s = socket.create_connection(("127.0.0.1", node.iscsi), 20)
        self.itt, self.cmd = 1, 1
        text = {"InitiatorName": "iqn.2026-11.local.hostile:i", "SessionType": kind, "AuthMethod": "None"}
        if kind == "Normal":
            text["TargetName"] = f"iqn.2026-11.local.henge:{name}"
        self._login(text, 0, 1)
        if finish:
            operational = {"HeaderDigest": "None", "DataDigest": "None", "InitialR2T": "Yes", "ImmediateData": "No"}
            self._login(operational, 1, 3)

    def _login(self, keys, stage, following):
        text = b"".join(f"{k}={v}".encode() + b"\0" for k, v in keys.items())
        head = bytearray(48)
        head[0], head[1] = 0x43, 0x80 | stage << 2 | following
        head[5:8] = len(text).to_bytes(3, "big")
        head[8:14] = os.getpid().to_bytes(6, "big")
        struct.pack_into(">II", head, 16, self.itt, 0)
        struct.pack_into(">I", head, 24, self.cmd)
        self.s.sendall(bytes(head) + text + bytes(-len(text) % 4))
        answer = receive(self.s, 48)
        length = int.from_bytes(answer[5:8], "big")
        receive(self.s, length + -length % 4)
        if answer[36]:
            raise OSError(f"login was refused: {answer[36]}.{answer[37]}")

    def command(self, cdb, into):
        """The bytes of a SCSI command that reads `into` bytes."""
        self.itt += 1
        self.cmd += 1
        head = bytearray(48)
        head[0], head[1] = 0x01, 0xC1
        struct.pack_into(">IIII", head, 16, self.itt, into, self.cmd - 1, 1)
        head[32:32 + len(cdb)] = cdb
        return bytes(head)

    def text(self, data):
        """A text request (discovery)."""
        self.itt += 1
        head = bytearray(48)
        head[0], head[1] = 0x44, 0x80
        head[5:8] = len(data).to_bytes(3, "big")
        struct.pack_into(">IIII", head, 16, self.itt, 0xFFFFFFFF, self.cmd, 1)
        return bytes(head) + data + bytes(-len(data) % 4)
