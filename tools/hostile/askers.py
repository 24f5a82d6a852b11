"""What a tenant, or a stranger, asks of a manager that costs others. Each runs in a process of its own until it is killed.

An attack is a function of the cluster. It has the tokens of one tenant, eve, whose disks are thousands, unless it says otherwise.
"""
import json
import os
import select
import socket
import ssl
import time

from .attacks import CALL
from .cluster import PROMISED, context, head
from .doors import change_keys, needs

ASKERS = {}
# Addresses of this machine: somebody with as many, or with a network of IPv6, has the places of each.
ADDRESSES = [f"127.0.0.{n}" for n in range(2, 10)]
API = "/api/v1"
LIVE = "/api/v1/live"


def asker(quick=False):
    """Registers an attack beside the manager; `quick`: also in the short run."""
    def add(function):
        ASKERS[function.__name__.replace("_", "-")] = ("own", quick, function)
        return function
    return add


def plain(port, source=None):
    s = socket.socket()
    s.settimeout(20)
    if source:
        s.bind((source, 0))
    s.connect(("127.0.0.1", port))
    return s


def secure(port, begun):
    return begun.wrap_socket(plain(port), server_hostname="localhost")


def connections(port, count):
    begun = context()
    return [secure(port, begun) for _ in range(count)]


def pour(port, count, batch):
    """Sends batches on so many connections and throws away what comes, as fast as the manager takes them. One that ends is opened again."""
    begun = context()
    out = {secure(port, begun): b"" for _ in range(count)}
    for s in out:
        s.setblocking(False)
    while True:
        readable, writable, _ = select.select(list(out), [s for s in out if out[s]] or list(out)[:1], [], 1)
        for s in set(readable) | {s for s in out if not out[s]} | set(writable):
            try:
                out[s] = out[s] or memoryview(batch())
                try:
                    out[s] = out[s][s.send(out[s][:CALL]):]
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    pass
                while s.recv(CALL):
                    pass
                raise EOFError
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            except (OSError, EOFError):
                out.pop(s)
                s.close()
                try:
                    again = secure(port, begun)
                    again.setblocking(False)
                    out[again] = b""
                except OSError:
                    time.sleep(0.01)
        time.sleep(0.001)


def by_turns(cluster, requests):
    """Each of eve's tokens in turn."""
    turn = iter(range(1 << 62))
    return lambda: requests(cluster.rude[next(turn) % len(cluster.rude)])


def said(method, path, token, body, more=""):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head(method, path, token, len(text), more) + text


def keep(port, count, begin, sources=ADDRESSES):
    """So many connections from each address, on which `begin` was said and then nothing; one that ends is opened again."""
    open_ = {}
    poll = select.poll()

    def another(source):
        try:
            s = plain(port, source)
            s.sendall(begin)
        except OSError:
            return
        open_[s.fileno()] = (s, source)
        poll.register(s, select.POLLIN | select.POLLHUP)

    for source in sources:
        for _ in range(count):
            another(source)
    while True:
        for fd, _ in poll.poll(100):
            s, source = open_[fd]
            try:
                over = not s.recv(4096)
            except OSError:
                over = True
            if over:
                poll.unregister(fd)
                del open_[fd]
                s.close()
        missing = {source: count for source in sources}
        for _, source in open_.values():
            missing[source] -= 1
        for source, more in missing.items():
            for _ in range(min(more, 64)):
                another(source)


def first_message():
    """A ClientHello."""
    outgoing = ssl.MemoryBIO()
    try:
        context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def storm(port, sources=(None,)):
    """ClientHellos, 64 at once from each address, each of which is left as soon as there is an answer: the manager has signed for nobody."""
    hello, waits, poll = first_message(), {}, select.poll()
    while True:
        for source in sources:
            for _ in range(64 - sum(of == source for _, of in waits.values())):
                try:
                    s = plain(port, source)
                    s.sendall(hello)
                except OSError:
                    continue
                waits[s.fileno()] = (s, source)
                poll.register(s, select.POLLIN | select.POLLHUP)
        for fd, _ in poll.poll(50):
            s, _ = waits.pop(fd)
            poll.unregister(fd)
            s.close()


