"""Who holds places, says half of something, or names what is no name: others are served on, and nothing is made of it."""

import json
import os
import socket
import time

from security.streams import ended


def connect(port, source):
    s = socket.socket()
    s.bind((source, 0))
    s.settimeout(10)
    s.connect(("127.0.0.1", port))
    return s


def crowd(port, what, count, source="127.0.0.2"):
    """As many connections as it gets, on each of which this is said."""
    held = []
    for _ in range(count):
        try:
            s = connect(port, source)
            s.sendall(what)
            held.append(s)
        except OSError:
            pass
    return held


def answered(port, path, source="127.0.0.3"):
    """The first line of an answer, or what went wrong."""
    try:
        with connect(port, source) as s:
            s.settimeout(20)
            s.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
            return s.recv(64).split(b"\r\n")[0]
    except OSError as e:
        return str(e).encode()


def halves(check, cluster):
    """Heads and bodies that are never finished, at the API and at both pages; the bodies end by themselves."""
    body = b"POST /api/v1/disks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"
    doors = {"the API": cluster.api, "the manager's page": cluster.all, "the node's page": cluster.page}
    waiting = {}
    for door, port in doors.items():
        held = crowd(port, b"GET /api/v1/health HTTP/1.1\r\nhost: x\r\n", 300) + crowd(port, body, 300)
        said = answered(port, "/api/v1/health")
        check(f"half-sent heads and bodies at {door} hold up nobody else", said.startswith(b"HTTP/1.1"), said)
        waiting[door] = held.pop() if held else None
        for s in held:
            s.close()
    for door, s in waiting.items():
        begun = time.monotonic()
        over = ended(s, 60)
        check(f"a half-sent body at {door} is not waited for", over, time.monotonic() - begun)


def control(check, run, henge, directory):
    """Half-sent lines at the control socket, whose places they fill."""
    path = f"{directory}/n1.sock"
    check("the control socket is its owner's alone", os.stat(path).st_mode & 0o077 == 0, oct(os.stat(path).st_mode))
    held = []
    for _ in range(100):
        s = socket.socket(socket.AF_UNIX)
        s.connect(path)
        try:
            s.sendall(b'{"op":')
        except OSError:
            pass
        held.append(s)
    code, text = run(henge, "vd", "list", "--node", path)
    check("half-sent lines at the control socket lock nobody out", code == 0, text)
    for s in held:
        s.close()


def strangers(check, until, http, cluster, running, anew):
    """Connections that prove nothing, from another address, hold every place that they get while a node begins anew."""
    held = crowd(cluster.nodes, b"{", 400) + crowd(cluster.links[0], b"\0\0", 100)
    running[2].terminate()
    running[2].wait(30)
    running[2] = anew("n2")
    running.pop()
    up = lambda: all(n["connected"] for n in json.loads(http(cluster.url + "/nodes", token=cluster.token)[1])["nodes"])
    until("n2 at the manager again", up)
    check("a crowd of strangers keeps no node away", up())
    for s in held:
        s.close()


def names(check, http, cluster, directory):
    """Names that are paths, too long, empty, or hold what no name holds: refused at every door, and nothing is made of them."""
    bad = ["", ".", "..", "../up", "a/b", "/etc/passwd", "a b", "a\nb", "a\0b", "x" * 65, "\u00e9", "%2e%2e%2f", "a;b", "$(id)"]
    before = sorted(os.listdir(directory) + os.listdir(f"{directory}/n1") + os.listdir(f"{directory}/manager"))
    wrong = []
    for name in bad:
        asked = [
            ("disks", {"name": name, "spec": {"capacity": "1MiB"}}),
            ("disks", {"name": "fine", "tenant": name, "spec": {"capacity": "1MiB"}}),
            ("tokens", {"tenant": name}),
            ("tokens", {"tenant": "ann", "disk": name}),
            ("ca/invitations", {"role": "node", "name": name}),
        ]
        for path, body in asked:
            status, text = http(f"{cluster.url}/{path}", "POST", cluster.token, body)
            if not 400 <= status < 500:
                wrong.append((path, body, status, text))
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(f"{directory}/n1.sock")
            s.settimeout(20)
            for request in ({"op": "add", "disk": {"name": name, "pool": "p", "capacity": "1MiB"}},
                            {"op": "peer", "name": name, "address": "127.0.0.1:1"}, {"op": "remove", "name": name},
                            {"op": "access", "name": name, "doors": {"nbd": "anyone"}}):
                s.sendall((json.dumps(request) + "\n").encode())
                answer = b""
                while not answer.endswith(b"\n"):
                    answer += s.recv(65536)
                if json.loads(answer).get("ok") is not False and "error" not in json.loads(answer):
                    wrong.append((request, answer))
    status, text = http(f"{cluster.url}/disks", "POST", cluster.token, {"name": "x" * 70_000})
    check("a body beyond 64 KiB is refused by a problem that says so", status == 413 and "64 KiB" in str(text), (status, text))
    after = sorted(os.listdir(directory) + os.listdir(f"{directory}/n1") + os.listdir(f"{directory}/manager"))
    check(f"{len(bad)} names that are none are refused at every door", not wrong, wrong[:3])
    check("and nothing is made of them", before == after, set(after) ^ set(before))


