"""Who may do what with which disk: every identity × every disk × every operation, by every door; exactly the allowed cells succeed.

What is allowed is derived from who owns a disk and which secret opens it, never from what was seen.
"""

import json
import shutil
import socket
import struct
import subprocess

from security import nvme

IQN = "iqn.2026-11.local.henge:"


class Cells:
    def __init__(self, check):
        self.check, self.count, self.wrong = check, 0, []

    def cell(self, what, succeeds, allowed, saw=""):
        self.count += 1
        if succeeds != allowed:
            self.wrong.append((what, "let in" if succeeds else "refused", saw))

    def verdict(self, title):
        self.check(f"{title}: {self.count} cells", not self.wrong, self.wrong[:5])
        return self.count


def nbd(port, disk, what):
    """A client without TLS: EXPORT_NAME tells by hanging up, GO by an error."""
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.settimeout(20)

        def exactly(n):
            data = b""
            while len(data) < n:
                piece = s.recv(n - len(data))
                if not piece:
                    raise OSError("hung up")
                data += piece
            return data

        try:
            exactly(18)
            name = disk.encode()
            info = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
            s.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 7, len(info)) + info)
            while True:
                _, _, kind, length = struct.unpack(">QIII", exactly(20))
                exactly(length)
                if kind >> 31:
                    return False
                if kind == 1:
                    break
            if what == "info":
                return True
            command = 0 if what == "read" else 1
            s.sendall(struct.pack(">IHHQQI", 0x25609513, 0, command, 1, 0, 512) + (b"" if what == "read" else bytes(512)))
            return struct.unpack(">IIQ", exactly(16))[1] == 0
        except OSError:
            return False


def iscsi(port, disk, identity, what):
    """libiscsi's tools: they log in, and ask."""
    login = "" if identity is None else "%".join(identity) + "@"
    url = f"iscsi://{login}127.0.0.1:{port}/{IQN}{disk}/0"
    done = subprocess.run([f"iscsi-{what}", url], capture_output=True, text=True, timeout=60)
    return done.returncode == 0


def doors(check, skip, http, url, admin, ports):
    """Managed disks by NBD, iSCSI and NVMe: who knows a disk's secret uses that disk."""
    tokens = {"administrator": admin}
    for tenant in ("ann", "bob"):
        tokens[tenant] = json.loads(http(url + "/tokens", "POST", admin, {"tenant": tenant})[1])["token"]
    disks = {}
    for owner, called in (("ann", "web"), ("ann", "db"), ("bob", "web"), ("administrator", "own")):
        body = {"name": called, "spec": {"capacity": "1MiB"}}
        status, text = http(url + "/disks?wait=20", "POST", tokens[owner], body)
        full = called if owner == "administrator" else f"{owner}.{called}"
        made = json.loads(text)
        check(f"{owner} makes {called}, and is told how to attach", status == 201 and made["attach"]["user"] == full, text)
        disks[full] = made["attach"]
        again = json.loads(http(f"{url}/disks/{called}", token=tokens[owner])[1])
        check(f"the secrets of {full} are told once", "attach" not in again and made["attach"]["chap"] not in json.dumps(again), again)
    names = [*disks, "no.such", "ann.webb"]
    cells = Cells(check)
    for disk in names:
        for what in ("info", "read", "write"):
            cells.cell(("NBD", disk, what), nbd(ports["nbd"], disk, what), False)
    who = {name: (attach["user"], attach["chap"], attach["nvme"]) for name, attach in disks.items()}
    ours = who["ann.web"]
    who["nobody"] = None
    who["guess"] = (ours[0], "0123456789abcdef", "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:")
    who["other name"] = ("ann.db", ours[1], who["ann.db"][2])
    for identity, known in who.items():
        for disk in names:
            for what in ("connect", "read", "write"):
                may = known is not None and disk in disks and known[2] == disks[disk]["nvme"]
                secret = known and known[2]
                cells.cell(("NVMe", identity, disk, what), nvme.attach(ports["nvme"], disk, secret, what), may)
    if all(shutil.which(f"iscsi-{tool}") for tool in ("inq", "readcapacity16")):
        for identity, known in who.items():
            for disk in names:
                for what in ("inq", "readcapacity16"):
                    login = known and known[:2]
                    may = known is not None and disk in disks and login == (disks[disk]["user"], disks[disk]["chap"])
                    cells.cell(("iSCSI", identity, disk, what), iscsi(ports["iscsi"], disk, login, what), may)
    else:
        skip("managed disks by iSCSI", "libiscsi's tools are missing")
    return cells.verdict("secret × managed disk × operation by NBD, iSCSI and NVMe"), tokens


