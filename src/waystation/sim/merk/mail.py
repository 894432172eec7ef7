"""Simulated owners of mailboxes at MERK nodes: they stay away, somebody writes to them, and they come and read.

``MerkScenario`` starts them. Owner and writer are connected to the same node, so that what is kept does not depend on
links between nodes. The owner leaves at any moment, also between a frame and its TAKEN.
"""

import random
from collections.abc import Callable
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.protocols.merk.client.events import (
    Event,
    MailboxSaid,
    MessageArrived,
    MessageDropped,
    Ready,
)
from waystation.protocols.merk.client.machine import MerkClient
from waystation.protocols.merk.client.seen_messages import SeenMessages
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import (
    KEY_BYTES,
    Delivery,
    DeliveryCode,
    InfoType,
    MailboxState,
    MailFetch,
    MailOpen,
    MailTaken,
    MessageType,
    PresenceKind,
)
from waystation.protocols.merk.payload.contents import Text
from waystation.protocols.merk.payload.sealing import Mode, encrypted_frame
from waystation.protocols.merk.wire import decode_info_frame, frame_hash, make_presence, read_head
from waystation.sim.chance import spread
from waystation.sim.driver import Driver
from waystation.sim.merk import observations as seen
from waystation.sim.merk.context import PROTOCOL, MerkContext

__all__ = ["MailOwner"]

AWAY_US: Final = 4 * MICROSECONDS_PER_SECOND
VISITS_US: Final = (2 * MICROSECONDS_PER_SECOND, 2 * MICROSECONDS_PER_SECOND, 2_000)  # some end with mail on its way
WRITE_US: Final = 2 * MICROSECONDS_PER_SECOND
RETRY_US: Final = MICROSECONDS_PER_SECOND // 2
WORD_MS: Final = 86_400_000
UNSAID_CHANCE: Final = 0.3  # of a frame that is read, and whose TAKEN is not said at this visit
_NONCE_BYTES: Final = 12
_SUBTYPE_AT: Final = 120


class _Line:
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
        self._context, self._rng, self._host, self._node = context, rng, host, node
        self.keys = Keys.generate(rng)
        self._on_frame, self._on_event, self._on_end = on_frame, on_event, on_end
        self._seen = SeenMessages()
        self.driver: Driver[MerkClient] | None = None
        context.agreement_keys[self.keys.signing.public] = self.keys.agreement_public

    def come(self) -> None:
        """Connect, unless it is connected."""
        context = self._context
        if self.driver is not None:
            return
        machine = context.make_client(self.keys, self._rng, seen=self._seen)
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

    def _turn(self) -> None:
        if self.driver is not None and (events := self.driver.machine.take_events()):
            for event in events:
                self._on_event(event)
            if self.driver is not None:
                self.driver.settle()

    def _over(self, _reason: str) -> None:
        self.driver = None
        self._on_end()


