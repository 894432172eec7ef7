"""Limits of the Bhumi relay: the table ``[limits.bhumi]`` of the node's configuration."""

from dataclasses import dataclass
from typing import Final

from waystation.core.settings import limit
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.wire import COMMITS_MAX

__all__ = ["DEFAULT_LIMITS", "BhumiLimits"]


@dataclass(frozen=True, slots=True)
class BhumiLimits:
    """What one connection, identity, address and all of them together may have and do; BHUMI-L and BHUMI-FLOOD."""

    # SENDs; a connection at these limits is not read, so nobody is refused.
    sends_per_second: int = limit(  # BHUMI-A11
        200, "SENDs and I_AMs of one connection; beyond it the relay does not read it.", unit="per s", at_most=100_000
    )
    sends_burst: int = limit(
        400, "SENDs and I_AMs of one connection at once; beyond it the relay does not read it.", at_most=100_000
    )
    outstanding_sends: int = limit(  # BHUMI-9
        16, "SENDs of one connection without a result; beyond it the relay does not read it.", at_most=256
    )
    unread_replies: int = limit(
        16, "Replies that wait for one connection; beyond it the relay does not read it.", at_most=256
    )
    # Deliveries
    pending_per_recipient: int = limit(  # BHUMI-A12
        32, "Deliveries to one device without an ACK.", at_most=512, refusal=Refusal.RECIPIENT_QUEUE_FULL
    )
    joiners: int = limit(  # BHUMI-C9
        1_024,
        "SENDs that wait for the exchange of another one with the same preimage; beyond it they get 3 at once.",
        at_most=65_536,
        refusal=Refusal.TOO_MANY_JOINERS,
    )
    ack_strikes: int = limit(  # BHUMI-C5
        16, "ACKs for numbers that were never sent, before the relay closes.", at_most=256, refusal=Refusal.ACK_STRIKES
    )
    late_acks: int = limit(
        65_536, "Exchanges whose late ACK still counts; beyond it the oldest goes.", at_most=1_048_576, use="late_acks"
    )
    late_acks_per_recipient: int = limit(
        256, "Those of them of one device.", at_most=4_096, refusal=Refusal.LATE_OVER_LIMIT
    )
    # Recipients without a connection included; connected ones keep theirs.
    remembered_recipients: int = limit(
        4_096,
        "Devices whose message numbers are remembered after they left; beyond it the oldest goes.",
        at_most=65_536,
        use="remembered_recipients",
    )
    numbers_per_recipient: int = limit(
        128, "Message numbers of one device whose ACK is never a strike; twice as many at most.", at_most=2_048
    )
    # Identities
    commits_per_identity: int = limit(  # BHUMI-C4
        COMMITS_MAX,
        "Commits of one device; at least as many as one frame holds.",
        at_least=COMMITS_MAX,
        at_most=65_536,
        refusal=Refusal.COMMITS_OVER_LIMIT,
    )
    unproven_bytes: int = limit(  # BHUMI-BINDING
        67_108_864,
        "I_AMs that wait for their proof, all together; only where bhumi.require_binding is on.",
        unit="bytes",
        at_least=1_048_576,
        at_most=1_073_741_824,
        refusal=Refusal.BINDING_MISSING,
        use="unproven_bytes",
    )
    # The cache of answers, BHUMI-L
    cached_responses: int = limit(
        65_536, "Answers kept for retries; beyond it the oldest goes.", at_most=1_048_576, use="cached_responses"
    )
    # BHUMI-L.
    cached_bytes: int = limit(
        67_108_864,
        "Answers kept for retries, all together; beyond it the oldest goes.",
        unit="bytes",
        at_least=1_048_576,
        at_most=1_073_741_824,
        use="cached_bytes",
    )
    # BHUMI-L.
    cached_response_bytes: int = limit(
        262_144,
        "Largest answer that is kept for retries.",
        unit="bytes",
        at_most=1_048_576,
        refusal=Refusal.CARRIED_OVER_QUOTA,
    )
    carried_bytes_per_identity: int = limit(
        4_194_304,
        "Kept answers that one device has brought in its I_AM.",
        unit="bytes",
        at_most=67_108_864,
        refusal=Refusal.CARRIED_OVER_QUOTA,
    )
    carried_responses_per_identity: int = limit(  # BHUMI-A2
        1_024,
        "Those of them of one device; when the cache is full, whoever has brought most loses the oldest.",
        at_most=65_536,
        refusal=Refusal.CARRIED_OVER_QUOTA,
    )
    # Watches, BHUMI-WATCH
    watches: int = limit(
        65_536,
        "Devices that connections watch, each counted once a connection.",
        at_most=1_048_576,
        refusal=Refusal.WATCHES_FULL,
        use="watches",
    )
    watches_per_connection: int = limit(
        64, "Those of them of one connection.", at_most=4_096, refusal=Refusal.WATCHES_FULL
    )
    # Presences and questions, BHUMI-FLOOD
    presences: int = limit(
        100_000,
        "Presences of devices; beyond it one that lasts longer takes the place of the one that ends first.",
        at_most=1_600_000,
        refusal=Refusal.TABLE_FULL,
        use="presences",
    )
    neighbours: int = limit(
        1_024,
        "Adverts of other relays; beyond it one that lasts longer takes the place of the one that ends first.",
        at_most=16_384,
        refusal=Refusal.TABLE_FULL,
        use="neighbours",
    )
    # A device renews every 240 s and sends each move to two relays.
    presences_per_minute: int = limit(
        6,
        "Presences and adverts of one connection about itself.",
        unit="per min",
        at_most=6_000,
        refusal=Refusal.PRESENCE_FLOOD,
    )
    # BHUMI-FLOOD.
    presences_burst: int = limit(16, "Those of them at once.", at_most=6_000, refusal=Refusal.PRESENCE_FLOOD)
    # BHUMI-FLOOD.
    questions_per_second: int = limit(
        5,
        "WHEREs of one connection, and as many RELAYS_REQ; beyond it the answers are empty.",
        unit="per s",
        at_most=5_000,
        refusal=Refusal.WHERE_FLOOD,
    )
    # BHUMI-FLOOD.
    questions_burst: int = limit(20, "Those of each at once.", at_most=5_000, refusal=Refusal.WHERE_FLOOD)
    probed_devices: int = limit(
        16_384,
        "Devices asked to probe another relay of late; beyond it no other is asked.",
        at_most=262_144,
        use="probed_devices",
    )
    # Other relays
    links: int = limit(
        8, "Relays that this one dials; those of bhumi.peers always have a place.", at_most=128, use="links"
    )
    dials_per_minute: int = limit(  # BHUMI-DIALS
        20, "Dials of addresses that bhumi.peers does not name.", unit="per min", at_most=320
    )
    # BHUMI-DIALS.
    dials_burst: int = limit(16, "Those of them at once.", at_most=256)
    local_relays: int = limit(
        64,
        "Relays of the local network that are remembered; beyond it the one that fails longest goes.",
        at_most=1_024,
        use="local_relays",
    )
    own_addresses: int = limit(
        64, "Addresses remembered because they led back to this relay.", at_most=1_024, use="own_addresses"
    )
    contacts: int = limit(
        64, "Relays that have dialled this one.", at_most=1_024, refusal=Refusal.CONTACTS_FULL, use="contacts_in"
    )
    # Of them, from one address: one host must not take all places (BHUMI-FLOOD).
    contacts_per_address: int = limit(4, "Those of them of one address.", at_most=64, refusal=Refusal.CONTACTS_FULL)
    records_per_second: int = limit(
        2_000,
        "Records of one relay, or of all of one address that dialled, that need a signature check.",
        unit="per s",
        at_most=32_000,
        refusal=Refusal.GOSSIP_FLOOD,
    )
    # BHUMI-FLOOD.
    records_burst: int = limit(20_000, "Those of them at once.", at_most=320_000, refusal=Refusal.GOSSIP_FLOOD)
    gossip_frames_per_second: int = limit(
        64, "GOSSIP frames of one relay.", unit="per s", at_most=1_024, refusal=Refusal.GOSSIP_FLOOD
    )
    gossip_frames_burst: int = limit(
        512, "GOSSIP frames of one relay at once.", at_most=8_192, refusal=Refusal.GOSSIP_FLOOD
    )
    gossip_addresses: int = limit(
        256,
        "Addresses whose allowance for records outlives their connections; beyond it the oldest goes.",
        at_most=4_096,
        use="gossip_addresses",
    )
    # BHUMI-FLOOD.
    round_records: int = limit(
        20_000,
        "Records of one round that are sent again in the next; others are sent once.",
        at_most=320_000,
        use="round_records",
    )
    # BHUMI-STRIKE.
    record_strikes: int = limit(  # BHUMI-STRIKE
        16,
        "Records that no honest peer sends, before the relay closes.",
        at_most=256,
        refusal=Refusal.RECORD_STRIKES,
    )


DEFAULT_LIMITS: Final = BhumiLimits()