def rest(check, http, url, page, admin, tokens):
    """Tokens that may look, or open one disk, beside whole ones: by the API and by the manager's page."""
    made = {}
    for name, body in {
        "ann looks": {"tenant": "ann", "read": True},
        "ann's web": {"tenant": "ann", "disk": "web"},
        "looks at ann's web": {"tenant": "ann", "disk": "web", "read": True},
        "looks at all": {"read": True},
        "gone": {"tenant": "ann"},
    }.items():
        status, text = http(url + "/tokens", "POST", admin, body)
        check(f"a token is made: {name}", status == 201, text)
        made[name] = json.loads(text)
    http(f"{url}/tokens/{made['gone']['id']}", "DELETE", admin)
    # Whose disks, which of them (none: all), may it change, is it known at all.
    every = {
        "administrator": (admin, None, None, True), "ann": (tokens["ann"], "ann", None, True),
        "bob": (tokens["bob"], "bob", None, True), "ann looks": (made["ann looks"]["token"], "ann", None, False),
        "ann's web": (made["ann's web"]["token"], "ann", "ann.web", True),
        "looks at ann's web": (made["looks at ann's web"]["token"], "ann", "ann.web", False),
        "looks at all": (made["looks at all"]["token"], None, None, False),
    }
    known = set(every)
    every |= {"nobody": (None, "", None, False), "gone": (made["gone"]["token"], "", None, False),
              "guess": ("henge_" + "f" * 64, "", None, False)}
    disks = {"ann.web": "ann", "ann.db": "ann", "bob.web": "bob", "own": None}
    missing = {"ann.webb": "ann", "no.such": None}
    cells = Cells(check)
    for identity, (token, tenant, one, changes) in every.items():
        def sees(disk):
            mine = tenant is None or disks.get(disk) == tenant
            return identity in known and disk in disks and mine and one in (None, disk)

        whole = identity in known and one is None

        def ask(what, method, path, body, allowed, at=url):
            status, text = http(at + path, method, token, body)
            cells.cell((identity, what), 200 <= status < 300, allowed, (status, text[:200]))
            return text

        for disk in (*disks, *missing):
            at = f"/disks/{disk}"
            ask(f"GET {disk}", "GET", at, None, sees(disk))
            ask(f"events of {disk}", "GET", f"/events?disk={disk}", None, identity in known)
            for weight in (2, 3):
                ask(f"PATCH {disk}", "PATCH", at + "?wait=20", {"weight": weight}, sees(disk) and changes)
            if not (sees(disk) and changes):  # who may is believed: others ask for it next
                ask(f"DELETE {disk}", "DELETE", at, None, False)
            shown = identity in known and sees(disk)
            ask(f"page of {disk}", "GET", f"/live/disks/{disk}", None, shown, page)
            ask(f"page: try {disk}", "POST", f"/live/disks/{disk}/preview", {"weight": "3"}, shown, page)
            ask(f"page: change {disk}", "PUT", f"/live/disks/{disk}/contract", {"weight": "3"}, shown and changes, page)
        text = ask("the list", "GET", "/disks", None, identity in known)
        if identity in known:
            listed = sorted(d["export"] for d in json.loads(text)["disks"] if d["export"] in disks)
            cells.cell((identity, "what is listed"), listed == sorted(filter(sees, disks)), True, listed)
            snapshot = json.loads(http(page + "/live/snapshot", token=token)[1])
            listed = sorted(d["name"] for d in snapshot["disks"] if d["name"] in disks)
            cells.cell((identity, "what the page lists"), listed == sorted(filter(sees, disks)), True, listed)
        admits = identity in known
        ask("what admission would say", "POST", "/admit", {"capacity": "1MiB"}, admits)
        all_of_it = whole and tenant is None
        for path in ("/nodes", "/pools", "/tokens", "/nodes/n1"):
            ask("GET " + path, "GET", path, None, all_of_it)
        ask("make a token", "POST", "/tokens", {"tenant": "zoe", "lasts": "1s"}, all_of_it and changes)
        ask("metrics", "GET", "", None, all_of_it, page.removesuffix("/api/v1") + "/metrics")
        for name in ("ann", "bob"):
            mine = whole and tenant in (None, name)
            ask(f"GET tenant {name}", "GET", f"/tenants/{name}", None, mine)
            ask(f"quota of {name}", "PATCH", f"/tenants/{name}", {"weight": None}, mine and changes)
            status = http(f"{url}/tenants/{name}", "DELETE", token)[0]
            # It has disks: the administrator is told so, and nobody else learns that.
            expected = 401 if identity not in known else 409 if all_of_it and changes else 403
            cells.cell((identity, f"DELETE tenant {name}"), status == expected, True, status)
        body = {"name": "another", "spec": {"capacity": "1EB"}}
        status = http(url + "/disks", "POST", token, body)[0]
        expected = (401,) if identity not in known else (409, 422) if whole and changes else (403,)
        cells.cell((identity, "make a disk"), status in expected, True, status)
    return cells.verdict("token × disk × operation by the API and the page")


