"""Response to a plain HTTP request, as relays, hosted services and the console return it.

Relays (Strata's pages), ``server.http`` and ``console.site`` make one for each GET; ``transport.websocket.site`` writes
it to the client. It stands in core because those rooms do not import each other.
"""

from typing import NamedTuple

__all__ = ["HttpAnswer"]


class HttpAnswer(NamedTuple):
    """What one GET gets."""

    status: int
    """HTTP status, 200 to 599."""
    headers: tuple[tuple[str, str], ...] = ()
    """Name and value of each header, without those of the connection."""
    body: bytes = b""
