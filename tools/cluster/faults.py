"""Three nodes in network namespaces of their own: killed, stopped, cut off, delayed, and healed.

`vault` lies on all three and is coordinated by any; `pair` on the first two only. `x` and `y` share the first two nodes'
disks 1 : 2, all the time; `z` has places on the first and the third, where `w` keeps the disk busy. The third node is the one
that suffers.

In all that: what was written through one node is read back through another (fio's checksums, nbdcopy); parts on the
suffering node fail at once or after the stated time; the others' shares hold; all is back within 5 s.
"""

import hashlib, os, selectors, shutil, signal, socket, subprocess, threading, time
from support import *

DEVICE = '{ constant = { time = "10ms", slots = 8, capacity = "256MiB" } }'
MIB = 1 << 20
UNIT = 8192
TIMEOUT = 3
# A link that is silent for so long is lost; a bit more for the machine.
SILENCE = 4
BACK = 5.0
# Where the third place of `vault` begins.
THIRD = 2 * 65536


class Forwarder(threading.Thread):
    """Passes bytes on to a node after a while: links with a delay, where the kernel has no netem."""

    def __init__(self, host, port, to):
        super().__init__(daemon=True)
        self.listener = socket.create_server((host, port), reuse_port=False)
        self.to, self.delay, self.pairs = to, 0.0, []
        self.start()

    def run(self):
        while True:
            a, _ = self.listener.accept()
            try:
                b = socket.create_connection(self.to, timeout=1)
            except OSError:
                a.close()
                continue
            for s in (a, b):
                s.settimeout(None)
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, sink in ((a, b), (b, a)):
                threading.Thread(target=self.carry, args=(source, sink), daemon=True).start()

    def carry(self, source, sink):
        # One thread reads with the time of arrival, the other lets go when it is time.
        import queue
        waiting = queue.Queue()

        def let_go():
            try:
                while True:
                    at, piece = waiting.get()
                    while (left := at + self.delay - time.monotonic()) > 0:
                        time.sleep(min(left, 0.05))
                    if not piece:
                        return sink.shutdown(socket.SHUT_RDWR)
                    sink.sendall(piece)
            except OSError:
                pass

        threading.Thread(target=let_go, daemon=True).start()
        try:
            while True:
                piece = source.recv(65536)
                waiting.put((time.monotonic(), piece))
                if not piece:
                    return
        except OSError:
            waiting.put((time.monotonic(), b""))


class Network:
    """A bridge, and a namespace with an address for each node."""

    def __init__(self, count):
        tag = f"{os.getpid() % 10000:04}"
        self.bridge, self.names = f"hb{tag}", [f"hn{tag}{i}" for i in range(1, count + 1)]
        self.net = f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self.host = f"{self.net}.254"

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

    def __enter__(self):
        try:
            self.ip("link", "add", self.bridge, "type", "bridge")
            self.ip("addr", "add", f"{self.host}/24", "dev", self.bridge)
            self.ip("link", "set", self.bridge, "up")
            for i, name in enumerate(self.names, 1):
                self.ip("netns", "add", name)
                self.ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
                self.ip("link", "set", name, "master", self.bridge, "up")
                self.ip("-n", name, "addr", "add", f"{self.net}.{i}/24", "dev", "eth0")
                self.ip("-n", name, "link", "set", "eth0", "up")
                self.ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            for words in (["link", "del", name], ["netns", "del", name]):
                subprocess.run(["ip", *words], capture_output=True)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)


def possible():
    if os.geteuid() != 0:
        skip("faults", "root, for network namespaces")
        return False
    if not have("faults", "ip", "fio", "nbdcopy"):
        return False
    if "nbd" not in subprocess.run(["fio", "--enghelp"], capture_output=True, text=True).stdout.split():
        skip("faults", "fio's nbd engine")
        return False
    return True


def run():
    if not possible():
        return
    network = Network(3)
    try:
        network.__enter__()
    except (subprocess.CalledProcessError, OSError) as e:
        return skip("faults", f"network namespaces ({getattr(e, 'stderr', '') or e})")
    try:
        with Directory() as directory:
            Cluster(directory, network).run()
    finally:
        network.__exit__()


