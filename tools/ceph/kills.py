"""Gateways and OSDs killed, links cut, the monitor stopped, under two clients that know what they were answered."""

import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

from support import STRICT, TOOLS, Node, ports, run, seated, until


class Relay:
    """A way to an address that can be cut: then nothing passes it, and nobody is told."""

    def __init__(self, there):
        self.there, self.is_cut, self.pairs = there, False, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            here, _ = self.listener.accept()
            try:
                there = socket.create_connection(("127.0.0.1", self.there), 2)
            except OSError:
                here.close()
                continue
            there.settimeout(None)
            pair = (here, there)
            self.pairs.append(pair)
            for source, target in [pair, pair[::-1]]:
                threading.Thread(target=self.pass_on, args=(source, target), daemon=True).start()

    def pass_on(self, source, target):
        try:
            while data := source.recv(1 << 16):
                while self.is_cut:
                    time.sleep(0.01)
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self, cut):
        self.is_cut = cut


class Clients:
    """Clients of their own processes; what each has said last."""

    def __init__(self, bed, *each):
        self.running, self.lines, self.worst = [], {}, {}
        for name, arguments in each:
            log = open(bed.dir / f"{name}.err", "w")
            child = subprocess.Popen([sys.executable, TOOLS / "ceph/client.py", *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=log, text=True)
            self.running.append((name, child))
            self.lines[name], self.worst[name] = {"done": 0, "waits": 0, "wrong": []}, 0.0
            threading.Thread(target=self.listen, args=(name, child), daemon=True).start()

    def listen(self, name, child):
        for line in child.stdout:
            found = json.loads(line)
            self.worst[name] = max(self.worst[name], found["slowest"])
            self.lines[name] = found

    def slowest(self):
        """The slowest command of each since this was asked last."""
        found, self.worst = self.worst, {name: 0.0 for name in self.worst}
        return found

    def check(self):
        for name, child in self.running:
            assert not self.lines[name]["wrong"], f"{name}: {self.lines[name]['wrong']}"
            assert child.poll() is None, f"{name} has ended"

    def go_on(self, seconds=90):
        """Until each has done something that it began now, and waits for little."""
        before = {name: line["done"] for name, line in self.lines.items()}

        def all_do():
            self.check()
            return all(line["done"] > before[name] + 50 and line["waits"] < 1 for name, line in self.lines.items())
        until(lambda: f"clients go on: {self.lines}", all_do, seconds)

    def end(self):
        """Ends them; all commands that they have done, all in order."""
        for _, child in self.running:
            child.stdin.close()
        for name, child in self.running:
            ended = child.wait(180)
            until(f"{name}'s last line", lambda name=name: self.lines[name].get("over"), 10)
            assert ended == 0 and not self.lines[name]["wrong"], f"{name}: {self.lines[name]}"
        return sum(line["done"] for line in self.lines.values())


def kills(bed, rounds=None):
    """KILLS=12 times a gateway, an OSD, the link between gateways or the monitor: two clients write and read, and each read has one right answer."""
    rounds = rounds or int(os.environ.get("KILLS", "12"))
    cluster = ports("n1", "n2")
    relay = Relay(cluster["n2"])
    web = '[[disk]]\nname = "web"\ncapacity = "64MiB"\ngateways = ["n1", "n2"]\n'
    n1 = Node(bed, "n1", web, cluster={**cluster, "n2": relay.port})
    n2 = Node(bed, "n2", web, cluster=cluster)
    nodes = {"n1": n1, "n2": n2}
    seated([n1, n2])
    chance = random.Random(int(os.environ.get("SEED", "1")))
    ways = [n1.uri(), n2.uri()]
    clients = Clients(bed, ("one", ["--offset", 0, "--seed", 1, *ways]), ("two", ["--offset", 32 << 20, "--seed", 2, *ways[::-1]]))
    stalls = {kind: [] for kind in ["gateway", "osd", "link", "mon"]}
    began = time.monotonic()
    for i in range(rounds):
        clients.go_on()
        clients.slowest()
        kind = list(stalls)[i % 4]
        what, wait = kind, chance.uniform(0, 1)
        time.sleep(wait)
        if kind == "gateway":
            what = chance.choice(list(nodes))
            what_is = "its home" if nodes[what].seat() == what else "not its home"
            nodes[what].stop(signal.SIGKILL)
            clients.go_on()
            nodes[what].start()
            seated([n1, n2])
            what = f"{what}, {what_is}"
        elif kind == "osd":
            what = f"osd.{chance.randrange(3)}"
            bed.cluster.kill(what)
            time.sleep(chance.uniform(0, 3))
            bed.cluster.up()
        elif kind == "link":
            relay.cut(True)
            time.sleep(chance.uniform(0.5, 7))
            relay.cut(False)
            until(lambda: f"both know the home: {[node.seat() for node in [n1, n2]]}", lambda: len({n1.seat(), n2.seat()}) == 1, 30)
        else:
            bed.cluster.signal("mon.a", signal.SIGSTOP)
            time.sleep(chance.uniform(0.5, 5))
            bed.cluster.signal("mon.a", signal.SIGCONT)
        clients.go_on()
        stalls[kind].append(max(clients.slowest().values()))
        if os.environ.get("TALKS"):
            print(f"        {i + 1:4} {kind} {what}: {stalls[kind][-1]:.2f} s", flush=True)
    took = time.monotonic() - began
    done = clients.end()
    for kind, found in stalls.items():
        if found:
            print(f"        {kind:8} {len(found):4} times, the slowest command {statistics.median(found):.2f} s, at most {max(found):.2f} s")
    print(f"        {rounds} rounds in {took / 60:.0f} min, {done} commands: each read was what had been acknowledged last")
    gateway = max(stalls["gateway"], default=0)
    assert gateway < (5 if STRICT else 15), "a gateway's disks are served again within 5 s"
