"""Simulated owners of mailboxes at MERK nodes: they stay away, somebody writes to them, and they come and read.

``MerkScenario`` starts them. Owner and writer are connected to the same node, so that what is kept does not depend on
links between nodes. The owner leaves at any moment, also between a frame and its TAKEN, and its program may end before
it takes what has arrived. What it takes it reports to the writer in a receipt, which the writer's client counts. Their
relay lies to both as the plan has it.
"""

import random
from collections import Counter
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.aead_gcm import GCM_NONCE_BYTES
from waystation.protocols.merk.client.events import (
    Event,
    FrameOutcome,
    KeyFound,
    MailboxSaid,
    MessageArrived,
    MessageDropped,
    Ready,
    ReceiptArrived,
)
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import (
    KEY_BYTES,
    MESSAGE_ID_BYTES,
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
from waystation.protocols.merk.payload.contents import Extended, Receipt, Text
from waystation.protocols.merk.payload.sealing import Auth, Mode, Opened, encrypted_frame
from waystation.protocols.merk.wire import decode_info_frame, frame_hash, make_presence, read_head
from waystation.sim.chance import fork, spread
from waystation.sim.merk import observations as seen
from waystation.sim.merk.context import MerkContext
from waystation.sim.merk.line import Line
from waystation.sim.merk.lying_relay import LyingRelay

__all__ = ["MailOwner"]

AWAY_US: Final = 4 * MICROSECONDS_PER_SECOND
VISITS_US: Final = (2 * MICROSECONDS_PER_SECOND, 2 * MICROSECONDS_PER_SECOND, 2_000)  # some end with mail on its way
WRITE_US: Final = 2 * MICROSECONDS_PER_SECOND
LIE_US: Final = 2 * MICROSECONDS_PER_SECOND
RETRY_US: Final = MICROSECONDS_PER_SECOND // 2
WORD_MS: Final = 86_400_000
UNREAD_CHANCE: Final = 0.2  # of a frame that arrives, and whose program ends before it takes it
UNSAID_CHANCE: Final = 0.3  # of a frame that is read, and whose TAKEN is not said at this visit
HOSTILE_ORIGINS: Final = ("client", "peer", "resigned")
_SUBTYPE_AT: Final = 120


class MailOwner:
    """Somebody with a mailbox, and who writes to it."""

    def __init__(self, context: MerkContext, rng: random.Random, host: str, writer_host: str) -> None:
        """Draw identities and a node; ``start`` lets them come from these addresses."""
        self._context, self._rng = context, rng
        self._node = rng.randrange(context.plan.nodes)
        self._owner = Line(context, rng, host, self._node, self._look, self._read, self._left)
        self._writer = Line(context, rng, writer_host, self._node, self._on_report, self._on_news, self._writer_left)
        self.key: bytes = self._owner.keys.signing.public
        self._relay = LyingRelay(context, fork(rng), self._writer.keys, self._owner.keys)
        self._reads = context.make_reads()
        self._agreement_key = b""
        self._letters: dict[bytes, bytes] = {}
        """Names of frames by message id."""
        self.outcomes: Counter[str] = Counter()
        self._is_open = self._is_visiting = self._stays = self._is_leaving = False

    def start(self) -> None:
        """Come, and be written to."""
        self._owner.come()
        self._writer.come()
        self._write()
        self._lie()

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
        context, name = self._context, frame_hash(data)
        # What a hostile node has made it may send again itself.
        if read_head(data)[0] == MessageType.ENCRYPTED_DATA and context.origin_of(name) not in HOSTILE_ORIGINS:
            context.observe(seen.MailGiven(self.key, name, context.worlds[self._node].life))

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
            self._on_letter(event.opened)
        elif isinstance(event, MessageDropped) and event.frame_hash:
            self._take(event.frame_hash)

    def _on_letter(self, opened: Opened) -> None:
        """Have the program take a message, unless it ends before, and report that to its sender."""
        rng, context = self._rng, self._context
        if not self._stays and rng.random() < UNREAD_CHANCE:
            self._owner.seen.not_taken(opened.sender, opened.message_id)
            return
        if opened.mode is not Mode.PLAIN:  # the same plain words may be meant twice
            context.observe(seen.MailRead(self.key, opened.frame_hash))
        if opened.sender == self._writer.keys.signing.public:
            is_theirs = opened.frame_hash in self._letters.values()
            is_plain = opened.mode is Mode.PLAIN
            taken = seen.Taken(self.key, opened.frame_hash, opened.auth.value, is_theirs, is_plain, is_aimed=True)
            context.observe(taken)
        if opened.mode is Mode.ENCRYPTED and opened.auth is Auth.BOUND:
            self._send_receipt(opened)
        if self._stays or rng.random() >= UNSAID_CHANCE:
            self._take(opened.frame_hash)

    def _send_receipt(self, opened: Opened) -> None:
        context, driver, keys = self._context, self._owner.driver, self._owner.keys
        agreement_key = context.agreement_keys.get(opened.sender)
        if driver is None or agreement_key is None:
            return
        frame = self._seal(keys, opened.sender, agreement_key, Receipt((opened.message_id,)))[0]
        context.make(frame)
        context.receipts.append(frame)
        context.note_sent(opened.sender, len(frame))
        driver.machine.send_frame(frame, context.schedule.now)
        driver.settle()

    def _seal(self, keys: Keys, target: bytes, agreement_key: bytes, content: Text | Receipt) -> tuple[bytes, bytes]:
        """Return a frame in the bound form, and its message id."""
        rng = self._rng
        message_id = rng.randbytes(MESSAGE_ID_BYTES)
        frame = encrypted_frame(
            keys.signing,
            target,
            agreement_key,
            Extended(self._context.wall_ms(), message_id, content),
            ephemeral_secret=rng.randbytes(KEY_BYTES),
            nonce=rng.randbytes(GCM_NONCE_BYTES),
        )
        return frame, message_id

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
        if not self._agreement_key:
            driver.machine.ask_key(self.key, context.schedule.now)
            driver.settle()
            self._writer.lie(self._relay.answers())
            return
        letter = Text(f"letter {len(self._letters)}")
        frame, message_id = self._seal(self._writer.keys, self.key, self._agreement_key, letter)
        self._letters[message_id] = frame_hash(frame)
        self._reads.sent(self.key, message_id)
        context.message_ids.append(message_id)
        context.note_sent(self.key, len(frame))
        driver.machine.send_frame(frame, context.schedule.now)
        driver.settle()
        self._relay.sees(frame)

    def _on_news(self, event: Event) -> None:
        """Note what the writer's machine reports."""
        if isinstance(event, Ready):
            self._agreement_key = b""  # asked for anew on each connection
        elif isinstance(event, KeyFound):
            self._agreement_key = event.advert.agreement_key
        elif isinstance(event, FrameOutcome) and event.code is DeliveryCode.STORED:
            ids = (message_id for message_id, name in self._letters.items() if name == event.frame_hash)
            self._reads.stored(self.key, next(ids), self._context.wall_ms())
        elif isinstance(event, ReceiptArrived):
            self._reads.receipt(event)
        elif isinstance(event, MessageDropped):
            self.outcomes[f"dropped_{event.refusal.value}"] += 1
        for recipient, message_id in self._reads.take():
            self._context.observe(seen.ReadReported(recipient, self._letters[message_id]))
            self.outcomes["read"] += 1

    def _lie(self) -> None:
        if self._is_leaving or not self._context.in_fault_phase:
            return
        self._context.schedule.after(spread(self._rng, LIE_US), self._lie)
        self._writer.lie(self._relay.to_writer())
        self._owner.lie(self._relay.to_owner())

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