class MailOwner:
    """Somebody with a mailbox, and who writes to it."""

    def __init__(self, context: MerkContext, rng: random.Random, host: str, writer_host: str) -> None:
        """Draw identities and a node; ``start`` lets them come from these addresses."""
        self._context, self._rng = context, rng
        self._node = rng.randrange(context.plan.nodes)
        self._owner = _Line(context, rng, host, self._node, self._look, self._read, self._left)
        self._writer = _Line(
            context, rng, writer_host, self._node, self._on_report, lambda _event: None, self._writer_left
        )
        self.key: bytes = self._owner.keys.signing.public
        self._written = 0
        self._is_open = self._is_visiting = self._stays = self._is_leaving = False

    def start(self) -> None:
        """Come, and be written to."""
        self._owner.come()
        self._writer.come()
        self._write()

    def quiesce(self) -> None:
        """Come to stay, and take everything."""
        self._stays = True
        for line in (self._owner, self._writer):
            if line.driver is not None and line.driver.faulted:
                line.driver.port.stream.break_off()
        # What is untaken of this visit is given again at the next one.
        self._owner.go()

    def leave(self) -> None:
        """Go for good: what was called stored must have been read."""
        self._is_leaving = True
        self._context.observe(seen.MailDue(self.key))
        self._owner.go()
        self._writer.go()

    # The owner

    def _look(self, data: bytes) -> None:
        if read_head(data)[0] == MessageType.ENCRYPTED_DATA:
            life = self._context.worlds[self._node].life
            self._context.observe(seen.MailGiven(self.key, frame_hash(data), life))

    def _read(self, event: Event) -> None:
        context, driver = self._context, self._owner.driver
        assert driver is not None
        machine, now_ms = driver.machine, context.wall_ms()
        if isinstance(event, Ready):
            machine.advertise(context.schedule.now, now_ms)
            signing, node_key = self._owner.keys.signing, context.node_keys[self._node]
            word = make_presence(signing, PresenceKind.MAILBOX, node_key, now_ms, now_ms + WORD_MS)
            machine.say_mail(MailOpen(word))
        elif isinstance(event, MailboxSaid):
            if event.state is MailboxState.OPEN and not self._is_visiting:
                self._is_visiting = self._is_open = True
                machine.say_mail(MailFetch())
                if not self._stays:
                    context.schedule.after(spread(self._rng, self._rng.choice(VISITS_US)), self._go)
        elif isinstance(event, MessageArrived):
            # A mailbox keeps what is encrypted; who signs plain bytes anew may say them twice.
            if event.opened.mode is Mode.ENCRYPTED:
                context.observe(seen.MailRead(self.key, event.opened.frame_hash))
            if self._stays or self._rng.random() >= UNSAID_CHANCE:
                self._take(event.opened.frame_hash)
        elif isinstance(event, MessageDropped) and event.frame_hash:
            self._take(event.frame_hash)

    def _take(self, name: bytes) -> None:
        driver, context = self._owner.driver, self._context
        assert driver is not None
        driver.machine.say_mail(MailTaken((name,)))
        life = context.worlds[self._node].life
        driver.settle(lambda stood: context.observe(seen.MailTaken(self.key, name, life)) if stood else None)

    def _go(self) -> None:
        if not self._stays:
            self._owner.go()

    def _left(self) -> None:
        self._is_visiting = False
        if not self._is_leaving:
            away_us = RETRY_US if self._stays else spread(self._rng, AWAY_US)
            self._context.schedule.after(away_us, self._come)

    def _come(self) -> None:
        if not self._is_leaving:
            self._owner.come()

    # The writer

    def _write(self) -> None:
        context, rng, driver = self._context, self._rng, self._writer.driver
        if self._is_leaving or not context.in_fault_phase:
            return
        context.schedule.after(spread(rng, WRITE_US), self._write)
        if not self._is_open or driver is None or not driver.machine.is_ready:
            return
        self._written += 1
        frame = encrypted_frame(
            self._writer.keys.signing,
            self.key,
            self._owner.keys.agreement_public,
            Text(f"letter {self._written}"),
            ephemeral_secret=rng.randbytes(KEY_BYTES),
            nonce=rng.randbytes(_NONCE_BYTES),
        )
        context.note_sent(self.key, len(frame))
        driver.machine.send_frame(frame, context.schedule.now)
        driver.settle()

    def _on_report(self, data: bytes) -> None:
        if read_head(data)[0] == MessageType.NODE_INFO and data[_SUBTYPE_AT] >= InfoType.HELLO:
            info = decode_info_frame(data)
            if isinstance(info, Delivery) and info.code == DeliveryCode.STORED:
                self._context.observe(seen.MailStored(self.key, info.frame_hash))

    def _writer_left(self) -> None:
        if not self._is_leaving:
            self._context.schedule.after(RETRY_US, self._return)

    def _return(self) -> None:
        if not self._is_leaving:
            self._writer.come()
