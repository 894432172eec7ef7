"""A client's two key pairs, and the JSON key file that stores them.

The client machine, the sealing of payloads and the SDK get one. An identity signs with Ed25519 and agrees on secrets
with X25519. The two key pairs are independent, so a key file has both. It is the reference implementation's JSON object
with four base64 members: ``publicKey`` (32 bytes), ``privateKey`` (64: seed and public key), ``encryptionPublicKey``
and ``encryptionPrivateKey`` (32 each).

Spec: specs/merk.md 3 "Key export JSON".
"""

import base64
import binascii
import json
import random
from dataclasses import dataclass, field
from typing import Final

from waystation.core.errors import LocalError
from waystation.crypto.agreement import SECRET_BYTES, public_of_secret
from waystation.crypto.signing import SEED_BYTES, KeyPair
from waystation.protocols.merk.messages import KEY_BYTES

__all__ = ["Keys"]

_SIZES: Final = {
    "publicKey": KEY_BYTES,
    "privateKey": SEED_BYTES + KEY_BYTES,
    "encryptionPublicKey": KEY_BYTES,
    "encryptionPrivateKey": SECRET_BYTES,
}


@dataclass(frozen=True, slots=True)
class Keys:
    """An identity; build it with ``generate``, ``from_seeds`` or ``import_json``."""

    signing: KeyPair
    """Ed25519; its public key is the identity."""
    agreement_secret: bytes = field(repr=False)
    """X25519, 32 bytes."""
    agreement_public: bytes
    """X25519, 32 bytes."""

    @classmethod
    def generate(cls, rng: random.Random) -> "Keys":
        """Return a new identity; ``rng`` must draw from the operating system when the keys are to be used."""
        return cls.from_seeds(rng.randbytes(SEED_BYTES), rng.randbytes(SECRET_BYTES))

    @classmethod
    def from_seeds(cls, seed: bytes, agreement_secret: bytes) -> "Keys":
        """Return the identity of a 32-byte Ed25519 seed and a 32-byte X25519 secret."""
        assert len(agreement_secret) == SECRET_BYTES
        return cls(KeyPair.from_seed(seed), agreement_secret, public_of_secret(agreement_secret))

    @classmethod
    def import_json(cls, text: str) -> "Keys":
        """Return the identity of a key file; members that it does not know are ignored.

        Raises:
            LocalError: No such JSON object, a key that is no base64 or has a wrong size, or halves that do not match.
        """
        members = _members(text)
        # Spec 3: four members of these sizes; others are ignored, as a later version may add some.
        parts = {name: _key(members, name, size_bytes) for name, size_bytes in _SIZES.items()}
        keys = cls.from_seeds(parts["privateKey"][:SEED_BYTES], parts["encryptionPrivateKey"])
        # Halves of two identities would sign as one and be addressed as the other.
        if not keys.signing.public == parts["publicKey"] == parts["privateKey"][SEED_BYTES:]:
            raise LocalError("key file: privateKey and publicKey do not belong together")
        if keys.agreement_public != parts["encryptionPublicKey"]:
            raise LocalError("key file: encryptionPrivateKey and encryptionPublicKey do not belong together")
        return keys

    def export_json(self) -> str:
        """Return the key file, secrets and all, as the original writes it."""
        parts = {
            "publicKey": self.signing.public,
            # Spec 3: 64 bytes, seed and public key, as libsodium lays a secret key out.
            "privateKey": self.signing.seed + self.signing.public,
            "encryptionPublicKey": self.agreement_public,
            "encryptionPrivateKey": self.agreement_secret,
        }
        return json.dumps({name: base64.b64encode(part).decode("ascii") for name, part in parts.items()})


def _members(text: str) -> dict[str, object]:
    try:
        members = json.loads(text)
    # Deeply nested JSON raises RecursionError, and the file may come from anywhere.
    except (ValueError, RecursionError) as error:
        raise LocalError("key file: no JSON") from error
    if not isinstance(members, dict):
        raise LocalError("key file: no JSON object")
    return members


def _key(members: dict[str, object], name: str, size_bytes: int) -> bytes:
    text = members.get(name)
    if not isinstance(text, str):
        raise LocalError(f"key file: {name} is missing or no text")
    try:
        # Spec 3: standard base64; without ``validate`` Python skips foreign characters.
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise LocalError(f"key file: {name} is no base64") from error
    if len(key) != size_bytes:
        raise LocalError(f"key file: {name} has {len(key)} bytes, not {size_bytes}")
    return key
