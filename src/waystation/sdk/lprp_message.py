"""A message as programs get it."""

import contextlib
from collections.abc import Callable

from waystation.sdk.lprp_mail import StoredMessage

__all__ = ["Message"]


class Message:
    """One whole message, safe on the disk; it comes again after a restart until it is ``done``."""

    def __init__(self, stored: StoredMessage, on_done: Callable[["Message"], None]) -> None:
        """Describe a stored message; ``on_done`` is called once."""
        self._stored = stored
        self._on_done = on_done
        self._is_done = False

    @property
    def sender(self) -> bytes:
        """Whose signature was checked: a public key of 32 bytes."""
        return self._stored.sender

    @property
    def id(self) -> bytes:
        """16 bytes that tell it from every other message of this sender."""
        return self._stored.message_id

    @property
    def data(self) -> bytes:
        """What was sent."""
        return self._stored.body

    @property
    def text(self) -> str | None:
        """What was sent, as text; None when it is no UTF-8."""
        with contextlib.suppress(UnicodeDecodeError):
            return self._stored.body.decode()
        return None

    @property
    def sealed(self) -> bool:
        """Whether the host and everybody on the way could not read it; false for a raw packet."""
        return self._stored.sealed

    @property
    def sent_ms(self) -> int:
        """When it was sent by the sender's clock, Unix milliseconds."""
        return self._stored.sent_ms

    @property
    def received_ms(self) -> int:
        """When it was complete here, Unix milliseconds."""
        return self._stored.received_ms

    @property
    def is_done(self) -> bool:
        """Whether the program is through with it."""
        return self._is_done

    @property
    def stored(self) -> StoredMessage:
        """The row on the disk."""
        return self._stored

    async def done(self) -> None:
        """Note on the disk that the program is through with it, so that it never comes again; safe to call twice.

        Raises:
            HostError: The disk says no.
        """
        if not self._is_done:
            self._on_done(self)
            self._is_done = True
