"""What can go wrong for a program that uses a client, each with a sentence for people.

::

    RemoteError
    ├── OfflineError         the recipient is not connected; nothing was delivered, sending again is safe
    ├── UncertainError       the request may have been handled; ``recover`` goes on asking while it is pending
    ├── NoPreimageError      the right to send is used up, nothing was delivered; a new invite is needed
    ├── InviteRefusedError   the invite was used already, or the inviter does not know it
    └── AnswerError          the answer cannot be opened or understood
    HostError
    ├── RelayUnreachableError  no relay could be reached, or none kept the connection
    └── HomeBusyError          another program uses this identity for the same purpose
    LocalError
    └── UnknownPeerError     nobody of this name is known here
"""

from waystation.core.errors import HostError, LocalError, RemoteError

__all__ = [
    "AnswerError",
    "HomeBusyError",
    "InviteRefusedError",
    "NoPreimageError",
    "OfflineError",
    "RelayUnreachableError",
    "UncertainError",
    "UnknownPeerError",
]


class OfflineError(RemoteError):
    """The recipient is not connected to the relay; nothing was delivered."""


class UncertainError(RemoteError):
    """A request got no answer; it may have been handled."""


class NoPreimageError(RemoteError):
    """No permission is left to send to this peer; nothing was delivered."""


class InviteRefusedError(RemoteError):
    """The inviter or its relay turned an invite down."""


class AnswerError(RemoteError):
    """An answer arrived that cannot be opened or understood."""


class RelayUnreachableError(HostError):
    """No relay could be reached."""


class HomeBusyError(HostError):
    """Another program works with this identity."""


class UnknownPeerError(LocalError):
    """No peer goes by this name."""
