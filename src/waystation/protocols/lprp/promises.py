"""Answers that must wait for the disk, and for which packets they are given again.

Spec: lprp 4.4, 10.4, 10.7; LPRP-COMMIT.
"""

from waystation.core.effects import Address
from waystation.protocols.lprp.messages import Command, Packet
from waystation.protocols.lprp.replies import Reply
from waystation.protocols.lprp.tenants import Tenant

__all__ = ["Promise", "repeats_of"]


class Promise:
    """An answer that leaves once everything before it is on disk."""

    __slots__ = ("address", "answer", "heartbeat_of", "packet", "packets")

    def __init__(self, packet: bytes, packets: tuple[bytes, ...], answer: bytes, address: Address | None) -> None:
        """Describe an answer.

        Args:
            packet: What it answers.
            packets: Which packets get these bytes when they come again.
            answer: The whole answer.
            address: Where it goes, None when that has not earned it: it then goes to the retransmission (LPRP-D17).
        """
        self.packet = packet
        self.packets = packets
        self.answer = answer
        self.address = address
        self.heartbeat_of: Tenant | None = None
        """Who remembers it as the answer to its last heartbeat."""


def repeats_of(reply: Reply, packet: Packet) -> tuple[bytes, ...]:
    """Return which packets get this answer again: not a heartbeat, nor a 102 that was refused (LPRP-C4)."""
    about = reply.about
    if reply.command is Command.HEARTBEAT_ANSWER:
        return ()
    if reply.command is Command.RELAY_REFUSED:
        return () if about is packet else (packet.data,)
    return (packet.data,) if about is packet else (packet.data, about.data)
