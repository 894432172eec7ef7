"""Settings of the Bhumi relay: the ``[bhumi]`` table of the node's configuration, protocol part."""

from dataclasses import dataclass

from waystation.core.settings import setting

__all__ = ["BhumiSettings"]


@dataclass(frozen=True, slots=True)
class BhumiSettings:
    """What an operator may change; every limit that is not here is fixed by BHUMI-L."""

    deliver_layout: str = setting(
        "seed", "Layout of DELIVER for devices that do not ask for another one.", choices=("seed", "preimage")
    )
    ack_timeout_ms: int = setting(
        30_000,
        "How long a device may take to answer, queueing included.",
        unit="ms",
        at_least=10,
        at_most=600_000,
    )
    response_ttl_ms: int = setting(
        300_000, "How long an answer is kept for retries.", unit="ms", at_least=10, at_most=86_400_000
    )
    max_payload_bytes: int = setting(
        65_536, "Largest opaque payload of SEND and ACK.", unit="bytes", at_least=64, at_most=1_048_576
    )
    cache_bind_recipient: bool = setting(
        default=True,
        help="Key the response cache by recipient and preimage; false restores the seed's letter.",
    )
    require_binding: bool = setting(
        default=False, help="Demand a signature bound to this relay (extension BIND); not available yet."
    )
