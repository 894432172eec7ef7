"""The outgoing packets of a client: sends those that may go now, and queues the others.

The client machine passes packets of the application in; each ends in one outcome. A host keeps four challenges per key
and forgets the oldest for a fifth. So at most ``CAUTIOUS_MAX`` packets are in flight to recipients that may demand
work; the fourth challenge is reserved for leases and whitelists. A recipient that accepted a packet without work has us
on its whitelist, so more packets may be in flight there.

Spec: specs/lprp.md 7; LPRP-CAUTION.
"""

from collections import OrderedDict, deque
from typing import Final

from waystation.core.errors import LocalError
from waystation.core.ids import KEY_BYTES
from waystation.core.instant import Instant
from waystation.protocols.lprp.client.context import ClientContext
from waystation.protocols.lprp.client.events import RelayFinished, RequestOutcome
from waystation.protocols.lprp.client.requests import Request, Requests
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, PAYLOAD_BYTES_MAX, Command, Packet

__all__ = ["CAUTIOUS_MAX", "OPEN_RECIPIENTS_MAX", "WAITING_MS_MAX", "Outgoing"]

CAUTIOUS_MAX: Final = 3
OPEN_RECIPIENTS_MAX: Final = 1_024  # ours; a forgotten one costs one cautious packet
WAITING_MS_MAX: Final = CLOCK_WINDOW_MS // 2  # an older packet would leave no time to try again


class Outgoing:
    """The packets of ``send`` that have no outcome yet."""

    def __init__(self, context: ClientContext, settings: ClientSettings, requests: Requests) -> None:
        self._context = context
        self._requests = requests
        self._waiting_max = settings.waiting_max
        self._cautious_max = min(CAUTIOUS_MAX, settings.in_flight_max // 2)
        self._open_max = settings.in_flight_max - self._cautious_max
        self._open: OrderedDict[bytes, None] = OrderedDict()
        self._waiting_open: deque[Packet] = deque()
        self._waiting: deque[Packet] = deque()
        self._under_way: dict[bytes, bool] = {}
        """Signature of each packet under way, and whether it counts as cautious."""
        self._cautious_count = 0

    @property
    def waiting_count(self) -> int:
        """Packets that wait for their turn."""
        return len(self._waiting) + len(self._waiting_open)

    @property
    def under_way_count(self) -> int:
        """Packets that have been sent and have no outcome."""
        return len(self._under_way)

    def send(self, payload: bytes, recipient: bytes, now: Instant) -> bytes:
        """Sign a packet, queue it, and return its signature; see ``LprpClient.send``."""
        # Spec 2: 0 to 364 bytes of payload.
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise LocalError(f"a packet carries {PAYLOAD_BYTES_MAX} bytes, these are {len(payload)}")
        if len(recipient) != KEY_BYTES:
            raise LocalError(f"a key has {KEY_BYTES} bytes, this has {len(recipient)}")
        packet = self._context.seal(Command.RELAY, payload, now, recipient)
        # A full queue is an outcome of its own: the packet never left and may be sent again.
        if self.waiting_count >= self._waiting_max:
            self._context.emit(RelayFinished(packet.signature, RequestOutcome.NOT_SENT))
        elif recipient in self._open:
            self._waiting_open.append(packet)
        else:
            self._waiting.append(packet)
        return packet.signature

    def pump(self, now: Instant) -> None:
        """Send the packets that may leave now."""
        # LPRP-CAUTION: a recipient that took a packet without work has us on its whitelist: no challenge is needed.
        while self._waiting_open and len(self._under_way) - self._cautious_count < self._open_max:
            packet = self._waiting_open.popleft()
            if packet.recipient in self._open:
                self._begin(packet, now, cautious=False)
            else:
                self._waiting.append(packet)
        # LPRP-CAUTION: a host keeps four challenges per key; a fifth demand would push out the first.
        while self._waiting and self._cautious_count < self._cautious_max:
            self._begin(self._waiting.popleft(), now, cautious=True)

    def _begin(self, packet: Packet, now: Instant, *, cautious: bool) -> None:
        # Spec 4: a host takes a packet until 2^19 ms after its time.
        if self._context.wall_ms(now) - packet.time_ms > WAITING_MS_MAX:
            self._context.emit(RelayFinished(packet.signature, RequestOutcome.NOT_SENT))
            return
        self._under_way[packet.signature] = cautious
        self._cautious_count += cautious
        self._requests.begin(packet, now)

    def admits_demand(self, request: Request) -> bool:
        """Note that a recipient demands work from us; False when the packet must wait for its turn to do it."""
        signature = request.packet.signature
        self._open.pop(request.packet.recipient, None)
        if self._under_way[signature]:
            return True
        if self._cautious_count < self._cautious_max:
            self._under_way[signature] = True
            self._cautious_count += 1
            return True
        del self._under_way[signature]
        # The demand is forgotten and comes again when this packet has its turn.
        self._requests.withdraw(request)
        self._waiting.appendleft(request.packet)
        return False

    def finished(self, request: Request, outcome: RequestOutcome) -> None:
        """Report the outcome of a packet."""
        packet = request.packet
        self._cautious_count -= self._under_way.pop(packet.signature)
        if outcome is RequestOutcome.ACCEPTED and request.demands_count == 0:
            self._trust(packet.recipient)
        self._context.emit(RelayFinished(packet.signature, outcome))

    def _trust(self, recipient: bytes) -> None:
        if recipient in self._open:
            self._open.move_to_end(recipient)
            return
        self._open[recipient] = None
        if len(self._open) > OPEN_RECIPIENTS_MAX:
            self._open.popitem(last=False)
        self._waiting_open.extend(packet for packet in self._waiting if packet.recipient == recipient)
        self._waiting = deque(packet for packet in self._waiting if packet.recipient != recipient)
