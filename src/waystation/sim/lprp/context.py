"""What all actors (simulated participants) of an LPRP run share: addresses, host keys, datagrams seen on the wire.

``LprpScenario`` makes one. Hostile actors replay datagrams from it, as anyone near a host could.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from waystation.core.effects import Address
from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.client.machine import LprpClient
from waystation.sim.context import Context
from waystation.sim.lprp.observations import Made
from waystation.sim.lprp.packets import Seen, read_packet
from waystation.sim.lprp.plan import LprpPlan
from waystation.sim.net.network import Network
from waystation.sim.schedule import Schedule

__all__ = ["PROTOCOL", "LprpContext", "Tapped", "host_address"]

PROTOCOL: Final = "lprp"
PORT: Final = 4_810
TAPPED_MAX: Final = 500


class Tapped(NamedTuple):
    """A datagram that has arrived where it was sent."""

    host: int
    address: Address
    """Of the other side."""
    packet: Seen


def host_address(host: int) -> Address:
    """Return where a host is reached."""
    return f"10.0.{host}.1", PORT


class LprpContext(Context[LprpPlan]):
    """Shared by all actors of one scenario."""

    protocol = PROTOCOL

    def __init__(
        self,
        schedule: Schedule,
        rng: random.Random,
        plan: LprpPlan,
        observe: Callable[[Any], None],
        make_client: type[LprpClient],
    ) -> None:
        """Put it together; see ``Context``. ``rng`` draws the network's faults, ``make_client`` makes machines."""
        super().__init__(schedule, plan, observe)
        self.make_client = make_client
        self.network = Network(schedule, rng, plan.net)
        self.host_pairs: list[KeyPair] = []
        self.tenants: list[tuple[PublicKey, int]] = []
        """Honest keys that hold, or want, a lease, and at which host."""
        self.requests: deque[Tapped] = deque(maxlen=TAPPED_MAX)
        """The last good requests that honest clients got through to a host."""
        self.answers: deque[Tapped] = deque(maxlen=TAPPED_MAX)
        """The last datagrams that hosts sent."""

    @property
    def host_keys(self) -> list[PublicKey]:
        """Keys of the hosts, in their order."""
        return [pair.public for pair in self.host_pairs]

    def made(self, data: bytes) -> None:
        """Note a 102 that an actor signed, whoever hands it in; the same one again is fine."""
        packet = read_packet(data)
        if packet is not None and packet.command == 0x102 and packet.is_signed_by(packet.sender):
            self.observe(Made(packet.signature, data))
