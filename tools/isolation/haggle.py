#!/usr/bin/env python3
"""Runs a client while its disk is promised something and nothing by turns: haggle.py CONTROL DISK TERMS COMMAND..."""
import json
import signal
import socket
import subprocess
import sys
import time

PAUSE = 0.02


def main():
    control, disk, terms, *command = sys.argv[1:]
    some, nothing = json.loads(terms), {term: "" for term in ("weight", "rate", "limit", "latency", "burst", "share")}
    client = subprocess.Popen(command)
    signal.signal(signal.SIGINT, lambda *_: client.send_signal(signal.SIGINT))
    contract = nothing
    while client.poll() is None:
        contract = nothing | some if contract == nothing else nothing
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(control)
            s.sendall(json.dumps({"op": "set", "name": disk, "contract": contract}).encode() + b"\n")
            if not json.loads(s.makefile().readline())["ok"]:
                sys.exit("the node refused")
        time.sleep(PAUSE)
    sys.exit(client.returncode)


if __name__ == "__main__":
    main()
