"""Silver (cleaned) datasets: one row per connection, delivery attempt, packet, message, observation or mesh link.

Steps write them from bronze tables, and compute the gold ones from them.
"""

from typing import Final

from waystation.pipeline.tables.columns import NODE, OPERATIONAL, PROTOCOL, PSEUDONYMOUS, PUBLIC, RELAY
from waystation.pipeline.tables.dataset import Column, Dataset

__all__ = [
    "SILVER_BSP_MESSAGES",
    "SILVER_BSP_SYNC",
    "SILVER_CONNECTIONS",
    "SILVER_DELIVERIES",
    "SILVER_MESH_LINKS",
    "SILVER_MESH_QUERIES",
    "SILVER_PACKETS",
    "SILVER_PACKET_SEEN",
    "SILVER_POW",
    "SILVER_PROBES",
]

SILVER_CONNECTIONS: Final = Dataset(
    "silver",
    "connections",
    "one identified connection",
    (
        NODE,
        Column("conn_ref", "binary", False, PSEUDONYMOUS, "Reference of the connection."),
        PROTOCOL,
        Column("peer_ref", "binary", True, PSEUDONYMOUS, "Keyed hash of the peer's key."),
        Column("opened_at", "timestamp", True, OPERATIONAL, "When it identified itself; null when that was not kept."),
        Column("closed_at", "timestamp", True, OPERATIONAL, "When it ended; null while it lives or when not kept."),
        Column("close_reason", "string", True, OPERATIONAL, "Why it ended."),
        Column("bytes_in", "bigint", True, OPERATIONAL, "Bytes received."),
        Column("bytes_out", "bigint", True, OPERATIONAL, "Bytes sent."),
    ),
    ("node_id", "conn_ref"),
    "opened_at, or closed_at when the opening was not kept",
    14,
)

SILVER_DELIVERIES: Final = Dataset(
    "silver",
    "deliveries",
    "one delivery attempt, or those of one recipient and second that needed no answer",
    (
        NODE,
        Column("attempt_ref", "binary", False, PSEUDONYMOUS, "Reference of the attempt; each protocol counts its own."),
        PROTOCOL,
        Column("dest_ref", "binary", True, PSEUDONYMOUS, "Keyed hash of the recipient's key: the journal's peer_ref."),
        Column(
            "accepted_at",
            "timestamp",
            True,
            OPERATIONAL,
            "When it was handed on; null for immediate outcomes, which have no latency.",
        ),
        Column("finished_at", "timestamp", True, OPERATIONAL, "When its outcome was known; null without one."),
        Column("outcome", "string", True, OPERATIONAL, "How it ended; null without an outcome."),
        Column("latency_us", "bigint", True, OPERATIONAL, "Microseconds from acceptance to outcome."),
        Column("tries", "bigint", True, OPERATIONAL, "Requests that the outcome answered, or attempts it stands for."),
        Column("bytes", "bigint", True, OPERATIONAL, "Bytes of request and reply."),
    ),
    ("node_id", "protocol", "attempt_ref"),
    "accepted_at, or finished_at when nothing was accepted",
    14,
)

SILVER_PACKETS: Final = Dataset(
    "silver",
    "packets",
    "one packet, however many nodes stored it",
    (
        Column("packet_id", "binary", False, PUBLIC, "Id that the packet claims, 32 bytes."),
        PROTOCOL,
        Column("author_id", "string", False, PUBLIC, "DID of its author."),
        Column("content_type", "string", False, PUBLIC, "Type of its content, in its author's words."),
        Column("packet_ts", "bigint", False, PUBLIC, "Its author's clock, Unix seconds; any number."),
        Column("expires_at", "bigint", True, PUBLIC, "Last second of its life, Unix; null for ever."),
        Column("size", "bigint", False, PUBLIC, "Bytes of the whole packet."),
        Column("first_received_at", "timestamp", False, OPERATIONAL, "Earliest time at which any node saw it."),
        Column("n_nodes", "int", False, PUBLIC, "Nodes that stored it."),
        Column("schema_ok", "boolean", False, PUBLIC, "Its bytes are a packet and say what its columns say."),
        Column("id_ok", "boolean", False, PUBLIC, "Its id is the BLAKE3 of what it must cover."),
        Column("sig_ok", "boolean", False, PUBLIC, "Its signature holds under the key the node names."),
        Column("verdict", "string", False, PUBLIC, "`valid`, or the first thing that is wrong with it."),
        Column("verified_with", "string", False, PUBLIC, "Version of the rules that checked it."),
    ),
    ("packet_id",),
    "first_received_at",
    14,
)


