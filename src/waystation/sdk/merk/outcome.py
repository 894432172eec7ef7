"""The results of sending a MERK message, as its relay reports them.

``MerkClient.send`` returns a ``SentMessage`` with one of them. Without the relay's notice the outcome is unknown: the
message may have arrived.
"""

from waystation.protocols.merk.messages import DeliveryCode
from waystation.sdk import outcome
from waystation.sdk.renamed import warn_renamed

__all__ = ["Outcome", "outcome_of"]


class Outcome(outcome.Outcome):
    """How a message ended; the value is its name in JSON, as in the browser SDK."""

    ACCEPTED = "accepted", True, False, "accepted: the recipient's relay has handed it to the recipient's connection"
    """The recipient's relay has written it to the recipient's connection; whether a program took it says ``read``."""
    STORED = "stored", True, False, "stored: the recipient is away, and its mailbox keeps the message"
    """The recipient's mailbox keeps it, on disk, until the recipient fetches it or it is too old."""
    READ = "read", True, False, "read: the recipient's program has taken it"
    """The recipient's program took it; the recipient itself has signed that."""
    UNKNOWN_TARGET = (
        *("unknown_target", False, True, "not accepted: no node linked with yours has the recipient"),
        "without a mailbox messages are not kept; send again when the recipient is there",
    )
    QUEUE_FULL = (
        *("queue_full", False, True, "not accepted: too much waits for this recipient"),
        "the recipient reads slowly; send again in a few seconds",
    )
    LOOKUP_TIMEOUT = (
        *("lookup_timeout", False, False),
        "no relay of the mesh said in time that it was accepted: the recipient was not found, or its relay is silent",
        "ask the recipient before you send it again, for it could arrive twice",
    )
    """The recipient was not found in time, or its relay reports nothing: the message may have arrived."""
    TOO_LARGE = (
        *("too_large", False, True, "not accepted: the message is larger than a relay on its way takes"),
        "send less at a time",
    )
    RATE = (
        *("rate", False, True, "not accepted: this client sends more than the relay takes of one"),
        "send again after a second, and fewer messages a second",
    )
    UNKNOWN = (
        *("unknown", False, False),
        "sent, but nobody can say whether it was accepted: the relay reports no outcomes, or the connection broke",
        "ask the recipient before you send it again, for it could arrive twice",
    )
    """The relay is an original one, which reports nothing, or the connection broke before it could."""

    DELIVERED = ACCEPTED
    """The old name of ``ACCEPTED``, for one version more."""

    @property
    def delivered(self) -> bool:
        """Whether it was accepted or more; the old name of ``ok``."""
        warn_renamed("Outcome.delivered", "Outcome.ok")
        return self.ok


def outcome_of(code: DeliveryCode | None) -> Outcome:
    """Return the outcome that a relay's notice means; None is no notice."""
    return Outcome.UNKNOWN if code is None else Outcome[code.name]  # DELIVERED is an alias of ACCEPTED
