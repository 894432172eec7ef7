"""What a machine asks for: one ordered list of effects.

A machine never does anything itself. It appends effects to its outbox, in the order in which they must
happen, and the server carries them out: what stands behind an ``Append`` waits until that record is
committed, so an acknowledgement can never overtake the promise it makes.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, NewType, cast

from waystation.core.facts import Fact
from waystation.core.records import Record

__all__ = ["Append", "Close", "Effect", "Fact", "Hold", "Peer", "Send", "make_send"]

Peer = NewType("Peer", int)
"""One connection, for as long as it lives. Numbers are never used twice by one node."""


class Append(NamedTuple):
    """Commit ``record`` before anything behind this effect happens."""

    record: Record


class Send(NamedTuple):
    """Hand ``data`` to the peer, behind everything sent to it before."""

    peer: Peer
    data: bytes
    receipt: bool = False
    """Call ``drained`` once these bytes have left our buffers."""


class Close(NamedTuple):
    """End the connection after what was sent has left, or at once when ``abort`` is set.

    The machine has forgotten the peer already: it gets no ``disconnect`` for it.
    """

    peer: Peer
    reason: Enum
    abort: bool = False


class Hold(NamedTuple):
    """Stop reading from the peer (``held``) or go on (not ``held``): back-pressure instead of loss."""

    peer: Peer
    held: bool


make_send: Final = cast("Callable[[tuple[Peer, bytes, bool]], Send]", partial(tuple.__new__, Send))
"""Build a ``Send`` from one tuple: a third of what the class's own constructor, a Python function, costs."""

Effect = Append | Send | Close | Hold | Fact
"""A fact stands in the outbox as it is, without a wrapper: two of them belong to every exchange, and the engine's
recorder takes them all out before the server sees the rest."""
