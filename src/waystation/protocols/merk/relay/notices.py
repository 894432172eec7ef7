"""Takes what other nodes say became of the frames that were forwarded to them.

The relay passes it DELIVERY and DELIVERIES of peers. A frame that has arrived is reported to its sender; one whose
recipient has left is sought elsewhere; any other outcome is reported as it is. What names no frame that this very node
was sent, or one that is answered already, is ignored: it may be late.

Spec: specs/merk.md 5, 6, 7; MERK-NOTICES.
"""

from itertools import groupby
from operator import itemgetter
from typing import Final

from waystation.core.instant import Instant
from waystation.protocols.merk.messages import Deliveries, Delivery, DeliveryCode
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay.forwards import sending_of
from waystation.protocols.merk.relay.routing import Routing
from waystation.protocols.merk.relay.sessions import Sessions
from waystation.protocols.merk.session import Sending, Session

__all__ = ["DENIALS_MAX", "Notices"]

DENIALS_MAX: Final = 3  # nodes that may say "not here" to a frame before we believe that nobody has its target
_CODES: Final = frozenset(DeliveryCode)
_origin_and_target: Final = itemgetter(1, 2)  # of a ``Flight``
_FRAME: Final = 3


class Notices:
    """The outcomes that peers report."""

    def __init__(self, routing: Routing, sessions: Sessions) -> None:
        """Report to the senders whose frames ``routing`` has forwarded; ``sessions`` counts what no node may say."""
        self._routing = routing
        self._sessions = sessions

    def on_delivery(self, node: Session, notice: Delivery, now: Instant) -> None:
        """Take a peer's word about one frame."""
        if not self._sessions.is_peer(node, now):
            return
        flight = self._routing.forwards.answered(node, notice.target, notice.frame_hash)
        # None: it took longer than we waited; the sender has its outcome.
        if flight is not None:
            self._ended(node, sending_of(flight, notice.frame_hash), notice.code, now)

    def on_deliveries(self, node: Session, notices: Deliveries, now: Instant) -> None:
        """Take a peer's word about many frames that ended alike."""
        if not self._sessions.is_peer(node, now):
            return
        # Spec 7: without the feature on its side its frames are known by their hash.
        if not node.gathers_notices:
            self._sessions.strike(node, Refusal.INFO_NOT_ALLOWED, now)
            return
        flights = self._routing.forwards.answered_many(node, notices.message_ids)
        if notices.code != DeliveryCode.DELIVERED:
            for flight in flights:
                self._ended(node, sending_of(flight), notices.code, now)
            return
        for (origin, target), run in groupby(flights, _origin_and_target):
            self._routing.lookups.delivers(node, target)
            if origin is not None:
                self._routing.delivery.notify_run(origin, target, [flight[_FRAME] for flight in run])

    def delivered(self, node: Session, target: bytes, frame_hash: bytes, now: Instant) -> None:
        """Take a peer's word that a frame has arrived."""
        # Spec 5: to a peer FORWARD, answered by DELIVERY.
        flight = self._routing.forwards.answered(node, target, frame_hash)
        if flight is None:
            return
        self._routing.lookups.delivers(node, target)
        if flight[1] is not None:
            self._routing.delivery.finish(sending_of(flight, frame_hash), DeliveryCode.DELIVERED, now)

    def _ended(self, node: Session, sending: Sending, said: int, now: Instant) -> None:
        """A frame has ended at a node: report that, or look for its recipient elsewhere."""
        routing = self._routing
        # An unknown code says only that the outcome is unknown.
        code = DeliveryCode(said) if said in _CODES else DeliveryCode.LOOKUP_TIMEOUT  # nobody knows
        if code is not DeliveryCode.UNKNOWN_TARGET:
            if code is DeliveryCode.DELIVERED:
                routing.lookups.delivers(node, sending.target)
            routing.delivery.finish(sending, code, now)
            return
        routing.lookups.distrust(node, sending.target, now)
        sending.denials += 1
        # A frame is tried at few nodes: nodes that claim a client and deny it would pass it round.
        if sending.denials > DENIALS_MAX:
            routing.unreached(sending, code, now)
            return
        routing.seek(sending, None, now, may_ask=True, without=node)
