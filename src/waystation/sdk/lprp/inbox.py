"""Decrypts, stores and reassembles received LPRP packets before confirming them, so that a crash loses no message.

``LprpTenant`` has one. Packets that arrive in one event-loop iteration are stored in one transaction, and then all of
them are confirmed. A message is assembled in the transaction of its last part. A packet that there is no room for is
rejected, and the host sends it again. What the disk refuses waits in memory, unconfirmed, until ``store`` is called.

A sealed packet with a fragment header is a message or a part of one. Any other packet, sealed or not, is one message.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Final

from waystation.core.errors import HostError
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, Packet
from waystation.protocols.lprp.payload.fragments import MESSAGE_ID_BYTES, read_fragment
from waystation.protocols.lprp.payload.sealing import open_any
from waystation.sdk.lprp.mail import Mail
from waystation.sdk.lprp.message import Message
from waystation.sdk.lprp.state import LprpState

__all__ = ["Inbox"]

BATCH_MAX: Final = 64  # packets kept before the loop may do something else: 10 ms of opening seals


class Inbox:
    """Keeps what arrives and hands it out, each message until it is done."""

    def __init__(
        self,
        state: LprpState,
        mail: Mail,
        *,
        confirm: Callable[[list[bytes]], None],
        hand_back: Callable[[list[bytes]], None],
        refused: Callable[[HostError], None],
    ) -> None:
        """Begin with what the folder holds.

        Args:
            state: The folder.
            mail: Its mail.
            confirm: Called with the signatures of packets that are kept.
            hand_back: Called with the signatures of those that there is no room for.
            refused: Called when the disk refuses; it takes writes again when a call of ``store`` returns.
        """
        self._state = state
        self._mail = mail
        self._confirm = confirm
        self._hand_back = hand_back
        self._refused = refused
        self._is_refused = False
        self._arrived: deque[Packet] = deque()
        with mail.transaction():  # what is whole and not in the mailbox, whatever has kept it away
            for sender, message_id, touched_ms, body in mail.parts.whole():
                mail.put_message(sender, message_id, touched_ms, sealed=True, body=body)
        self._positions = deque(mail.positions())
        self._changed = asyncio.Event()
        self._over = False
        self._failure: BaseException | None = None
        self._storing: asyncio.Handle | None = None

    def take(self, packet: Packet) -> None:
        """Take a packet that the machine has checked."""
        self._arrived.append(packet)
        if self._storing is None and not self._is_refused:
            self._storing = asyncio.get_running_loop().call_soon(self._store_some)

    async def messages(self) -> AsyncGenerator[Message, None]:
        """Yield messages, oldest first, until the end; the one before is done when the next is asked for.

        A loop that is left, by ``break`` or by an error, has not done the message that it was at: it comes again.

        A disk that refuses ends nothing: what cannot be read or noted as done waits for it.
        """
        while True:
            while self._positions and not self._is_refused:
                position = self._positions.popleft()
                try:
                    message = self._mail.message(position)
                except HostError as error:
                    self._positions.appendleft(position)
                    self._refuse(error)
                    continue
                try:
                    yield message
                except BaseException:
                    if not message.is_done:
                        self._positions.appendleft(position)
                        self._changed.set()
                    raise
                try:
                    await message.done()
                except HostError as error:
                    self._refuse(error)
            if self._failure is not None:
                raise self._failure
            if self._over:
                return
            self._changed.clear()
            await self._changed.wait()

    def end(self, failure: BaseException | None = None) -> None:
        """End the iteration after what is kept, with ``failure`` if there is one; what was not kept is forgotten."""
        self._over = True
        self._failure = failure
        self._arrived.clear()
        if self._storing is not None:
            self._storing.cancel()
            self._storing = None
        self._changed.set()

    def store(self) -> None:
        """Try to keep what waits for the disk; raises HostError when it still refuses."""
        self._is_refused = False
        try:
            self._store_batch()
        except HostError:
            self._is_refused = True
            raise
        self._changed.set()

    def _refuse(self, error: HostError) -> None:
        self._is_refused = True
        self._refused(error)

    def _store_some(self) -> None:
        """Keep what has arrived, a batch at a time."""
        self._storing = None
        try:
            self._store_batch()
        except HostError as error:
            self._refuse(error)

    def _store_batch(self) -> None:
        batch = [self._arrived.popleft() for _ in range(min(BATCH_MAX, len(self._arrived)))]
        kept: list[bytes] = []
        if batch and not self._mail.full and self._failure is None:
            try:
                kept = self._keep(batch)
                self._mail.tidy_if_much_is_new()
            except HostError:
                self._arrived.extendleft(reversed(batch))
                raise
            self._confirm(kept)
        known = set(kept)
        self._hand_back([packet.signature for packet in batch if packet.signature not in known])
        if self._arrived:
            self._storing = asyncio.get_running_loop().call_soon(self._store_some)

    def _keep(self, batch: list[Packet]) -> list[bytes]:
        """Keep packets and return the signatures of those that there was room for."""
        kept: list[bytes] = []
        positions: list[int] = []
        with self._mail.transaction():
            for packet in batch:
                if self._keep_one(packet, positions):
                    kept.append(packet.signature)
                    self._mail.see(packet.signature, packet.time_ms + self._mail.life_ms + CLOCK_WINDOW_MS)
        self._positions.extend(positions)
        if positions:
            self._changed.set()
        return kept

    def _keep_one(self, packet: Packet, positions: list[int]) -> bool:
        """Keep a part, or a whole message and where it lies; return False when there is no room for one more part."""
        opened = open_any(packet.payload, packet.sender, self._state.key_pair)
        part = None if opened is None else read_fragment(opened)
        message_id, body = packet.signature[:MESSAGE_ID_BYTES], packet.payload if opened is None else opened
        if part is not None:
            message_id = part.message_id
            if self._mail.is_finished(packet.sender, message_id):
                return True
            if part.count > 1 and not self._mail.parts.make_room(packet.sender, part):
                return False
            whole = part.body if part.count == 1 else self._mail.parts.put(packet.sender, part)
            if whole is None:
                return True
            body = whole
        sealed = opened is not None
        position = self._mail.put_message(packet.sender, message_id, packet.time_ms, sealed=sealed, body=body)
        if position is not None:
            positions.append(position)
        return True
