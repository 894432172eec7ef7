"""Signatures and key agreement, whose arithmetic is in memory only while it is at work.

A device needs it a few times for each connection and each new peer; its four files take as much of a small heap as a
request of the largest size. CPython keeps them.
"""

from .port import unload

__all__ = ["agree", "agree_with", "public_of", "sign", "use_native"]

_native = None


def use_native(function: object) -> None:
    """Sign by ``function(seed, message) -> 64 bytes`` from now on; None goes back to Python."""
    global _native  # noqa: PLW0603 - the board has one signer
    _native = function


def sign(seed: bytes, public: bytes, message: bytes, feed: object = None) -> bytes:
    """Return the Ed25519 signature, 64 bytes; see ``ed25519.sign``."""
    if _native is not None:
        return _native(seed, message)
    from . import ed25519

    signature = ed25519.sign(seed, public, message, feed)
    unload("ed25519", "ed25519_table", "sha512")
    return signature


def public_of(seed: bytes, feed: object = None) -> bytes:
    """Return the 32-byte public key of a 32-byte seed."""
    from . import ed25519

    public = ed25519.public_of(seed, feed)
    unload("ed25519", "ed25519_table", "sha512")
    return public


def agree(seed: bytes, public: bytes, feed: object = None) -> bytes:
    """Return the secret of the identity with this seed and of an X25519 key, or None when that is weak."""
    from . import x25519

    shared = x25519.agree(x25519.secret_of_seed(seed), public, feed)
    unload("x25519", "sha512")
    return shared


def agree_with(seed: bytes, identity: bytes, feed: object = None) -> bytes:
    """Return the secret shared by two identities, or None when the key of the other one is weak."""
    from . import x25519

    return agree(seed, x25519.public_of_identity(identity), feed)
