"""The end-to-end envelope of suites 1 and 2: what a relay carries and cannot read. Spec: BHUMI-SUITE.

Layout: hint[8] | suite[1] | ephemeral X25519 key[32], only with the handshake bit | nonce[12] | tag[16] | ciphertext.
Suite 1 is ChaCha20-Poly1305, suite 2 AES-256-CTR with HMAC-SHA256. Between two identities that know each other the
secret is static: its HKDF extract, ``root`` here, is kept for each peer, so that a message costs no curve arithmetic.
"""

from hashlib import sha256

from . import aes, chacha, x25519

__all__ = [
    "HANDSHAKE",
    "OVERHEAD_BYTES",
    "hint_of",
    "hmac",
    "open_handshake",
    "open_sealed",
    "root_of",
    "root_with",
    "seal",
    "suite_of",
]

HANDSHAKE = 0x80
OVERHEAD_BYTES = 37  # between peers that know each other
_INNER = int.from_bytes(b"\x36" * 64, "big")
_OUTER = int.from_bytes(b"\x5c" * 64, "big")


def hint_of(preimage: bytes) -> bytes:
    """Return the 8 bytes by which the owner of a preimage finds it."""
    return sha256(b"bhumi-suite" + preimage).digest()[:8]


def suite_of(sealed: bytes) -> int:
    """Return the suite byte, or 0 when there is none that is known here."""
    suite = sealed[8] if len(sealed) >= OVERHEAD_BYTES else 0
    return suite if suite & 0x7F in (1, 2) else 0


def root_of(shared: bytes) -> bytes:
    """Return the HKDF extract of a shared secret."""
    return hmac(b"bhumi-suite", shared)


def root_with(seed: bytes, identity: bytes, feed: object = None) -> bytes:
    """Return the 32-byte root shared with an identity, or None when its key is weak; costs an X25519."""
    shared = x25519.agree(x25519.secret_of_seed(seed), x25519.public_of_identity(identity), feed)
    return None if shared is None else root_of(shared)


def seal(root: bytes, suite: int, preimage: bytes, nonce: bytes, plain: bytes, direction: bytes = b"a") -> bytes:
    """Return the envelope of an answer (direction a) or a request (q) between identities that know each other."""
    head = hint_of(preimage) + bytes((suite,))
    return head + nonce + _seal(root, suite, preimage, direction, head, nonce, plain)


def open_sealed(root: bytes, preimage: bytes, sealed: bytes, direction: bytes = b"q") -> bytes:
    """Return the plaintext of an envelope without the handshake bit, or None when it is not genuine."""
    suite = suite_of(sealed)
    if not suite or suite & HANDSHAKE:
        return None
    return _open(root, preimage, sealed, 9, direction)


def open_handshake(seed: bytes, preimage: bytes, sealed: bytes, feed: object = None) -> bytes:
    """Return the plaintext of an envelope with the handshake bit, or None; costs an X25519."""
    if not suite_of(sealed) & HANDSHAKE or len(sealed) < OVERHEAD_BYTES + 32:
        return None
    shared = x25519.agree(x25519.secret_of_seed(seed), sealed[9:41], feed)
    return None if shared is None else _open(root_of(shared), preimage, sealed, 41, b"q")


def hmac(key: bytes, *parts: bytes) -> bytes:
    """Return HMAC-SHA256 with a key of at most 64 bytes."""
    number = int.from_bytes(key, "big") << 8 * (64 - len(key))
    inner = sha256((number ^ _INNER).to_bytes(64, "big"))
    for part in parts:
        inner.update(part)
    outer = sha256((number ^ _OUTER).to_bytes(64, "big"))
    outer.update(inner.digest())
    return outer.digest()


def _keys(root: bytes, suite: int, preimage: bytes, direction: bytes) -> tuple:
    """Return the two 32-byte keys that HKDF expands for one envelope; suite 1 needs the first only."""
    info = bytes((suite & 0x7F,)) + direction + preimage
    first = hmac(root, info, b"\x01")
    return first, hmac(root, first, info, b"\x02") if suite & 0x7F == 2 else b""


def _seal(root: bytes, suite: int, preimage: bytes, direction: bytes, head: bytes, nonce: bytes, plain: bytes) -> bytes:
    key, check = _keys(root, suite, preimage, direction)
    if suite & 0x7F == 1:
        return chacha.seal(key, nonce, plain, head)
    sealed = aes.stream(key, nonce, plain) if plain else b""
    return hmac(check, head, nonce, sealed)[:16] + sealed


def _open(root: bytes, preimage: bytes, sealed: bytes, head_bytes: int, direction: bytes) -> bytes:
    if sealed[:8] != hint_of(preimage):
        return None
    suite = sealed[8]
    key, check = _keys(root, suite, preimage, direction)
    head, body = sealed[:head_bytes], sealed[head_bytes + 12 :]
    nonce = sealed[head_bytes : head_bytes + 12]
    if suite & 0x7F == 1:
        return chacha.open_sealed(key, nonce, body, head)
    tag, body = body[:16], body[16:]
    if not chacha.same(tag, hmac(check, head, nonce, body)[:16]):
        return None
    return aes.stream(key, nonce, body) if body else b""