# Lists, snapshots, admission.

@asker(quick=True)
def lists_of_thousands(cluster):
    """32 connections, eight tokens."""
    pour(cluster.api, 32, by_turns(cluster, lambda token: head("GET", API + "/disks", token)))


@asker(quick=True)
def snapshots_on_many_connections(cluster):
    pour(cluster.page, 64, by_turns(cluster, lambda token: head("GET", LIVE + "/snapshot", token)))


@asker()
def snapshots_compressed(cluster):
    for_browsers = "Accept-Encoding: gzip, br, zstd, deflate\r\n"
    pour(cluster.page, 64, by_turns(cluster, lambda token: head("GET", LIVE + "/snapshot", token, more=for_browsers)))


@asker()
def histories_of_disks(cluster):
    number = iter(range(1 << 62))
    pour(cluster.page, 64, by_turns(cluster, lambda token: head("GET", f"{LIVE}/disks/eve.disk-with-a-name-{next(number) % cluster.count}", token)))


@asker()
def events_of_everything(cluster):
    pour(cluster.api, 32, by_turns(cluster, lambda token: head("GET", API + "/events", token)))


@asker()
def admission_of_the_dearest(cluster):
    """A promise that no pool keeps: what would fit is looked for."""
    spec = {"capacity": "1MiB", "rate": "99000/s", "latency": "1100us", "percentile": 99.9, "pending": 1000, "parts": 2}
    pour(cluster.api, 32, by_turns(cluster, lambda token: said("POST", API + "/admit", token, spec) * 4))


@asker()
def previews_of_the_dearest(cluster):
    """A disk among hundreds that are promised something asks for more than there is."""
    terms, number = {"rate": "99000/s", "latency": "1100us"}, iter(range(1 << 62))
    path = LIVE + "/disks/eve.disk-with-a-name-{}/preview"
    pour(cluster.page, 32, by_turns(cluster, lambda token: said("POST", path.format(next(number) % min(PROMISED, cluster.count)), token, terms)))


@asker()
def contracts_of_hundreds_changed(cluster):
    """60 changes at once: each is admitted, stored, and told to a node."""
    number = iter(range(1 << 62))

    def change(token):
        i = next(number)
        terms = {"rate": f"{10 + i // PROMISED % 2}/s"}
        return said("PATCH", f"{API}/disks/disk-with-a-name-{i % min(PROMISED, cluster.count)}?wait=0", token, terms)
    pour(cluster.api, 60, by_turns(cluster, change))


@asker()
def disks_made_and_removed(cluster):
    number = iter(range(1 << 62))

    def both(token):
        name = f"coming-{os.getpid()}-{next(number)}"
        made = said("POST", API + "/disks?wait=0", token, {"name": name, "spec": {"capacity": "1MiB", "weight": 1}})
        return made + head("DELETE", f"{API}/disks/{name}?wait=0&force=true", token)
    pour(cluster.api, 16, by_turns(cluster, both))


# Bodies, and answers that nobody reads.

@asker(quick=True)
def bodies_at_the_limit(cluster):
    """64 KiB of 1,000 values each, on 64 connections."""
    body = {"name": "x", "spec": {f"term-with-a-long-name-{i:04}": "x" * 36 for i in range(1000)}}
    pour(cluster.api, 64, by_turns(cluster, lambda token: said("POST", API + "/disks", token, body)))


@asker()
def bodies_of_thousands_of_values(cluster):
    body = b"[" + b"[]," * 20000 + b"[]]"
    pour(cluster.api, 64, by_turns(cluster, lambda token: said("POST", API + "/admit", token, body)))


