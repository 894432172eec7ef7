"""The journal's contract: which columns exist, how private they are, and what every kind of event fills in.

This is the one place. ``segment`` encodes lines by it, ``document`` renders docs/journal.md from it, and the pipeline
takes the schema of a line, of ``bronze.events``, and the allow-list of attributes from it. Whatever is not declared
here never reaches the disk.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from waystation.journal import events

__all__ = [
    "ATTRIBUTES",
    "COLUMNS",
    "FORBIDDEN_NAMES",
    "FORMAT_VERSION",
    "KINDS",
    "NODE_PROTOCOL",
    "TS_US_END",
    "Attribute",
    "Column",
    "Kind",
    "Privacy",
    "allowed_attributes",
    "kind_of",
    "line_ddl",
]

FORMAT_VERSION: Final = "1"
"""Version of the line format, written into every segment's first line."""

NODE_PROTOCOL: Final = "node"
"""The ``protocol`` of events about the node itself."""

TS_US_END: Final = 4_102_444_800_000_000
"""First time that is not believed: 2100-01-01, microseconds UTC."""

FORBIDDEN_NAMES: Final = frozenset(
    {
        "address",
        "body",
        "commit",
        "host",
        "identity",
        "ip",
        "message",
        "payload",
        "preimage",
        "public_key",
        "sender",
        "text",
    }
)
"""No column and no attribute may bear one of these names; a test holds the contract to it."""


class Privacy(Enum):
    """Who may see a value."""

    PUBLIC = "public"
    """Anybody: kinds, counts, versions."""
    OPERATIONAL = "operational"
    """The operator: times, sizes, outcomes of single events."""
    PSEUDONYMOUS = "pseudonymous"
    """The operator, for a limited time: keyed references whose key rotates."""
    FORBIDDEN = "forbidden"
    """Nobody: never written. No column has this class; ``FORBIDDEN_NAMES`` lists what it covers."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the journal."""

    name: str
    line_type: str
    """Spark SQL type as a JSON line carries it."""
    lake_type: str
    """Spark SQL type in ``bronze.events``."""
    nullable: bool
    privacy: Privacy
    meaning: str
    size_bytes: int | None = None
    """Length of a reference; a line carries it as hexadecimal text of twice this length."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One key that ``attrs`` may hold."""

    name: str
    privacy: Privacy
    meaning: str


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of event: which column or attribute each of its fields goes to.

    A field of the event that neither map names goes to the column of its own name.
    """

    name: str
    event: type[Any]
    meaning: str
    columns: Mapping[str, str] = field(default_factory=dict)
    """Event field to column, where the names differ."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Event field to key of ``attrs``."""
    protocol: str | None = None
    """Fixed ``protocol`` of events that have no such field."""

    def columns_filled(self) -> tuple[str, ...]:
        """Return the columns an event of this kind may fill, in the order of ``COLUMNS``."""
        names = {"seq", "kind"} | ({"protocol"} if self.protocol else set()) | ({"attrs"} if self.attributes else set())
        names |= {self.columns.get(name, name) for name in self.event._fields if name not in self.attributes}
        return tuple(column.name for column in COLUMNS if column.name in names)


_OPERATIONAL, _PUBLIC, _PSEUDONYMOUS = Privacy.OPERATIONAL, Privacy.PUBLIC, Privacy.PSEUDONYMOUS

COLUMNS: Final = (
    Column("ts", "bigint", "timestamp", False, _OPERATIONAL, "When it happened, microseconds UTC."),
    Column("seq", "bigint", "bigint", False, _PUBLIC, "Number of the line in its segment, from 0."),
    Column("protocol", "string", "string", False, _PUBLIC, "Protocol, or `node` for the node itself."),
    Column("kind", "string", "string", False, _PUBLIC, "Kind of event."),
    Column("conn_ref", "string", "binary", True, _PSEUDONYMOUS, "Random reference of an identified connection.", 8),
    Column("peer_ref", "string", "binary", True, _PSEUDONYMOUS, "Keyed hash of the peer's or recipient's key.", 16),
    Column("relay_id", "string", "string", True, _PUBLIC, "Another relay the event is about, 16 hexadecimal digits."),
    Column("outcome", "string", "string", True, _OPERATIONAL, "How it ended, what became of it, or the verdict."),
    Column("reason", "string", "string", True, _OPERATIONAL, "Why; a word out of a closed set, never free text."),
    Column("latency_us", "bigint", "bigint", True, _OPERATIONAL, "Microseconds from the beginning to the outcome."),
    Column("bytes", "bigint", "bigint", True, _OPERATIONAL, "Size of what was carried, never its content."),
    Column(
        "attrs", "map<string,string>", "map<string,string>", True, _PSEUDONYMOUS, "Allow-listed extras of the kind."
    ),
)

