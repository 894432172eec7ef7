"""Suites 1 and 2: a cheaper end-to-end envelope for devices that cannot afford two curve operations per message.

Layout: hint[8] ‖ suite u8 ‖ [ephemeral X25519 public key[32], only with bit 0x80 of suite] ‖ nonce[12] ‖ tag[16] ‖
ciphertext. The hint is SHA-256("bhumi-suite" ‖ preimage)[0:8], which differs from the hint of ``envelope``. The header,
everything before the nonce, is authenticated with the ciphertext.

A handshake (bit 0x80) is encrypted with a fresh key, because the recipient does not know the sender's identity yet. All
other messages use the static secret of the two identities, which also authenticates the sender. There is no forward
secrecy: a leaked identity key decrypts all of them. Each key is derived from that secret, the suite, the direction and
the preimage. A key therefore serves one exchange in one direction. Spec: BHUMI-SUITE.
"""

import random
from enum import Enum, IntEnum
from typing import Final

from waystation.core.ids import KEY_BYTES
from waystation.crypto.agreement import (
    SECRET_BYTES,
    WeakKeyError,
    agree,
    agreement_public_of,
    agreement_secret_of,
    public_of_secret,
)
from waystation.crypto.hashing import hkdf_sha256, sha256
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.payload.sealing import KEYS_BYTES, NONCE_BYTES, TAG_BYTES, Cipher, open_body, seal_body

__all__ = [
    "HANDSHAKE_BIT",
    "HANDSHAKE_OVERHEAD_BYTES",
    "PEERS_MAX",
    "STATIC_OVERHEAD_BYTES",
    "SUITE_HINT_BYTES",
    "Direction",
    "SharedSecrets",
    "Suite",
    "open_handshake",
    "open_static",
    "seal_handshake",
    "seal_static",
    "suite_hint_of",
    "suite_number_of",
]

SUITE_HINT_BYTES: Final = 8  # spec 6, suites
HANDSHAKE_BIT: Final = 0x80  # spec 6: an ephemeral key follows
PEERS_MAX: Final = 1_024  # ours: 96 KiB of keys and secrets at most; a device has tens of peers
_STATIC_HEADER_BYTES: Final = SUITE_HINT_BYTES + 1
_HANDSHAKE_HEADER_BYTES: Final = _STATIC_HEADER_BYTES + KEY_BYTES
STATIC_OVERHEAD_BYTES: Final = _STATIC_HEADER_BYTES + NONCE_BYTES + TAG_BYTES
HANDSHAKE_OVERHEAD_BYTES: Final = _HANDSHAKE_HEADER_BYTES + NONCE_BYTES + TAG_BYTES
_LABEL: Final = b"bhumi-suite"  # differs from the hint of bhumi-v1


class Suite(IntEnum):
    """The low seven bits of the suite byte."""

    CHACHA = 1
    """ChaCha20-Poly1305 of RFC 8439."""
    AES_CTR = 2
    """AES-256-CTR and HMAC-SHA256."""

    @property
    def cipher(self) -> Cipher:
        """What seals the content."""
        return Cipher.AES_CTR if self is Suite.AES_CTR else Cipher.CHACHA


class Direction(Enum):
    """Which way a payload goes; the value goes into its key."""

    REQUEST = b"q"
    """Payload of a SEND."""
    ANSWER = b"a"
    """Payload of an ACK."""


class SharedSecrets:
    """The secrets one identity shares with others: one curve operation a peer, none a message.

    Keeps at most ``PEERS_MAX``; the one that was not asked for the longest leaves first.
    """

    def __init__(self, key_pair: KeyPair, *, peers_max: int = PEERS_MAX) -> None:
        """Begin with none; ``peers_max`` is at least 1."""
        assert peers_max > 0
        self.key_pair = key_pair
        self._peers_max = peers_max
        self._own = agreement_secret_of(key_pair)
        self._secrets: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._secrets)

    def with_peer(self, peer: bytes) -> bytes:
        """Return the 32-byte secret shared with a 32-byte Ed25519 identity; raises WeakKeyError if there is none."""
        secret = self._secrets.pop(peer, None)
        if secret is None:
            secret = agree(self._own, agreement_public_of(peer))
            if len(self._secrets) >= self._peers_max:
                del self._secrets[next(iter(self._secrets))]
        self._secrets[peer] = secret
        return secret


