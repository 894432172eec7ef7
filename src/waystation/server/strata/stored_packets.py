"""Judges stored packets that have no checksum: a packet's identifier is the hash of its content (NODE-ROT).

``waystation check --deep`` and the reader of damaged rows get it from ``server.registry.packet_check``, since ``store``
may not import a protocol.
"""

from waystation.protocols.strata.canonical import MESSAGE_DEPTH_MAX, parse
from waystation.protocols.strata.packet import PACKET_BYTES_CEILING, read_packet
from waystation.protocols.strata.refusals import RefusedError

__all__ = ["is_whole"]


def is_whole(canonical: bytes) -> bool:
    """Return whether the bytes of a stored packet have the identifier that they name. Cost: 8 µs for 700 bytes."""
    try:
        packet = read_packet(parse(canonical, MESSAGE_DEPTH_MAX), PACKET_BYTES_CEILING)
    except RefusedError:
        return False
    # The signature is not hashed, but it is served: its case and every other byte must be those that were stored.
    return packet.id_matches and packet.canonical == canonical
