"""A link between a client and a proxy that can stand still, or be cut."""

import contextlib
import socket
import threading


class Forwarder:
    def __init__(self, to):
        self.to, self.flows = to, threading.Event()
        self.flows.set()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port, self.ends = self.listener.getsockname()[1], []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                here, _ = self.listener.accept()
            except OSError:
                return
            try:
                there = socket.create_connection(("127.0.0.1", self.to), 10)
            except OSError:
                here.close()
                continue
            there.settimeout(None)
            self.ends += [here, there]
            for source, sink in [(here, there), (there, here)]:
                threading.Thread(target=self.pass_on, args=(source, sink), daemon=True).start()

    def pass_on(self, source, sink):
        with contextlib.suppress(OSError):
            while piece := source.recv(100_000):
                self.flows.wait()
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)

    def pause(self, seconds):
        """Nothing passes for so long."""
        self.flows.clear()
        threading.Event().wait(seconds)
        self.flows.set()

    def cut(self):
        """Whoever is connected is not any more."""
        ends, self.ends = self.ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()
        self.cut()