class Cluster:
    def __init__(self, directory, network):
        self.dir, self.network = directory, network
        self.nodes = [Node(directory, f"n{i}", f"{network.net}.{i}", name) for i, name in enumerate(network.names, 1)]
        n1, n2, n3 = self.nodes
        # The third is reached through a forwarder, so that its links can be slow.
        self.forwarder = Forwarder(network.host, 20810, (n3.address, n3.link))
        for node in self.nodes:
            addresses = {p.name: p.link_address() for p in self.nodes if p is not node}
            if node is not n3:
                addresses["n3"] = f"{network.host}:20810"
            node.write(addresses.items(), self.body(node), link=f'timeout = "{TIMEOUT}s"')
        self.loads, self.seeds = [], {}

    def body(self, node):
        text = f'[[pool]]\nname = "files"\npath = "{self.dir}/{node.name}.data"\ncapacity = "256MiB"\n'
        text += f'[[pool]]\nname = "d"\nmemory = true\nemulated = {DEVICE}\ncapacity = "256MiB"\n'
        text += 'scheduler = { sfq = { depth = 8 } }\n'

        def disk(name, pool, nodes, capacity, weight=1, stripe="64KiB"):
            pools = ", ".join(f'"{n}/{pool}"' for n in nodes)
            return (f'[[disk]]\nname = "{name}"\npools = [{pools}]\nstripe = "{stripe}"\n'
                    f'capacity = "{capacity}MiB"\ncontract = {{ weight = {weight} }}\n{through(self.nodes, nodes)}')

        text += disk("vault", "files", ["n1", "n2", "n3"], 48) + disk("pair", "files", ["n1", "n2"], 32)
        text += disk("x", "d", ["n1", "n2"], 32) + disk("y", "d", ["n1", "n2"], 32, 2)
        text += disk("z", "d", ["n1", "n3"], 64, 1, "32MiB") + disk("w", "d", ["n3"], 32)
        return text

    def run(self):
        n1, n2, n3 = self.nodes
        try:
            for node in self.nodes:
                node.start()
            took = until("all nodes are linked", lambda: all(n.is_linked() for n in self.nodes))
            check("all nodes are linked", True, f"{took:.1f} s after the last one answered")
            self.fill("vault", 48, n1)
            self.verify("before any fault", "vault", 48, n2)
            self.same("vault", [n1, n2, n3])
            self.load()
            self.fault("killed", n3.kill, n3.start, at_once=1.0)
            self.fault("stopped", lambda: n3.process.send_signal(signal.SIGSTOP),
                       lambda: n3.process.send_signal(signal.SIGCONT), at_once=SILENCE + 1)
            cable = self.network.names[2]
            self.fault("cut off", lambda: self.network.ip("link", "set", cable, "down"),
                       lambda: self.network.ip("link", "set", cable, "up"), at_once=SILENCE + 1)
            self.slow()
            self.same("vault", [n1, n2, n3])
        finally:
            for load in self.loads:
                load.end()
            for node in self.nodes:
                if node.process and node.process.poll() is None:
                    node.process.send_signal(signal.SIGCONT)
                node.stop()

    def load(self):
        """x and y share two disks through a node each; z and w meet at the third."""
        n1, n2, n3 = self.nodes
        self.x = [Load(n1, "x", UNIT, 24, 0, 32 * MIB, 1), Load(n2, "x", UNIT, 24, 0, 32 * MIB, 2)]
        self.y = [Load(n2, "y", UNIT, 24, 0, 32 * MIB, 3), Load(n1, "y", UNIT, 24, 0, 32 * MIB, 4)]
        self.loads = self.x + self.y + [Load(n1, "z", UNIT, 8, 0, 32 * MIB, 5)]
        self.meet()
        time.sleep(3)
        self.window()
        self.shares("without a fault", tolerance=0.01)

    def meet(self):
        self.loads.append(Load(self.nodes[2], "w", UNIT, 16, 0, 32 * MIB, 6))

    def window(self):
        self.since = time.monotonic()
        self.then = [sum(l.done for l in loads) for loads in (self.x, self.y)]

    def shares(self, when, tolerance=0.03):
        # x has some 500 a second, in bursts of a device's 8 slots: in a second's window two bursts are 3 %.
        time.sleep(max(0.0, self.since + 5 - time.monotonic()))
        x, y = (sum(l.done for l in loads) - then for loads, then in zip((self.x, self.y), self.then))
        errors = sum(l.errors for l in self.x + self.y)
        check(f"{when}: y has twice what x has, within {tolerance:.0%}, and neither an error",
              abs(y / (2 * x) - 1) <= tolerance and errors == 0, f"{y / x:.3f}, {errors} errors")

    def fault(self, what, break_it, heal, at_once):
        """The third node suffers, and recovers."""
        n1, n2, n3 = self.nodes
        client = Client(n1, "vault")
        check(f"before it is {what}: all places answer", client.read(THIRD, 4096)[0] == 0)
        self.window()
        break_it()
        begun = time.monotonic()
        error = 0
        while error == 0 and time.monotonic() - begun < 15:
            error, _ = client.read(THIRD, 4096)
        took = time.monotonic() - begun
        check(f"{what}: its parts fail with an I/O error at once or after {TIMEOUT} s",
              error == EIO and took <= max(at_once, TIMEOUT + 1), f"error {error} after {took:.2f} s")
        until("its loss is known", lambda: not n1.is_linked() and not n2.is_linked(), 10)
        begun = time.monotonic()
        error, _ = client.read(THIRD, 4096)
        check(f"{what}: and at once from then on", error == EIO and time.monotonic() - begun < 0.5)
        check(f"{what}: the other places go on", client.read(0, 65536)[0] == 0 and client.read(65536, 65536)[0] == 0)
        check(f"{what}: a flush that cannot reach it fails", client.flush() == EIO)
        self.fill("pair", 32, n1)
        self.verify(f"while it is {what}", "pair", 32, n2)
        self.shares(f"while it is {what}")
        heal()
        begun = time.monotonic()
        until("it is back", lambda: client.read(THIRD, 4096)[0] == 0, 15)
        took = time.monotonic() - begun
        check(f"{what}, then healed: its parts are served again within {BACK:.0f} s", took <= BACK, f"{took:.2f} s")
        if what == "killed":
            self.meet()  # its clients went with it
        self.returning(what)
        until("all nodes are linked", lambda: all(n.is_linked() for n in self.nodes), 10)
        self.verify(f"after it was {what}", "vault", 48, n3)
        if what == "killed":
            check("after it was killed: one flush says that writes may be lost", client.flush() == EIO)
        check(f"after it was {what}: a flush reaches all", client.flush() == 0)

    def returning(self, what):
        """z got much elsewhere meanwhile; the third node serves it all the same, beside w."""
        begun = time.monotonic()
        client = Client(self.nodes[0], "z")
        error, _ = client.read(48 * MIB, UNIT)
        took = time.monotonic() - begun
        check(f"{what}, then healed: a flow that was served elsewhere is served within 2.5 s", error == 0 and took <= 2.5,
              f"error {error} after {took:.2f} s")
        begun, served = time.monotonic(), 0
        for _ in range(16):
            client.send(0, 48 * MIB, UNIT)
        while time.monotonic() - begun < 3:
            served += client.reply()[1] == 0
            client.send(0, 48 * MIB, UNIT)
        check(f"{what}, then healed: and goes on being served", served > 100, f"{served} requests in 3 s")
        client.socket.close()

    def slow(self):
        """One second each way: slow, and nothing else."""
        n1, _, n3 = self.nodes
        client = Client(n1, "vault")
        self.forwarder.delay = 1.0
        time.sleep(2)
        self.window()
        begun = time.monotonic()
        error, _ = client.read(THIRD, 4096)
        took = time.monotonic() - begun
        check("delayed by a second each way: its parts take that long", error == 0 and 1.9 <= took <= 3.5,
              f"error {error} after {took:.2f} s")
        begun = time.monotonic()
        check("delayed: the other places do not", client.read(0, 4096)[0] == 0 and time.monotonic() - begun < 0.5)
        self.forwarder.delay = 6.0
        begun = time.monotonic()
        error = 0
        while error == 0 and time.monotonic() - begun < 15:
            error, _ = client.read(THIRD, 4096)
        took = time.monotonic() - begun
        check(f"delayed by six seconds: its parts fail after {TIMEOUT} s", error == EIO and took <= 2 * TIMEOUT + 1,
              f"error {error} after {took:.2f} s")
        self.shares("while its links are slow")
        self.forwarder.delay = 0.0
        begun = time.monotonic()
        until("it is back", lambda: client.read(THIRD, 4096)[0] == 0, 15)
        took = time.monotonic() - begun
        check(f"no longer delayed: its parts are served within {BACK:.0f} s", took <= BACK, f"{took:.2f} s")
        until("all nodes are linked", lambda: all(n.is_linked() for n in self.nodes), 10)
        self.verify("after the delays", "vault", 48, n3)

    def fio(self, name, disk, mib, node, *more):
        seed = f"--randseed={self.seeds[disk]}"
        command = ["fio", "--name=check", seed, "--ioengine=nbd", f"--uri={node.uri(disk)}", f"--size={mib}m", "--bs=48k",
                   "--iodepth=8", "--verify=crc32c", "--verify_fatal=1", "--output-format=terse", *more]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.dir)
        return done.returncode == 0, (done.stderr.strip() or done.stdout.strip())[-300:]

    def fill(self, disk, mib, node):
        self.seeds[disk] = self.seeds.get(disk, 0) + 1  # so that no old data passes for new
        good, why = self.fio("fill", disk, mib, node, "--rw=randwrite", "--do_verify=0")
        check(f"{disk} is written through {node.name}", good, "" if good else why)

    def verify(self, when, disk, mib, node):
        good, why = self.fio("verify", disk, mib, node, "--rw=randread")
        check(f"{when}: {disk} is what was written, read through {node.name} (fio)", good, "" if good else why)

    def same(self, disk, nodes):
        """nbdcopy through each node gives the same bytes, and they are not nothing."""
        sums = []
        for node in nodes:
            copy = subprocess.run(["nbdcopy", node.uri(disk), "-"], capture_output=True)
            sums.append(hashlib.sha256(copy.stdout).hexdigest() if copy.returncode == 0 else copy.stderr.decode())
        blank = hashlib.sha256(bytes(48 * MIB)).hexdigest()
        check(f"{disk} is the same through every node (nbdcopy)", len(set(sums)) == 1 and sums[0] != blank, sums[0][:16])
