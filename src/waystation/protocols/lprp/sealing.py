"""Hiding a payload from the host: an upper layer that LPRP leaves room for and does not describe.

The text counts two ways: with a one-time X25519 key in front 332 bytes of a packet are left, with a key used again and
a nonce behind it 308. Both are here, with XChaCha20-Poly1305, whose tag of 16 bytes is part of what is left::

    one-time   public key 32 | tag 16 | ciphertext 16..316
    reused     public key 32 | nonce 24 | tag 16 | ciphertext 0..292

The recipient's agreement key is that of its Ed25519 identity, so a sender needs nothing but the key it writes to. The
cipher's key depends on both identities and on the bytes of the public key, so nobody can sign somebody else's sealed
payload as their own, or aim it at somebody else. Who wrote it is proved by the packet's signature alone, and whoever
gets the recipient's key later can read what was sealed before.

No sealed payload is shorter than 64 bytes, because the answer to its packet must not be longer than the packet
(LPRP-D17); a one-time text of under 16 bytes is filled up, and the nonce says so.

Our SDK seals with one-time keys and opens both; ``seal_reused`` is for programs that would rather make a nonce than a
key for each payload. Spec: LPRP-D3, LPRP-D17; LPRP-SEALING.
"""

from typing import Final

from waystation.core.errors import LocalError
from waystation.crypto.aead import NONCE_BYTES, TAG_BYTES, open_sealed, seal
from waystation.crypto.agreement import (
    SECRET_BYTES,
    WeakKeyError,
    agree,
    agreement_public_of,
    agreement_secret_of,
    public_of_secret,
)
from waystation.crypto.hashing import hkdf_sha256
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.messages import PAYLOAD_BYTES_MAX, REFERENCE_BYTES

__all__ = [
    "AGREEMENT_KEY_BYTES",
    "ONE_TIME_BUDGET",
    "ONE_TIME_PLAINTEXT_MAX",
    "REUSED_BUDGET",
    "REUSED_PLAINTEXT_MAX",
    "open_once",
    "open_reused",
    "seal_once",
    "seal_reused",
]

AGREEMENT_KEY_BYTES: Final = 32
ONE_TIME_BUDGET: Final = PAYLOAD_BYTES_MAX - AGREEMENT_KEY_BYTES  # 332, LPRP-D3
ONE_TIME_PLAINTEXT_MAX: Final = ONE_TIME_BUDGET - TAG_BYTES  # 316
REUSED_BUDGET: Final = ONE_TIME_BUDGET - NONCE_BYTES  # 308, LPRP-D3
REUSED_PLAINTEXT_MAX: Final = REUSED_BUDGET - TAG_BYTES  # 292


def seal_once(plaintext: bytes, sender: bytes, recipient: bytes, *, ephemeral_secret: bytes) -> bytes:
    """Return a payload of 64 to 364 bytes that only the recipient can read.

    Args:
        plaintext: 0 to 316 bytes.
        sender: Our Ed25519 key, 32 bytes: the sender of the packet that will carry it.
        recipient: The Ed25519 key of the packet's recipient, 32 bytes.
        ephemeral_secret: 32 random bytes, used for this one payload and then forgotten.

    Raises:
        LocalError: The plaintext is too long.
        WeakKeyError: The recipient's key cannot be used for key agreement.
    """
    _check_length(plaintext, ONE_TIME_PLAINTEXT_MAX)
    public, key = _agree_with(ephemeral_secret, sender, recipient, _ONE_TIME)
    if len(plaintext) >= _WHOLE_BYTES_MIN:
        return public + seal(key, _WHOLE, plaintext)
    return public + seal(key, _FILLED, _fill(plaintext))


