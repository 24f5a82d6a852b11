"""What one node of a disk has lost, clients of the other are told: they see no connection end."""

from support import *

DISK = '[[disk]]\nname = "web"\npools = ["n1/p", "n2/p"]\nstripe = "64KiB"\ncapacity = "1MiB"\n'
BYTES = b"answered and not flushed".ljust(512)


def run():
    # A pool in memory loses everything with its node, as a device's cache does with the power.
    with Directory() as directory:
        pair(directory, "memory = true", ended_in_order=False)
    with Directory() as directory:
        pair(directory, f'path = "{directory}/NAME-pool"', ended_in_order=True)
    with Directory() as directory:
        late(directory)


def pair(directory, medium, ended_in_order):
    a, b = Node(directory, "n1"), Node(directory, "n2")
    for node, peer in ((a, b), (b, a)):
        pool = f'[[pool]]\nname = "p"\n{medium.replace("NAME", node.name)}\ncapacity = "16MiB"\n'
        node.write([(peer.name, peer.link_address())], pool + DISK)
    try:
        a.start(), b.start()
        linked = lambda: a.is_linked() and b.is_linked()
        until("both are linked", linked)
        writer, other = Client(a, "web"), Client(a, "web")
        check("a write to the other node's place is answered", writer.write(65536, BYTES) == 0)
        b.stop() if ended_in_order else b.kill()
        b.start()
        until("both are linked again", linked)
        error, data = writer.read(65536, 512)
        there = error == 0 and data == BYTES
        told = [client.flush() for client in (writer, writer, other, other, Client(a, "web"))]
        if ended_in_order:
            check("what a node answered that ended in order is there", there)
            check("and no FLUSH fails for it", told == [0] * 5, told)
        else:
            check("what a killed node had in memory is gone", not there)
            check("one FLUSH of each client that was connected fails, and none of a new one", told == [EIO, 0, EIO, 0, 0], told)
            check("and the log says why", "may have lost writes that no FLUSH covered" in a.log())
    finally:
        a.stop(), b.stop()


class Between:
    """What lies between the node that dials and the other: it can hold what is sent, and break the near end first."""

    def __init__(self, to):
        self.to, self.held, self.kept, self.ends = to, False, b"", []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            if self.held:
                self.ends.append((near, None))  # it is let in, and goes nowhere
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            self.ends.append((near, far))
            threading.Thread(target=self.carry, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self.carry, args=(far, near, False), daemon=True).start()

    def carry(self, of, to, onward):
        try:
            while data := of.recv(65536):
                if self.held:
                    self.kept += data if onward else b""
                else:
                    to.sendall(data)
        except OSError:
            pass


def late(directory):
    """A write fails because its link is lost; what was on its way comes late, and must not be done any more."""
    a, b = Node(directory, "n1"), Node(directory, "n2")
    between = Between(b.link)
    pool = '[[pool]]\nname = "p"\nmemory = true\ncapacity = "16MiB"\n'
    a.write([("n2", between.address)], pool + DISK)
    b.write([("n1", a.link_address())], pool + DISK)
    try:
        a.start(), b.start()
        until("both are linked", lambda: a.is_linked() and b.is_linked())
        here, there = Client(a, "web"), Client(b, "web")
        near, far = between.ends[-1]
        between.held = True
        here.send(1, 65536, 512, b"1" * 512)
        until("the write is on its way", lambda: b"1" * 512 in between.kept)
        near.shutdown(socket.SHUT_RDWR)
        begun = time.monotonic()
        error = here.reply()[1]
        check("a write whose link is lost fails", error == EIO, f"after {time.monotonic() - begun:.1f} s")
        check("its client writes by the other node", there.write(65536, b"2" * 512) == 0)
        try:
            far.sendall(between.kept)
        except OSError:
            pass
        time.sleep(0.3)
        data = there.read(65536, 512)[1]
        check("and what comes late does not overwrite it", data == b"2" * 512, data[:1])
    finally:
        a.stop(), b.stop()
