"""A Ceph cluster of this machine, nodes before it, and clients of theirs."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess

from waiting import until

HENGE = os.path.abspath(os.environ.get("HENGE", "target/release/henge"))
TOOLS = pathlib.Path(__file__).resolve().parent.parent
STRICT = os.environ.get("CEPH_STRICT", "1") == "1"


def run(*command, fails=False, seconds=120):
    # Ceph's programs take SIGTERM for a wish.
    done = subprocess.run(["timeout", "-k", "1", str(seconds), *map(str, command)], capture_output=True, text=True)
    if fails is not None and (done.returncode != 0) != fails:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stdout.strip()[-2000:]} {done.stderr.strip()[-2000:]}")
    return done.stdout + done.stderr


def ratios(values):
    """How full OSDs may be until the cluster is nearly full, takes no repairs, and is full."""
    for name, value in zip(["nearfull", "backfillfull", "full"], values):
        run("ceph", "osd", f"set-{name}-ratio", str(value))


class Cluster:
    def __init__(self, dir, **settings):
        self.dir = dir
        run("env", *(f"{key}={value}" for key, value in settings.items()), TOOLS / "ceph-up", dir, "3", seconds=180)
        self.conf = f"{dir}/ceph.conf"
        os.environ["CEPH_CONF"] = self.conf

    def pid(self, daemon):
        return int((self.dir / "run" / f"{daemon}.pid").read_text())

    def signal(self, daemon, how):
        """To a daemon of this cluster alone, by the number that it wrote."""
        os.kill(self.pid(daemon), how)

    def kill(self, daemon):
        pid = self.pid(daemon)
        os.kill(pid, signal.SIGKILL)
        until(f"{daemon} is gone", lambda: not os.path.exists(f"/proc/{pid}"), 20)

    def down(self):
        subprocess.run([TOOLS / "ceph-down", self.dir, "--remove"], check=False)

    def up(self):
        run(TOOLS / "ceph-up", self.dir)
        until("all OSDs up", lambda: "3 up" in run("ceph", "osd", "stat"))

    def healthy(self):
        self.up()
        run("rbd", "bench", "--io-type", "write", "--io-size", "4K", "--io-total", "64K", "henge/one")


APART = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
if subprocess.run([*APART, "true"], capture_output=True).returncode:
    APART = []


class Node:
    def __init__(self, bed, name, disks="", scheduler="sfq = { depth = 32 }", starts=True, cluster={}, listens="", **keys):
        self.bed, self.name, self.dir = bed, name, bed.dir
        self.socket, self.control = self.dir / f"{name}.sock", self.dir / f"{name}.control"
        self.log = self.dir / f"{name}.log"
        keys = {"pool": "henge", "conf": bed.cluster.conf, "user": "henge", **keys}
        rbd = ", ".join(f"{key} = {json.dumps(value)}" for key, value in keys.items())
        # `cluster`: the port of each gateway's link, by its name. Gateways do not see each other's processes, as if on machines of their own.
        link, self.apart = "", APART if cluster else []
        if cluster:
            link = f'[link]\nname = "{name}"\nlisten = "127.0.0.1:{cluster[name]}"\nsecret = "0123456789abcdef"\n'
            link += "".join(f'[[peer]]\nname = "{peer}"\naddress = "127.0.0.1:{port}"\n' for peer, port in cluster.items() if peer != name)
        self.file = self.dir / f"{name}.toml"
        self.file.write_text(f'listen = ["nbd+unix:///{self.socket}"{listens}]\ncontrol = "{self.control}"\nstate_dir = "{self.dir}/{name}.state"\n'
                             f'[[pool]]\nname = "ceph"\nrbd = {{ {rbd} }}\ncapacity = "16GiB"\nscheduler = {{ {scheduler} }}\n{link}{disks}')
        if starts:
            self.start()

    def start(self, wait=True):
        with contextlib.suppress(FileNotFoundError):
            self.socket.unlink()
            self.control.unlink()
        with open(self.log, "a") as log:
            self.child = subprocess.Popen([*self.apart, HENGE, "node", "--config", self.file], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.bed.nodes.append(self)
        if wait:
            until(lambda: f"{self.name} is there: {self.text()[-2000:]}", lambda: self.answers() and self.listens() or self.child.poll() is not None, 70)
            assert self.child.poll() is None, self.text()[-2000:]

    def answers(self):
        with socket.socket(socket.AF_UNIX) as s:
            with contextlib.suppress(OSError):
                s.settimeout(1)
                s.connect(str(self.socket))
                return s.recv(8) == b"NBDMAGIC"
        return False

    def listens(self):
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(str(self.control)) == 0

    def text(self):
        return self.log.read_text()

    def ask(self, **request):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(120)
            s.connect(str(self.control))
            s.sendall(json.dumps(request).encode() + b"\n")
            return json.loads(s.makefile().readline())

    def add(self, name, size="64MiB", **keys):
        keys = {"capacity": size, "pool": "ceph", **keys}
        return self.ask(op="add", disk={"name": name, **keys}).get("error")

    def seat(self, disk="web"):
        """Which gateway has a disk, as this node knows it."""
        status = self.ask(op="status")["status"]
        return next((d.get("seat") for d in status["disks"] if d["name"] == disk), None)

    def uri(self, disk="web"):
        return f"nbd+unix:///{disk}?socket={self.socket}"

    def pid(self):
        if not self.apart:
            return self.child.pid
        return int(pathlib.Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text().split()[0])

    def send(self, how):
        os.kill(self.pid(), how)

    def hang(self):
        """All its threads stand still; a signal is on its way for a moment."""
        self.send(signal.SIGSTOP)
        tasks = pathlib.Path(f"/proc/{self.pid()}/task")
        states = lambda: [(task / "stat").read_text().rsplit(")")[-1].split()[0] for task in tasks.iterdir()]
        until(lambda: f"it hangs: {states()}", lambda: set(states()) == {"T"}, 10)

    def stop(self, how=signal.SIGTERM):
        self.send(how)
        self.child.wait(30)

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.pid()}/stat").read_text().rsplit(")")[-1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bed:
    def __init__(self, dir, cluster):
        self.dir, self.cluster, self.nodes, self.images = pathlib.Path(dir), cluster, [], []

    def image(self, name, *more, size="64M"):
        run("rbd", "create", f"henge/{name}", "--size", size, *more)
        self.images.append(name)

    def fio(self, uri, *more, size="32m", wait=True):
        command = ["fio", "--name=t", "--ioengine=nbd", f"--uri={uri}", "--rw=randwrite", "--bs=4k", "--iodepth=16", f"--size={size}",
                   "--randrepeat=0", "--output-format=json", *more]
        if not wait:
            return subprocess.Popen(command, cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return ended(subprocess.Popen(command, cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))

    def verified(self, uri, *more, **keys):
        return self.fio(uri, "--verify=crc32c", "--verify_fatal=1", *more, **keys)

    def close(self):
        for node in self.nodes:
            if node.child.poll() is None:
                node.child.kill()
                node.child.wait()
        for image in run("rbd", "ls", "henge").split():
            if image != "one":
                until(f"{image} is free", lambda: free_image(image), 90)


def free_image(image):
    """Nobody watches it any more: it goes, with its snapshots."""
    with contextlib.suppress(SystemExit):
        for lock in json.loads(run("rbd", "lock", "ls", f"henge/{image}", "--format", "json")):
            run("rbd", "lock", "rm", f"henge/{image}", lock["id"], lock["locker"])
        for snap in json.loads(run("rbd", "snap", "ls", f"henge/{image}", "--format", "json")):
            for child in run("rbd", "children", f"henge/{image}@{snap['name']}").split():
                run("rbd", "rm", "--no-progress", child)
        subprocess.run(["rbd", "snap", "unprotect", f"henge/{image}@1"], capture_output=True)
        run("rbd", "snap", "purge", "--no-progress", f"henge/{image}")
    done = subprocess.run(["timeout", "-k", "1", "60", "rbd", "rm", "--no-progress", f"henge/{image}"], capture_output=True, text=True)
    # Gateways had it, and are to make it anew.
    subprocess.run(["rados", "-p", "henge", "rm", f"henge.made.{image}"], capture_output=True)
    return done.returncode in (0, 2)


def ended(fio):
    out, err = fio.communicate(timeout=300)
    if fio.returncode:
        raise SystemExit(f"fio: {err[-2000:]}{out[-2000:]}")
    return json.loads(out[out.index("{"):])["jobs"][0]


def iops(job):
    return job["write"]["iops"] + job["read"]["iops"]


def slowest(job):
    """The longest that a command of fio's took, in seconds."""
    return max(job[way]["clat_ns"]["max"] for way in ["read", "write"]) / 1e9


