"""Fuzz target: reassembly of fragmented LPRP messages under small limits, and decryption of sealed payloads.

A script is a list of fragments; the place of a step is the sender. Fragments are valid, reordered, duplicated, mutated
or random. Each is also passed to the decryption functions; only one genuine sealed payload may open.
"""

import random
from typing import Final

from fuzz.conversation import Do, Step, read_script, write_script
from fuzz.mutate import flip
from fuzz.target import expect
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.payload.fragments import MESSAGE_BYTES_MAX, Reassembly, ReassemblyLimits, cut
from waystation.protocols.lprp.payload.sealing import open_once, open_reused, seal_once

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
        stream += stream[: rng.randrange(3)]
        return write_script(
            Step(Do.SEND, sender, self._mutate(rng, piece) if rng.random() < 0.1 else piece) for sender, piece in stream
        )

    def _mutate(self, rng: random.Random, piece: bytes) -> bytes:
        if rng.random() < 0.2:
            return piece[: rng.randrange(len(piece))]
        if rng.random() < 0.2:
            return _SEALED
        at = rng.choice((15, 16, 17, 18, 19, rng.randrange(len(piece))))
        return flip(rng, piece, at)

    def run(self, data: bytes) -> str:
        """Put together what there is."""
        reassembly, now, given = Reassembly(_LIMITS), Instant(0), 0
        for _, sender, piece in read_script(data)[1]:
            message = reassembly.take(bytes([sender]) * 32, piece, now)
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
