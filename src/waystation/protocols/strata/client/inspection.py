"""Verifies a packet that a relay sent: its author signed it, and the client asked for it.

The client machine and the SDK's fetch call it: a packet goes in, ``Inspected`` or a ``Fault`` comes out. Relays are not
trusted, so every packet is parsed strictly, its id recomputed and its signature verified. A provenance downgrade in the
form of ``mutate`` is first undone with the signed header that the relay sends beside the packet.
Spec: RFC-0004 7; specs/strata.md 9.1, 18.

Choice: clocks differ, so a packet that expired less than ``CLOCK_SKEW_S`` ago is dropped without blaming the relay.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from waystation.core.dids import key_of_did
from waystation.crypto.signing import verify_any
from waystation.protocols.strata.client.wire import downgrade_of
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import PACKET_BYTES_CEILING, Packet, read_packet
from waystation.protocols.strata.provenance import UNKNOWN, restored
from waystation.protocols.strata.refusals import RefusedError

__all__ = ["CLOCK_SKEW_S", "Fault", "Inspected", "KeysOf", "inspect_packet", "own_key"]

CLOCK_SKEW_S: Final = 300  # specs/strata.md 4.2
KEYS_TRIED_MAX: Final = 16  # specs/strata.md 4.1

KeysOf = Callable[[str, int], tuple[bytes, ...] | None]
"""Keys of a DID, 32 bytes each, that counted at a time of reception; None when they are unknown."""


class Inspected(NamedTuple):
    """A packet that may be used."""

    packet: Packet
    """As signed."""
    origin_type: str
    downgrade: dict[str, str] | None
    verified: bool
    """Whether a key of the author signed it; False when no key is known or none was asked for."""


class Fault(NamedTuple):
    """The reason for which a packet is dropped."""

    reason: str
    """``malformed_packet``, ``packet_id``, ``signature``, ``expired`` or ``outside_filter``."""
    detail: str
    packet_id: bytes | None
    blame: bool = True
    """Whether it is a violation of the relay."""


def own_key(did: str, received_at: int) -> tuple[bytes, ...] | None:  # noqa: ARG001 - the shape of KeysOf
    """Return the key inside a self-certifying DID, or None for a name."""
    key = key_of_did(did)
    return None if key is None else (key,)


def inspect_packet(
    body: dict[str, Any],
    filters: Filters | None,
    received_at: int,
    wall_s: int,
    keys_of: KeysOf | None = own_key,
) -> Inspected | Fault:
    """Check the packet of an EVENT, or of an HTTP answer, which has the same fields.

    Args:
        body: The message, as ``canonical.parse`` returned it.
        filters: The subscription's filters; None for any packet.
        received_at: The relay's claim.
        wall_s: Our clock.
        keys_of: Knows authors; None leaves the signature to the caller.
    """
    try:
        packet = read_packet(_as_signed(body), PACKET_BYTES_CEILING)
    except RefusedError as error:
        return Fault("malformed_packet", error.refusal.detail, None)
    # Spec 18: an EVENT whose packet has a wrong id is a violation.
    if not packet.id_matches:
        return Fault("packet_id", "the content has another id", packet.packet_id)
    # Spec 18: so is one outside the filter.
    signed = (packet.author_id, packet.content_type, packet.timestamp)
    if filters is not None and not filters.match(*signed, packet.packet_id):
        # STRATA-IDS: a relay of another kind ignores ids, rightly.
        return Fault("outside_filter", packet.content_type, packet.packet_id, blame=not filters.match(*signed))
    # Spec 18: so is an expired one.
    if packet.expires_at is not None and wall_s > packet.expires_at:
        late_s = wall_s - packet.expires_at
        return Fault("expired", f"{late_s} s ago", packet.packet_id, blame=late_s > CLOCK_SKEW_S)
    keys = None if keys_of is None else keys_of(packet.author_id, received_at)
    # Spec 4.1: at most 16 keys are tried.
    if keys is not None and verify_any(keys[:KEYS_TRIED_MAX], packet.preimage, packet.signature) < 0:
        blame = len(keys) <= KEYS_TRIED_MAX  # else it may be of a key that was not tried, and the relay is honest
        return Fault("signature", "no key of the author made it", packet.packet_id, blame=blame)
    downgrade = downgrade_of(body)
    return Inspected(packet, _origin_of(packet, downgrade), downgrade, keys is not None)


def _as_signed(body: dict[str, Any]) -> object:
    """Return the packet with its signed header, if the relay says that it changed it."""
    packet, declared = body.get("packet"), body.get("provenance_downgrade")
    header = declared.get("original_provenance_header") if isinstance(declared, dict) else None
    if isinstance(packet, dict) and isinstance(header, dict):
        # Spec 9.1: original_provenance_header takes the place of provenance_header before id and signature are checked.
        return restored(packet, header)
    return packet


def _origin_of(packet: Packet, downgrade: dict[str, str] | None) -> str:
    if downgrade is not None or not packet.has_provenance:
        # Spec 9.1: readers treat the origin of a downgraded packet as UNKNOWN.
        return UNKNOWN
    return str(packet.body["provenance_header"]["origin_type"])
