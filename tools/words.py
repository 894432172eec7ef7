"""Finds forbidden metaphors and names the field's term; docs/glossary.md has the table, tests/test_tidy.py the gate."""

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["METAPHORS", "metaphors_in"]

METAPHORS: Final[dict[str, str]] = {
    "bent": "mutated",
    "books": "repository, table",
    "bunch(es)?": "batch",
    "commons": "shared context",
    "courier": "file transfer",
    "desks?": "session, responder",
    "doors?": "listener, endpoint",
    "entrance": "endpoint",
    "greetings?": "handshake, authentication",
    "guests?": "anonymous client",
    "hearsay": "unverified claim",
    "hears?|hearing|heard": "receive",
    "hopes": "pending expectations",
    "houses?": "host, node",
    "left ?hanging": "unfulfilled",
    "liars?": "byzantine peer",
    "long way": "slow path",
    "mangled": "corrupted",
    "means no good": "adversary",
    "neighbourhood": "peering",
    "part(?:y|ies)": "client, participant",
    "patience": "timeout",
    "pens?": "traffic generator",
    "repute": "score",
    "ripen": "promote when due",
    "short way": "fast path",
    "spared": "protected from eviction",
    "spool": "download buffer",
    "stirred": "dirty",
    "strangers?": "unknown sender, unauthenticated peer",
    "tell|tells|told|telling": "report, emit, send",
    "thrown out": "disconnected",
    "towns?|villages?": "scenario",
    "turned away": "rejected",
    "welcome": "handshake",
    "whereabouts": "presences",
}
"""Words that the code does not use, each with the field's term."""

_BREAKS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_+")
_ANY: Final = re.compile(r"\b(" + "|".join(METAPHORS) + r")\b", re.IGNORECASE)


_KEPT: Final = re.compile(
    r"turned_away|TURNED_AWAY|strangers_full|STRANGERS_FULL|BSP-TOLD|LPRP-GREETING|LPRP-SPARED|chat door 1"
    r'|name="repute"|stream\("house"\)|else "told"|"HostHeard"'
)
"""Listed words on the wire, in stored data, in output, in a seed, or in the id of a decision."""


def metaphors_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and word of every metaphor in a text; identifiers count by their parts."""
    for number, line in enumerate(text.splitlines(), 1):
        for found in _ANY.finditer(_BREAKS.sub(" ", _KEPT.sub("", line))):
            yield number, found[1].lower()
