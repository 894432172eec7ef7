"""Encrypts payloads so that the host cannot read them: an upper layer that LPRP permits but does not define.

There are two layouts, both with XChaCha20-Poly1305. One has a one-time X25519 key (332 bytes remain), the other a
reused key and a nonce (308 remain). The 16-byte tag is part of the remainder::

    one-time   public key 32 | tag 16 | ciphertext 16..316
    reused     public key 32 | nonce 24 | tag 16 | ciphertext 0..292

The recipient's agreement key is derived from its Ed25519 identity. The cipher key depends on both identities and on the
public key in the payload. A payload therefore cannot be re-signed by another sender or redirected. Only the packet's
signature authenticates the sender. There is no forward secrecy if the recipient's key leaks.

No sealed payload is shorter than 64 bytes, because an answer must not be longer than its packet (LPRP-D17). A one-time
plaintext under 16 bytes is padded, and the nonce marks it.

Our SDK sends one-time payloads and opens both; ``seal_reused`` is for other programs. Spec: LPRP-D3, LPRP-D17;
LPRP-SEALING.
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
    "open_any",
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
    # Spec 9: no payload is shorter than 64 bytes; a text under 16 is filled up with 80 00 …, the nonce ends in 01.
    if len(plaintext) >= _WHOLE_BYTES_MIN:
        return public + seal(key, _WHOLE, plaintext)
    return public + seal(key, _FILLED, _fill(plaintext))


def open_once(sealed: bytes, sender: bytes, recipient: KeyPair) -> bytes | None:
    """Return the plaintext of ``seal_once``, or None when these two keys do not open it.

    Args:
        sealed: Payload of a packet.
        sender: The packet's sender, 32 bytes.
        recipient: Our identity.
    """
    public, rest = sealed[:AGREEMENT_KEY_BYTES], sealed[AGREEMENT_KEY_BYTES:]
    # Spec 9: one-time: ciphertext 16 to 316.
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
    """Return the plaintext of ``seal_reused``, or None when these two keys do not open it; see ``open_once``."""
    public, rest = sealed[:AGREEMENT_KEY_BYTES], sealed[AGREEMENT_KEY_BYTES:]
    nonce, rest = rest[:NONCE_BYTES], rest[NONCE_BYTES:]
    # Spec 9: reused: ciphertext 0 to 292.
    if not TAG_BYTES <= len(rest) <= REUSED_BUDGET:
        return None
    key = _key_for_us(public, sender, recipient, _REUSED)
    return None if key is None else open_sealed(key, nonce, rest)


def open_any(sealed: bytes, sender: bytes, recipient: KeyPair) -> bytes | None:
    """Return what a packet's sender has sealed for us, in either way; None when it is not sealed."""
    opened = open_once(sealed, sender, recipient)
    return opened if opened is not None else open_reused(sealed, sender, recipient)


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
    # Spec 9: an all-zero secret is refused.
    except WeakKeyError:
        return None
    return _key(shared, public, sender, recipient.public, mode)


def _key(shared: bytes, public: bytes, sender: bytes, recipient: bytes, mode: bytes) -> bytes:
    # Spec 9: the info binds public key, sender and recipient.
    return hkdf_sha256(shared, salt=mode, info=b"".join((public, sender, recipient)))


def _fill(plaintext: bytes) -> bytes:
    # One byte 0x80, then zeros, as in ISO/IEC 7816-4.
    return (plaintext + b"\x80").ljust(_WHOLE_BYTES_MIN, b"\0")


def _unfill(filled: bytes) -> bytes | None:
    plaintext, mark, _ = filled.rpartition(b"\x80")
    return plaintext if mark and _fill(plaintext) == filled else None


_ONE_TIME: Final = b"waystation lprp sealing, one-time key, 1"
_REUSED: Final = b"waystation lprp sealing, reused key, 1"
# A one-time key seals one text, so its nonce may mark the kind of text.
_WHOLE: Final = bytes(NONCE_BYTES)
_FILLED: Final = bytes(NONCE_BYTES - 1) + b"\x01"
_WHOLE_BYTES_MIN: Final = REFERENCE_BYTES - AGREEMENT_KEY_BYTES - TAG_BYTES  # 16
