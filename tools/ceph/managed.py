"""Gateways of a manager."""

import contextlib
import json
import subprocess
import time

from support import HENGE, Node, ended, ports, qemu_io, run, seated, slowest, until


def managed(bed):
    """A manager makes disks at all gateways, from a snapshot and of an image; drains them one by one, and begins again in the midst."""
    bed.image("golden", size="32M")
    bed.image("vm", size="64M")
    run("rbd", "bench", "--io-type", "write", "--io-pattern", "seq", "--io-size", "64K", "--io-total", "1M", "henge/golden")
    run("rbd", "snap", "create", "--no-progress", "henge/golden@1")
    run("rbd", "snap", "protect", "henge/golden@1")
    at = ports("http", "nodes", "gw1", "gw2")
    (bed.dir / "manager.toml").write_text(f'listen = "127.0.0.1:{at["http"]}"\nnodes = "127.0.0.1:{at["nodes"]}"\n'
                                          f'secret = "0123456789abcdef"\nstate_dir = "{bed.dir}/manager"\n')
    manager = None

    def begin():
        nonlocal manager
        with open(bed.dir / "manager.log", "a") as log:
            manager = subprocess.Popen([HENGE, "manager", "-c", bed.dir / "manager.toml"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def henge(*words, fails=False):
        return run(HENGE, *words, "--manager", f"http://127.0.0.1:{at['http']}", "--token-file", bed.dir / "manager/admin.token", fails=fails)

    def is_here(*names):
        with contextlib.suppress(SystemExit):
            nodes = json.loads(henge("nodes", "list", "--json"))["nodes"]
            return {node["name"] for node in nodes if node["connected"]} >= set(names)
        return False

    try:
        begin()
        nodes = {}
        for name in ["gw1", "gw2"]:
            asks = f'[manager]\naddress = "127.0.0.1:{at["nodes"]}"\nname = "{name}"\nsecret = "0123456789abcdef"\n'
            nodes[name] = Node(bed, name, asks, cluster={name: at[name]})
        until("both gateways are at the manager", lambda: is_here("gw1", "gw2"), 30)
        henge("vd", "create", "web", "capacity=64MiB", "from=golden@1", "--nbd", "anyone")
        henge("vd", "create", "vm", "capacity=64MiB", "image=vm", "--nbd", "anyone")
        assert "no snapshot" in henge("vd", "create", "bad", "capacity=64MiB", "from=golden@2", fails=True)
        # One gateway may have confirmed it before the other refused it.
        henge("vd", "rm", "bad", "--force", fails=None)
        firsts = {seated(list(nodes.values()), disk) for disk in ["web", "vm"]}
        assert firsts == {"gw1", "gw2"}, f"each has one: {firsts}"
        a_gateway = next(iter(nodes.values()))
        there = run("qemu-img", "map", "--output=json", "-f", "raw", a_gateway.uri("web"))
        assert any(part["data"] for part in json.loads(there)), "it begins as the snapshot"
        # One gateway after another is upgraded while clients of both verify what they write; the manager dies between.
        writers = [bed.verified(node.uri(), f"--offset={at}m", "--size=8m", "--time_based", "--runtime=20", wait=False) for node, at in
                   [(nodes["gw1"], 32), (nodes["gw2"], 48)]]
        for name, other in [("gw1", "gw2"), ("gw2", "gw1")]:
            said = henge("nodes", "drain", name)
            assert said.count(f"is at {other} now") == 2, said
            assert {node.seat(disk) for node in nodes.values() for disk in ["web", "vm"]} == {other}
            if name == "gw1":
                manager.kill()
                manager.wait()
                begin()
                until("both gateways come back", lambda: is_here("gw1", "gw2"), 30)
                assert "up, draining" in henge("nodes", "show", "gw1")
                assert {node.seat("web") for node in nodes.values()} == {other}, "it is still drained"
            henge("nodes", "drain", name, "--undo")
        worst = max(slowest(ended(writer)) for writer in writers)
        # Nobody else is there: it serves on, and it is said why.
        nodes["gw2"].stop()
        seated([nodes["gw1"]], at="gw1")
        said = henge("nodes", "drain", "gw1", "--wait", "6s", fails=True)
        assert said.count("none of its others (gw2) is linked") == 2, said
        qemu_io(nodes["gw1"].uri(), "write -P 3 0 4k", "read -P 3 0 4k")
        # Restarted while it is drained: the manager says so again, and what the other one has stays there.
        nodes["gw2"].start()
        until("gw2 has all", lambda: {nodes["gw1"].seat(disk) for disk in ["web", "vm"]} == {"gw2"}, 30)
        nodes["gw1"].stop()
        nodes["gw1"].start()
        until("gw1 is back", lambda: is_here("gw1", "gw2"), 30)
        time.sleep(2)
        assert seated(list(nodes.values())) == "gw2" and "up, draining" in henge("nodes", "show", "gw1")
        qemu_io(nodes["gw1"].uri(), "read -P 3 0 4k")
        # Removed at both; the image that was there before stays, and the clone goes.
        for disk in ["web", "vm"]:
            henge("vd", "rm", disk, "--force")
            until(f"{disk} is gone", lambda: all(node.seat(disk) is None for node in nodes.values()), 20)
        images = run("rbd", "ls", "henge").split()
        assert "vm" in images and "web" not in images, images
        print(f"        two gateways drained in turn, and the manager killed: the slowest command took {worst:.2f} s")
    except (SystemExit, AssertionError):
        print((bed.dir / "manager.log").read_text()[-2000:])
        raise
    finally:
        if manager:
            manager.kill()
            manager.wait()