def suite_hint_of(preimage: bytes) -> bytes:
    """Return the 8 bytes that let a recipient find ``preimage`` among those it gave out."""
    return sha256(_LABEL + preimage)[:SUITE_HINT_BYTES]


def suite_number_of(sealed: bytes) -> int | None:
    """Return which suite, known or not, an envelope names: 0 to 127; None when it is too short to name one."""
    return sealed[SUITE_HINT_BYTES] & ~HANDSHAKE_BIT if len(sealed) > SUITE_HINT_BYTES else None


def seal_static(
    suite: Suite, shared: bytes, direction: Direction, preimage: bytes, plaintext: bytes, rng: random.Random
) -> bytes:
    """Return the envelope of ``plaintext`` between two who know each other; 37 bytes longer.

    Args:
        suite: How to seal.
        shared: 32 bytes from ``SharedSecrets.with_peer``.
        direction: Whether it goes into a SEND or an ACK.
        preimage: 32 bytes, of the SEND.
        plaintext: Any bytes.
        rng: Gives the nonce; must be cryptographically strong outside tests.
    """
    header = suite_hint_of(preimage) + bytes((suite,))
    return seal_body(suite.cipher, _keys(suite, shared, direction, preimage), header, plaintext, rng)


def seal_handshake(suite: Suite, recipient: bytes, preimage: bytes, plaintext: bytes, rng: random.Random) -> bytes:
    """Return the envelope of a first request, to somebody who does not know us yet; 69 bytes longer.

    Args:
        suite: How to seal.
        recipient: 32-byte Ed25519 public key.
        preimage: 32 bytes, of the SEND.
        plaintext: Any bytes.
        rng: Gives the ephemeral secret, then the nonce; must be cryptographically strong outside tests.

    Raises:
        WeakKeyError: The recipient's key cannot be used.
    """
    ephemeral = rng.randbytes(SECRET_BYTES)
    shared = agree(ephemeral, agreement_public_of(recipient))
    header = suite_hint_of(preimage) + bytes((HANDSHAKE_BIT | suite,)) + public_of_secret(ephemeral)
    return seal_body(suite.cipher, _keys(suite, shared, Direction.REQUEST, preimage), header, plaintext, rng)


def open_static(suite: Suite, shared: bytes, direction: Direction, preimage: bytes, sealed: bytes) -> bytes | None:
    """Return the plaintext, or None when ``seal_static`` did not make the bytes with these arguments; never raises."""
    if len(sealed) < STATIC_OVERHEAD_BYTES or sealed[:_STATIC_HEADER_BYTES] != suite_hint_of(preimage) + bytes(
        (suite,)
    ):
        return None
    return open_body(suite.cipher, _keys(suite, shared, direction, preimage), _STATIC_HEADER_BYTES, sealed)


def open_handshake(suite: Suite, key_pair: KeyPair, preimage: bytes, sealed: bytes) -> bytes | None:
    """Return the plaintext, or None when the bytes are no handshake in this suite for this identity; never raises."""
    expected = suite_hint_of(preimage) + bytes((HANDSHAKE_BIT | suite,))
    if len(sealed) < HANDSHAKE_OVERHEAD_BYTES or sealed[:_STATIC_HEADER_BYTES] != expected:
        return None
    try:
        shared = agree(agreement_secret_of(key_pair), sealed[_STATIC_HEADER_BYTES:_HANDSHAKE_HEADER_BYTES])
    except WeakKeyError:
        return None
    return open_body(suite.cipher, _keys(suite, shared, Direction.REQUEST, preimage), _HANDSHAKE_HEADER_BYTES, sealed)


def _keys(suite: Suite, shared: bytes, direction: Direction, preimage: bytes) -> bytes:
    info = bytes((suite,)) + direction.value + preimage
    return hkdf_sha256(shared, salt=_LABEL, info=info, output_bytes=KEYS_BYTES)
