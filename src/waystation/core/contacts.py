"""Events about a client's connection with a relay: ``Connected`` and ``Disconnected``, the same for every protocol.

``sdk.relay_list`` reports them while it dials and redials; Strata's client (``protocols.strata.client.watch``) counts
them for the relay's score.
"""

from typing import NamedTuple

__all__ = ["Connected", "Disconnected"]


class Connected(NamedTuple):
    """A connection is established: the relay has taken us."""

    relay: str
    """Address."""
    handshake_ms: float
    """From dialling to this."""
    server: bytes | None = None
    """Key that the relay names, 32 bytes, where its protocol names one in the handshake."""
    authenticated: bool = False
    """Whether it has proved that key."""


class Disconnected(NamedTuple):
    """A relay could not be reached, or the connection to it has ended."""

    relay: str
    reason: str
    up_s: float | None
    """How long it was established; None when it never was."""
    retry_s: float
    """Until the next try, at this relay or another one."""
