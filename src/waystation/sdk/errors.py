"""All exceptions that clients raise on purpose, in one class tree; ``waystation.errors`` is this module.

A call raises when its action was not attempted or is impossible. The result of a sent message is a value instead,
``Sent.outcome``. ``Sent.check`` raises the matching exception.

::

    WaystationError
    ├── LocalError               the caller made a mistake; fix the calling code
    │   ├── ConfigError          a setting is unknown or out of range
    │   ├── NotOpenError         a client is used before ``async with`` has opened it
    │   ├── ClosedError          a client is used after it was closed
    │   ├── InUseError           a second task does what only one may do at a time
    │   ├── UnknownPeerError     no peer has this name here
    │   └── FileTooLargeError    the recipient's client takes files in one frame only, and this does not fit (MERK)
    ├── RemoteError              the other side broke its protocol, or refused
    │   ├── OfflineError         the recipient is not connected; nothing was delivered, sending again is safe
    │   ├── UncertainError       the request may have been handled; ``recover`` keeps asking while it is pending
    │   ├── NotSentError         the time was up before the request could leave (Bhumi)
    │   ├── PermissionUnknownError  the relay does not know the permission; nothing was delivered (Bhumi)
    │   ├── NoPreimageError      no permission to send is left, nothing was delivered; a new invite is needed
    │   │   └── PermissionsInDoubtError  every permission waits for the outcome of an earlier request (Bhumi)
    │   ├── InviteRefusedError   the invite was used already, or the inviter does not know it
    │   ├── AnswerError          the answer cannot be opened or understood
    │   ├── NotTakenError        the other side has not accepted a message, or this is unknown
    │   ├── LeaseRefusedError    the LPRP host grants no lease, so it stores no messages for us
    │   ├── WhitelistFailedError the LPRP host does not have the whitelist that we want
    │   ├── KeyUnknownError      the recipient's agreement key is unknown: nothing was sent (MERK)
    │   ├── CannotAnswerError    the recipient's client is not known to answer questions: nothing was sent (MERK)
    │   ├── KeyChangedError      the recipient's agreement key differs from the pinned one: nothing was sent (MERK)
    │   │   └── KeyDiffersError  the given agreement key is not the recipient's own: nothing was sent (MERK)
    │   ├── RequestRefusedError  the Strata relay refused; has its code
    │   ├── OutcomeUnknownError  no answer came: the packet may be stored; publishing it again is safe (Strata)
    │   ├── RelayLiedError       the Strata relay sent a forged packet, or not the one requested
    │   ├── NotCarriedError      a relay has not accepted a bundle, or this is unknown (BSP)
    │   ├── MailboxRefusedError  the BSP mailbox has answered that it does not do this
    │   └── BoxRefusedError      the blind box refused (BSP)
    └── HostError                the disk, the network or a port failed; has what was tried
        ├── HomeBusyError        another program uses this identity for the same purpose
        ├── LockedError          another program holds the lock of the database; the call may be made again
        ├── MailboxSilentError   the BSP mailbox has not answered in time; the command is kept
        └── RelayUnreachableError  no relay could be reached, or none kept the connection
            └── HostileRelayError  every relay that is left asks for signatures that could be misused (MERK)
"""

from enum import Enum
from typing import Final

from waystation.core.errors import ConfigError, HostError, LocalError, RemoteError, WaystationError

__all__ = [
    "AnswerError",
    "BoxRefusedError",
    "CannotAnswerError",
    "ClosedError",
    "ConfigError",
    "FileTooLargeError",
    "HomeBusyError",
    "HostError",
    "HostileRelayError",
    "InUseError",
    "InviteRefusedError",
    "KeyChangedError",
    "KeyDiffersError",
    "KeyUnknownError",
    "LeaseRefusedError",
    "LocalError",
    "LockedError",
    "MailboxRefusedError",
    "MailboxSilentError",
    "NoPreimageError",
    "NotCarriedError",
    "NotOpenError",
    "NotSentError",
    "NotTakenError",
    "OfflineError",
    "OutcomeUnknownError",
    "PermissionUnknownError",
    "PermissionsInDoubtError",
    "RelayLiedError",
    "RelayUnreachableError",
    "RemoteError",
    "RequestRefusedError",
    "UncertainError",
    "UnknownPeerError",
    "WaystationError",
    "WhitelistFailedError",
]

_LEASE_REASONS: Final = {
    "refused": "it is full, closed to newcomers, has banned this key, or has a list and this key is not on it",
    "work_failed": "it wants more work than was done",
}


class NotOpenError(LocalError):
    """A client is used before it was opened."""


class ClosedError(LocalError):
    """A client is used after it was closed."""


class InUseError(LocalError):
    """Two tasks do at once what only one may do at a time."""


class UnknownPeerError(LocalError):
    """No peer goes by this name."""


class FileTooLargeError(LocalError):
    """A file does not fit into one frame, and the recipient takes no parts."""


class OfflineError(RemoteError):
    """The recipient is not connected to the relay; nothing was delivered."""


class UncertainError(RemoteError):
    """A request got no answer; it may have been handled."""


class NoPreimageError(RemoteError):
    """No permission is left to send to this peer; nothing was delivered."""


class PermissionsInDoubtError(NoPreimageError):
    """Every permission to send to this peer waits for the outcome of an earlier request; nothing was delivered."""


class PermissionUnknownError(RemoteError):
    """The relay does not know the permission that a request took; nothing was delivered."""


class NotSentError(RemoteError):
    """The time was up before a request could leave."""


