"""Bootstrap of a client that knows no relay yet: it checks signed documents that name relays, and advisory snapshots.

The SDK and ``waystation strata`` pass documents in and get the relays they list. A Bootstrap Document is trusted only
when enough pinned gatekeepers of enough different kinds have signed it. A snapshot is one author's view. It can name
relays and scores but no roots, and agreement of two sources counts more. A service hint is followed automatically only
if its provider signed it and two sources have it.
Spec: RFC-0005 4.1, RFC-0006, RFC-0011; specs/strata.md 17 (D18).

Choice: a gatekeeper's diversity tags are those pinned with it, because the tags beside a signature are not signed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from waystation.core.dids import is_did, key_of_did
from waystation.core.errors import LocalError, RemoteError
from waystation.core.ids import decode_key_hex
from waystation.crypto.hashing import blake3_256
from waystation.crypto.issuers import is_issuer_key
from waystation.crypto.signing import verify, verify_any
from waystation.protocols.strata.canonical import canonicalise
from waystation.protocols.strata.keys.keyring import whole_seconds
from waystation.protocols.strata.packet import (
    Packet,
    packet_id_text,
    parse_packet_id,
    parse_signature,
)
from waystation.protocols.strata.refusals import RefusedError

__all__ = [
    "SIGNATURES_MIN",
    "TAGS_MIN",
    "Advice",
    "BootstrapDocument",
    "BootstrapRefusedError",
    "Doubt",
    "Gatekeeper",
    "RelayEntry",
    "ServiceHint",
    "Snapshot",
    "advise",
    "agreed_services",
    "check_document",
    "check_service",
    "document_id",
    "read_gatekeepers",
    "read_pointers",
    "read_snapshot",
]

SIGNATURES_MIN: Final = 3  # specs/strata.md 17
TAGS_MIN: Final = 2
RELAYS_MAX: Final = 1_000  # ours
SIGNATURES_MAX: Final = 64  # ours; each costs a check
HINTS_MAX: Final = 64  # ours
POINTERS_MAX: Final = 10_000  # ours
ROOTS_MAX: Final = 256  # ours, of each kind
_SKEW_DEFAULT_S: Final = 300
_SKEW_RANGE_S: Final = (60, 300)  # specs/strata.md 4.2
_SOURCES_MIN: Final = 2
_AGREEMENT_S: Final = 72 * 3_600
_HINT_LIFE_S: Final = 7 * 86_400
_URL_CHARS_MAX: Final = 1_024
_UNSIGNED: Final = frozenset({"bootstrap_id", "signatures"})
_KeysOf = Callable[[str, int], tuple[bytes, ...] | None]


class Doubt(Enum):
    """The reason for which a document or snapshot is refused."""

    MALFORMED = "malformed"
    WRONG_ID = "wrong_id"
    EXPIRED = "expired"
    NOT_YET = "not_yet"
    TOO_FEW_SIGNATURES = "too_few_signatures"
    TOO_FEW_TAGS = "too_few_tags"
    NOT_A_SNAPSHOT = "not_a_snapshot"


class BootstrapRefusedError(RemoteError):
    """Bootstrap data must not be used; ``doubt`` says why."""

    def __init__(self, doubt: Doubt, detail: str = "") -> None:
        super().__init__(f"bootstrap data is not believed: {doubt.value}{f' ({detail})' if detail else ''}")
        self.doubt = doubt


class Gatekeeper(NamedTuple):
    """A signer that the user trusts to vouch for bootstrap documents."""

    public: bytes
    """32 bytes."""
    tags: tuple[str, ...]
    """The kind of signer: jurisdiction, sector, and so on."""


class RelayEntry(NamedTuple):
    """A relay that bootstrap data names."""

    relay_id: str
    """A DID; empty when it is not given."""
    url: str
    score: float | None = None
    """0 to 1, from snapshots."""
    fingerprint: str = ""


class BootstrapDocument(NamedTuple):
    """A document that passed every check."""

    bootstrap_id: str
    issued_at: int
    expires_at: int
    clock_skew_s: int | None
    """60 to 300, what relay and client count with; None when it says nothing of the kind."""
    relays: tuple[RelayEntry, ...]
    signers: tuple[str, ...]
    roots: Mapping[str, bytes]
    """Keys that end provenance chains, by name, of ``hardware_roots`` and ``model_roots``."""
    did_docs: Mapping[str, str]
    body: Mapping[str, Any]


class ServiceHint(NamedTuple):
    """A service that a snapshot points to; ``check_service`` says whether its provider does."""

    kind: str
    version: int | str
    provider_id: str
    priority: int
    expires_at: int
    config_packet: bytes | None
    """Id of the provider's SERVICE_CONFIG, 32 bytes; None for a hint that brings only what its source says itself."""
    payload: Mapping[str, Any]
    """What the source says inline; empty for nothing. Nobody but the source has signed it."""


