"""Settings of the LPRP host: the protocol keys of the ``[lprp]`` table in the node's configuration.

``server.lprp`` loads them; the relay reads them at the start.
"""

from dataclasses import dataclass

from waystation.core.settings import setting
from waystation.protocols.lprp.refusals import Refusal

__all__ = ["BITS_MAX", "LprpSettings"]

BITS_MAX = 26  # a minute of search on one core; no host demands more (lprp 8)


@dataclass(frozen=True, slots=True)
class LprpSettings:
    """What an operator may change at a start; ``limits`` has what a reload changes."""

    byte_order: str = setting(
        "big",
        "Byte order of time and command; the text names none, and all who talk must agree.",
        choices=("big", "little"),
    )
    pow_base_bits_relay: int = setting(
        16, "Least work for one packet of an unknown sender.", unit="bits", at_least=0, at_most=BITS_MAX
    )
    pow_base_bits_lease: int = setting(20, "Least work for a lease.", unit="bits", at_least=0, at_most=BITS_MAX)
    pow_base_bits_whitelist: int = setting(
        16,
        "Least work for a whitelist update that comes soon after the last.",
        unit="bits",
        at_least=0,
        at_most=BITS_MAX,
    )
    pow_adaptive: bool = setting(default=True, help="Demand more work while there is much traffic or little room.")
    retry_ms: int = setting(
        2_000,
        "Mail that nobody confirms is sent again after this times the number of tries.",
        unit="ms",
        at_least=10,
        at_most=3_600_000,
    )
    retries: int = setting(5, "How often mail is sent until its tenant counts as asleep.", at_least=1, at_most=100)
    lease_ms: int = setting(536_870_912, "How long a lease lasts.", unit="ms", at_least=1_000, at_most=34_359_738_368)
    tenants_max: int = setting(
        65_536,
        "How many keys may hold a lease.",
        at_least=0,
        at_most=1_048_576,
        refusal=Refusal.TENANTS_FULL,
        use="tenants",
    )
    leases: str = setting(
        "open",
        'Who gets a lease: "open" anyone who does the work, "closed" only who has one already.',
        choices=("open", "closed"),
    )
    rebind_on_relay: bool = setting(
        default=False,
        help="Take the address of a relayed packet for its sender's, as the text says; its recipient can then move it.",
    )
