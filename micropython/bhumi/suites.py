"""The end-to-end envelope of suites 1 to 4: what a relay carries and cannot read. Spec: BHUMI-SUITE, BHUMI-PAIR.

Layout: hint[8] | suite[1] | ephemeral X25519 key[32], only with the handshake bit | nonce[12] | tag[16] | ciphertext.
Suites 1 and 3 are ChaCha20-Poly1305, suites 2 and 4 AES-256-CTR with HMAC-SHA256. Between two identities that know each
other the secret is static: its HKDF extract, ``root`` here, is kept for each peer, so that a message costs no curve
arithmetic. In suites 3 and 4 the pairing secret of the invite, which no relay has seen, takes part in every root, and
the key of an answer depends on the tag of its request.
"""

from hashlib import sha256

from . import aes, keys
from .port import same

__all__ = [
    "HANDSHAKE",
    "OVERHEAD_BYTES",
    "confirms",
    "hint_of",
    "hmac",
    "is_paired",
    "open_handshake",
    "open_sealed",
    "root_of",
    "root_with",
    "seal",
    "suite_of",
    "tag_of",
]

HANDSHAKE = 0x80
OVERHEAD_BYTES = 37  # between peers that know each other
CONFIRM_BYTES = 16  # in front of HANDSHAKE_INIT in suites 3 and 4
_INNER = int.from_bytes(b"\x36" * 64, "big")
_OUTER = int.from_bytes(b"\x5c" * 64, "big")


def hint_of(preimage: bytes) -> bytes:
    """Return the 8 bytes by which the owner of a preimage finds it."""
    return sha256(b"bhumi-suite" + preimage).digest()[:8]


def suite_of(sealed: bytes) -> int:
    """Return the suite byte, or 0 when there is none that is known here."""
    suite = sealed[8] if len(sealed) >= OVERHEAD_BYTES else 0
    return suite if 1 <= suite & 0x7F <= 4 else 0


def is_paired(suite: int) -> bool:
    """Return whether a suite, with or without the handshake bit, is one of those that need a pairing secret."""
    return suite & 0x7F in (3, 4)


def tag_of(sealed: bytes) -> bytes:
    """Return what the answer to a request depends on: in suites 3 and 4 its 16-byte tag, in others nothing."""
    suite = suite_of(sealed)
    if not is_paired(suite):
        return b""
    begin = 53 if suite & HANDSHAKE else 21
    return bytes(sealed[begin : begin + 16])


def root_of(shared: bytes, secret: bytes = b"") -> bytes:
    """Return the HKDF extract of a shared secret; with a 32-byte pairing secret the one of suites 3 and 4."""
    return hmac(b"bhumi-pair/1" + secret if secret else b"bhumi-suite", shared)


def root_with(seed: bytes, identity: bytes, feed: object = None, secret: bytes = b"") -> bytes:
    """Return the 32-byte root shared with an identity, or None when its key is weak; costs an X25519."""
    shared = keys.agree_with(seed, identity, feed)
    return None if shared is None else root_of(shared, secret)


def seal(
    root: bytes, suite: int, preimage: bytes, nonce: bytes, plain: bytes, direction: bytes = b"a", tag: bytes = b""
) -> bytes:
    """Return the envelope of an answer (direction a) or a request (q) between identities that know each other.

    Args:
        root: 32 bytes.
        suite: 1 to 4.
        preimage: 32 bytes, of the request.
        nonce: 12 random bytes.
        plain: Any bytes.
        direction: b"a" or b"q".
        tag: ``tag_of`` the request that is answered; empty for a request.
    """
    head = hint_of(preimage) + bytes((suite,))
    return head + nonce + _seal(_keys(root, suite, preimage, direction, tag), suite, head, nonce, plain)


def open_sealed(root: bytes, preimage: bytes, sealed: bytes, direction: bytes = b"q", tag: bytes = b"") -> bytes:
    """Return the plaintext of an envelope without the handshake bit, or None when it is not genuine."""
    suite = suite_of(sealed)
    if not suite or suite & HANDSHAKE:
        return None
    return _open(root, preimage, sealed, 9, direction, tag)


def open_handshake(seed: bytes, preimage: bytes, sealed: bytes, feed: object = None, secret: bytes = b"") -> bytes:
    """Return the plaintext of an envelope with the handshake bit, or None; costs an X25519.

    With a pairing secret it must be in suite 3 or 4, without in 1 or 2; ``confirms`` proves its sender.
    """
    suite = suite_of(sealed)
    if not suite & HANDSHAKE or len(sealed) < OVERHEAD_BYTES + 32 or is_paired(suite) != bool(secret):
        return None
    shared = keys.agree(seed, sealed[9:41], feed)
    return None if shared is None else _open(root_of(shared, secret), preimage, sealed, 41, b"q", b"")


def confirms(root: bytes, preimage: bytes, sealed: bytes, plain: bytes) -> bool:
    """Return whether the plaintext of a handshake begins with the proof that its sender has ``root``."""
    return same(plain[:CONFIRM_BYTES], hmac(root, b"confirm", preimage, sealed[9:41])[:CONFIRM_BYTES])


def hmac(key: bytes, *parts: bytes) -> bytes:
    """Return HMAC-SHA256 with a key of at most 64 bytes."""
    number = int.from_bytes(key, "big") << 8 * (64 - len(key))
    inner = sha256((number ^ _INNER).to_bytes(64, "big"))
    for part in parts:
        inner.update(part)
    outer = sha256((number ^ _OUTER).to_bytes(64, "big"))
    outer.update(inner.digest())
    return outer.digest()


def _keys(root: bytes, suite: int, preimage: bytes, direction: bytes, tag: bytes) -> tuple:
    """Return the two 32-byte keys that HKDF expands for one envelope; suites 1 and 3 need the first only."""
    info = bytes((suite & 0x7F,)) + direction + preimage + tag
    first = hmac(root, info, b"\x01")
    return first, b"" if suite & 1 else hmac(root, first, info, b"\x02")


def _seal(keys: tuple, suite: int, head: bytes, nonce: bytes, plain: bytes) -> bytes:
    key, check = keys
    if suite & 1:
        from . import chacha  # most peers use the other one, which the board's own AES makes quick

        return chacha.seal(key, nonce, plain, head)
    sealed = aes.stream(key, nonce, plain) if plain else b""
    return hmac(check, head, nonce, sealed)[:16] + sealed


def _open(root: bytes, preimage: bytes, sealed: bytes, head_bytes: int, direction: bytes, tag: bytes) -> bytes:
    if sealed[:8] != hint_of(preimage):
        return None
    suite = sealed[8]
    key, check = _keys(root, suite, preimage, direction, tag)
    head, body = sealed[:head_bytes], sealed[head_bytes + 12 :]
    nonce = sealed[head_bytes : head_bytes + 12]
    if suite & 1:
        from . import chacha

        return chacha.open_sealed(key, nonce, body, head)
    found, body = body[:16], body[16:]
    if not same(found, hmac(check, head, nonce, body)[:16]):
        return None
    return aes.stream(key, nonce, body) if body else b""
