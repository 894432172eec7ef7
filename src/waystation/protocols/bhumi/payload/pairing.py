"""Suites 3 and 4: envelopes of peers that were paired with a secret which the relay has never seen.

The layout is that of ``suites``: hint[8] ‖ suite u8 ‖ [ephemeral X25519 public key[32], only with bit 0x80 of suite] ‖
nonce[12] ‖ tag[16] ‖ ciphertext. Suite 3 has the cipher of suite 1, and suite 4 that of suite 2.

An invite contains a pairing secret of 32 bytes beside its preimage, and the secret does not cross the wire. Every key
comes from a root: HMAC-SHA256 of an X25519 secret, keyed with the pairing secret. A relay sees preimages, and can
neither seal nor open anything with them:

- Who accepts an invite seals its first request with a fresh X25519 key and the pairing secret. The request contains a
  proof of the accepter's identity.
- Both sides then keep the root of their two identities, and forget the pairing secret. That root seals everything else.
- The key of an answer depends on the tag of its request. An answer belongs to one request, and to no other request
  with the same preimage.

There is no forward secrecy: who has the root of two peers can decrypt whatever was recorded between them, and can write
in the name of both. Spec: BHUMI-PAIR.
"""

import hmac
import random
from enum import IntEnum
from typing import Final, NamedTuple

from waystation.crypto.agreement import (
    SECRET_BYTES,
    WeakKeyError,
    agree,
    agreement_public_of,
    agreement_secret_of,
    public_of_secret,
)
from waystation.crypto.hashing import hkdf_expand_sha256
from waystation.protocols.bhumi.payload.contents import (
    HandshakeInit,
    MalformedPayloadError,
    decode_payload,
    encode_payload,
)
from waystation.protocols.bhumi.payload.sealing import KEYS_BYTES, NONCE_BYTES, TAG_BYTES, Cipher, open_body, seal_body
from waystation.protocols.bhumi.payload.suites import (
    HANDSHAKE_BIT,
    HANDSHAKE_OVERHEAD_BYTES,
    STATIC_OVERHEAD_BYTES,
    SUITE_HINT_BYTES,
    SharedSecrets,
    suite_hint_of,
)

__all__ = [
    "CONFIRM_BYTES",
    "PAIRING_SECRET_BYTES",
    "PairedSuite",
    "Pairing",
    "open_answer",
    "open_pairing",
    "open_request",
    "request_tag_of",
    "root_with",
    "seal_answer",
    "seal_pairing",
    "seal_request",
]

PAIRING_SECRET_BYTES: Final = 32  # BHUMI-PAIR
CONFIRM_BYTES: Final = 16  # BHUMI-PAIR: the accepter's proof of its identity, in front of HANDSHAKE_INIT
_LABEL: Final = b"bhumi-pair/1"
_CONFIRM: Final = b"confirm"
_REQUEST: Final = b"q"
_ANSWER: Final = b"a"
_STATIC_HEADER_BYTES: Final = STATIC_OVERHEAD_BYTES - NONCE_BYTES - TAG_BYTES
_HANDSHAKE_HEADER_BYTES: Final = HANDSHAKE_OVERHEAD_BYTES - NONCE_BYTES - TAG_BYTES


class PairedSuite(IntEnum):
    """The low seven bits of the suite byte."""

    CHACHA = 3
    """ChaCha20-Poly1305 of RFC 8439."""
    AES_CTR = 4
    """AES-256-CTR and HMAC-SHA256."""

    @property
    def cipher(self) -> Cipher:
        """What seals the content."""
        return Cipher.AES_CTR if self is PairedSuite.AES_CTR else Cipher.CHACHA


class Pairing(NamedTuple):
    """Who accepted an invite."""

    init: HandshakeInit
    """What it says; its sender has proved to be who it is."""
    root: bytes
    """32 bytes that seal everything between the two from now on."""


def root_with(own: SharedSecrets, peer: bytes, secret: bytes) -> bytes:
    """Return the 32-byte root of two identities that were paired with ``secret``.

    Args:
        own: One of them.
        peer: 32-byte Ed25519 public key of the other one.
        secret: 32 bytes, of the invite.

    Raises:
        WeakKeyError: The peer's key cannot be used.
    """
    return _root(secret, own.with_peer(peer))


def request_tag_of(sealed: bytes) -> bytes:
    """Return the 16-byte tag of a request's envelope; b"" when the bytes are too short to have one."""
    if len(sealed) <= SUITE_HINT_BYTES:
        return b""
    is_handshake = sealed[SUITE_HINT_BYTES] & HANDSHAKE_BIT
    begins = (_HANDSHAKE_HEADER_BYTES if is_handshake else _STATIC_HEADER_BYTES) + NONCE_BYTES
    tag = sealed[begins : begins + TAG_BYTES]
    return tag if len(tag) == TAG_BYTES else b""


def seal_request(suite: PairedSuite, root: bytes, preimage: bytes, plaintext: bytes, rng: random.Random) -> bytes:
    """Return the envelope of a request between two who are paired; 37 bytes longer.

    Args:
        suite: How to seal.
        root: 32 bytes from ``root_with``.
        preimage: 32 bytes, of the SEND.
        plaintext: Any bytes.
        rng: Gives the nonce; must be cryptographically strong outside tests.
    """
    return seal_body(suite.cipher, _request_keys(suite, root, preimage), _header(suite, preimage), plaintext, rng)


