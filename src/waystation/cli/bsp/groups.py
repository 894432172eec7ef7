"""``waystation bsp group``: create, join, list and leave the groups of a device.

They change the tables in the device's folder (``sdk.bsp.home``); a running device reads these within a second.
"""

import random
from pathlib import Path
from typing import Annotated

import typer

from waystation.cli.bsp.options import HomeOption, peer_of, run
from waystation.cli.bsp.place import DEFAULT_HOME, open_home
from waystation.cli.bsp.show import describe_group, short
from waystation.cli.options import JsonOption
from waystation.cli.output import print_json, print_result, visible
from waystation.core.errors import LocalError
from waystation.examples.chat.format import FORMATS_KNOWN
from waystation.protocols.bsp.invite import parse_group
from waystation.sdk.bsp import ID_BYTES, BspHome, Group, HomeGroup
from waystation.sdk.errors import HomeBusyError

__all__ = ["app"]

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Make, join and leave the groups of a device.\n\nExample: waystation bsp group new talk",
)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="What the group is called here; others may call it otherwise.")],
    format: Annotated[  # noqa: A002 - as people write it
        str, typer.Option("--format", help="What its messages look like: opaque, deps_v1 or chat_v1.")
    ] = "opaque",
    descriptor: Annotated[
        str, typer.Option("--descriptor", help="Hexadecimal, up to 32 KiB; part of its identity.")
    ] = "",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Make a group that nobody else is a member of yet; the home is made if absent.

    Example: waystation bsp group new talk --format deps_v1
    """
    try:
        described = bytes.fromhex(descriptor)
    except ValueError as error:
        raise LocalError(f"--descriptor is hexadecimal, not {descriptor!r}") from error
    with open_home(home) as opened:
        client_id = random.SystemRandom().randbytes(ID_BYTES)
        entry = _join(opened, name, opened.profile.group(client_id, described, format))
        _show(entry, as_json=as_json)


@app.command()
def join(
    line: Annotated[str, typer.Argument(help="What `group new` or `group list` printed elsewhere: FORMAT:CLIENT_ID…")],
    name: Annotated[str, typer.Option("--name", help="What the group is called here.")] = "",
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Become a member of a group that somebody else has made; the home is made if absent.

    Members get nothing of each other before both share the group: `waystation bsp share`.

    Example: waystation bsp group join deps_v1:7f3a…64 digits… --name talk
    """
    with open_home(home) as opened:
        _show(_join(opened, name, parse_group(line, opened.profile)), as_json=as_json)


@app.command("list")
def list_groups(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """List the groups of a device, and with whom each is shared.

    Example: waystation bsp group list
    """
    with open_home(home, makes=False) as opened:
        shares = opened.shares()
        for entry in opened.groups():
            audience = [share.peer for share in shares if share.group_id == entry.group.group_id]
            document = describe_group(entry, audience)
            shared = ", ".join(map(short, audience)) or "nobody"
            head = f"{short(entry.group.group_id)}  {visible(entry.name):<12}  {entry.group.format}"
            print_result(document, f"{head}; shared with {shared}; join: {document['join']}", as_json=as_json)


@app.command()
def leave(
    group: Annotated[str, typer.Argument(help="Name, identifier, or the first digits of one.")],
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Forget a group with all its messages; other members keep theirs.

    Example: waystation bsp group leave talk
    """
    with open_home(home, makes=False) as opened:
        entry = opened.group(group)
    try:
        run(_leave(home, entry.group))
    except HomeBusyError:  # whoever works with it forgets the group within a second
        with open_home(home) as opened:
            opened.commit(opened.remove_group(entry.group.group_id))
    document = {"id": entry.group.group_id.hex(), "left": True}
    print_result(document, f"left {visible(entry.name) or short(entry.group.group_id)}", as_json=as_json)


async def _leave(home: Path, group: Group) -> None:
    async with peer_of(home) as peer:
        await peer.leave(group)


def _join(home: BspHome, name: str, group: Group) -> HomeGroup:
    if group.format not in FORMATS_KNOWN:
        raise LocalError(f"no format {group.format!r} here; known: {', '.join(sorted(FORMATS_KNOWN))}")
    if any(entry.name == name and entry.group != group for entry in home.groups() if name):
        raise LocalError(f"there is another group of the name {name!r} already; choose another name")
    name = name or next((entry.name for entry in home.groups() if entry.group.group_id == group.group_id), "")
    home.commit([home.put_group(name, group)])
    return HomeGroup(name, group)


def _show(entry: HomeGroup, *, as_json: bool) -> None:
    document = describe_group(entry)
    if as_json:
        print_json(document)
        return
    typer.echo(f"{visible(entry.name)}  {entry.group.group_id.hex()}")
    typer.echo(f"others join it with: waystation bsp group join {document['join']}", err=True)
