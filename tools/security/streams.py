"""Streams between others, and how they end."""

import socket
import threading


class Carrier:
    """Somebody on the way: carries connections to a port of this machine. `passed` says what it makes of what goes by."""

    def __init__(self, to, at=0):
        self.to, self.ends = to, []
        self.listener = socket.create_server(("127.0.0.1", at))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            near, _ = self.listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self.to), timeout=5)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            self.ends.append((near, far))
            for who, a, b in (("near", near, far), ("far", far, near)):
                threading.Thread(target=self.carry, args=(who, a, b), daemon=True).start()

    def carry(self, who, a, b):
        kept = None
        try:
            while data := a.recv(1 << 16):
                kept = self.passed(who, data, kept)
                b.sendall(data)
        except OSError:
            pass
        for end in (a, b):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def passed(self, who, data, kept):
        """What a direction keeps for its next piece; None at first."""


def ended(stream, seconds=20):
    """Whether the other end hangs up within so long, whatever it says before."""
    stream.settimeout(seconds)
    try:
        while stream.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True
