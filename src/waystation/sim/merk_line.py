"""One connection of a simulated MERK client: its machine, its port, its timer, and a look at the wire itself."""

from collections.abc import Callable
from typing import Final, Protocol

from waystation.core.effects import Close, Peer, Send
from waystation.protocols.merk.client import MerkClient
from waystation.protocols.merk.client_events import Event
from waystation.sim.link import LinkSettings
from waystation.sim.merk_commons import PROTOCOL, MerkCommons
from waystation.sim.timer import Timer

__all__ = ["Line", "Owner"]

_PEER: Final = Peer(1)  # a client machine has one connection


class Owner(Protocol):
    """What a line reports to."""

    def on_frame(self, line: "Line", data: bytes) -> None:
        """A message arrived, before the machine sees it."""

    def on_event(self, line: "Line", event: Event) -> None:
        """The machine told something; commands may be given at once."""

    def on_end(self, line: "Line") -> None:
        """The connection is over; last call of this line."""


class Line:
    """One connection of one client machine."""

    def __init__(
        self, commons: MerkCommons, node: int, host: str, machine: MerkClient, link: LinkSettings, owner: Owner
    ) -> None:
        """Dial a node; the machine is told at once, the node one latency later."""
        self.number = commons.next_line()
        self.node = node
        self.machine = machine
        self._schedule = commons.schedule
        self._turn_us = commons.plan.host.turn_delay_us
        self._owner = owner
        self._settling = False
        self._timer = Timer(commons.schedule, self._on_timer)
        self.is_over = False
        self.port = commons.worlds[node].dial(PROTOCOL, host, self, link)
        machine.connect(_PEER, commons.schedule.now)
        self._arm_timer()

    def settle(self, then: Callable[[bool], None] | None = None) -> None:
        """Carry out what the machine wants and tell the owner the rest; after every command.

        Args:
            then: Called when the node has read the last message that this call sends, and has had its turn, with
                whether the connection still stood after it; never, when the node does not read it.
        """
        if self._settling:
            return
        self._settling = True
        while True:
            effects, events = self.machine.take(), self.machine.take_events()
            if not effects and not events:
                break
            sends = [effect for effect in effects if isinstance(effect, Send)]
            for effect in sends:
                last = then is not None and effect is sends[-1]
                self.port.write(effect.data, self._after_turn(then) if last and then is not None else None)
            if any(effect.receipt for effect in sends) and not self.port.waits:
                self.machine.drained(_PEER, self._schedule.now)
            for event in events:
                self._owner.on_event(self, event)
            if any(isinstance(effect, Close) for effect in effects):
                self.port.close()
                self._schedule.after(0, self._end)
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
            self._owner.on_frame(self, data)
            self.machine.receive(_PEER, data, self._schedule.now)
            self.settle()

    def congested(self) -> None:
        """Tell the machine."""
        self.machine.congested(_PEER, self._schedule.now)

    def drained(self) -> None:
        """Tell the machine."""
        self.machine.drained(_PEER, self._schedule.now)
        self._arm_timer()

    def ended(self) -> None:
        """The other side ended the connection."""
        self._end()

    def _after_turn(self, then: Callable[[bool], None]) -> Callable[[], None]:
        node_port = self.port.stream.node

        def plan() -> None:
            # One microsecond behind the turn itself, which was planned before or is planned just now.
            self._schedule.after(self._turn_us + 1, lambda: then(node_port.is_open))

        return plan

    def _end(self) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._timer.cancel()
        self.machine.disconnect(_PEER, self._schedule.now)
        self.settle()
        self._owner.on_end(self)

    def _arm_timer(self) -> None:
        if not self.is_over:
            self._timer.ring_by(self.machine.deadline())

    def _on_timer(self) -> None:
        self.machine.wake(self._schedule.now)
        self.settle()