class Snapshot(NamedTuple):
    """One source's advice; never authority."""

    source_id: str
    issued_at: int
    expires_at: int
    relays: tuple[RelayEntry, ...]
    services: tuple[ServiceHint, ...]
    did_docs: Mapping[str, str]


class Advice(NamedTuple):
    """A relay as all snapshots together see it."""

    relay: RelayEntry
    """With the mean score."""
    sources: int
    """How many different sources name it; two or more are to be preferred."""


def document_id(body: Mapping[str, Any]) -> str:
    """Return the required ``bootstrap_id``, which is also the hash that gatekeepers sign; raises RefusedError."""
    return packet_id_text(blake3_256(_signed_bytes(body)))


def check_document(body: object, gatekeepers: Mapping[str, Gatekeeper], now_s: int) -> BootstrapDocument:
    """Return a Bootstrap Document that may be used.

    Args:
        body: A JSON object from ``canonical.parse``.
        gatekeepers: Issuer -> who it is; only these count.
        now_s: Unix seconds.

    Raises:
        BootstrapRefusedError: For any doubt at all.
    """
    if not isinstance(body, Mapping):
        raise BootstrapRefusedError(Doubt.MALFORMED, "no object")
    issued_at, expires_at = (whole_seconds(_number(body.get(name))) for name in ("issued_at", "expires_at"))
    if issued_at is None or expires_at is None:
        raise BootstrapRefusedError(Doubt.MALFORMED, "issued_at, expires_at")
    try:
        signed = _signed_bytes(body)
    except RefusedError as error:
        raise BootstrapRefusedError(Doubt.MALFORMED, error.refusal.detail) from error
    # Spec 17: believed only if the id is right.
    if body.get("bootstrap_id") != packet_id_text(blake3_256(signed)):
        raise BootstrapRefusedError(Doubt.WRONG_ID)
    skew_s = _skew(body.get("clock_skew_seconds"))
    # Spec 17: it is unexpired and not from the future.
    if now_s > expires_at:
        raise BootstrapRefusedError(Doubt.EXPIRED)
    if issued_at > now_s + (skew_s or _SKEW_DEFAULT_S):
        raise BootstrapRefusedError(Doubt.NOT_YET)
    # Spec 17: 3 different pinned gatekeepers signed it, and two of them can be given different diversity tags.
    signers = _signers(body.get("signatures"), signed, gatekeepers)
    if len(signers) < SIGNATURES_MIN:
        raise BootstrapRefusedError(Doubt.TOO_FEW_SIGNATURES, f"{len(signers)} of {SIGNATURES_MIN}")
    if not _are_diverse([gatekeepers[issuer] for issuer in signers]):
        raise BootstrapRefusedError(Doubt.TOO_FEW_TAGS, f"{TAGS_MIN} tags of different gatekeepers are needed")
    return BootstrapDocument(
        str(body["bootstrap_id"]),
        issued_at,
        expires_at,
        skew_s,
        _relays(body.get("relays"), "id"),
        signers,
        _roots(body),
        read_pointers(body.get("did_docs")),
        body,
    )


