"""Every certificate × every door of a cluster × every operation there, and every user × every control socket × every request:
exactly the allowed cells succeed. What is allowed is derived from whose certificate it is, never from what was seen."""

import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import time

from security.matrix import Cells


def forged(c, name, uri, ca=None):
    """A certificate that nobody of the cluster signed, with a name of the cluster."""
    at = c.path("forged-" + name)
    os.makedirs(at)
    run = lambda *args: subprocess.run(["openssl", *args], cwd=at, check=True, capture_output=True)
    ec = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    extensions = ["-addext", f"subjectAltName=URI:{uri},IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    subject = ["-subj", "/CN=" + uri.rsplit("/", 1)[1], "-days", "9"]
    signed = []
    if ca:
        run("req", "-x509", "-newkey", *ec, "-subj", "/CN=demo", "-days", "9", "-keyout", "ca.key", "-out", "ca.pem")
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key"]
    run("req", "-x509", "-newkey", *ec, *subject, *extensions, *signed, "-keyout", "own.key", "-out", "own.pem")
    with open(f"{at}/identity.pem", "w") as f:
        f.write(open(f"{at}/own.key").read() + open(f"{at}/own.pem").read())
    return f"{at}/identity.pem"


def dial(c, port, pem, starttls=False):
    """A connection by TLS with what is shown; None where that is refused already."""
    context = ssl.create_default_context(cafile=c.ca)
    context.check_hostname = False  # who is asked here is what they say of us
    if pem:
        context.load_cert_chain(pem)
    s = socket.create_connection(("127.0.0.1", port), timeout=10)
    if starttls:
        s.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 5, 0))
        got = b""
        while len(got) < 38:
            got += s.recv(38 - len(got))
    return context.wrap_socket(s)


def tried(what):
    try:
        return what()
    except OSError:
        return False


