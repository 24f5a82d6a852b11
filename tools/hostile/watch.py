"""What is looked at while victims are measured: memory, and what the host of a virtual machine takes."""
import threading
import time

# The part of a processor that the host may take of a measurement, and how often one is made until it takes less.
HOST, TRIES = 0.01, 3


def least_taken(attacked, measure):
    """What `measure` says while the host took least, and what it took: a part of a processor."""
    least = None
    for _ in range(TRIES):
        begun, before = time.monotonic(), attacked.grounds.taken_by_the_host()
        got = measure()
        passed, after = time.monotonic() - begun, attacked.grounds.taken_by_the_host()
        taken = max(after[cpu] - before[cpu] for cpu in before) / passed
        if least is None or taken < least[1]:
            least = got, taken
        if taken <= HOST or not attacked.lives():
            break
    return least


class Watch:
    """The most memory that a process has had."""

    def __init__(self, node):
        self.node, self.most, self.over = node, node.resident() or 0, False
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        while not self.over and self.node.lives():
            self.most = max(self.most, self.node.resident() or 0)
            time.sleep(0.05)

    def end(self):
        self.over = True
        self.thread.join()
        return self.most
