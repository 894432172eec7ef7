"""The operator's block lists: authors, packets and media that are refused and no longer served.

Intake and delivery ask it for each packet. ``Throttle`` applies published rate rules to an identity that sends too
much, with the wire code for rate limits.

Spec: RFC-0004 2, 6; specs/strata.md 6 (step 5).
"""

from collections.abc import Callable, Iterable
from typing import Final

from waystation.core.dids import identity_of
from waystation.core.instant import Instant
from waystation.core.packets import PacketRow
from waystation.protocols.strata.packet import Packet, parse_packet_id
from waystation.protocols.strata.refusals import Code, Refusal

__all__ = ["Policy", "Throttle", "Waits", "never_waits", "reason_of"]

_DETAIL: Final = "policy"
_REASON: Final = "policy_rate"

Waits = Callable[[bytes, Instant], int]
"""Counts one message of an identity; returns in how many seconds it may come again, 0 for now."""


class Policy:
    """The block lists of one relay; replaced as a whole when the operator changes them."""

    __slots__ = ("_authors", "_media", "_media_bytes", "_packets", "is_open")

    def __init__(
        self, authors: Iterable[str] = (), packet_ids: Iterable[str] = (), media_hashes: Iterable[str] = ()
    ) -> None:
        """Take the lists as the configuration has them; a packet id that is none blocks nothing."""
        self._authors = frozenset(authors)
        self._packets = frozenset(parse_packet_id(text) for text in packet_ids) - {None}
        self._media = frozenset(media_hashes)
        self._media_bytes = tuple(b'"media_hash":"%b"' % text.encode() for text in sorted(self._media))
        self.is_open = not self._authors and not self._packets and not self._media
        """Whether all lists are empty."""

    def refuses(self, packet: Packet) -> Refusal | None:
        """Return why the packet is refused, or None."""
        # Spec 6.5: blocked_author, blocked_content.
        if packet.author_id in self._authors:
            return Refusal(Code.BLOCKED_AUTHOR)
        if packet.packet_id in self._packets:
            return Refusal(Code.BLOCKED_CONTENT, "packet_id")
        if self._media and not self._media.isdisjoint(packet.media_hashes):
            return Refusal(Code.BLOCKED_CONTENT, "media_hash")
        return None

    def serves(self, row: PacketRow) -> bool:
        """Return whether a stored packet is served.

        A media hash is looked for in the canonical bytes, where a quote inside a text would be escaped.
        """
        # Spec 13: blocked packets are left out, those included that came before the block.
        if row.author_id in self._authors or row.packet_id in self._packets:
            return False
        return not any(media in row.canonical for media in self._media_bytes)


class Throttle:
    """Checks for each publish whether its identity has to wait."""

    __slots__ = ("_waits",)

    def __init__(self, waits: Waits) -> None:
        """Call ``waits`` for each packet."""
        self._waits = waits

    def refuses(self, did: str | None, now: Instant) -> Refusal | None:
        """Return why a packet of this identity is refused now; an anonymous publisher has no limit of its own."""
        # Spec 11: rate_limited says in retry_after when to come back.
        wait_s = self._waits(identity_of(did), now) if did is not None else 0
        return Refusal(Code.RATE_LIMITED, _DETAIL, extra=(("retry_after", wait_s),)) if wait_s else None


def never_waits(_identity: bytes, _now: Instant) -> int:
    """Let every identity send: the answer while no rules are published."""
    return 0


def reason_of(refusal: Refusal) -> str:
    """Return the journal's reason of a refusal: a published rule's refusal must not be evidence for the next rule."""
    return _REASON if refusal.detail == _DETAIL else refusal.code.value
