"""Nodes, a small NBD client, loads, and checks, for tools/test-cluster."""

import json, os, random, shutil, signal, socket, struct, subprocess, sys, tempfile, threading, time

HENGE = os.path.abspath(os.environ.get("HENGE", "target/debug/henge"))
SECRET = "a secret of the test's own"
EIO = 5

_failed, _skipped, _seen = [], [], [0]


def check(what, holds, found=""):
    """A line for people; what does not hold is remembered."""
    _seen[0] += 1
    print(f"  {'ok  ' if holds else 'FAIL'} {what}{': ' if found != '' else ''}{found}", flush=True)
    if not holds:
        _failed.append(what)


def skip(what, why):
    print(f"  skipped: {what} needs {why}", flush=True)
    _skipped.append(what)


def verdict():
    print(f"{_seen[0]} checks, {len(_failed)} failed, {len(_skipped)} skipped")
    if _failed:
        sys.exit("failed: " + "; ".join(_failed))


def until(what, holds, patience=20.0):
    """Waits until something holds; how long that took."""
    begun = time.monotonic()
    while not holds():
        if time.monotonic() - begun > patience:
            raise SystemExit(f"test-cluster: {what} did not happen within {patience} s")
        time.sleep(0.02)
    return time.monotonic() - begun


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def through(nodes, places):
    """The line of a disk that names those of the nodes by which clients come though it has no place there."""
    names = [f'"{node.name}"' for node in nodes if node.name not in places]
    return f"through = [{', '.join(names)}]\n" if names else ""


class Node:
    """One `henge node`."""

    def __init__(self, directory, name, address="127.0.0.1", namespace=None):
        self.dir, self.name, self.address, self.namespace = directory, name, address, namespace
        fixed = namespace is not None
        self.nbd = 10809 if fixed else free_port()
        self.link = 10810 if fixed else free_port()
        self.iscsi = None
        self.control = f"{directory}/{name}.sock"
        self.process = None
        self.extra = []

    def link_address(self):
        return f"{self.address}:{self.link}"

    def write(self, peers, body, secret=SECRET, link=""):
        """Its configuration; `peers` are pairs of a name and an address, and perhaps where initiators go there."""
        initiators = f', "iscsi://{self.address}:{self.iscsi}"' if self.iscsi else ""
        # In a namespace of its own a node has an address that the others reach, and nobody else.
        text = f'listen = ["nbd://{self.address}:{self.nbd}"{initiators}]\ninsecure = true\ncontrol = "{self.control}"\n'
        text += f'state_dir = "{self.dir}/{self.name}.state"\n'
        text += f'[link]\nname = "{self.name}"\nlisten = "{self.link_address()}"\nsecret = "{secret}"\n{link}\n'
        for name, address, *iscsi in peers:
            text += f'[[peer]]\nname = "{name}"\naddress = "{address}"\n'
            text += f'iscsi = "{iscsi[0]}"\n' if iscsi else ""
        with open(f"{self.dir}/{self.name}.toml", "w") as f:
            f.write(text + body)

    def start(self):
        command = [HENGE, "node", "-c", f"{self.dir}/{self.name}.toml", *self.extra]
        if self.namespace:
            command = ["ip", "netns", "exec", self.namespace, *command]
        log = open(f"{self.dir}/{self.name}.log", "a")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(f"{self.name} answers", lambda: self.process.poll() is not None or self.status() is not None)
        if self.process.poll() is not None:
            raise SystemExit(f"node {self.name} did not start:\n{self.log()}")
        return self

    def log(self):
        with open(f"{self.dir}/{self.name}.log") as f:
            return f.read()

    def ask(self, request):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(5)
            s.connect(self.control)
            s.sendall(json.dumps(request).encode() + b"\n")
            text = b""
            while not text.endswith(b"\n"):
                piece = s.recv(65536)
                if not piece:
                    break
                text += piece
        return json.loads(text)

    def status(self):
        try:
            return self.ask({"op": "status"}).get("status")
        except (OSError, ValueError):
            return None

    def is_linked(self):
        status = self.status()
        return status is not None and all(p["linked"] for p in status.get("peers", [])) and not any(
            d.get("trouble") for d in status["disks"])

    def uptime(self):
        return self.status()["uptime"]

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def uri(self, disk):
        return f"nbd://{self.address}:{self.nbd}/{disk}"


class Client:
    """NBD by EXPORT_NAME and simple replies."""

    def __init__(self, node, export, timeout=30.0):
        self.socket = socket.create_connection((node.address, node.nbd), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.receive(18)
        name = export.encode()
        self.socket.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, len(name)) + name)
        self.receive(10)
        self.cookie = 0
        self.reads = {}

    def receive(self, n):
        parts = []
        while n:
            piece = self.socket.recv(min(n, 1 << 20))
            if not piece:
                raise ConnectionError("the node closed the connection")
            parts.append(piece)
            n -= len(piece)
        return b"".join(parts)

    def send(self, kind, offset, length, data=b""):
        self.cookie += 1
        if kind == 0:
            self.reads[self.cookie] = length
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, kind, self.cookie, offset, length) + data)
        return self.cookie

    def reply(self):
        _, error, cookie = struct.unpack(">IIQ", self.receive(16))
        length = self.reads.pop(cookie, 0)
        return cookie, error, self.receive(length) if length and not error else b""

    def read(self, offset, length):
        self.send(0, offset, length)
        _, error, data = self.reply()
        return error, data

    def write(self, offset, data):
        self.send(1, offset, len(data), data)
        return self.reply()[1]

    def flush(self):
        self.send(3, 0, 0)
        return self.reply()[1]


class Load(threading.Thread):
    """So many reads of one size always outstanding, within a range of a disk."""

    def __init__(self, node, disk, size, outstanding, start=0, end=None, seed=1):
        super().__init__(daemon=True)
        self.client = Client(node, disk)
        self.size, self.outstanding, self.range = size, outstanding, (start // size, end // size)
        self.random = random.Random(seed)
        self.done = self.errors = 0
        self.over = False
        self.start()

    def send(self):
        self.client.send(0, self.random.randrange(*self.range) * self.size, self.size)

    def run(self):
        try:
            for _ in range(self.outstanding):
                self.send()
            while not self.over:
                error = self.client.reply()[1]
                self.done += 1
                self.errors += error != 0
                if error:
                    time.sleep(0.01)
                self.send()
        except OSError:
            if not self.over:
                self.errors += 1

    def end(self):
        self.over = True
        self.client.socket.close()


class Directory:
    """A directory for the run; kept where something failed."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="henge-test-cluster-")
        return self.path

    def __exit__(self, kind, *_):
        if kind is None and not _failed:
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            print(f"  logs and configurations are in {self.path}")


def have(what, *tools):
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        skip(what, ", ".join(missing))
    return not missing
