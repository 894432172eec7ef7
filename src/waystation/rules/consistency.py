"""Consistency of a relay: the share of expected packets that it stored, with a 95 % Wilson (confidence) interval.

``pipeline.transforms.consistency`` passes where and when nodes stored each packet. No node can prove that a relay
received a packet. A packet is therefore expected only if enough other nodes stored it and it had not expired within the
grace period. The relay must also have been active by then and store that content type. The ratio is evidence for an
operator, not proof. Below ``EXPECTED_MIN`` expected packets there is no ratio.
"""

import math
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

__all__ = [
    "EXPECTED_MIN",
    "SUSPICIOUS_MAX",
    "WINDOW_DAYS",
    "Behaviour",
    "Ratio",
    "Sighting",
    "Tally",
    "Terms",
    "expected",
    "ratio",
    "tally",
    "wilson_high",
    "wilson_low",
]

EXPECTED_MIN: Final = 30
"""Packets below which a ratio means nothing: at 30 the bounds of a perfect relay begin at 0.886."""

SUSPICIOUS_MAX: Final = 20
"""Missing packets that are named: enough to look into, few enough for a row."""

WINDOW_DAYS: Final = 7
"""A relay is expected to have content of the types that it stored on this many days, that of the packet the last.

It may leave out whole types by policy, and a week distinguishes that from a bad day (PIPE-FILTER).
"""

_Z: Final = 1.959964
"""Two-sided 95 % point of the normal distribution."""


def wilson_low(successes: int, total: int) -> float:
    """Return the lower 95 % Wilson bound of a ratio, rounded to six digits; 0.0 when nothing was counted.

    Args:
        successes: 0 to ``total``.
        total: 0 or more.
    """
    return 0.0 if successes == 0 else _wilson(successes, total, -1)


def wilson_high(successes: int, total: int) -> float:
    """Return the upper 95 % Wilson bound of a ratio, rounded to six digits; 1.0 when nothing was counted.

    Args:
        successes: 0 to ``total``.
        total: 0 or more.
    """
    return 1.0 if successes == total else _wilson(successes, total, 1)


def _wilson(successes: int, total: int, sign: int) -> float:
    squared = _Z * _Z
    centre = successes + squared / 2
    spread = _Z * math.sqrt(successes * (total - successes) / total + squared / 4)
    return round((centre + sign * spread) / (total + squared), 6)


class Sighting(NamedTuple):
    """One packet as the nodes stored it."""

    packet_id: bytes
    content_type: str
    expires_at: int | None
    """Last second of its life, Unix; None for ever."""
    first_seen_us: int
    """When the first node stored it, microseconds since 1970."""
    nodes: frozenset[str]
    """Nodes that stored it."""


class Terms(NamedTuple):
    """What it takes to be expected."""

    witnesses: int
    """Other nodes that must have stored the packet."""
    grace_us: int
    """Age that it must have reached, and alive."""
    as_of_us: int
    """Moment that ages are counted to, microseconds since 1970."""


class Behaviour(NamedTuple):
    """What the relay that is judged is known to do."""

    relay: str
    type_names: AbstractSet[str]
    """Types of content that it stored in the last ``WINDOW_DAYS``."""
    since_us: int
    """When it stored anything for the first time: it cannot lack packets from before its start (PIPE-ACTIVE)."""


class Ratio(NamedTuple):
    """How much of what was expected was there; six digits, all None below ``EXPECTED_MIN``."""

    ratio: float | None
    lower_bound: float | None
    upper_bound: float | None


class Tally(NamedTuple):
    """What one relay was expected to hold of some packets."""

    n_expected: int
    n_served: int
    ratio: Ratio
    suspicious: tuple[bytes, ...]
    """Ids of missing packets, smallest first, at most ``SUSPICIOUS_MAX``."""


def expected(packet: Sighting, behaviour: Behaviour, terms: Terms) -> bool:
    """Return whether a relay ought to have the packet; its own sighting is no witness.

    It ought to when enough others have it, when it is old enough and outlived that age, when the relay was there by
    then, and when it stores such content at all. That the packet expired later is no excuse (PIPE-ALIVE): what counts
    is whether it was ever stored.
    """
    due_us = packet.first_seen_us + terms.grace_us
    alive = packet.expires_at is None or packet.expires_at * 1_000_000 >= due_us
    witnesses = len(packet.nodes - {behaviour.relay})
    timely = behaviour.since_us <= due_us <= terms.as_of_us
    return witnesses >= terms.witnesses and timely and alive and packet.content_type in behaviour.type_names


def ratio(n_expected: int, n_served: int) -> Ratio:
    """Return ``n_served`` of ``n_expected`` with its bounds."""
    if n_expected < EXPECTED_MIN:
        return Ratio(None, None, None)
    bounds = wilson_low(n_served, n_expected), wilson_high(n_served, n_expected)
    return Ratio(round(n_served / n_expected, 6), *bounds)


def tally(packets: Iterable[Sighting], behaviour: Behaviour, terms: Terms) -> Tally:
    """Return what a relay was expected to hold of ``packets``, and what it does.

    Cost: O(packets log packets).
    """
    wanted = [packet for packet in packets if expected(packet, behaviour, terms)]
    missing = sorted(packet.packet_id for packet in wanted if behaviour.relay not in packet.nodes)
    served = len(wanted) - len(missing)
    return Tally(len(wanted), served, ratio(len(wanted), served), tuple(missing[:SUSPICIOUS_MAX]))