def certificates(c):
    """Certificate × door × operation."""
    c.run("join", c.url, c.invite("client", "former"), "-o", c.path("former"))
    c.run("join", c.url, c.invite("node", "gone"), "-o", c.path("gone"))
    for whose in ("client/former", "node/gone"):
        c.run("ca", "revoke", whose)
    time.sleep(12)  # whoever no manager speaks to asks every 5 s, and reads its files every 5 s
    own = lambda name: c.path(f"{name}/identity.pem")
    # What is shown: which role's it is, and whether it counts.
    who = {
        "nothing": (None, None, False),
        "client ann's": (own("ann"), "client", True), "client bob's": (own("bob"), "client", True),
        "node n1's": (own("n1"), "node", True), "node n3's": (own("n3"), "node", True), "node a's": (own("a"), "node", True),
        "proxy io1's": (own("io1"), "proxy", True), "the manager's": (os.path.join(c.state, "identity/identity.pem"), "manager", True),
        "revoked client's": (own("former"), "client", False), "revoked node's": (own("gone"), "node", False),
        "revoked proxy's": (own("io2"), "proxy", False),
        "one that signed itself as node a": (forged(c, "a", "spiffe://demo/node/a"), "node", False),
        "another cluster's node a": (forged(c, "other-a", "spiffe://demo/node/a", True), "node", False),
        "another cluster's client ann": (forged(c, "other-ann", "spiffe://demo/client/ann", True), "client", False),
        "another cluster's manager": (forged(c, "other-m1", "spiffe://demo/manager/m1", True), "manager", False),
    }
    cells = Cells(c.check)

    def hears(port, pem, says=b""):
        def ask():
            with dial(c, port, pem) as s:
                if says:
                    first = s.recv(4096)
                    s.sendall(says)
                    s.settimeout(10)
                    # What stands behind the first word is an answer to who has proven nothing.
                    rest = s.recv(4096)
                    return bool(first) and bool(rest) and b"efused" not in rest
                return bool(s.recv(4096))
        return tried(ask)

    def answers(port, pem, request, status):
        def ask():
            with dial(c, port, pem) as s:
                s.sendall(request)
                return s.recv(4096).startswith(b"HTTP/1.1 " + status)
        return tried(ask)

    def sees(pem, disk):
        def ask():
            with dial(c, c.nbds, pem, starttls=True) as s:
                name = disk.encode()
                go = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
                s.sendall(b"IHAVEOPT" + struct.pack(">II", 7, len(go)) + go)
                head = b""
                while len(head) < 20:
                    piece = s.recv(20 - len(head))
                    if not piece:
                        return False
                    head += piece
                return not struct.unpack(">I", head[12:16])[0] >> 31
        return tried(ask)

    http = lambda method, path, body=b"", more=b"": (f"{method} /api/v1{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
                                             f"content-type: application/json\r\ncontent-length: {len(body)}\r\n").encode() + more + b"\r\n" + body
    hello = json.dumps({"say": "hello", "version": 3, "name": "n1", "nonce": "0", "proof": "00" * 32}).encode() + b"\n"
    token = open(os.path.join(c.state, "admin.token")).read().strip().encode()
    guess = b"authorization: Bearer henge_" + b"0" * 64 + b"\r\n"
    for name, (pem, role, counts) in who.items():
        # Where nodes come, and at links: whoever's certificate counts is heard at a link, and says nothing there without a proof.
        cells.cell((name, "nodes' door", "is asked who it is"), hears(c.nodes, pem), counts and role == "node")
        cells.cell((name, "nodes' door", "is believed without a proof"), hears(c.nodes, pem, hello), False)
        for door, port in (("a node's link", c.link), ("a proxy's link", c.proxied)):
            cells.cell((name, door, "hears who is there"), hears(port, pem), counts)
            for what, frame in (("proves with zeroes", struct.pack("<II", 32, 0) + bytes(32)), ("says nothing", bytes(8)),
                                ("sends half of 4 GiB", struct.pack("<II", 0xFFFFFFF0, 0) + bytes(64))):
                cells.cell((name, door, what), hears(port, pem, frame), False)
        # Of the manager a certificate opens its own renewal, and nothing that takes a token.
        shown = counts or pem is None
        for door, port in (("the API", c.api), ("the page", c.page)):
            live = "/live/snapshot" if port == c.page else "/disks"
            cells.cell((name, door, "no token"), answers(port, pem, http("GET", live), b"200"), False)
            cells.cell((name, door, "a token that is none"), answers(port, pem, http("GET", live, more=guess), b"200"), False)
        for method, path in (("GET", "/ca"), ("GET", "/nodes"), ("GET", "/tokens"), ("POST", "/ca/rotate"), ("POST", "/ca/revoke"), ("POST", "/tokens")):
            cells.cell((name, "the API", method + path), answers(c.api, pem, http(method, path, b"{}"), b"2"), False)
        cells.cell((name, "the API", "whom to believe"), answers(c.api, pem, http("GET", "/ca/trust"), b"200"), shown)
        bad = json.dumps({"request": "none"}).encode()
        cells.cell((name, "the API", "renewal, refused for its request alone"), answers(c.api, pem, http("POST", "/ca/renew", bad), b"422"), counts)
        bearer = b"authorization: Bearer " + token + b"\r\n"
        cells.cell((name, "the API", "with the administrator's token"), answers(c.api, pem, http("GET", "/nodes", more=bearer), b"200"), shown)
        for disk in ("own", "shared", "none", ""):
            allowed = {"own": "client ann's", "": "client ann's"}.get(disk)  # no name is the one disk that she sees
            cells.cell((name, "NBD", disk), sees(pem, disk), counts and name == allowed)
    return cells.verdict("certificate × door × operation, links among them")


# Run as another user: what a control socket answers to each request.
ASK = """
import json, socket, sys
for path, request in json.loads(sys.argv[1]):
    try:
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(20)
        s.connect(path)
        s.sendall((json.dumps(request) + "\\n").encode())
        answer = b""
        while not answer.endswith(b"\\n"):
            more = s.recv(65536)
            if not more:
                break
            answer += more
        print(json.dumps(bool(json.loads(answer).get("ok"))))
    except (OSError, ValueError):
        print("false")
"""


