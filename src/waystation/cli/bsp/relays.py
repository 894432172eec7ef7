"""The nodes that a ``waystation bsp`` command exchanges with: those that it names, or the node of this folder.

``mailbox`` and ``ways`` pass the texts of ``--relay`` and get addresses by key. A device connects only with peers that
it knows, so such a node is a peer for as long as it is dialled.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from waystation.cli.bsp.peers import read_peer
from waystation.cli.bsp.place import open_home
from waystation.cli.local_node import local_key, local_url
from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.sdk.bsp import BspUrl

__all__ = ["RelayOption", "introduced", "local_relay", "meet_local_relay", "relays_of"]

RelayOption = Annotated[
    list[str] | None,
    typer.Option(
        "--relay",
        help="Node to exchange with, as bsp+tls://KEY@host:port; may repeat, and is a peer from then on once it has"
        " answered. Default, when no peer has an address: the node of this folder.",
    ),
]


def relays_of(texts: Iterable[str]) -> dict[PublicKey, str]:
    """Return the addresses of nodes by their keys.

    Raises:
        LocalError: One of them is no address, or has no key in it.
    """
    relays = dict(map(read_peer, texts))
    for key, url in relays.items():
        if not url:
            raise LocalError(f"{key.hex()} is a key alone; expected bsp+tls://KEY@host:port")
    return relays


def local_relay() -> dict[PublicKey, str]:
    """Return the node of this folder, if one runs that speaks BSP."""
    key, url = local_key(), local_url("bsp")
    return {key: BspUrl.parse(url).place} if key is not None and url is not None else {}


def meet_local_relay(home: Path) -> PublicKey | None:
    """Return the node of this folder, at whose address a device knows it from then on; None without one.

    It is known before it has answered: what it is asked is kept for it, and its key is its own.
    """
    relays = local_relay()
    with open_home(home, makes=False) as opened:
        names = {peer.key: peer.name for peer in opened.peers()}
        opened.commit([opened.put_peer(names.get(key, ""), key, url) for key, url in relays.items()])
    return next(iter(relays), None)


@contextlib.contextmanager
def introduced(home: Path, relays: Mapping[PublicKey, str]) -> Iterator[set[PublicKey]]:
    """Make nodes known to a device while they are dialled, since it connects with nobody else.

    Gives a set for those that have answered: their addresses are kept. Others that were unknown are forgotten.
    """
    with open_home(home, makes=False) as opened:
        names = {peer.key: peer.name for peer in opened.peers()}
        opened.commit([opened.put_peer("", key) for key in relays if key not in names])
    answered: set[PublicKey] = set()
    try:
        yield answered
    finally:
        with open_home(home, makes=False) as opened:
            for key, url in relays.items():
                if key in answered:
                    opened.commit([opened.put_peer(names.get(key, ""), key, url)])
                elif key not in names:
                    opened.commit(opened.remove_peer(key))
