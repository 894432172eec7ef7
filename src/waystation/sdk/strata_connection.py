"""What a client tells about its connection to a relay, besides what the relay says."""

from typing import NamedTuple

__all__ = ["Connected", "Disconnected", "Pinged"]


class Connected(NamedTuple):
    """A connection stands."""

    handshake_ms: float


class Disconnected(NamedTuple):
    """No connection could be made, or one has ended."""

    reason: str
    up_s: float | None
    """How long it stood; None when it never did."""
    retry_s: float


class Pinged(NamedTuple):
    """The relay answered a ping."""

    latency_ms: float
