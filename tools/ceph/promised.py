"""A rate that is promised to one tenant of two gateways, second by second, beside neighbours at both."""

import pathlib

from support import STRICT, ended, gateways_of, seated

# A few of a second's commands end in the next one. Of 300 a second three are a hundredth, of 800 they are not.
RATE, SECONDS = 800, 40 if STRICT else 15


def seconds_of(log, seconds):
    """Commands in each second, of fio's log of a second a line."""
    found = [0.0] * seconds
    for line in pathlib.Path(log).read_text().splitlines():
        ms, count = line.split(",")[:2]
        # A line stands for the second that ended then.
        if (at := round(int(ms) / 1000) - 1) < seconds:
            found[max(at, 0)] = float(count)
    return found


def promised(bed):
    """A rate holds for the total over gateways, whichever its tenant comes to, while neighbours write at both without end."""
    nodes = gateways_of(bed, "n1", "n2", contract=f'contract = {{ rate = "{RATE}/s" }}', scheduler='mclock = { depth = 16, cost = "requests" }')
    names = [node.name for node in nodes]
    neighbours = dict(zip(["loud", "louder"], nodes))
    for name, home in neighbours.items():
        for node in sorted(nodes, key=lambda node: node is not home):
            why = node.add(name, gateways=sorted(names, key=lambda name: name != home.name), contract={"weight": 100})
            assert why is None, why
        seated(nodes, name, home.name)
    for node, disk in [(nodes[0], "web"), *((home, name) for name, home in neighbours.items())]:
        bed.fio(node.uri(disk), "--bs=1m", "--rw=write", size="16m")
    whole = 2 + 3 * (SECONDS + 5)
    floods = [bed.fio(home.uri(name), "--iodepth=32", "--time_based", f"--runtime={whole}", size="16m", wait=False) for name, home in neighbours.items()]
    kept, all_seconds = 0, 0
    for ways in [[nodes[0]], [nodes[1]], nodes]:
        logs = [f"{bed.dir}/{'-'.join(n.name for n in ways)}-{way.name}" for way in ways]
        readers = [bed.fio(way.uri(), "--rw=randread", f"--iodepth={16 // len(ways)}", "--time_based", "--ramp_time=1", f"--runtime={SECONDS + 1}",
                           f"--write_iops_log={log}", "--log_avg_msec=1000", "--per_job_logs=0", size="16m", wait=False)
                   for way, log in zip(ways, logs)]
        for reader in readers:
            ended(reader)
        each = [sum(two) for two in zip(*(seconds_of(f"{log}_iops.log", SECONDS) for log in logs))]
        well = sum(count >= 0.99 * RATE for count in each)
        kept, all_seconds = kept + well, all_seconds + len(each)
        print(f"        {RATE}/s by {' and '.join(way.name for way in ways)}: {well} of {len(each)} seconds, least {min(each):.0f}/s, mean {sum(each) / len(each):.0f}/s")
    others = sum(ended(flood)["write"]["iops"] for flood in floods)
    print(f"        in {kept} of {all_seconds} seconds; neighbours, who write at a depth of 32 at each gateway, {others:.0f}/s")
    # The promise ledger of the gateway that has the seat, whose counts began with the first fill.
    disk = next(d for d in nodes[0].ask(op="status")["status"]["disks"] if d["name"] == "web")
    ever = disk["kept"]["ever"]
    print(f"        its ledger says: kept in {ever['kept_ms'] / 1000:.0f} of {ever['wanted_ms'] / 1000:.0f} s")
    assert ever["wanted_ms"] >= 900 * all_seconds and ever["kept_ms"] >= (0.97 if STRICT else 0.85) * ever["wanted_ms"], f"it says otherwise: {ever}"
    assert kept >= (0.99 if STRICT else 0.9) * all_seconds, "the promise is the disk's, whichever way its tenant comes"