ATTRIBUTES: Final = (
    Attribute("asked", _OPERATIONAL, "How many nodes were asked for a client."),
    Attribute("attempt_ref", _PSEUDONYMOUS, "Tells apart the attempts of one protocol, 32 hexadecimal digits."),
    Attribute("author_ref", _PSEUDONYMOUS, "Keyed hash of a packet's author, 32 hexadecimal digits."),
    Attribute("bits", _OPERATIONAL, "Leading zero bits that were demanded as work."),
    Attribute("bytes_in", _OPERATIONAL, "Bytes received on a connection or a link."),
    Attribute("bytes_out", _OPERATIONAL, "Bytes sent on a connection or a link."),
    Attribute("closed", _PUBLIC, "Connections closed in the minute that never identified themselves."),
    Attribute("connections", _OPERATIONAL, "Connections that were open when a sample was taken."),
    Attribute("content_type", _OPERATIONAL, "Type of a packet's content out of the known ones, or `other`."),
    Attribute("copies", _OPERATIONAL, "How often a message of a group was offered or sent to a peer."),
    Attribute("cpu_us", _OPERATIONAL, "Processor time that the process spent in a minute, microseconds."),
    Attribute("created_ms", _OPERATIONAL, "Time of a message of a group by its author's clock, Unix milliseconds."),
    Attribute(
        "dependency_refs",
        _PSEUDONYMOUS,
        "Keyed hashes of the messages that one depends on, 32 hexadecimal digits each.",
    ),
    Attribute("dialled", _OPERATIONAL, "1 when this node opened a link, 0 when the other did."),
    Attribute("downgrade", _OPERATIONAL, "Why a claimed origin counts as unknown."),
    Attribute("duration_us", _OPERATIONAL, "How long a subscription or a link lasted, microseconds."),
    Attribute("expires_at", _OPERATIONAL, "When a packet is served for the last time, Unix seconds."),
    Attribute("format", _PUBLIC, "Name or version of the line format."),
    Attribute("found", _OPERATIONAL, "How many nodes said that they have a client."),
    Attribute("frames_in", _OPERATIONAL, "Frames of clients that another node handed over."),
    Attribute("frames_out", _OPERATIONAL, "Frames of clients that were handed to another node."),
    Attribute("group_ref", _PSEUDONYMOUS, "Keyed hash of a group's id, 32 hexadecimal digits."),
    Attribute("history_events", _OPERATIONAL, "Stored packets that a subscription was sent."),
    Attribute("journal_bytes", _OPERATIONAL, "Bytes of the sealed segments of journal and archive."),
    Attribute("lags", _OPERATIONAL, "How often a subscription's reader fell behind."),
    Attribute("live_events", _OPERATIONAL, "New packets that a subscription was sent."),
    Attribute("memory_bytes", _OPERATIONAL, "Resident memory of the process."),
    Attribute("message_ref", _PSEUDONYMOUS, "Keyed hash of a group message's id, 32 hexadecimal digits."),
    Attribute("messages", _OPERATIONAL, "What was judged in a minute: attempts, packets, messages of groups."),
    Attribute("n", _OPERATIONAL, "How often it happened."),
    Attribute("node_id", _PUBLIC, "Node that wrote the segment, 16 hexadecimal digits."),
    Attribute("offered_us", _OPERATIONAL, "How long ago a message was last offered to a peer, microseconds."),
    Attribute("opened", _PUBLIC, "Connections opened in the minute, identified later or not."),
    Attribute("order", _OPERATIONAL, "Place of a message in its group's order of delivery, 0 before that."),
    Attribute("origin", _OPERATIONAL, "Origin that a packet claims, out of a closed set."),
    Attribute("packet_ref", _PSEUDONYMOUS, "Keyed hash of a packet's id, 32 hexadecimal digits."),
    Attribute("packet_ts", _OPERATIONAL, "Time of a packet by its author's clock, Unix seconds."),
    Attribute("probe", _OPERATIONAL, "What was looked at of another relay."),
    Attribute("received_at", _OPERATIONAL, "Earliest time at which a packet was seen, Unix seconds."),
    Attribute("relay_ref", _PSEUDONYMOUS, "Keyed hash of the relay that delivered a packet, 32 hexadecimal digits."),
    Attribute("replicates", _OPERATIONAL, "Subscriptions that were opened by relays."),
    Attribute("requested_us", _OPERATIONAL, "How long ago a peer last asked for a message, microseconds."),
    Attribute("rows", _PUBLIC, "Lines in the segment, first and last included."),
    Attribute("segment", _PUBLIC, "Name of the segment."),
    Attribute("sent_us", _OPERATIONAL, "How long ago a message last left for a peer, microseconds."),
    Attribute("source", _OPERATIONAL, "Who delivered a packet: `client` or `peer`."),
    Attribute("source_ref", _PSEUDONYMOUS, "Keyed hash of a network, IPv4 /24 or IPv6 /48, 32 hexadecimal digits."),
    Attribute("store_bytes", _OPERATIONAL, "Bytes of the store and what lies beside it."),
    Attribute("store_seq", _OPERATIONAL, "Place of a packet in the node's store."),
    Attribute("tries", _OPERATIONAL, "How many requests one outcome answered, or attempts it stands for."),
    Attribute("version", _PUBLIC, "Version of waystation."),
    Attribute("waiting", _OPERATIONAL, "Packets that wait for a tenant."),
    Attribute("work", _OPERATIONAL, "What work was demanded for: `relay`, `lease` or `whitelist`."),
)

