"""Requests by which a server ends, or serves nobody, as an application can send them: the proxy answers each with EPROTO, and the server never sees it."""

import struct
import time

import asks
from load import EVEN, bed
from wire import READ, File, Wire, entry, plain, string, stripe, vector

PROTOCOL = -(38 | 1 << 30)
FS = Wire.FS


def tree(**root):
    """Two blocks of a byte, one each second byte, but for what is said."""
    said = {"num_blocks": 2, "stride": 2, "ub": 3, "size": 2, "chunks": 2, "depth": 2, "nested": 1, "ereq": 1, **root}
    return struct.pack("<ii", 1, 0) + entry(**said) + entry()


def twod(groups, factor):
    return string(b"twod_stripe") + struct.pack("<IqI", groups, 65_536, factor)


def listed(strips):
    return string(b"varstrip_dist") + string(strips)


READS = [{"dist": string(b"no_such_dist")}, {"dist": stripe(0)}, {"ct": 0}, {"dist": stripe(1 << 62), "ct": 4}, {"dist": twod(0, 1), "ct": 2},
         {"dist": twod(1, 0), "ct": 2}, {"dist": listed(b"0:9223372036854775807;" * 2)}, {"tree": tree(size=0)}, {"tree": tree(nested=1 << 16)},
         {"tree": tree(depth=0)}, {"tree": tree(ereq=0)}, {"tree": tree(sreq=0)}, {"tree": tree(num_blocks=(1 << 31) - 1, num_ereqs=0)},
         {"tree": vector(1000, 1, 2), "offset": 1 << 36}, {"offset": (1 << 63) - 5}]


def others(file):
    """Operations and bodies."""
    name = string(b"x" * 300)
    return [(23, b""), (51, struct.pack("<i", FS)), (20, struct.pack("<4I", 0, 0, 1, 10)), (21, struct.pack("<iiiQ", FS, (1 << 31) - 1, 0, asks.START)),
            (12, struct.pack("<QiIIQ", file.entries, FS, 512, 0, asks.START | 1 << 32)), (29, struct.pack("<Qii", file.meta, FS, -1)),
            (32, struct.pack("<QiIQIq", file.meta, FS, 0, asks.START, 1, -5)), (31, struct.pack("<Qi", file.meta, FS) + asks.key(b"dh")),
            (6, asks.with_credential(name + struct.pack("<iIQI", FS, 0, file.root, asks.ALL))), (8, name + struct.pack("<Qi", file.entries, FS)),
            (45, struct.pack("<Qi", file.entries, FS) + name), (35, struct.pack("<iiIIII", FS, 2, 1, 0, 0, 0)), (18, b""), (17, b"more")]


def deadly(dir):
    """Each is answered, and the server lives; its own files are as they were."""
    with bed(dir, EVEN, metas=0, datas=0, both=1) as b:
        b.copied("one", 4 << 20, "f")
        file, port = File(b, "one", "f"), b.servers.proxy_port["b0"]["one"]
        asks.find_entries(Wire(b.servers.port["b0"]), file)
        sent = 0
        for asked in [*READS, *others(file)]:
            wire = Wire(port)
            if isinstance(asked, dict):
                said = {"offset": 0, "tree": plain(), "dist": None, "ct": 1, **asked}
                wire.io(READ, file, 65_536, **said)
            else:
                asks.ask(wire, file, *asked)
            _, _, status, _ = wire.answer()
            assert status == PROTOCOL, (asked, status)
            assert b.servers.process["b0"].poll() is None, asked
            wire.close()
            sent += 1
        begun = time.monotonic()
        b.copied("two", 4 << 20)
        status = b.proxies["b0"].status()
        assert status["unsound"] == sent and status["in_flight"] == 0, (sent, status)
        print(f"    {sent} answered; a copy behind them {time.monotonic() - begun:.1f} s", flush=True)


PARTS = [deadly]