def open_once(sealed: bytes, sender: bytes, recipient: KeyPair) -> bytes | None:
    """Return what ``seal_once`` sealed, or None when these two keys do not open it.

    Args:
        sealed: Payload of a packet.
        sender: The packet's sender, 32 bytes.
        recipient: Us.
    """
    public, rest = sealed[:AGREEMENT_KEY_BYTES], sealed[AGREEMENT_KEY_BYTES:]
    if not TAG_BYTES + _WHOLE_BYTES_MIN <= len(rest) <= ONE_TIME_BUDGET:
        return None
    key = _key_for_us(public, sender, recipient, _ONE_TIME)
    if key is None:
        return None
    plaintext = open_sealed(key, _WHOLE, rest)
    if plaintext is None and len(rest) == TAG_BYTES + _WHOLE_BYTES_MIN:
        filled = open_sealed(key, _FILLED, rest)
        return None if filled is None else _unfill(filled)
    return plaintext


def seal_reused(plaintext: bytes, sender: bytes, recipient: bytes, *, secret: bytes, nonce: bytes) -> bytes:
    """Return a payload of 72 to 364 bytes that only the recipient can read.

    Args:
        plaintext: 0 to 292 bytes.
        sender: Our Ed25519 key, 32 bytes.
        recipient: The Ed25519 key of the packet's recipient, 32 bytes.
        secret: Our X25519 secret of 32 random bytes, for as many payloads as we like.
        nonce: 24 random bytes, never the same twice with this secret.

    Raises:
        LocalError: The plaintext is too long.
        WeakKeyError: The recipient's key cannot be used for key agreement.
    """
    assert len(nonce) == NONCE_BYTES
    _check_length(plaintext, REUSED_PLAINTEXT_MAX)
    public, key = _agree_with(secret, sender, recipient, _REUSED)
    return public + nonce + seal(key, nonce, plaintext)


def open_reused(sealed: bytes, sender: bytes, recipient: KeyPair) -> bytes | None:
    """Return what ``seal_reused`` sealed, or None when these two keys do not open it; see ``open_once``."""
    public, rest = sealed[:AGREEMENT_KEY_BYTES], sealed[AGREEMENT_KEY_BYTES:]
    nonce, rest = rest[:NONCE_BYTES], rest[NONCE_BYTES:]
    if not TAG_BYTES <= len(rest) <= REUSED_BUDGET:
        return None
    key = _key_for_us(public, sender, recipient, _REUSED)
    return None if key is None else open_sealed(key, nonce, rest)


def _check_length(plaintext: bytes, bytes_max: int) -> None:
    if len(plaintext) > bytes_max:
        raise LocalError(f"{bytes_max} bytes can be sealed in one packet, these are {len(plaintext)}")


def _agree_with(secret: bytes, sender: bytes, recipient: bytes, mode: bytes) -> tuple[bytes, bytes]:
    assert len(secret) == SECRET_BYTES
    public = public_of_secret(secret)
    shared = agree(secret, agreement_public_of(recipient))
    return public, _key(shared, public, sender, recipient, mode)


def _key_for_us(public: bytes, sender: bytes, recipient: KeyPair, mode: bytes) -> bytes | None:
    try:
        shared = agree(agreement_secret_of(recipient), public)
    except WeakKeyError:
        return None
    return _key(shared, public, sender, recipient.public, mode)


def _key(shared: bytes, public: bytes, sender: bytes, recipient: bytes, mode: bytes) -> bytes:
    return hkdf_sha256(shared, salt=mode, info=b"".join((public, sender, recipient)))


def _fill(plaintext: bytes) -> bytes:
    # One byte 0x80, then zeros, as in ISO/IEC 7816-4.
    return (plaintext + b"\x80").ljust(_WHOLE_BYTES_MIN, b"\0")


def _unfill(filled: bytes) -> bytes | None:
    plaintext, mark, _ = filled.rpartition(b"\x80")
    return plaintext if mark and _fill(plaintext) == filled else None


_ONE_TIME: Final = b"waystation lprp sealing, one-time key, 1"
_REUSED: Final = b"waystation lprp sealing, reused key, 1"
# A one-time key seals one text, so its nonce may say what kind of text it is.
_WHOLE: Final = bytes(NONCE_BYTES)
_FILLED: Final = bytes(NONCE_BYTES - 1) + b"\x01"
_WHOLE_BYTES_MIN: Final = REFERENCE_BYTES - AGREEMENT_KEY_BYTES - TAG_BYTES  # 16