def rekeyed(check, skip, run, http, cluster, henge, matrix):
    """A disk's secrets are taken from who knows them: sessions end, the old ones open nothing, the new ones do."""
    ports = {"iscsi": cluster.iscsi, "nvme": cluster.nvme}
    http(cluster.url + "/nodes/n2/drain", "POST", cluster.token)
    _, text = http(cluster.url + "/disks?wait=20", "POST", cluster.token, {"name": "keyed", "spec": {"capacity": "1MiB"}})
    old = json.loads(text)["attach"]
    queue = matrix.nvme.Queue(ports["nvme"], "nqn.2026-11.local.henge:keyed", 0, 0xFFFF)
    queue.prove(old["nvme"])
    queue.run(bytes([0x7F]) + bytes(43) + bytes.fromhex("1400000001004600"), 0)
    status, text = http(cluster.url + "/disks/keyed/access?wait=20", "POST", cluster.token, {})
    new = json.loads(text)["attach"]
    check("a disk is given other secrets", status == 200 and new["chap"] != old["chap"] and new["nvme"] != old["nvme"], text)
    begun = time.monotonic()
    queue.stream.settimeout(20)
    try:
        ended = queue.stream.recv(1) == b""
    except OSError as e:
        ended = isinstance(e, ConnectionError)
    check("a session by those from before ends", ended and time.monotonic() - begun < 10, time.monotonic() - begun)
    for secrets, may in ((old, False), (new, True)):
        came = matrix.nvme.attach(ports["nvme"], "keyed", secrets["nvme"], "read")
        check(f"by NVMe the {'new' if may else 'old'} secret opens {'it' if may else 'nothing'}", came == may)
        if matrix.shutil.which("iscsi-inq"):
            came = matrix.iscsi(ports["iscsi"], "keyed", (secrets["user"], secrets["chap"]), "inq")
            check(f"by iSCSI the {'new' if may else 'old'} secret opens {'it' if may else 'nothing'}", came == may)
    http(cluster.url + "/nodes/n2/drain", "DELETE", cluster.token)
    return [old["chap"], old["nvme"], new["chap"], new["nvme"]]


def private(check, directory, secrets):
    """Every file that servers wrote is its owner's, and no secret stands where it has no business."""
    open_, told = [], []
    for folder in ("manager", "n1", "n2"):
        for at, _, files in os.walk(os.path.join(directory, folder)):
            for name in files:
                path = os.path.join(at, name)
                if os.stat(path).st_mode & 0o077:
                    open_.append(path)
    for name in ("manager.log", "n1.log", "n2.log", "n1/events.jsonl", "n2/events.jsonl", "manager/audit.jsonl"):
        with open(os.path.join(directory, name)) as f:
            text = f.read()
        told += [(name, secret[:8] + "…") for secret in secrets if secret in text]
    check("every file of manager and nodes is for its owner alone", not open_, open_)
    check(f"none of {len(secrets)} secrets stands in a log, event or audit line", not told, told)


def run(check, skip, run_, until, http, cluster, henge, directory, running, anew):
    from security import matrix

    secrets = rekeyed(check, skip, run_, http, cluster, henge, matrix)
    names(check, http, cluster, directory)
    control(check, run_, henge, directory)
    strangers(check, until, http, cluster, running, anew)
    halves(check, cluster)
    private(check, directory, [*secrets, cluster.token])
