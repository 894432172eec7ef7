"""Computes the current state of the packets that a reader has seen: corrections applied, attestations merged.

Applications feed it delivered packets and query it. Relays store any signed packet, so readers must check permissions.
Only a packet's author may supersede it, and only its attestor may withdraw an attestation. Superseded packets are kept,
and each query is computed anew, so the order of arrival has no effect. Several relays may feed a view; the earliest
``received_at`` counts. Beyond ``packets_max`` the oldest packets are dropped. Spec: RFC-0002; specs/strata.md 5.2, 5.3,
7.

Choice: an attestation is identified by target, attestation id *and* attestor, so that no other author can claim its id.
"""

from collections import OrderedDict
from enum import Enum
from typing import Any, Final, NamedTuple

from waystation.crypto.signing import verify_any
from waystation.protocols.strata.canonical import canonicalise
from waystation.protocols.strata.client.inspection import KeysOf, own_key
from waystation.protocols.strata.packet import Packet, packet_id_text, parse_packet_id, parse_signature

__all__ = ["Attestation", "Fate", "Shown", "Tier", "View"]

PACKETS_MAX: Final = 100_000  # ours
REFERRERS_MAX: Final = 1_024  # packets of one author about one packet that are looked at, ours
_REFERRING: Final = frozenset({"CORRECTION", "ATTESTATION", "ATTESTATION_RETRACTION"})


class Fate(Enum):
    """What has become of a packet."""

    STANDS = "stands"
    REPLACED = "replaced"
    RETRACTED = "retracted"


class Tier(Enum):
    """How much an attestation weighs."""

    LAB_VERIFIED = "LAB_VERIFIED"
    COMMUNITY = "COMMUNITY"
    AI_ANALYSIS = "AI_ANALYSIS"
    OTHER = "OTHER"


_TIERS: Final = {
    **dict.fromkeys(("LAB", "NGO", "MEDIA", "IDENTITY_GATE"), Tier.LAB_VERIFIED),
    "MODEL_PROVIDER": Tier.AI_ANALYSIS,
}


class Shown(NamedTuple):
    """A packet as it is to be shown."""

    packet: Packet
    received_at: int
    """The earliest that any relay named."""
    fate: Fate
    by: Packet | None
    """The CORRECTION in force."""
    text: str | None
    """What to show: the correction's text, the packet's own, or None when it is retracted or has none."""


class Attestation(NamedTuple):
    """One attestation that counts."""

    attestation_id: str
    attestor_id: str
    tier: Tier
    subject: str
    confidence: float
    received_at: int
    body: dict[str, Any]


