"""A received LPRP message as programs get it; it is delivered again after a restart until ``done`` is called.

``LprpTenant.messages`` yields it. It is on disk already, so it is delivered at least once whatever happens to the
program.
"""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

__all__ = ["Message"]


@dataclass(slots=True, eq=False, repr=False)
class Message:
    """One whole message, safe on the disk; it comes again after a restart until it is ``done``."""

    sender: bytes
    """Whose signature was checked: a public key of 32 bytes."""
    id: bytes
    """16 bytes that no other message has of this sender: chosen by it, or the first of a raw packet's signature."""
    data: bytes
    """What was sent."""
    sealed: bool
    """Whether the host and everybody on the way could not read it; false for a raw packet."""
    sent_ms: int
    """When it was sent by the sender's clock, Unix milliseconds: the time of the packet that completed it."""
    received_ms: int
    """When it was complete here, Unix milliseconds."""
    position: int
    """Its row on the disk; grows with every message of the folder."""
    on_done: Callable[["Message"], Awaitable[None]]
    """Called once, and again after it has raised."""
    is_done: bool = field(default=False, init=False)
    """Whether the program is through with it."""

    @property
    def text(self) -> str | None:
        """What was sent, as text; None when it is no UTF-8."""
        with contextlib.suppress(UnicodeDecodeError):
            return self.data.decode()
        return None

    async def done(self) -> None:
        """Note on the disk that the program is through with it, so that it never comes again; safe to call twice.

        Raises:
            HostError: The disk refuses. It is noted once the disk takes writes again; a program that ends before gets
                the message again.
        """
        if self.is_done:
            return
        self.is_done = True
        try:
            await self.on_done(self)
        except BaseException:
            self.is_done = False
            raise
