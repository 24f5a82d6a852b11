"""A manager with two nodes and three tenants: what stands beside the data, and what it takes of memory."""
import concurrent.futures
import http.client
import json
import os
import ssl
import subprocess
import tempfile
import time

from .node import HENGE, free_port

# Disks of the tenant who means harm: a list of them is what thousands of them cost.
DISKS = 2000
TOKENS = 8
# By a pool's profile this much is promised to each; the rest of its disks are of those that a promise is looked for among.
PROMISED = 300
NODE = """listen = "nbd+unix://{dir}/{name}.sock"
identity = "{dir}/{name}.identity"
state_dir = "{state}/{name}"
control = "{dir}/{name}.control"
cores = 1
[manager]
address = "127.0.0.1:{port}"
name = "{name}"
[[pool]]
name = "promises"
memory = true
capacity = "64GiB"
scheduler = "cvc"
profile = {{ iops = "100000/s", service = "1ms" }}
[[pool]]
name = "shares"
memory = true
capacity = "64GiB"
scheduler = "sfq"
"""


def context():
    """Without this machine's authorities, which take longer to read than a manager to answer."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    return trusting


TRUSTING = context()


def head(method, path, token, length=0, more=""):
    body = f"Content-Type: application/json\r\nContent-Length: {length}\r\n" if length or method in ("POST", "PATCH") else ""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{body}{more}\r\n".encode()


class Cluster:
    def __init__(self, grounds, disks=DISKS):
        self.grounds, self.count = grounds, disks
        self._dir = tempfile.TemporaryDirectory(prefix="henge-hostile-")
        self.dir = self._dir.name
        # A node notes all its disks for each that comes: thousands are made in a minute where nothing waits for a device.
        self._state = tempfile.TemporaryDirectory(prefix="henge-hostile-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.api, self.door, self.page = (free_port() for _ in range(3))
        self.url = f"https://127.0.0.1:{self.api}"
        self.nodes = {}
        with open(f"{self.dir}/manager.toml", "w") as f:
            f.write(f'listen = "127.0.0.1:{self.api}"\nnodes = "127.0.0.1:{self.door}"\npage = "127.0.0.1:{self.page}"\n'
                    f'state_dir = "{self.dir}/manager"\ncluster = "hostile"\n')
        self.log = open(f"{self.dir}/manager.log", "w+")
        self.manage()
        with open(f"{self.dir}/manager/admin.token") as f:
            self.admin = f.read().strip()
        for name in ("n1", "n2"):
            invited = self.henge("ca", "invite", "node", name, "--host", "127.0.0.1")
            token = next(word for word in invited.split() if word.startswith("henge-join"))
            subprocess.run([HENGE, "join", self.url, "-o", f"{self.dir}/{name}.identity"], input=token, text=True, check=True, capture_output=True)
            self.serve(name)
        self.all_here(30)
        self.rude = [self.token("eve") for _ in range(TOKENS)]
        self.bob, self.carol = self.token("bob"), self.token("carol")
        self.furnish()

    def begin(self, *command, log):
        return subprocess.Popen([HENGE, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=self.grounds.place_node)

    def manage(self):
        """Begins the manager; what it knew is in its folder."""
        self.process = self.begin("manager", "-c", f"{self.dir}/manager.toml", log=self.log)
        for _ in range(400):
            try:
                if os.path.exists(f"{self.dir}/manager/admin.token") and self.ask("GET", "/health", "", patience=1)[0]:
                    return
            except OSError:
                pass
            if not self.lives():
                break
            time.sleep(0.05)
        raise SystemExit("test-hostile: the manager does not start:\n" + self.said())

    def serve(self, name):
        if not os.path.exists(f"{self.dir}/{name}.toml"):
            with open(f"{self.dir}/{name}.toml", "w") as f:
                f.write(NODE.format(dir=self.dir, state=self._state.name, name=name, port=self.door))
        log = open(f"{self.dir}/{name}.log", "a")
        self.nodes[name] = self.begin("node", "-c", f"{self.dir}/{name}.toml", log=log)

    def furnish(self):
        """Disks: thousands of one tenant, of which some are promised something, and one of each victim."""
        def make(i):
            spec = {"capacity": "1MiB", **({"rate": "10/s", "latency": "50ms"} if i < PROMISED else {"weight": 1})}
            return self.ask("POST", "/disks?wait=0", self.admin, {"name": f"disk-with-a-name-{i}", "tenant": "eve", "spec": spec}, patience=60)
        with concurrent.futures.ThreadPoolExecutor(16) as several:
            answers = list(several.map(make, range(self.count)))
        refused = [answer for answer in answers if answer[0] not in (200, 201, 202)]
        if refused:
            raise SystemExit(f"test-hostile: a disk is not made: {refused[0]}")
        for token, name in ((self.bob, "mine"), (self.carol, "hers")):
            self.ask("POST", "/disks", token, {"name": name, "spec": {"capacity": "1MiB", "weight": 1}}, patience=60)
        for _ in range(600):
            disks = self.ask("GET", "/disks", self.rude[0], patience=60)[1]["disks"]
            if all(disk["phase"] != "creating" for disk in disks):
                return
            time.sleep(0.2)
        raise SystemExit("test-hostile: the disks of the tenant who means harm are not made")

    def token(self, tenant):
        return self.ask("POST", "/tokens", self.admin, {"tenant": tenant})[1]["token"]

    def ask(self, method, path, token, body=None, patience=20):
        c = http.client.HTTPSConnection("127.0.0.1", self.api, timeout=patience, context=TRUSTING)
        headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
        c.request(method, "/api/v1" + path, None if body is None else json.dumps(body), headers)
        answer = c.getresponse()
        text = answer.read()
        c.close()
        return answer.status, json.loads(text) if text else None

    def environment(self):
        return {**os.environ, "HENGE_MANAGER": self.url, "HENGE_CA": f"{self.dir}/manager/identity/ca.pem",
                "HENGE_TOKEN_FILE": f"{self.dir}/manager/admin.token"}

    def henge(self, *command):
        return subprocess.run([HENGE, *command], env=self.environment(), text=True, check=True, capture_output=True).stdout

    def connected(self):
        return [node["name"] for node in self.ask("GET", "/nodes", self.admin)[1]["nodes"] if node["connected"]]

    def all_here(self, patience):
        """Waits until all nodes are; how long that took."""
        begun = time.monotonic()
        while time.monotonic() - begun < patience:
            if len(self.connected()) == len(self.nodes):
                return time.monotonic() - begun
            time.sleep(0.05)
        raise SystemExit("test-hostile: a node does not come:\n" + self.said())

    def events(self, after=0):
        return self.ask("GET", f"/events?after={after}", self.admin)[1]["events"]

    def anew(self):
        """The manager begins again, so that no attack finds the memory that the one before took."""
        self.end(self.process)
        self.manage()
        self.all_here(30)
        time.sleep(2)

    def said(self):
        self.log.seek(0)
        return self.log.read()[-4000:]

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next((int(line.split()[1]) << 10 for line in f if line.startswith("VmRSS:")), 0)

    def processor(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def lives(self):
        return self.process.poll() is None and all(node.poll() is None for node in self.nodes.values())

    @staticmethod
    def end(process):
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stop(self):
        for process in [*self.nodes.values(), self.process]:
            self.end(process)
        self._dir.cleanup()
        self._state.cleanup()
