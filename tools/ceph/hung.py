"""An OSD that is silent: only those wait whose data is there."""

import json
import signal
import time

from support import Node, qemu_io, run


def acting(name):
    return json.loads(run("ceph", "osd", "map", "henge", name, "--format", "json"))["acting"]


def objects(image):
    """The OSDs of each object of an image, and of its header."""
    info = json.loads(run("rbd", "info", f"henge/{image}", "--format", "json"))
    each = [acting(f"{info['block_name_prefix']}.{i:016x}") for i in range(16)]
    return each, acting(f"rbd_header.{info['id']}")


def hung(bed):
    """Two tenants have more under way to a silent OSD than librados lets a client have; a third one writes to others."""
    disks = ["one", "two", "third"]
    node = Node(bed, "n", scheduler="sfq = { depth = 256 }")
    for disk in disks:
        assert node.add(f"hung-{disk}") is None
        bed.fio(node.uri(f"hung-{disk}"), "--rw=write", "--bs=4m", size="64m")
    (one, _), (two, _), (third, header) = (objects(f"hung-{disk}") for disk in disks)
    silent = next(osd for osd in range(3) if osd not in header)
    run("ceph", "osd", "set", "nodown")
    bed.cluster.signal(f"osd.{silent}", signal.SIGSTOP)
    try:
        writers = []
        for disk, placed in [("one", one), ("two", two)]:
            at = next(i for i, osds in enumerate(placed) if silent in osds)
            writers.append(bed.fio(node.uri(f"hung-{disk}"), "--bs=1m", "--iodepth=64", f"--offset={at * 4}m", size="4m", wait=False,
                                   *["--time_based", "--runtime=60"]))
        time.sleep(2)
        at = next(i for i, osds in enumerate(third) if silent not in osds)
        began = time.monotonic()
        for _ in range(4):
            qemu_io(node.uri("hung-third"), f"write -P 5 {at * 4}M 4k", seconds=10)
        print(f"        beside 128 MiB at a silent OSD four writes to others take {time.monotonic() - began:.1f} s")
    finally:
        bed.cluster.signal(f"osd.{silent}", signal.SIGCONT)
        run("ceph", "osd", "unset", "nodown")
        for writer in writers:
            writer.kill()
            writer.communicate()
