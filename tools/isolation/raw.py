#!/usr/bin/env python3
"""An NBD client for what fio does not send: raw.py SOCKET EXPORT SECONDS KIND LENGTH DEPTH [KIND LENGTH DEPTH ...], by turns of a second"""
import random
import socket
import struct
import sys
import time

KINDS = {"write": 1, "flush": 3, "trim": 4, "zeroes": 6}


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
    path, export, seconds, *words = sys.argv[1:]
    acts = [(words[i], int(words[i + 1]), int(words[i + 2])) for i in range(0, len(words), 3)]
    s, size = enter(path, export)
    begin = time.monotonic()

    def ask(kind, length):
        at = 0 if kind == "flush" else random.randrange(max(1, size // max(1, length))) * length
        head = struct.pack(">IHHQQI", 0x25609513, 0, KINDS[kind], 0, at, 0 if kind == "flush" else length)
        return head + bytes(length) if kind == "write" else head
    rest, outstanding = b"", 0
    while (passed := time.monotonic() - begin) < float(seconds):
        kind, length, depth = acts[int(passed) % len(acts)]
        while outstanding < depth:
            s.sendall(ask(kind, length))
            outstanding += 1
        more = s.recv(1 << 16)
        if not more:
            sys.exit("the server has hung up")
        rest += more
        answered = len(rest) // 16
        for i in range(answered):
            if error := struct.unpack(">I", rest[16 * i + 4:16 * i + 8])[0]:
                sys.exit(f"the server answered with error {error}")
        rest = rest[16 * answered:]
        outstanding -= answered


if __name__ == "__main__":
    main()
