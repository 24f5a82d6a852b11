#!/usr/bin/env python3
"""An NBD client for commands that fio does not send: raw.py SOCKET EXPORT SECONDS flush|zeroes LENGTH DEPTH"""
import random
import socket
import struct
import sys
import time

KINDS = {"flush": 3, "trim": 4, "zeroes": 6}


def exactly(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        if not more:
            sys.exit("the server has hung up")
        data += more
    return data


def enter(path, export):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    if exactly(s, 16) != b"NBDMAGICIHAVEOPT":
        sys.exit("this is no NBD server")
    exactly(s, 2)
    name = export.encode()
    # No zeroes, fixed newstyle; NBD_OPT_GO without information requests.
    s.sendall(struct.pack(">I", 3) + struct.pack(">QII", 0x49484156454F5054, 7, 6 + len(name)) + struct.pack(">I", len(name)) + name + b"\0\0")
    size = 0
    while True:
        _, _, reply, length = struct.unpack(">QIII", exactly(s, 20))
        data = exactly(s, length)
        if reply == 3 and data[:2] == b"\0\0":
            size = struct.unpack(">Q", data[2:10])[0]
        elif reply == 1:
            return s, size
        elif reply & 1 << 31:
            sys.exit(f"the server refused: {data.decode(errors='replace')}")


def main():
    path, export, seconds, kind, length, depth = sys.argv[1:]
    seconds, length, depth = float(seconds), int(length), int(depth)
    s, size = enter(path, export)
    end = time.monotonic() + seconds
    spots = max(1, size // max(1, length))

    def ask():
        at = 0 if kind == "flush" else random.randrange(spots) * length
        return struct.pack(">IHHQQI", 0x25609513, 0, KINDS[kind], 0, at, 0 if kind == "flush" else length)
    s.sendall(b"".join(ask() for _ in range(depth)))
    rest = b""
    while time.monotonic() < end:
        more = s.recv(1 << 16)
        if not more:
            sys.exit("the server has hung up")
        rest += more
        answered = len(rest) // 16
        for i in range(answered):
            if error := struct.unpack(">I", rest[16 * i + 4:16 * i + 8])[0]:
                sys.exit(f"the server answered with error {error}")
        rest = rest[16 * answered:]
        s.sendall(b"".join(ask() for _ in range(answered)))


if __name__ == "__main__":
    main()
