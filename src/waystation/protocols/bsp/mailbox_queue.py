"""Commands of one owner that wait to be carried out, and how fast they are.

A command is carried out as soon as it is delivered, unless its owner says very many: then they wait, in their order, so
that nobody else waits for them (BSP-PACE). There are never more of them than the control group may keep messages.
"""

from collections import deque
from typing import Final

from waystation.core.instant import Instant
from waystation.core.limits import TokenBucket
from waystation.protocols.bsp.mailbox_hosting import RESERVE, Hosting

__all__ = ["ANSWERS_BYTES_MAX", "COMMANDS_BURST", "COMMANDS_PER_S", "COST_BYTES", "CommandQueue"]

COMMANDS_PER_S: Final = 20
COMMANDS_BURST: Final = 64
"""What an owner may have done: a command costs one, and one more for every ``COST_BYTES`` of its body (BSP-PACE)."""
COST_BYTES: Final = 512
"""Sixteen members, each of whom is a key to check and a peer to meet."""
ANSWERS_BYTES_MAX: Final = RESERVE.live_bytes
"""Of answers that the owner has not got; from there on its commands wait until it has taken some. The answer to a
``status`` is hundreds of times as long as the command, and no quota is asked for it."""


class CommandQueue:
    """What waits of one owner.

    Cost: O(1) each.
    """

    __slots__ = ("_answers", "_answers_bytes", "_bucket", "_commands", "control")

    def __init__(self, control: Hosting, now: Instant) -> None:
        """Begin with nothing, and the whole burst allowed."""
        self.control = control
        """The owner's control group."""
        self._bucket = TokenBucket(COMMANDS_PER_S, COMMANDS_BURST, now)
        self._commands: deque[tuple[bytes, int]] = deque()
        """Identifier and cost of each."""
        self._answers: dict[bytes, int] = {}
        self._answers_bytes = 0

    def __len__(self) -> int:
        """Return how many commands wait."""
        return len(self._commands)

    def add(self, message_id: bytes, size_bytes: int) -> None:
        """Let a command wait behind the others.

        Args:
            message_id: Of the message that says it.
            size_bytes: Length of its body.
        """
        self._commands.append((message_id, min(1 + size_bytes // COST_BYTES, COMMANDS_BURST)))

    def take(self, now: Instant) -> bytes | None:
        """Return the command that is to be carried out now, and forget it; None when there is none, or not yet."""
        if not self._commands or self._is_full or not self._bucket.take(now, self._commands[0][1]):
            return None
        return self._commands.popleft()[0]

    def ready_at(self) -> Instant | None:
        """Return when ``take`` will have something, in the past when it has; None when only an event changes that."""
        if not self._commands or self._is_full:
            return None
        return self._bucket.ready_at(self._commands[0][1])

    def answer(self, message_id: bytes, size_bytes: int) -> None:
        """Remember an answer for as long as it is kept.

        Args:
            message_id: Of the message that is the answer.
            size_bytes: Length of its body.
        """
        self.forget(message_id)
        self._answers[message_id] = size_bytes
        self._answers_bytes += size_bytes

    def forget(self, message_id: bytes) -> None:
        """A message has no body any more; it need not be an answer."""
        self._answers_bytes -= self._answers.pop(message_id, 0)

    def is_answer(self, message_id: bytes) -> bool:
        """Return whether a message is an answer that is kept."""
        return message_id in self._answers

    @property
    def _is_full(self) -> bool:
        return self._answers_bytes >= ANSWERS_BYTES_MAX
