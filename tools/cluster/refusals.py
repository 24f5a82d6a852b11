"""Who is not let in, and what both sides are told."""

import socket, struct, time
from support import *

POOL = '[[pool]]\nname = "p"\nmemory = true\ncapacity = "16MiB"\n'


def run():
    with Directory() as directory:
        a, b = Node(directory, "n1"), Node(directory, "n2")
        a.write([("n2", b.link_address())], POOL)
        b.write([("n1", a.link_address())], POOL, secret="quite another secret")
        try:
            a.start(), b.start()
            # Who dials proves first, so the end that was dialled knows which it is; the other one is told nothing, and names both.
            until("the dialled end refuses", lambda: "does not know this cluster's secret" in b.log())
            until("the dialling end says why", lambda: "the two know different secrets" in a.log())
            check("a wrong secret is named on both sides", True, a.log().strip().splitlines()[-1])
            check("and there is no link", not a.is_linked() and not b.is_linked())
            stranger(a)
        finally:
            a.stop(), b.stop()


def stranger(node):
    """Another version of the protocol, and something that is none."""
    body = b"henge\0ln" + bytes([1]) + b"\x05henge" + b"\x02n9" + bytes([7]) + bytes(16)
    with socket.create_connection((node.address, node.link)) as s:
        s.sendall(struct.pack("<II", len(body), 0) + body)
        s.settimeout(5)
        while s.recv(4096):
            pass
    until("the version is named", lambda: "node n9 speaks version 1 of the link protocol, this one 6" in node.log())
    check("another version is refused in words", True)
    with socket.create_connection((node.address, node.link)) as s:
        s.sendall(b"GET / HTTP/1.1\r\n\r\n")
        s.settimeout(5)
        while s.recv(4096):
            pass
    until("a stranger is refused", lambda: "does not speak Henge's link protocol" in node.log())
    check("what speaks something else is refused", True)
    quiet = socket.create_connection((node.address, node.link))
    quiet.settimeout(10)
    begun = time.monotonic()
    while quiet.recv(4096):
        pass
    check("who says nothing is let go", time.monotonic() - begun < 8, f"after {time.monotonic() - begun:.1f} s")
