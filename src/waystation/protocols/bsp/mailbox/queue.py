"""The queue of one owner's commands, with a limit on the rate at which they are executed.

The mailbox (``host``) keeps one for each owner. A command is executed as soon as it is delivered. Commands above the
rate limit wait in order, so that other owners are served (BSP-PACE). They also wait while too many bytes of answers are
kept. A queue is never longer than the control group's messages.
"""

from collections import deque
from typing import Final

from waystation.core.instant import Instant
from waystation.core.limits import TokenBucket
from waystation.core.settings import InForce
from waystation.protocols.bsp.limits import BspLimits
from waystation.protocols.bsp.mailbox.hosting import Hosting

__all__ = ["COST_BYTES", "CommandQueue"]

COST_BYTES: Final = 512
"""A command costs one, and one more for so many bytes of its body (BSP-PACE): sixteen members, each of which is a key
to check and a peer to add."""


class CommandQueue:
    """The waiting commands of one owner.

    Cost: O(1) each.
    """

    __slots__ = ("_answers", "_answers_bytes", "_bucket", "_commands", "_counted", "_limits", "control")

    def __init__(self, control: Hosting, now: Instant, limits: InForce[BspLimits]) -> None:
        """Start empty, with the whole burst allowed."""
        self.control = control
        """The owner's control group."""
        self._limits = limits
        self._counted = limits.now
        """The limits that the bucket has."""
        self._bucket = TokenBucket(limits.now.commands_per_second, limits.now.commands_burst, now)
        self._commands: deque[tuple[bytes, int]] = deque()
        """Identifier and cost of each."""
        self._answers: dict[bytes, int] = {}
        self._answers_bytes = 0

    def __len__(self) -> int:
        """Return how many commands wait."""
        return len(self._commands)

    def add(self, message_id: bytes, size_bytes: int) -> None:
        """Queue a command after the others.

        Args:
            message_id: Of the message that has it.
            size_bytes: Length of its body.
        """
        # Spec 6: each whole 512 bytes of a body count for one more.
        self._commands.append((message_id, 1 + size_bytes // COST_BYTES))

    def take(self, now: Instant) -> bytes | None:
        """Return the command to be carried out now, and forget it; None when there is none, or not yet."""
        # Spec 6: what is over the rate is acknowledged and waits.
        if not self._commands or self._is_full or not self._bucket.take(now, self._cost):
            return None
        return self._commands.popleft()[0]

    def ready_at(self) -> Instant | None:
        """Return when ``take`` will return a command, in the past when it would now; None until an event."""
        if not self._commands or self._is_full:
            return None
        return self._bucket.ready_at(self._cost)

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
        """Forget a message whose body is deleted; it need not be an answer."""
        self._answers_bytes -= self._answers.pop(message_id, 0)

    def is_answer(self, message_id: bytes) -> bool:
        """Return whether a message is an answer that is kept."""
        return message_id in self._answers

    @property
    def _cost(self) -> int:
        """What the first command costs; the largest waits for a full bucket."""
        limits = self._limits.now
        if limits is not self._counted:
            self._counted = limits
            self._bucket.change(limits.commands_per_second, limits.commands_burst)
        # Spec 6: each whole 512 bytes of a body count for one more command.
        return min(self._commands[0][1], limits.commands_burst)

    @property
    def _is_full(self) -> bool:
        # Spec 6: commands wait while too many bytes of answers are not fetched: the answer to a ``status`` is hundreds
        # of times as long as the command, and no quota counts it.
        return self._answers_bytes >= self._limits.now.answers_bytes
