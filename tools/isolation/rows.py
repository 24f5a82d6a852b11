"""Five promises that were broken on a real disk, each repeated by itself: `tools/bench-isolation --rows`.

A row is a victim of 16 KiB reads, 8 outstanding, with a contract, beside one neighbour. What it had alone is measured before and after. Each row is
run for each of the pool's settings in VARIANTS, so that the table also says which of them is better.
"""
import json
import socket
import tempfile
import time
from pathlib import Path

from . import load
from .servers import Server

VICTIM = "reads-16k-8"
# The pool's `cost`, and the scheduler's `depth`; nothing where they are not stated.
VARIANTS = {
    "default": ("", ""),
    "fixed": ('cost = "requests"', "32"),
    "time": ('cost = "time"', "32"),
    "kept": ("", '"kept"'),
    "shares": ("", "{ kept = { shares = true } }"),
    "work": ('cost = "time"', '"work"'),
}
KEPT, SHARE = 0.99, 0.95


class Node(Server):
    """A directory's pool on this machine's disk, and one of memory."""

    def __init__(self, folder, scheduler, cost, options):
        super().__init__(folder)
        capacity = f'capacity = "{3 * int(options.size[:-1])}{options.size[-1]}iB"'
        disk = '[[disk]]\nname = "{}"\npool = "{}"\ncapacity = "' + options.size + 'iB"\n{}'
        Path(folder, "node.toml").write_text(
            f'listen = "nbd+unix://{folder}/nbd"\ncontrol = "{folder}/control"\nstate_dir = "{folder}/state"\n'
            f'[[pool]]\nname = "main"\npath = "{folder}/pool"\n{capacity}\nscheduler = {scheduler}\n{cost}\n'
            f'[[pool]]\nname = "other"\nmemory = true\n{capacity}\n'
            + disk.format("victim", "main", "") + disk.format("attacker", "main", "") + disk.format("other", "other", ""))
        self.spawn([options.henge, "node", "-c", f"{folder}/node.toml"], self.uri("victim"))
        self.fill(["victim", "attacker", "other"], options)

    def socket(self, _disk):
        return f"{self.folder}/nbd"

    def set(self, terms):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(f"{self.folder}/control")
            s.sendall(json.dumps({"op": "set", "name": "victim", "contract": terms}).encode() + b"\n")
            return json.loads(s.makefile().readline())


# The pool's scheduler; the attacker; what the victim is promised of what it had alone; seconds that it runs alone right before.
ROWS = [
    ("sfq 10 : 1", "sfq", "writes-1m-32", lambda alone: {"weight": "10"}, 0),
    ("mclock, a third", "mclock", "writes-1m-32", lambda alone: {"rate": f"{int(alone / 3)}/s"}, 0),
    ("sfq 1 : 1", "sfq", "trims-4k-64", lambda alone: {"weight": "1"}, 0),
    ("edf, a sixth in 5 ms", "edf", "reads-16k-32", lambda alone: {"rate": f"{int(alone / 6)}/s", "latency": "5ms"}, 5),
    ("mclock, a third", "mclock", "other-pool-1m", lambda alone: {"rate": f"{int(alone / 3)}/s"}, 0),
]


def due(terms, alone):
    """Commands a second that the contract comes to, and how much of them counts as kept."""
    if "rate" in terms:
        return float(terms["rate"].removesuffix("/s")), KEPT
    weight = int(terms["weight"])
    return alone * weight / (weight + 1), SHARE


def run(options, variants):
    """Prints the table; how many rows are missed."""
    for variant in variants:
        if variant not in VARIANTS:
            raise SystemExit(f'bench-isolation: there is no variant "{variant}"; there are: {", ".join(VARIANTS)}')
    print(f"{'contract':<22}{'beside':<16}{'pool':<10}{'alone/s':>9}{'due/s':>9}{'beside/s':>9}{'least/s':>9}{'p99.9 us':>10}  verdict", flush=True)
    missed = 0
    for name, scheduler, attacker, contract, lead in ROWS:
        for variant in variants:
            cost, depth = VARIANTS[variant]
            if ("time" in cost or "shares" in depth) and scheduler not in ("sfq", "mclock"):
                continue  # these count requests or bytes alone, and have no weights
            if not cost and scheduler == "edf":
                cost = 'cost = "requests"'  # its contract comes later, and is in what its rate counts
            depth = f"depth = {depth}" if depth else ""
            with tempfile.TemporaryDirectory(prefix="henge-rows-", dir=options.dir) as folder:
                node = Node(folder, f"{{ {scheduler} = {{ {depth} }} }}", cost, options)
                try:
                    missed += not row(node, name, variant, attacker, contract, lead, options)
                finally:
                    node.end()
    return missed


def row(node, name, variant, attacker, contract, lead, options):
    before = load.victim(node.uri("victim"), VICTIM, options)
    terms = contract(before["iops"])
    reply = node.set(terms)
    if not reply["ok"]:
        print(f"{name:<22}{attacker:<16}{variant:<10}refused: {reply.get('error', '')}", flush=True)
        return False
    if lead:
        # What the victim takes alone right before its neighbour comes could be held against it.
        began = time.monotonic()
        while time.monotonic() - began < lead:
            load.victim(node.uri("victim"), VICTIM, options)
    with load.attack(node, attacker, options):
        beside = load.victim(node.uri("victim"), VICTIM, options)
    after = load.victim(node.uri("victim"), VICTIM, options)
    # Machines that others use change by the minute: what both sides of the run had is sure to have been there.
    alone = min(before["iops"], after["iops"])
    promised, part = due(terms, alone)
    good = sum(n >= part * promised for n in beside["seconds"])
    kept = beside["iops"] >= part * promised and good >= 0.99 * len(beside["seconds"])
    print(f"{name:<22}{attacker:<16}{variant:<10}{alone:>9.0f}{promised:>9.0f}{beside['iops']:>9.0f}{min(beside['seconds'], default=0):>9.0f}"
          f"{beside['p999_us']:>10.0f}  {'kept' if kept else 'MISSED'} ({good} of {len(beside['seconds'])} s)", flush=True)
    return kept
