"""What is said to a peer at one opportunity: chosen, encoded, and marked once it has left. Spec: bsp 3.

Written in the order ACK, REQUEST, MESSAGE (oldest first), OFFER, so that a connection that is cut loses the least.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.bsp.flags import Link, PeerState, Row, Sharing
from waystation.protocols.bsp.graph import Vertex
from waystation.protocols.bsp.links import Mode
from waystation.protocols.bsp.messages import HEADER_BYTES, ID_BYTES, MESSAGE_HEAD_BYTES, RecordType
from waystation.protocols.bsp.profile import Profile
from waystation.protocols.bsp.wire import IDS_WRITTEN_MAX, encode_ids, encode_message

__all__ = ["BodyReader", "Draft", "choose"]

_SLOW_US: Final = 2 * MICROSECONDS_PER_SECOND  # a round trip above this costs more than the bytes it saves (BSP-D10)
_SMALL_BYTES: Final = 64  # a body below this is hardly longer than an offer and a request (BSP-D10)
_UNANSWERED_OFFERS_MAX: Final = 2
_MESSAGE_BYTES: Final = HEADER_BYTES + MESSAGE_HEAD_BYTES

BodyReader = Callable[[Sequence[tuple[bytes, Vertex]]], dict[bytes, bytes]]
"""Returns the bodies of messages given by group and vertex, those that are gone left out; by identifier."""


class Draft:
    """What one opportunity would say; nothing is marked before ``BspDevice.sent``."""

    __slots__ = ("acks", "bodies", "link", "offers", "peer", "records", "requests")

    def __init__(self, peer: PeerState, link: Link) -> None:
        self.peer = peer
        self.link = link
        self.records: list[bytes] = []
        """Encoded, in the order in which they are written."""
        self.acks: list[tuple[Sharing, Vertex]] = []
        self.requests: list[bytes] = []
        self.bodies: list[Row] = []
        self.offers: list[Row] = []


def choose(
    profile: Profile, mode: Mode, peer: PeerState, link: Link, now: Instant, bytes_max: int, read_bodies: BodyReader
) -> Draft:
    """Return what is due for a peer, at most ``bytes_max`` bytes of records.

    Rows that are chosen leave their heap: ``sent`` or ``abandon`` of the device must follow.
    """
    draft = Draft(peer, link)
    room = _lists(profile, draft, bytes_max)
    peer.ripen(now)
    mode = link.terms.mode or mode
    while room >= ID_BYTES and (row := peer.next_due()) is not None:
        offers = not row.request and _is_offered(mode, row, peer, link)
        if offers:
            size = ID_BYTES if len(draft.offers) % IDS_WRITTEN_MAX else HEADER_BYTES + ID_BYTES
        else:
            size = _MESSAGE_BYTES + row.vertex.size_bytes
        if size > room:
            peer.put(row, now)
            break  # the oldest goes first also where a younger one would still fit
        room -= size
        (draft.offers if offers else draft.bodies).append(row)
    _write_bodies(profile, draft, read_bodies)
    draft.records += encode_ids(profile, RecordType.OFFER, [row.vertex.message_id for row in draft.offers])
    return draft


def _write_bodies(profile: Profile, draft: Draft, read_bodies: BodyReader) -> None:
    """Encode the messages that were chosen; one whose body is gone is not handed over any more."""
    bodies = read_bodies([(row.sharing.group_id, row.vertex) for row in draft.bodies])
    written = []
    for row in draft.bodies:
        body = bodies.get(row.vertex.message_id)
        if body is None:
            draft.peer.drop(row)
            continue
        written.append(row)
        draft.records.append(encode_message(profile, row.sharing.group_id, row.vertex.timestamp, body))
    draft.bodies = written


def _lists(profile: Profile, draft: Draft, bytes_max: int) -> int:
    """Choose acknowledgements and requests; return how many bytes are left."""
    peer = draft.peer
    room = bytes_max
    if peer.to_ack:
        count = _ids_within(room)
        ids = list(islice(peer.to_ack, count))
        draft.acks = [peer.to_ack[message_id] for message_id in ids]
        draft.records += encode_ids(profile, RecordType.ACK, ids)
        room -= _list_bytes(len(ids))
    if len(peer.offered) and room >= HEADER_BYTES + ID_BYTES:
        draft.requests = peer.offered.first(_ids_within(room))
        draft.records += encode_ids(profile, RecordType.REQUEST, draft.requests)
        room -= _list_bytes(len(draft.requests))
    return room


def _ids_within(room: int) -> int:
    """Return how many identifiers fit with their headers."""
    record = HEADER_BYTES + IDS_WRITTEN_MAX * ID_BYTES
    whole, rest = divmod(room, record)
    return whole * IDS_WRITTEN_MAX + max(0, rest - HEADER_BYTES) // ID_BYTES


def _list_bytes(count: int) -> int:
    return count * ID_BYTES + -(-count // IDS_WRITTEN_MAX) * HEADER_BYTES


def _is_offered(mode: Mode, row: Row, peer: PeerState, link: Link) -> bool:
    """Return whether a message that the peer did not ask for is offered instead of sent (BSP-D10)."""
    if mode is not Mode.AUTO:
        return mode is Mode.INTERACTIVE
    if row.count >= _UNANSWERED_OFFERS_MAX:
        return False
    if link.round_trip_us is not None and link.round_trip_us > _SLOW_US:
        return False
    size = row.vertex.size_bytes
    if size < _SMALL_BYTES and row.sharing.is_only_source:
        return False
    return peer.probably_holds(size)
