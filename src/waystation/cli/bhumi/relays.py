"""``waystation bhumi relays``: searches for relays, and lists the known ones."""

import contextlib
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from waystation.cli.bhumi.show import span_text
from waystation.cli.loop import run as run_loop
from waystation.cli.output import EXIT_FAILURE, print_json
from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.protocols.bhumi.relay_addresses import is_open_place
from waystation.sdk.bhumi.guide import Guide
from waystation.sdk.bhumi.lan import look_on_lan
from waystation.sdk.bhumi.quality import RelayQuality
from waystation.sdk.bhumi.relay_book import RelayBook, RelayEntry
from waystation.transport.dial import RelayUrl
from waystation.transport.tls import TlsContext

__all__ = ["Wishes", "show_relays"]

_UNTRIED: Final = "untried"


class Wishes(NamedTuple):
    """What is to be done before the book is shown."""

    add: Sequence[str] = ()
    remove: Sequence[str] = ()
    lan_s: float = 0.0
    """Seconds to look around on the local network; 0 for not at all."""
    refresh: bool = False
    allow_private: bool = False


def show_relays(home: Path, wishes: Wishes, tls: TlsContext | None, *, as_json: bool) -> None:
    """Carry the wishes out and print the book; a book that is not there is made for something to keep.

    Raises:
        LocalError: An address is none, a relay to be removed is not known or to be added, or there is nobody to ask.
        HostError: The book cannot be used, or the local network cannot be searched.
        typer.Exit: Code 1, after a refresh that nobody answered.
    """
    both = {str(RelayUrl.parse(text)) for text in wishes.add} & {str(RelayUrl.parse(text)) for text in wishes.remove}
    if both:
        raise LocalError(f"--add and --remove name the same relay: {', '.join(sorted(both))}")
    if wishes._replace(allow_private=False) == Wishes() and not (home / "bhumi.db").exists():
        _print_all([], as_json=as_json)
        return
    with contextlib.ExitStack() as stack:
        book = RelayBook(home, allow_private=wishes.allow_private)
        stack.callback(book.close)
        quality = RelayQuality(home)
        stack.callback(quality.close)
        for address in wishes.remove:
            if not book.remove(address):
                raise LocalError(f"{address} is not known; `waystation bhumi relays` lists those that are")
        for address in wishes.add:
            book.add_seed(address)
        answered = run_loop(_look(book, quality, wishes, tls))
        now_s = int(time.time())
        documents = [_document(entry, quality) for entry in book.entries(with_private=True)]
        documents.sort(key=lambda document: (not document["local"], -document["score"], document["relay"]))
        _print_all(documents, as_json=as_json, now_s=now_s)
    if not answered:
        raise typer.Exit(EXIT_FAILURE)


async def _look(book: RelayBook, quality: RelayQuality, wishes: Wishes, tls: TlsContext | None) -> bool:
    """Ask the network and the relays; return False when relays were asked and none answered."""
    if wishes.lan_s:
        search = await look_on_lan(book, wishes.lan_s)
        for trouble in search.troubles:
            typer.echo(f"waystation: {trouble}", err=True)
    if not wishes.refresh:
        return True
    refreshed = await Guide(tls=tls).refresh(book, quality.score, random.SystemRandom())
    if not refreshed.asked and not refreshed.troubles:
        raise LocalError("no relay is known that could be asked; name one with --add, or look for one with --lan 3")
    for trouble in refreshed.troubles.values():
        typer.echo(f"waystation: {trouble}", err=True)
    if refreshed.private:
        typer.echo(f"{len(refreshed.private)} left out: private addresses, see --dials-private", err=True)
    return bool(refreshed.asked)


def _document(entry: RelayEntry, quality: RelayQuality) -> dict[str, Any]:
    met = quality.entry(entry.address)
    return {
        "relay": entry.address,
        "id": None if entry.relay_id is None else encode_id52(entry.relay_id),
        "source": entry.source.value,
        "local": entry.is_local,
        "private": not entry.may_be_private and not is_open_place(entry.address),
        "score": round(quality.score(entry.address), 4),
        "standing": _UNTRIED if met is None else met.standing.state.value,
        "expires": entry.expires_s,
        "added": entry.added_s,
    }


def _print_all(documents: list[dict[str, Any]], *, as_json: bool, now_s: int = 0) -> None:
    if as_json:
        for document in documents:
            print_json(document)
        return
    if not documents:
        typer.echo("no relays yet: `waystation bhumi relays --add tls://host:8443`, or --lan 3", err=True)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("relay", "known from", "own score", "standing", "kept"):
        table.add_column(column, overflow="fold")
    for document in documents:
        source = (
            f"{document['source']}, lan" if document["local"] and document["source"] != "lan" else document["source"]
        )
        source += ", private" if document["private"] else ""
        expires_s = document["expires"]
        left = "until removed" if expires_s is None else span_text(expires_s - now_s)
        table.add_row(document["relay"], source, f"{document['score']:.2f}", document["standing"], left)
    Console(highlight=False, markup=False).print(table)
