"""Limits of the Strata relay: the table ``[limits.strata]`` of the node's configuration.

The parts of the relay read them at each use, so a reload applies at once.
"""

from dataclasses import dataclass
from typing import Final

from waystation.core.settings import limit
from waystation.protocols.strata.refusals import Code, End

__all__ = ["DEFAULT_LIMITS", "StrataLimits"]

_MIB: Final = 1_048_576
_MINUTE: Final = "per min"
_RATE: Final = Code.RATE_LIMITED


@dataclass(frozen=True, slots=True)
class StrataLimits:
    """What one client, one address and all of them together may have and do; specs/strata.md 8, 10 to 14."""

    # Allowances of a minute; bytes let every publish be of the largest size.
    publish_per_minute_anonymous: int = limit(
        30, "Packets published by the anonymous clients of one address.", unit=_MINUTE, at_most=1_000_000, refusal=_RATE
    )
    publish_per_minute: int = limit(
        600, "Packets published by one identity.", unit=_MINUTE, at_most=1_000_000, refusal=_RATE
    )
    publish_per_minute_replicating: int = limit(
        6_000,
        "Packets published by one relay that may replicate.",
        unit=_MINUTE,
        at_most=1_000_000,
        refusal=_RATE,
    )
    subscribe_per_minute_anonymous: int = limit(
        30,
        "Subscriptions of the anonymous clients of one address.",
        unit=_MINUTE,
        at_most=100_000,
        refusal=_RATE,
    )
    subscribe_per_minute: int = limit(
        120, "Subscriptions of one identity.", unit=_MINUTE, at_most=100_000, refusal=_RATE
    )
    subscribe_per_minute_replicating: int = limit(
        60, "Subscriptions of one relay that may replicate.", unit=_MINUTE, at_most=100_000, refusal=_RATE
    )
    # Key events are never dropped, so their allowance is small.
    key_events_per_minute_anonymous: int = limit(
        6, "Key events published by the anonymous clients of one address.", unit=_MINUTE, at_most=100_000, refusal=_RATE
    )
    key_events_per_minute: int = limit(
        12,
        "Key events published by one identity, and by all identities of one address.",
        unit=_MINUTE,
        at_most=100_000,
        refusal=_RATE,
    )
    key_events_per_minute_replicating: int = limit(
        600, "Key events published by one relay that may replicate.", unit=_MINUTE, at_most=100_000, refusal=_RATE
    )
    auth_per_minute: int = limit(20, "AUTH messages of one address.", unit=_MINUTE, at_most=100_000, refusal=_RATE)
    bytes_per_minute_anonymous: int = limit(
        8 * _MIB,
        "Bytes received from the anonymous clients of one address.",
        unit="bytes per min",
        at_least=65_536,
        at_most=65_536 * _MIB,
        refusal=_RATE,
    )
    bytes_per_minute: int = limit(
        160 * _MIB,
        "Bytes received from one identity, and from all identities of one address.",
        unit="bytes per min",
        at_least=65_536,
        at_most=65_536 * _MIB,
        refusal=_RATE,
    )
    bytes_per_minute_replicating: int = limit(
        1_600 * _MIB,
        "Bytes received from one relay that may replicate.",
        unit="bytes per min",
        at_least=65_536,
        at_most=65_536 * _MIB,
        refusal=_RATE,
    )
    # A search looks at some four thousand packets and fills no page; beyond the allowance the reader waits.
    searches_per_minute_anonymous: int = limit(
        120,
        "Pages looked through in vain for the anonymous clients of one address; then they wait.",
        unit=_MINUTE,
        at_most=1_000_000,
    )
    searches_per_minute: int = limit(
        600,
        "Pages looked through in vain for one identity, and for all identities of one address; then they wait.",
        unit=_MINUTE,
        at_most=1_000_000,
    )
    searches_per_minute_replicating: int = limit(
        6_000,
        "Pages looked through in vain for one relay that may replicate; then it waits.",
        unit=_MINUTE,
        at_most=1_000_000,
    )
    http_per_minute: int = limit(600, "Plain GETs of one address.", unit=_MINUTE, at_most=1_000_000, refusal=_RATE)
    # Buckets of the longest silent scope are forgotten for the next one.
    scopes: int = limit(
        65_536,
        "Addresses and identities whose requests are counted; the one silent longest makes room.",
        at_most=1_048_576,
        use="scopes",
    )
    # Offences of one connection
    auth_failures: int = limit(5, "Failed AUTHs that close a connection.", at_most=80, refusal=End.AUTH_FAILURES)
    malformed: int = limit(
        20, "Malformed messages in a row that close a connection.", at_most=320, refusal=End.MALFORMED
    )
    limits_ignored: int = limit(
        100, "Requests in a row beyond an allowance that close a connection.", at_most=1_600, refusal=End.LIMIT_IGNORED
    )
    # What one connection may have
    subscriptions: int = limit(32, "Subscriptions of one connection.", at_most=512, refusal=Code.TOO_MANY_SUBSCRIPTIONS)
    # Ours: authors and types of all its subscriptions; each may cost 600 bytes.
    filter_texts: int = limit(
        8_000,
        "Authors and types in all filters of one connection; each may cost 600 bytes.",
        at_most=128_000,
        refusal=Code.TOO_MANY_SUBSCRIPTIONS,
    )
    pending_packets: int = limit(
        512, "Packets of one connection without a verdict; then it is not read for a while.", at_most=8_192
    )
    pending_bytes: int = limit(
        8 * _MIB,
        "Bytes of the packets of one connection without a verdict; then it is not read for a while.",
        unit="bytes",
        at_least=65_536,
        at_most=128 * _MIB,
    )
    unread_replies: int = limit(
        256, "Replies to a connection that does not read; then it is not read for a while.", at_most=4_096
    )
    ahead_bytes: int = limit(
        _MIB,
        "Bytes of live packets sent ahead to one reader; then it reads on from the store.",
        unit="bytes",
        at_least=65_536,
        at_most=16 * _MIB,
    )
    upstream_packets: int = limit(
        1_024, "Packets of one upstream without a verdict; then it is not read for a while.", at_most=16_384
    )
    upstream_bytes: int = limit(
        16 * _MIB,
        "Bytes of the packets of one upstream without a verdict; then it is not read for a while.",
        unit="bytes",
        at_least=65_536,
        at_most=256 * _MIB,
    )
    # Authors
    key_event_bytes: int = limit(
        8_192,
        "Largest packet with a key event; key events are kept for ever.",
        unit="bytes",
        at_least=2_048,
        at_most=131_072,
        refusal=Code.PACKET_TOO_LARGE,
    )
    key_events_unpublished: int = limit(
        8,
        "Key events of an author of whom no other packet is stored, those of recovery keys not counted in.",
        at_most=128,
        refusal=Code.INVALID_SCHEMA,
    )
    trust_edges_strong: int = limit(
        20, "Trust edges above 0.5 of one author in 24 hours (RFC-0005 5.2).", at_most=320, refusal=_RATE
    )
    trust_edges_weak: int = limit(
        100, "Other trust edges of one author in 24 hours (RFC-0005 5.2).", at_most=512, refusal=_RATE
    )
    # Others are counted again from the store when they come back.
    trust_authors: int = limit(
        1_024,
        "Authors whose trust edges are counted in memory; others are counted from the store.",
        at_most=16_384,
        use="trust_authors",
    )
    key_rings: int = limit(
        65_536,
        "Authors whose keys are kept in memory, some 700 bytes each; others are read from the store.",
        at_most=1_048_576,
        use="key_rings",
    )
    client_manifests: int = limit(
        4_096,
        "Programs whose manifest is kept in memory; others are read from the store.",
        at_most=65_536,
        use="client_manifests",
    )


DEFAULT_LIMITS: Final = StrataLimits()
