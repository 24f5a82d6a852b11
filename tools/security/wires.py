"""Between node and manager: who has the secret and lies, who is on the way and adds lines, who shows an end its own words."""

import json
import os
import socket
import struct
import time

from security import talk
from security.streams import Carrier, ended


class Between(Carrier):
    """Between a node and its manager: keeps their lines."""

    def __init__(self, to):
        self.lines = {"node": [], "manager": []}
        super().__init__(to)

    def passed(self, who, data, kept):
        *lines, rest = ((kept or b"") + data).split(b"\n")
        self.lines["node" if who == "near" else "manager"] += lines
        return rest


def absurd(check, http, cluster, secret):
    """A node that knows the secret says what no storage is."""
    pool = {"name": "p", "capacity": 1 << 30, "copies": 1, "scheduler": "sfq"}
    held = {"name": "d", "pools": ["p"], "capacity": 1 << 20, "contract": {}}
    sound = {"say": "register", "name": "liar", "addresses": [], "pools": [pool], "disks": [held]}
    lies = {
        "a capacity of 2^63": {"pools": [pool | {"capacity": 1 << 63}]},
        "a capacity of 2^64": {"pools": [pool | {"capacity": 1 << 64}]},
        "a capacity below zero": {"pools": [pool | {"capacity": -1}]},
        "copies below zero": {"pools": [pool | {"copies": -1}]},
        "two pools of one name": {"pools": [pool, pool]},
        "two disks of one name": {"disks": [held, held]},
        "a name of 64 KiB": {"disks": [held | {"name": "d" * 65536}]},
        "a pool's name of 64 KiB": {"pools": [pool | {"name": "p" * 65536}]},
        "a name that is a path": {"disks": [held | {"name": "../d"}]},
        "a name with control characters": {"disks": [held | {"name": "d\x1b[2J"}]},
        "an address with control characters": {"addresses": ["nbd://\x1b]0;x\x07"]},
        "a revision of 2^63": {"disks": [held | {"revision": 1 << 63}]},
        "rates without bound": {"pools": [pool | {"profile": {"iops": 1e300, "service": 0.1}}]},
        "a thousand addresses": {"addresses": ["nbd://h/"] * 1000},
        "another node's name": {"name": "n1"},
    }
    known = lambda: http(cluster.url + "/nodes", token=cluster.token)[1]
    taken = []
    for what, lie in lies.items():
        end = talk.node(cluster.nodes, secret, "liar")
        end.say(sound | lie)
        try:
            answer = end.hear()
            if answer["say"] != "refused" or not answer["why"]:
                taken.append((what, answer))
        except (ConnectionError, ValueError):
            pass  # hung up on, without a word
        end.stream.close()
    check(f"a node that lies about itself in {len(lies)} ways is refused", not taken, taken)
    check("and nothing of it is kept", "liar" not in known(), known()[-300:])
    end = talk.node(cluster.nodes, secret, "liar")
    end.say(sound)
    answer = end.hear()
    check("one that says what can be is let in", answer["say"] == "welcome", answer)
    end.stream.close()
    spoken(check, cluster, secret, sound)
    later = {
        "an order done that was never given": {"say": "done", "name": "own", "revision": 7, "error": None},
        "a revision beyond all": {"say": "done", "name": "own", "revision": (1 << 64) - 1},
        "an error that moves the cursor": {"say": "done", "name": "own", "revision": 1, "error": "\x1b[2J"},
        "a period without end": {"say": "period", "seconds": 1e300, "disks": []},
        "a period below zero": {"say": "period", "seconds": -1.0, "disks": []},
        "counts that wrap around": {"say": "period", "seconds": 60.0, "disks": [
            {"name": "d", "commands": 1, "peak": 1, "latency": [[1000, (1 << 64) - 1]] * 4}]},
        "another greeting": {"say": "hello", "version": 3, "name": "n1", "nonce": "", "proof": ""},
        "another node's registration": sound | {"name": "n1"},
        "no JSON": b"{\n",
        "not UTF-8": b"\xff\xfe\n",
    }
    for what, line in later.items():
        end = talk.node(cluster.nodes, secret, "liar")
        end.say(sound)
        end.hear()
        end.say(line)
        if what != "an order done that was never given":
            check(f"{what} ends a node's conversation", ended(end.stream))
        end.stream.close()
    status, text = http(cluster.url + "/health")
    disks = http(cluster.url + "/disks", token=cluster.token)[1]
    check("the manager decides on, for the disks that were there", status == 200 and json.loads(text)["leads"] and '"own"' in disks, text)
    up = lambda: json.loads(known())["nodes"]
    check("and n1 is still itself", all(n["connected"] for n in up() if n["name"] in ("n1", "n2")), up())
    end = time.monotonic() + 10
    while http(cluster.url + "/nodes/liar", "DELETE", cluster.token)[0] not in (204, 404) and time.monotonic() < end:
        time.sleep(0.1)  # until its connection is noticed to be gone