_TS: Final = {"ts_us": "ts"}
_ATTEMPT: Final = {"attempt_ref": "attempt_ref"}
_MESSAGE: Final = {"group_ref": "group_ref", "message_ref": "message_ref"}

KINDS: Final = (
    Kind(
        "segment_opened",
        events.SegmentOpened,
        "First line of a segment.",
        _TS,
        {"format": "format", "node_id": "node_id", "segment": "segment"},
        NODE_PROTOCOL,
    ),
    Kind(
        "segment_sealed", events.SegmentSealed, "Last line of a finished segment.", _TS, {"rows": "rows"}, NODE_PROTOCOL
    ),
    Kind("node_started", events.NodeStarted, "The node began to listen.", _TS, {"version": "version"}, NODE_PROTOCOL),
    Kind(
        "node_sampled",
        events.NodeSampled,
        "What the node was and did in one minute.",
        _TS,
        {name: name for name in events.NodeSampled._fields if name != "ts_us"},
        NODE_PROTOCOL,
    ),
    Kind("node_stopped", events.NodeStopped, "The node ended in good order.", _TS, {}, NODE_PROTOCOL),
    Kind("peer_identified", events.PeerIdentified, "A connection proved who it is.", _TS),
    Kind(
        "peer_left",
        events.PeerLeft,
        "An identified connection ended.",
        _TS,
        {"bytes_in": "bytes_in", "bytes_out": "bytes_out"},
    ),
    Kind(
        "delivery_accepted",
        events.DeliveryAccepted,
        "A message was handed on towards its recipient.",
        {**_TS, "payload_bytes": "bytes"},
        _ATTEMPT,
    ),
    Kind(
        "delivery_finished",
        events.DeliveryFinished,
        "A delivery attempt has its outcome.",
        {**_TS, "carried_bytes": "bytes"},
        {**_ATTEMPT, "tries": "tries"},
    ),
    Kind(
        "packet_judged",
        events.PacketJudged,
        "A packet was accepted, known or refused; the last two gathered by the second.",
        {**_TS, "verdict": "outcome", "detail": "reason", "size_bytes": "bytes"},
        {
            "author_ref": "author_ref",
            "packet_ref": "packet_ref",
            "relay_ref": "relay_ref",
            "source": "source",
            "content_type": "content_type",
            "packet_ts": "packet_ts",
            "received_at": "received_at",
            "expires_at": "expires_at",
            "store_seq": "store_seq",
            "origin": "origin",
            "downgrade": "downgrade",
            "times": "n",
        },
    ),
    Kind(
        "subscription_opened",
        events.SubscriptionOpened,
        "A subscription began; of unidentified connections they are counted by the minute.",
        _TS,
        {"replicates": "replicates", "times": "n"},
    ),
    Kind(
        "subscription_ended",
        events.SubscriptionEnded,
        "A subscription is over; of unidentified connections they are summed up by the minute.",
        _TS,
        {
            "history_events": "history_events",
            "live_events": "live_events",
            "lags": "lags",
            "duration_us": "duration_us",
            "times": "n",
        },
    ),
    Kind(
        "mesh_lookup",
        events.MeshLookup,
        "A client was looked for among other nodes; in a flood of look-ups they are summed up.",
        {**_TS, "result": "outcome"},
        {"asked_count": "asked", "found_count": "found", "times": "n"},
    ),
    Kind(
        "mesh_link_ended",
        events.MeshLinkEnded,
        "A link to another node is over.",
        _TS,
        {
            "dialled": "dialled",
            "duration_us": "duration_us",
            "frames_out": "frames_out",
            "frames_in": "frames_in",
            "bytes_out": "bytes_out",
            "bytes_in": "bytes_in",
        },
    ),
    Kind(
        "relay_observed",
        events.RelayObserved,
        "Another relay was seen to do something, well or badly.",
        {**_TS, "carried_bytes": "bytes"},
        {"probe": "probe", "duration_us": "duration_us", "times": "n"},
    ),
    Kind(
        "lease_changed",
        events.LeaseChanged,
        "The lease of a tenant began, went on or ended.",
        {**_TS, "change": "outcome"},
        {"waiting_count": "waiting"},
    ),
    Kind(
        "work_judged",
        events.WorkJudged,
        "Somebody answered a demand for work; what was turned down is gathered by the second.",
        {**_TS, "verdict": "outcome"},
        {"work": "work", "bits": "bits", "times": "n"},
    ),
    Kind(
        "message_stored",
        events.MessageStored,
        "A message of a group is on disk, and what it is as it comes there.",
        {**_TS, "state": "outcome", "size_bytes": "bytes"},
        {**_MESSAGE, "dependency_refs": "dependency_refs", "created_ms": "created_ms", "order": "order"},
    ),
    Kind(
        "message_changed",
        events.MessageChanged,
        "A stored message of a group was delivered, found invalid, or deleted.",
        {**_TS, "state": "outcome"},
        {**_MESSAGE, "order": "order"},
    ),
    Kind(
        "message_held",
        events.MessageHeld,
        "A peer has told that it holds a message of a group.",
        _TS,
        {
            **_MESSAGE,
            "copies": "copies",
            "offered_us": "offered_us",
            "requested_us": "requested_us",
            "sent_us": "sent_us",
        },
    ),
    Kind(
        "anonymous_counted",
        events.AnonymousCounted,
        "Anonymous connections of one minute, only ever counted.",
        _TS,
        {"opened": "opened", "closed": "closed"},
    ),
    Kind("refused", events.Refused, "Something was turned down.", _TS, {"times": "n", "source_ref": "source_ref"}),
)

_KIND_OF_EVENT: Final[Mapping[type[Any], Kind]] = {kind.event: kind for kind in KINDS}


def kind_of(event: events.Event) -> Kind:
    """Return the declaration of an event's kind."""
    return _KIND_OF_EVENT[type(event)]


def allowed_attributes() -> dict[str, tuple[str, ...]]:
    """Return for every kind the keys its ``attrs`` may hold, sorted."""
    return {kind.name: tuple(sorted(kind.attributes.values())) for kind in KINDS}


def line_ddl() -> str:
    """Return the Spark schema of one JSON line, all columns nullable: what is missing is found by the ingest step."""
    return ", ".join(f"`{column.name}` {column.line_type}" for column in COLUMNS)