def quotas(check, http, url, admin, tokens):
    """A tenant against its quota, and against the administrator's ceilings."""
    ann = tokens["ann"]
    # It has three of 1 MiB each by now.
    status, text = http(url + "/tenants/ann", "PATCH", admin, {"disks": 4, "bytes": "5MiB"})
    left = json.loads(text)["left"]
    check("the administrator sets a quota, and sees what is left", status == 200 and left["disks"] == 1, text)
    new = lambda name, spec: http(url + "/disks?wait=20", "POST", ann, {"name": name, "spec": spec})
    status, text = new("big", {"capacity": "3MiB"})
    problem = json.loads(text)
    check("beyond it: 409, and what is left", status == 409 and problem["left"]["bytes"] == f"{2 << 20}B", text)
    status, text = http(url + "/tenants/ann", "PATCH", ann, {"disks": 5})
    check("a tenant does not raise it", status == 409 and "at most 4" in text, text)
    status, text = http(url + "/tenants/ann", "PATCH", ann, {"disks": 3})
    check("it lowers its own", status == 200 and json.loads(text)["left"]["disks"] == 0, text)
    check("and is held to it", new("small", {"capacity": "1MiB"})[0] == 409)
    http(url + "/tenants/ann", "PATCH", ann, {"disks": None})
    check("and raises it again, up to the ceiling", new("small", {"capacity": "1MiB"})[0] == 201)
    check("which holds", new("fourth", {"capacity": "4KiB"})[0] == 409)
    http(url + "/disks/ann.small?wait=20", "PATCH", admin, {"limit": "500/s"})
    for body, allowed in (({"limit": "100/s"}, True), ({"limit": "500/s"}, True), ({"limit": "501/s"}, False), ({"limit": None}, False)):
        status, text = http(url + "/disks/small?wait=20", "PATCH", ann, body)
        check(f"the administrator's limit of 500/s; its tenant asks for {body['limit']}", (status == 200) == allowed and status in (200, 403), text)
    http(url + "/tenants/ann", "PATCH", admin, {"disks": None, "bytes": None})


def ended(check, http, url, page, admin):
    """A page whose token is removed hears no more."""
    made = json.loads(http(url + "/tokens", "POST", admin, {"tenant": "ann"})[1])
    host = page.removeprefix("http://").split("/")[0]
    address, port = host.split(":")
    with socket.create_connection((address, int(port))) as s:
        s.settimeout(20)
        s.sendall(f"GET /api/v1/stream HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {made['token']}\r\n\r\n".encode())
        got = b""
        while b"event: tick" not in got:
            got += s.recv(65536)
        http(f"{url}/tokens/{made['id']}", "DELETE", admin)
        try:
            while not got.endswith(b"0\r\n\r\n"):
                piece = s.recv(65536)
                if not piece:
                    break
                got = (got + piece)[-65536:]
            over = True
        except TimeoutError:
            over = False
    check("a page whose token is removed hears no more", over)