def spoken(check, cluster, secret, register):
    """Nodes of other releases: one before features, a later one, and one that needs what the manager lacks."""
    def answer(speaks):
        end = talk.node(cluster.nodes, secret, "liar")
        end.say(register | speaks)
        heard = end.hear()
        end.stream.close()
        return heard

    old = answer({})
    check("a node that says nothing of features is let in, and told the manager's", old["say"] == "welcome" and old["speaks"]["offers"], old)
    later = answer({"mood": 1, "speaks": {"release": "7.0.0", "offers": (1 << 64) - 1, "needs": 0, "more": []}})
    check("a node of a later release is let in", later["say"] == "welcome", later)
    why = answer({"speaks": {"release": "7.0.0", "offers": 1 << 40, "needs": 1 << 40}})
    named = all(text in why.get("why", "") for text in ("liar", "Henge 7.0.0", "feature 40", old["speaks"]["release"]))
    check("one that needs what the manager lacks is refused, and both releases are named", why["say"] == "refused" and named, why)


def ruled(check, until, run, henge, directory, secret, start):
    """Who answers in the manager's place and knows the secret gives orders for disks that no manager made."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    path = os.path.join(directory, "ruled.toml")
    with open(path, "w") as f:
        f.write(f"""
control = "{directory}/ruled.sock"
state_dir = "{directory}/ruled"
[manager]
address = "127.0.0.1:{port}"
name = "ruled"
secret_file = "{directory}/secret"
[[pool]]
name = "p"
memory = true
capacity = "64MiB"
cost = "requests"
[[disk]]
name = "mine"
pool = "p"
capacity = "1MiB"
""")
    process = start("ruled", "node", "-c", path)
    listener.settimeout(30)
    end, register = talk.manager(listener, secret)
    check("a node registers its own disk as its own", [d.get("revision") for d in register["disks"]] == [None], register)
    want = lambda **keys: {"capacity": 1 << 20, "pools": ["p"], "contract": {}, **keys}

    def order(name, revision, wanted):
        end.say({"say": "order", "name": name, "revision": revision, "want": wanted})
        while True:
            said = end.hear()
            if said["say"] == "done" and said["name"] == name and said["revision"] == revision:
                return said.get("error")

    lists = lambda: run(henge, "vd", "list", "--node", f"{directory}/ruled.sock")[1]
    for what, wanted in (("removes", None), ("changes", want(capacity=2 << 20)),
                         ("opens", want() | {"access": {"nbd": ["anyone"], "user": "x", "chap": "x" * 16, "nvme": ""}})):
        why = order("mine", 5, wanted)
        check(f"who {what} a disk that no manager made is told so", bool(why) and "no manager made it" in why, why)
    check("it is there as it was", "mine" in lists() and "2MiB" not in lists(), lists())
    wrong = {
        "a name that is a path": ("../up", want()),
        "a capacity of 2^63": ("big", want(capacity=1 << 63)),
        "a pool that is not there": ("lost", want(pools=["q"])),
        "a text that begins another table": ("two", want(pools=['p"]\n[[disk]]\nname = "three"\npool = "p"\ncapacity = "1MiB"'])),
        "a contract of two lines": ("two", want(contract={"weight": '1\nnbd = "anyone"'})),
        "a file of the node's as a secret": ("leak", want(nvme={"secret_file": "/etc/shadow"})),
        "a disk as version 2 wrote it": ("three", {"keys": {"pool": "p", "capacity": "1MiB"}, "contract": {}}),
    }
    for what, (name, wanted) in wrong.items():
        why = order(name, 6, wanted)
        check(f"an order for {what} is refused", bool(why), why)
    said = lists()
    check("nothing came of those", not any(name in said for name in ("up", "big", "lost", "two", "three", "leak")), said)
    why = order("made", 7, want())
    check("a sound order is carried out", not why and "made" in lists(), why)
    end.stream.close()
    check("the node is still there", process.poll() is None)
    process.terminate()
    process.wait(30)


def between(check, until, run, http, cluster, henge, directory, running, anew):
    """Who is on the way adds lines after the handshake, repeats some, and changes one."""
    tap = Between(cluster.nodes)
    path = f"{directory}/n2.toml"
    with open(path) as f:
        text = f.read()
    with open(path, "w") as f:
        f.write(text.replace(f'address = "127.0.0.1:{cluster.nodes}"', f'address = "127.0.0.1:{tap.port}"'))

    def again():
        running[2].terminate()
        running[2].wait(30)
        running[2] = anew("n2")
        running.pop()

    again()
    up = lambda: all(n["connected"] for n in json.loads(http(cluster.url + "/nodes", token=cluster.token)[1])["nodes"])
    until("n2 comes by way of somebody", lambda: tap.ends and up())
    http(cluster.url + "/nodes/n1/drain", "POST", cluster.token)
    status, made = http(cluster.url + "/disks?wait=20", "POST", cluster.token, {"name": "carried", "spec": {"capacity": "1MiB"}})
    check("a disk is made by way of him", status == 201, made)
    http(cluster.url + "/nodes/n1/drain", "DELETE", cluster.token)
    secret = json.loads(made)["attach"]["chap"]
    check("he reads what is said, as docs/security.md says", any(secret.encode() in line for line in tap.lines["manager"]))
    gone = json.dumps({"say": "order", "name": "carried", "revision": 1 << 40, "want": None}).encode() + b"\n"
    done = json.dumps({"say": "register", "name": "n2", "addresses": [], "pools": [], "disks": []}).encode() + b"\n"
    repeated = lambda who: next(line for line in reversed(tap.lines[who]) if b" " in line[:40]) + b"\n"
    attacks = {
        "an order without a seal": ("node", lambda: gone),
        "an order under a seal of zeroes": ("node", lambda: b"0" * 32 + b" " + gone),
        "an order under another line's seal": ("node", lambda: repeated("manager")[:33] + gone),
        "an order that came before": ("node", lambda: repeated("manager")),
        "half a line": ("node", lambda: b"0" * 16 + b"\n"),
        "a registration without a seal": ("manager", lambda: done),
        "a node's line that came before": ("manager", lambda: repeated("node")),
        "a line of 1 MiB": ("manager", lambda: b"x" * (1 << 20) + b"\n"),
    }
    wrong = []
    for what, (to, line) in attacks.items():
        count = len(tap.ends)
        node, manager = tap.ends[-1]
        try:
            (node if to == "node" else manager).sendall(line())
        except OSError as e:
            wrong.append((what, str(e)))
        limit = time.monotonic() + 20
        while len(tap.ends) == count and time.monotonic() < limit:
            time.sleep(0.05)  # the node dials again
        if len(tap.ends) == count:
            wrong.append((what, "the conversation goes on"))
        until("n2 is back", up)
    check(f"{len(attacks)} lines put in on the way end the conversation", not wrong, wrong)
    listed = run(henge, "vd", "list", "--node", f"{directory}/n2.sock")[1]
    check("and do nothing", "carried" in listed and "carried" in http(cluster.url + "/disks", token=cluster.token)[1], listed)
    with open(path, "w") as f:
        f.write(text)
    again()
    until("n2 comes by itself", up)
    for end in (end for pair in tap.ends for end in pair):
        end.close()
    http(cluster.url + "/disks/carried?force=true", "DELETE", cluster.token)


def reflected(check, receive, cluster):
    """A link that says back whatever it is told, and two that say each other's."""
    port = cluster.links[0]
    s = socket.create_connection(("127.0.0.1", port))
    hello = receive(s, 1.0)[0]
    s.sendall(hello)
    answer, over = receive(s, 5.0)
    check("a link that reflects a hello is not let in, and hears no proof", over and answer == b"", answer)
    one, two = (socket.create_connection(("127.0.0.1", port)) for _ in range(2))
    hellos = [receive(s, 1.0)[0] for s in (one, two)]
    for s, hello in ((one, hellos[1]), (two, hellos[0])):
        s.sendall(hello)
    answers = [receive(s, 5.0) for s in (one, two)]
    check("nor do two that say each other's", all(a == b"" and over for a, over in answers), answers)
    # Who is silent after a sound hello hears nothing either, and is not waited for.
    other = socket.create_connection(("127.0.0.1", cluster.links[1]))
    theirs = receive(other, 1.0)[0]
    s = socket.create_connection(("127.0.0.1", port))
    receive(s, 1.0)
    s.sendall(theirs)
    begun = time.monotonic()
    answer, over = receive(s, 30.0)
    check("half a handshake ends by itself, without a proof", over and answer == b"", (answer, time.monotonic() - begun))
    for s in (one, two, other):
        s.close()
    # A hello of a later version, of a name without end, and a frame that announces 4 GiB.
    for what, frame in (("a frame of 4 GiB", struct.pack("<II", 0xFFFFFFFF, 0)), ("a frame of nothing", bytes(8)),
                        ("data before the handshake", struct.pack("<II", 8, 0xFFFFFFF0) + bytes(8))):
        s = socket.create_connection(("127.0.0.1", port))
        receive(s, 0.3)
        s.sendall(frame)
        check(f"{what} ends a link", ended(s))
