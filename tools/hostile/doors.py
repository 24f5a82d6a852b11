"""Who comes by TLS, over HTTP, or as an administrator whose script runs wild."""
import json
import os
import socket
import ssl
import struct
import subprocess
import time

from . import wire
from .attacks import anywhere, attack, hold, many, pour
from .wire import READ, WRITE, request


def needs(program):
    """Left out where that program is missing."""
    def note(function):
        function.needs = program
        return function
    return note


def context():
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    return trusting


def secure(node, begun=None):
    """A connection with TLS to the node's forced listener."""
    s = socket.create_connection(("127.0.0.1", node.nbds), 20)
    s.sendall(struct.pack(">I", 3) + wire.option(5))
    wire.receive(s, 18 + 20)
    return (begun or context()).wrap_socket(s, server_hostname="localhost")


def secure_disk(node, name):
    s = secure(node)
    s.sendall(wire.option(1, name.encode()))
    wire.receive(s, 10)
    return s


# TLS: a handshake costs the node a signature and a key exchange, and its client little.

@attack("own", quick=True)
@needs("openssl")
def handshakes_by_tls(node):
    begun = context()
    while True:
        secure(node, begun).close()


@attack("own")
@needs("openssl")
def handshakes_that_stop_at_the_first_message(node):
    """A ClientHello in a loop, and away: the node has signed for nobody."""
    outgoing = ssl.MemoryBIO()
    hello = context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    try:
        hello.do_handshake()
    except ssl.SSLWantReadError:
        pass
    hello = outgoing.read()
    while True:
        s = socket.create_connection(("127.0.0.1", node.nbds), 20)
        s.sendall(struct.pack(">I", 3) + wire.option(5))
        wire.receive(s, 18 + 20)
        s.sendall(hello)
        s.recv(1)
        s.close()


@attack("own")
@needs("openssl")
def records_of_a_byte(node):
    """Each byte has a record of its own, to be decrypted alone."""
    s = secure_disk(node, "rude")
    command = request(WRITE, 0, 4096) + bytes(4096)
    while True:
        for byte in command:
            s.write(bytes([byte]))
        wire.receive(s, 16)


def change_keys(port, *more):
    """KeyUpdate, as fast as openssl says it."""
    while True:
        client = subprocess.Popen(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *more],
                                  stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while client.poll() is None:
                client.stdin.write(b"K\n" * 64)
                client.stdin.flush()
        except OSError:
            pass
        client.wait()
        time.sleep(0.01)


@attack("own")
@needs("openssl")
def keys_changed_all_the_time(node):
    change_keys(node.nbds, "-starttls", "nbd")


@attack("own")
@needs("openssl")
def reads_by_tls(node):
    """Encrypting costs more than reading."""
    sockets = [secure_disk(node, "rude") for _ in range(4)]
    while True:
        for s in sockets:
            s.sendall(many(8, lambda i: request(READ, anywhere(65536), 65536)))
        for s in sockets:
            wire.receive(s, 8 * (16 + 65536))


@attack("own")
@needs("openssl")
def connections_that_never_begin_tls(node):
    sockets = []
    for _ in range(1000):
        try:
            s = socket.create_connection(("127.0.0.1", node.nbds), 5)
            s.sendall(struct.pack(">I", 3) + wire.option(5))
            sockets.append(s)
        except OSError:
            break
    hold(sockets)


# An administrator's scripts, and whoever looks at the page.

@attack("own", quick=True)
def questions_about_everything(node):
    """`status` on 16 connections of the control socket, without a pause."""
    sockets = []
    for _ in range(16):
        s = socket.socket(socket.AF_UNIX)
        s.connect(node.control)
        sockets.append(s)
    pour(sockets, lambda: json.dumps({"op": "status"}).encode() + b"\n")


@attack("own")
def lines_without_end(node):
    """The control socket's line that never ends; it is not taken for long."""
    while True:
        s = socket.socket(socket.AF_UNIX)
        s.connect(node.control)
        try:
            while True:
                s.sendall(b"x" * 65536)
        except OSError:
            s.close()


@attack("own", quick=True)
def disks_that_come_and_go(node):
    disk = {"name": "coming", "pool": "a", "capacity": "64MiB"}
    while True:
        node.ask(op="add", disk=disk)
        node.ask(op="remove", name="coming")


@attack("own")
def contracts_changed_all_the_time(node):
    for weight in iter(lambda: int.from_bytes(os.urandom(1)) + 1, None):
        node.ask(op="set", name="rude", contract={"weight": str(weight)})


@attack("own")
def the_page_in_a_loop(node):
    ask = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    pour([socket.create_connection(("127.0.0.1", node.http), 20) for _ in range(16)], lambda: ask * 8)


@attack("own")
def headers_of_http_byte_by_byte(node):
    sockets = [socket.create_connection(("127.0.0.1", node.http), 20) for _ in range(200)]
    while True:
        for s in sockets:
            s.sendall(b"G")
        time.sleep(0.05)
