"""Limits of the MERK relay: the table ``[limits.merk]`` of the node's configuration.

The parts of the relay read them at each use, so a reload applies at once.
"""

from dataclasses import dataclass
from typing import Final

from waystation.core.settings import limit
from waystation.protocols.merk.refusals import Refusal

__all__ = ["DEFAULT_LIMITS", "MerkLimits"]


@dataclass(frozen=True, slots=True)
class MerkLimits:
    """What one peer, one address and all of them together may have and do; specs/merk.md 8."""

    # Connections and rates; those without a reference are ours.
    connects_per_second: int = limit(
        10, "New connections of one address.", unit="per s", at_most=100_000, refusal=Refusal.CONNECT_RATE
    )
    connects_burst: int = limit(
        64, "New connections of one address at once.", at_most=100_000, refusal=Refusal.CONNECT_RATE
    )
    connect_addresses: int = limit(
        4_096,
        "Addresses whose new connections are counted; the one seen longest ago makes room.",
        at_most=65_536,
        use="connect_addresses",
    )
    # Spec: merk 8.
    frames_per_second: int = limit(500, "Frames of one client.", unit="per s", at_most=100_000, refusal=Refusal.RATE)
    # Spec: merk 6.
    frames_burst: int = limit(1_000, "Frames of one client at once.", at_most=100_000, refusal=Refusal.RATE)
    # Ours: one connection must not fill a gigabit line.
    bytes_per_second: int = limit(
        16_777_216,
        "Bytes of one client in frames above 4 KiB.",
        unit="bytes per s",
        at_most=1_073_741_824,
        refusal=Refusal.RATE,
    )
    # Spec: merk 6: 64 MiB.
    bytes_burst: int = limit(
        67_108_864,
        "Bytes of one client at once in frames above 4 KiB; at least merk.max_frame_bytes.",
        unit="bytes",
        at_most=1_073_741_824,
        refusal=Refusal.RATE,
    )
    node_factor: int = limit(
        40,
        "A node of merk.peers has so many times the rates of a client; other nodes have a client's.",
        at_most=640,
        refusal=Refusal.RATE,
    )
    original_factor: int = limit(
        4, "An original relay has so many times the rates of a client.", at_most=640, refusal=Refusal.RATE
    )
    strikes: int = limit(
        16, "Broken rules that close a connection.", at_most=256, refusal=Refusal.STRIKES
    )  # specs/merk.md 8
    # Other nodes
    nodes: int = limit(
        64,
        "Linked nodes; half of the places are for nodes that merk.peers does not name, and named ones have one anyhow.",
        at_least=2,
        at_most=1_024,
        refusal=Refusal.PEERS_FULL,
        use="nodes",
    )
    unnamed_nodes_per_address: int = limit(
        4, "Linked nodes of one address that merk.peers does not name.", at_most=1_024, refusal=Refusal.PEERS_FULL
    )
    original_relays: int = limit(
        64, "Linked original relays.", at_most=1_024, refusal=Refusal.PEERS_FULL, use="original_relays"
    )
    learnt_addresses: int = limit(
        64,
        "Addresses of nodes learnt from other nodes; one that has failed makes room.",
        at_most=1_024,
        use="learnt_addresses",
    )
    unproved_addresses_per_node: int = limit(16, "Unproved addresses that one node may name.", at_most=1_024)
    # Of learnt addresses, specs/merk.md 8.
    dials_per_minute: int = limit(8, "Dials of learnt addresses.", unit="per min", at_most=128)
    # Searches for clients at other nodes
    lookups: int = limit(4_096, "Searches under way.", at_most=65_536, refusal=Refusal.QUEUE_FULL, use="lookups")
    # Spec: merk 8.
    lookups_per_client: int = limit(64, "Searches under way for one client.", at_most=1_024, refusal=Refusal.QUEUE_FULL)
    # Spec: merk 5.
    lookup_frames: int = limit(64, "Frames that wait for one search.", at_most=1_024, refusal=Refusal.QUEUE_FULL)
    # Or one frame that is larger.
    lookup_bytes: int = limit(
        262_144,
        "Bytes of the frames that wait for one search; one larger frame may wait alone.",
        unit="bytes",
        at_most=67_108_864,
        refusal=Refusal.QUEUE_FULL,
    )
    # Spec: merk 8: 64 MiB.
    lookup_bytes_all: int = limit(
        67_108_864,
        "Bytes of the frames that wait for all searches.",
        unit="bytes",
        at_most=1_073_741_824,
        refusal=Refusal.QUEUE_FULL,
        use="lookup_bytes",
    )
    lookup_askers: int = limit(64, "Original relays that wait for one search.", at_most=1_024)
    places: int = limit(
        65_536, "Clients whose node is remembered; the oldest makes room.", at_most=1_048_576, use="places"
    )
    questions_per_node: int = limit(8_192, "Unanswered questions to one node.", at_most=131_072)
    distrusted_per_node: int = limit(
        1_024, "Clients that one node was wrong about; the oldest makes room.", at_most=16_384
    )
    lookup_facts_per_second: int = limit(
        50, "Searches that the journal gets one by one; the rest is summed.", unit="per s", at_most=800
    )
    # MERK-TALLY.
    lookup_facts_burst: int = limit(500, "Searches that the journal gets one by one at once.", at_most=8_000)
    # Frames on their way
    forwards: int = limit(
        65_536,
        "Frames sent to other nodes that are not answered.",
        at_most=1_048_576,
        refusal=Refusal.QUEUE_FULL,
        use="forwards",
    )
    # Spec: merk 8: 128 MiB.
    forward_bytes: int = limit(
        134_217_728,
        "Bytes of the frames sent to other nodes that are not answered.",
        unit="bytes",
        at_most=2_147_483_648,
        refusal=Refusal.QUEUE_FULL,
        use="forward_bytes",
    )
    # Frames that wait for one slow link.
    waiting_bytes_per_node: int = limit(
        16_777_216,
        "Bytes of the frames that wait for one slow node.",
        unit="bytes",
        at_most=268_435_456,
        refusal=Refusal.QUEUE_FULL,
    )
    # Spec: merk 5.
    seen_forwards: int = limit(
        65_536,
        "Numbers of frames from other nodes remembered in each of two generations.",
        at_most=1_048_576,
        use="seen_forwards",
    )
    # Spec: merk 8: 256 MiB.
    buffered_bytes: int = limit(
        268_435_456,
        "Bytes that wait for all slow readers; beyond it the one that is behind for longest, 10 s at least, is closed.",
        unit="bytes",
        at_most=4_294_967_296,
        refusal=Refusal.NOT_READING,
        use="unread_bytes",
    )
    buffered_network_part: int = limit(
        8,
        "The readers of one network have one in so many of these bytes, nodes of the operator's excepted; beyond it "
        "their frames are refused, and the one of them that is behind for longest, 10 s at least, is closed.",
        at_most=64,
        refusal=Refusal.QUEUE_FULL,
    )
    replies_bytes: int = limit(
        8_388_608,
        "Bytes of answers for a connection that asks and does not read.",
        unit="bytes",
        at_least=262_144,
        at_most=134_217_728,
        refusal=Refusal.NOT_READING,
    )
    tallied_recipients: int = limit(
        1_024, "Recipients whose failures are counted separately in one second.", at_most=16_384
    )
    # Agreement keys
    adverts: int = limit(65_536, "Agreement keys of clients; the oldest makes room.", at_most=1_048_576, use="adverts")
    # Spec: merk 8.
    key_questions: int = limit(
        1_024,
        "Agreement keys that other nodes are asked for.",
        at_most=16_384,
        refusal=Refusal.KEY_QUESTIONS,
        use="key_questions",
    )
    key_questions_per_client: int = limit(
        16, "Agreement keys that one client waits for.", at_most=256, refusal=Refusal.KEY_QUESTIONS
    )
    key_askers: int = limit(
        64, "Clients that wait for one agreement key.", at_most=1_024, refusal=Refusal.KEY_QUESTIONS
    )
    # Mailboxes: MERK-MAIL.
    mailboxes: int = limit(
        4_096, "Mailboxes of clients.", at_most=65_536, refusal=Refusal.MAILBOXES_FULL, use="mailboxes"
    )
    mailboxes_per_network: int = limit(
        64, "Mailboxes opened from one network.", at_most=65_536, refusal=Refusal.MAILBOXES_FULL
    )
    mailbox_days: int = limit(
        30, "A mailbox whose owner does not come for so long ends, with its mail.", unit="days", at_most=30
    )
    mail_days: int = limit(
        7,
        "How long a frame is kept for who is away; clients refuse what is older than 14 days.",
        unit="days",
        at_most=14,
    )
    mail_frame_bytes: int = limit(
        1_048_576,
        "Largest frame that is kept for who is away.",
        unit="bytes",
        at_most=8_388_608,
        refusal=Refusal.MAIL_TOO_LARGE,
    )
    mail_messages_per_mailbox: int = limit(
        1_000, "Frames kept in one mailbox.", at_most=65_536, refusal=Refusal.MAILBOX_FULL
    )
    mail_bytes_per_mailbox: int = limit(
        16_777_216,
        "Bytes of the frames kept in one mailbox.",
        unit="bytes",
        at_most=1_073_741_824,
        refusal=Refusal.MAILBOX_FULL,
    )
    mail_messages_per_sender: int = limit(
        128, "Frames of one sender kept in one mailbox.", at_most=65_536, refusal=Refusal.MAIL_SHARE
    )
    mail_bytes_per_sender: int = limit(
        2_097_152,
        "Bytes of the frames of one sender kept in one mailbox.",
        unit="bytes",
        at_most=1_073_741_824,
        refusal=Refusal.MAIL_SHARE,
    )
    mail_messages_per_source: int = limit(
        250,
        "Frames of all senders of one network, or of those that one node brings, kept in one mailbox.",
        at_most=65_536,
        refusal=Refusal.MAIL_SHARE,
    )
    mail_bytes_per_source: int = limit(
        4_194_304,
        "Bytes of the frames of all senders of one network, or of those that one node brings, kept in one mailbox.",
        unit="bytes",
        at_most=1_073_741_824,
        refusal=Refusal.MAIL_SHARE,
    )
    mail_messages: int = limit(
        65_536,
        "Frames kept in all mailboxes.",
        at_least=64,
        at_most=1_048_576,
        refusal=Refusal.MAIL_FULL,
        use="mail_messages",
    )
    mail_bytes: int = limit(
        268_435_456,
        "Bytes of the frames kept in all mailboxes.",
        unit="bytes",
        at_most=68_719_476_736,
        refusal=Refusal.MAIL_FULL,
        use="mail_bytes",
    )
    mail_network_part: int = limit(
        8,
        "The mailboxes of one network, and the senders of one network or node, fill one in so many of all kept frames "
        "and bytes.",
        at_most=64,
        refusal=Refusal.MAIL_FULL,
    )
    mail_waiting_bytes: int = limit(
        33_554_432,
        "Bytes of the frames that wait for the disk.",
        unit="bytes",
        at_most=1_073_741_824,
        refusal=Refusal.MAIL_FULL,
        use="mail_waiting_bytes",
    )


DEFAULT_LIMITS: Final = MerkLimits()
