"""The result of sending a BSP message: stored on this device at once, and later at every peer that shares its group.

``BspPeer.send`` returns a ``Sent``. Unlike at a relay, there is no failure later: the message waits on this disk until
peers have it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from waystation.protocols.bsp.home.status import GroupMessage
from waystation.sdk import outcome

__all__ = ["Outcome", "Sent"]


class Outcome(outcome.Outcome):
    """How far a message is; the value is its name in JSON."""

    STORED = "stored", True, False, "kept here: each peer that shares the group gets it, once, when it is reached"
    """It is on this disk."""
    SETTLED = "settled", True, False, "every peer that shares the group holds it"


@dataclass(frozen=True, slots=True)
class Sent(outcome.Sent[Outcome]):
    """The state of a message after ``send``."""

    message: GroupMessage
    _until_held: Callable[[], Awaitable[None]] = field(repr=False, compare=False)

    async def settled(self) -> Outcome:
        """Wait until every peer that shares the group now holds the message, however long that takes.

        Raises:
            ClosedError: The client was closed before.
            HostError: The disk says no.
        """
        await self._until_held()
        return Outcome.SETTLED
