"""The possible results of a command: an answer, a demand for work, or a silent refusal.

The modules of ``commands`` return one for each packet, and the relay sends it. Most refusals are silent, because an
answer to a forged address would reach a victim.
"""

from typing import NamedTuple

from waystation.core.ids import PublicKey
from waystation.protocols.lprp.messages import Command, Kind, Packet
from waystation.protocols.lprp.refusals import Refusal

__all__ = ["Demand", "Reply", "Verdict", "refuse"]


class Reply(NamedTuple):
    """An answer to the sender of ``about``, with its signature."""

    command: Command
    about: Packet
    """The 102, 104, 108 or 808 that is done with; for a refused 101 that one itself."""
    refusal: Refusal | None = None


class Demand(NamedTuple):
    """A demand for work of the sender of ``about``; that packet is kept until the work is done."""

    kind: Kind
    about: Packet
    recipient: PublicKey
    """The key whose table has the room: the tenant that gets the mail, else the sender."""
    occupancy: float
    """How much of the scarcest table is taken, 0 to 1."""


Verdict = Reply | Demand | Refusal
"""A bare refusal is silence."""


def refuse(refusal: Refusal, about: Packet) -> Reply:
    """Return the answer of a refusal that has a command."""
    command = refusal.command
    assert command is not None
    return Reply(command, about, refusal)
