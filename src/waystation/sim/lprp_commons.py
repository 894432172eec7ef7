"""What the people of an LPRP town share: network, plan, keys of the hosts, and a wire tap for the hostile."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from waystation.core.effects import Address
from waystation.core.ids import PublicKey
from waystation.protocols.lprp.client import LprpClient
from waystation.sim.lprp_observations import Made
from waystation.sim.lprp_packets import Seen, read_packet
from waystation.sim.lprp_plan import LprpPlan
from waystation.sim.network import Network
from waystation.sim.schedule import Schedule
from waystation.sim.world import WALL_START_US

__all__ = ["PROTOCOL", "LprpCommons", "MakeClient", "Tapped", "host_address"]

PROTOCOL: Final = "lprp"
PORT: Final = 4_810
TAPPED_MAX: Final = 500
_MICROSECONDS_PER_MS: Final = 1_000

MakeClient = Callable[..., LprpClient]
"""``LprpClient`` itself, or a broken one in tests of the invariants."""


class Tapped(NamedTuple):
    """A datagram that has arrived where it was sent."""

    host: int
    address: Address
    """Of the other side."""
    packet: Seen


def host_address(host: int) -> Address:
    """Return where a host is reached."""
    return f"10.0.{host}.1", PORT


class LprpCommons:
    """Shared by everybody in one town."""

    def __init__(
        self,
        schedule: Schedule,
        rng: random.Random,
        plan: LprpPlan,
        observe: Callable[[Any], None],
        make_client: MakeClient,
    ) -> None:
        """Put it together; whoever builds hosts and people adds them.

        Args:
            schedule: The clock.
            rng: Source of the network's faults.
            plan: What this seed does.
            observe: Gets every observation.
            make_client: Makes the clients of people.
        """
        self.schedule = schedule
        self.plan = plan
        self.observe = observe
        self.make_client = make_client
        self.network = Network(schedule, rng, plan.net)
        self.host_keys: list[PublicKey] = []
        self.tenants: list[tuple[PublicKey, int]] = []
        """Honest keys that hold, or want, a lease, and at which host."""
        self.requests: deque[Tapped] = deque(maxlen=TAPPED_MAX)
        """The last good requests that honest people got through to a host."""
        self.answers: deque[Tapped] = deque(maxlen=TAPPED_MAX)
        """The last datagrams that hosts sent."""
        self.hopes: dict[tuple[bytes, bytes], str] = {}
        """Packets that must arrive after the faults have ended, by recipient and signature, and what to say if not."""
        self.troubled = True
        """False once the faults have ended: nobody misbehaves any more."""

    def wall_ms(self, offset_ms: int = 0) -> int:
        """Return milliseconds since the Unix epoch by a clock that is so much ahead of the right one."""
        return (WALL_START_US + self.schedule.now) // _MICROSECONDS_PER_MS + offset_ms

    def made(self, data: bytes) -> None:
        """Note a 102 that somebody signed, whoever hands it in; the same one again is fine."""
        packet = read_packet(data)
        if packet is not None and packet.command == 0x102 and packet.is_signed_by(packet.sender):
            self.observe(Made(packet.signature, data))
