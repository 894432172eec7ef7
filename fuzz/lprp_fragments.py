"""Target: fragments of longer LPRP messages, put together with small limits, and sealed payloads opened.

An input is fragments, each behind one byte for its sender and two of length. They come from messages cut honestly, in
any order, doubled, bent, or made up. Every fragment is opened as a sealed payload too, which none of them is.
"""

import random
from typing import Final

from fuzz.target import expect
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.fragments import MESSAGE_BYTES_MAX, Reassembly, ReassemblyLimits, cut
from waystation.protocols.lprp.sealing import open_once, open_reused, seal_once

__all__ = ["LprpFragmentsTarget"]

_LIMITS: Final = ReassemblyLimits(
    messages_per_sender=3, bytes_per_sender=4_000, messages_max=5, bytes_max=8_000, lifetime_ms=100, remembered_max=4
)
_US: Final = KeyPair.from_seed(b"\x01" * 32)
_THEM: Final = KeyPair.from_seed(b"\x02" * 32)
_SEALED: Final = seal_once(b"a text of some length", _THEM.public, _US.public, ephemeral_secret=b"\x03" * 32)


class LprpFragmentsTarget:
    """No limit is passed, every message given is one that was sent or a lie of its own sender, nothing opens."""

    name = "lprp_fragments"

    def make(self, rng: random.Random) -> bytes:
        """Return fragments of a few messages and senders."""
        stream: list[tuple[int, bytes]] = []
        for number in range(rng.randrange(1, 4)):
            sender = rng.randrange(3)
            pieces = cut(rng.randbytes(rng.randrange(900)), rng.choice((30, 84, 300)), bytes([number]) * 16)
            stream += [(sender, piece) for piece in pieces]
        if rng.random() < 0.6:
            rng.shuffle(stream)
        stream = stream[:40]
        out = b""
        for sender, piece in stream + stream[: rng.randrange(3)]:
            bent = self._bend(rng, piece) if rng.random() < 0.1 else piece
            out += bytes([sender]) + len(bent).to_bytes(2, "big") + bent
        return out

    def _bend(self, rng: random.Random, piece: bytes) -> bytes:
        if rng.random() < 0.2:
            return piece[: rng.randrange(len(piece))]
        if rng.random() < 0.2:
            return _SEALED
        at = rng.choice((15, 16, 17, 18, 19, rng.randrange(len(piece))))
        return piece[:at] + bytes([piece[at] ^ 1 << rng.randrange(8)]) + piece[at + 1 :]

    def run(self, data: bytes) -> str:
        """Put together what there is."""
        reassembly, now, at, given = Reassembly(_LIMITS), Instant(0), 0, 0
        while at + 3 <= len(data):
            sender, size = bytes([data[at]]) * 32, int.from_bytes(data[at + 1 : at + 3], "big")
            piece = data[at + 3 : at + 3 + size]
            at += 3 + size
            message = reassembly.take(sender, piece, now)
            if message is not None:
                given += 1
                expect(len(message) <= MESSAGE_BYTES_MAX, "a message longer than any may be")
            self._look(reassembly)
            expect(piece == _SEALED or open_once(piece, _THEM.public, _US) is None, "a forgery was opened")
            expect(open_reused(piece, _THEM.public, _US) is None, "a forgery was opened")
            now = Instant(now + 1_000)
        reassembly.wake(Instant(now + 100_000))
        expect(reassembly.sizes()["messages"] == reassembly.sizes()["bytes"] == 0, "something is kept for ever")
        expect(reassembly.deadline() is None, "a deadline is left")
        return f"given:{min(given, 3)}"

    def _look(self, reassembly: Reassembly) -> None:
        sizes = reassembly.sizes()
        expect(sizes["messages"] <= _LIMITS.messages_max, "too many messages wait")
        expect(sizes["bytes"] <= _LIMITS.bytes_max, "too many bytes wait")
        expect(sizes["remembered"] <= _LIMITS.remembered_max, "too many are remembered")
