"""A bounded memory of recent packets: which relays sent each one, and the earliest ``received_at`` among them.

``sdk.strata.many`` notes each delivery here. Several relays send the same packet, and the earliest time counts. Probes
ask one relay for packets that others have sent. Spec: specs/strata.md 7, 18.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from waystation.protocols.strata.packet import Packet, packet_id_text
from waystation.rules.relay_choice import Sighting

__all__ = ["SIGHTINGS_MAX", "Sightings"]

SIGHTINGS_MAX: Final = 10_000
"""Packets remembered for probes and duplicates, ours."""
_PUBLIC_TYPES: Final = frozenset({"POST", "PROFILE", "REACTION", "ATTESTATION", "CORRECTION", "KEY_EVENT"})


@dataclass(slots=True)
class _Seen:
    """One packet and who showed it."""

    packet: Packet
    received_at: int | None = None
    relays: dict[str, None] = field(default_factory=dict)


class Sightings:
    """What one client has seen."""

    def __init__(self) -> None:
        """Begin empty."""
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()

    def note(self, packet: Packet, url: str, received_at: int | None) -> int | None:
        """Remember who showed a packet, and return the earliest time named."""
        seen = self._seen.setdefault(packet.packet_id, _Seen(packet))
        # Spec 18: a probe is for a packet that two other relays showed, so each counts once.
        seen.relays[url] = None
        # Spec 7: the earliest ``received_at`` is the packet's.
        if received_at is not None and (seen.received_at is None or received_at < seen.received_at):
            seen.received_at = received_at
        if len(self._seen) > SIGHTINGS_MAX:
            self._seen.popitem(last=False)
        return seen.received_at

    def packet(self, packet_id: bytes) -> Packet | None:
        """Return a packet that was seen, or None."""
        seen = self._seen.get(packet_id)
        return None if seen is None else seen.packet

    def received_at(self, packet_id: bytes) -> int | None:
        """Return the earliest time at which any relay says that it saw a packet, Unix seconds."""
        seen = self._seen.get(packet_id)
        return None if seen is None else seen.received_at

    def for_probes(self) -> list[Sighting]:
        """Return everything seen as the choice of a probe takes it."""
        return [
            Sighting(
                packet_id_text(packet_id),
                seen.packet.timestamp,
                seen.packet.expires_at,
                # Types that every relay may store: the absence of another one proves nothing.
                seen.packet.content_type in _PUBLIC_TYPES,
                tuple(seen.relays),
            )
            for packet_id, seen in self._seen.items()
        ]
