"""One node with two pools, its victims, and what it takes of memory."""
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

HENGE = os.path.abspath(os.environ.get("HENGE", "target/debug/henge"))
BUFFERS = 128 << 20

# Files in the page cache: a device so quick that the node itself is what attackers can hope to keep busy.
POOL = """[[pool]]
name = "{name}"
path = "{dir}/{name}"
capacity = "{capacity}"
direct = false
scheduler = {{ sfq = {{ depth = 4, cost = {{ "bytes+overhead" = {{ overhead = "256KiB" }} }} }} }}
"""
DISKS = {
    "same": 'pool = "a"\ncapacity = "256MiB"\ncontract = { weight = 1 }',
    "other": 'pool = "b"\ncapacity = "256MiB"\ncontract = { weight = 1 }',
    "rude": 'pool = "a"\ncapacity = "1GiB"\ncontract = { weight = 1 }',
    "rude-scsi": 'pool = "a"\ncapacity = "1GiB"\ncontract = { weight = 1 }',
    "fetching": 'pool = "a"\ncapacity = "1GiB"\ncontract = { weight = 1 }\ncommands = { prefetch = true }',
    "limited": 'pool = "a"\ncapacity = "16MiB"\ncontract = { limit = "1MB/s" }',
    **{f"rude{i}": 'pool = "a"\ncapacity = "128MiB"\ncontract = { weight = 1 }' for i in range(8)},
    "leaving": 'pool = "a"\ncapacity = "16MiB"\ncontract = { weight = 1 }',
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Node:
    def __init__(self, grounds, hot=False):
        self.grounds = grounds
        self._dir = tempfile.TemporaryDirectory(prefix="henge-hostile-")
        self.dir = self._dir.name
        self.socket, self.control = f"{self.dir}/nbd.sock", f"{self.dir}/control.sock"
        self.nbd, self.iscsi, self.nvme, self.nbds, self.http = (free_port() for _ in range(5))
        self.tls = ""
        text = (f'listen = ["nbd+unix:///{self.socket}", "nbd://127.0.0.1:{self.nbd}", "iscsi://127.0.0.1:{self.iscsi}", '
                f'"nvme://127.0.0.1:{self.nvme}"{self.secured()}]\nhttp = "127.0.0.1:{self.http}"\n'
                f'control = "{self.control}"\nstate_dir = "{self.dir}/state"\nbuffers = "{BUFFERS >> 20}MiB"\n')
        # Two loops, and both gates at the first, so that what comes from the second is in everybody's way.
        cores, shard, every = ("cores = 2\n", "shard = 0\n", "every_core = true\n") if hot else ("cores = 1\n", "", "")
        text += cores + self.tls
        text += POOL.format(name="a", dir=self.dir, capacity="6GiB") + shard + every
        text += POOL.format(name="b", dir=self.dir, capacity="1GiB") + shard
        for name, terms in DISKS.items():
            text += f'[[disk]]\nname = "{name}"\n{terms}\n'
        with open(f"{self.dir}/node.toml", "w") as f:
            f.write(text)
        os.makedirs(f"{self.dir}/state")
        self.log = open(f"{self.dir}/log", "w+")
        self.process = subprocess.Popen([HENGE, "node", "-c", f"{self.dir}/node.toml"], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, preexec_fn=grounds.place_node)
        for _ in range(400):
            if os.path.exists(self.control) and os.path.exists(self.socket):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit("test-hostile: the node does not start:\n" + self.said())

    def secured(self):
        """A listener with TLS, where there is who makes a certificate."""
        if not shutil.which("openssl"):
            return ""
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
                        "-keyout", f"{self.dir}/key.pem", "-out", f"{self.dir}/certificate.pem"], check=True, capture_output=True)
        self.tls = f'tls = {{ certificate = "{self.dir}/certificate.pem", key = "{self.dir}/key.pem" }}\n'
        return f', "nbds://127.0.0.1:{self.nbds}"'

    def said(self):
        self.log.seek(0)
        return self.log.read()[-4000:]

    def uri(self, disk):
        return f"nbd+unix:///{disk}?socket={self.socket}"

    def ask(self, patience=20, **what):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(patience)
            s.connect(self.control)
            s.sendall(json.dumps(what).encode() + b"\n")
            return json.loads(s.makefile().readline())

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            for line in f:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) << 10

    def processor(self):
        """Seconds of the processor that it has had, its kernel workers included."""
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def as_it_was(self):
        """What an attack has changed for good is put back: a later attack by a disk of more weight may take more."""
        reply = self.ask(op="set", name="rude", contract={"weight": "1"})
        if not reply.get("ok"):
            raise SystemExit(f"test-hostile: the contract of rude is not put back: {reply.get('error', reply)}")

    def disks(self):
        return {disk["name"]: disk for disk in self.ask(op="status")["status"]["disks"]}

    def lives(self):
        return self.process.poll() is None

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._dir.cleanup()