def open_request(suite: PairedSuite, root: bytes, preimage: bytes, sealed: bytes) -> bytes | None:
    """Return the plaintext, or None when ``seal_request`` did not make the bytes with these arguments; never raises."""
    if not _has_header(sealed, _header(suite, preimage), STATIC_OVERHEAD_BYTES):
        return None
    return open_body(suite.cipher, _request_keys(suite, root, preimage), _STATIC_HEADER_BYTES, sealed)


def seal_answer(
    suite: PairedSuite, root: bytes, preimage: bytes, request_tag: bytes, plaintext: bytes, rng: random.Random
) -> bytes:
    """Return the envelope of the answer to one request, a handshake included; 37 bytes longer.

    Args:
        suite: Of the request.
        root: 32 bytes from ``root_with``.
        preimage: 32 bytes, of the request.
        request_tag: 16 bytes, see ``request_tag_of``.
        plaintext: Any bytes.
        rng: Gives the nonce; must be cryptographically strong outside tests.
    """
    keys = _answer_keys(suite, root, preimage, request_tag)
    return seal_body(suite.cipher, keys, _header(suite, preimage), plaintext, rng)


def open_answer(suite: PairedSuite, root: bytes, preimage: bytes, request_tag: bytes, sealed: bytes) -> bytes | None:
    """Return the plaintext, or None when ``seal_answer`` did not make the bytes with these arguments; never raises."""
    if not _has_header(sealed, _header(suite, preimage), STATIC_OVERHEAD_BYTES):
        return None
    return open_body(suite.cipher, _answer_keys(suite, root, preimage, request_tag), _STATIC_HEADER_BYTES, sealed)


def seal_pairing(
    suite: PairedSuite,
    own: SharedSecrets,
    inviter: bytes,
    secret: bytes,
    preimage: bytes,
    init: HandshakeInit,
    rng: random.Random,
) -> bytes:
    """Return the envelope of a first request, with the proof that ``init.sender`` wrote it; 85 bytes longer than it.

    Args:
        suite: Of the invite.
        own: Who accepts the invite; ``init`` must name it.
        inviter: 32-byte Ed25519 public key.
        secret: 32 bytes, of the invite.
        preimage: 32 bytes, of the invite.
        init: What is said.
        rng: Gives the ephemeral secret, then the nonce; must be cryptographically strong outside tests.

    Raises:
        WeakKeyError: The inviter's key cannot be used.
    """
    assert init.sender == own.key_pair.public
    ephemeral_secret = rng.randbytes(SECRET_BYTES)
    ephemeral = public_of_secret(ephemeral_secret)
    root = _root(secret, agree(ephemeral_secret, agreement_public_of(inviter)))
    plaintext = _confirm(root_with(own, inviter, secret), preimage, ephemeral) + encode_payload(init)
    header = _header(suite, preimage, HANDSHAKE_BIT) + ephemeral
    return seal_body(suite.cipher, _request_keys(suite, root, preimage), header, plaintext, rng)


def open_pairing(
    suite: PairedSuite, own: SharedSecrets, secret: bytes, preimage: bytes, sealed: bytes
) -> Pairing | None:
    """Return who accepts our invite; None when the bytes are no first request for it, or its sender is not proved.

    Args:
        suite: Of the invite.
        own: Who invited.
        secret: 32 bytes, of the invite.
        preimage: 32 bytes, of the invite.
        sealed: Any bytes; they raise nothing.
    """
    if not _has_header(sealed, _header(suite, preimage, HANDSHAKE_BIT), HANDSHAKE_OVERHEAD_BYTES):
        return None
    ephemeral = sealed[_STATIC_HEADER_BYTES:_HANDSHAKE_HEADER_BYTES]
    try:
        handshake_root = _root(secret, agree(agreement_secret_of(own.key_pair), ephemeral))
        plain = open_body(suite.cipher, _request_keys(suite, handshake_root, preimage), _HANDSHAKE_HEADER_BYTES, sealed)
        if plain is None:
            return None
        init = decode_payload(plain[CONFIRM_BYTES:])
        if not isinstance(init, HandshakeInit):
            return None
        root = root_with(own, init.sender, secret)
    except (WeakKeyError, MalformedPayloadError):
        return None
    if not hmac.compare_digest(plain[:CONFIRM_BYTES], _confirm(root, preimage, ephemeral)):
        return None
    return Pairing(init, root)


def _root(secret: bytes, shared: bytes) -> bytes:
    assert len(secret) == PAIRING_SECRET_BYTES
    return hmac.digest(_LABEL + secret, shared, "sha256")


def _request_keys(suite: PairedSuite, root: bytes, preimage: bytes) -> bytes:
    return hkdf_expand_sha256(root, bytes((suite,)) + _REQUEST + preimage, KEYS_BYTES)


def _answer_keys(suite: PairedSuite, root: bytes, preimage: bytes, request_tag: bytes) -> bytes:
    return hkdf_expand_sha256(root, bytes((suite,)) + _ANSWER + preimage + request_tag, KEYS_BYTES)


def _confirm(root: bytes, preimage: bytes, ephemeral: bytes) -> bytes:
    return hmac.digest(root, _CONFIRM + preimage + ephemeral, "sha256")[:CONFIRM_BYTES]


def _header(suite: PairedSuite, preimage: bytes, form: int = 0) -> bytes:
    return suite_hint_of(preimage) + bytes((form | suite,))


def _has_header(sealed: bytes, beginning: bytes, overhead_bytes: int) -> bool:
    return len(sealed) >= overhead_bytes and sealed.startswith(beginning)
