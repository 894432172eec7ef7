"""What an operator declines: authors, packets and media, refused at the door and no longer served.

Besides, what published rules leave an identity that sends too much: ``Throttle`` says so with the code that every
client knows. Spec: RFC-0004 2, 6; specs/strata.md 6 (step 5).
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
        """Whether nothing is declined."""

    def refuses(self, packet: Packet) -> Refusal | None:
        """Return why the packet is declined, or None."""
        if packet.author_id in self._authors:
            return Refusal(Code.BLOCKED_AUTHOR)
        if packet.packet_id in self._packets:
            return Refusal(Code.BLOCKED_CONTENT, "packet_id")
        if self._media and not self._media.isdisjoint(packet.media_hashes):
            return Refusal(Code.BLOCKED_CONTENT, "media_hash")
        return None

    def serves(self, row: PacketRow) -> bool:
        """Return whether a stored packet is given out.

        A media hash is looked for in the canonical bytes, where a quote inside a text would be escaped.
        """
        if row.author_id in self._authors or row.packet_id in self._packets:
            return False
        return not any(media in row.canonical for media in self._media_bytes)


class Throttle:
    """Asks about each publish whether the identity behind it has to wait."""

    __slots__ = ("_waits",)

    def __init__(self, waits: Waits) -> None:
        """Ask ``waits``."""
        self._waits = waits

    def refuses(self, did: str | None, now: Instant) -> Refusal | None:
        """Return why a packet of this identity is not taken now; of somebody without a name nothing is known."""
        wait_s = self._waits(identity_of(did), now) if did is not None else 0
        return Refusal(Code.RATE_LIMITED, _DETAIL, extra=(("retry_after", wait_s),)) if wait_s else None


def never_waits(_identity: bytes, _now: Instant) -> int:
    """Let everybody go on: the answer while nothing is published."""
    return 0


def reason_of(refusal: Refusal) -> str:
    """Return what the journal says of a refusal: what a published rule refuses must not be evidence for the next."""
    return _REASON if refusal.detail == _DETAIL else refusal.code.value
