"""Settings of the MERK relay: the protocol keys of the ``[merk]`` table in the node's configuration.

``server.merk`` loads them; the relay and its mesh read them at the start.
"""

import re
from dataclasses import dataclass
from typing import Final

from waystation.core.errors import LocalError
from waystation.core.settings import setting
from waystation.protocols.merk.messages import ADDRESS_BYTES_MAX

__all__ = ["MerkSettings", "check_url"]

_URL: Final = re.compile(r"wss?://[!-~]+")  # printable ASCII without blanks: a name of other letters has its xn-- form


@dataclass(frozen=True, slots=True)
class MerkSettings:
    """What an operator may change; every limit that is not here is fixed and named where it holds."""

    max_frame_bytes: int = setting(
        8_388_608,
        "Largest frame, its header of 120 bytes included.",
        unit="bytes",
        at_least=1_024,
        at_most=67_108_864,
    )
    peers: list[str] = setting([], "WebSocket addresses of nodes to link with, dialled for ever, private ones too.")
    accept_peers: bool = setting(
        default=True,
        help="Take any node that proves its key as a peer with few rights; false keeps to those that you dial.",
    )
    allow_private_peers: bool = setting(
        default=False, help="Dial addresses learnt from peers also when they are private or loopback."
    )
    public_url: str = setting(
        "", "WebSocket address that this node advertises; empty advertises none, so that no node dials it."
    )
    mailbox: bool = setting(
        default=True, help="Keep encrypted messages for clients that are away and have opened a mailbox here."
    )
    peers_ca: str = setting("", "PEM file of an authority that wss peers may have besides those of the system.")


def check_url(url: str) -> None:
    """Check that a text can be sent to other nodes as an address.

    Raises:
        LocalError: It is not ws:// or wss://, has blanks or other than printable ASCII, or is longer than 255 bytes.
    """
    if not _URL.fullmatch(url):
        raise LocalError(f"{url!r} is not a ws:// or wss:// address in printable ASCII")
    if len(url) > ADDRESS_BYTES_MAX:
        raise LocalError(f"{url[:32]!r}... is longer than {ADDRESS_BYTES_MAX} bytes")
