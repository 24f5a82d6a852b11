"""The load: victims, attackers, and how fast they went."""
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Name: what fio is told. `enough`: whether it asks for as much as a share of the device can give.
VICTIMS = {
    "reads-16k-8": dict(fio="--rw=randread --bs=16k --iodepth=8", enough=True, size=16 << 10),
    "reads-4k-1": dict(fio="--rw=randread --bs=4k --iodepth=1", enough=False, size=4 << 10),
    "writes-64k-4": dict(fio="--rw=randwrite --bs=64k --iodepth=4", enough=False, size=64 << 10),
}
# Reads first: whoever trims leaves holes, which are cheaper to read.
ATTACKERS = {
    "reads-512-64": "--rw=randread --bs=512 --iodepth=64",
    "reads-4k-64": "--rw=randread --bs=4k --iodepth=64",
    "reads-16k-32": "--rw=randread --bs=16k --iodepth=32",
    "reads-1m-32": "--rw=randread --bs=1m --iodepth=32",
    "reads-32m-4": "--rw=randread --bs=32m --iodepth=4",
    "reads-sequential": "--rw=read --bs=128k --iodepth=16",
    "connections-16": "--rw=randread --bs=64k --iodepth=16 --numjobs=16",
    "bursts": "--rw=randread --bs=64k --iodepth=128 --thinktime=200ms --thinktime_blocks=256",
    "iscsi-reads-1m": ("iscsi", "-b 2048 -m 32"),
    "other-pool-1m": "--rw=randread --bs=1m --iodepth=16 --numjobs=4",
    "other-pool-4k": "--rw=randread --bs=4k --iodepth=64 --numjobs=4",
    "mixed": "--rw=randrw --rwmixread=70 --bssplit=4k/40:64k/40:1m/20 --iodepth=32",
    "writes-4k-64": "--rw=randwrite --bs=4k --iodepth=64",
    "writes-unaligned": "--rw=randwrite --bs=4608 --blockalign=512 --iodepth=32",
    "writes-sequential": "--rw=write --bs=128k --iodepth=16",
    "writes-1m-32": "--rw=randwrite --bs=1m --iodepth=32",
    "writes-32m-4": "--rw=write --bs=32m --iodepth=4",
    "writes-flushed": "--rw=randwrite --bs=4k --iodepth=32 --fsync=1",
    "flushes": ("raw", "flush 0 64"),
    "trims-4k-64": "--rw=randtrim --bs=4k --iodepth=64",
    "trims-1m-16": "--rw=randtrim --bs=1m --iodepth=16",
    "zeroes-4k-64": ("raw", "zeroes 4096 64"),
    "zeroes-1m-16": ("raw", "zeroes 1048576 16"),
    "zeroes-32m-4": ("raw", "zeroes 33554432 4"),
    # They change what they are: a calm in which nobody is harmed, and a flood; and a contract that is promised and renounced, 25 times a second each.
    "calm-then-flood": ("raw", "write 512 4 write 1048576 64"),
    "haggles": ("haggle", "--rw=randwrite --bs=1m --iodepth=32"),
}
# Attackers give way to server and victim where all want the processors: what is measured is the server, not who gets a processor for its client.
GIVES_WAY = ["nice", "-n", "15"]
LEAD = 1.0  # seconds that an attacker is ahead of the victim


def machine():
    return f"{os.cpu_count()} processors, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}"


def fio(uri, words, seconds, options, extra=()):
    return ["fio", "--name=load", "--ioengine=nbd", f"--uri={uri}", f"--size={options.size}", "--time_based", f"--runtime={seconds}",
            "--randrepeat=0", "--group_reporting", "--output-format=json", *words.split(), *extra]


def victim(uri, name, options):
    """Its throughput, its seconds one by one (the first left out), and its tail."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        extra = [f"--output={folder}/out.json", f"--write_iops_log={log}", "--log_avg_msec=1000", "--percentile_list=50:99:99.9"]
        words = VICTIMS[name]["fio"] + " --ramp_time=1"
        done = subprocess.run(fio(uri, words, options.seconds, options, extra), capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"bench-isolation: fio failed: {done.stderr.strip() or done.stdout.strip()}")
        job = json.loads(Path(folder, "out.json").read_text())["jobs"][0]
        seconds = []
        for path in Path(folder).glob("log_iops*.log"):
            for line in path.read_text().splitlines():
                at, value = (int(float(x)) for x in line.split(",")[:2])
                seconds.append((at, value))
    side = max((job["read"], job["write"]), key=lambda s: s["total_ios"])
    tail = side["clat_ns"].get("percentile", {})
    return {"iops": side["iops"], "seconds": [n for _, n in sorted(seconds)], "p50_us": tail.get("50.000000", 0) / 1e3,
            "p99_us": tail.get("99.000000", 0) / 1e3, "p999_us": tail.get("99.900000", 0) / 1e3}


def start(at, attacker, seconds, options):
    what = ATTACKERS[attacker]
    result = tempfile.NamedTemporaryFile(prefix="henge-isolation-", delete=False)
    result.close()
    if isinstance(what, str):
        uri = at.uri("other" if attacker.startswith("other-pool") else "attacker")
        command = fio(uri, what, seconds, options, [f"--output={result.name}"])
    elif what[0] == "haggle":
        flood = fio(at.uri("attacker"), what[1], seconds, options, [f"--output={result.name}"])
        command = [sys.executable, str(Path(__file__).parent / "haggle.py"), f"{at.folder}/control", "attacker", json.dumps(at.little), *flood]
    elif what[0] == "raw":
        command = [sys.executable, str(Path(__file__).parent / "raw.py"), at.socket("attacker"), at.export("attacker"), str(seconds), *what[1].split()]
    else:
        command = ["timeout", str(seconds), "iscsi-perf", *what[1].split(), at.iscsi("attacker")]
    process = subprocess.Popen([*GIVES_WAY, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return process, result.name


@contextlib.contextmanager
def attack(at, attacker, options):
    """The attacker at work, for as long as the victim is measured."""
    # It is told to go on for longer than the victim takes, and then asked to end, so that it reports what it did.
    process, result = start(at, attacker, options.seconds + LEAD + 60, options)
    time.sleep(LEAD)
    if process.poll() is not None:
        sys.exit(f"bench-isolation: the attacker {attacker} ended at once: {process.stderr.read().strip()}")
    try:
        yield
        if process.poll() is not None:
            sys.exit(f"bench-isolation: the attacker {attacker} did not last: {process.stderr.read().strip()}")
    finally:
        process.send_signal(2)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        at.results[attacker] = read(result)


def read(result):
    """Bytes a second of a fio that has ended; nothing for other clients."""
    try:
        text = Path(result).read_text()
        jobs = json.loads(text[text.index("{"):])["jobs"]
        return sum(job[side]["bw_bytes"] for job in jobs for side in ("read", "write", "trim"))
    except (ValueError, KeyError, OSError):
        return None
    finally:
        Path(result).unlink(missing_ok=True)


def attack_alone(at, attacker, options):
    process, result = start(at, attacker, options.seconds, options)
    process.wait()
    return read(result)
