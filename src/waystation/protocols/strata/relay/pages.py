"""Answers the relay's HTTP GET requests: packets by id, documents by hash, manifest and descriptor.

The relay passes path and store; an ``HttpAnswer`` comes out. Only the packets are signed, so the other pages serve
discovery and must not be trusted. Answers are JSON, and other sites may read them (CORS). Spec: RFC-0004 4; RFC-0007
manifest; specs/strata.md 15, 16, clarifications 8 and 11.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import orjson

from waystation.core.answers import HttpAnswer
from waystation.core.packets import PacketQuery, PacketReader, PacketRow
from waystation.core.settings import InForce
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.packet import parse_packet_id
from waystation.protocols.strata.refusals import Refusal
from waystation.protocols.strata.relay.delivery import served
from waystation.protocols.strata.relay.descriptor import DESCRIPTOR, relay_policy
from waystation.protocols.strata.relay.directory import Directory
from waystation.protocols.strata.relay.limits import Kind, Rank, rate_of
from waystation.protocols.strata.relay.policy import Policy
from waystation.protocols.strata.relay.reading import read_some
from waystation.protocols.strata.settings import StrataSettings
from waystation.protocols.strata.wire import LIMIT_MAX
from waystation.version import __version__

__all__ = ["NO_LOGS", "PROFILES", "LogPolicy", "Pages"]

PROFILES: Final = ("FULL_ARCHIVE", "PUBLIC_SOCIAL")
"""Replication profiles offered; HIGH_TRUST_ONLY needs a rating that a relay does not make."""

SNAPSHOTS_MAX: Final = 50
SNAPSHOTS_LOOKED_AT_MAX: Final = 1_000
SNAPSHOTS_BYTES_MAX: Final = 2 * 1_048_576  # read for one answer, a page more at most
SNAPSHOTS_PAGE_BYTES: Final = 262_144
POINTERS_SHOWN_MAX: Final = 1_000
PATH_CHARS_MAX: Final = 1_024
_HEADERS: Final = (
    ("Content-Type", "application/json"),
    ("Access-Control-Allow-Origin", "*"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
)
_PACKETS: Final = "/strata/packets/"
_DOCUMENTS: Final = "/strata/did-docs/"
_ABOUT_THE_RELAY: Final = ("/.well-known/strata-relay.json", "/strata/descriptor")


class LogPolicy(NamedTuple):
    """What the node that runs a relay logs."""

    retention_hours: int
    """How long it keeps what it records about packets and requests."""
    has_addresses: bool
    """Whether it writes addresses of clients."""


NO_LOGS: Final = LogPolicy(0, has_addresses=False)


class Pages:
    """Answers GET requests from the store."""

    def __init__(
        self,
        settings: StrataSettings,
        relay_id: str,
        packets: PacketReader,
        directory: Directory,
        policy: Callable[[], Policy],
        limits: InForce[StrataLimits],
        logs: LogPolicy = NO_LOGS,
    ) -> None:
        """Answer for one relay.

        Args:
            settings: The operator's settings.
            relay_id: DID of the relay.
            packets: The stored packets.
            directory: Has the DID documents.
            policy: The block lists as of now.
            limits: The allowances that the manifest names.
            logs: What the manifest says about logs.
        """
        self._logs = logs
        self._settings = settings
        self._relay_id = relay_id
        self._packets = packets
        self._directory = directory
        self._policy = policy
        self._limits = limits

    def answer(self, path: str, wall_s: int, endpoint: str = "", *, for_anybody: bool = True) -> HttpAnswer:
        """Return the answer to a path with its query; an unknown path is 404.

        Args:
            path: Path and query.
            wall_s: Unix seconds.
            endpoint: Our WebSocket address as the client asked for it, empty when unknown.
            for_anybody: False shows the relay itself and no packets of others, since a request proves no identity.
        """
        name, _, query = path[:PATH_CHARS_MAX].partition("?")
        if not for_anybody and name not in _ABOUT_THE_RELAY:
            return _json(403, {"error": "not_allowed"})
        if name.startswith(_PACKETS):
            return self._packet(name.removeprefix(_PACKETS), wall_s)
        if name.startswith(_DOCUMENTS):
            document = self._directory.document_by_hash(name.removeprefix(_DOCUMENTS))
            return _json(200, document) if document is not None else _missing("no such document")
        if name == "/.well-known/strata-relay.json":
            return _json(200, self._manifest(wall_s, endpoint))
        if name == "/strata/descriptor":
            row = self.descriptor(wall_s)
            return _json(200, _shown(row)) if row is not None else _missing("no descriptor")
        if name == "/.well-known/strata/bootstrap-snapshot":
            found = self._snapshots(wall_s, 1)
            return _json(200, found[0]) if found else _missing("no snapshot")
        if name == "/.well-known/strata/bootstrap-snapshots":
            return _json(200, self._snapshots(wall_s, _limit_of(query)))
        return _missing("no such page")

    def refused(self, refusal: Refusal) -> HttpAnswer:
        """Return 429 for an allowance that is spent."""
        extra = dict(refusal.extra)
        # Spec 16: 429 with Retry-After beyond the allowance.
        headers = (*_HEADERS, ("Retry-After", str(extra["retry_after"])))
        return HttpAnswer(429, headers, orjson.dumps({"error": refusal.code.value, **extra}))

    def descriptor(self, wall_s: int) -> PacketRow | None:
        """Return this relay's newest RELAY_DESCRIPTOR that has not expired."""
        query = PacketQuery((self._relay_id,), (DESCRIPTOR,), alive_at=wall_s, descending=True)
        rows = read_some(self._packets, query, 1)
        return rows[0] if rows else None

    def _packet(self, text: str, wall_s: int) -> HttpAnswer:
        packet_id = parse_packet_id(text)
        row = self._packets.packet(packet_id) if packet_id is not None else None
        # A blocked packet is answered as an unknown one is.
        if row is None or not self._policy().serves(row):
            return _missing("no such packet")
        # Spec 16: 404 unknown, 410 expired or hidden.
        if self._packets.hidden(row.packet_id) or (row.expires_at is not None and wall_s > row.expires_at):
            return _json(410, {"error": "gone"})
        # Spec 24.11: mutate holds for HTTP as for EVENT.
        packet, note = served(row, self._settings.provenance_downgrade_mode, replicating=False)
        noted = b',"provenance_downgrade":%b' % note if note else b""
        return HttpAnswer(200, _HEADERS, b'{"packet":%b,"received_at":%d%b}' % (packet, row.received_at, noted))

    def _snapshots(self, wall_s: int, count: int) -> list[dict[str, Any]]:
        """Return the newest snapshot of each source, newest first, then their older ones, as many as asked for."""
        query = PacketQuery(snapshots=True, alive_at=wall_s, descending=True, bytes_max=SNAPSHOTS_PAGE_BYTES)
        ranked: list[tuple[int, PacketRow]] = []
        of_source: Counter[str] = Counter()
        rows_left, bytes_left = SNAPSHOTS_LOOKED_AT_MAX, SNAPSHOTS_BYTES_MAX
        while rows_left > 0 and bytes_left > 0:
            page = self._packets.page(query._replace(rows_max=rows_left))
            for row in page.rows:
                if _is_snapshot(row) and self._policy().serves(row):
                    # STRATA-SNAPSHOTS: one source cannot push out another's.
                    ranked.append((of_source[row.author_id], row))
                    of_source[row.author_id] += 1
            if len(of_source) >= count:
                break
            if page.position is None:
                break
            rows_left -= max(1, len(page.rows))
            bytes_left -= sum(len(row.canonical) for row in page.rows)
            query = query._replace(start=page.position)
        ranked.sort(key=lambda entry: entry[0])
        return [{"packet": orjson.Fragment(row.canonical), "observed_at": row.received_at} for _, row in ranked[:count]]

    def _manifest(self, wall_s: int, endpoint: str) -> dict[str, Any]:
        settings = self._settings
        descriptor = self.descriptor(wall_s)
        # Spec 16: the manifest is unsigned, so it says nothing that a client must believe.
        rates = {rank.value: rate_of(self._limits.now, rank, Kind.PUBLISH) for rank in Rank}
        return {
            "relay_id": self._relay_id,
            # Spec 24.16: without public_url it is derived from the request's Host; the descriptor stays absent.
            "ws_endpoint": settings.public_url or endpoint or None,
            "status": "ok",
            "services": {},
            "policy": relay_policy(settings),
            "replication": {
                "accepts_peer_subscriptions": bool(settings.replicate_allow),
                "supported_profiles": list(PROFILES),
                # Spec 15: SUBSCRIBE with a profile needs the capability replicate.
                "requires_auth": True,
            },
            "software": {"name": "waystation", "version": __version__},
            "limits": {
                "max_packet_bytes": settings.max_packet_bytes,
                "max_limit": LIMIT_MAX,
                "publish_per_minute": rates,
            },
            "clock_skew_seconds": settings.clock_skew_s,
            # STRATA-POINTERS: other relays fetch them by their hash.
            "did_docs": [
                {"did": did, "did_doc_hash": value, "priority": 0}
                for did, value in self._directory.heads(POINTERS_SHOWN_MAX).items()
            ],
            "privacy": {
                "log_retention_hours": self._logs.retention_hours,
                "addresses_logged": self._logs.has_addresses,
            },
            "descriptor_packet_id": f"0x{descriptor.packet_id.hex()}" if descriptor is not None else None,
        }


def _is_snapshot(row: PacketRow) -> bool:
    content = orjson.loads(row.canonical)["content"]
    return "BOOTSTRAP_SNAPSHOT" in (content.get("scope"), content.get("config_type"))


def _shown(row: PacketRow) -> dict[str, Any]:
    return {"packet": orjson.Fragment(row.canonical), "received_at": row.received_at}


def _limit_of(query: str) -> int:
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if name == "limit" and value.isascii() and value.isdigit() and len(value) < 4:
            # Spec 16: at most 50.
            return max(1, min(int(value), SNAPSHOTS_MAX))
    return SNAPSHOTS_MAX


def _missing(why: str) -> HttpAnswer:
    return _json(404, {"error": why})


def _json(status: int, body: object) -> HttpAnswer:
    return HttpAnswer(status, _HEADERS, orjson.dumps(body))
