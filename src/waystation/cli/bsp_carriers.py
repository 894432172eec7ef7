"""Relays as ways to peers: what ``waystation bsp`` makes of --merk and --lprp."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from waystation.cli.output import visible
from waystation.sdk.bsp import BspPeer
from waystation.sdk.bsp_identities import merk_keys_of
from waystation.sdk.bsp_over_lprp import BspOverLprp
from waystation.sdk.bsp_over_merk import BspOverMerk
from waystation.sdk.bsp_trouble import CarrierFailure
from waystation.sdk.lprp_line import HostUnreachable
from waystation.sdk.merk_connection import Disconnected
from waystation.transport.tls import client_context

__all__ = ["CARRIED_QUIET_S", "AuthorityOption", "LprpOption", "MerkOption", "attach_carriers"]

CARRIED_QUIET_S: Final = 5.0
"""By relays an answer may take a look-up across the mesh (specs/merk.md 5)."""
_LPRP_FOLDER: Final = "lprp"

MerkOption = Annotated[
    list[str] | None,
    typer.Option("--merk", help="Reach peers by a MERK relay too, at ws://… or wss://…; may repeat."),
]
LprpOption = Annotated[
    str | None,
    typer.Option(
        "--lprp", help="Leave and get bundles at an LPRP host too, lprp://KEY@host:port, at the cost of work."
    ),
]
AuthorityOption = Annotated[
    Path | None, typer.Option("--ca", help="Authority to trust for wss:// besides the system's, in PEM.")
]


async def attach_carriers(
    peer: BspPeer, merk: Sequence[str] | None, lprp: str | None, authority: Path | None = None
) -> Callable[[], dict[str, str]]:
    """Make a device reach its peers by relays, under its own key.

    Args:
        peer: The device, open.
        merk: Addresses of MERK relays.
        lprp: Address of an LPRP host.
        authority: PEM file for ``wss``.

    Returns:
        What returns which of them are not reached at that time, and why.

    Raises:
        LocalError: An address is none.
        HostError: A relay cannot be had.
        RemoteError: A relay does not want us.
    """
    tell, asked = _teller(), list[Callable[[], dict[str, str]]]()
    if merk:
        tls = client_context(authority) if authority is not None else None
        over_merk = BspOverMerk(merk, keys=merk_keys_of(peer.home.key_pair), tls=tls, on_event=tell)
        await peer.attach(over_merk)
        asked.append(lambda: {} if over_merk.merk.relay is not None else {"merk": "no relay is connected"})
    if lprp is not None:
        folder = peer.home.path / _LPRP_FOLDER
        over_lprp = BspOverLprp(folder, lprp, key_pair=peer.home.key_pair, on_event=tell)
        await peer.attach(over_lprp)
        asked.append(lambda: {} if _has_answered(over_lprp) else {"lprp": "the host has not answered"})
    return lambda: {kind: reason for each in asked for kind, reason in each().items()}


def _has_answered(carrier: BspOverLprp) -> bool:
    status = carrier.tenant.status()
    return not status.is_doubted and (status.lease_until_ms is not None or status.heard_ms is not None)


def _teller() -> Callable[[object], None]:
    """Return what says on stderr that a relay is not reached, each sentence once."""
    told: set[str] = set()

    def tell(event: object) -> None:
        sentence = _sentence(event)
        if sentence is not None and sentence not in told:
            told.add(sentence)
            typer.echo(visible(sentence), err=True)

    return tell


def _sentence(event: object) -> str | None:
    if isinstance(event, Disconnected) and event.up_s is None:
        return f"MERK: {event.relay} is not reached: {event.reason}"
    if isinstance(event, HostUnreachable):
        return f"LPRP: the host is not reached: {event.reason}"
    if isinstance(event, CarrierFailure):
        return f"{event.kind.upper()}: {event.reason}"
    return None
