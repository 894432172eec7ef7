"""The results of sending an LPRP message, as its host reports them, and the progress while it is sent.

``LprpSender.send`` returns a ``Sent``: the host took the message, refused it with a reason, or did not answer. Only the
host's word is known; whether the recipient fetched it is not.
"""

from dataclasses import dataclass
from typing import NamedTuple

from waystation.sdk import outcome
from waystation.sdk.lprp.solver import WorkProgress
from waystation.sdk.renamed import warn_renamed

__all__ = ["Outcome", "SendProgress", "Sent"]


class Outcome(outcome.Outcome):
    """How a message ended; the value is its name in JSON. Each ``RequestOutcome`` of a packet has its member here."""

    ACCEPTED = "accepted", True, False, "accepted: the host keeps it until the recipient has it"
    """The host has it on its disk, whole, and keeps it for the recipient."""
    REFUSED = (
        *("refused", False, True),
        "refused: the recipient has no lease at this host, or no room for more mail from you",
        "check the recipient's key and host; if they are right, send again when it has read its mail",
    )
    WORK_FAILED = (
        *("work_failed", False, True),
        "not taken: the host wants work for a packet of an unknown sender, and that was not done",
        "let it work longer, or ask the recipient to put your key on its whitelist",
    )
    UNANSWERED = (
        *("unanswered", False, False, "no answer: nobody can say whether the host has taken it"),
        "check host, key and clock; or it cannot store now; sealed and sent again with its id it cannot arrive twice",
    )
    """No answer came in time; the message may have been taken all the same."""
    NOT_SENT = (
        *("not_sent", False, True, "not sent: too much waits to be sent already"),
        "send again when the others are through",
    )


@dataclass(frozen=True, slots=True)
class Sent(outcome.Sent[Outcome]):
    """The end of one ``send``."""

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
        """Whether the host keeps all of it for the recipient; the old name of ``ok``."""
        warn_renamed("Sent.accepted", "Sent.ok")
        return self.ok


class SendProgress(NamedTuple):
    """How far a ``send`` is."""

    accepted_count: int
    parts_count: int
    work: WorkProgress | None
    """The search that is under way for one of the packets; None when none is."""
