"""Settings of the Bhumi relay: the protocol keys of the ``[bhumi]`` table in the node's configuration."""

from dataclasses import dataclass

from waystation.core.errors import LocalError
from waystation.core.settings import setting
from waystation.protocols.bhumi.extension_wire import ADDRESS_CHARS_MAX, is_address
from waystation.protocols.bhumi.refusals import Refusal

__all__ = ["BhumiSettings", "check_address"]


@dataclass(frozen=True, slots=True)
class BhumiSettings:
    """What an operator may change at a start; ``limits`` has what a reload changes."""

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
        65_536,
        "Largest opaque payload of SEND and ACK.",
        unit="bytes",
        at_least=64,
        at_most=1_048_576,
        refusal=Refusal.OVERSIZE,
    )
    cache_bind_recipient: bool = setting(
        default=True,
        help="Key the response cache by recipient and preimage; false restores the seed's letter.",
    )
    require_binding: bool = setting(
        default=False, help="Demand of devices that they prove their identity to this very relay (extension BIND)."
    )
    gossip: bool = setting(
        default=True, help="Take presences of devices, answer where they are, and gossip them with other relays."
    )
    peers: list[str] = setting(
        [], "Addresses of relays to gossip with, tls://host:port, dialled for ever, private ones too."
    )
    peers_ca: str = setting(
        "", "PEM file of an authority that relays must have which we dial; empty takes any certificate."
    )
    advertise: str = setting("", "Address that this relay advertises, tls://host:port; empty advertises none.")
    dials_private: bool = setting(
        default=False, help="Take and dial adverts of other relays also when their address is private or loopback."
    )
    qa: bool = setting(default=True, help="Ask devices now and then to try another relay; they may refuse.")


def check_address(text: str) -> None:
    """Check that a text is an address as adverts write it (BHUMI-ADDRESS).

    Raises:
        LocalError: It is not ``tls://host:port`` or ``tcp://host:port``, or longer than 255 characters.
    """
    if not is_address(text):
        raise LocalError(
            f"{text[:ADDRESS_CHARS_MAX]!r} is no address of a relay; allowed: tls://host:port or tcp://host:port"
        )