def qemu_io(uri, *commands, fails=False, seconds=120):
    arguments = [word for command in commands for word in ("-c", command)]
    out = run("qemu-io", "-f", "raw", uri, *arguments, fails=fails, seconds=seconds)
    assert fails is not False or "verification failed" not in out, out
    return out


def ports(*names):
    """A free port for each."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    found = {name: s.getsockname()[1] for name, s in zip(names, sockets)}
    for s in sockets:
        s.close()
    return found


def gateways_of(bed, *names, disks=("web",), size="64MiB", contract="", **keys):
    """Gateways that can all serve these disks, and the first has them."""
    cluster = ports(*names)
    text = "".join(f'[[disk]]\nname = "{disk}"\ncapacity = "{size}"\ngateways = {json.dumps(list(names))}\n{contract}\n' for disk in disks)
    nodes = [Node(bed, name, text, cluster=cluster, **keys) for name in names]
    for disk in disks:
        seated(nodes, disk)
    return nodes


def seated(nodes, disk="web", at=None, seconds=30):
    """Until all of them say the same gateway."""
    def same():
        seats = {node.seat(disk) for node in nodes}
        return len(seats) == 1 and (seats == {at} if at else None not in seats)
    until(lambda: f"{disk} is at {at or 'a gateway'}: {[node.seat(disk) for node in nodes]}", same, seconds)
    return nodes[0].seat(disk)


def two_ways(bed):
    """Two gateways of one disk, each with an iSCSI and an NVMe/TCP listener: the nodes by their names, and where they listen. The first has the seat."""
    fronts = {name: ports("iscsi", "nvme") for name in ["n1", "n2"]}
    cluster = ports("n1", "n2")
    web = '[[disk]]\nname = "web"\ncapacity = "64MiB"\ngateways = ["n1", "n2"]\n'
    nodes = {}
    for name, at in fronts.items():
        more = f', "iscsi://127.0.0.1:{at["iscsi"]}", "nvme://127.0.0.1:{at["nvme"]}"'
        nodes[name] = Node(bed, name, web, cluster=cluster, listens=more)
    seated(list(nodes.values()), at="n1")
    return nodes, fronts
