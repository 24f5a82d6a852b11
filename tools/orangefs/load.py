"""What parts have in common: servers that go away again, and applications that ask without end."""

import contextlib
import pathlib
import shutil
import socket
import struct
import subprocess
import threading

from support import MOUNT, ORANGEFS, Bed
from wire import READ, Wire, vector

EVEN = {"one": "weight = 1", "two": "weight = 1"}
ONE_TO_FOUR = {"one": "weight = 1", "two": "weight = 4"}
CLEAN = {"malformed": 0, "unsound": 0, "unfollowed": 0, "opaque": 0, "expired": 0, "unanswered": 0, "ambiguous": 0}
HERE = pathlib.Path(__file__).resolve().parent


class bed:
    """A Bed that goes away again."""

    def __init__(self, dir, flows, **how):
        self.dir, self.flows, self.how = dir / "bed", flows, how

    def __enter__(self):
        shutil.rmtree(self.dir, ignore_errors=True)
        self.bed = Bed(self.dir, self.flows, **self.how)
        return self.bed

    def __exit__(self, *_):
        self.bed.down()
        shutil.rmtree(self.dir, ignore_errors=True)


def version():
    """Of OrangeFS, as a pair of numbers; the latest where it does not say."""
    with contextlib.suppress(OSError, ValueError):
        said = subprocess.run([ORANGEFS / "bin/pvfs2-config", "--version"], capture_output=True, text=True).stdout
        return tuple(int(number) for number in said.split(".")[:2])
    return (99, 0)


def program(dir):
    """The program of the library; none where there is no compiler."""
    config = ORANGEFS / "bin/pvfs2-config"
    if not config.exists() or not shutil.which("gcc"):
        return None
    flags = subprocess.run([config, "--libs", "--cflags"], capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["gcc", "-O1", "-w", "-fcommon", HERE / "client.c", "-o", dir / "client", *flags], check=True)
    return dir / "client"


def taken(b, app):
    """Where a copy goes that nobody looks at. Not /dev/null: pvfs2-cp gives what it writes to the mode of what it read."""
    return b.dir / f"taken-{app}"


def many(b, app, stop, each=1, size=16 << 20):
    """Processes of an application that read its file over and over."""
    def one():
        while not stop.is_set():
            b.run(app, "pvfs2-cp", f"{MOUNT}/{app}", taken(b, app), "-b", str(4 << 20))

    b.copied(app, size, app)
    return [threading.Thread(target=one) for _ in range(each)]


def asking(b, app, file, send, connections, each, name="d0"):
    """Connections of an application that ask anew for whatever is answered; what stops them, and how many bytes came."""
    stop, moved = threading.Event(), []
    wires = [Wire(b.servers.proxy_port[name][app]) for _ in range(connections)]

    def one(wire):
        wire.socket.settimeout(120)
        left = {send(wire, file): None for _ in range(each)}
        while True:
            tag, payload = wire.message()
            if left[tag] is None:
                assert payload[12:16] == bytes(4), payload[:16]
                left[tag] = {3: LENGTHS[send], 34: 0}[payload[8]]
            else:
                left[tag] -= len(payload)
                moved.append(len(payload))
            if left[tag] <= 0:
                del left[tag]
                left[send(wire, file)] = None

    def until_the_end(wire):
        with contextlib.suppress(OSError, EOFError):
            one(wire)
        if not stop.is_set():
            print(f"    a connection of {app} has ended", flush=True)

    threads = [threading.Thread(target=until_the_end, args=(wire,)) for wire in wires]
    [thread.start() for thread in threads]

    def end():
        stop.set()
        [wire.socket.shutdown(socket.SHUT_RDWR) for wire in wires]
        [thread.join() for thread in threads]
        [wire.close() for wire in wires]

    return end, moved


def reads(wire, file):
    return wire.io(READ, file, 1 << 20)


def small_reads(wire, file):
    return wire.io(READ, file, 1 << 16)


def lists(wire, file):
    return wire.io(READ, file, 65_000, tree=vector(65_000, 1, 7))


def attributes(wire, file):
    return wire.send(wire.request(34, struct.pack("<iIII60Q", Wire.FS, 1 << 15, 0, 60, *file.data * 60)))


LENGTHS = {reads: 1 << 20, small_reads: 1 << 16, lists: 65_000, attributes: 0}


def asks_on(b, name, app, file, kind, connections, each):
    """Connections that have so many requests of a kind under way at a server, until they are told to end; how many were answered."""
    stop, answered = threading.Event(), []
    wires = [Wire(b.servers.proxy_port[name][app]) for _ in range(connections)]

    def one(wire):
        wire.socket.settimeout(120)
        with contextlib.suppress(OSError, EOFError):
            for _ in range(each):
                kind(wire, file)
            while True:
                wire.message()
                answered.append(1)
                kind(wire, file)
        if not stop.is_set():
            print(f"    a connection that asks for {kind.__name__} has ended", flush=True)

    threads = [threading.Thread(target=one, args=(wire,)) for wire in wires]
    [thread.start() for thread in threads]

    def end():
        stop.set()
        for wire in wires:
            with contextlib.suppress(OSError):
                wire.socket.shutdown(socket.SHUT_RDWR)
        [thread.join() for thread in threads]
        [wire.close() for wire in wires]

    return end, answered
