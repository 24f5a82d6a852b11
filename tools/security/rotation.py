"""A cluster's root is exchanged for another one under load: no request fails, nobody is left out, and then the old one opens nothing."""

import json
import os
import random
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

from security import identities
from security.identities import until

BLOCK = 4096
AREA = 256  # blocks of one client


class Failed(Exception):
    pass


def attach(port, ca, folder, disk):
    """A client by NBD that shows a certificate: its socket, ready for commands."""
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(os.path.join(folder, "client-cert.pem"), os.path.join(folder, "client-key.pem"))
    s = socket.create_connection(("127.0.0.1", port), timeout=30)
    s.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 5, 0))
    exactly(s, 38)
    secure = context.wrap_socket(s, server_hostname="localhost")
    go = struct.pack(">I", len(disk)) + disk.encode() + struct.pack(">H", 0)
    secure.sendall(b"IHAVEOPT" + struct.pack(">II", 7, len(go)) + go)
    kind = 0
    while kind != 1:  # until it is acknowledged
        kind, length = struct.unpack(">II", exactly(secure, 20)[12:])
        exactly(secure, length)
        if kind >> 31:
            raise Failed(f"{disk} is refused")
    return secure


def exactly(s, n):
    data = b""
    while len(data) < n:
        piece = s.recv(n - len(data))
        if not piece:
            raise Failed("the node hung up")
        data += piece
    return data


class Load(threading.Thread):
    """A client that writes, reads what it wrote, and flushes, 16 commands at a time; it stops at what is wrong."""

    def __init__(self, name, port, ca, folder, disk, first):
        super().__init__(daemon=True)
        self.called, self.first = name, first
        self.socket = attach(port, ca, folder, disk)
        self.over, self.wrong, self.done, self.slowest = False, None, 0, 0.0
        self.start()

    def run(self):
        dice = random.Random(self.called)
        holds, busy, asked, number = {}, set(), {}, 0
        try:
            while not self.over or asked:
                while len(asked) < 16 and not self.over:
                    number += 1
                    block = dice.randrange(AREA)
                    if block in busy:
                        break
                    what = 3 if number % 64 == 0 else 1 if block not in holds or dice.random() < 0.5 else 0
                    data = struct.pack(">QQ", block, number) * (BLOCK // 16) if what == 1 else b""
                    at, length = (0, 0) if what == 3 else ((self.first + block) * BLOCK, BLOCK)
                    self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, what, number, at, length) + data)
                    asked[number] = (what, block, data, time.monotonic())
                    if what != 3:
                        busy.add(block)
                magic, error, handle = struct.unpack(">IIQ", exactly(self.socket, 16))
                what, block, data, begun = asked.pop(handle)
                if magic != 0x67446698 or error:
                    raise Failed(f"command {what} at block {block}: error {error}")
                if what == 0 and exactly(self.socket, BLOCK) != holds[block]:
                    raise Failed(f"block {block} does not hold what was written last")
                if what == 1:
                    holds[block] = data
                busy.discard(block) if what != 3 else None
                self.done += 1
                self.slowest = max(self.slowest, time.monotonic() - begun)
        except (OSError, Failed) as e:
            self.wrong = f"{e} after {self.done} commands, with {len(asked)} under way"

    def stop(self):
        self.over = True
        self.join(60)
        self.socket.close()
        return f"{self.called}: {self.wrong or 'nothing failed'} ({self.done} commands, the slowest {self.slowest * 1000:.0f} ms)"


