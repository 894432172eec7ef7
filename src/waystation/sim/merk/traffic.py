"""Generates unique frames for simulated MERK clients: plain, signed and encrypted, bound or not, with several contents.

A simulated client asks for the next frame to a recipient. No two frames are alike, so an invariant can say which one
arrived.
"""

import random
from typing import Final

from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import KEY_BYTES
from waystation.protocols.merk.payload.contents import Extended, Json, Raw, Text
from waystation.protocols.merk.payload.sealing import Mode, data_frame, encrypted_frame, signed_frame
from waystation.sim.merk.context import MerkContext

__all__ = ["FrameGenerator"]

_NONCE_BYTES: Final = 12
_NUMBER_BYTES: Final = 8


class FrameGenerator:
    """Writes frames of every mode, no two of them alike."""

    def __init__(self, context: MerkContext, rng: random.Random, keys: Keys) -> None:
        """Write as the owner of ``keys``."""
        self._context = context
        self._rng = rng
        self._keys = keys
        self._written = 0

    def next_for(self, target: bytes) -> bytes:
        """Return a frame for ``target``; encrypted ones only for those whose agreement key there is."""
        rng, sender = self._rng, self._keys.signing
        agreement_key = self._context.agreement_keys.get(target)
        mode = rng.choice(tuple(Mode)) if agreement_key is not None else Mode.PLAIN
        self._written += 1
        unique = self._written.to_bytes(_NUMBER_BYTES, "big")
        size = 1 + int(rng.random() ** 2 * self._context.plan.text_bytes_max)
        if mode is Mode.PLAIN:
            return data_frame(sender, target, unique + bytes(size), header_signature=rng.random() < 1 / 2)
        plain = rng.choice((Text(f"{self._written} {'ä' * (size // 2)}"), Json(f"[{self._written}]"), Raw(unique)))
        # Every second as clients of ours write to each other, the others as to one of the original.
        message_id = sender.public[:_NUMBER_BYTES] + unique
        content = Extended(self._context.wall_ms(), message_id, plain) if self._written % 2 else plain
        if mode is Mode.SIGNED:
            return signed_frame(sender, target, content)
        assert agreement_key is not None
        ephemeral_secret, nonce = rng.randbytes(KEY_BYTES), rng.randbytes(_NONCE_BYTES)
        return encrypted_frame(sender, target, agreement_key, content, ephemeral_secret=ephemeral_secret, nonce=nonce)
