"""Options that several ``waystation bsp`` commands share, and the function that runs a command's work.

The command modules of ``cli/bsp`` import them; texts of options go in, addresses, bodies and devices come out.
"""

import os
import sys
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from waystation.cli.loop import run as run_loop
from waystation.cli.output import EXIT_FAILURE
from waystation.cli.signals import until_signal
from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.examples.chat.format import FORMATS_KNOWN
from waystation.sdk.bsp import BODY_BYTES_MAX, BspHome, BspPeer, BspUrl, Mode

__all__ = [
    "GroupOption",
    "HomeOption",
    "ModeOption",
    "PlaceConfigOption",
    "PlaceHomeOption",
    "body_of",
    "listen_address",
    "names_of",
    "peer_of",
    "run",
]

_Result = TypeVar("_Result")

HomeOption = Annotated[Path, typer.Option("--home", help="Folder of this device: its key, groups and messages.")]
PlaceHomeOption = Annotated[
    Path | None, typer.Option("--home", help="Folder of a device. Default: ./bsp-me, unless a node is meant.")
]
PlaceConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        help="TOML file of a node, to work on its store, running or not. Default: node.toml of this folder, or the node"
        " of WAYSTATION_NODE__HOME; --home of a device goes before both.",
    ),
]
GroupOption = Annotated[str, typer.Option("--group", help="Name, identifier, or the first digits of one.")]
ModeOption = Annotated[
    Mode, typer.Option("--mode", help="Offer messages first, send them at once, or whichever costs fewer bytes.")
]


def run(work: Coroutine[Any, Any, _Result], *, ended_exit_code: int = EXIT_FAILURE) -> _Result:
    """Do a command's work until it ends or a signal comes; see ``until_signal``."""
    return run_loop(until_signal(work, ended_exit_code=ended_exit_code))


def peer_of(home: Path, *, dials: bool = False, mode: Mode = Mode.AUTO, owners: Collection[PublicKey] = ()) -> BspPeer:
    """Return the device of a home that is there already, for ``async with``.

    Raises:
        LocalError: There is no such home.
    """
    BspHome(home, makes=False).close()
    return BspPeer(home, formats=FORMATS_KNOWN, dials=dials, mode=mode, owners=owners)


def names_of(home: BspHome) -> dict[bytes, str]:
    """Return what peers are called here, by key."""
    return {peer.key: peer.name for peer in home.peers() if peer.name}


def listen_address(text: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; a port alone is one of this machine's loopback, a missing one is 7443.

    Raises:
        LocalError: It is none of these.
    """
    try:
        place = BspUrl.parse(f"127.0.0.1:{text}" if text.strip().isdigit() else text)
    except LocalError as error:
        raise LocalError(f"nobody can listen at {text!r}; expected host:port, or a port alone") from error
    return place.host, place.port


def body_of(text: str | None, file: Path | None) -> bytes:
    """Return the body that was given as text, as a file, or on stdin.

    Raises:
        LocalError: It was given twice, cannot be read, or is too large.
    """
    if text is not None and file is not None:
        raise LocalError("say what the message is: one of --body, --file, or stdin")
    if file is not None and str(file) != "-":
        try:
            with file.open("rb") as opened:
                data = opened.read(BODY_BYTES_MAX + 1)
        except OSError as error:
            raise LocalError(f"cannot read {file}: {error.strerror}") from error
    elif text is not None:
        data = os.fsencode(text)
    else:
        data = sys.stdin.buffer.read(BODY_BYTES_MAX + 1)
    if len(data) > BODY_BYTES_MAX:
        raise LocalError(f"{file or 'this'} is too large: a message has at most {BODY_BYTES_MAX} bytes")
    return data
