"""What people get wrong: certificates, clocks, tokens, quotas. Each is refused by a sentence that says what to do."""

import glob
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time

from security import identities

EC = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def openssl(at, *args, **env):
    done = subprocess.run(["openssl", *args], cwd=at, capture_output=True, text=True, env={**os.environ, **env})
    if done.returncode:
        raise RuntimeError(done.stderr)


def faketime():
    """How to shift the clock of a program, if this machine can."""
    found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    return (lambda by: {"LD_PRELOAD": found[0], "FAKETIME": by, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}) if found else None


class Https:
    """Somebody who answers in a manager's place, by a certificate of ours."""

    def __init__(self, certificate, key):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                one, _ = self.listener.accept()
                one.settimeout(5)
                with self.context.wrap_socket(one, server_side=True) as secure:
                    secure.recv(4096)
                    secure.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\nconnection: close\r\n\r\n{\"nodes\":[]}")
            except OSError:
                pass


def servers(c, check, skip, shifted):
    """`henge` against who answers with a certificate that does not count."""
    at = c.path("pki")
    os.makedirs(at)
    root = ["req", "-x509", "-newkey", *EC, "-days", "30", "-subj"]
    openssl(at, *root, "/CN=root", "-keyout", "ca.key", "-out", "ca.pem")
    openssl(at, *root, "/CN=root", "-keyout", "other.key", "-out", "other.pem")

    def issue(name, host="127.0.0.1", ca="ca", **env):
        openssl(at, "req", "-newkey", *EC, "-subj", "/CN=" + name, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        with open(f"{at}/{name}.ext", "w") as f:
            f.write(f"subjectAltName={'IP' if host[0].isdigit() else 'DNS'}:{host}\nextendedKeyUsage=serverAuth\n")
        openssl(at, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", "2",
                "-extfile", f"{name}.ext", "-out", f"{name}.pem", **env)

    issue("right")
    issue("elsewhere", host="manager.example.org")
    issue("another", ca="other")
    openssl(at, *root, "/CN=alone", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "alone.key", "-out", "alone.pem")
    cases = {
        "right": (),
        "elsewhere": ("is for manager.example.org, not for 127.0.0.1", "`hosts`"),
        "another": ("not signed by", "HENGE_CA"),
        "alone": ("signed by", "HENGE_CA"),
    }
    if shifted:
        issue("expired", **shifted("-9d"))
        issue("early", **shifted("+9d"))
        cases |= {"expired": ("has expired", "set the clock"), "early": ("does not count yet", "set the clock")}
    else:
        skip("servers' certificates at the wrong time", "libfaketime is missing")
    ask = lambda url, **env: c.run("nodes", "list", HENGE_MANAGER=url, HENGE_CA=f"{at}/ca.pem", HENGE_TOKEN="none", HENGE_TOKEN_FILE="", **env)
    for name, words in cases.items():
        code, said = ask(f"https://127.0.0.1:{Https(f'{at}/{name}.pem', f'{at}/{name}.key').port}")
        right = code == 0 if not words else code != 0 and all(word in said for word in words)
        check(f"a manager whose certificate is {name}: {' … '.join(words) or 'believed'}", right, said)
    code, said = ask(f"https://127.0.0.1:{c.plain}")
    check("https:// where nobody speaks TLS is said to be that", code != 0 and "http://" in said, said)
    code, said = ask(f"http://127.0.0.1:{c.api}")
    check("http:// where TLS is spoken is said to be that", code != 0 and "https://" in said, said)


def clients(c, check, skip, shifted):
    """Who shows the manager a certificate that does not count."""
    check_ = lambda what, outcome, *words: check(what, outcome[0] != 0 and all(w in outcome[1] for w in words), outcome)
    join = lambda who, role="client": c.run("join", c.url, c.invite(role, who), "-o", c.path(who))
    renew = lambda folder, **env: c.run("renew", "--now", c.path(folder), HENGE_TOKEN_FILE="", HENGE_CA="", **env)
    for who in ("lost", "late"):
        code, said = join(who)
        check(f"{who} joins", code == 0, said)
    c.run("ca", "revoke", "client/lost")
    time.sleep(1)
    said = renew("lost")
    check("who is revoked is told to ask for an invitation", said[0] != 0 and ("is revoked" in said[1] or "its log says why" in said[1])
          and "invit" in said[1], said)
    # Another cluster's, with the names of ours.
    shutil.copytree(c.path("late"), c.path("foreign"))
    at = c.path("foreign")
    openssl(at, "req", "-x509", "-newkey", *EC, "-days", "9", "-subj", "/CN=demo", "-keyout", "ca.key", "-out", "root.pem")
    openssl(at, "req", "-newkey", *EC, "-subj", "/CN=late", "-keyout", "own.key", "-out", "own.csr")
    with open(f"{at}/ext", "w") as f:
        f.write("subjectAltName=URI:spiffe://demo/client/late\nextendedKeyUsage=clientAuth\n")
    sign = ["x509", "-req", "-in", "own.csr", "-CA", "root.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "ext", "-out", "own.pem"]
    openssl(at, *sign, "-days", "9")

    def shown(*files):
        with open(f"{at}/identity.pem", "w") as f:
            f.write("".join(open(f"{at}/{name}").read() for name in files))

    shown("own.key", "own.pem")
    said = renew("foreign")
    check("another cluster's certificate is told to be that", said[0] != 0 and ("not signed by a root" in said[1] or "its log says why" in said[1])
          and "henge join" in said[1], said)
    openssl(at, "req", "-x509", "-key", "own.key", "-days", "9", "-subj", "/CN=late", "-addext",
            "subjectAltName=URI:spiffe://demo/client/late", "-out", "alone.pem")
    shown("own.key", "alone.pem")
    check_("and so is one that signed itself", renew("foreign"), "certificate", "henge")
    # What was used, never was, or is none.
    token = c.invite("client", "once")
    c.run("join", c.url, token, "-o", c.path("once"))
    twice = c.run("join", c.url, token, "-o", c.path("twice"))
    check_("a token used twice: for whom it was used, and what to do", twice, "used already", "client once", "henge ca revoke", "henge ca invite")
    check_("what is no token is told to be none", c.run("join", c.url, "henge-join.abc", "-o", c.path("none")), "henge ca invite")
    check_("a folder that holds an identity keeps it", c.run("join", c.url, c.invite("client", "twice"), "-o", c.path("once")), "henge renew")
    if not shifted:
        return skip("clocks that are off", "libfaketime is missing")
    for by, words in (("+9d", ("expired on", "clock says", "henge ca invite")), ("-1h", ("counts from", "clock says", "set the clock"))):
        check_(f"a certificate, and a clock that is off by {by}", renew("late", **shifted(by)), *words)
    # An hour behind, the manager's certificate is of the future; an hour ahead, nothing is wrong yet.
    behind = c.run("join", c.url, c.invite("client", "behind"), "-o", c.path("behind"), **shifted("-1h"))
    check_("who joins with a clock an hour behind is told so, not that the manager is a stranger", behind, "clock")
    code, said = c.run("join", c.url, c.invite("client", "ahead"), "-o", c.path("ahead"), **shifted("+1h"))
    check("who joins with a clock an hour ahead comes in", code == 0, said)


def nodes(c, check, skip, shifted):
    """A node whose certificate does not count says so, and so does the manager that refused it."""
    code, said = c.run("join", c.url, c.invite("node", "n1"), "-o", c.path("n1"))
    check("n1 joins", code == 0, said)
    shutil.copytree(c.path("n1"), c.path("n1-foreign"))
    for name in ("identity.pem", "ca.pem"):
        at = c.path("foreign")
        with open(f"{c.path('n1-foreign')}/{name}", "w") as f:
            if name == "ca.pem":
                f.write(open(f"{at}/root.pem").read())
            else:
                with open(f"{at}/ext", "w") as ext:
                    ext.write("subjectAltName=URI:spiffe://demo/node/n1\n")
                openssl(at, "x509", "-req", "-in", "own.csr", "-CA", "root.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "9",
                        "-extfile", "ext", "-out", "node.pem")
                f.write(open(f"{at}/own.key").read() + open(f"{at}/node.pem").read())
    node = c.node("n1", c.path("n1-foreign"))
    log = lambda: open(c.path("../n1.log")).read()
    said = identities.until(lambda: "not signed by" in log() and log(), 20)
    check("a node of another cluster does not take this manager's certificate, and says why", bool(said), log()[-600:])
    node.terminate()
    node.wait(30)
    with open(f"{c.path('n1-foreign')}/ca.pem", "w") as f:  # it is made to believe the manager
        f.write(open(f"{c.path('n1')}/ca.pem").read())
    node = c.node("n1", c.path("n1-foreign"))
    said = identities.until(lambda: "not signed by a root" in log() and "henge ca invite" in log(), 20)
    check("nor does the manager take its; the node says what to do", bool(said), log()[-600:])
    manager = open(c.path("../authority.log")).read()
    check("and the manager's log says the same", "did not come in by TLS" in manager and "not signed by the ca" in manager, manager[-600:])
    node.terminate()
    node.wait(30)
    if not shifted:
        return skip("a node whose clock is off", "libfaketime is missing")
    for by, words in (("-1h", ("counts from", "set the clock")), ("+9d", ("expired on", "henge join"))):
        code, said = c.run("node", "-c", c.path("n1.toml"), "--check", **shifted(by))
        with open(c.path("n1.toml")) as f:
            text = f.read().replace("n1-foreign", "n1")
        good = c.write("n1-own.toml", text)
        code, said = c.run("node", "-c", good, "--check", **shifted(by))
        check(f"a node whose clock is off by {by} says so", code != 0 and all(word in said for word in words), said)


def tenants(c, check):
    """Beyond its quota: what is left."""
    c.run("tenant", "set", "ann", "--disks", "1", "--bytes", "3MB")
    code, said = c.run("vd", "create", "big", "capacity=5MB", "--tenant", "ann")
    check("beyond a quota: how much is left, and what to do", code != 0 and "3MB" in said and "left" in said and "administrator" in said, said)


def run(henge, directory, port, start, check, skip):
    if not shutil.which("openssl"):
        return skip("what people get wrong", "openssl is missing")
    c = identities.Cluster(henge, directory, port, start, check, "input")
    c.begin()
    plain = socket.create_server(("127.0.0.1", 0))

    def chat():
        while True:
            try:
                one, _ = plain.accept()
                one.settimeout(5)
                one.recv(4096)
                one.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
                one.close()
            except OSError:
                pass

    threading.Thread(target=chat, daemon=True).start()
    c.plain = plain.getsockname()[1]
    shifted = faketime()
    servers(c, check, skip, shifted)
    clients(c, check, skip, shifted)
    nodes(c, check, skip, shifted)
    tenants(c, check)
