"""The list of keys that may write to a tenant without work, kept alike on two sides by toggles and one hash.

An update names keys that change sides, in or out, and the hash of the set that must come of it; where the hash
differs nothing is changed. One zero key alone changes nothing and only compares, because an update must be no shorter
than its answer (LPRP-D11). The hash is BLAKE2b-256 over the keys in ascending order of their bytes, of nothing for
the empty set.

Spec: specs/lprp.md 3, 4 and LPRP-D11.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from waystation.core.ids import KEY_BYTES, PublicKey
from waystation.crypto.hashing import blake2b_256
from waystation.protocols.lprp.messages import UPDATE_KEYS_MAX
from waystation.protocols.lprp.refusals import MalformedError, Refusal

__all__ = [
    "HASH_BYTES",
    "WHITELIST_KEYS_MAX",
    "ZERO_KEY",
    "Update",
    "comparison",
    "has_zero_key",
    "is_comparison",
    "plan_updates",
    "read_update",
    "toggled",
    "whitelist_hash",
]

HASH_BYTES: Final = 32
WHITELIST_KEYS_MAX: Final = 256
"""Keys on one list. Spec: lprp 7."""
ZERO_KEY: Final = PublicKey(bytes(KEY_BYTES))
"""Nobody's key; it fills a comparison up to the length of its answer."""


class Update(NamedTuple):
    """What a 108 asks for."""

    hash: bytes
    """32 bytes: of the set that must come of it."""
    keys: tuple[PublicKey, ...]
    """1 to 10 keys to toggle, in this order; a key named twice stays where it was."""


def read_update(payload: bytes) -> Update:
    """Return what the payload of a 108 says.

    Raises:
        MalformedError: COMMAND_LENGTH; no payload of a packet that the codec read is refused.
    """
    count, rest = divmod(len(payload) - HASH_BYTES, KEY_BYTES)
    if rest or not 1 <= count <= UPDATE_KEYS_MAX:
        raise MalformedError(Refusal.COMMAND_LENGTH, f"update of {len(payload)} bytes")
    starts = range(HASH_BYTES, len(payload), KEY_BYTES)
    return Update(payload[:HASH_BYTES], tuple(PublicKey(payload[at : at + KEY_BYTES]) for at in starts))


def is_comparison(update: Update) -> bool:
    """Return whether an update only asks if both sides have the same set."""
    return update.keys == (ZERO_KEY,)


def has_zero_key(update: Update) -> bool:
    """Return whether the zero key is among the keys; unless alone, it makes the whole update wrong."""
    return ZERO_KEY in update.keys


def whitelist_hash(keys: Iterable[bytes]) -> bytes:
    """Return the 32-byte hash of a set of 32-byte keys, given in any order."""
    return blake2b_256(b"".join(sorted(set(keys))))


def toggled(keys: frozenset[PublicKey], toggles: Sequence[PublicKey]) -> frozenset[PublicKey]:
    """Return the set after each of ``toggles`` came in, or went out if it was in, one after the other."""
    result = set(keys)
    for key in toggles:
        result ^= {key}
    return frozenset(result)


def plan_updates(current: frozenset[PublicKey], wanted: frozenset[PublicKey]) -> list[bytes]:
    """Return the payloads of the 108s that lead from one set to the other, in the order in which they must be applied.

    Keys go before keys come, so that no set on the way is larger than both ends (LPRP-PLAN). Equal sets need no update.

    Args:
        current: What the host has, at most 256 keys.
        wanted: What it should have, at most 256 keys and not the zero key.
    """
    assert len(wanted) <= WHITELIST_KEYS_MAX
    assert ZERO_KEY not in wanted
    toggles = sorted(current - wanted) + sorted(wanted - current)
    payloads = []
    for at in range(0, len(toggles), UPDATE_KEYS_MAX):
        step = toggles[at : at + UPDATE_KEYS_MAX]
        current = toggled(current, step)
        payloads.append(b"".join((whitelist_hash(current), *step)))
    return payloads


def comparison(keys: Iterable[bytes]) -> bytes:
    """Return the 64-byte payload of the 108 that asks whether the host has just these keys."""
    return whitelist_hash(keys) + ZERO_KEY