class View:
    """A bounded memory of packets that passed every check of a client."""

    def __init__(self, keys_of: KeysOf = own_key, *, packets_max: int = PACKETS_MAX) -> None:
        """Begin empty.

        Args:
            keys_of: Knows the keys of attestors.
            packets_max: The packet added longest ago is forgotten beyond this.
        """
        self._keys_of = keys_of
        self._packets_max = packets_max
        self._packets: OrderedDict[bytes, tuple[Packet, int]] = OrderedDict()
        self._about: dict[bytes, dict[str, list[bytes]]] = {}
        """Packet -> author -> what that author said about it, so that nobody else can push it out."""

    def __len__(self) -> int:
        """Return how many packets are remembered."""
        return len(self._packets)

    def add(self, packet: Packet, received_at: int) -> bool:
        """Remember a packet, or an earlier witness of one; return whether it is new."""
        known = self._packets.get(packet.packet_id)
        if known is not None:
            # Spec 7: with several relays the earliest time counts.
            if received_at < known[1]:
                self._packets[packet.packet_id] = (packet, received_at)
            return False
        self._packets[packet.packet_id] = (packet, received_at)
        target = _target_of(packet)
        if target is not None:
            own = self._about.setdefault(target, {}).setdefault(packet.author_id, [])
            own.append(packet.packet_id)
            # Ours: an author may refer to one packet without end; the newest count.
            del own[:-REFERRERS_MAX]
        if len(self._packets) > self._packets_max:
            self._forget()
        return True

    def show(self, packet_id: bytes) -> Shown | None:
        """Return a packet with its correction applied, or None when it is not known."""
        known = self._packets.get(packet_id)
        if known is None:
            return None
        packet, received_at = known
        correction = self._correction(packet)
        # Spec 5.2: a correction replaces what is shown and deletes nothing; the original stays at hand.
        content = (correction or packet).body["content"]
        if correction is None:
            fate = Fate.STANDS
        else:
            fate = Fate.RETRACTED if content["action"] == "retract" else Fate.REPLACED
        text = content.get("text") if fate is not Fate.RETRACTED else None
        return Shown(packet, received_at, fate, correction, text if isinstance(text, str) else None)

    def attestations(self, packet_id: bytes) -> list[Attestation]:
        """Return the attestations of a packet that count, each once, by the time they were first seen."""
        found: dict[tuple[str, str], Attestation] = {}
        withdrawn = set()
        for packet, received_at in self._referrers(packet_id, *self._about.get(packet_id, ())):
            # Spec 5.2: only the attestor withdraws, so the author of the retraction is part of the key.
            if packet.content_type == "ATTESTATION_RETRACTION":
                withdrawn.add((packet.body["content"].get("attestation_id"), packet.author_id))
            attestation = self._attestation(packet, received_at, packet_id)
            if attestation is None or self._is_retracted(packet):
                continue
            key = (attestation.attestation_id, attestation.attestor_id)
            # Spec 5.3: one attestation counts once, as of its first copy.
            if key not in found or received_at < found[key].received_at:
                found[key] = attestation
        # At the end, since a retraction may have come before what it withdraws.
        counted = [attestation for key, attestation in found.items() if key not in withdrawn]
        # A total order: two readers with the same packets show the same list.
        return sorted(counted, key=lambda each: (each.received_at, each.attestor_id, each.attestation_id))

    def received_at(self, packet_id: bytes) -> int | None:
        """Return the earliest time at which a relay saw a packet."""
        known = self._packets.get(packet_id)
        return None if known is None else known[1]

    def _referrers(self, packet_id: bytes, *authors: str) -> list[tuple[Packet, int]]:
        """Return what these authors said about a packet."""
        about = self._about.get(packet_id, {})
        return [self._packets[each] for author in authors for each in about.get(author, ())]

    def _correction(self, packet: Packet) -> Packet | None:
        """Return the correction in force: of the same author, latest received, ties to the smallest id."""
        own = [
            (other, received_at)
            # Spec 5.2: only the target's author supersedes it; relays store everybody's.
            for other, received_at in self._referrers(packet.packet_id, packet.author_id)
            if other.content_type == "CORRECTION" and other.body["content"].get("action") in ("replace", "retract")
        ]
        # Spec 5.2: latest ``received_at``, ties to the smallest packet id.
        return min(own, key=lambda each: (-each[1], each[0].packet_id))[0] if own else None

    def _is_retracted(self, packet: Packet) -> bool:
        correction = self._correction(packet)
        return correction is not None and correction.body["content"]["action"] == "retract"

    def _attestation(self, packet: Packet, received_at: int, target: bytes) -> Attestation | None:
        """Return the attestation that a packet carries when it is its author's own and about this target."""
        body = packet.body["content"].get("attestation")
        if packet.content_type != "ATTESTATION" or not isinstance(body, dict):
            return None
        attestation_id, attestor_id = body.get("attestation_id"), body.get("attestor_id")
        confidence = body.get("confidence", 1.0)
        # Spec 5.3: both name the target, and the attestor is the author; else the inner signature could be reused.
        if body.get("target_packet") != packet_id_text(target) or attestor_id != packet.author_id:
            return None
        if not isinstance(attestation_id, str) or not attestation_id or not _is_share(confidence):
            return None
        if not self._is_signed(body, packet.author_id, received_at):
            return None
        named = body.get("subject")
        subject, tier = named if isinstance(named, str) else "", _tier_of(body)
        return Attestation(attestation_id, packet.author_id, tier, subject, float(confidence), received_at, body)

    def _is_signed(self, body: dict[str, Any], attestor_id: str, received_at: int) -> bool:
        signature = parse_signature(body.get("signature"))
        keys = self._keys_of(attestor_id, received_at)
        if signature is None or keys is None:
            return False
        # Spec 5.3: the signature is over the canonical form without itself.
        bare = canonicalise({name: value for name, value in body.items() if name != "signature"})
        return verify_any(keys, bare, signature) >= 0

    def _forget(self) -> None:
        packet_id, (packet, _) = self._packets.popitem(last=False)
        target = _target_of(packet)
        authors = self._about.get(target, {}) if target is not None else {}
        own = authors.get(packet.author_id, [])
        if packet_id in own:
            # The other referrers stay: their target may still be shown.
            own.remove(packet_id)
        if not own:
            authors.pop(packet.author_id, None)
        if target is not None and not authors:
            self._about.pop(target, None)


def _target_of(packet: Packet) -> bytes | None:
    """Return which packet this one is about."""
    target = packet.body["content"].get("target_packet")
    if packet.content_type not in _REFERRING or not isinstance(target, str):
        return None
    return parse_packet_id(target)


def _tier_of(body: dict[str, Any]) -> Tier:
    said = body.get("attestation_tier")
    if said is None:
        attestor_type = body.get("attestor_type")
        # Spec 5.3: without a tier the type decides; all that are not named there count as COMMUNITY.
        return _TIERS.get(attestor_type, Tier.COMMUNITY) if isinstance(attestor_type, str) else Tier.COMMUNITY
    return Tier(said) if isinstance(said, str) and said in Tier.__members__ else Tier.COMMUNITY


def _is_share(value: object) -> bool:
    # JSON's true is an int in Python, and no share.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
