"""``waystation bsp``: synchronises groups of messages on several devices, over connections, files and relays.

Results are printed to stdout (with --json one object a line), everything else to stderr.
"""

import contextlib
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from waystation.cli.bsp import box as bsp_box
from waystation.cli.bsp import groups as bsp_groups
from waystation.cli.bsp import mailbox as bsp_mailbox
from waystation.cli.bsp import peers as bsp_peers
from waystation.cli.bsp.chat import chat
from waystation.cli.bsp.options import (
    GroupOption,
    HomeOption,
    PlaceConfigOption,
    PlaceHomeOption,
    body_of,
    names_of,
)
from waystation.cli.bsp.place import DEFAULT_HOME, Place, open_home, open_place
from waystation.cli.bsp.show import (
    content_of,
    describe_row,
    describe_status,
    short,
    show_rows,
    show_status,
)
from waystation.cli.bsp.ways import export_file, import_files, listen, sync
from waystation.cli.bsp.why import describe_why, show_why
from waystation.cli.options import JsonOption
from waystation.cli.output import print_json, print_result, visible
from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.core.instant import Instant
from waystation.examples.chat.format import FORMATS_KNOWN
from waystation.protocols.bsp.device.why import explain
from waystation.protocols.bsp.home.status import group_status, peer_status
from waystation.sdk.bsp import (
    DEPENDENCIES_MAX,
    Group,
    GroupLeftOut,
    HomeGroup,
    Status,
    Visibility,
    deps_v1_body,
)

__all__ = ["app"]

_KIB: Final = 1_024
_HEADS: Final = "heads"

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    help="Keep groups of messages the same on several devices, over connections, files and relays.",
)
app.add_typer(bsp_groups.app, name="group")
app.add_typer(bsp_peers.app, name="peers")
app.add_typer(bsp_mailbox.app, name="mailbox")
app.add_typer(bsp_box.app, name="box")
app.command()(sync)
app.command()(listen)
app.command("export")(export_file)
app.command("import")(import_files)
app.command()(chat)


@app.command("id")
def show_id(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Show the key of a device, which others add as a peer; home and key are made if absent.

    Example: waystation bsp id --home ./bsp-me
    """
    with open_home(home) as opened:
        document = {"key": opened.key.hex(), "id52": encode_id52(opened.key)}
        print_result(document, opened.key.hex(), as_json=as_json)


@app.command()
def share(
    group: Annotated[str, typer.Argument(help="Name, identifier, or the first digits of one.")],
    peers: Annotated[list[str], typer.Argument(help="Names, keys, or the first digits of one.")],
    stop: Annotated[bool, typer.Option("--stop", help="Share it with them no more.")] = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Share a group with peers: they get its messages, and theirs are taken. Both sides must share it.

    Example: waystation bsp share talk bob carol
    """
    with open_home(home, makes=False) as opened:
        entry, keys = opened.group(group), [opened.peer(each).key for each in peers]
        what = Visibility.INVISIBLE if stop else Visibility.SHARED
        opened.commit([opened.put_share(entry.group.group_id, key, what) for key in keys])
    for key in keys:
        document = {"group": entry.group.group_id.hex(), "peer": key.hex(), "visibility": what.value}
        verb = "no longer shared" if stop else "shared"
        said = f"{visible(entry.name) or short(entry.group.group_id)} is {verb} with {short(key)}"
        print_result(document, said, as_json=as_json)


@app.command()
def add(
    group: GroupOption,
    file: Annotated[Path | None, typer.Option("--file", help="The body; - or nothing reads it from stdin.")] = None,
    body: Annotated[str | None, typer.Option("--body", help="The body as text.")] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after",
            help="Write the body as deps_v1, behind this message: an identifier, its first digits, or heads for all"
            " that nothing follows yet; may repeat.",
        ),
    ] = None,
    home: PlaceHomeOption = None,
    config: PlaceConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a message to a group of a device or of a node, whether it runs or not, and print the message's identifier.

    Whoever runs with that home takes it up within a second, and hands it on.

    Example: waystation bsp add --group talk --body hello --after heads

    Example: waystation bsp add --config node.toml --group 7f3a…64 digits… --file body.bin
    """
    content, wall_ms = body_of(body, file), int(time.time() * 1_000)
    with open_place(home, config, FORMATS_KNOWN) as place:
        found = place.group(group)
        if after:
            content = deps_v1_body(_dependencies(place, found, after), content)
        message_id = place.add(found, wall_ms, content, wall_ms)
    document = {"id": message_id.hex(), "group": found.group_id.hex(), "timestamp": wall_ms}
    print_result(document, message_id.hex(), as_json=as_json)


@app.command("list")
def list_messages(
    group: GroupOption,
    bodies: Annotated[bool, typer.Option("--bodies", help="Show bodies and dependencies too.")] = False,
    home: PlaceHomeOption = None,
    config: PlaceConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the messages of a group of a device or of a node, whether it runs or not, in the order of delivery.

    Example: waystation bsp list --group talk --json
    """
    with open_place(home, config, FORMATS_KNOWN) as place:
        found = place.group(group)
        rows = place.rows(found)
        if as_json:
            for row in rows:
                content = place.body(found, row) if bodies else None
                print_json(describe_row(row, content, with_body=bodies))
        else:
            show_rows(
                rows,
                {row.message_id: content_of(place.body(found, row), found.format) for row in rows} if bodies else {},
            )