class InviteRefusedError(RemoteError):
    """The inviter or its relay turned an invite down."""


class AnswerError(RemoteError):
    """An answer arrived that cannot be opened or understood."""


class NotTakenError(RemoteError):
    """The other side has not taken a message, or nobody knows whether it has; the sentence is the outcome's."""


class LeaseRefusedError(RemoteError):
    """The host gives no lease.

    Attributes:
        outcome: How the request ended.
    """

    def __init__(self, host: str, outcome: Enum) -> None:
        reason = _LEASE_REASONS.get(outcome.value, "the request got no answer")
        super().__init__(f"{host} gives this key no lease: {reason}")
        self.outcome = outcome


class WhitelistFailedError(RemoteError):
    """The host was asked for a whitelist and does not have it; it is asked again at the next start.

    Attributes:
        outcome: How the request ended.
    """

    def __init__(self, host: str, outcome: Enum) -> None:
        super().__init__(
            f"{host} has not taken the whitelist ({outcome.value}); it is kept here and tried again at the next start"
        )
        self.outcome = outcome


class KeyUnknownError(RemoteError):
    """No agreement key is known for a recipient.

    Attributes:
        target: The recipient, 32 bytes.
    """

    def __init__(self, target: bytes) -> None:
        super().__init__(
            f"nobody knows the agreement key of {target.hex()}, so nothing can be encrypted for it: it is there once "
            "its owner has connected to this mesh with a client of waystation; else ask for it and give it with --key "
            "(agreement_key=), or send without encryption, with --mode signed"
        )
        self.target = target


class CannotAnswerError(RemoteError):
    """Nothing says that a recipient's client can answer a question.

    Attributes:
        target: The recipient, 32 bytes.
    """

    def __init__(self, target: bytes) -> None:
        super().__init__(
            f"{target.hex()} is not known to use a client of waystation, and others cannot say which message they "
            "answer; nothing was sent. Use send, and take what comes from messages()"
        )
        self.target = target


class KeyChangedError(RemoteError):
    """A recipient has signed another agreement key than the one that was pinned.

    Attributes:
        target: The recipient, 32 bytes.
        pinned: The agreement key of before, 32 bytes.
        published: The new one.
    """

    def __init__(self, target: bytes, pinned: bytes, published: bytes) -> None:
        super().__init__(
            f"WARNING: {target.hex()} has a new agreement key, {published.hex()} instead of {pinned.hex()}. Its owner "
            "may have set up a new device, or somebody else has the signing key. Nothing was sent; ask by another way, "
            "then take the new key with --accept-new-key (accept_key)"
        )
        self.target = target
        self.pinned = pinned
        self.published = published


class KeyDiffersError(KeyChangedError):
    """A person has given another agreement key, here ``pinned``, than the one that the recipient has signed."""

    def __init__(self, target: bytes, given: bytes, published: bytes) -> None:
        super().__init__(target, given, published)
        sentence = (
            f"the key given with --key differs from the one its owner has published: {given.hex()} was given for "
            f"{target.hex()}, whose own is {published.hex()}. Nothing was sent; ask its owner which is right, and "
            "take the published one with --accept-new-key (accept_key)"
        )
        self.args = (sentence,)


class RequestRefusedError(RemoteError):
    """A relay refused a request.

    Attributes:
        code: The wire code, maybe one that is not known here.
        detail: Which rule, may be empty.
        retry_after_s: When it makes sense to ask again, if the relay said so.
    """

    def __init__(self, relay: str, code: str, detail: str, retry_after_s: int | None = None, reason: str = "") -> None:
        which = f"{code} ({detail})" if detail else code
        shown = "".join(each for each in reason if each.isprintable())
        later = f"; ask again in {retry_after_s} s" if retry_after_s else ""
        super().__init__(f"{relay} refused: {which}{f': {shown}' if shown else ''}{later}")
        self.code = code
        self.detail = detail
        self.retry_after_s = retry_after_s


class OutcomeUnknownError(RemoteError):
    """A request got no answer; it may have been carried out."""


class RelayLiedError(RemoteError):
    """A relay handed out a packet that fails its own id or signature, or another one than was asked for."""


class NotCarriedError(RemoteError):
    """A bundle counts as lost.

    Attributes:
        peer: Whom it was for, 32 bytes.
    """

    def __init__(self, kind: str, peer: bytes, reason: str) -> None:
        super().__init__(f"{kind} has not carried a bundle to {peer.hex()[:8]}: {reason}")
        self.peer = peer


class MailboxRefusedError(RemoteError):
    """The mailbox has answered that it does not do this.

    Attributes:
        status: Why, an ``AnswerStatus``.
    """

    def __init__(self, status: Enum, sentence: str) -> None:
        super().__init__(f"the mailbox refuses: {sentence}")
        self.status = status


class BoxRefusedError(RemoteError):
    """The box said no.

    Attributes:
        status: HTTP status.
        refusal: Its word for the reason, such as ``folder_full``; empty when it gave none.
    """

    def __init__(self, status: int, refusal: str, sentence: str) -> None:
        super().__init__(f"the box refuses: {sentence}")
        self.status = status
        self.refusal = refusal


class HomeBusyError(HostError):
    """Another program works with this identity."""


class LockedError(HostError):
    """Another program holds the lock of the database; it is nothing to report before it lasts."""


class MailboxSilentError(HostError):
    """The mailbox has not answered in time; the command is kept, and carried out when it gets there."""


class RelayUnreachableError(HostError):
    """No relay could be reached."""


class HostileRelayError(RelayUnreachableError):
    """A relay kept asking for signatures that could be misused."""
