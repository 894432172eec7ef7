"""Decides whether a Bhumi request is tried again, and how it ends; no I/O.

Every try uses the same preimage (the 32-byte secret that permits one request) and the same bytes. The request is
handled at most once while relay or device remember it. A request that may have been delivered is never reported as
undelivered; it stays in doubt until an answer arrives. Status 2 only means that the preimage can no longer be used, so
it does not end the doubt.
"""

import random
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from waystation.protocols.bhumi.messages import Status
from waystation.sdk.backoff import Backoff

__all__ = ["Retry", "Timeouts", "Verdict", "verdict_of_status"]


class Verdict(Enum):
    """What one try came to, and how a request ends."""

    ANSWERED = auto()
    OFFLINE = auto()
    """Status 1: not connected, nothing was delivered by this try."""
    SPENT = auto()
    """Status 2: the relay does not know the commit any more, or not yet."""
    UNCERTAIN = auto()
    """Status 3, 4 or unknown, or the connection broke after the SEND: it may have been delivered."""
    UNREACHABLE = auto()
    """No relay was reached, so nothing left."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to go on."""

    wait_s: float = 0.0
    """For a recipient that is offline, or a relay that cannot be reached."""
    doubt_s: float = 60.0
    """For the outcome of a request in doubt; relays keep answers for 300 s."""
    settle_s: float = 2.0
    """For a late answer, or a device that is just handing its commits over, once a relay says it has no such commit."""


class Retry:
    """The tries of one request."""

    def __init__(
        self, timeouts: Timeouts, rng: random.Random, *, relays_count: int = 1, in_doubt: bool = False
    ) -> None:
        """Begin.

        Args:
            timeouts: How long to go on.
            rng: For the jitter.
            relays_count: Each of so many relays is asked once before anything is given up.
            in_doubt: The request may have been delivered already, by a former process.
        """
        self._timeouts = timeouts
        self._backoff = Backoff(rng, first_s=_FIRST_S, cap_s=_CAP_S)
        self._relays_count = relays_count
        self._spent_since_s: float | None = None
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
        self.in_doubt = self.in_doubt or verdict is Verdict.UNCERTAIN
        was_reached, self._was_reached = self._was_reached, verdict in _OF_RELAY
        if self._was_reached and not was_reached:
            # NODE-BACK: what is missing there comes within seconds; the long pauses were for the relay's absence.
            self._backoff.reset()
        if verdict is Verdict.SPENT and self._spent_since_s is None:
            self._spent_since_s = elapsed_s
        # The commit, or the answer for the cache, may be on its way to that relay; what another one says ends nothing.
        if self._spent_since_s is not None:
            left_s = self._spent_since_s + self._timeouts.settle_s - elapsed_s
            if left_s > 0:
                return min(self._backoff.next_s(), left_s)
        if verdict is Verdict.SPENT:
            return verdict
        timeout_s = self._timeouts.doubt_s if self.in_doubt else self._timeouts.wait_s
        if elapsed_s < timeout_s:
            return min(self._backoff.next_s(), timeout_s - elapsed_s)
        if self.tries_count < self._relays_count:
            return 0.0
        return Verdict.UNCERTAIN if self.in_doubt else verdict


def verdict_of_status(status: int) -> Verdict:
    """Return what a SEND_RESULT status means for the request; a status without a meaning leaves it in doubt."""
    return _VERDICTS.get(status, Verdict.UNCERTAIN)


_FIRST_S: Final = 0.2  # longer than a device takes to come back to a relay that restarted on the same machine
_CAP_S: Final = 5.0
_OF_RELAY: Final = frozenset({Verdict.OFFLINE, Verdict.SPENT})
_VERDICTS: Final = {
    Status.OK.value: Verdict.ANSWERED,
    Status.NOT_CONNECTED.value: Verdict.OFFLINE,
    Status.BAD_PREIMAGE.value: Verdict.SPENT,
}
