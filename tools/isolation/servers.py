"""The servers: Henge with each of its schedulers, and its peers, with the same devices behind them."""
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import load

DEVICES = ["disk", "memory", "nvme-dc", "sata-ssd", "dtla-307075"]
# Part of what it had alone that a victim's rate reserves, and its share by weight.
RESERVED = 1 / 3
WEIGHT = 4


def rate(base, part=RESERVED):
    return max(1, int(base["iops"] * part))


def late(base):
    """A latency that the device alone keeps with room to spare."""
    return f"{max(1000, 4 * int(base['p99_us']))}us"


# By scheduler: its pool's text, and what the victim is promised. Rates count in commands. Each has what a pool on a device has by default, a depth that follows
# promises, so that all devices are measured with it; `-32` has 32 instead, and counts bytes or requests, `sfq-time` device time.
SCHEDULERS = {
    "fifo": ("{ fifo = { depth = 32 } }", lambda base: {}),
    "sfq": ("{ sfq = { depth = { kept = { shares = true } } } }", lambda base: {"weight": str(WEIGHT)}),
    "sfq-time": ('{ sfq = { depth = 32, cost = "time" } }', lambda base: {"weight": str(WEIGHT)}),
    "sfq-32": ('{ sfq = { depth = 32, cost = "bytes" } }', lambda base: {"weight": str(WEIGHT)}),
    "mclock": ('{ mclock = { depth = "kept", cost = "time" } }', lambda base: {"rate": f"{rate(base)}/s"}),
    "mclock-32": ('{ mclock = { depth = 32, cost = "requests" } }', lambda base: {"rate": f"{rate(base)}/s"}),
    "vc": ('{ vc = { depth = "kept" } }', lambda base: {"rate": f"{rate(base)}/s"}),
    "cvc": ('{ cvc = { depth = "kept" } }', lambda base: {"rate": f"{rate(base)}/s"}),
    "edf": ('{ edf = { depth = "kept" } }', lambda base: {"rate": f"{rate(base)}/s", "latency": late(base)}),
    "pclock": ('{ pclock = { depth = "kept" } }', lambda base: {"rate": f"{rate(base)}/s", "burst": "32", "latency": late(base)}),
    "two-level": ('{ two-level = { depth = "kept" } }', lambda base: {"rate": f"{rate(base)}/s", "latency": late(base)}),
    "locality": ("locality", lambda base: {"share": "50%"}),
}
PEERS = ["none", "qemu-throttle", "nbdkit-rate"]
SERVERS = list(SCHEDULERS) + PEERS


def terms(server):
    """The terms that a victim of this server is promised, whatever their values."""
    return SCHEDULERS[server][1]({"iops": 30, "p99_us": 1e6}) if server in SCHEDULERS else {}


def require(options):
    for tool in ("fio", "qemu-storage-daemon", "nbdkit", "nbdinfo"):
        if not shutil.which(tool):
            sys.exit(f"bench-isolation: needs {tool}")
    if not os.access(options.henge, os.X_OK):
        sys.exit(f"bench-isolation: no {options.henge}; run make build")


def lacks(_device, server, attacker):
    """Whether this server has nothing of the kind that the attacker needs."""
    if attacker == "iscsi-reads-1m":
        return server in PEERS or not shutil.which("iscsi-perf")
    return (attacker.startswith("other-pool") or attacker == "haggles") and server in PEERS


class Server:
    def __init__(self, folder):
        self.folder, self.processes, self.results, self.refusal = folder, [], {}, ""

    def spawn(self, command, probe):
        log = Path(self.folder, f"{len(self.processes)}.log")
        with open(log, "w") as to:
            self.processes.append(subprocess.Popen(command, stdout=to, stderr=to))
        for _ in range(100):
            if subprocess.run(["nbdinfo", "--size", probe], capture_output=True).returncode == 0:
                return
            if self.processes[-1].poll() is not None:
                break
            time.sleep(0.1)
        sys.exit(f"bench-isolation: {command[0]} does not serve:\n{log.read_text()}")

    def export(self, disk):
        return disk

    def uri(self, disk):
        return f"nbd+unix:///{self.export(disk)}?socket={self.socket(disk)}"

    def fill(self, disks, options):
        for disk in disks:
            command = ["fio", "--name=fill", "--ioengine=nbd", f"--uri={self.uri(disk)}", "--rw=write", "--bs=1m", "--iodepth=4", f"--size={options.size}"]
            subprocess.run(command, capture_output=True, check=True)

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Henge(Server):
    def __init__(self, folder, scheduler, device, options):
        super().__init__(folder)
        self.terms = SCHEDULERS[scheduler][1]
        # What an attacker is promised that haggles.
        of_victim = terms(scheduler)
        self.little = {"limit": "100GB/s"} if "weight" in of_victim else {"share": "10%"} if "share" in of_victim else of_victim
        text = SCHEDULERS[scheduler][0]
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        medium = f'path = "{folder}/pool"' if device == "disk" else "memory = true"
        emulated = f'emulated = "{device}"' if device not in ("disk", "memory") else ""
        chosen = "" if text is None else f"scheduler = {text}" if text.startswith("{") else f'scheduler = "{text}"'
        size = f"{options.size}iB"
        # Little, but of the kind that follows: where a pool states no cost, its gate charges what contracts count.
        little = ", ".join(f'{term} = "{value}"' if not value.isdigit() else f"{term} = {value}"
                           for term, value in terms(scheduler).items())
        capacity = f'capacity = "{3 * int(options.size[:-1])}{options.size[-1]}iB"'
        Path(folder, "node.toml").write_text(f'''
listen = ["nbd+unix://{folder}/nbd", "iscsi://127.0.0.1:{self.port}"]
control = "{folder}/control"
state_dir = "{folder}/state"
[[pool]]
name = "main"
{medium}
{capacity}
{emulated}
{chosen}
[[pool]]
name = "other"
memory = true
{capacity}
[[disk]]
name = "victim"
pool = "main"
capacity = "{size}"
contract = {{ {little} }}
[[disk]]
name = "attacker"
pool = "main"
capacity = "{size}"
[[disk]]
name = "other"
pool = "other"
capacity = "{size}"
''')
        self.spawn([options.henge, "node", "-c", f"{folder}/node.toml"], self.uri("victim"))
        # A hard disk takes as long for what was never written. Flash has nothing to read there, and answers at once.
        self.fill(["victim", "attacker", "other"] if not device.startswith("dtla") else ["other"], options)

    def socket(self, _disk):
        return f"{self.folder}/nbd"

    def iscsi(self, disk):
        found = subprocess.run(["iscsi-ls", f"iscsi://127.0.0.1:{self.port}"], capture_output=True, text=True).stdout
        for line in found.splitlines():
            name = line.split("Target:")[-1].split()[0] if "Target:" in line else ""
            if name.endswith(disk):
                return f"iscsi://127.0.0.1:{self.port}/{name}/0"
        sys.exit(f"bench-isolation: no iSCSI target for {disk} in: {found}")

    def ask(self, request):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(f"{self.folder}/control")
            s.sendall(json.dumps(request).encode() + b"\n")
            return json.loads(s.makefile().readline())

    def promise(self, victim, base):
        terms = self.terms(base)
        contract = {term: "" for term in ("weight", "rate", "latency", "burst", "share")} | terms
        reply = self.ask({"op": "set", "name": "victim", "contract": contract})
        if not reply["ok"]:
            self.refusal = reply.get("error", "refused")
            return None
        return terms


