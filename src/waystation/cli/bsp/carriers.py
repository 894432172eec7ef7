"""Connects a BSP device with peers over MERK and LPRP relays: the options --merk and --lprp of ``waystation bsp``.

``chat`` and the exchanging commands (``ways``) pass the device and the options' texts; sealed bundles then travel as
messages of that protocol (``sdk.bridges``). It returns a function that gives the state of each relay.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from waystation.cli.output import visible
from waystation.sdk.bsp import BspPeer
from waystation.sdk.bsp.carrier import CarrierFailure
from waystation.sdk.relay_list import Disconnected
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
    report, asked = _reporter(), list[Callable[[], dict[str, str]]]()
    if merk:
        asked.append(await _attach_merk(peer, merk, authority, report))
    if lprp is not None:
        asked.append(await _attach_lprp(peer, lprp, report))
    return lambda: {kind: reason for each in asked for kind, reason in each().items()}


# Each bridge is imported where it is asked for: the command works without the protocols that it does not use.


async def _attach_merk(
    peer: BspPeer, urls: Sequence[str], authority: Path | None, report: Callable[[str], None]
) -> Callable[[], dict[str, str]]:
    from waystation.sdk.bridges.merk import BspOverMerk, merk_keys_of  # noqa: PLC0415

    def on_event(event: object) -> None:
        if isinstance(event, Disconnected) and event.up_s is None:
            report(f"MERK: {event.relay} is not reached: {event.reason}")
        _report_failure(event, report)

    tls = client_context(authority) if authority is not None else None
    carrier = BspOverMerk(urls, keys=merk_keys_of(peer.home.key_pair), tls=tls, on_event=on_event)
    await peer.attach(carrier)
    return lambda: {} if carrier.merk.relay is not None else {"merk": "no relay is connected"}


async def _attach_lprp(peer: BspPeer, url: str, report: Callable[[str], None]) -> Callable[[], dict[str, str]]:
    from waystation.sdk.bridges.lprp import BspOverLprp, HostUnreachable  # noqa: PLC0415

    def on_event(event: object) -> None:
        if isinstance(event, HostUnreachable):
            report(f"LPRP: the host is not reached: {event.reason}")
        _report_failure(event, report)

    carrier = BspOverLprp(peer.home.path / _LPRP_FOLDER, url, key_pair=peer.home.key_pair, on_event=on_event)
    await peer.attach(carrier)

    def unreached() -> dict[str, str]:
        status = carrier.tenant.status()
        has_answered = not status.is_doubted and (status.lease_until_ms is not None or status.answered_ms is not None)
        return {} if has_answered else {"lprp": "the host has not answered"}

    return unreached


def _report_failure(event: object, report: Callable[[str], None]) -> None:
    if isinstance(event, CarrierFailure):
        report(f"{event.kind.upper()}: {event.reason}")


def _reporter() -> Callable[[str], None]:
    """Return what writes a sentence to stderr, each one once."""
    reported: set[str] = set()

    def report(sentence: str) -> None:
        if sentence not in reported:
            reported.add(sentence)
            typer.echo(visible(sentence), err=True)

    return report
