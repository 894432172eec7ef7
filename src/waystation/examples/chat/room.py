"""One chat for a program: its messages in causal order, and the messages that the next one will reference.

``talk`` and the demo put a device in; delivered messages come out. It uses only the public SDK and is short, as a
minimal example of a BSP application.
"""

import time
from typing import NamedTuple

from waystation.examples.chat.format import Line, read_line, write_line
from waystation.sdk.bsp import DEPENDENCIES_MAX, BspPeer, Delivered, Group, GroupMessage, InvalidMessageError

__all__ = ["Room", "Said"]


class Said(NamedTuple):
    """One message of the chat."""

    order: int
    """1, 2, 3... as it was delivered here; nothing stands before what it answers to."""
    message_id: bytes
    timestamp: int
    line: Line
    answers: tuple[bytes, ...]
    """What its author had seen last."""


class Room:
    """A chat on one device."""

    def __init__(self, peer: BspPeer, group: Group, nick: str) -> None:
        """Enter the chat of a group that the device is a member of, as ``nick``."""
        self._peer = peer
        self.group = group
        self._nick = nick
        self._heads: dict[bytes, int] = {}
        """Messages that nothing answers to yet, with their timestamps."""
        self._answered: set[bytes] = set()
        for message in peer.history(group):
            self._see(message)

    def history(self, after: int = 0) -> list[Said]:
        """Return what was said, from the message behind ``after`` on."""
        found = [self._said(message) for message in self._peer.history(self.group, after=after)]
        return [said for said in found if said is not None]

    def receive(self, event: Delivered) -> Said | None:
        """Take a message that was delivered; return what it says, or None when it is of another group or deleted."""
        if event.group_id != self.group.group_id:
            return None
        message = self._peer.message(self.group, event.message_id)
        self._see(message)
        return self._said(message)

    async def say(self, text: str) -> GroupMessage:
        """Say something, in answer to all that was seen; it comes back as a delivered message, like those of others.

        Raises:
            LocalError: The text is empty or too long.
            HostError: The disk says no.
        """
        answers = sorted(self._heads, key=lambda head: self._heads[head])[-DEPENDENCIES_MAX:]
        latest = max((self._heads[head] for head in answers), default=0)
        timestamp = max(int(time.time() * 1_000), latest + 1)
        message = (
            await self._peer.send(self.group, write_line(Line(self._nick, text), answers), timestamp=timestamp)
        ).message
        self._see(message)  # the next message answers to it, also before it is delivered
        return message

    def _see(self, message: GroupMessage) -> None:
        """Enter a message among those seen; once more, and in any order, is no matter."""
        for answered in message.dependencies:
            self._answered.add(answered)
            self._heads.pop(answered, None)
        if message.message_id not in self._answered:
            self._heads[message.message_id] = message.timestamp

    def _said(self, message: GroupMessage) -> Said | None:
        if message.body is None:
            return None
        try:
            line = read_line(message.body)
        except InvalidMessageError:  # our own device delivers every message that was added, valid or not
            return None
        return Said(message.order, message.message_id, message.timestamp, line, message.dependencies)