@asker()
def bodies_at_the_limit_for_the_page(cluster):
    body = {"name": "x", "contract": {f"term-with-a-long-name-{i:04}": "x" * 30 for i in range(1000)}}
    pour(cluster.page, 64, by_turns(cluster, lambda token: said("POST", LIVE + "/offer", token, body)))


@asker()
def bodies_byte_by_byte(cluster):
    sockets = connections(cluster.api, 200)
    for i, s in enumerate(sockets):
        s.sendall(head("POST", API + "/disks", cluster.rude[i % len(cluster.rude)], 60000))
    while sockets:
        for s in list(sockets):
            try:
                s.sendall(b"[")
            except OSError:
                sockets.remove(s)
                s.close()
                sockets += connections(cluster.api, 1)
                sockets[-1].sendall(head("POST", API + "/disks", cluster.rude[0], 60000))
        time.sleep(0.05)


def unread(cluster, port, path, count):
    """Asks on so many connections, and takes nothing; one that ends is opened again."""
    sockets = connections(port, count)
    for i, s in enumerate(sockets):
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(head("GET", path, cluster.rude[i % len(cluster.rude)]) * 4)
    while True:
        time.sleep(60)


@asker(quick=True)
def lists_of_disks_unread(cluster):
    unread(cluster, cluster.api, API + "/disks", 240)


@asker()
def snapshots_unread(cluster):
    unread(cluster, cluster.page, LIVE + "/snapshot", 240)


@asker(quick=True)
def pages_told_live_and_not_read(cluster):
    """As many streams as a tenant may have."""
    unread(cluster, cluster.page, API + "/stream", 64)


# Strangers.

@asker()
def wrong_tokens(cluster):
    pour(cluster.api, 64, lambda: head("GET", API + "/disks", "henge_" + os.urandom(32).hex()) * 8)


@asker()
def wrong_tokens_at_the_page(cluster):
    pour(cluster.page, 64, lambda: head("GET", LIVE + "/snapshot", "henge_" + os.urandom(32).hex()) * 8)


@asker()
def logins_at_the_page(cluster):
    pour(cluster.page, 240, lambda: said("POST", LIVE + "/session", "x", {"token": "henge_" + os.urandom(32).hex()}))


@asker()
def names_that_do_not_exist(cluster):
    pour(cluster.api, 64, lambda: head("GET", "/" + "x" * 4000, "x") * 8)


@asker(quick=True)
def idle_connections_of_eight_addresses(cluster):
    """2,400 of them, which say nothing and come again."""
    keep(cluster.api, 300, b"")


@asker()
def idle_connections_at_the_page(cluster):
    keep(cluster.page, 300, b"")


@asker()
@needs("openssl")
def keys_changed_at_the_api(cluster):
    """On an open request."""
    change_keys(cluster.api)


@asker(quick=True)
def handshakes_left_at_the_api(cluster):
    storm(cluster.api)


@asker()
def handshakes_left_at_the_page(cluster):
    storm(cluster.page)


@asker()
def whole_handshakes_at_the_api(cluster):
    begun = context()
    while True:
        try:
            secure(cluster.api, begun).close()
        except OSError:
            pass


@asker()
def half_handshakes_of_eight_addresses(cluster):
    """At the API: the first half of a ClientHello."""
    hello = first_message()
    keep(cluster.api, 300, hello[:len(hello) // 2])


@asker(quick=True)
def handshakes_left_at_the_nodes_door(cluster):
    storm(cluster.door, ADDRESSES)


@asker()
def half_handshakes_at_the_nodes_door(cluster):
    """As many strangers as the door takes, who come again; a node comes meanwhile."""
    hello = first_message()
    keep(cluster.door, 64, hello[:len(hello) // 2])


@asker()
def strangers_who_say_nothing_at_the_nodes_door(cluster):
    keep(cluster.door, 64, b"")
