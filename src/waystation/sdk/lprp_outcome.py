"""What became of a message, as a value, and what to do about it."""

from enum import Enum
from typing import Final, NamedTuple

from waystation.protocols.lprp.client_events import RequestOutcome
from waystation.sdk.lprp_solver import WorkProgress

__all__ = ["Outcome", "SendProgress", "Sent", "outcome_of"]


class Outcome(Enum):
    """How a message ended; the value is its name in JSON."""

    ACCEPTED = "accepted"
    """The host has it on its disk, whole, and keeps it for the recipient."""
    REFUSED = "refused"
    WORK_FAILED = "work_failed"
    UNANSWERED = "unanswered"
    """Nobody answered in time; it may have been taken all the same."""
    NOT_SENT = "not_sent"

    @property
    def accepted(self) -> bool:
        """Whether the host has promised to keep it."""
        return self is Outcome.ACCEPTED

    @property
    def sentence(self) -> str:
        """What happened, for people."""
        return _SENTENCES[self][0]

    @property
    def advice(self) -> str:
        """What to do now, for people; empty when there is nothing to do."""
        return _SENTENCES[self][1]


class Sent(NamedTuple):
    """The end of one ``send``."""

    outcome: Outcome
    message_id: bytes
    """16 bytes, the recipient's ``Message.id``. A sealed message that is sent again with it cannot arrive twice."""
    parts_count: int
    """Packets that the message took."""
    accepted_count: int
    """How many of them the host has taken."""
    hashes: int
    """Tries of work that all of them cost."""

    @property
    def accepted(self) -> bool:
        """Whether the host keeps all of it for the recipient."""
        return self.outcome.accepted


class SendProgress(NamedTuple):
    """How far a ``send`` is."""

    accepted_count: int
    parts_count: int
    work: WorkProgress | None
    """The search that is under way for one of the packets; None when none is."""


def outcome_of(outcome: RequestOutcome) -> Outcome:
    """Return what the end of a packet means for its message."""
    return Outcome(outcome.value)


_SENTENCES: Final = {
    Outcome.ACCEPTED: ("accepted: the host keeps it until the recipient has it", ""),
    Outcome.REFUSED: (
        "refused: the recipient has no lease at this host, or no room for more mail from you",
        "check the recipient's key and host; if they are right, send again when it has read its mail",
    ),
    Outcome.WORK_FAILED: (
        "not taken: the host wants work for a packet of a stranger, and that was not done",
        "let it work longer, or ask the recipient to put your key on its whitelist",
    ),
    Outcome.UNANSWERED: (
        "no answer: nobody can say whether the host has taken it",
        "check the host's address and key, and your clock; sealed and sent again with its id it cannot arrive twice",
    ),
    Outcome.NOT_SENT: (
        "not sent: too much waits to be sent already",
        "send again when the others are through",
    ),
}
