"""Limits of the BSP peer: the table ``[limits.bsp]`` of the node's configuration.

The stream machine, the mailbox and the relay read them at each use, so a reload applies at once.
"""

from dataclasses import dataclass
from typing import Final

from waystation.core.settings import limit
from waystation.protocols.bsp.refusals import Refusal

__all__ = ["DEFAULT_LIMITS", "BspLimits"]


@dataclass(frozen=True, slots=True)
class BspLimits:
    """What one peer, one owner and all of them together may have and do; specs/bsp.md 5, 6 and 9."""

    # Connections
    connected: int = limit(
        4_096, "Peers that are connected at once.", at_most=65_536, refusal=Refusal.BUSY, use="connected"
    )
    handshakes: int = limit(
        256,
        "Connections that have not proved a key; the oldest makes room.",
        at_most=4_096,
        refusal=Refusal.BUSY,
        use="handshakes",
    )
    arrivals_per_second: int = limit(
        20, "Accepted handshakes of one known key.", unit="per s", at_most=100_000, refusal=Refusal.BUSY
    )
    arrivals_burst: int = limit(
        500, "Accepted handshakes of one known key at once.", at_most=100_000, refusal=Refusal.BUSY
    )
    unsaved_bytes: int = limit(
        3_145_728,
        "Bytes of received messages that are not on disk; then peers that send more are not read for a while.",
        unit="bytes",
        at_least=65_536,
        at_most=50_331_648,
        use="unsaved_bytes",
    )
    # The device
    messages: int = limit(
        1_000_000,
        "Messages of all groups, those without a body included; a million take half a gigabyte of memory.",
        at_least=1_000,
        at_most=16_000_000,
        refusal=Refusal.DEVICE_FULL,
        use="messages",
    )
    hosted_messages: int = limit(
        800_000,
        "Messages up to which hosted groups are served, and never beyond four fifths of limits.bsp.messages; "
        "the rest is for the node's own groups.",
        at_least=1_000,
        at_most=16_000_000,
        refusal=Refusal.QUOTA_FULL,
        use="messages",
    )
    # Owners of the mailbox
    commands_per_second: int = limit(20, "Commands of one owner; more of them wait.", unit="per s", at_most=10_000)
    commands_burst: int = limit(64, "Commands of one owner at once; more of them wait.", at_most=1_024)
    answers_bytes: int = limit(
        1_048_576,
        "Bytes of answers that one owner has not fetched; then its commands wait.",
        unit="bytes",
        at_most=1_048_576,
    )
    owner_copies: int = limit(
        400_000, "Messages times members of the groups of one owner.", at_most=6_400_000, refusal=Refusal.QUOTA_FULL
    )

    @property
    def hosted_messages_in_force(self) -> int:
        """Messages up to which hosted groups are served: a lower ``messages`` keeps a fifth for the node's own."""
        return min(self.hosted_messages, self.messages * 4 // 5)


DEFAULT_LIMITS: Final = BspLimits()