def users(check, skip, directory, http, cluster):
    """User × control socket × disk × request."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return skip("control sockets for other users", "it takes root and setpriv")
    http(cluster.url + "/nodes/n2/drain", "POST", cluster.token)
    http(cluster.url + "/disks?wait=20", "POST", cluster.token, {"name": "held", "spec": {"capacity": "1MiB"}})
    http(cluster.url + "/nodes/n2/drain", "DELETE", cluster.token)
    disk = lambda name: {"name": name, "pool": "p", "capacity": "1MiB"}
    where = {"n1": {"open", "guarded", "held"}, "n2": set()}
    who = {"root": [], "nobody": ["--reuid", "65534", "--regid", "65534", "--clear-groups"],
           "nobody of root's group": ["--reuid", "65534", "--regid", "0", "--clear-groups"],
           "uid 1": ["--reuid", "1", "--regid", "1", "--clear-groups"]}
    cells = Cells(check)
    for identity, drop in who.items():
        asked = []
        for node, there in where.items():
            path = f"{directory}/{node}.sock"
            for op in ("status", "meters", "reset"):
                asked.append((path, {"op": op}, True))
            for name in ("open", "guarded", "held", "missing", "../up"):
                known = name in there
                asked += [(path, {"op": "preview", "name": name, "contract": {"weight": "2"}}, known),
                          (path, {"op": "set", "name": name, "contract": {"weight": "2"}}, known),
                          (path, {"op": "remove", "name": name + "-"}, False)]
            asked.append((path, {"op": "add", "disk": disk(f"by-{node}")}, True))
            asked.append((path, {"op": "remove", "name": f"by-{node}"}, True))
            asked.append((path, {"op": "no such thing"}, False))
        known = json.dumps([(path, request) for path, request, _ in asked])
        done = subprocess.run((["setpriv", *drop] if drop else []) + [sys.executable, "-c", ASK, known], capture_output=True, text=True)
        heard = [line == "true" for line in done.stdout.split()]
        if len(heard) != len(asked):
            check(f"{identity} could ask", False, done.stderr[-300:])
            continue
        for (path, request, may), came in zip(asked, heard):
            cells.cell((identity, path, json.dumps(request)), came, may and identity == "root")
    http(cluster.url + "/disks/held?force=true", "DELETE", cluster.token)
    return cells.verdict("user × control socket × disk × request")


def ciphers(c, check, skip):
    """What testssl looks for: each door speaks TLS 1.3 with its three suites, and nothing else that OpenSSL can be made to offer."""
    if not shutil.which("openssl"):
        return skip("ciphers", "openssl is missing")
    ann = c.path("ann/identity.pem")
    doors = {"the API": c.api, "the page": c.page, "the nodes' door": c.nodes, "a node's link": c.link, "a proxy's link": c.proxied}
    weak = {
        "no cipher (NULL)": ["-tls1_2", "-cipher", "NULL:eNULL:@SECLEVEL=0"],
        "nobody's key (aNULL)": ["-tls1_2", "-cipher", "aNULL:ADH:AECDH:@SECLEVEL=0"],
        "export, RC4 and DES": ["-tls1_2", "-cipher", "EXPORT:LOW:RC4:DES:3DES:@SECLEVEL=0"],
        "TLS 1.2, to be negotiated again": ["-tls1_2", "-legacy_renegotiation"],
        "TLS 1.2 of any suite": ["-tls1_2", "-cipher", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"],
        "TLS 1.1": ["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
        "TLS 1.0": ["-tls1", "-cipher", "ALL:@SECLEVEL=0"],
        "a short tag (CCM_8)": ["-tls1_3", "-ciphersuites", "TLS_AES_128_CCM_8_SHA256"],
    }
    good = ["TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"]
    wrong, count = [], 0

    def client(port, *args, says=b""):
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", c.ca, "-cert", ann, "-key", ann, *args]
        try:
            done = subprocess.run(command, input=says, capture_output=True, timeout=20)
            return (done.stdout + done.stderr).decode(errors="replace")
        except subprocess.TimeoutExpired as e:
            return ((e.stdout or b"") + (e.stderr or b"")).decode(errors="replace")

    for door, port in doors.items():
        for what, args in weak.items():
            said = client(port, *args)
            count += 1
            if "Cipher is (NONE)" not in said and ":error:" not in said and "alert" not in said:
                wrong.append((door, what, said[-200:]))
        for suite in good:
            said = client(port, "-tls1_3", "-ciphersuites", suite)
            count += 1
            if f"TLSv1.3, Cipher is {suite}" not in said or "Verify return code: 0 (ok)" not in said:
                wrong.append((door, suite, said[-200:]))
        said = client(port, "-tls1_3", says=b"R\n")
        count += 3
        if "Secure Renegotiation IS NOT supported" not in said and "IS supported" in said:
            wrong.append((door, "negotiates again", said[-200:]))
        if "Compression: NONE" not in said and "Compression: " in said:
            wrong.append((door, "compresses", said[-200:]))
        if "Max Early Data: 0" not in said and "Max Early Data" in said:
            wrong.append((door, "takes early data", said[-200:]))
    check(f"TLS 1.3 and nothing weaker: {count} tries of openssl s_client at {len(doors)} doors", not wrong, wrong[:4])
    session = c.path("session")
    client(c.api, "-tls1_3", "-sess_out", session, says=b"Q\n")
    again = client(c.api, "-tls1_3", "-sess_in", session, says=b"Q\n") if os.path.exists(session) else "New, "
    check("nobody resumes a session: each connection shows its certificate", "Reused, " not in again, again[-300:])
