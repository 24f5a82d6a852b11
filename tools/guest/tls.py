"""What runs in the guest of tools/test-tls-guest: nodes, and their clients by TLS."""

import os
import re
import socket
import ssl
import struct
import subprocess
import threading
import time

PKI = "/etc/pki/libnbd"
TICK = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20
# What stands on the disk: of 4 KiB each block has its number, and words that are looked for on the wire.
PLAIN = b"nobody reads this on the way"


def block(n):
    return (struct.pack(">Q", n) + PLAIN).ljust(4096, b"%d" % (n % 10))


def pattern(at, length):
    return b"".join(block(n) for n in range(at // 4096, (at + length) // 4096))


def counters():
    try:
        with open("/proc/net/tls_stat") as f:
            return {name: int(value) for name, value in (line.split() for line in f)}
    except FileNotFoundError:
        return {}


def say(text):
    print(f"guest: {text}", flush=True)


class Node:
    def __init__(self, name, text):
        self.log = f"/tmp/{name}.log"
        path = f"/tmp/{name}.toml"
        with open(path, "w") as f:
            f.write(text)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(["henge", "node", "-c", path], stdout=log, stderr=log)

    def says(self, what):
        for _ in range(100):
            with open(self.log) as f:
                text = f.read()
            if re.search(what, text):
                return True
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        print(text)
        return False

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def end(self):
        self.process.terminate()
        self.process.wait(60)


def node(name, port, more=""):
    return Node(name, f"""
listen = "nbds://localhost:{port}"
tls = {{ certificate = "{PKI}/server-cert.pem", key = "{PKI}/server-key.pem", ca = "{PKI}/ca-cert.pem" }}
state_dir = "/tmp/{name}"
cores = 1
{more}
[[pool]]
name = "p"
memory = true
capacity = "64MiB"
[[disk]]
name = "d"
capacity = "32MiB"
""")


def linked(name, port, link, peer, through):
    return Node(name, f"""
listen = "nbd://127.0.0.1:{port}"
identity = "{PKI}/{name}"
state_dir = "/tmp/{name}"
[link]
name = "{name}"
listen = "127.0.0.1:{link}"
[[peer]]
name = "{peer[0]}"
address = "127.0.0.1:{peer[1]}"
[[pool]]
name = "p"
memory = true
capacity = "64MiB"
[[disk]]
name = "there"
pools = ["n2/p"]
capacity = "32MiB"
{through}
""")


def begin(sock):
    """NBD up to the answer to STARTTLS."""
    stream = sock.makefile("rb", 0)

    def exactly(n):
        data = b""
        while len(data) < n:
            piece = stream.read(n - len(data))
            assert piece, "the server has hung up"
            data += piece
        return data

    assert exactly(18)[:8] == b"NBDMAGIC"
    sock.sendall(struct.pack(">I", 3) + struct.pack(">QII", 0x49484156454F5054, 5, 0))
    assert struct.unpack(">QIII", exactly(20))[2:] == (1, 0), "STARTTLS"


class Client:
    """An NBD client by Python's TLS, which is OpenSSL's."""

    def __init__(self, port):
        sock = socket.create_connection(("127.0.0.1", port))
        begin(sock)
        context = ssl.create_default_context(cafile=f"{PKI}/ca-cert.pem")
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(f"{PKI}/client-cert.pem", f"{PKI}/client-key.pem")
        self.sock = context.wrap_socket(sock, server_hostname="localhost", suppress_ragged_eofs=False)
        self.go()

    def exactly(self, n):
        data = bytearray()
        while len(data) < n:
            piece = self.sock.recv(n - len(data))
            assert piece, "the server has hung up"
            data += piece
        return bytes(data)

    def go(self):
        body = struct.pack(">I", 1) + b"d" + struct.pack(">H", 0)
        self.sock.sendall(struct.pack(">QII", 0x49484156454F5054, 7, len(body)) + body)
        while True:
            _, _, kind, length = struct.unpack(">QIII", self.exactly(20))
            self.exactly(length)
            assert kind < 1 << 31, f"error {kind:x}"
            if kind == 1:
                return

    def ask(self, kind, cookie, at, length, data=b""):
        self.sock.sendall(struct.pack(">IHHQQI", 0x25609513, 0, kind, cookie, at, length) + data)

    def heard(self, length=0):
        magic, error, cookie = struct.unpack(">IIQ", self.exactly(16))
        assert (magic, error) == (0x67446698, 0), (magic, error)
        return cookie, self.exactly(length)

    def write(self, at, data):
        self.ask(1, at, at, len(data), data)
        self.heard()

    def read(self, at, length):
        self.ask(0, at, at, length)
        return self.heard(length)[1]


class Tap:
    """Stands between a client and the node, begins NBD with it up to TLS, and keeps what the node sends from there on."""

    def __init__(self, port):
        self.port, self.server, self.came = port, socket.create_server(("127.0.0.1", 0)), bytearray()
        self.at = self.server.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        client = self.server.accept()[0]
        node = socket.create_connection(("127.0.0.1", self.port))
        begin(node)

        def pass_on(from_, to, keep):
            try:
                while data := from_.recv(65536):
                    keep.extend(data)
                    to.sendall(data)
                to.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # one end is gone

        threading.Thread(target=pass_on, args=(client, node, bytearray()), daemon=True).start()
        pass_on(node, client, self.came)

    def records(self):
        """The kinds of the records that came; what is no record is an error."""
        at, kinds, data = 0, {}, bytes(self.came)
        while at + 5 <= len(data):
            kind, version, length = struct.unpack(">BHH", data[at : at + 5])
            assert kind in (20, 22, 23) and version == 0x0303 and length <= 16640, (at, data[at : at + 5])
            kinds[kind] = kinds.get(kind, 0) + 1
            at += 5 + length
        assert PLAIN not in data, "plain bytes on the way"
        return kinds


class Asker:
    """`openssl s_client`, which changes its keys when told to, and asks the other end for new ones."""

    def __init__(self, port, suites):
        self.tap = Tap(port)
        self.process = subprocess.Popen(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{self.tap.at}", "-CAfile", f"{PKI}/ca-cert.pem", "-cert", f"{PKI}/client-cert.pem", "-key",
             f"{PKI}/client-key.pem", "-tls1_3", "-ciphersuites", suites, "-no_ticket"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.said = b""

    def tell(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def until(self, mark, behind):
        while True:
            at = self.said.find(mark)
            if at >= 0 and len(self.said) >= at + len(mark) + behind:
                found, self.said = self.said[at + len(mark) : at + len(mark) + behind], self.said[at + len(mark) + behind :]
                return found
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, "s_client has ended"
            self.said += data

    def go(self):
        self.until(b"Verify return code: 0 (ok)", 0)
        body = struct.pack(">I", 1) + b"d" + struct.pack(">H", 0)
        self.tell(struct.pack(">QII", 0x49484156454F5054, 7, len(body)) + body)
        # The answer that ends it.
        self.until(struct.pack(">QIII", 0x3E889045565A9, 7, 1, 0), 0)

    def read(self, at, length):
        self.tell(struct.pack(">IHHQQI", 0x25609513, 0, 0, at, at, length))
        return self.until(struct.pack(">IIQ", 0x67446698, 0, at), length)


def new_keys(port, kernel):
    for suites in ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"):
        before, asker = counters(), Asker(port, suites)
        asker.go()
        for n in range(12):
            at = n * 131072
            assert asker.read(at, 131072) == pattern(at, 131072), f"{suites}: read {n}"
            # K asks for new keys of the node's, too; k does not.
            asker.tell(b"K\n" if n % 3 else b"k\n")
            time.sleep(0.1)
        kinds = asker.tap.records()
        asker.process.kill()
        after = counters()
        grown = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
        say(f"{suites}: keys change, records {kinds}, {grown}")
        sealed = grown.get("TlsTxSw", 0)
        # The last cipher is a module of its own, which a kernel may lack. Then the node encrypts.
        assert sealed == (1 if kernel else 0) or (kernel and "CHACHA" in suites), "who encrypts"
        assert grown.get("TlsTxRekeyOk", 0) == 8 * sealed, "new keys"
        assert not grown.get("TlsTxRekeyError"), "new keys"


def hang_up(port):
    """Clients that end in the middle of answers, politely, without a word, and by a reset."""
    for n in range(30):
        client = Client(port)
        for at in range(32):
            client.ask(0, at, at * 131072, 131072)
        client.exactly(1000 * n)
        if n % 3 == 0:
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if n % 3 == 1:
            socket.socket.shutdown(client.sock, socket.SHUT_WR)
        os.close(client.sock.detach())


def slow(port):
    """Who reads slowly gets all of it."""
    client = Client(port)
    for at in range(64):
        client.ask(0, at, at * 131072, 131072)
    time.sleep(2)
    heard = {}
    for n in range(64):
        cookie, data = client.heard(131072)
        heard[cookie] = data
        time.sleep(0.02 if n < 40 else 0)
    assert all(heard[at] == pattern(at * 131072, 131072) for at in range(64)), "a slow reader"
    client.ask(2, 0, 0, 0)
    try:
        assert client.sock.recv(1) == b"", "an end that is said"
    except ssl.SSLEOFError:
        raise AssertionError("an end without a word") from None


def fio(port, *more):
    subprocess.run(["fio", "--name=j", "--ioengine=nbd", f"--uri=nbds://localhost:{port}/d", "--size=32m", *more], check=True, stdout=subprocess.DEVNULL)


def price(ways):
    """Processor time of a node for the same requests, by turns."""
    jobs = {"read 128k, depth 32": ("--rw=read", "--bs=128k", "--iodepth=32"), "write 128k, depth 32": ("--rw=write", "--bs=128k", "--iodepth=32"),
            "read 4k, depth 32": ("--rw=randread", "--bs=4k", "--iodepth=32"), "write 4k, depth 32": ("--rw=randwrite", "--bs=4k", "--iodepth=32")}
    for job, options in jobs.items():
        took = {way: [] for way in ways}
        for _ in range(3):
            for way, (running, port) in ways.items():
                before = running.cpu()
                fio(port, *options)
                took[way].append(running.cpu() - before)
        say(f"{job}: " + ", ".join(f"{sorted(times)[1]:.2f} s by {way}" for way, times in took.items()))


def main():
    release = tuple(int(n) for n in re.match(r"(\d+)\.(\d+)", os.uname().release).groups())
    kernel = release >= (6, 14)
    say(f"Linux {os.uname().release}, {subprocess.run(['openssl', 'version'], capture_output=True, text=True).stdout.split(' (')[0].strip()}")
    first, second = node("first", 10001), node("second", 10002, "kernel_tls = false")
    assert first.says("TLS: the kernel encrypts what is sent" if kernel else "TLS: the node encrypts.*takes no new keys"), "the log"
    assert second.says("TLS: the node encrypts.*kernel_tls = false"), "the log"
    assert first.says("serving") and second.says("serving"), "a start"
    time.sleep(1)
    for port in (10001, 10002):
        before = counters()
        with open("/tmp/data", "wb") as f:
            f.write(pattern(0, 32 * MIB))
        subprocess.run(["nbdcopy", "/tmp/data", f"nbds://localhost:{port}/d"], check=True)
        subprocess.run(["nbdcopy", f"nbds://localhost:{port}/d", "/tmp/back"], check=True)
        subprocess.run(["cmp", "/tmp/data", "/tmp/back"], check=True)
        after = counters()
        sealed = after.get("TlsTxSw", 0) - before.get("TlsTxSw", 0)
        say(f"nbdcopy writes and reads 32 MiB: {sealed} connections whose answers the kernel encrypts")
        assert (sealed > 0) == (kernel and port == 10001), "who encrypts"
    client = Client(10001)
    client.write(31 * MIB, b"x" * 131072)
    assert client.read(31 * MIB, 131072) == b"x" * 131072
    client.write(31 * MIB, pattern(31 * MIB, 131072))
    new_keys(10001, kernel)
    new_keys(10002, False)
    hang_up(10001)
    slow(10001)
    assert client.read(0, MIB) == pattern(0, MIB), "another client"
    say("clients that end in the middle disturb nobody, and one that reads slowly has all")
    price({"the kernel": (first, 10001), "the node": (second, 10002)} if kernel else {"the node": (second, 10002)})
    first.end()
    second.end()
    before = counters()
    one = linked("n1", 10003, 10013, ("n2", 10014), "")
    two = linked("n2", 10004, 10014, ("n1", 10013), 'through = ["n1"]')
    assert one.says("serving") and two.says("serving"), "a start"
    time.sleep(5)
    subprocess.run(["nbdcopy", "/tmp/data", "nbd://localhost:10003/there"], check=True)
    subprocess.run(["nbdcopy", "nbd://localhost:10003/there", "/tmp/back"], check=True)
    subprocess.run(["cmp", "/tmp/data", "/tmp/back"], check=True)
    # Each node has tried the kernel once at its start.
    sealed = counters().get("TlsTxSw", 0) - before.get("TlsTxSw", 0) - 2
    say(f"a disk at another node: {sealed} ends of links that the kernel encrypts for")
    assert (sealed >= 2) == kernel, "links"
    one.end()
    two.end()
    for name, value in counters().items():
        assert value == 0 or not name.endswith("Error"), (name, value)
    say(f"{ {name: value for name, value in counters().items() if value} }")
    say("everything held")


if __name__ == "__main__":
    main()
