"""Answers that wait until the changes before them are on disk, and which packets get the same answer when repeated.

Spec: lprp 4.4; LPRP-COMMIT.

The relay keeps a ``Promise`` for each answer of a commit under way and sends it when the store confirms. Spec: lprp
4.4; LPRP-COMMIT.
"""

from waystation.core.effects import Address
from waystation.protocols.lprp.messages import Command, Packet
from waystation.protocols.lprp.relay.replies import Reply
from waystation.protocols.lprp.relay.tenants import Tenant

__all__ = ["Promise", "repeats_of"]


class Promise:
    """An answer that leaves once everything before it is on disk."""

    __slots__ = ("address", "answer", "heartbeat_of", "packet", "packets")

    def __init__(self, packet: bytes, packets: tuple[bytes, ...], answer: bytes, address: Address | None) -> None:
        """Describe an answer.

        Args:
            packet: The packet that it answers.
            packets: Packets that get these bytes when they come again.
            answer: The whole answer.
            address: Its destination, None when that has no credit: it then goes to the retransmission (LPRP-D17).
        """
        self.packet = packet
        self.packets = packets
        self.answer = answer
        self.address = address
        self.heartbeat_of: Tenant | None = None
        """The tenant that remembers it as the answer to its last heartbeat."""


def repeats_of(reply: Reply, packet: Packet) -> tuple[bytes, ...]:
    """Return the packets that get this answer again: not a heartbeat, nor a 102 that was refused (LPRP-C4)."""
    about = reply.about
    if reply.command is Command.HEARTBEAT_ANSWER:
        return ()
    if reply.command is Command.RELAY_REFUSED:
        # LPRP-C4: 402 is decided anew each time; after work it answers the 101.
        return () if about is packet else (packet.data,)
    # Spec 4.4: after work both the 101 and the packet that asked get the same bytes again.
    return (packet.data,) if about is packet else (packet.data, about.data)
