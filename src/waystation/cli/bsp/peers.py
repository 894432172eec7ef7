"""``waystation bsp peers``: adds, lists and removes the peers of a device, with their addresses.

They change the table of peers in the device's folder (``sdk.bsp.home``); nothing is dialled.
"""

from typing import Annotated

import typer

from waystation.cli.bsp.options import HomeOption
from waystation.cli.bsp.place import DEFAULT_HOME, open_home
from waystation.cli.bsp.show import describe_peer, short
from waystation.cli.options import JsonOption
from waystation.cli.output import print_result, visible
from waystation.core.errors import LocalError
from waystation.sdk.bsp import BspHome, BspUrl, HomePeer, PublicKey, Visibility

__all__ = ["app", "read_peer"]

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Add, list and remove the peers of a device.\n\nExample: waystation bsp peers list",
)


@app.command()
def add(
    peer: Annotated[
        str, typer.Argument(help="Its key (64 hexadecimal digits or id52), or bsp+tls://KEY@host:port to dial it.")
    ],
    name: Annotated[str | None, typer.Option("--name", help="What it is called here.")] = None,
    share: Annotated[list[str] | None, typer.Option("--share", help="Share this group with it; may repeat.")] = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Make a peer known, or change its name or address; the home is made if absent.

    Only peers that both sides know get a connection, and only their files are read.

    Example: waystation bsp peers add bsp+tls://8a1f…64 digits…@bob.example:7443 --name bob --share talk
    """
    with open_home(home) as opened:
        key, url = read_peer(peer)
        before = next((entry for entry in opened.peers() if entry.key == key), HomePeer("", key, ""))
        entry = HomePeer(before.name if name is None else name, key, url or before.url)
        if any(other.name == entry.name != "" and other.key != key for other in opened.peers()):
            raise LocalError(f"there is another peer of the name {entry.name!r} already; choose another name")
        groups = [opened.group(each).group.group_id for each in share or []]
        shares = [opened.put_share(group_id, key, Visibility.SHARED) for group_id in groups]
        opened.commit([opened.put_peer(entry.name, key, entry.url), *shares])
        _show(opened, key, as_json=as_json)


@app.command("list")
def list_peers(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    """List the peers of a device.

    Example: waystation bsp peers list
    """
    with open_home(home, makes=False) as opened:
        for entry in opened.peers():
            _show(opened, entry.key, as_json=as_json)


@app.command()
def remove(
    peer: Annotated[str, typer.Argument(help="Name, key, or the first digits of one.")],
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    """Make a peer unknown: nothing is shared with it any more, and what it holds is forgotten.

    Example: waystation bsp peers remove bob
    """
    with open_home(home, makes=False) as opened:
        entry = opened.peer(peer)
        opened.commit(opened.remove_peer(entry.key))
    said = f"removed {visible(entry.name) or short(entry.key)}"
    print_result({"key": entry.key.hex(), "removed": True}, said, as_json=as_json)


def read_peer(text: str) -> tuple[PublicKey, str]:
    """Return the key of a peer, and its address where the text is one, else "".

    Raises:
        LocalError: It is neither a key nor an address with a key in it.
    """
    if "://" not in text and "@" not in text:
        return PublicKey.parse(text), ""
    url = BspUrl.parse(text)
    if url.key is None:
        raise LocalError(f"{text} does not say which key the peer has; expected bsp+tls://KEY@host:port")
    return url.key, url.place


def _show(home: BspHome, key: PublicKey, *, as_json: bool) -> None:
    entry = home.peer(key.hex())
    groups = [share.group_id for share in home.shares() if share.peer == key]
    shared = ", ".join(map(short, groups)) or "nothing"
    line = f"{short(entry.key)}  {visible(entry.name):<12}  {entry.url or '(not dialled)'}; shares {shared}"
    print_result({**describe_peer(entry), "groups": [each.hex() for each in groups]}, line, as_json=as_json)
