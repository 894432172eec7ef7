"""Drives one sans-IO client machine over a simulated stream or datagram socket, and runs the machine's timer.

Simulated clients of all protocols have one. The owner gives the machine a command and then calls ``settle``, which
sends the machine's output. The ``on_turn`` callback signals that events may be waiting. A stream connection ends once:
by the machine, by the node, or by ``hang_up``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from waystation.core.effects import Address, Close, Peer, Send
from waystation.core.machine import Machine
from waystation.sim.net.link import End, LinkSettings
from waystation.sim.net.network import Network
from waystation.sim.schedule import Schedule
from waystation.sim.timer import Timer
from waystation.sim.world import World

__all__ = ["DatagramDriver", "Driver", "MachineDriver"]

_PEER: Final = Peer(1)  # a client machine has one connection

M = TypeVar("M", bound=Machine)
AfterTurn = Callable[[bool], None]


class MachineDriver(ABC, Generic[M]):
    """Drives one client machine; how its bytes travel is left to ``Driver`` and ``DatagramDriver``."""

    def __init__(self, schedule: Schedule, machine: M, on_turn: Callable[[], None]) -> None:
        """Bind a machine to the clock; the subclass connects it.

        Args:
            schedule: The clock.
            machine: Used for this connection.
            on_turn: Called after every input and ``settle``, while the connection lives and once when it ends.
        """
        self.machine = machine
        self._schedule = schedule
        self._on_turn = on_turn
        self._timer = Timer(schedule, self._on_timer)
        self.is_over = False
        """True once the connection has ended."""

    def settle(self, then: AfterTurn | None = None) -> None:
        """Carry out what the machine wants, and let the owner take its events; after every command.

        Args:
            then: Called when the node has read the last byte that this call sent, and has had its turn; never, when it
                does not read it. The argument says whether the connection still stood after that turn: only then
                is it certain that the node did not close it before it came to these bytes.
        """
        if self.is_over:
            return
        while effects := self.machine.take():  # what leaves at once may let the machine send more
            closed_for = next((effect.reason.value for effect in effects if isinstance(effect, Close)), None)
            self._send([effect for effect in effects if isinstance(effect, Send)], then)
            then = None
            if closed_for is not None:
                self._close()
                self._end(closed_for)
                return
        self._arm_timer()
        self._on_turn()

    def _received(self, data: bytes) -> None:
        self.machine.receive(_PEER, data, self._schedule.now)
        self.settle()

    @abstractmethod
    def _send(self, sends: list[Send], then: AfterTurn | None) -> None:
        """Hand over what the machine sends."""

    @abstractmethod
    def _close(self) -> None:
        """Close what carries the bytes."""

    def _end(self, reason: str) -> None:  # noqa: ARG002 - the reason is for those that have an owner to notify
        self.is_over = True
        self._timer.cancel()

    def _arm_timer(self) -> None:
        self._timer.ring_by(self.machine.deadline())

    def _on_timer(self) -> None:
        self.machine.wake(self._schedule.now)
        self.settle()


class Driver(MachineDriver[M], End):
    """Drives one client machine over one simulated stream."""

    def __init__(
        self,
        world: World,
        protocol: str,
        host: str,
        machine: M,
        settings: LinkSettings,
        on_turn: Callable[[], None],
        on_end: Callable[[str], None],
        *,
        on_frame: Callable[[bytes], None] = lambda _data: None,
        on_sent: Callable[[bytes], None] = lambda _data: None,
        turn_slack_us: int = 0,
    ) -> None:
        """Dial; the machine is connected at once and waits for the node's first bytes.

        Args:
            world: Where to dial.
            protocol: What to speak.
            host: The client's address.
            machine: Used for this connection; it may have had others before.
            settings: What the connection is like.
            on_turn: As in ``MachineDriver``.
            on_end: Called once with the reason: "peer" when the other side ended it, "self" after ``hang_up``, or
                the value of the machine's refusal.
            on_frame: Gets what arrives before the machine sees it.
            on_sent: Gets what the machine sends, piece by piece.
            turn_slack_us: How much later than the node's turn ``then`` of ``settle`` is called, in microseconds.
        """
        super().__init__(world.schedule, machine, on_turn)
        self._turn_us = world.settings.turn_delay_us + turn_slack_us
        self._is_framed = settings.framed
        self._on_end = on_end
        self._on_frame = on_frame
        self._on_sent = on_sent
        self.port = world.dial(protocol, host, self, settings)
        machine.connect(_PEER, world.schedule.now)
        self._arm_timer()

    @property
    def faulted(self) -> bool:
        """Whether the link of this connection ever misbehaved."""
        return self.port.stream.faulted

    def hang_up(self, *, abort: bool = False) -> None:
        """End the connection from this side; with ``abort`` what is under way is lost."""
        if not self.is_over:
            (self.port.abort if abort else self.port.close)()
            self._end("self")

    def stop_reading(self, duration_us: int) -> None:
        """Let everything that arrives wait for a while."""
        self.port.pause()
        self._schedule.after(duration_us, self.port.resume)

    def inject(self, data: bytes) -> None:
        """Hand bytes to the machine that the node has not sent, as a node does that lies."""
        if not self.is_over:
            self._received(data)

    # What the port reports

    def received(self, data: bytes) -> None:
        """Hand bytes to the machine."""
        if not self.is_over:
            self._on_frame(data)
            self._received(data)

    def congested(self) -> None:
        """Notify the machine."""
        self.machine.congested(_PEER, self._schedule.now)

    def drained(self) -> None:
        """Notify the machine."""
        self.machine.drained(_PEER, self._schedule.now)
        self._arm_timer()

    def ended(self) -> None:
        """Notify the machine and the owner."""
        if not self.is_over:
            self._end("peer")

    def _send(self, sends: list[Send], then: AfterTurn | None) -> None:
        pieces = [effect.data for effect in sends]
        if pieces and not self._is_framed:
            pieces = [b"".join(pieces)]
        for data in pieces:
            self._on_sent(data)
            is_last = data is pieces[-1]
            self.port.write(data, self._after_turn(then) if is_last and then is not None else None)
        if any(effect.receipt for effect in sends) and not self.port.waits:
            self.machine.drained(_PEER, self._schedule.now)

    def _close(self) -> None:
        self.port.close()

    def _end(self, reason: str) -> None:
        super()._end(reason)
        self.machine.disconnect(_PEER, self._schedule.now)  # a machine that closed ignores it
        self.machine.take()
        self._on_turn()
        self._on_end(reason)

    def _after_turn(self, then: AfterTurn) -> Callable[[], None]:
        node_port = self.port.stream.node

        def plan() -> None:
            self._schedule.after(self._turn_us, lambda: then(node_port.is_open))

        return plan


class DatagramDriver(MachineDriver[M]):
    """Drives one client machine over a socket that is connected to one address."""

    def __init__(
        self,
        schedule: Schedule,
        network: Network,
        addresses: tuple[Address, Address],
        machine: M,
        on_turn: Callable[[], None],
        on_sent: Callable[[bytes], None],
    ) -> None:
        """Bind a socket; the machine is connected at once.

        Args:
            schedule: The clock.
            network: Carries the datagrams.
            addresses: This side's and the other's.
            machine: Used until ``close``.
            on_turn: As in ``MachineDriver``.
            on_sent: Gets every datagram that the machine sends.
        """
        super().__init__(schedule, machine, on_turn)
        self._network = network
        self._address, self._peer_address = addresses
        self._on_sent = on_sent
        self._is_suspended = False
        network.bind(self._address, self._on_datagram)
        machine.connect(_PEER, schedule.now)

    def settle(self, then: AfterTurn | None = None) -> None:
        """Carry out what the machine wants, unless it is suspended; see ``MachineDriver``."""
        if not self._is_suspended:
            super().settle(then)

    def close(self) -> None:
        """Close the socket and forget the machine."""
        self._close()
        self._end("self")

    def move(self, address: Address) -> None:
        """Have another address from now on."""
        self._close()
        self._address = address
        if not self._is_suspended:
            self._network.bind(address, self._on_datagram)

    def suspend(self) -> None:
        """Receive nothing and do nothing, as a host that sleeps."""
        self._is_suspended = True
        self._timer.cancel()
        self._close()

    def resume(self) -> None:
        """Go on after ``suspend``."""
        self._is_suspended = False
        self._network.bind(self._address, self._on_datagram)
        self._on_timer()

    def _on_datagram(self, data: bytes, address: Address) -> None:
        """Pass on what claims to come from the other address, as a connected socket does."""
        if address == self._peer_address and not self.is_over:
            self._received(data)

    def _send(self, sends: list[Send], then: AfterTurn | None) -> None:
        assert then is None, "nobody knows when a datagram is read"
        for effect in sends:
            self._on_sent(effect.data)
            self._network.send(self._address, self._peer_address, effect.data)

    def _close(self) -> None:
        self._network.unbind(self._address)
