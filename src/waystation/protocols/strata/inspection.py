"""Whether a packet that a relay hands us is what its author signed and what we asked for.

A relay is an untrusted utility, so every packet is read strictly, its id recomputed and its signature checked by us. A
declared provenance downgrade in the form of ``mutate`` is undone first: the signed header stands beside the packet.
Spec: RFC-0004 7; specs/strata.md 9.1, 18.

Choice: a relay's clock is not ours, so a packet that expired less than ``CLOCK_SKEW_S`` ago is dropped without blame.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from waystation.core.dids import key_of_did
from waystation.crypto.signing import verify_any
from waystation.protocols.strata.client_wire import downgrade_of
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import PACKET_BYTES_CEILING, Packet, read_packet
from waystation.protocols.strata.provenance import UNKNOWN, restored
from waystation.protocols.strata.refusals import RefusedError

__all__ = ["CLOCK_SKEW_S", "Fault", "Inspected", "KeysOf", "inspect_packet", "own_key"]

CLOCK_SKEW_S: Final = 300  # specs/strata.md 4.2
KEYS_TRIED_MAX: Final = 16  # specs/strata.md 4.1

KeysOf = Callable[[str, int], tuple[bytes, ...] | None]
"""Keys of a DID, 32 bytes each, that counted at a time of reception; None when nobody can say."""


class Inspected(NamedTuple):
    """A packet that may be used."""

    packet: Packet
    """As signed."""
    origin_type: str
    downgrade: dict[str, str] | None
    verified: bool
    """Whether a key of the author signed it; False when no key is known or none was asked for."""


class Fault(NamedTuple):
    """Why a packet must be dropped."""

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
    """Judge the packet of an EVENT, or of an HTTP answer, which has the same fields.

    Args:
        body: The message, as ``canonical.parse`` returned it.
        filters: What was asked for; None for anything.
        received_at: As the relay says.
        wall_s: Our clock.
        keys_of: Knows authors; None leaves the signature to the caller.
    """
    try:
        packet = read_packet(_as_signed(body), PACKET_BYTES_CEILING)
    except RefusedError as error:
        return Fault("malformed_packet", error.refusal.detail, None)
    if not packet.id_matches:
        return Fault("packet_id", "the content has another id", packet.packet_id)
    if filters is not None and not filters.match(packet.author_id, packet.content_type, packet.timestamp):
        return Fault("outside_filter", packet.content_type, packet.packet_id)
    if packet.expires_at is not None and wall_s > packet.expires_at:
        late_s = wall_s - packet.expires_at
        return Fault("expired", f"{late_s} s ago", packet.packet_id, blame=late_s > CLOCK_SKEW_S)
    keys = None if keys_of is None else keys_of(packet.author_id, received_at)
    if keys is not None and verify_any(keys[:KEYS_TRIED_MAX], packet.preimage, packet.signature) < 0:
        blame = len(keys) <= KEYS_TRIED_MAX  # else it may be of a key that was not tried, and the relay is honest
        return Fault("signature", "no key of the author made it", packet.packet_id, blame=blame)
    downgrade = downgrade_of(body)
    return Inspected(packet, _origin_of(packet, downgrade), downgrade, keys is not None)


def _as_signed(body: dict[str, Any]) -> object:
    """Return the packet with its signed header, if the relay says that it changed it."""
    packet, said = body.get("packet"), body.get("provenance_downgrade")
    header = said.get("original_provenance_header") if isinstance(said, dict) else None
    if isinstance(packet, dict) and isinstance(header, dict):
        return restored(packet, header)
    return packet


def _origin_of(packet: Packet, downgrade: dict[str, str] | None) -> str:
    if downgrade is not None or not packet.has_provenance:
        return UNKNOWN
    return str(packet.body["provenance_header"]["origin_type"])
