"""The second table: what others have of a manager beside a tenant, or strangers, who mean harm.

Each of these is measured alone and beside the attack:

- `looks`: another tenant's GET of its disk, ten a second; `changes`: its PATCH of that disk's contract, four a second. Each has a connection of
  its own, by TLS.
- `commands`: an administrator's `henge vd create`, `set` and `rm`, one after the other.
- `stream`: a third tenant's page that is told live; what counts is the time from each word to the next.

What is promised: every request is answered, and none refused. Its 99th percentile is within 3 times what it was alone, or 50 ms, whichever is
more (a command's: or 200 ms, as it is three requests and more). A page hears something every 2 s. No node is lost, and one that begins anew
beside the attack is known within 5 s more than it took alone. The manager grows by 64 MiB at most.

`--quick` judges that none waits for a second or 3 times as long as alone, no page for 6 s or 3 times as long, and all the rest: the page's thread
has the least priority, and other work on the machine goes before it. The table shows p50, p99 and the longest, in ms.
"""
import http.client
import json
import math
import multiprocessing
import os
import signal
import socket
import subprocess
import time

from .askers import ASKERS
from .cluster import context, head
from .node import HENGE
from .watch import Watch, least_taken

VICTIMS = ("looks", "changes", "commands", "stream")
TIMES, FLOOR_MS, FLOOR_COMMAND_MS, SILENCE_MS, NODE_S, GROWN = 3, 50, 200, 2000, 5, 64 << 20


def paced(rate, seconds, ask):
    """Asks so many times a second; the times in ms, and what went wrong."""
    begun, times, wrong = time.monotonic(), [], []
    while (now := time.monotonic()) - begun < seconds:
        try:
            why = ask()
        except Exception as e:  # whatever it is, it is not answered
            why = f"{type(e).__name__}: {e}"
        times.append(1000 * (time.monotonic() - now))
        wrong += [why] if why else []
        left = begun + math.floor((time.monotonic() - begun) * rate + 1) / rate - time.monotonic()
        time.sleep(max(left, 0))
    return times, wrong


def request(cluster, begun, method, path, token, body=None):
    c = http.client.HTTPSConnection("127.0.0.1", cluster.api, timeout=15, context=begun)
    try:
        c.request(method, "/api/v1" + path, body and json.dumps(body), {"Authorization": "Bearer " + token, "Content-Type": "application/json"})
        answer = c.getresponse()
        text = answer.read()
    finally:
        c.close()
    return None if answer.status in (200, 202) else f"{method}: {answer.status} {text[:200].decode(errors='replace')}"


def looks(cluster, seconds):
    begun = context()
    return paced(10, seconds, lambda: request(cluster, begun, "GET", "/disks/mine", cluster.bob))


def changes(cluster, seconds):
    begun, turn = context(), iter(range(1 << 62))
    return paced(4, seconds, lambda: request(cluster, begun, "PATCH", "/disks/mine", cluster.bob, {"weight": 1 + next(turn) % 2}))


def commands(cluster, seconds):
    turn, environment = iter(range(1 << 62)), cluster.environment()
    steps = (("create", "capacity=1MiB", "weight=1"), ("set", "weight=2"), ("rm",))

    def one():
        step, *more = steps[next(turn) % 3]
        done = subprocess.run([HENGE, "vd", step, "own", *more], env=environment, text=True, capture_output=True, timeout=20)
        return None if done.returncode == 0 else f"henge vd {step}: {(done.stderr or done.stdout).strip()[:300]}"
    result = paced(4, seconds, one)
    if next(turn) % 3:
        subprocess.run([HENGE, "vd", "rm", "own"], env=environment, capture_output=True, timeout=20)
    return result


def stream(cluster, seconds):
    """How long a page waits for each next word, and for the first."""
    begun, gaps, seen = time.monotonic(), [], b""
    last = begun
    try:
        s = context().wrap_socket(socket.create_connection(("127.0.0.1", cluster.page), 10), server_hostname="localhost")
        s.sendall(head("GET", "/api/v1/stream", cluster.carol))
        while (left := begun + seconds - time.monotonic()) > 0:
            s.settimeout(left)
            try:
                data = s.recv(65536)
            except TimeoutError:
                break
            if not data:
                return gaps or [1e9], ["the stream has ended: " + seen[-200:].decode(errors="replace")]
            words = (seen[-5:] + data).count(b"event:") - seen[-5:].count(b"event:")
            seen = seen[-300:] + data
            if words:
                gaps.append(1000 * (time.monotonic() - last))
                last = time.monotonic()
    except OSError as e:
        return gaps or [1e9], [f"the stream is not served: {e}"]
    return [*gaps, 1000 * (time.monotonic() - last)], []


def victim(cluster, name, seconds, tell):
    cluster.grounds.place_victim()
    tell.send(globals()[name](cluster, seconds))


def measured(cluster, seconds):
    """Each victim's times and complaints."""
    running = {}
    for name in VICTIMS:
        hear, tell = multiprocessing.Pipe(False)
        running[name] = multiprocessing.Process(target=victim, args=(cluster, name, seconds, tell), daemon=True), hear
        running[name][0].start()
    got = {}
    for name, (process, hear) in running.items():
        try:
            got[name] = hear.recv() if hear.poll(seconds + 60) else ([1e9], ["no end of it"])
        except EOFError:
            got[name] = [1e9], ["it has failed"]
        process.kill()
        process.join()
    return got


def percentiles(times):
    times = sorted(times)
    at = lambda q: times[min(len(times) - 1, math.ceil(q * len(times)) - 1)]
    return [round(at(0.5), 1), round(at(0.99), 1), round(times[-1], 1)]


