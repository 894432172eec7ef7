"""Replaces identities in journal events by references, and creates the functions that write those events.

The recorder requests one writer per kind of fact. The writer knows the protected fields and their replacements. Group
and message ids are replaced by keyed references, so that a journal cannot be searched for a known message id. A message
and its dependencies get their references at the same time. The key changes weekly, so messages of two weeks cannot be
joined (BSP-REFS). Content types that no specification defines are replaced by ``other``, because they are free text.
"""

import random
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final

from waystation.core.fields import Protection, fields_of
from waystation.core.ids import NODE_ID_BYTES, node_id_of
from waystation.crypto.hashing import keyed_reference
from waystation.journal.events import EVENTS, Event

__all__ = [
    "CONNECTION_REFERENCE_BYTES",
    "KNOWN_CONTENT_TYPES",
    "OTHER_CONTENT_TYPE",
    "REFERENCES_CACHED_MAX",
    "References",
    "relay_id_of",
]

CONNECTION_REFERENCE_BYTES: Final = 8
REFERENCES_CACHED_MAX: Final = 16_384
_BOOT_BYTES: Final = 8
_ATTEMPT_BYTES: Final = 8

OTHER_CONTENT_TYPE: Final = "other"
KNOWN_CONTENT_TYPES: Final = frozenset(
    {
        *("POST", "MESSAGE", "TRUST_EDGE", "TRUST_REVOCATION", "ATTESTATION", "ATTESTATION_RETRACTION"),
        *("ATTESTATION_DISPUTE", "CONFIG", "STAKE", "STAKE_SLASH", "KEY_EVENT", "RECOVERY_APPROVAL"),
        *("CONSENSUS_METRIC", "CORRECTION", "RELAY_DESCRIPTOR", "CLIENT_MANIFEST"),
        *("PROFILE", "SOCIAL_EDGE", "SOCIAL_EDGE_REVOCATION", "REACTION", "GROUP", "GROUP_MEMBERSHIP"),
        *("LIST", "LIST_MEMBERSHIP", "strata.messaging.key_package.v1"),
    }
)
"""Types that RFC-0002, RFC-0200 and their kin define (specs/strata.md 5)."""


def relay_id_of(relay: bytes | str) -> str:
    """Return how tables call a relay: 16 hexadecimal digits of its key, or of the SHA-256 of its name.

    Args:
        relay: 32-byte public key, or the name of a relay whose key is not known.
    """
    if isinstance(relay, bytes):
        return node_id_of(relay)
    return sha256(relay.encode()).digest()[:NODE_ID_BYTES].hex()


class _Cache(dict[bytes | None, bytes | None]):
    """Keyed references that were made under the present key, by identity."""

    key = b""

    def __missing__(self, identity: bytes | None) -> bytes | None:
        if identity is None:
            return None
        if len(self) >= REFERENCES_CACHED_MAX:
            self.clear()
        reference = self[identity] = keyed_reference(self.key, identity)
        return reference


class References:
    """Makes references; a peer without the key can neither make nor undo one."""

    def __init__(self, rng: random.Random) -> None:
        """Start without a key; ``rng`` is the source of connection references and of this run's number."""
        self._rng = rng
        self._boot = rng.randbytes(_BOOT_BYTES)
        self._cache = _Cache()
        self._connections: dict[int, bytes] = {}
        self._replace: Mapping[Protection, Callable[[Any], Any]] = {
            Protection.CONNECTION: self._connections.get,
            Protection.IDENTITY: self._cache.__getitem__,
            Protection.ONE_OFF: self._one_off,
            Protection.IDENTITIES: self._identities,
            Protection.ATTEMPT: self._attempt,
            Protection.RELAY: relay_id_of,
            Protection.CONTENT_TYPE: _content_type,
        }

    def use_key(self, key: bytes) -> None:
        """Make references with ``key`` from now on; those made before cannot be joined with them."""
        if key != self._cache.key:
            self._cache.key = key
            self._cache.clear()

    def of(self, identity: bytes) -> bytes:
        """Return the reference of an identity under the present key."""
        return self._cache[identity] or b""

    def identify(self, peer: int) -> None:
        """Draw the reference of a connection that identified itself."""
        self._connections[peer] = self._rng.randbytes(CONNECTION_REFERENCE_BYTES)

    def forget(self, peer: int) -> None:
        """Drop the reference of a connection that is over."""
        del self._connections[peer]

    def is_identified(self, peer: int | None) -> bool:
        """Return whether a connection has a reference."""
        return peer in self._connections

    def writer(self, fact: type[Any], append: Callable[[Event], None]) -> Callable[[Any, int], None]:
        """Return the function that appends the event of a fact of this kind at a time in microseconds UTC."""
        protections = [(index, field.place.protection) for index, field in enumerate(fields_of(fact), 1)]
        replacements = tuple((index, self._replace[each]) for index, each in protections if each is not None)
        event, new = EVENTS[fact.__name__], tuple.__new__

        def write(fact: Any, ts_us: int) -> None:
            values = [ts_us, *fact]
            for index, replace in replacements:
                values[index] = replace(values[index])
            append(new(event, values))

        return write

    def _one_off(self, subject: bytes | None) -> bytes | None:
        return keyed_reference(self._cache.key, subject) if subject is not None else None

    def _identities(self, subjects: tuple[bytes, ...]) -> bytes:
        return b"".join([self._cache[each] or b"" for each in subjects])

    def _attempt(self, attempt: int) -> bytes:
        return self._boot + attempt.to_bytes(_ATTEMPT_BYTES, "big")


def _content_type(word: str | None) -> str | None:
    return word if word is None or word in KNOWN_CONTENT_TYPES else OTHER_CONTENT_TYPE
