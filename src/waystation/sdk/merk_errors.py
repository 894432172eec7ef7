"""What can go wrong for a program that uses MERK, besides an ``Outcome``.

::

    RemoteError
    ├── KeyUnknownError       nobody knows the recipient's agreement key: nothing was sent
    └── KeyChangedError       the recipient's agreement key is another one than before: nothing was sent
        └── KeyDiffersError   a person has given another agreement key than the recipient's own: nothing was sent
    LocalError
    └── FileTooLargeError     the recipient's client takes files in one frame only, and this does not fit
    HostError
    └── RelayUnreachableError (sdk.errors)  no relay could be reached
        └── HostileRelayError  every relay that is left asks for signatures that could be misused
"""

from waystation.core.errors import LocalError, RemoteError
from waystation.sdk.errors import RelayUnreachableError

__all__ = ["FileTooLargeError", "HostileRelayError", "KeyChangedError", "KeyDiffersError", "KeyUnknownError"]


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


class KeyChangedError(RemoteError):
    """A recipient has signed another agreement key than the one that was pinned.

    Attributes:
        target: The recipient, 32 bytes.
        pinned: The agreement key of before, 32 bytes.
        told: The new one.
    """

    def __init__(self, target: bytes, pinned: bytes, told: bytes) -> None:
        super().__init__(
            f"WARNING: {target.hex()} has a new agreement key, {told.hex()} instead of {pinned.hex()}. Its owner may "
            "have set up a new device, or somebody else has the signing key. Nothing was sent; ask by another way, "
            "then take the new key with --accept-new-key (accept_key)"
        )
        self.target = target
        self.pinned = pinned
        self.told = told


class KeyDiffersError(KeyChangedError):
    """A person has given another agreement key than the one that the recipient has signed.

    Attributes:
        target: The recipient, 32 bytes.
        pinned: The agreement key that was given.
        told: The one that the recipient has published.
    """

    def __init__(self, target: bytes, given: bytes, told: bytes) -> None:
        super().__init__(target, given, told)
        sentence = (
            f"the key given with --key differs from the one its owner has published: {given.hex()} was given for "
            f"{target.hex()}, whose own is {told.hex()}. Nothing was sent; ask its owner which is right, and "
            "take the published one with --accept-new-key (accept_key)"
        )
        self.args = (sentence,)


class FileTooLargeError(LocalError):
    """A file does not fit into one frame, and the recipient takes no parts."""


class HostileRelayError(RelayUnreachableError):
    """A relay kept asking for signatures that could be misused."""
