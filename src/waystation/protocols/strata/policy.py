"""What an operator declines: authors, packets and media, refused at the door and no longer served.

Spec: RFC-0004 2, 6; specs/strata.md 6 (step 5).
"""

from collections.abc import Iterable

from waystation.core.packets import PacketRow
from waystation.protocols.strata.packet import Packet, parse_packet_id
from waystation.protocols.strata.refusals import Code, Refusal

__all__ = ["Policy"]


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
