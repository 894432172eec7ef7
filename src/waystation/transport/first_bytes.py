"""Reads the first bytes of a new plain connection, before its real protocol object takes over.

``transport.listen`` uses it where it must know how a connection begins. The asyncio protocol of the connection takes
the place of this one as soon as they have arrived, so that all others cost nothing.
"""

import asyncio
from collections.abc import Callable
from typing import cast

__all__ = ["FirstBytes"]


class FirstBytes(asyncio.Protocol):
    """The asyncio protocol of a new connection until its first read."""

    def __init__(self, protocol: asyncio.Protocol, look: Callable[[bytes], None]) -> None:
        """Stand in for ``protocol``, and give the first read to ``look`` before it."""
        self._protocol = protocol
        self._look = look
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass it on; called by the event loop, as what follows."""
        self._transport = cast("asyncio.Transport", transport)
        self._protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Look at the first bytes, and leave."""
        if self._transport is not None:
            self._transport.set_protocol(self._protocol)
        self._look(data)
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass it on."""
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Pass it on."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on."""
        self._transport = None
        self._protocol.connection_lost(exc)
