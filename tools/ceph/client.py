#!/usr/bin/env python3
"""A client by NBD that knows what it was answered, and reads it back; when its gateway is gone it goes on at the next.

    tools/ceph/client.py [--offset B] [--size B] [--depth N] [--rate N] [--reads P] [--seed N] URI…

URIs are nbd+unix:///NAME?socket=PATH and nbd://HOST:PORT/NAME. It writes blocks of 4 KiB, each with a number of its own, reads others, and flushes
now and then. Of a block one command is under way at a time. What had no answer when a connection was lost is sent again by the next one. So each
read has one right answer. It prints a line of JSON each half second: what it has done, the slowest command since the line before, what waits, and
for how long. At the end of its input it ends what it has begun, reads all blocks by each gateway, prints a last line, and exits 1 if anything was wrong.
"""
import argparse
import json
import random
import select
import socket
import struct
import sys
import time
import urllib.parse

BLOCK = 4096
READ, WRITE, FLUSH, DISCONNECT = 0, 1, 3, 2
SHUTDOWN = 108  # the server is about to end


class Gone(Exception):
    """The connection is over."""


def connect(uri):
    """A connection that takes commands."""
    parts = urllib.parse.urlsplit(uri)
    name = parts.path.lstrip("/").encode()
    try:
        if parts.scheme == "nbd+unix":
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(2)
            s.connect(urllib.parse.parse_qs(parts.query)["socket"][0])
        else:
            s = socket.create_connection((parts.hostname, parts.port), 2)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if exactly(s, 18)[:16] != b"NBDMAGICIHAVEOPT":
            raise Gone("no NBD server")
        option = struct.pack(">I", len(name)) + name + bytes(2)
        s.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 7, len(option)) + option)
        while True:
            _, _, kind, length = struct.unpack(">QIII", exactly(s, 20))
            data = exactly(s, length)
            if kind == 1:
                s.settimeout(None)
                s.setblocking(False)
                return s
            if kind >> 31:
                raise Gone(data.decode(errors="replace"))
    except OSError as e:
        raise Gone(str(e)) from e


def exactly(s, n):
    data = b""
    while len(data) < n:
        piece = s.recv(n - len(data))
        if not piece:
            raise Gone("hung up")
        data += piece
    return data


