"""What became of a message, as a value, and what to do about it."""

from enum import Enum
from typing import Final

from waystation.protocols.merk.messages import DeliveryCode

__all__ = ["Outcome", "outcome_of"]


class Outcome(Enum):
    """How a message ended; the value is its name in JSON, as in the browser SDK."""

    DELIVERED = "delivered"
    """The recipient's relay has written it to the recipient's connection."""
    UNKNOWN_TARGET = "unknown_target"
    QUEUE_FULL = "queue_full"
    LOOKUP_TIMEOUT = "lookup_timeout"
    """Nobody found the recipient in time, or its relay has not said what became of the message: it may have arrived."""
    TOO_LARGE = "too_large"
    RATE = "rate"
    UNKNOWN = "unknown"
    """The relay is an original one, which tells nothing, or the connection broke before it could."""

    @property
    def delivered(self) -> bool:
        """Whether it has arrived."""
        return self is Outcome.DELIVERED

    @property
    def sentence(self) -> str:
        """What happened, for people."""
        return _SENTENCES[self][0]

    @property
    def advice(self) -> str:
        """What to do now, for people; empty when there is nothing to do."""
        return _SENTENCES[self][1]

    @property
    def retry_safe(self) -> bool:
        """Whether sending again cannot make the message arrive twice."""
        return self not in (Outcome.DELIVERED, Outcome.LOOKUP_TIMEOUT, Outcome.UNKNOWN)


def outcome_of(code: DeliveryCode | None) -> Outcome:
    """Return the outcome that a relay's notice means; None is what nobody told."""
    return Outcome.UNKNOWN if code is None else _OUTCOMES[code]


_OUTCOMES: Final = {
    DeliveryCode.DELIVERED: Outcome.DELIVERED,
    DeliveryCode.UNKNOWN_TARGET: Outcome.UNKNOWN_TARGET,
    DeliveryCode.QUEUE_FULL: Outcome.QUEUE_FULL,
    DeliveryCode.LOOKUP_TIMEOUT: Outcome.LOOKUP_TIMEOUT,
    DeliveryCode.TOO_LARGE: Outcome.TOO_LARGE,
    DeliveryCode.RATE: Outcome.RATE,
}
_SENTENCES: Final = {
    Outcome.DELIVERED: ("delivered", ""),
    Outcome.UNKNOWN_TARGET: (
        "not delivered: no node linked with yours has the recipient",
        "messages are not kept; send again when the recipient is there",
    ),
    Outcome.QUEUE_FULL: (
        "not delivered: too much waits for this recipient",
        "the recipient reads slowly; send again in a few seconds",
    ),
    Outcome.LOOKUP_TIMEOUT: (
        "no relay of the mesh said in time that it was delivered: the recipient was not found, or its relay is silent",
        "ask the recipient before you send it again, for it could arrive twice",
    ),
    Outcome.TOO_LARGE: (
        "not delivered: the message is larger than a relay on its way takes",
        "send less at a time",
    ),
    Outcome.RATE: (
        "not delivered: this client sends more than the relay takes of one",
        "send again after a second, and fewer messages a second",
    ),
    Outcome.UNKNOWN: (
        "sent, but nobody can say whether it was delivered: the relay tells no outcomes, or the connection broke",
        "ask the recipient before you send it again, for it could arrive twice",
    ),
}
