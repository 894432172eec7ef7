"""The messages that Strata clients send, as validated immutable values.

The relay acts on them; its ``delivery`` matches packets by ``Filters``. Only ``wire.read_message`` creates them. Spec:
RFC-0004 3; specs/strata.md 10, 13.
"""

from dataclasses import dataclass

__all__ = ["Auth", "Filters", "Message", "Publish", "Subscribe", "Unsubscribe"]


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters of a subscription: AND across fields, OR within a list."""

    authors: tuple[str, ...] = ()
    """Sorted, at most 1 000, no duplicates; empty for all."""
    types: tuple[str, ...] = ()
    """Sorted, at most 100, no duplicates; empty for all."""
    since: int | None = None
    """Unix seconds, inclusive, against the author's timestamp (D22)."""
    until: int | None = None
    """Unix seconds, inclusive, in history and live (D16)."""
    descending: bool = False
    """Order of history."""
    ids: tuple[bytes, ...] = ()
    """Packet ids of 32 bytes each, sorted, at most 500, no duplicates; empty for all (ours, STRATA-IDS)."""

    def match(self, author_id: str, content_type: str, timestamp: int, packet_id: bytes | None = None) -> bool:
        """Return whether a packet with these fields is wanted; without ``packet_id`` it is any by ``ids``."""
        return (
            # Spec 13: all given filters hold, within a list one entry suffices; since and until are inclusive.
            (not self.authors or author_id in self.authors)
            and (not self.types or content_type in self.types)
            and (self.since is None or timestamp >= self.since)
            and (self.until is None or timestamp <= self.until)
            and (packet_id is None or not self.ids or packet_id in self.ids)
        )


@dataclass(frozen=True, slots=True)
class Subscribe:
    """SUBSCRIBE: history, then everything new, until UNSUBSCRIBE."""

    subscription_id: str
    """1 to 128 characters."""
    filters: Filters
    limit: int
    """Most packets of history now, 0 to 500."""
    cursor: str | None
    """As a relay gave it, or None for the beginning."""
    replication_profile: str | None
    want_eose: bool
    """Send EOSE at the end of history (ours)."""
    client_msg_id: str | None


@dataclass(frozen=True, slots=True)
class Publish:
    """PUBLISH: one packet, not read yet."""

    packet: object
    client_msg_id: str | None


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """UNSUBSCRIBE: no EVENT of this id from now on."""

    subscription_id: str


@dataclass(frozen=True, slots=True)
class Auth:
    """AUTH: the answer to a challenge."""

    author_id: str
    challenge: str
    signature: bytes
    """64 bytes."""
    capabilities: tuple[str, ...] | None
    """None when the client named none."""
    client_msg_id: str | None


Message = Subscribe | Publish | Unsubscribe | Auth
