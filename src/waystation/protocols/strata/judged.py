"""What the node is told about packets: one fact per verdict, one per stored packet."""

from typing import Any, Final

from waystation.core.facts import PacketJudged, PacketStored
from waystation.core.instant import Instant
from waystation.core.packets import PacketRow
from waystation.protocols.strata.intake import Candidate, Verdict

__all__ = ["judged", "stored"]

PROTOCOL: Final = "strata"


def judged(candidate: Candidate, verdict: Verdict, wall_s: int, now: Instant) -> PacketJudged | None:
    """Return the fact of a verdict, or None for a packet so malformed that it has no author."""
    packet, row = candidate.packet, verdict.row
    if packet is None:
        return None
    if verdict.refusal is not None:
        word, detail = verdict.refusal.code.value, verdict.refusal.detail
    else:
        word, detail = ("duplicate" if verdict.duplicate else "accepted"), ""
    return PacketJudged(
        PROTOCOL,
        packet.author_id.encode(),
        packet.packet_id,
        packet.content_type,
        len(packet.canonical),
        packet.timestamp,
        row.received_at if row is not None else wall_s,
        row.seq if row is not None else None,
        word,
        detail,
        candidate.downgrade.reason if candidate.downgrade is not None else "",
        _claimed_origin(packet.body) if packet.has_provenance else "",
        candidate.source.encode(),
        now - candidate.arrived,
        packet.expires_at,
    )


def stored(candidate: Candidate, row: PacketRow) -> PacketStored:
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
    return origin if origin in known else "OTHER"  # a stranger's word is no column value
