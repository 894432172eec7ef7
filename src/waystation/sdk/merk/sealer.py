"""Puts contents into frames for one recipient: in the form that the recipient's client reads, with time and id."""

import random
from collections.abc import Callable

from waystation.core.errors import LocalError
from waystation.crypto.aead_gcm import GCM_NONCE_BYTES
from waystation.crypto.agreement import SECRET_BYTES
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import HEADER_BYTES, KEY_BYTES, MESSAGE_ID_BYTES
from waystation.protocols.merk.payload.contents import (
    Answer,
    Content,
    Extended,
    FilePart,
    Json,
    Plain,
    Raw,
    Receipt,
    Text,
    is_signable,
)
from waystation.protocols.merk.payload.sealing import Mode, data_frame, encrypted_frame, message_id_of, signed_frame
from waystation.sdk.merk.directory import Found

__all__ = ["Sealer"]


class Sealer:
    """Makes one identity's frames."""

    def __init__(self, keys: Keys, rng: random.Random, clock: Callable[[], float]) -> None:
        """Describe it; ``rng`` gives keys, nonces and ids, ``clock`` Unix seconds."""
        self._keys = keys
        self._rng = rng
        self._clock = clock

    def seal(
        self, target: bytes, mode: Mode, found: Found, content: Plain | FilePart | Answer | Receipt
    ) -> tuple[bytes, bytes]:
        """Return a frame for the recipient, with time and id where the recipient's client reads them, and its id.

        Raises:
            LocalError: The content cannot be sent, or not to a client of the original.
        """
        signing, wrapped = self._keys.signing, self._wrapped(mode, found, content)
        if mode is Mode.PLAIN:
            assert isinstance(wrapped, Raw)
            frame = data_frame(signing, target, wrapped.data, header_signature=True)
        elif mode is Mode.SIGNED:
            frame = signed_frame(signing, target, wrapped)
        else:
            assert found.agreement_key is not None
            secret, nonce = self._rng.randbytes(SECRET_BYTES), self._rng.randbytes(GCM_NONCE_BYTES)
            key = found.agreement_key
            frame = encrypted_frame(signing, target, key, wrapped, ephemeral_secret=secret, nonce=nonce)
        return frame, message_id_of(wrapped, frame[HEADER_BYTES + KEY_BYTES :])

    def _wrapped(self, mode: Mode, found: Found, content: Plain | FilePart | Answer | Receipt) -> Content:
        if mode is Mode.PLAIN:
            assert isinstance(content, Raw | Text | Json)
            return content if isinstance(content, Raw) else Raw(content.text.encode())
        if found.is_ours:
            return Extended(int(self._clock() * 1_000), self._rng.randbytes(MESSAGE_ID_BYTES), content)
        assert not isinstance(content, FilePart | Answer | Receipt)
        # MERK-RAW: an original would take them for something else, and altered bytes are not what was sent.
        if mode is Mode.SIGNED and isinstance(content, Raw) and not is_signable(content.data):
            raise LocalError(
                "a client of the original would take these signed bytes for something else (32 bytes, or a beginning "
                "of 01, 02, 03, 10 or merk-), and nothing says that the recipient has another one; send them "
                "encrypted, as text, or as a file"
            )
        return content