def read_gatekeepers(body: object) -> dict[str, Gatekeeper]:
    """Return pinned gatekeepers from a JSON object: issuer -> {"public_key": hex, "diversity_tags": [...]}.

    Raises:
        LocalError: It is something else.
    """
    try:
        return {
            str(issuer): Gatekeeper(decode_key_hex(entry["public_key"]), tuple(map(str, entry["diversity_tags"])))
            for issuer, entry in body.items()  # type: ignore[attr-defined]
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise LocalError('no gatekeepers: {"issuer": {"public_key", "diversity_tags"}}') from error


def read_snapshot(packet: Packet, now_s: int, skew_s: int = _SKEW_DEFAULT_S) -> Snapshot:
    """Return the advice in a CONFIG packet, whose id and signature the caller has checked.

    Args:
        packet: Of the source.
        now_s: Unix seconds.
        skew_s: Tolerance.

    Raises:
        BootstrapRefusedError: It is no snapshot, or not one for now.
    """
    content = packet.body["content"]
    # Spec 17: a CONFIG packet with scope or config_type BOOTSTRAP_SNAPSHOT.
    if packet.content_type != "CONFIG" or "BOOTSTRAP_SNAPSHOT" not in {
        content.get("scope"),
        content.get("config_type"),
    }:
        raise BootstrapRefusedError(Doubt.NOT_A_SNAPSHOT)
    issued_at, expires_at = whole_seconds(content.get("issued_at")), whole_seconds(content.get("expires_at"))
    # Spec 17: source_id is the author, and a snapshot has a version and a life.
    usable = issued_at is not None and expires_at is not None and expires_at > issued_at
    if not usable or content.get("source_id") != packet.author_id or content.get("snapshot_version") is None:
        raise BootstrapRefusedError(Doubt.MALFORMED, "snapshot")
    assert issued_at is not None
    assert expires_at is not None
    # A snapshot is held to the same clock as a document: not from the future, not expired.
    if issued_at > now_s + skew_s:
        raise BootstrapRefusedError(Doubt.NOT_YET)
    stale = packet.expires_at is not None and now_s > packet.expires_at
    if stale or now_s > expires_at + skew_s:
        raise BootstrapRefusedError(Doubt.EXPIRED)
    hints = content.get("hints")
    services = _services(hints.get("services") if isinstance(hints, dict) else None, issued_at, now_s)
    return Snapshot(
        packet.author_id,
        issued_at,
        expires_at,
        _relays(content.get("relays"), "relay_id"),
        services,
        read_pointers(content.get("did_docs")),
    )


def read_pointers(entries: object) -> dict[str, str]:
    """Return the DID documents that bootstrap data names, DID -> ``did_doc_hash``; entries that are none are left out.

    Args:
        entries: A list of {``did``, ``did_doc_hash``, ``priority``}, or a map of the same, as we wrote it earlier. Of
            several for one DID the one of the greatest priority counts, of equal ones the first.
    """
    if isinstance(entries, dict):
        entries = [{"did": did, "did_doc_hash": value} for did, value in entries.items()]
    found: dict[str, tuple[int, str]] = {}
    for entry in entries[:POINTERS_MAX] if isinstance(entries, list) else ():
        did, value = (entry.get("did"), entry.get("did_doc_hash")) if isinstance(entry, dict) else (None, None)
        if isinstance(did, str) and is_did(did) and isinstance(value, str):
            priority = whole_seconds(_number(entry.get("priority"))) or 0
            if did not in found or priority > found[did][0]:
                found[did] = (priority, value)
    return {did: value for did, (_, value) in found.items()}


def advise(snapshots: Iterable[Snapshot]) -> list[Advice]:
    """Return every relay that snapshots name: most sources first, then the best mean score, then by address."""
    named: dict[str, dict[str, RelayEntry]] = {}
    for snapshot in snapshots:
        for entry in snapshot.relays:
            named.setdefault(entry.url, {}).setdefault(snapshot.source_id, entry)
    found = []
    for entries in named.values():
        # Spec 18: boot is the mean score in snapshots.
        scores = [entry.score for entry in entries.values() if entry.score is not None]
        mean = sum(scores) / len(scores) if scores else None
        found.append(Advice(next(iter(entries.values()))._replace(score=mean), len(entries)))
    # Spec 17: relays that two sources name come first.
    return sorted(found, key=lambda advice: (-advice.sources, -(advice.relay.score or 0.0), advice.relay.url))


def agreed_services(snapshots: Sequence[Snapshot], now_s: int) -> list[ServiceHint]:
    """Return the hints that may be enabled without asking, once ``check_service`` has seen the packet of each.

    Two sources of the last 72 h must name the same packet for the same service.
    """
    seen: dict[tuple[object, ...], dict[str, ServiceHint]] = {}
    for snapshot in snapshots:
        # Spec 17: seen in two snapshots of different sources within 72 h.
        if abs(now_s - snapshot.issued_at) > _AGREEMENT_S:
            continue
        for hint in snapshot.services:
            if hint.config_packet is not None and hint.expires_at >= now_s:
                named = (hint.config_packet, hint.kind, hint.version, hint.provider_id)
                seen.setdefault(named, {}).setdefault(snapshot.source_id, hint)
    agreed = [next(iter(hints.values())) for hints in seen.values() if len(hints) >= _SOURCES_MIN]
    return sorted(agreed, key=lambda hint: (-hint.priority, hint.provider_id))


def check_service(hint: ServiceHint, packet: Packet, keys_of: _KeysOf, now_s: int) -> bool:
    """Return whether a packet is the one that a hint names, and its provider's word for that service.

    Args:
        hint: Of a snapshot.
        packet: What a relay answered for ``config_packet``.
        keys_of: Knows the keys of service providers.
        now_s: Unix seconds.
    """
    content = packet.body["content"]
    named = (content.get("scope"), content.get("config_type"))
    # Spec 17: the packet is the provider's own CONFIG SERVICE_CONFIG, for this service and version.
    if packet.content_type != "CONFIG" or "SERVICE_CONFIG" not in named or packet.author_id != hint.provider_id:
        return False
    if (content.get("service"), content.get("service_version")) != (hint.kind, hint.version):
        return False
    if packet.packet_id != hint.config_packet or not packet.id_matches:
        return False
    if packet.expires_at is not None and now_s > packet.expires_at:
        return False
    keys = keys_of(hint.provider_id, now_s)
    return keys is not None and verify_any(keys, packet.preimage, packet.signature) >= 0


def _signed_bytes(body: Mapping[str, Any]) -> bytes:
    # D18: id and signatures cover the document without bootstrap_id and signatures.
    return canonicalise({name: value for name, value in body.items() if name not in _UNSIGNED})


def _signers(entries: object, signed: bytes, gatekeepers: Mapping[str, Gatekeeper]) -> tuple[str, ...]:
    """Return the distinct pinned gatekeepers whose signature is right; one key counts once."""
    found: dict[bytes, str] = {}
    for entry in entries[:SIGNATURES_MAX] if isinstance(entries, list) else ():
        issuer = entry.get("issuer") if isinstance(entry, dict) else None
        gatekeeper = gatekeepers.get(issuer) if isinstance(issuer, str) else None
        signature = parse_signature(entry.get("signature")) if gatekeeper is not None else None
        # One key under two names counts once: it is one gatekeeper.
        if gatekeeper is not None and signature is not None and verify(gatekeeper.public, signed, signature):
            found.setdefault(gatekeeper.public, str(issuer))
    return tuple(found.values())


def _are_diverse(signers: Sequence[Gatekeeper]) -> bool:
    """Return whether two different gatekeepers can be given two different tags."""
    return any(
        # Spec 17: the tags that count are those pinned with the gatekeeper.
        tag != other_tag
        for number, gatekeeper in enumerate(signers)
        for other in signers[number + 1 :]
        for tag in gatekeeper.tags
        for other_tag in other.tags
    )


def _relays(entries: object, id_name: str) -> tuple[RelayEntry, ...]:
    found = (_relay(entry, id_name) for entry in (entries[:RELAYS_MAX] if isinstance(entries, list) else ()))
    return tuple(each for each in found if each is not None)


def _relay(entry: object, id_name: str) -> RelayEntry | None:
    if not isinstance(entry, dict):
        return None
    url, relay_id, score = entry.get("url"), entry.get(id_name), _number(entry.get("score"))
    # Spec 17: url is ws or wss.
    if not isinstance(url, str) or not url.startswith(("ws://", "wss://")) or len(url) > _URL_CHARS_MAX:
        return None
    fair = isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 1
    fingerprint = entry.get("fingerprint")
    return RelayEntry(
        relay_id if isinstance(relay_id, str) else "",
        url,
        float(score) if fair else None,  # type: ignore[arg-type]
        fingerprint if isinstance(fingerprint, str) else "",
    )


def _services(entries: object, issued_at: int, now_s: int) -> tuple[ServiceHint, ...]:
    found = (_service(entry, issued_at, now_s) for entry in (entries[:HINTS_MAX] if isinstance(entries, list) else ()))
    return tuple(each for each in found if each is not None)


def _service(entry: object, issued_at: int, now_s: int) -> ServiceHint | None:
    """Return a hint that names a packet, or brings a payload, and is for now."""
    if not isinstance(entry, dict):
        return None
    kind, provider_id, expires_at = entry.get("kind"), entry.get("provider_id"), whole_seconds(entry.get("expires_at"))
    version, payload = entry.get("version"), entry.get("payload")
    if not isinstance(kind, str) or not isinstance(provider_id, str) or expires_at is None:
        return None
    # Spec 17: version is required.
    if isinstance(version, bool) or not isinstance(version, int | str):
        return None
    # Spec 17: a hint lives at most 7 days beyond issued_at.
    if expires_at < now_s or expires_at > issued_at + _HINT_LIFE_S:
        return None
    text = entry.get("config_packet")
    packet_id = parse_packet_id(text) if isinstance(text, str) else None
    # Spec 17: config_packet is a packet id, or a payload stands in its place.
    if packet_id is None and not isinstance(payload, dict):
        return None
    priority = whole_seconds(_number(entry.get("priority"))) or 0
    said = payload if isinstance(payload, dict) else {}
    return ServiceHint(kind, version, provider_id, priority, expires_at, packet_id, said)


def _roots(body: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the roots of a document; entries of another shape are left out (STRATA-BOOTSTRAP)."""
    found: dict[str, bytes] = {}
    for name in ("hardware_roots", "model_roots"):
        entries = body.get(name)
        for entry in entries[:ROOTS_MAX] if isinstance(entries, list) else ():
            root_id, text = (entry.get("id"), entry.get("public_key")) if isinstance(entry, dict) else (entry, None)
            if not isinstance(root_id, str):
                continue
            key = key_of_did(root_id) if text is None else _key_bytes(text)
            if key is not None and is_issuer_key(key):
                found.setdefault(root_id, bytes(key))
    return found


def _key_bytes(text: object) -> bytes | None:
    try:
        return bytes.fromhex(text.removeprefix("0x")) if isinstance(text, str) else None
    except ValueError:
        return None


def _skew(value: object) -> int | None:
    seconds = whole_seconds(_number(value))
    # Spec 4.2: a value outside 60 to 300 in bootstrap data is ignored.
    return seconds if seconds is not None and _SKEW_RANGE_S[0] <= seconds <= _SKEW_RANGE_S[1] else None


def _number(value: object) -> object:
    """Return a plain number for what ``canonical.parse`` gives for fractions, anything else as it is."""
    if value is None or isinstance(value, bool | int | float | str | list | dict):
        return value
    return float(str(value))