SILVER_POW: Final = Dataset(
    "silver",
    "pow",
    "one verdict on proof of work, or those of one worker and second that turned work down",
    (
        Column("event_id", "binary", False, PUBLIC, "Event that reported it, 16 bytes."),
        NODE,
        PROTOCOL,
        Column("worker_ref", "binary", True, PSEUDONYMOUS, "Keyed hash of the worker's key; null for relay work."),
        Column("work", "string", False, OPERATIONAL, "What for: `relay`, `lease` or `whitelist`."),
        Column("result", "string", False, OPERATIONAL, "`accepted`, `too_few_bits` or `challenge_expired`."),
        Column("bits", "int", True, OPERATIONAL, "Leading zero bits demanded; null for rejected work."),
        Column("issued_at", "timestamp", True, OPERATIONAL, "When it was demanded; null when rejected."),
        Column("judged_at", "timestamp", False, OPERATIONAL, "When it was judged."),
        Column("n", "bigint", False, OPERATIONAL, "How many."),
    ),
    ("event_id",),
    "judged_at",
    14,
)

SILVER_PACKET_SEEN: Final = Dataset(
    "silver",
    "packet_seen",
    "one packet at one node",
    (
        Column("packet_id", "binary", False, PUBLIC, "Id of the packet, 32 bytes."),
        NODE,
        Column("author_id", "string", False, PUBLIC, "DID of its author."),
        Column("content_type", "string", False, PUBLIC, "Type of its content, in its author's words."),
        Column("packet_ts", "bigint", False, PUBLIC, "Its author's clock, Unix seconds; any number."),
        Column("expires_at", "bigint", True, PUBLIC, "Last second of its life, Unix; null for ever."),
        Column("first_seen_at", "timestamp", False, OPERATIONAL, "When the node stored it first."),
        Column("n_copies", "bigint", False, PUBLIC, "How often the node archived it."),
    ),
    ("packet_id", "node_id"),
    "first_seen_at",
    30,
)

SILVER_BSP_MESSAGES: Final = Dataset(
    "silver",
    "bsp_messages",
    "one message of a group at one node, within one week's reference key",
    (
        NODE,
        Column("group_ref", "binary", False, PSEUDONYMOUS, "Keyed hash of the group's id."),
        Column("message_ref", "binary", False, PSEUDONYMOUS, "Keyed hash of the message's id."),
        Column("dependency_refs", "array<binary>", False, PSEUDONYMOUS, "What it depends on, keyed likewise, sorted."),
        Column("created_ms", "bigint", True, OPERATIONAL, "Its author's clock; null when its arrival was not kept."),
        Column("stored_at", "timestamp", True, OPERATIONAL, "When it was durable; null when that was not kept."),
        Column("size", "bigint", True, OPERATIONAL, "Bytes of its body."),
        Column("state", "string", False, OPERATIONAL, "Last known: `delivered`, `waiting`, `invalid` or `deleted`."),
        Column("reason", "string", True, OPERATIONAL, "Why it is invalid; null else."),
        Column("changed_at", "timestamp", False, OPERATIONAL, "When it came into that state."),
        Column("delivery_order", "bigint", True, OPERATIONAL, "Place in its group's order; null when not delivered."),
    ),
    ("node_id", "group_ref", "message_ref"),
    "stored_at, or changed_at when the arrival was not kept",
    14,
)

