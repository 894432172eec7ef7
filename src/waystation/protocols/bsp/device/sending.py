"""Selects and encodes the records that are due for a peer, as a draft that is marked once it is sent.

``BspDevice`` calls ``choose`` with the peer's state and the bytes that there is room for. The order is ACK, REQUEST,
MESSAGE (oldest first), OFFER, so that a cut connection loses the least. Spec: bsp 3.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.bsp.device.flags import Link, PeerState, Row, Sharing
from waystation.protocols.bsp.device.links import Mode
from waystation.protocols.bsp.graph.order import Vertex
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
    """The records of one opportunity; nothing is marked before ``BspDevice.sent``."""

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
    """Return the records that are due for a peer, at most ``bytes_max`` bytes.

    Rows that are chosen leave their heap: ``sent`` or ``abandon`` of the device must follow.
    """
    draft = Draft(peer, link)
    # Spec 3: ACK, REQUEST, MESSAGE, OFFER in this order, so that a cut connection loses least.
    room = _lists(profile, draft, bytes_max)
    peer.promote_due(now)
    # Spec 3: files and mailboxes are always batch: an offer there would wait for days.
    mode = link.terms.mode or mode
    # Spec 3: oldest time first.
    while room >= ID_BYTES and (row := peer.next_due()) is not None:
        # Spec 3: what the peer requested is sent in either mode.
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
    # Spec 3: OFFER is the last record: it is the cheapest to lose.
    draft.records += encode_ids(profile, RecordType.OFFER, [row.vertex.message_id for row in draft.offers])
    return draft


def _write_bodies(profile: Profile, draft: Draft, read_bodies: BodyReader) -> None:
    """Encode the chosen messages; one whose body is gone is sent no more."""
    bodies = read_bodies([(row.sharing.group_id, row.vertex) for row in draft.bodies])
    written = []
    for row in draft.bodies:
        body = bodies.get(row.vertex.message_id)
        # Spec 3: only messages with a body are offered or sent.
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
        # Spec 3: ACK in both modes: ack = 1.
        count = _ids_within(room)
        ids = list(islice(peer.to_ack, count))
        draft.acks = [peer.to_ack[message_id] for message_id in ids]
        draft.records += encode_ids(profile, RecordType.ACK, ids)
        room -= _list_bytes(len(ids))
    if len(peer.offered) and room >= HEADER_BYTES + ID_BYTES:
        # Spec 3: REQUEST in both modes: the offered list.
        draft.requests = peer.offered.first(_ids_within(room))
        draft.records += encode_ids(profile, RecordType.REQUEST, draft.requests)
        room -= _list_bytes(len(draft.requests))
    return room


def _ids_within(room: int) -> int:
    """Return how many identifiers fit with their headers."""
    # Spec 1: at most 1,536 identifiers in one record; longer lists take another header.
    record = HEADER_BYTES + IDS_WRITTEN_MAX * ID_BYTES
    whole, rest = divmod(room, record)
    return whole * IDS_WRITTEN_MAX + max(0, rest - HEADER_BYTES) // ID_BYTES


def _list_bytes(count: int) -> int:
    return count * ID_BYTES + -(-count // IDS_WRITTEN_MAX) * HEADER_BYTES


def _is_offered(mode: Mode, row: Row, peer: PeerState, link: Link) -> bool:
    """Return whether a message that the peer did not ask for is offered instead of sent (BSP-D10)."""
    if mode is not Mode.AUTO:
        # Spec 3: interactive offers first, batch never does.
        return mode is Mode.INTERACTIVE
    # Spec 3: sent at once after two offers without an answer.
    if row.count >= _UNANSWERED_OFFERS_MAX:
        return False
    # Spec 3: sent at once when the measured round trip is above 2 s.
    if link.round_trip_us is not None and link.round_trip_us > _SLOW_US:
        return False
    size = row.vertex.size_bytes
    # Spec 3: sent at once below 64 bytes when we are the peer's only source.
    if size < _SMALL_BYTES and row.sharing.is_only_source:
        return False
    # Spec 3: offered when d > 64 / (76 + body), as then the saved copies outweigh the offers.
    return peer.probably_holds(size)
