"""DSFQ's figures 9, 10 and 12 on three nodes over real sockets, and their recordings replayed in the simulator.

Every node has an emulated disk of 8 slots of 10 ms: 800 requests a second. f and g are closed loops of reads of 8 KiB; g's
disk lies on several nodes, in pieces long enough that a client chooses a node by its offsets (figure 10: in stripes). All
clients come to the third node, which coordinates.
"""

import collections, csv, subprocess, time
from support import *

DEVICE = '{ constant = { time = "10ms", slots = 8, capacity = "256MiB" } }'
MIB = 1 << 20
UNIT = 8192
WARM, MEASURED = 4.0, 8.0
# How far a live share may be from its target, and a replayed one from the live one.
TARGET, REPLAYED = 0.01, 0.02


class Case:
    def __init__(self, name, foreign, f, g, stripe, loads, ratio=None, on_a=None, coordinators=(2, 2, 2)):
        self.name, self.foreign, self.contracts = name, foreign, {"f": f, "g": g}
        self.stripe, self.loads, self.ratio, self.on_a = stripe, loads, ratio, on_a
        self.coordinators = coordinators


def half(n):
    """g's load on A (30 threads) and on B (n)."""
    return [("f", 0, 30, 0, 32 * MIB, UNIT), ("g", 1, 30, 0, 32 * MIB, UNIT), ("g", 2, n, 32 * MIB, 64 * MIB, UNIT)]


CASES = [
    Case("figure 9 (a): 1 : 1, 4 threads on B", "total", "weight = 1", "weight = 1", "32MiB", half(4), ratio=1),
    Case("figure 9 (b): 1 : 4, 7 threads on B", "total", "weight = 1", "weight = 4", "32MiB", half(7), ratio=4),
    Case("figure 9 (a) with disjoint coordinators", "total", "weight = 1", "weight = 1", "32MiB", half(4), ratio=1,
         coordinators=(0, 0, 1)),
    Case("figure 10: striped over three, 8 threads", "total", "weight = 1", "weight = 1", "8KiB",
         [("f", 0, 30, 0, 32 * MIB, UNIT), ("g", 1, 8, 0, 48 * MIB, 3 * UNIT)], ratio=1),
    Case("figure 12: hybrid, 4 threads on B", "hybrid", "weight = 1", 'weight = 1, min_share = "8.3333%"', "32MiB",
         half(4), ratio=1),
    Case("figure 12: hybrid, all of B: 1/12 of A stays", "hybrid", "weight = 1",
         'weight = 1, min_share = "8.3333%"', "32MiB", half(8), on_a=1 / 12),
]


def run():
    for case in CASES:
        with Directory() as directory:
            live(case, directory)


def live(case, directory):
    nodes = [Node(directory, f"n{i + 1}") for i in range(3)]
    places = {"f": ["n1"], "g": ["n1", "n2", "n3"] if case.stripe == "8KiB" else ["n1", "n2"]}
    body = f'[[pool]]\nname = "d"\nmemory = true\nemulated = {DEVICE}\ncapacity = "256MiB"\n'
    body += f'scheduler = {{ sfq = {{ depth = 8, foreign = "{case.foreign}" }} }}\n'
    for name in "fg":
        pools = ", ".join(f'"{node}/d"' for node in places[name])
        capacity = 32 if name == "f" else 48 if case.stripe == "8KiB" else 64
        body += f'[[disk]]\nname = "{name}"\npools = [{pools}]\nstripe = "{case.stripe}"\ncapacity = "{capacity}MiB"\n'
        body += through(nodes, places[name]) + f"contract = {{ {case.contracts[name]} }}\n"
    for node in nodes:
        node.extra = ["--requests", f"{directory}/{node.name}.csv"]
        node.write([(p.name, p.link_address()) for p in nodes if p is not node], body)
    loads = []
    try:
        for node in nodes:
            node.start()
        until("all nodes are linked", lambda: all(n.is_linked() for n in nodes))
        loads = [(disk, size, Load(nodes[case.coordinators[who]], disk, size, threads, start, end, seed=7 + who))
                 for disk, who, threads, start, end, size in case.loads]
        time.sleep(WARM)
        began = [n.uptime() for n in nodes]
        before = [load.done for _, _, load in loads]
        time.sleep(MEASURED)
        after = [load.done for _, _, load in loads]
        ended = [n.uptime() for n in nodes]
        errors = sum(load.errors for _, _, load in loads)
        lateness = max(g.get("lateness_p99") or 0 for n in nodes for p in n.status()["pools"] for g in p["gates"])
    finally:
        for _, _, load in loads:
            load.end()
        for node in nodes:
            node.stop()
    total = collections.Counter()
    for (disk, size, _), b, a in zip(loads, before, after):
        total[disk] += (a - b) * size
    print(f"  {case.name}: f {total['f'] / MEASURED / 1e6:.2f}, g {total['g'] / MEASURED / 1e6:.2f} MB/s; "
          f"disks late by {lateness / 1e6:.2f} ms (p99)")
    check("no request failed", errors == 0, errors)
    windows = list(zip(began, ended))
    here = [bytes_in(f"{directory}/{n.name}.csv", w) for n, w in zip(nodes, windows)]
    if case.ratio:
        ratio = total["g"] / total["f"] / case.ratio
        check(f"g : f is {case.ratio} : 1 within {TARGET:.0%}", abs(ratio - 1) <= TARGET, f"{ratio * case.ratio:.4f}")
    if case.on_a:
        share = here[0]["g"] / sum(here[0].values())
        check(f"g has its minimum of A, {case.on_a:.4f} within 15 %", abs(share / case.on_a - 1) <= 0.15, f"{share:.4f}")
    replay(case, directory, nodes, windows, here)


def bytes_in(path, window):
    """Bytes served by flow, from the rows of requests that were over within the window."""
    served = collections.Counter()
    with open(path) as f:
        for row in csv.DictReader(line for line in f if not line.startswith("#")):
            if window[0] <= int(row["completion"]) < window[1]:
                served[row["flow"]] += int(row["len"])
    return served


def replay(case, directory, nodes, windows, here):
    """Each node's arrivals, with the foreign service that they carried, before a simulated disk."""
    worst = 0.0
    for node, window, then in zip(nodes, windows, here):
        if not then:
            continue
        flows = "".join(
            f'[[flow]]\nname = "{name}"\ncontract = {{ {case.contracts[name]} }}\n'
            'workload = { pattern = "random", size = "8KiB", outstanding = 1 }\n' for name in "fg")
        scenario = (f'duration = "60s"\nseed = 1\n[node]\ndevice = {DEVICE}\n'
                    f'scheduler = {{ sfq = {{ depth = 8, foreign = "{case.foreign}" }} }}\n{flows}')
        with open(f"{directory}/{node.name}-replay.toml", "w") as f:
            f.write(scenario)
        out = f"{directory}/{node.name}-replayed.csv"
        done = subprocess.run([HENGE, "sim", f"{directory}/{node.name}-replay.toml", "--replay",
                               f"{directory}/{node.name}.csv", "--requests", out, "--json"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            check(f"{node.name}'s recording is replayed", False, done.stderr.strip())
            continue
        now = bytes_in(out, window)
        for name in then:
            a, b = then[name] / sum(then.values()), now[name] / max(1, sum(now.values()))
            worst = max(worst, abs(a - b))
    check(f"the simulator repeats the shares from the arrivals within {REPLAYED:.0%}", worst <= REPLAYED,
          f"largest difference {worst:.4f}")
