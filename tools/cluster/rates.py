"""Rates over two to four nodes, unequally spread, by every scheduler that promises one.

Every node has an emulated disk of 4 slots of 20 ms: 200 requests a second, each promised in part. g lies on all nodes, h on the first two,
and f, which is promised nothing and wants everything, on the first alone. g's clients want more of the first node than of the others, where
it takes what nobody else wants. What it gets there must not count against what it is promised here.
"""

import time
from shares import bytes_in
from support import *

DEVICE = '{ constant = { time = "20ms", slots = 4, capacity = "256MiB" } }'
MIB = 1 << 20
UNIT = 8192
WARM, MEASURED = 4.0, 8.0
# Promised a second at each node, of 200.
G, H = 100, 30
# A disk that is told of its completions later than that has less to give than was promised of it.
LATE = 5e6
# Of a promise, at least: what is under way where the window begins and ends is 1 % of it.
KEPT = 0.97

# The pool's scheduler, and what is beside the rate in a contract.
SCHEDULERS = {
    "mclock": "",
    "vc": "",
    "cvc": "",
    "pclock": ', burst = "8", latency = "1s"',
    "edf": ', latency = "1s"',
    "two-level": ', latency = "1s"',
}


def run():
    for i, (scheduler, terms) in enumerate(SCHEDULERS.items()):
        for count in (2 + i % 3, 2 + (i + 1) % 3):
            with Directory() as directory:
                live(scheduler, terms, count, directory)


def live(scheduler, terms, count, directory):
    nodes = [Node(directory, f"n{i + 1}") for i in range(count)]
    on = {"f": nodes[:1], "g": nodes, "h": nodes[:2]}
    body = f'[[pool]]\nname = "d"\nmemory = true\nemulated = {DEVICE}\ncapacity = "256MiB"\nscheduler = {{ {scheduler} = {{ depth = 4 }} }}\n'
    for name, there in on.items():
        pools = ", ".join(f'"{node.name}/d"' for node in there)
        body += f'[[disk]]\nname = "{name}"\npools = [{pools}]\nstripe = "16MiB"\ncapacity = "{16 * len(there)}MiB"\n'
        body += through(nodes, [node.name for node in there])
        if name != "f":
            body += f'contract = {{ rate = "{(G if name == "g" else H) * len(there)}/s"{terms} }}\n'
    for node in nodes:
        node.extra = ["--requests", f"{directory}/{node.name}.csv"]
        # Nothing is promised to f: at 1.5/s the last of its 32 waits for 20 s, which is longer than a link's usual patience.
        peers = [(p.name, p.link_address()) for p in nodes if p is not node]
        node.write(peers, body, link='timeout = "60s"')
    loads = []
    try:
        for node in nodes:
            node.start()
        until("all nodes are linked", lambda: all(n.is_linked() for n in nodes))
        wanted = [("f", 0, 32), ("g", 0, 16), ("h", 0, 8), ("h", 1, 8)] + [("g", i, 8) for i in range(1, count)]
        loads = [Load(nodes[-1], disk, UNIT, threads, 16 * MIB * at, 16 * MIB * (at + 1), seed=7 + at) for disk, at, threads in wanted]
        time.sleep(WARM)
        began = [n.uptime() for n in nodes]
        time.sleep(MEASURED)
        ended = [n.uptime() for n in nodes]
        errors = sum(load.errors for load in loads)
        lateness = max(g.get("lateness_p99") or 0 for n in nodes for p in n.status()["pools"] for g in p["gates"])
    finally:
        for load in loads:
            load.end()
        for node in nodes:
            node.stop()
    windows = list(zip(began, ended))
    rates = [{flow: got / UNIT * 1e9 / (w[1] - w[0]) for flow, got in bytes_in(f"{directory}/{n.name}.csv", w).items()}
             for n, w in zip(nodes, windows)]
    print(f"  {scheduler} on {count}: " + "; ".join(", ".join(f"{f} {r:.1f}/s" for f, r in sorted(at.items())) for at in rates)
          + f"; disks late by {lateness / 1e6:.2f} ms (p99)")
    check(f"{scheduler} on {count}: no request failed", errors == 0, errors)
    if lateness > LATE:
        return skip(f"the rates of {scheduler} on {count}", f"a machine with time to spare: disks are late by {lateness / 1e6:.0f} ms")
    least = min(at.get("g", 0) / G for at in rates)
    check(f"{scheduler} on {count}: g has its {G}/s at each node", least >= KEPT, f"at least {least * G:.1f}/s")
    least = min(at.get("h", 0) / H for at in rates[:2])
    check(f"{scheduler} on {count}: h has its {H}/s at each of its nodes", least >= KEPT, f"at least {least * H:.1f}/s")
    used = sum(rates[0].values())
    check(f"{scheduler} on {count}: the first disk is not idle while f waits", used >= 0.95 * 200, f"{used:.1f}/s of 200/s")
