"""Makes the relay's journal facts about packets: one per verdict, one per stored packet.

The relay calls it with each candidate and its verdict; the node's recorder turns the facts into journal events.
"""

from typing import Any, Final

from waystation.core.facts import PacketJudged, PacketStored
from waystation.core.instant import Instant
from waystation.core.packets import PacketRow
from waystation.protocols.strata.relay.intake import Candidate, Verdict

__all__ = ["stored_fact", "verdict_fact"]

PROTOCOL: Final = "strata"


def verdict_fact(candidate: Candidate, verdict: Verdict, wall_s: int, now: Instant) -> PacketJudged | None:
    """Return the fact of a verdict, or None for a packet so malformed that it has no author."""
    packet, row = candidate.packet, verdict.row
    if packet is None:
        return None
    if verdict.refusal is not None:
        word, detail = verdict.refusal.code.value, verdict.refusal.detail
    else:
        word, detail = ("duplicate" if verdict.duplicate else "accepted"), ""
    relay = candidate.source.encode()
    return PacketJudged(
        PROTOCOL,
        word,
        detail or None,
        packet.author_id.encode(),
        relay or None,
        "peer" if relay else "client",
        len(packet.canonical),
        packet_id=packet.packet_id,
        content_type=packet.content_type,
        packet_ts=packet.timestamp,
        received_at=row.received_at if row is not None else wall_s,
        expires_at=packet.expires_at,
        store_seq=row.seq if row is not None else None,
        origin=_claimed_origin(packet.body) if packet.has_provenance else None,
        downgrade=candidate.downgrade.reason if candidate.downgrade is not None else None,
        latency_us=now - candidate.arrived,
    )


def stored_fact(candidate: Candidate, row: PacketRow) -> PacketStored:
    """Return the fact of a packet that is durable now."""
    return PacketStored(
        PROTOCOL,
        row.packet_id,
        row.received_at,
        row.author_id,
        row.content_type,
        row.timestamp,
        row.expires_at,
        candidate.signer,
        row.canonical,
    )


def _claimed_origin(body: dict[str, Any]) -> str:
    origin = body["provenance_header"].get("origin_type")
    known = ("HARDWARE_SECURE_ENCLAVE", "AI_MODEL", "SOFTWARE", "UNKNOWN")
    return origin if origin in known else "OTHER"  # an unverified text is no column value
