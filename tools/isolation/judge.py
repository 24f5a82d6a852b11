"""What counts as kept, and the table.

- A rate: at least 99 % of it in at least 99 % of the seconds of all attackers together (99.9 % on emulated devices, where nothing
  but the emulation's own host disturbs).
- A share by weight, for a victim that asks for enough: at least 0.95 of (its weight's share x what it had alone). Alone is the mean of before and
  after: of two figures that differ by chance, the larger is too much. A row that misses is made up to four times, and the means of all are judged.
  Where it had less than 0.8 alone at one time of what it had at another, and the row misses, the device itself changed: it is counted, and not judged.
- A victim that asks for one thing at a time (4 KiB reads beside 1 MiB writes): its 99.9th percentile at most 3 times that alone,
  and attacker and victim together move at least 95 % of the attacker's bytes alone. On the emulated flash.
- Nothing else is judged; the table shows it.
"""
from . import load
from .servers import PEERS, WEIGHT

PAIRS = {("reads-4k-1", "writes-1m-32")}
FLASH = ("nvme-dc", "sata-ssd")


STEADY = 0.8
# The least part of a share that counts as kept, and how often a row is made at most.
SHARE, ROUNDS = 0.95, 4


def by_share(contract, victim):
    """Whether the victim is judged by its share of what it has alone."""
    return "weight" in contract and load.VICTIMS[victim]["enough"]


def together(runs):
    """The mean of several runs; of their tails the shortest."""
    rates = [run["iops"] for run in runs]
    return {"iops": sum(rates) / len(rates), "least": min(rates), "most": max(rates), "seconds": [n for run in runs for n in run["seconds"]],
            "p50_us": min(run["p50_us"] for run in runs), "p99_us": min(run["p99_us"] for run in runs), "p999_us": min(run["p999_us"] for run in runs)}


def part(alone, beside):
    """The victim's part of what it is due by weight."""
    return beside["iops"] / max(alone["iops"], 1e-9) * (WEIGHT + 1) / WEIGHT


def per_second(text):
    return float(text.removesuffix("/s"))


class Table:
    def __init__(self):
        self.seconds, self.shares, self.pairs, self.refused, self.unsteady = {}, [], [], [], []

    def head(self):
        return (f"{'device':<12}{'server':<14}{'victim':<13}{'attacker':<18}{'alone/s':>9}{'beside/s':>9}{'kept':>6}"
                f"{'least/s':>9}{'p99.9 us':>10}{'alone':>8}  promise")

    def line(self, row):
        key = f"{row['device']:<12}{row['server']:<14}{row['victim']:<13}"
        if "refused" in row:
            self.refused.append((row["device"], row["server"], row["victim"], row["refused"]))
            return f"{key}refused: {row['refused'].splitlines()[0][:110]}"
        alone, beside, contract = row["alone"], row["beside"], row["contract"]
        kept = beside["iops"] / max(alone["iops"], 1e-9)
        verdict = self.judge(row, contract, alone, beside, kept)
        return (f"{key}{row['attacker']:<18}{alone['iops']:>9.0f}{beside['iops']:>9.0f}{kept:>6.2f}{min(beside['seconds'], default=0):>9.0f}"
                f"{beside['p999_us']:>10.0f}{alone['p999_us']:>8.0f}  {verdict}")

    def judge(self, row, contract, alone, beside, kept):
        said = []
        where = (row["device"], row["server"], row["victim"])
        if "rate" in contract:
            rate = per_second(contract["rate"])
            good = sum(n >= 0.99 * rate for n in beside["seconds"])
            so_far = self.seconds.setdefault(where, [0, 0, 0.0])
            so_far[0] += good
            so_far[1] += len(beside["seconds"])
            said.append(f"{rate:.0f}/s in {good} of {len(beside['seconds'])} s")
        elif by_share(contract, row["victim"]):
            of, rounds = part(alone, beside), f" in {row['rounds']} rounds" if row["rounds"] > 1 else ""
            steady = of >= SHARE or alone["least"] >= STEADY * alone["most"]
            if steady:
                self.shares.append((where, row["attacker"], of))
            else:
                self.unsteady.append((where, row["attacker"]))
            verdict = "" if of >= SHARE else " MISSED" if steady else f"; alone {alone['least']:.0f} to {alone['most']:.0f}/s: not judged"
            said.append(f"share {of:.2f} of its due{rounds}{verdict}")
        if (row["victim"], row["attacker"]) in PAIRS and row["attacker_alone"] and row["attacker_beside"]:
            slower = beside["p999_us"] / max(alone["p999_us"], 1)
            moved = row["attacker_beside"] + beside["iops"] * load.VICTIMS[row["victim"]]["size"]
            total = moved / row["attacker_alone"]
            good = slower <= 3 and total >= 0.95
            if row["device"] in FLASH:
                self.pairs.append((where, slower, total, good))
            said.append(f"p99.9 x{slower:.1f}, total {100 * total:.0f} %")
        return "; ".join(said) or "-"

    def rate_lines(self):
        for where, (good, all_of, _) in self.seconds.items():
            wanted = 0.99 if where[0] in ("disk", "memory") else 0.999
            yield where, good, all_of, all_of > 0 and good >= wanted * all_of

    def summary(self):
        lines = ["", "rates: seconds with at least 99 % of what is reserved, over all attackers"]
        for where, good, all_of, ok in self.rate_lines():
            lines.append(f"  {'/'.join(where):<44}{good:>5} of {all_of:<5} {'kept' if ok else 'MISSED'}")
        lines.append("shares: the least part of what is due by weight")
        for where in sorted({where for where, *_ in self.shares + self.unsteady}):
            parts = [(one, attacker) for of, attacker, one in self.shares if of == where]
            least = min(parts, default=None)
            good, out = sum(one >= SHARE for one, _ in parts), sum(of == where for of, _ in self.unsteady)
            said = f"{least[0]:>5.2f} beside {least[1]} {'kept' if least[0] >= SHARE else 'MISSED'};" if least else ""
            lines.append(f"  {'/'.join(where):<44}{said} {good} of {len(parts)} rows kept, {out} not judged: the device changed")
        lines.append("one at a time beside 1 MiB writes, on emulated flash: at most x3, at least 95 %")
        for where, slower, total, ok in self.pairs:
            lines.append(f"  {'/'.join(where):<44} x{slower:.1f}, {100 * total:.0f} % {'kept' if ok else 'MISSED'}")
        lines += [f"refused: {'/'.join(of)}: {why.splitlines()[0]}" for *of, why in self.refused]
        return lines

    def kept(self):
        """Whether Henge keeps what it promises; the peers are there to be compared with."""
        ours = all(ok for where, _, _, ok in self.rate_lines() if where[1] not in PEERS)
        shares = all(one >= SHARE for where, _, one in self.shares if where[1] not in PEERS)
        return ours and shares and all(ok for where, _, _, ok in self.pairs if where[1] not in PEERS)
