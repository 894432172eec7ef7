"""Answers to plain HTTP requests, for relays that serve a few documents beside their protocol."""

from typing import NamedTuple

__all__ = ["HttpAnswer"]


class HttpAnswer(NamedTuple):
    """What one GET gets."""

    status: int
    """HTTP status, 200 to 599."""
    headers: tuple[tuple[str, str], ...] = ()
    """Name and value of each header, without those of the connection."""
    body: bytes = b""
