"""One identity of a simulated MERK scenario at one node: its client machine while it is connected, its replay memory.

``MailOwner`` has two, for the owner of a mailbox and for who writes to it.
"""

import random
from collections.abc import Callable

from waystation.protocols.merk.client.events import Event
from waystation.protocols.merk.client.machine import MerkClient
from waystation.protocols.merk.client.seen_messages import SeenMessages
from waystation.protocols.merk.keys import Keys
from waystation.sim.driver import Driver
from waystation.sim.merk.context import PROTOCOL, MerkContext

__all__ = ["Line"]


class Line:
    """One identity, which is connected or not."""

    def __init__(
        self,
        context: MerkContext,
        rng: random.Random,
        host: str,
        node: int,
        on_frame: Callable[[bytes], None],
        on_event: Callable[[Event], None],
        on_end: Callable[[], None],
    ) -> None:
        """Draw an identity; ``come`` connects it.

        Args:
            context: The world.
            rng: Source of its keys.
            host: Its address.
            node: Where it connects.
            on_frame: Gets what the node sends.
            on_event: Gets what the machine makes of it.
            on_end: Called when a connection has ended.
        """
        self._context, self._rng, self._host, self._node = context, rng, host, node
        self.keys = Keys.generate(rng)
        self._on_frame, self._on_event, self._on_end = on_frame, on_event, on_end
        self.seen = SeenMessages()
        self.driver: Driver[MerkClient] | None = None
        context.agreement_keys[self.keys.signing.public] = self.keys.agreement_public

    def come(self) -> None:
        """Connect, unless it is connected."""
        context = self._context
        if self.driver is not None:
            return
        machine = context.make_client(self.keys, self._rng, seen=self.seen)
        machine.set_wall(context.schedule.now, context.wall_ms() * 1_000)
        self.driver = Driver(
            context.worlds[self._node],
            PROTOCOL,
            self._host,
            machine,
            context.plan.link,
            self._turn,
            self._over,
            on_frame=self._on_frame,
            turn_slack_us=1,
        )
        self.driver.settle()

    def go(self) -> None:
        """End the connection, in either way."""
        if self.driver is not None:
            self.driver.hang_up(abort=self._rng.random() < 1 / 2)

    def lie(self, frames: list[bytes]) -> None:
        """Take frames that the node's relay has not made, as if it had."""
        for frame in frames:
            if self.driver is not None:
                self.driver.inject(frame)

    def _turn(self) -> None:
        if self.driver is not None and (events := self.driver.machine.take_events()):
            for event in events:
                self._on_event(event)
            if self.driver is not None:
                self.driver.settle()

    def _over(self, _reason: str) -> None:
        self.driver = None
        self._on_end()