def content(block, stamp):
    return struct.pack("<QQ", block, stamp) * (BLOCK // 16) if stamp else bytes(BLOCK)


class Client:
    def __init__(self, options):
        self.o, self.random = options, random.Random(options.seed)
        self.blocks = options.size // BLOCK
        self.known = [0] * self.blocks  # the number that was acknowledged last
        self.busy, self.under = set(), {}
        self.stamp = self.handle = self.done = self.lost = self.at = 0
        self.wrong, self.slowest, self.input, self.output = [], 0.0, b"", bytearray()
        self.socket, self.again_at, self.ending, self.next_at = None, 0.0, False, time.monotonic()
        self.said = time.monotonic()

    # A connection.

    def reach(self):
        if self.socket or time.monotonic() < self.again_at:
            return
        try:
            self.socket = connect(self.o.uri[self.at % len(self.o.uri)])
        except Gone:
            self.at += 1
            self.again_at = time.monotonic() + 0.05
            return
        self.input, self.output = b"", bytearray()
        for handle in self.under:
            self.send(handle)

    def hang_up(self):
        self.socket.close()
        self.socket = None
        self.lost += 1
        self.at += 1

    def send(self, handle):
        kind, block, stamp, _ = self.under[handle]
        length = 0 if kind == FLUSH else BLOCK
        self.output += struct.pack(">IHHQQI", 0x25609513, 0, kind, handle, 0 if kind == FLUSH else self.o.offset + block * BLOCK, length)
        if kind == WRITE:
            self.output += content(block, stamp)

    def talk(self, until):
        """Sends and hears, until then at the latest."""
        wait = max(0.0, min(until - time.monotonic(), 0.1))
        if self.socket is None:
            return time.sleep(min(wait, 0.02))
        readable, writable, _ = select.select([self.socket], [self.socket] if self.output else [], [], wait)
        try:
            if writable:
                del self.output[:self.socket.send(self.output)]
            if readable:
                piece = self.socket.recv(1 << 18)
                if not piece:
                    raise Gone
                self.input += piece
                self.hear()
        except (OSError, Gone):
            self.hang_up()

    def hear(self):
        at = 0
        while len(self.input) - at >= 16:
            magic, error, handle = struct.unpack_from(">IIQ", self.input, at)
            if magic != 0x67446698 or handle not in self.under:
                raise SystemExit(f"an answer to nothing: {magic:#x} {handle}")
            kind, block, stamp, since = self.under[handle]
            length = BLOCK if kind == READ and not error else 0
            if len(self.input) - at < 16 + length:
                break
            if error == SHUTDOWN:
                raise Gone
            self.over(handle, error, self.input[at + 16:at + 16 + length])
            at += 16 + length
        self.input = self.input[at:]

    # Commands.

    def begin(self, kind, block=None):
        self.handle += 1
        if block is not None:
            self.busy.add(block)
        if kind == WRITE:
            self.stamp += 1
        self.under[self.handle] = (kind, block, self.stamp if kind == WRITE else 0, time.monotonic())
        if self.socket:
            self.send(self.handle)

    def over(self, handle, error, data):
        kind, block, stamp, since = self.under.pop(handle)
        self.busy.discard(block)
        self.done += 1
        self.slowest = max(self.slowest, time.monotonic() - since)
        if error:
            self.wrong.append(f"{['a read', 'a write', '', 'a flush'][kind]} of block {block} ends with error {error}")
        elif kind == WRITE:
            self.known[block] = stamp
        elif kind == READ and data != content(block, self.known[block]):
            there = struct.unpack_from("<QQ", data)
            self.wrong.append(f"block {block} is {self.known[block]}, and reads as {there[1]} (of block {there[0]})")

    def another(self):
        """One more command, if it is time for one."""
        if self.ending or len(self.under) >= self.o.depth or time.monotonic() < self.next_at:
            return False
        if self.o.rate:
            self.next_at = max(self.next_at + 1 / self.o.rate, time.monotonic() - 0.1)
        draw = self.random.random()
        block = self.random.randrange(self.blocks)
        if draw < 0.005:
            self.begin(FLUSH)
        elif block not in self.busy:
            self.begin(READ if draw < self.o.reads else WRITE, block)
        return True

    def say(self, **more):
        now = time.monotonic()
        waits = max((now - since for *_, since in self.under.values()), default=0.0)
        line = {"done": self.done, "slowest": max(self.slowest, waits), "waits": waits, "under": len(self.under), "lost": self.lost,
                "at": self.at % len(self.o.uri), "wrong": self.wrong[:5], **more}
        print(json.dumps(line), flush=True)
        self.slowest, self.said = 0.0, now

    def run(self):
        while not self.ending or self.under:
            self.reach()
            while self.another():
                pass
            idle = self.o.rate and len(self.under) < self.o.depth and not self.ending
            self.talk(self.next_at if idle else time.monotonic() + 0.1)
            if time.monotonic() >= self.said + 0.5:
                self.say()
            if not self.ending and select.select([sys.stdin], [], [], 0)[0] and not sys.stdin.read(1):
                self.ending = True
        for _ in self.o.uri:
            self.read_all()
        self.say(over=True)
        sys.exit(1 if self.wrong else 0)

    def read_all(self):
        """All blocks, by the next gateway."""
        if self.socket:
            self.socket.close()
            self.socket = None
        self.at += 1
        block = 0
        while block < self.blocks or self.under:
            self.reach()
            while block < self.blocks and len(self.under) < 32:
                self.begin(READ, block)
                block += 1
            self.talk(time.monotonic() + 0.1)


def main():
    p = argparse.ArgumentParser()
    for name, value in [("offset", 0), ("size", 16 << 20), ("depth", 8), ("rate", 0), ("seed", 1)]:
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--reads", type=float, default=0.3)
    p.add_argument("uri", nargs="+")
    Client(p.parse_args()).run()


if __name__ == "__main__":
    main()