class Fio:
    """fio by libnbd, which looks for certificates in its user's home, and not for root."""

    def __init__(self, cluster, port, folder):
        home = cluster.path("fio-home")
        theirs = os.path.join(home, ".pki/libnbd")
        os.makedirs(theirs)
        for name in ("ca-cert.pem", "client-cert.pem", "client-key.pem"):
            shutil.copy(os.path.join(folder, name), theirs)
        user = []
        if os.geteuid() == 0:
            user = ["setpriv", "--reuid", "65534", "--clear-groups"]
            for at, folders, files in os.walk(home):
                for name in (at, *(os.path.join(at, f) for f in files)):
                    os.chown(name, 65534, -1)
            at = home
            while len(at := os.path.dirname(at)) > len("/tmp"):
                os.chmod(at, os.stat(at).st_mode | 0o011)
        command = [*user, "fio", "--name=load", "--ioengine=nbd", f"--uri=nbds://localhost:{port}/alone", "--rw=randrw", "--bs=16k",
                   "--iodepth=8", "--size=4m", "--time_based", "--runtime=600", "--output-format=json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=home,
                                        env={**os.environ, "HOME": home})

    def stop(self):
        running = self.process.poll() is None
        self.process.send_signal(signal.SIGINT)
        text = self.process.communicate(timeout=60)[0]
        try:
            job = json.loads(text[text.index("{"):])["jobs"][0]
        except (ValueError, KeyError):
            return False, text[-500:]
        count = job["read"]["total_ios"] + job["write"]["total_ios"]
        return running and job["error"] == 0 and count > 0, f"error {job['error']}, {count} commands, ran to the end: {running}"


class Cluster(identities.Cluster):
    def __init__(self, henge, directory, port, start, check):
        os.makedirs(os.path.join(directory, "rotation"))
        super().__init__(henge, os.path.join(directory, "rotation"), port, start, check)
        self.links, self.doors = [port(), port()], [port(), port()]

    def pair(self, name):
        i = "ab".index(name)
        other = "ba"[i]
        config = self.write(f"{name}.toml", f"""
listen = ["nbds://localhost:{self.doors[i]}"]
control = "{self.path(name)}.sock"
state_dir = "{self.path(name)}.state"
identity = "{self.path(name)}"
[link]
name = "{name}"
listen = "127.0.0.1:{self.links[i]}"
[[peer]]
name = "{other}"
address = "127.0.0.1:{self.links[1 - i]}"
[manager]
address = "127.0.0.1:{self.nodes}"
name = "{name}"
[[pool]]
name = "p"
memory = true
capacity = "64MiB"
[[disk]]
name = "wide"
capacity = "16MiB"
pools = ["a/p", "b/p"]
stripe = "64KiB"
[[disk]]
name = "alone"
pools = ["{name}/p"]
capacity = "4MiB"
""".replace('name = "alone"', 'name = "alone"' if name == "a" else 'name = "other"'))
        return self.start(f"rotation-{name}", "node", "-c", config)

    def chain(self, name):
        return open(os.path.join(self.path(name), "identity.pem")).read().split("-----BEGIN CERTIFICATE-----")[1:]

    def link(self, name):
        """Of a node's link: how often it was established, and how many parts of commands failed by it."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(10)
            s.connect(self.path(name) + ".sock")
            s.sendall(b'{"op":"status"}\n')
            with s.makefile() as lines:
                peer = json.loads(lines.readline())["status"]["peers"][0]
        return peer["established"], peer["failed"]

    def sees(self, folder, door=0, disk="wide"):
        uri = f"nbds://localhost:{self.doors[door]}/{disk}?tls-certificates={folder}"
        done = subprocess.run(["nbdinfo", "--size", uri], capture_output=True, text=True, timeout=60)
        return done.returncode == 0, done.stdout + done.stderr


def run(henge, directory, port, start, check, skip):
    missing = [tool for tool in ("nbdinfo", "fio", "setpriv") if not shutil.which(tool)]
    if missing:
        return skip("rotation of a root", f"{missing[0]} is missing")
    c = Cluster(henge, directory, port, start, check)
    config = c.write("manager.toml", f"""
