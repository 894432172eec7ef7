"""The client's half of a connection: a client machine, its port, and its timer.

A ``Driver`` is to a client machine what the world is to the node. Whoever owns it gives the machine a command, calls
``settle``, and hears through ``on_turn`` that there may be events to take. It ends once, by the machine, by the
other side, or by ``hang_up``.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from waystation.core.effects import Close, Peer, Send
from waystation.core.machine import Machine
from waystation.sim.link import LinkSettings
from waystation.sim.timer import Timer
from waystation.sim.world import World

__all__ = ["Driver"]

_PEER: Final = Peer(1)  # a client machine has one connection

M = TypeVar("M", bound=Machine)


class Driver(Generic[M]):
    """Drives one client machine over one simulated connection."""

    def __init__(
        self,
        world: World,
        protocol: str,
        host: str,
        machine: M,
        settings: LinkSettings,
        on_turn: Callable[[], None],
        on_end: Callable[[str], None],
    ) -> None:
        """Dial; the machine is connected at once and waits for the node's first bytes.

        Args:
            world: Where to dial.
            protocol: What to speak.
            host: The client's address.
            machine: Used for this connection only.
            settings: What the connection is like.
            on_turn: Called after every input and ``settle``, while the connection lives and once when it ends.
            on_end: Called once with the reason: "peer" when the other side ended it, "self" after ``hang_up``, or
                the value of the machine's refusal.
        """
        self.machine = machine
        self._schedule = world.schedule
        self._turn_us = world.settings.turn_delay_us
        self._on_turn = on_turn
        self._on_end = on_end
        self._timer = Timer(world.schedule, self._on_timer)
        self.is_over = False
        """True once ``on_end`` was called."""
        self.port = world.dial(protocol, host, self, settings)
        machine.connect(_PEER, world.schedule.now)
        self._arm_timer()

    @property
    def faulted(self) -> bool:
        """Whether the link of this connection ever misbehaved."""
        return self.port.stream.faulted

    def settle(self, then: Callable[[bool], None] | None = None) -> None:
        """Carry out what the machine wants.

        Args:
            then: Called when the node has read the last byte that this call sent, and has had its turn; never, when it
                does not read it. The argument says whether the connection still stood after that turn: only then
                is it certain that the node did not close it before it came to these bytes.
        """
        if self.is_over:
            return
        effects = self.machine.take()
        closed_for = next((effect.reason.value for effect in effects if isinstance(effect, Close)), None)
        data = b"".join(effect.data for effect in effects if isinstance(effect, Send))
        if data:
            self.port.write(data, self._after_turn(then) if then is not None else None)
        if closed_for is not None:
            self.port.close()
            self._end(closed_for)
            return
        self._arm_timer()
        self._on_turn()

    def hang_up(self, *, abort: bool = False) -> None:
        """End the connection from this side; with ``abort`` what is under way is lost."""
        if self.is_over:
            return
        (self.port.abort if abort else self.port.close)()
        self.machine.disconnect(_PEER, self._schedule.now)
        self._end("self")

    # What the port reports

    def received(self, data: bytes) -> None:
        """Hand bytes to the machine."""
        self.machine.receive(_PEER, data, self._schedule.now)
        self.settle()

    def congested(self) -> None:
        """Tell the machine."""
        self.machine.congested(_PEER, self._schedule.now)

    def drained(self) -> None:
        """Tell the machine."""
        self.machine.drained(_PEER, self._schedule.now)

    def ended(self) -> None:
        """Tell the machine and the owner."""
        if not self.is_over:
            self.machine.disconnect(_PEER, self._schedule.now)
            self._end("peer")

    def _after_turn(self, then: Callable[[bool], None]) -> Callable[[], None]:
        node_port = self.port.stream.node

        def plan() -> None:
            self._schedule.after(self._turn_us, lambda: then(node_port.is_open))

        return plan

    def _end(self, reason: str) -> None:
        self.is_over = True
        self._timer.cancel()
        self._on_turn()
        self._on_end(reason)

    def _arm_timer(self) -> None:
        self._timer.ring_by(self.machine.deadline())

    def _on_timer(self) -> None:
        self.machine.wake(self._schedule.now)
        self.settle()