def again(cluster, name="n2"):
    """A node begins anew; how long until the manager knows it."""
    cluster.end(cluster.nodes[name])
    since = max((event["id"] for event in cluster.events()), default=0)
    begun = time.monotonic()
    cluster.serve(name)
    while time.monotonic() - begun < 30:
        if any(event["kind"] == "node_up" and event.get("node") == name for event in cluster.events(since)):
            return time.monotonic() - begun
        time.sleep(0.05)
    return math.inf


def perform(function, cluster):
    os.setpgrp()
    cluster.grounds.place_attacker(idle=False)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        function(cluster)
    except (OSError, EOFError):
        pass  # it was thrown out
    while True:
        time.sleep(60)


def judge(cluster, name, options):
    """One attack beside a manager that has begun anew: the row of the table."""
    item, _, function = ASKERS[name]
    cluster.anew()
    seconds, door = 2 * options.seconds, "nodes-door" in name
    came_alone = again(cluster) if door else 0
    alone, host_alone = least_taken(cluster, lambda: measured(cluster, seconds))
    since = max((event["id"] for event in cluster.events()), default=0)
    rest, watch = cluster.resident(), Watch(cluster)
    attacker = multiprocessing.Process(target=perform, args=(function, cluster), daemon=False)
    attacker.start()
    time.sleep(1.5)
    before, cpu = time.monotonic(), cluster.processor()
    beside, host_beside = least_taken(cluster, lambda: measured(cluster, seconds))
    percent = round(100 * (cluster.processor() - cpu) / (time.monotonic() - before)) if cluster.lives() else 0
    complaints, came = [], 0
    try:
        lost = [event for event in cluster.events(since) if event["kind"] == "node_down"]
        complaints += [f"a node is lost: {event.get('node')} {event['text']}" for event in lost]
        came = again(cluster) if door else 0
    except OSError as e:
        complaints.append(f"the administrator is not answered: {e}")
    try:
        os.killpg(attacker.pid, signal.SIGKILL)
    except ProcessLookupError:
        attacker.kill()
    attacker.join()
    if not cluster.lives():
        complaints.append("the manager or a node has ended: " + cluster.said())
    if came > came_alone + NODE_S:
        complaints.append(f"a node that begins is known after {came:.1f} s (alone {came_alone:.1f})")
    grown = watch.end() - rest
    if grown > GROWN:
        complaints.append(f"the manager has grown by {grown >> 20} MiB")
    row = {"attack": name, "item": item, "grown_mib": grown >> 20, "manager_percent": percent, "node_s": [round(came_alone, 1), round(came, 1)],
           "host_percent": [round(100 * taken, 1) for taken in (host_alone, host_beside)]}
    for which in VICTIMS:
        (had, wrong_alone), (has, wrong) = alone[which], beside[which]
        had, has = percentiles(had), percentiles(has)
        row[which] = {"alone": had, "beside": has, "asked": len(beside[which][0]), "failed": len(wrong)}
        if wrong_alone:
            complaints.append(f"{which} alone: {wrong_alone[0]}")
        if wrong:
            complaints.append(f"{which}: {len(wrong)} of {len(beside[which][0])} not answered as they should be: {wrong[0]}")
        complaints += judged(which, had, has, options.quick)
    row["complaints"] = complaints
    return row


def judged(which, alone, beside, quick):
    (_, p99, longest), (_, p99_, longest_) = alone, beside
    if which == "stream":
        most = max(3 * SILENCE_MS, TIMES * longest) if quick else SILENCE_MS
        return [f"stream hears nothing for {longest_ / 1000:.1f} s (alone {longest / 1000:.1f})"] if longest_ > most else []
    if quick:
        return [f"{which} waits {longest_:.0f} ms (alone {longest:.0f})"] if longest_ > max(1000, TIMES * longest) else []
    floor = FLOOR_COMMAND_MS if which == "commands" else FLOOR_MS
    return [f"{which}: p99 {p99_:.0f} ms (alone {p99:.0f})"] if p99_ > max(floor, TIMES * p99) else []


def head_of_table():
    print(f"{'':44}" + "".join(f"{which + ', ms':^37}" for which in VICTIMS[:3]) + f"{'stream, ms':^14}")
    three = f"{'alone: p50 p99 max':>18} {'beside':>17} "
    print(f"{'beside the manager':44}" + 3 * three + f"{'alone, beside':>14} {'grown':>6} {'mgr %':>5} {'node s':>9} {'host %':>9}")


def cell(figures):
    return " ".join(f"{ms:.0f}" if ms < 1e6 else "never" for ms in figures)


def show(row):
    text = f"{row['attack']:44}"
    for which in VICTIMS[:3]:
        text += f"{cell(row[which]['alone']):>18} {cell(row[which]['beside']):>17} "
    text += f"{cell([row['stream']['alone'][2], row['stream']['beside'][2]]):>14} {row['grown_mib']:6} {row['manager_percent']:5} "
    text += f"{'{}, {}'.format(*row['node_s']):>9} {'{}, {}'.format(*row['host_percent']):>9}"
    print(text + ("  ok" if not row["complaints"] else "  FAIL"), flush=True)
    for complaint in row["complaints"]:
        print(f"    {complaint}", flush=True)


def markdown(rows):
    """The table for benches/README.md."""
    for row in rows:
        cells = [f"{cell(row[which]['alone'])} | {cell(row[which]['beside'])}" for which in VICTIMS[:3]]
        streams = f"{row['stream']['alone'][2]:.0f}, {row['stream']['beside'][2]:.0f}"
        print(f"| {row['attack'].replace('-', ' ')} | {' | '.join(cells)} | {streams} | {row['grown_mib']} | {row['manager_percent']} | "
              f"{', '.join(map(str, row['host_percent']))} |")
