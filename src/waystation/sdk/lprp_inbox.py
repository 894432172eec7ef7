"""From packets to messages that nobody loses: opened, put together, on the disk before the host may forget them.

Packets that arrive in one turn of the loop are kept in one transaction, and a message is put together in that of its
last part; then all of them are confirmed. A packet that cannot be kept is handed back: the host sends it again.

What is sealed and holds a fragment of ours is a message, or a part of one. What is sealed otherwise is a message by
itself, and so is a packet that nobody has sealed.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Final, NamedTuple

from waystation.core.errors import HostError
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.fragments import MESSAGE_ID_BYTES, read_fragment
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, Packet
from waystation.protocols.lprp.sealing import open_once, open_reused
from waystation.sdk.lprp_mail import Mail
from waystation.sdk.lprp_message import Message
from waystation.sdk.lprp_state import LprpState

__all__ = ["Inbox", "open_payload"]

BATCH_MAX: Final = 64  # packets kept before the loop may do something else: 10 ms of opening seals


class _Opened(NamedTuple):
    """What a packet has come to: a message that it has completed, or nothing yet."""

    message_id: bytes = b""
    sealed: bool = True
    body: bytes | None = None
    """None while parts are missing, and for what was whole before."""


class Inbox:
    """Keeps what arrives and hands it out, each message until it is done."""

    def __init__(
        self,
        state: LprpState,
        mail: Mail,
        *,
        life_ms: int,
        confirm: Callable[[list[bytes]], None],
        hand_back: Callable[[list[bytes]], None],
    ) -> None:
        """Begin with what the folder holds.

        Args:
            state: The folder.
            mail: Its mail.
            life_ms: How old a packet may be, at most, and still be taken.
            confirm: Told the signatures of packets that are kept.
            hand_back: Told the signatures of those that are not.
        """
        self._state = state
        self._mail = mail
        self._life_ms = life_ms
        self._confirm = confirm
        self._hand_back = hand_back
        self._key_pair: KeyPair = state.key_pair
        self._arrived: deque[Packet] = deque()
        self._complete()
        self._positions = deque(mail.positions())
        self._changed = asyncio.Event()
        self._over = False
        self._failure: BaseException | None = None
        self._storing: asyncio.Handle | None = None

    @property
    def waiting_count(self) -> int:
        """How many messages wait for the program, or are with it and not done."""
        return self._mail.waiting_count

    def take(self, packet: Packet) -> None:
        """Take a packet that the machine has checked."""
        self._arrived.append(packet)
        if self._storing is None:
            self._storing = asyncio.get_running_loop().call_soon(self._store)

    async def messages(self) -> AsyncGenerator[Message, None]:
        """Yield messages, oldest first, until the end; the one before is done when the next is asked for.

        A loop that is left, by ``break`` or by an error, has not done the message that it was at: it comes again.

        Raises:
            HostError: Nothing can be kept any more.
        """
        while True:
            while self._positions:
                position = self._positions.popleft()
                message = Message(self._mail.message(position), lambda done: self._mail.finish(done.stored))
                try:
                    yield message
                except BaseException:
                    if not message.is_done:
                        self._positions.appendleft(position)
                        self._changed.set()
                    raise
                await message.done()
            if self._failure is not None:
                raise self._failure
            if self._over:
                return
            self._changed.clear()
            await self._changed.wait()

    def end(self, failure: BaseException | None = None) -> None:
        """End the iteration behind what is kept, with ``failure`` if there is one; what was not kept is forgotten."""
        self._over = True
        self._failure = failure
        self._arrived.clear()
        if self._storing is not None:
            self._storing.cancel()
            self._storing = None
        self._changed.set()

    def _complete(self) -> None:
        """Put into the mailbox what is whole and not there, whatever has kept it away."""
        put: list[bytes] = []
        with self._state.transaction():
            for sender, message_id, touched_ms, body in self._mail.parts.whole():
                if self._mail.put_message(sender, message_id, touched_ms, sealed=True, body=body) is not None:
                    put.append(body)
        for body in put:
            self._mail.count(body)

    def _store(self) -> None:
        """Keep what has arrived, a batch at a time."""
        self._storing = None
        batch = [self._arrived.popleft() for _ in range(min(BATCH_MAX, len(self._arrived)))]
        kept: list[bytes] = []
        if not self._mail.full:
            try:
                kept = self._keep(batch)
                self._mail.tidy_if_much_is_new()
            except HostError as error:
                self._hand_back([packet.signature for packet in batch])
                self.end(error)
                return
            self._confirm(kept)
        known = set(kept)
        self._hand_back([packet.signature for packet in batch if packet.signature not in known])
        if self._arrived:
            self._storing = asyncio.get_running_loop().call_soon(self._store)

    def _keep(self, batch: list[Packet]) -> list[bytes]:
        """Keep packets and return the signatures of those that there was room for."""
        kept: list[bytes] = []
        messages: list[tuple[int, bytes]] = []
        with self._state.transaction():
            for packet in batch:
                opened = self._look_into(packet)
                if opened is None:
                    continue
                kept.append(packet.signature)
                self._mail.see(packet.signature, packet.time_ms + self._life_ms + CLOCK_WINDOW_MS)
                if opened.body is not None:
                    position = self._mail.put_message(
                        packet.sender, opened.message_id, packet.time_ms, sealed=opened.sealed, body=opened.body
                    )
                    if position is not None:
                        messages.append((position, opened.body))
        for position, body in messages:
            self._mail.count(body)
            self._positions.append(position)
        if messages:
            self._changed.set()
        return kept

    def _look_into(self, packet: Packet) -> _Opened | None:
        """Open a packet and keep what is a part; None when there is no room for one more."""
        opened = open_payload(packet, self._key_pair)
        by_itself = packet.signature[:MESSAGE_ID_BYTES]
        if opened is None:
            return _Opened(by_itself, sealed=False, body=packet.payload)
        part = read_fragment(opened)
        if part is None:
            return _Opened(by_itself, body=opened)
        if self._mail.is_finished(packet.sender, part.message_id):
            return _Opened()
        if part.count == 1:
            return _Opened(part.message_id, body=part.body)
        if not self._mail.parts.make_room(packet.sender, part):
            return None
        return _Opened(part.message_id, body=self._mail.parts.put(packet.sender, part))


def open_payload(packet: Packet, key_pair: KeyPair) -> bytes | None:
    """Return what a packet's sender has sealed for ``key_pair``, in either way; None when it is not sealed."""
    opened = open_once(packet.payload, packet.sender, key_pair)
    return opened if opened is not None else open_reused(packet.payload, packet.sender, key_pair)
