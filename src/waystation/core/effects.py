"""Effects: the ordered list of actions that a protocol machine requests from the server.

A machine does no I/O. It appends effects in the required order, and the server executes them.

Three effects are requests that the server answers with an input. ``Commit`` is answered by ``committed`` or
``not_committed`` and ``Verify`` by ``verified``, each with the same ticket. ``Dial`` is answered by
``connect_upstream`` or ``upstream_failed``. Later effects do not wait for these answers, so a machine sends an
acknowledgement only after ``committed``: it is then never sent before its record is durable (NODE-ASK).
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, NewType, cast

from waystation.core.facts import Fact
from waystation.core.records import Change

__all__ = [
    "Address",
    "Close",
    "Commit",
    "Datagram",
    "Dial",
    "Effect",
    "Fact",
    "Hold",
    "Peer",
    "Send",
    "SendMany",
    "SendTo",
    "SignatureCheck",
    "Verify",
    "make_send",
    "make_send_to",
]

Peer = NewType("Peer", int)
"""One connection, for as long as it lives. Numbers are never used twice by one node."""

Address = tuple[str, int]
"""Where a datagram came from or goes to: IP address as text, UDP port.

The one that a datagram came with may also know which of our own addresses it came to. A ``SendTo`` that gives back that
very object leaves from there; an equal pair leaves from the address that routing selects (NODE-PKTINFO).
"""

Datagram = tuple[bytes, Address]
"""What one packet of a network without connections carried, and where it came from."""


class Send(NamedTuple):
    """Send ``data`` to the peer, after everything sent to it before."""

    peer: Peer
    data: bytes
    receipt: bool = False
    """Call ``drained`` once these bytes have left our buffers."""


class SendMany(NamedTuple):
    """Hand several messages to the peer, as so many ``Send`` would: one effect costs what one message does."""

    peer: Peer
    messages: Sequence[bytes]


class SendTo(NamedTuple):
    """Hand one datagram to the network, which may lose it; laid out as a ``Datagram``."""

    data: bytes
    address: Address


class Close(NamedTuple):
    """End the connection after what was sent has left, or at once when ``abort`` is set.

    The machine has forgotten the peer already: it gets no ``disconnect`` for it.
    """

    peer: Peer
    reason: Enum
    abort: bool = False
    status: int = 0
    """Status of the closing handshake where the transport has one (RFC 6455 7.4); 0 for a plain end."""


class Hold(NamedTuple):
    """Stop reading from the peer (``held``) or go on (not ``held``): back-pressure instead of loss."""

    peer: Peer
    held: bool


class Commit(NamedTuple):
    """Make ``changes`` durable in one group, then call ``committed`` or ``not_committed`` with ``ticket``.

    The answers of one machine come in the order of its commits. When one is refused, so is every one that the machine
    emitted after it and before that answer: what is on disk is never later than what is missing (NODE-REFUSED). One
    that has not returned for long is overtaken by refusals of later ones, and has an answer of its own (NODE-HUNG).
    """

    ticket: int
    """Numbers of one machine, never used twice while it lives."""
    changes: tuple[Change, ...]


class Dial(NamedTuple):
    """Connect to ``url``; ``connect_upstream`` with ``name`` or ``upstream_failed`` answers."""

    name: str
    """What the machine calls the other side."""
    url: str
    """Text that need not be an address: a bad one fails."""
    only_public: bool
    """Refuse when the name resolves to an address that is not on the open internet."""


class SignatureCheck(NamedTuple):
    """One Ed25519 signature and the keys it may belong to."""

    keys: tuple[bytes, ...]
    """1 to 16 public keys of 32 bytes, tried in this order."""
    message: bytes
    signature: bytes
    """64 bytes."""


class Verify(NamedTuple):
    """Check all signatures, then call ``verified`` with ``ticket`` and one answer each.

    An answer is the index of the first key that verifies, or -1 when none does.
    """

    ticket: int
    checks: tuple[SignatureCheck, ...]


make_send: Final = cast("Callable[[tuple[Peer, bytes, bool]], Send]", partial(tuple.__new__, Send))
"""Build a ``Send`` from one tuple: a third of what the class's own constructor, a Python function, costs."""

make_send_to: Final = cast("Callable[[tuple[bytes, Address]], SendTo]", partial(tuple.__new__, SendTo))
"""Build a ``SendTo`` likewise."""

Effect = Send | SendMany | SendTo | Close | Hold | Dial | Commit | Verify | Fact
"""A fact is put in the outbox as it is, without a wrapper: two of them belong to every exchange, and the engine's
recorder takes them all out before the server sees the rest."""