SILVER_BSP_SYNC: Final = Dataset(
    "silver",
    "bsp_sync",
    "one message that one peer is known to hold",
    (
        NODE,
        Column("peer_ref", "binary", False, PSEUDONYMOUS, "Keyed hash of the peer's key."),
        Column("group_ref", "binary", False, PSEUDONYMOUS, "Keyed hash of the group's id."),
        Column("message_ref", "binary", False, PSEUDONYMOUS, "Keyed hash of the message's id."),
        Column("held_at", "timestamp", False, OPERATIONAL, "When the peer first reported that it holds it."),
        Column("offered_at", "timestamp", True, OPERATIONAL, "When it was last offered before; null for never."),
        Column("requested_at", "timestamp", True, OPERATIONAL, "When the peer last asked for it; null for never."),
        Column("sent_at", "timestamp", True, OPERATIONAL, "When its body last left; null for never."),
        Column("send_count", "bigint", False, OPERATIONAL, "Offers and bodies that went before."),
    ),
    ("node_id", "peer_ref", "group_ref", "message_ref"),
    "held_at",
    14,
)

SILVER_MESH_QUERIES: Final = Dataset(
    "silver",
    "mesh_queries",
    "one look-up of a client, or those of one result that were summed up in a flood",
    (
        Column("event_id", "binary", False, PUBLIC, "Event that reported it, 16 bytes."),
        NODE,
        PROTOCOL,
        Column("asked_at", "timestamp", False, OPERATIONAL, "When it began; when it was reported for several."),
        Column("target_ref", "binary", True, PSEUDONYMOUS, "Keyed hash of the client's key; null for several."),
        Column("n", "bigint", False, OPERATIONAL, "How many look-ups."),
        Column("n_peers", "bigint", False, OPERATIONAL, "Nodes that were asked, over all of them."),
        Column("n_found", "bigint", False, OPERATIONAL, "Nodes that answered that they have it, over all of them."),
        Column("first_found_us", "bigint", True, OPERATIONAL, "Microseconds to the first that has it; null for none."),
        Column("result", "string", False, OPERATIONAL, "`found`, `absent` or `timeout`."),
    ),
    ("event_id",),
    "asked_at",
    7,
)

SILVER_MESH_LINKS: Final = Dataset(
    "silver",
    "mesh_links",
    "one link between two nodes in one hour, as one of them saw it",
    (
        Column("from_server", "string", False, PUBLIC, "Node that saw it, 16 hexadecimal digits."),
        Column("to_server", "string", False, PUBLIC, "The other node, 16 hexadecimal digits."),
        Column("hour", "timestamp", False, PUBLIC, "Hour."),
        Column("up_us", "bigint", False, OPERATIONAL, "Microseconds of the hour in which it was established."),
        Column("n_frames", "bigint", False, OPERATIONAL, "Frames both ways, of links that ended in the hour."),
        Column("n_bytes", "bigint", False, OPERATIONAL, "Bytes both ways, of links that ended in the hour."),
        Column("n_ended", "bigint", False, OPERATIONAL, "Links that ended in the hour."),
    ),
    ("from_server", "to_server", "hour"),
    "hour",
    30,
)

SILVER_PROBES: Final = Dataset(
    "silver",
    "probes",
    "one observation of a relay, or several equal ones that were counted together",
    (
        Column("event_id", "binary", False, PUBLIC, "Event that reported it, 16 bytes."),
        NODE,
        PROTOCOL,
        RELAY,
        Column("probe_kind", "string", False, OPERATIONAL, "What was looked at: docs/tables.md lists the kinds."),
        Column("ts", "timestamp", False, OPERATIONAL, "When."),
        Column("outcome", "string", False, OPERATIONAL, "`ok`, `failed` or `missing`."),
        Column("incident", "string", True, OPERATIONAL, "What an honest relay could not have done; null else."),
        Column("latency_us", "bigint", True, OPERATIONAL, "Microseconds to the answer."),
        Column("bytes", "bigint", True, OPERATIONAL, "Bytes of what was transferred."),
        Column("duration_us", "bigint", True, OPERATIONAL, "Microseconds of a transfer, a span or a throttling."),
        Column("n", "bigint", False, OPERATIONAL, "How many."),
    ),
    ("event_id",),
    "ts",
    22,
)
