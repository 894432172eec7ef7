"""The results of a Bhumi request: ``Outcome`` (how it ended) and ``Reply`` (with the peer's answer)."""

import contextlib
from dataclasses import dataclass
from typing import Final

from waystation.protocols.bhumi.payload.contents import MalformedPayloadError, decode_command_answer
from waystation.sdk import outcome
from waystation.sdk.errors import (
    AnswerError,
    NoPreimageError,
    NotSentError,
    OfflineError,
    PermissionsInDoubtError,
    PermissionUnknownError,
    RemoteError,
    UncertainError,
)

__all__ = ["ENDS", "Outcome", "Reply", "failed"]


class Outcome(outcome.Outcome):
    """How a request ended; the value is its name in JSON."""

    ANSWERED = "answered", True, False, "answered"
    """The peer's handler has answered."""
    FAILED = (
        *("failed", False, False, "the peer could not handle the request"),
        "ask its owner; it has received the request, and may have done a part of it",
    )
    OFFLINE = (
        *("offline", False, True, "not delivered: the peer is not connected"),
        "send again when the peer is connected",
    )
    NOT_SENT = (
        *("not_sent", False, True, "not delivered: the time was up before the request could leave"),
        "send again, with a longer timeout where the network is slow",
    )
    UNKNOWN_PERMISSION = (
        *("unknown_permission", False, True, "not delivered: the peer does not take the permission that was used"),
        "send again: another permission is used; when none is left that it takes, the peer has unpaired this identity",
    )
    PERMISSIONS_IN_DOUBT = (
        *(
            "permissions_in_doubt",
            False,
            True,
            "not delivered: every permission waits for an earlier request's outcome",
        ),
        "call recover when the peer is connected: each outcome frees a permission",
    )
    NO_PREIMAGE = (
        *("no_preimage", False, True, "not delivered: no permission to send to the peer is left"),
        "ask the peer for a new invite",
    )
    UNCERTAIN = (
        *("uncertain", False, False, "no outcome in time: the peer may have handled the request"),
        "call recover, which asks for its outcome; what is sent again could arrive twice",
    )
    UNREADABLE = (
        *("unreadable", False, False, "an answer came that cannot be opened: the peer may have handled the request"),
        "check that both sides use the same end-to-end encryption; call recover before you send it again",
    )


@dataclass(frozen=True, slots=True)
class Reply(outcome.Sent[Outcome]):
    """The end of one ``send``, with the peer's answer; its content is empty where there is none."""

    status: int = 0
    """0 when the peer's handler was content; see ``ResponseStatus``."""
    content: bytes = b""
    latency_s: float = 0.0
    """From the call to the answer, retries included."""
    tries_count: int = 0
    """How many SENDs it took; more than one means that the answer may come from a cache."""

    @property
    def sentence(self) -> str:
        """What happened, for people, with the reason that the peer gave for a failure."""
        base = self.outcome.sentence if self.failure is None else str(self.failure)
        reason = _reason_in(self.content) if self.outcome is Outcome.FAILED else ""
        return f"{base}: {reason}" if reason else base

    @property
    def text(self) -> str:
        """The content as text; bytes that are no UTF-8 are replaced."""
        return self.content.decode("utf-8", errors="replace")


def _reason_in(content: bytes) -> str:
    """Return why a request failed, as the content of its answer says: a text, or the error of a command."""
    with contextlib.suppress(MalformedPayloadError):
        return decode_command_answer(content).error
    return content.decode("utf-8", errors="replace")


_OUTCOMES: Final[dict[type[RemoteError], Outcome]] = {
    OfflineError: Outcome.OFFLINE,
    NotSentError: Outcome.NOT_SENT,
    PermissionUnknownError: Outcome.UNKNOWN_PERMISSION,
    PermissionsInDoubtError: Outcome.PERMISSIONS_IN_DOUBT,
    NoPreimageError: Outcome.NO_PREIMAGE,
    UncertainError: Outcome.UNCERTAIN,
    AnswerError: Outcome.UNREADABLE,
}
ENDS: Final = tuple(_OUTCOMES)
"""Errors that say how an attempt has ended; all others say that nothing was attempted."""


def failed(error: RemoteError) -> Reply:
    """Return the end of a request that one of ``ENDS`` describes."""
    return Reply(_OUTCOMES[type(error)], failure=error)
