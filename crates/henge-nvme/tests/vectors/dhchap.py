#!/usr/bin/env python3
"""What host and controller say in tests/it/auth.rs, computed from the specification alone (NVMe Base 2.0, 8.13.5; RFC 7919).

Prints, for no group and for ffdhe2048: the challenge's and the controller's share's first 8 bytes, both responses.
"""
import hashlib
import hmac as h

SEED, HOST, NQN = bytes([3] * 32), b"nqn.2014-08.org.nvmexpress:uuid:host", b"nqn.2026-11.example:disk"
ID, NUMBER2, X = 0x1234, 77, 5


def mac(key, text, how="sha256"):
    return h.new(key, text, how).digest()


def draw(count, length):
    """The controller's random bytes, of its seed."""
    return mac(SEED, count.to_bytes(8, "little"), "sha512")[:length]


def prime(bits, extra):
    """2^b - 2^(b-64) + (floor(2^(b-130) e) + X) 2^64 - 1"""
    one = term = 1 << (bits - 130 + 64)
    total, k = 0, 0
    while term:
        total, k = total + term, k + 1
        term //= k
    return 2**bits - 2 ** (bits - 64) + (((total >> 64) + extra) << 64) - 1


def response(secret, first, second, role, challenge, number, shared):
    key = mac(bytes([secret] * 32), first + b"NVMe-over-Fabrics")
    if shared is not None:
        challenge = mac(hashlib.sha256(shared).digest(), challenge)
    return mac(key, challenge + number.to_bytes(4, "little") + ID.to_bytes(2, "little") + b"\0" + role + first + b"\0" + second)


for bits in (0, 2048):
    number = int.from_bytes(draw(1, 4), "little")
    challenge = draw(2, 32)
    share = shared = None
    if bits:
        p = prime(bits, 560316)
        share = pow(2, int.from_bytes(draw(3, 32), "big"), p)
        shared = pow(share, X, p).to_bytes(256, "big")
        share = share.to_bytes(256, "big")
    host = response(1, HOST, NQN, b"HostHost", challenge, number, shared)
    controller = response(2, NQN, HOST, b"Controller", bytes([0xC2] * 32), NUMBER2, shared)
    print(challenge[:8].hex(), (share or bytes(8))[:8].hex(), host.hex(), controller.hex())
