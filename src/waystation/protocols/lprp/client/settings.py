"""Settings of the LPRP client; the defaults work with any host.

The SDK makes one from the host's address (``sdk.lprp.host``) and gives it to the client machine.
"""

from dataclasses import dataclass
from typing import Final

from waystation.core.settings import setting
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, KEEP_AFTER_LEASE_MS
from waystation.protocols.lprp.settings import BITS_MAX

__all__ = ["TRIES_PER_HEARTBEAT", "ClientSettings"]

TRIES_PER_HEARTBEAT: Final = 25
"""Tries of a heartbeat that would fit between two of them."""
_HEARTBEAT_MS_MAX: Final = 120_000


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a client; hosts publish some of them in their info document."""

    byte_order: str = setting("big", "Byte order of time and command, as the host has it.", choices=("big", "little"))
    heartbeat_ms: int = setting(
        25_000, "A heartbeat is sent this often.", unit="ms", at_least=100, at_most=_HEARTBEAT_MS_MAX
    )
    lease_ms: int = setting(
        536_870_912, "How long the host's leases last.", unit="ms", at_least=1_000, at_most=34_359_738_368
    )
    retry_ms: int = setting(
        1_000, "A request without an answer goes again after this; doubles up to 16 s.", unit="ms", at_least=10
    )
    heartbeat_retry_ms: int = setting(
        1_000,
        "A heartbeat without an answer goes again after this, retry_ms when that is shorter, or a 25th of heartbeat_ms"
        " when that is longer.",
        unit="ms",
        at_least=10,
    )
    tries: int = setting(8, "How often a request is sent until nobody answers.", at_least=1, at_most=64)
    in_flight_max: int = setting(64, "Packets under way at once.", at_least=1, at_most=4_096)
    waiting_max: int = setting(4_096, "Packets that wait until they may be sent.", at_least=1, at_most=65_536)
    work_first_bits: int = setting(
        12, "Work offered to a host that never demanded any.", unit="bits", at_least=0, at_most=BITS_MAX
    )
    work_step_bits: int = setting(2, "Work offered more after each refusal.", unit="bits", at_least=1, at_most=BITS_MAX)
    bits_max: int = setting(
        BITS_MAX, "Work beyond this is not done for anybody.", unit="bits", at_least=0, at_most=BITS_MAX
    )

    @classmethod
    def of_silence(cls, limit_ms: int) -> "ClientSettings":
        """Return settings with which a host that says nothing is in doubt within ``limit_ms`` of its last answer.

        Of 1,000 at least. A heartbeat goes every two minutes at least, so that beyond 144,000 the doubt comes earlier.
        """
        beat_ms = min(limit_ms * 5 // 6, _HEARTBEAT_MS_MAX)
        return cls(heartbeat_ms=beat_ms, heartbeat_retry_ms=min(1_000, beat_ms // TRIES_PER_HEARTBEAT))

    @property
    def mail_age_ms_max(self) -> int:
        """Greatest age of a packet when it is delivered: a lease, and as long as mail is kept after it."""
        return self.lease_ms + KEEP_AFTER_LEASE_MS + CLOCK_WINDOW_MS
