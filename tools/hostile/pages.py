"""Who asks a node's page, or its control socket, as a user of the machine who may: what scripts and pages do that run wild."""
import json
import os
import socket
import threading
import time

from . import wire
from .askers import ADDRESSES, LIVE, keep
from .attacks import anywhere, attack, hold, many, pour
from .wire import READ, request

PLAIN = "GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n"


def asked(function):
    """An administrator's questions at the control socket are answered meanwhile."""
    function.asked = True
    return function


def visit(node):
    return socket.create_connection(("127.0.0.1", node.http), 20)


def get(path, more=""):
    return PLAIN.format(path, more).encode()


def post(path, body):
    text = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text


def control(node):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(node.control)
    return s


def question(**what):
    return json.dumps(what).encode() + b"\n"


def busy(node):
    """Reads of the attacker's disk, so that there is something to record."""
    s = wire.disk(node, "rude")
    threading.Thread(target=pour, args=([s], lambda: many(16, lambda i: request(READ, anywhere(4096), 4096))), daemon=True).start()


# The page.

@attack("own", quick=True)
@asked
def compares_in_a_loop(node):
    """The load is recorded for a second, and simulated under six schedulers; its reader has four pages open."""
    busy(node)
    schedulers = ["sfq", "cvc", "mclock", "fifo", "vc", "pclock"]
    pour([visit(node) for _ in range(4)], lambda: post(LIVE + "/compare", {"pool": "a", "seconds": 1, "schedulers": schedulers}))


@attack("own")
@asked
def snapshots_of_the_nodes_page(node):
    pour([visit(node) for _ in range(64)], lambda: get(LIVE + "/snapshot", "Accept-Encoding: gzip, br, zstd\r\n") * 4)


@attack("own")
@asked
def streams_of_the_nodes_page_unread(node):
    sockets = [visit(node) for _ in range(250)]
    for s in sockets:
        s.sendall(get("/api/v1/stream"))
    hold(sockets)


@attack("own")
@asked
def idle_connections_at_the_nodes_page(node):
    keep(node.http, 300, b"")


@attack("own")
@asked
def bodies_at_the_limit_for_the_nodes_page(node):
    body = {"name": "x", "contract": {f"term-with-a-long-name-{i:04}": "x" * 30 for i in range(1000)}}
    pour([visit(node) for _ in range(64)], lambda: post(LIVE + "/offer", body))


# The control socket.

@attack("own", quick=True)
@asked
def control_connections_in_a_storm(node):
    """Each asks for everything, and is gone."""
    while True:
        try:
            with control(node) as s:
                s.sendall(question(op="status"))
        except OSError:
            time.sleep(0.001)


@attack("own")
@asked
def answers_of_the_control_socket_unread(node):
    """Twice as many as it has places for; whoever is sent away comes again."""
    sockets = []
    while True:
        try:
            for _ in range(64 - len(sockets)):
                s = control(node)
                s.setblocking(False)
                s.sendall(question(op="status") * 256)
                sockets.append(s)
        except OSError:
            pass
        time.sleep(0.05)
        sockets = [s for s in sockets if not over(s)]


def over(s):
    """Whether the other end has closed: nothing is taken, and a byte more is not sent."""
    try:
        s.send(b"\n")
        return False
    except BlockingIOError:
        return False
    except OSError:
        s.close()
        return True


@attack("own")
@asked
def more_questions_than_the_control_socket_has_places(node):
    """48 connections that ask for everything without a pause, and come again."""
    def one():
        while True:
            try:
                with control(node) as s:
                    while True:
                        s.sendall(question(op="status"))
                        if not s.recv(1 << 20):
                            break
            except OSError:
                time.sleep(0.01)
    for _ in range(48):
        threading.Thread(target=one, daemon=True).start()


@attack("own")
@asked
def offers_without_end(node):
    """What making a disk would answer, with what is promised before and after; eight at once."""
    number = iter(range(1 << 62))
    ask = lambda: question(op="offer", disk={"name": f"disk-{os.getpid()}-{next(number)}", "pool": "a", "capacity": "1GiB",
                                             "contract": {"limit": "1000/s", "weight": 7}})
    pour([control(node) for _ in range(8)], lambda: many(16, lambda _: ask()))


@attack("own")
@asked
def taps_without_end(node):
    """Commands are recorded, and the tap is closed and opened again."""
    busy(node)
    pour([control(node) for _ in range(4)], lambda: question(op="tap") * 4 + question(op="untap"))