@app.command()
def delete(
    message: Annotated[str, typer.Argument(help="Identifier of a message, or its first digits.")],
    group: GroupOption,
    home: PlaceHomeOption = None,
    config: PlaceConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove the body of a message here; it keeps its place, and whoever else has it keeps the body.

    Example: waystation bsp delete 5d1c --group talk
    """
    with open_place(home, config, FORMATS_KNOWN) as place:
        found = place.group(group)
        row = place.message(found, message)
        place.delete(found, row.message_id, int(time.time() * 1_000))
    document = {"id": row.message_id.hex(), "deleted": True}
    print_result(document, f"deleted {short(row.message_id)}", as_json=as_json)


@app.command()
def why(
    message: Annotated[str, typer.Argument(help="Identifier of a message, or the first digits of one that is here.")],
    group: Annotated[str | None, typer.Option("--group", help="In which group; default: all.")] = None,
    home: PlaceHomeOption = None,
    config: PlaceConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what holds a message back: a dependency, a flag, the group, or a way to a peer.

    Example: waystation bsp why 5d1c
    """
    wall_ms = int(time.time() * 1_000)
    with open_place(home, config, FORMATS_KNOWN) as place:
        found, message_id = _locate(place, message, group)
        device, is_running = place.device(wall_ms), place.is_running
        if not device.is_member(found.group_id):
            raise LocalError(
                f"no format {found.format!r} here; only the application that has it can judge its messages"
            )
        explanation = explain(device, found.group_id, message_id, Instant(0), is_running=False)
    names = {}
    if home is not None or config is None:
        with contextlib.suppress(LocalError), open_home(home or DEFAULT_HOME, makes=False) as opened:
            names = names_of(opened)
    if as_json:
        print_json(describe_why(explanation, found, is_running=is_running))
    else:
        show_why(explanation, names, is_running=is_running)


@app.command()
def status(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """Show the groups of a device, its peers, and how many messages of ours each lacks.

    It reads the disk: beside a program that runs with this home it does not know who is connected.

    Example: waystation bsp status
    """
    wall_ms = int(time.time() * 1_000)
    with open_home(home, makes=False) as opened, open_place(home, None, FORMATS_KNOWN) as place:
        device = place.device(wall_ms)
        peers, groups, is_running = opened.peers(), opened.groups(), place.is_running
        for peer in peers:
            device.meet(peer.key)
        shown = Status(
            opened.key,
            (),
            tuple(group_status(device, name, group) for name, group in groups if device.is_member(group.group_id)),
            tuple(peer_status(device, peer) for peer in peers),
            0,
            device.sizes(),
            tuple(_left_out(entry) for entry in groups if not device.is_member(entry.group.group_id)),
        )
    if as_json:
        print_json(describe_status(shown, is_running=is_running))
    else:
        show_status(shown, is_running=is_running)


def _left_out(entry: HomeGroup) -> GroupLeftOut:
    return GroupLeftOut(entry.group.group_id, entry.name, f"no format {entry.group.format!r} here")


def _dependencies(place: Place, group: Group, texts: list[str]) -> list[bytes]:
    found: dict[bytes, None] = {}
    for text in texts:
        if text == _HEADS:
            found |= dict.fromkeys(place.heads(group)[-DEPENDENCIES_MAX:])
        else:
            found[place.message(group, text).message_id] = None
    return list(found)


def _locate(place: Place, text: str, group: str | None) -> tuple[Group, bytes]:
    """Return a message and its group; a whole identifier may be of one that never came."""
    groups = [place.group(group)] if group is not None else place.groups()
    for each in groups:
        with contextlib.suppress(LocalError):
            return each, place.message(each, text).message_id
    if len(text.strip()) == 2 * 32 and len(groups) == 1:
        with contextlib.suppress(ValueError):
            return groups[0], bytes.fromhex(text.strip())
    where = f"group {group!r}" if group is not None else "any group here"
    raise LocalError(f"no message {text!r} in {where}; one that never came needs its whole identifier and --group")
