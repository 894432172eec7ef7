"""A Strata client's half of a connection: the client machine, its port, and its timer.

The machine belongs to its actor and outlives the connection; a ``Line`` is one connection of it. Everything the machine
tells goes to the actor in order, and so does every frame in both directions, for those who look at the wire itself.
"""

from typing import Protocol

from waystation.protocols.strata.client import StrataClient
from waystation.protocols.strata.client_events import CloseConnection, Event
from waystation.sim.link import LinkSettings
from waystation.sim.strata_commons import PROTOCOL, StrataCommons
from waystation.sim.timer import Timer
from waystation.sim.world import World

__all__ = ["Line", "Owner"]


class Owner(Protocol):
    """What a line reports to."""

    def on_frame(self, data: bytes) -> None:
        """A message arrived, before the machine sees it."""

    def on_sent(self, data: bytes) -> None:
        """The machine sent a message."""

    def on_event(self, event: Event) -> None:
        """The machine told something; commands may be given at once."""

    def on_end(self) -> None:
        """The connection is over; last call of this line."""


class Line:
    """One connection of one client machine."""

    def __init__(
        self, commons: StrataCommons, world: World, host: str, client: StrataClient, link: LinkSettings, owner: Owner
    ) -> None:
        """Dial; the machine is told at once, what it sends waits for the relay."""
        self.number = commons.next_line()
        self._commons = commons
        self._schedule = commons.schedule
        self._client = client
        self._owner = owner
        self._settling = False
        self._timer = Timer(commons.schedule, self._on_timer)
        self.is_over = False
        self.port = world.dial(PROTOCOL, host, self, link)
        client.opened(self._schedule.now, commons.wall_s)

    def settle(self) -> None:
        """Carry out what the machine wants and tell the owner the rest; after every command."""
        if self._settling:
            return
        self._settling = True
        while outputs := self._client.take():
            for output in outputs:
                if isinstance(output, bytes):
                    if not self.is_over:
                        self._owner.on_sent(output)
                        self.port.write(output)
                elif isinstance(output, CloseConnection):
                    self._schedule.after(0, self.hang_up)
                else:
                    self._owner.on_event(output)
        self._settling = False
        self._arm_timer()

    def hang_up(self, *, abort: bool = False) -> None:
        """End the connection from this side; with ``abort`` what is under way is lost."""
        if not self.is_over:
            (self.port.abort if abort else self.port.close)()
            self._end()

    def read_nothing(self, duration_us: int) -> None:
        """Let everything that arrives wait for a while."""
        self.port.pause()
        self._schedule.after(duration_us, self.port.resume)

    # What the port reports

    def received(self, data: bytes) -> None:
        """Hand a message on."""
        if not self.is_over:
            self._owner.on_frame(data)
            self._client.receive(data, self._schedule.now, self._commons.wall_s)
            self.settle()

    def congested(self) -> None:
        """Clients send little enough to let it wait."""

    def drained(self) -> None:
        """As above."""

    def ended(self) -> None:
        """The relay ended the connection."""
        if not self.is_over:
            self._end()

    def _end(self) -> None:
        self.is_over = True
        self._timer.cancel()
        self._client.closed(self._schedule.now)
        self.settle()
        self._owner.on_end()

    def _arm_timer(self) -> None:
        if not self.is_over:
            self._timer.ring_by(self._client.deadline())

    def _on_timer(self) -> None:
        self._client.wake(self._schedule.now)
        self.settle()
