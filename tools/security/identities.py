"""A cluster of certificates: who was invited joins, once; who was not, is revoked, or speaks for another, does not come in."""

import json
import os
import socket
import ssl
import struct
import subprocess
import time

from security.streams import Carrier, ended


class Tap(Carrier):
    """Keeps what goes by, as far as memory allows."""

    def __init__(self, to, at):
        self.seen, self.count = bytearray(), 0
        super().__init__(to, at)

    def passed(self, who, data, kept):
        self.count += len(data)
        self.seen += data[: max(0, (32 << 20) - len(self.seen))]


def until(probe, seconds=30):
    """What the probe finds, or nothing after a while."""
    end = time.time() + seconds
    while time.time() < end:
        found = probe()
        if found:
            return found
        time.sleep(0.2)
    return None


class Cluster:
    """A manager that is its cluster's authority, and what is done with it."""

    def __init__(self, henge, directory, port, start, check, called="identities"):
        self.henge, self.dir, self.start, self.check = henge, os.path.join(directory, called), start, check
        self.port = port
        os.makedirs(self.dir)
        self.api, self.nodes, self.page, self.nbds = port(), port(), port(), port()
        self.url = f"https://127.0.0.1:{self.api}"
        self.state = os.path.join(self.dir, "manager")
        self.ca = os.path.join(self.state, "identity/ca.pem")

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)
        return self.path(name)

    def run(self, *args, **env):
        known = {"HENGE_MANAGER": self.url, "HENGE_CA": self.ca, "HENGE_TOKEN_FILE": os.path.join(self.state, "admin.token")}
        done = subprocess.run([self.henge, *args], capture_output=True, text=True, timeout=60,
                              env={name: value for name, value in {**os.environ, **known, **env}.items() if value})
        return done.returncode, done.stdout + done.stderr

    def begin(self):
        config = self.write("manager.toml", f"""
listen = "127.0.0.1:{self.api}"
nodes = "127.0.0.1:{self.nodes}"
page = "127.0.0.1:{self.page}"
state_dir = "{self.state}"
cluster = "demo"
name = "m1"
""")
        self.start("authority", "manager", "-c", config)
        token = os.path.join(self.state, "admin.token")
        self.check("a manager becomes its cluster's authority", until(lambda: os.path.exists(token) and os.path.exists(self.ca)))
        mode = os.stat(os.path.join(self.state, "identity/identity.pem")).st_mode & 0o777
        self.check("its key is its own alone", mode == 0o600, oct(mode))

    def node(self, name, folder, called=None):
        called = called or name
        listens = f'"nbd+unix://{self.path(name)}.nbd"'
        if name == "n1":
            listens += f', "nbds://localhost:{self.nbds}"'
        access = '{ certificates = ["spiffe://demo/client/ann", "spiffe://demo/client/idler", "CN=n3"] }' if name == "n1" else '"anyone"'
        config = self.write(f"{name}.toml", f"""
listen = [{listens}]
control = "{self.path(name)}.sock"
state_dir = "{self.path(name)}.state"
identity = "{folder}"
[manager]
address = "127.0.0.1:{self.nodes}"
name = "{called}"
[[pool]]
name = "p"
memory = true
capacity = "64MiB"
scheduler = "mclock"
profile = {{ iops = "5000/s", service = "1ms" }}
[[disk]]
name = "own"
capacity = "4MiB"
nbd = {access}
""")
        return self.start(name, "node", "-c", config)

    def invite(self, role, name, *more):
        code, said = self.run("ca", "invite", role, name, *more)
        return next((line for line in said.splitlines() if line.startswith("henge-join.")), said)

    def up(self):
        code, said = self.run("nodes", "list", "--json")
        try:
            return {node["name"] for node in json.loads(said)["nodes"] if node["connected"]}
        except (ValueError, KeyError):
            return said

    def joining(self):
        check = self.check
        token = self.invite("node", "n1", "--host", "localhost")
        check("an invitation is a token", token.startswith("henge-join."), token)
        folder = self.path("n1")
        code, said = self.run("join", self.url, "-o", folder, HENGE_CA="", HENGE_TOKEN_FILE="", HENGE_JOIN_TOKEN=token)
        check("a node joins by one command, with nothing but the token", code == 0 and "node n1" in said and "insecure" not in said, said)
        code, said = self.run("join", self.url, token, "-o", self.path("again"))
        check("a token used twice is refused, and says for whom it was used", code != 0 and "used already, for node n1" in said, said)
        check("a token among the arguments is said to be read by others", "insecure" in said, said)
        forged = token[:-1] + ("0" if token[-1] != "0" else "1")
        code, said = self.run("join", self.url, forged, "-o", self.path("forged"))
        check("a token of another root does not believe this manager", code != 0 and "no manager of the cluster" in said, said)
        guessed = "henge-join." + "0" * 64 + "." + token.rsplit(".", 1)[1]
        code, said = self.run("join", self.url, guessed, "-o", self.path("guessed"))
        check("a guessed token opens nothing", code != 0 and "not known" in said, said)
        brief = self.invite("node", "n9", "--lasts", "1ms")
        time.sleep(0.1)
        code, said = self.run("join", self.url, brief, "-o", self.path("late"))
        check("a token that has expired opens nothing", code != 0 and "expired" in said, said)
        code, said = self.run("ca", "invite", "king", "arthur")
        check("nobody is invited to be what there is not", code != 0 and "no role" in said, said)
        audit = open(os.path.join(self.state, "audit.jsonl")).read()
        check("no token stands in the audit", token.split(".")[1] not in audit and "ca/join" in audit)
        self.node("n1", folder)
        check("the node comes to its manager by TLS", until(lambda: "n1" in self.up()), self.up())
        code, said = self.run("vd", "create", "web", "capacity=1MB", "rate=100/s")
        check("a disk is made there", code == 0, said)

    def strangers(self):
        check = self.check
        clients = self.path("ann")
        self.run("join", self.url, self.invite("client", "ann"), "-o", clients)
        names = {"ca-cert.pem", "client-cert.pem", "client-key.pem"}
        check("a client finds its files by the names that QEMU and libnbd look for", names <= set(os.listdir(clients)))
        self.run("join", self.url, self.invite("client", "bob"), "-o", self.path("bob"))
        sees = lambda who: subprocess.run(
            ["nbdinfo", "--size", f"nbds://localhost:{self.nbds}/own?tls-certificates={self.path(who)}"],
            capture_output=True, text=True)
        seen = sees("ann")
        check("ann's certificate opens her disk to nbdinfo", seen.stdout.strip() == str(4 << 20), seen.stderr)
        seen = sees("bob")
        check("bob's does not", seen.returncode != 0, seen.stdout)
        self.node("n2", clients)
        self.run("join", self.url, self.invite("node", "n3"), "-o", self.path("n3"))
        self.node("n4", self.path("n3"))
        time.sleep(3)
        check("neither a client nor another node's certificate is node n2 or n4", self.up() == {"n1"}, self.up())
        context = ssl.create_default_context(cafile=self.ca)
        with socket.create_connection(("127.0.0.1", self.nodes), timeout=5) as plain:
            try:
                with context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                    heard = secure.recv(64)
            except OSError as e:
                heard = e
        check("without a certificate the nodes' door says nothing", not isinstance(heard, bytes) or heard == b"", heard)
        with socket.create_connection(("127.0.0.1", self.nodes), timeout=5) as plain:
            plain.sendall(b'{"Hello":{}}\n')
            try:
                heard = plain.recv(64)
            except OSError:
                heard = b""
        check("without TLS the nodes' door says nothing of the manager", b"Challenge" not in heard, heard)
        for version in (ssl.TLSVersion.TLSv1_2,):
            old = ssl.create_default_context(cafile=self.ca)
            old.maximum_version = version
            try:
                with socket.create_connection(("127.0.0.1", self.api), timeout=5) as plain:
                    old.wrap_socket(plain, server_hostname="127.0.0.1")
                spoke = True
            except OSError:
                spoke = False
            check("the API speaks no TLS 1.2", not spoke)
        for what, door in (("API", self.api), ("page", self.page)):
            with socket.create_connection(("127.0.0.1", door), timeout=5) as plain:
                plain.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
                try:
                    heard = plain.recv(64)
                except OSError:
                    heard = b""
            check(f"the {what} answers nothing in clear", b"HTTP" not in heard, heard)
        curl = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"{self.url}/api/v1/health"]
        stranger = subprocess.run(curl, capture_output=True, text=True)
        check("curl does not believe a root that it does not know", stranger.returncode == 60, stranger.returncode)
        known = subprocess.run([*curl, "--cacert", self.ca], capture_output=True, text=True)
        check("and believes the cluster's", known.stdout == "200", known.stdout)

    def linked(self, name, folder, called, listen, peer, address):
        config = self.write(f"{name}.toml", f"""
listen = "nbd+unix://{self.path(name)}.nbd"
control = "{self.path(name)}.sock"
state_dir = "{self.path(name)}.state"
identity = "{folder}"
[link]
name = "{called}"
listen = "127.0.0.1:{listen}"
[[peer]]
name = "{peer}"
address = "127.0.0.1:{address}"
[[pool]]
name = "p"
memory = true
capacity = "64MiB"
[[disk]]
name = "wide"
capacity = "8MiB"
pools = ["{min(called, peer)}/p", "{max(called, peer)}/p"]
""")
        return self.start(name, "node", "-c", config)

    def links(self):
        check = self.check
        for name in ("a", "b"):
            self.run("join", self.url, self.invite("node", name), "-o", self.path(name))
        ports = [self.port() for _ in range(4)]
        self.link = ports[0]
        taps = [Tap(ports[0], ports[2]), Tap(ports[1], ports[3])]
        self.linked("node-a", self.path("a"), "a", ports[0], "b", ports[3])
        other = self.linked("node-b", self.path("b"), "b", ports[1], "a", ports[2])
        text = b"what nobody else may read " * (8 << 20 >> 4)
        plain = self.path("plain")
        with open(plain, "wb") as f:
            f.write(text[: 8 << 20])
        uri = f"nbd+unix:///wide?socket={self.path('node-a')}.nbd"
        copy = lambda a, b: subprocess.run(["nbdcopy", a, b], capture_output=True, text=True, timeout=30)
        done = until(lambda: copy(plain, uri).returncode == 0, 30)
        check("two nodes with certificates serve one disk", done, open(self.path("../node-a.log")).read()[-500:])
        again = self.path("again.img")
        copy(uri, again)
        check("what was written comes back", os.path.exists(again) and open(again, "rb").read() == text[: 8 << 20])
        seen = sum(tap.count for tap in taps)
        told = any(b"nobody else may read" in tap.seen for tap in taps)
        check("half of it went over the link, and nobody on the way reads it", seen > 8 << 20 and not told, seen)
        other.terminate()
        other.wait(30)
        log = lambda: open(self.path("../node-a.log")).read()
        for what, folder in (("a client's certificate", "ann"), ("another node's certificate", "n3")):
            stranger = self.linked("node-b", self.path(folder), "b", ports[1], "a", ports[2])
            held = until(lambda: "certificate is" in log(), 20)
            check(f"{what} is not node b at a link", held, log()[-500:])
            stranger.terminate()
            stranger.wait(30)

    def proxy(self, name, folder, listen, peer, address):
        config = self.write(f"{name}.toml", f"""
server = "127.0.0.1:1"
control = "{self.path(name)}.sock"
state_dir = "{self.path(name)}.state"
sync = {{ threshold = {{ every = "64KiB" }} }}
[cluster]
node = "{name}"
identity = "{folder}"
listen = "127.0.0.1:{listen}"
[[peer]]
name = "{peer}"
address = "127.0.0.1:{address}"
[[flow]]
name = "whose-this-is-nobody-reads"
[[listen]]
address = "127.0.0.1:{self.port()}"
""")
        return self.start(name, "proxy", "-c", config)

    def proxies(self):
        """Two proxies by certificates: linked, unread on the way, parted when one of them is revoked."""
        check = self.check
        for name in ("io1", "io2"):
            code, said = self.run("join", self.url, self.invite("proxy", name), "-o", self.path(name), HENGE_CA="", HENGE_TOKEN_FILE="")
            check(f"proxy {name} joins by one command", code == 0 and f"proxy {name}" in said, said)
        ports = [self.port() for _ in range(4)]
        self.proxied = ports[0]
        taps = [Tap(ports[0], ports[2]), Tap(ports[1], ports[3])]

        def linked():
            code, said = self.run("proxy", "--status", self.path("io1") + ".sock", "--json")
            try:
                return json.loads(said)["linked"]
            except ValueError:
                return said

        self.proxy("io1", self.path("io1"), ports[0], "io2", ports[3])
        for what, folder in (("a client's certificate", "ann"), ("a node's certificate", "n3"), ("another proxy's", "io1")):
            stranger = self.proxy("io2", self.path(folder), ports[1], "io1", ports[2])
            code = stranger.wait(30)
            log = open(self.path("../io2.log")).read()
            check(f"a proxy does not begin with {what}", code != 0 and "not the certificate of proxy io2" in log, log[-300:])
        self.proxy("io2", self.path("io2"), ports[1], "io1", ports[2])
        check("two proxies with certificates are linked", until(lambda: linked() == 1), linked())
        seen = sum(tap.count for tap in taps)
        told = any(b"nobody-reads" in tap.seen for tap in taps)
        check("what they say is read by nobody on the way", seen > 500 and not told, seen)
        self.run("ca", "revoke", "proxy/io2")
        check("a proxy that is revoked is parted with", until(lambda: linked() == 0), linked())

    def attached(self, folder, disk):
        """A connection by NBD with TLS that stays, as long as it is let."""
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.path(f"{folder}/client-cert.pem"), self.path(f"{folder}/client-key.pem"))
        s = socket.create_connection(("127.0.0.1", self.nbds), timeout=5)
        s.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 5, 0))
        got = b""
        while len(got) < 38:
            got += s.recv(38 - len(got))
        secure = context.wrap_socket(s, server_hostname="localhost")
        secure.settimeout(60)
        name = disk.encode()
        go = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
        secure.sendall(b"IHAVEOPT" + struct.pack(">II", 7, len(go)) + go)
        kind = 0
        while kind != 1:  # until it is acknowledged
            head = b""
            while len(head) < 20:
                head += secure.recv(20 - len(head))
            kind, length = struct.unpack(">II", head[12:])
            while length:
                length -= len(secure.recv(length))
        secure.settimeout(0.5)
        try:
            stays = secure.recv(1) != b""
        except TimeoutError:
            stays = True
        self.check(f"{folder} attaches to {disk}, and stays", stays)
        return secure

    def ends(self, secure, what):
        """The connection is over within seconds."""
        begun = time.time()
        over = ended(secure, 60)
        took = time.time() - begun
        self.check(what, over and took < 20, took)
        secure.close()

    def idle(self):
        """A connection by NBD on which nothing is asked ends when its certificate is revoked."""
        self.run("join", self.url, self.invite("client", "idler"), "-o", self.path("idler"))
        secure = self.attached("idler", "own")
        self.run("ca", "revoke", "client/idler")
        self.ends(secure, "a connection at rest ends when its certificate is revoked")

    def tenants(self):
        """A tenant's clients end with it, and whoever is called so later has none of them."""
        check = self.check
        laptop = ["client", "laptop", "--tenant", "zoe"]
        code, said = self.run("ca", "invite", "node", "n8", "--tenant", "zoe")
        check("a node is no tenant's", code != 0 and "clients are" in said, said)
        self.run("join", self.url, self.invite(*laptop), "-o", self.path("laptop"))
        code, said = self.run("ca", "invite", "client", "laptop", "--tenant", "bob")
        check("two tenants' clients have no name in common", code != 0 and "zoe" in said and "ca revoke client/laptop" in said, said)
        early = self.invite(*laptop)
        named = ["--nbd", "spiffe://demo/client/laptop"]
        code, said = self.run("vd", "create", "shared", "capacity=1MB", *named)
        check("the administrator's disk lets her in", code == 0, said)
        secure = self.attached("laptop", "shared")
        code, said = self.run("tenant", "show", "zoe")
        check("a tenant is there by its client", code == 0 and "clients     1" in said, said)
        code, said = self.run("tenant", "rm", "zoe")
        check("a tenant ends, and it is said what went with it", code == 0 and "1 certificate(s) revoked, 1 invitation(s)" in said, said)
        self.ends(secure, "a session of its client ends, at whomever's disk")
        code, said = self.run("tenant", "set", "zoe", "--disks", "3")
        check("somebody else is called so later", code == 0, said)
        uri = lambda folder: f"nbds://localhost:{self.nbds}/shared?tls-certificates={self.path(folder)}"
        size = lambda folder: subprocess.run(["nbdinfo", "--size", uri(folder)], capture_output=True, text=True)
        check("the certificate from before opens nothing", size("laptop").returncode != 0)
        code, said = self.run("renew", "--now", self.path("laptop"))
        # Who hangs up may be heard before the reason is read.
        check("and is not renewed", code != 0 and ("evoked" in said or "may refuse the certificate" in said), said)
        code, said = self.run("join", self.url, early, "-o", self.path("early"))
        check("nor does a token from before let in", code != 0 and "henge ca invite" in said, said)
        self.run("join", self.url, self.invite(*laptop), "-o", self.path("laptop2"))
        came = until(lambda: size("laptop2").returncode == 0)
        check("her own laptop comes in", came, size("laptop2").stderr)

    def renewal(self):
        check = self.check
        certificate = lambda: open(self.path("ann/client-cert.pem")).read()
        before = certificate()
        code, said = self.run("renew", self.path("ann"))
        check("what is not due is not renewed", code == 0 and "not due" in said and certificate() == before, said)
        code, said = self.run("renew", "--now", self.path("ann"), HENGE_TOKEN_FILE=self.path("none"))
        check("a certificate renews itself, by no token", code == 0 and certificate() != before, said)
        code, said = self.run("ca", "rotate")
        check("a second root is made", code == 0, said)
        both = until(lambda: open(self.ca).read().count("BEGIN") == 2)
        check("both roots are believed", both)
        trusted = until(lambda: open(self.path("n1/ca.pem")).read().count("BEGIN") == 2)
        check("the node is told so", trusted)
        own = lambda: open(self.path("n1/identity.pem")).read().split("-----BEGIN CERTIFICATE-----")[-1]
        newest = lambda: open(self.path("n1/ca.pem")).read().split("-----BEGIN CERTIFICATE-----")[1]
        check("and has the new root sign for it at once", until(lambda: own().strip() == newest().strip()))
        code, said = self.run("renew", self.path("bob"))
        check("as has a client whose timer runs", code == 0 and "is renewed" in said, said)
        code, said = self.run("ca", "retire")
        check("the old root stays while somebody needs it", code != 0 and "count still" in said, said)
        code, said = self.run("renew", "--now", self.path("ann"))
        check("who renews is signed by the new root", code == 0, said)
        check("the node is there all the time", "n1" in self.up(), self.up())
        code, said = self.run("ca", "revoke", "node/n1")
        check("a node is revoked", code == 0, said)
        check("and gone within seconds", until(lambda: "n1" not in self.up()), self.up())
        code, said = self.run("ca", "revoke", "client/ann")
        code, said = self.run("renew", "--now", self.path("ann"))
        check("who is revoked renews nothing", code != 0, said)
        code, said = self.run("ca", "retire", "--anyway")
        check("the old root ends", code == 0 and until(lambda: open(self.ca).read().count("BEGIN") == 1), said)
        code, said = self.run("nodes", "list")
        check("the manager goes on by the new one", code == 0, said)


def run(henge, directory, port, start, check, skip):
    from security import cells

    cluster = Cluster(henge, directory, port, start, check)
    cluster.begin()
    cluster.joining()
    cluster.strangers()
    cluster.links()
    cluster.proxies()
    cluster.idle()
    cluster.tenants()
    cells.certificates(cluster)
    cells.ciphers(cluster, check, skip)
    cluster.renewal()
