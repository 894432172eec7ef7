"""Decides whether a Bhumi request is tried again, and how it ends; no I/O.

Every try uses the same preimage (the 32-byte secret that permits one request) and the same bytes, so the device
handles the request at most once. A request that may have been delivered is never reported as undelivered; it stays in
doubt until its peer's answer arrives. Nothing that a relay says ends a doubt: neither status 1 or 2, nor bytes that do
not open.
"""

import random
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from waystation.protocols.bhumi.messages import Status
from waystation.sdk.backoff import Backoff

__all__ = ["DOUBTS", "Retry", "Timeouts", "Verdict", "verdict_of_status"]


class Verdict(Enum):
    """What one try came to, and how a request ends."""

    ANSWERED = auto()
    OFFLINE = auto()
    """Status 1: not connected, nothing was delivered by this try."""
    SPENT = auto()
    """Status 2: the relay does not know the commit any more, or not yet."""
    UNREADABLE = auto()
    """Status 0 with bytes that the peer has not sealed for this request: it may have been delivered."""
    UNCERTAIN = auto()
    """Status 3 or unknown, or the connection broke after the SEND: it may have been delivered."""
    GONE = auto()
    """Status 4: the recipient's connection has ended, and it may have been delivered before."""
    UNREACHABLE = auto()
    """No relay was reached, so nothing left."""


DOUBTS: Final = frozenset({Verdict.UNCERTAIN, Verdict.GONE, Verdict.UNREADABLE})
"""After these the request may have been delivered."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to go on."""

    wait_s: float = 0.0
    """For a recipient that is offline, or a relay that cannot be reached."""
    doubt_s: float = 60.0
    """For the outcome of a request in doubt; relays keep answers for 300 s."""
    settle_s: float = 2.0
    """For a device that is just handing its commits over, once a relay says it has no such commit; and for an answer
    that opens, once one came that does not."""


class Retry:
    """The tries of one request."""

    def __init__(
        self,
        timeouts: Timeouts,
        rng: random.Random,
        *,
        relays_count: int = 1,
        in_doubt: bool = False,
        repeatable: bool = False,
    ) -> None:
        """Begin.

        Args:
            timeouts: How long to go on.
            rng: For the jitter.
            relays_count: Each of so many relays is asked once before anything is given up.
            in_doubt: The request may have been delivered already, by a former process.
            repeatable: The content may arrive twice, so status 2 is final in doubt, too.
        """
        self._timeouts = timeouts
        self._backoff = Backoff(rng, first_s=_FIRST_S, cap_s=_CAP_S)
        self._relays_count = relays_count
        self._repeatable = repeatable
        self._spent_since_s: float | None = None
        self._unreadable_since_s: float | None = None
        self._was_reached = False
        """Whether the relay answered the last try."""
        self.in_doubt = in_doubt
        """Whether the request may have been delivered."""
        self.tries_count = 0

    def widen(self, relays_count: int) -> None:
        """Note that so many further relays have been found; each of them is asked, too, before giving up."""
        if relays_count:
            self._relays_count = self.tries_count + 1 + relays_count

    def after(self, verdict: Verdict, elapsed_s: float) -> float | Verdict:
        """Return how many seconds to wait before the next try, or how the request ends.

        Args:
            verdict: Of the try that just ended.
            elapsed_s: Seconds since the first try began.
        """
        self.tries_count += 1
        if verdict is Verdict.ANSWERED:
            return verdict
        self.in_doubt = self.in_doubt or verdict in DOUBTS
        was_reached, self._was_reached = self._was_reached, verdict in _OF_RELAY
        if self._was_reached and not was_reached:
            # NODE-BACK: what is missing there comes within seconds; the long pauses were for the relay's absence.
            self._backoff.reset()
        if verdict is Verdict.UNREADABLE and self._unreadable_since_s is None:
            self._unreadable_since_s = elapsed_s
        if self._unreadable_since_s is not None:  # most likely the two differ in their dialect: waiting mends nothing
            return self._settling(self._unreadable_since_s, elapsed_s) or Verdict.UNREADABLE
        if not self.in_doubt or self._repeatable:
            then = self._after_spent(verdict, elapsed_s)
            if then is not None:
                return then
        timeout_s = self._timeouts.doubt_s if self.in_doubt else self._timeouts.wait_s
        if elapsed_s < timeout_s:
            return min(self._backoff.next_s(), timeout_s - elapsed_s)
        if self.tries_count < self._relays_count:
            return 0.0
        return Verdict.UNCERTAIN if self.in_doubt else verdict

    def _after_spent(self, verdict: Verdict, elapsed_s: float) -> float | Verdict | None:
        """Return what follows where status 2 can be final; None where it was not said."""
        if verdict is Verdict.SPENT and self._spent_since_s is None:
            self._spent_since_s = elapsed_s
        # The commit may be on its way to that relay; what another one says ends nothing.
        settling = self._spent_since_s is not None and self._settling(self._spent_since_s, elapsed_s)
        return settling or (verdict if verdict is Verdict.SPENT else None)

    def _settling(self, since_s: float, elapsed_s: float) -> float | None:
        """Return the pause before the next try while something settles since ``since_s``; None once it has."""
        left_s = since_s + self._timeouts.settle_s - elapsed_s
        return min(self._backoff.next_s(), left_s) if left_s > 0 else None


def verdict_of_status(status: int) -> Verdict:
    """Return what a SEND_RESULT status means for the request; a status without a meaning leaves it in doubt."""
    return _VERDICTS.get(status, Verdict.UNCERTAIN)


_FIRST_S: Final = 0.2  # longer than a device takes to come back to a relay that restarted on the same machine
_CAP_S: Final = 5.0
_OF_RELAY: Final = frozenset({Verdict.OFFLINE, Verdict.SPENT, Verdict.GONE, Verdict.UNREADABLE})
_VERDICTS: Final = {
    Status.OK.value: Verdict.ANSWERED,
    Status.NOT_CONNECTED.value: Verdict.OFFLINE,
    Status.BAD_PREIMAGE.value: Verdict.SPENT,
    Status.GONE.value: Verdict.GONE,
}
