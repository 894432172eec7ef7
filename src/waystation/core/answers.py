"""Response to a plain HTTP request, as relays, hosted services and the console return it."""

from typing import NamedTuple

__all__ = ["HttpAnswer"]


class HttpAnswer(NamedTuple):
    """What one GET gets."""

    status: int
    """HTTP status, 200 to 599."""
    headers: tuple[tuple[str, str], ...] = ()
    """Name and value of each header, without those of the connection."""
    body: bytes = b""