class Peer(Server):
    """A peer over files of its own, or, for a device that only Henge emulates, before a node without QoS."""
    def __init__(self, folder, kind, device, options, base, bulk):
        super().__init__(folder)
        self.kind = kind
        self.within = contextlib.ExitStack()
        if device in ("disk", "memory"):
            root = folder if device == "disk" else self.within.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="henge-isolation-"))
            images = {disk: f"{root}/{disk}.img" for disk in ("victim", "attacker")}
            for image in images.values():
                subprocess.run(["truncate", "-s", options.size, image], check=True)
            direct = device == "disk"
            # A file alone takes whole blocks only where it is direct; raw over it takes any range.
            how = ",cache.direct=on,file.aio=native" if direct else ""
            blocks = {d: f"driver=raw,node-name=file-{d},file.driver=file,file.filename={i},discard=unmap" + how for d, i in images.items()}
            plugins = {d: ["file", i] + (["cache=none"] if direct else []) for d, i in images.items()}
        else:
            node = self.within.enter_context(start("fifo", device, options))
            blocks = {d: f"driver=nbd,node-name=file-{d},server.type=unix,server.path={node.socket(d)},export={d}" for d in ("victim", "attacker")}
            plugins = {d: ["nbd", f"uri={node.uri(d)}"] for d in ("victim", "attacker")}
        # What an administrator would leave the attacker: what is left of commands and bytes.
        left = 1 - RESERVED
        iops = int(max(b["iops"] for b in base.values()) * left)
        bytes_left = int((bulk or 1 << 30) * left)
        if kind == "nbdkit-rate":
            self.nbdkit(plugins, bytes_left)
        else:
            self.qemu(blocks, iops if kind == "qemu-throttle" else 0, bytes_left)
        if device in ("disk", "memory"):
            self.fill(["victim", "attacker"], options)

    def nbdkit(self, plugins, bytes_left):
        for disk, plugin in plugins.items():
            limit = ["--filter=rate"] if disk == "attacker" else []
            rates = [f"rate={8 * bytes_left}"] if disk == "attacker" else []
            self.spawn(["nbdkit", "-f", "-U", self.socket(disk), *limit, *plugin, *rates], self.uri(disk))

    def qemu(self, blocks, iops, bytes_left):
        command = ["qemu-storage-daemon"]
        for block in blocks.values():
            command += ["--blockdev", block]
        node = {d: f"file-{d}" for d in blocks}
        if iops:
            command += ["--object", f"throttle-group,id=limit,x-iops-total={iops},x-bps-total={bytes_left}",
                        "--blockdev", "driver=throttle,node-name=limited,throttle-group=limit,file=file-attacker"]
            node["attacker"] = "limited"
        command += ["--nbd-server", f"addr.type=unix,addr.path={self.folder}/qemu,max-connections=0"]
        for disk in blocks:
            command += ["--export", f"type=nbd,id={disk},node-name={node[disk]},name={disk},writable=on"]
        self.spawn(command, self.uri("victim"))

    def socket(self, disk):
        return f"{self.folder}/{disk}.sock" if self.kind == "nbdkit-rate" else f"{self.folder}/qemu"

    def export(self, disk):
        return "" if self.kind == "nbdkit-rate" else disk

    def promise(self, _victim, base):
        # The same as Henge's, held from the other side.
        return {} if self.kind == "none" else {"rate": f"{rate(base)}/s"}

    def end(self):
        super().end()
        self.within.close()


@contextlib.contextmanager
def start(server, device, options, base=None, bulk=None):
    with tempfile.TemporaryDirectory(prefix="henge-isolation-") as folder:
        at = Henge(folder, server, device, options) if server in SCHEDULERS else Peer(folder, server, device, options, base, bulk)
        try:
            yield at
        finally:
            at.end()