listen = "127.0.0.1:{c.api}"
nodes = "127.0.0.1:{c.nodes}"
state_dir = "{c.state}"
cluster = "spin"
name = "m1"
""")
    start("rotation-manager", "manager", "-c", config)
    token = os.path.join(c.state, "admin.token")
    check("the manager is there", until(lambda: os.path.exists(token) and os.path.exists(c.ca)))
    for name in ("a", "b"):
        c.run("join", c.url, c.invite("node", name, "--host", "localhost"), "-o", c.path(name))
        c.pair(name)
    for name in ("ann", "carol", "away"):
        c.run("join", c.url, c.invite("node" if name == "away" else "client", name), "-o", c.path(name))
    early = c.invite("client", "dora")
    check("both nodes serve one disk", until(lambda: c.sees(c.path("ann"))[0] and c.sees(c.path("ann"), 1)[0]), c.sees(c.path("ann")))
    rotated(c, check, early)


def rotated(c, check, early):
    ann, carol = c.path("ann"), c.path("carol")
    ours = os.path.join(ann, "ca.pem")
    old = [Load("old-a", c.doors[0], ours, ann, "wide", 0), Load("old-b", c.doors[1], ours, ann, "wide", AREA)]
    fio = Fio(c, c.doors[0], ann)
    held = attach(c.doors[0], ours, carol, "wide")
    time.sleep(1)
    linked = c.link("a")
    code, said = c.run("ca", "rotate")
    check("a second root is made under load", code == 0, said)
    newest = lambda: open(c.ca).read().split("-----BEGIN CERTIFICATE-----")[1].strip()
    both = lambda: open(c.ca).read().count("BEGIN") == 2
    signed = lambda name: both() and c.chain(name)[-1].strip() == newest()
    check("both nodes are signed by it", until(lambda: signed("a") and signed("b"), 60))
    # Who has heard of nothing comes in, and finds whom it looks for.
    roots = open(ours).read().count("BEGIN")
    seen = until(lambda: c.sees(ann), 5) or (False, "")
    check("a client that knows the old root alone attaches to a node that the new one signed", roots == 1 and seen[0], seen)
    c.node("away", c.path("away"))
    check("a node that was away comes back, and hears of the new root", until(lambda: "away" in c.up(), 30), c.up())
    code, said = c.run("join", c.url, early, "-o", c.path("dora"), HENGE_CA="", HENGE_TOKEN_FILE="")
    check("an invitation from before lets in", code == 0, said)
    code, said = c.run("renew", "--now", ann, HENGE_CA="", HENGE_TOKEN_FILE="")
    check("a client renews by what it has", code == 0 and open(ours).read().count("BEGIN") == 2, said)
    again = until(lambda: c.link("a")[0] > linked[0], 90)
    check("the link is made anew by the new certificates", again, (linked, c.link("a")))
    # Links by certificates of before are exchanged at most a minute after both ends have new ones.
    young = [Load("new-a", c.doors[0], ours, ann, "wide", 2 * AREA), Load("new-b", c.doors[1], ours, ann, "wide", 3 * AREA)]
    time.sleep(8)
    for load in old:
        said = load.stop()
        check("while a root is exchanged no request fails", load.wrong is None and load.done > 100, said)
        print("        " + said)
    fine, said = fio.stop()
    check("nor one of fio's", fine, said)
    code, said = c.run("ca", "retire")
    check("the old root stays while somebody needs it", code != 0 and "client/carol" in said, said)
    shutil.copytree(c.path("away"), c.path("kept"))
    code, said = c.run("ca", "retire", "--anyway")
    check("it ends", code == 0, said)
    trusts = lambda name: open(os.path.join(c.path(name), "ca.pem")).read().count("BEGIN") == 1
    check("both nodes hear of it", until(lambda: trusts("a") and trusts("b"), 30))
    held.settimeout(60)
    try:
        over = held.recv(1) == b""
    except TimeoutError:
        over = False
    except OSError:
        over = True
    check("a connection by its certificate ends", over)
    refused = until(lambda: not c.sees(carol)[0] and not c.sees(carol, 1)[0], 20)
    check("what it signed opens nothing", refused, c.sees(carol))
    code, said = c.run("renew", "--now", carol, HENGE_CA="", HENGE_TOKEN_FILE="")
    check("and is not renewed", code != 0, said)
    log = open(os.path.join(os.path.dirname(os.path.dirname(c.dir)), "rotation-a.log")).read()
    check("the node's log says why", "not signed by the ca" in log, log[-300:])
    time.sleep(5)
    for load in young:
        said = load.stop()
        check("when it has ended no request of who has renewed fails", load.wrong is None and load.done > 100, said)
        print("        " + said)
    check("nothing failed by the link", c.link("a")[1] == linked[1], (linked, c.link("a")))
    check("dora, who was invited before, has come by the new one", c.sees(c.path("dora"))[0], c.sees(c.path("dora")))
