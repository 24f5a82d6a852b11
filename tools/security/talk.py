"""The conversation of a node and its manager, for attacks that know the secret: proofs, and the seal on every line.

Keyed BLAKE3 is written out, as Python has none: https://github.com/BLAKE3-team/BLAKE3-specs, sections 2.1 to 2.5.
"""

import hashlib
import hmac
import json
import os
import socket
import struct

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
ORDER = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
MIXES = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15), (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
FIRST, LAST, PARENT, ROOT, KEYED = 1, 2, 4, 8, 16
MASK = 0xFFFFFFFF


def compress(chain, block, counter, length, flags):
    words = struct.unpack("<16I", block.ljust(64, b"\0"))
    v = [*chain, *IV[:4], counter & MASK, counter >> 32, length, flags]
    for _ in range(7):
        for i, (a, b, c, d) in enumerate(MIXES):
            for word, one, other in ((words[2 * i], 16, 12), (words[2 * i + 1], 8, 7)):
                v[a] = (v[a] + v[b] + word) & MASK
                x = v[d] ^ v[a]
                v[d] = (x >> one | x << (32 - one)) & MASK
                v[c] = (v[c] + v[d]) & MASK
                x = v[b] ^ v[c]
                v[b] = (x >> other | x << (32 - other)) & MASK
        words = [words[i] for i in ORDER]
    return [v[i] ^ v[i + 8] for i in range(8)]


def keyed(key, data):
    """The first 32 bytes of keyed BLAKE3."""
    words = struct.unpack("<8I", key)

    def tree(data, counter, root):
        if len(data) <= 1024:
            chain, blocks = words, [data[i : i + 64] for i in range(0, len(data), 64)] or [b""]
            for i, block in enumerate(blocks):
                last = LAST | root if i == len(blocks) - 1 else 0
                chain = compress(chain, block, counter, len(block), KEYED | (FIRST if i == 0 else 0) | last)
            return chain
        left = 1024
        while left * 2 < len(data):
            left *= 2
        both = tree(data[:left], counter, 0) + tree(data[left:], counter + left // 1024, 0)
        return compress(words, struct.pack("<16I", *both), 0, 64, KEYED | PARENT | root)

    return struct.pack("<8I", *tree(data, 0, ROOT))


class End:
    """One end of a conversation, which knows the secret."""

    def __init__(self, stream, secret, side):
        self.stream, self.secret, self.side = stream, secret.encode(), side
        self.rest, self.keys = b"", None
        stream.settimeout(20)

    def mac(self, purpose, side, said):
        parts = [b"henge manager 2 " + purpose, side, *(text.encode() for text in said)]
        return hmac.new(self.secret, b"".join(struct.pack("<Q", len(p)) + p for p in parts), hashlib.sha256).digest()

    def seal(self, said):
        ends = (b"node", b"manager") if self.side == "node" else (b"manager", b"node")
        self.keys = [self.mac(b"key", end, said) for end in ends]
        self.numbers = [0, 0]

    def mark(self, which, line):
        number = self.numbers[which]
        self.numbers[which] += 1
        return keyed(self.keys[which], b"\0" + struct.pack("<Q", number) + line)[:16].hex().encode() + b" "

    def say(self, what):
        line = what if isinstance(what, bytes) else json.dumps(what).encode() + b"\n"
        self.stream.sendall((self.mark(0, line) if self.keys else b"") + line)

    def hear(self):
        while b"\n" not in self.rest:
            more = self.stream.recv(1 << 16)
            if not more:
                raise ConnectionError("hung up")
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        line += b"\n"
        if self.keys:
            mark, text = line[:33], line[33:]
            if mark != self.mark(1, text):
                raise ConnectionError("a seal does not fit")
            line = text
        return json.loads(line)


def node(port, secret, name):
    """A node that has proven itself to a manager."""
    end = End(socket.create_connection(("127.0.0.1", port)), secret, "node")
    challenge = end.hear()
    said = (challenge["nonce"], os.urandom(16).hex(), name)
    proof = end.mac(b"proof", b"node", said).hex()
    end.say({"say": "hello", "version": challenge["version"], "name": name, "nonce": said[1], "proof": proof})
    answer = end.hear()
    assert answer["say"] == "proven" and answer["proof"] == end.mac(b"proof", b"manager", said).hex(), answer
    end.seal(said)
    return end


def manager(listener, secret):
    """A manager to which a node has come; what it registered."""
    stream, _ = listener.accept()
    end = End(stream, secret, "manager")
    nonce = os.urandom(16).hex()
    end.say({"say": "challenge", "version": 3, "nonce": nonce})
    hello = end.hear()
    said = (nonce, hello["nonce"], hello["name"])
    assert hello["proof"] == end.mac(b"proof", b"node", said).hex(), hello
    end.say({"say": "proven", "proof": end.mac(b"proof", b"manager", said).hex()})
    end.seal(said)
    register = end.hear()
    end.say({"say": "welcome", "period_ms": 60000})
    return end, register
