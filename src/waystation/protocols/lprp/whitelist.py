"""Encodes and checks whitelist updates; a whitelist lists the keys that may write to a tenant without work.

The client's ``whitelist_sync`` writes updates, the host's ``commands.whitelist`` reads them. An update names keys to
toggle (add or remove), and the hash of the resulting set. If the hash differs, nothing changes. A single zero key only
compares the two sets, because an update must not be shorter than its answer (LPRP-D11). The hash is BLAKE2b-256 over
the keys in ascending byte order, or over nothing for the empty set.

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
"""A key that no device holds; it pads a comparison to the length of its answer."""


class Update(NamedTuple):
    """The payload of a 108."""

    hash: bytes
    """32 bytes: of the resulting set."""
    keys: tuple[PublicKey, ...]
    """1 to 10 keys to toggle, in this order; a key named twice stays where it was."""


def read_update(payload: bytes) -> Update:
    """Return the update of a 108's payload.

    Raises:
        MalformedError: COMMAND_LENGTH; no payload of a packet that the codec read is refused.
    """
    count, rest = divmod(len(payload) - HASH_BYTES, KEY_BYTES)
    # Spec 3: hash 32, then 1 to 10 keys of 32.
    if rest or not 1 <= count <= UPDATE_KEYS_MAX:
        raise MalformedError(Refusal.COMMAND_LENGTH, f"update of {len(payload)} bytes")
    starts = range(HASH_BYTES, len(payload), KEY_BYTES)
    return Update(payload[:HASH_BYTES], tuple(PublicKey(payload[at : at + KEY_BYTES]) for at in starts))


def is_comparison(update: Update) -> bool:
    """Return whether an update only compares both sets."""
    return update.keys == (ZERO_KEY,)


def has_zero_key(update: Update) -> bool:
    """Return whether the zero key is among the keys; unless alone, it makes the whole update wrong."""
    return ZERO_KEY in update.keys


def whitelist_hash(keys: Iterable[bytes]) -> bytes:
    """Return the 32-byte hash of a set of 32-byte keys, given in any order."""
    # Spec 3: BLAKE2b-256 over all keys in ascending order.
    return blake2b_256(b"".join(sorted(set(keys))))


def toggled(keys: frozenset[PublicKey], toggles: Sequence[PublicKey]) -> frozenset[PublicKey]:
    """Return the set after each of ``toggles`` came in, or went out if it was in, one after the other."""
    result = set(keys)
    for key in toggles:
        # Spec 3: each key is put in if it is not there and taken out if it is; one that is named twice stays.
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
