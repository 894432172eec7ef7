"""Selects the relays of a Bhumi command: those given, and with --find those of the book and the local network."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from waystation.cli.local_node import local_url
from waystation.cli.options import ca_or_local
from waystation.core.errors import HostError
from waystation.sdk.bhumi import BhumiState, Dialect, RelayBook, RelayQuality, Sender, Timeouts
from waystation.sdk.bhumi.lan import look_on_lan
from waystation.sdk.bhumi.seeds import seed_relays
from waystation.transport.dial import RelayUrl
from waystation.transport.tls import TlsContext, added_authorities, client_context, trust_authority

__all__ = [
    "DEFAULT_RELAY",
    "DialsPrivateOption",
    "FindOption",
    "HiddenOption",
    "RelayOption",
    "Ways",
    "look_around",
    "open_ways",
]

DEFAULT_RELAY: Final = "tls://127.0.0.1:8443"
"""Where a node of one's own listens (docs/configuration.md)."""
_KEPT_AUTHORITIES_MAX: Final = 8  # ours: a file with more is a whole store of authorities
_LOOK_S: Final = 2.0  # the first answers of a local network come within one or two

RelayOption = Annotated[
    list[str] | None,
    typer.Option(
        "--relay",
        help="tls://host:port or tcp://host:port; may repeat. Default: the node of this folder, and none with --find.",
    ),
]
FindOption = Annotated[
    bool,
    typer.Option("--find", help="Use the relays of `waystation bhumi relays` and of the local network, too."),
]
HiddenOption = Annotated[
    bool, typer.Option("--hidden", help="Let no relay answer where this identity is; it moves unseen.")
]
DialsPrivateOption = Annotated[
    bool,
    typer.Option("--dials-private", help="Go to private addresses, too, when a peer says that it is at one."),
]


@dataclass(frozen=True, slots=True)
class Ways:
    """What a command connects with."""

    relays: list[str]
    """In their full spelling; empty when only the book is to be used."""
    tls: TlsContext | None
    book: RelayBook | None
    quality: RelayQuality | None

    def sender(self, state: BhumiState, dialect: Dialect | None, *, wait_s: float, dials_private: bool) -> Sender:
        """Return a sender that goes these ways; raises LocalError when there is no relay among them."""
        return Sender(
            state,
            self.relays,
            book=self.book,
            quality=self.quality,
            dials_private=dials_private,
            tls=self.tls,
            dialect=dialect,
            timeouts=Timeouts(wait_s=wait_s),
        )

    def keep_for(self, state: BhumiState, peer: bytes, *, insecure: bool) -> None:
        """Keep relays and authorities for a peer that was reached this way, so that it is reached without options."""
        state.remember_relays(peer, self.relays)
        added = [] if self.tls is None or insecure else added_authorities(self.tls)
        for der in added[:_KEPT_AUTHORITIES_MAX]:
            state.keep_authority(der)


@contextlib.contextmanager
def open_ways(
    home: Path,
    given: list[str] | None,
    ca: Path | None,
    *,
    insecure: bool,
    find: bool,
    state: BhumiState | None = None,
) -> Iterator[Ways]:
    """Give the relays of a command.

    Args:
        home: Folder of the identity; the book lies in it.
        given: Addresses of --relay; without any, the seed relays are taken.
        ca: Of --ca.
        insecure: Of --insecure.
        find: Of --find.
        state: Without --ca, the authorities that invitations have named to this identity are trusted, too.

    Raises:
        LocalError: An address cannot be read.
        HostError: The book cannot be used, or the authority.
    """
    texts = given or seed_relays(home) or ([] if find else [local_url("bhumi", "bhumi_plain") or DEFAULT_RELAY])
    relays = [str(RelayUrl.parse(text)) for text in texts]
    is_tls = find or any(relay.startswith("tls://") for relay in relays)
    tls = client_context(ca_or_local(ca), verify=not insecure) if is_tls else None
    if tls is not None and state is not None and ca is None and not insecure:
        for der in state.authorities():
            trust_authority(tls, der)
    with contextlib.ExitStack() as stack:
        book = quality = None
        if find:
            book, quality = RelayBook(home), RelayQuality(home)
            stack.callback(book.close)
            stack.callback(quality.close)
        yield Ways(relays, tls, book, quality)


async def look_around(ways: Ways) -> None:
    """Look for relays on the local network, for a moment, where the book is all there is to go by.

    A network that cannot be searched is reported on stderr and stops nobody who knows a relay otherwise.
    """
    if ways.book is None or ways.relays:
        return
    try:
        async with asyncio.timeout(2 * _LOOK_S):
            await look_on_lan(ways.book, _LOOK_S, enough=lambda search: bool(search.found))
    except (HostError, TimeoutError) as error:
        typer.echo(f"waystation: the local network cannot be searched: {error}", err=True)
