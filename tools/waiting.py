"""Waiting for what is to become so."""

import time


def until(what, is_so, seconds=60):
    """What `is_so` gives, once that is true. `what` is a text, or makes one."""
    end = time.monotonic() + seconds
    while not (found := is_so()):
        if time.monotonic() > end:
            raise SystemExit(f"after {seconds} s: not {what() if callable(what) else what}")
        time.sleep(0.02)
    return found
