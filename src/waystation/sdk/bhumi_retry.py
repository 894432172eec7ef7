"""When a request is tried again, and when it is given up: a decision without I/O.

A preimage makes a request idempotent: the same preimage with the same bytes may be sent as often as needed, and is
handled at most once while relay or device remember it. What must never happen is to call a request undelivered that may
have been delivered; once that is possible the request is in doubt, and only an answer ends that. Status 2 then says
that this preimage is of no more use, not that nothing was delivered: the doubt outlives the verdict.
"""

import random
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from waystation.protocols.bhumi.messages import Status

__all__ = ["Backoff", "Outcome", "Patience", "Retry", "Verdict", "outcome_of_status"]


class Outcome(Enum):
    """What one try came to."""

    ANSWERED = auto()
    OFFLINE = auto()
    """Status 1: not connected, nothing was delivered by this try."""
    SPENT = auto()
    """Status 2: the relay does not know the commit any more, or not yet."""
    IN_DOUBT = auto()
    """Status 3, 4 or unknown, or the connection broke after the SEND: it may have been delivered."""
    NOT_SENT = auto()
    """No relay was reached, so nothing left."""


class Verdict(Enum):
    """How a request ends."""

    ANSWERED = auto()
    OFFLINE = auto()
    SPENT = auto()
    UNCERTAIN = auto()
    UNREACHABLE = auto()


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to go on."""

    wait_s: float = 0.0
    """For a recipient that is offline, or a relay that cannot be reached."""
    doubt_s: float = 60.0
    """For the outcome of a request in doubt; relays keep answers for 300 s."""
    settle_s: float = 2.0
    """For a late answer, or a device that is just handing its commits over, once a relay says it has no such commit."""


class Backoff:
    """Delays that double up to a cap, with jitter, until ``reset``."""

    def __init__(self, rng: random.Random, *, first_s: float, cap_s: float) -> None:
        """Start with ``first_s`` seconds; never more than ``cap_s``."""
        self._rng = rng
        self._first_s = first_s
        self._cap_s = cap_s
        self._delay_s = first_s

    def reset(self) -> None:
        """Begin with the first delay again."""
        self._delay_s = self._first_s

    def next_s(self) -> float:
        """Return the next delay in seconds: between half and all of the current step."""
        delay_s = self._delay_s
        self._delay_s = min(self._cap_s, 2 * delay_s)
        return delay_s * self._rng.uniform(0.5, 1.0)


class Retry:
    """The tries of one request."""

    def __init__(
        self, patience: Patience, rng: random.Random, *, relays_count: int = 1, in_doubt: bool = False
    ) -> None:
        """Begin.

        Args:
            patience: How long to go on.
            rng: For the jitter.
            relays_count: Each of so many relays is asked once before anything is given up.
            in_doubt: The request may have been delivered already, by a former process.
        """
        self._patience = patience
        self._backoff = Backoff(rng, first_s=_FIRST_S, cap_s=_CAP_S)
        self._relays_count = relays_count
        self._spent_since_s: float | None = None
        self.in_doubt = in_doubt
        """Whether the request may have been delivered."""
        self.tries_count = 0

    def widen(self, relays_count: int) -> None:
        """Note that so many further relays have been found; each of them is asked, too, before giving up."""
        if relays_count:
            self._relays_count = self.tries_count + 1 + relays_count

    def after(self, outcome: Outcome, elapsed_s: float) -> float | Verdict:
        """Return how many seconds to wait before the next try, or how the request ends.

        Args:
            outcome: Of the try that just ended.
            elapsed_s: Seconds since the first try began.
        """
        self.tries_count += 1
        if outcome is Outcome.ANSWERED:
            return Verdict.ANSWERED
        self.in_doubt = self.in_doubt or outcome is Outcome.IN_DOUBT
        if outcome is Outcome.SPENT:
            return self._after_spent(elapsed_s)
        if self._spent_since_s is not None and elapsed_s - self._spent_since_s < self._patience.settle_s:
            return self._backoff.next_s()  # the peer is at one of the relays; that it is not at another ends nothing
        patience_s = self._patience.doubt_s if self.in_doubt else self._patience.wait_s
        if elapsed_s < patience_s:
            return self._backoff.next_s()
        if self.tries_count < self._relays_count:
            return 0.0
        if self.in_doubt:
            return Verdict.UNCERTAIN
        return Verdict.OFFLINE if outcome is Outcome.OFFLINE else Verdict.UNREACHABLE

    def _after_spent(self, elapsed_s: float) -> float | Verdict:
        """Give it time: the commit, or the answer for the cache, may be on its way to the relay."""
        if self._spent_since_s is None:
            self._spent_since_s = elapsed_s
        if elapsed_s - self._spent_since_s < self._patience.settle_s:
            return self._backoff.next_s()
        return Verdict.SPENT


def outcome_of_status(status: int) -> Outcome:
    """Return what a SEND_RESULT status means for the request; a status without a meaning leaves it in doubt."""
    return _OUTCOMES.get(status, Outcome.IN_DOUBT)


_FIRST_S: Final = 0.2  # longer than a device takes to come back to a relay that restarted on the same machine
_CAP_S: Final = 5.0
_OUTCOMES: Final = {
    Status.OK.value: Outcome.ANSWERED,
    Status.NOT_CONNECTED.value: Outcome.OFFLINE,
    Status.BAD_PREIMAGE.value: Outcome.SPENT,
}
