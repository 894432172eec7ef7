"""Searches the local network for Bhumi relays, by mDNS and UDP broadcast at once, for a limited time (spec section 9).

``waystation bhumi`` calls it. Each relay goes into the ``RelayBook`` for as long as its answer is valid; the returned
``LanSearch`` has the key of each relay by address, and why one of the two ways failed (HostError if both did). Answers
to a broadcast are signed, those of mDNS are not: relays found here are tried first, and trusted no more than others.
"""

import asyncio
import contextlib
import ipaddress
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.lan_datagrams import NONCE_BYTES, PORT, encode_query, read_answer
from waystation.protocols.bhumi.signed_records import expires_at_s
from waystation.sdk.bhumi.relay_book import RelayBook
from waystation.transport.datagrams.broadcast import BroadcastPort
from waystation.transport.datagrams.mdns import SERVICE, LanRelay, Mdns, lan_interfaces

__all__ = ["LanSearch", "look_on_lan"]

_ASKS: Final = 3  # a datagram may get lost
_ADVERT_USE_S: Final = 120  # as long as what mDNS says; an advert may live longer than its relay stays here


@dataclass(slots=True)
class LanSearch:
    """What a look at the local network came to."""

    found: dict[str, PublicKey] = field(default_factory=dict)
    """Key of each relay by its address, those that said goodbye meanwhile left out."""
    troubles: list[str] = field(default_factory=list)
    """Why one of the two ways could not be used."""


async def look_on_lan(
    book: RelayBook,
    seconds: float,
    *,
    interfaces: Sequence[ipaddress.IPv4Interface] | None = None,
    enough: Callable[[LanSearch], bool] = lambda _search: False,
    service: str = SERVICE,
    broadcast_port: int = PORT,
    clock: Callable[[], float] = time.time,
) -> LanSearch:
    """Look for relays and enter them into the book.

    Args:
        book: Keeps what is found for as long as it says that it lives.
        seconds: How long to look; the first answers come after one or two.
        interfaces: Where; None takes every network that this machine is on.
        enough: Ends the look early; asked after each find.
        service: Of mDNS.
        broadcast_port: UDP port of the relays.
        clock: Unix seconds, by which signed answers are judged.

    Raises:
        HostError: Neither way can be used on this machine.
    """
    searching = _Search(book, enough, clock)
    near = lan_interfaces() if interfaces is None else interfaces
    mdns = Mdns(searching.on_found, searching.on_gone, near, service=service)
    broadcast = BroadcastPort(searching.on_datagram, near)
    try:
        troubles = searching.search.troubles
        for port in (mdns, broadcast):
            try:
                await port.open()
            except HostError as error:
                troubles.append(str(error))
        if len(troubles) > 1:
            raise HostError("; ".join(troubles))
        for _ in range(_ASKS):
            broadcast.ask(encode_query(searching.nonce), broadcast_port)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(searching.over.wait(), seconds / _ASKS)
                break
    finally:
        broadcast.close()
        await mdns.close()
    return searching.search


class _Search:
    def __init__(self, book: RelayBook, enough: Callable[[LanSearch], bool], clock: Callable[[], float]) -> None:
        self.search = LanSearch()
        self.nonce = secrets.token_bytes(NONCE_BYTES)
        self._book = book
        self._enough = enough
        self._clock = clock
        self.over = asyncio.Event()

    def on_found(self, relay: LanRelay) -> None:
        self._take(relay.address, relay.relay_id, relay.ttl_s)

    def on_gone(self, relay: LanRelay) -> None:
        self.search.found.pop(relay.address, None)
        self._book.found_on_lan(relay.address, relay.relay_id, 0)

    def on_datagram(self, datagram: bytes, host: str) -> None:
        now_s = self._clock()
        advert = read_answer(datagram, self.nonce, host, int(now_s))
        if advert is not None:
            self._take(advert.address, advert.relay_id, min(expires_at_s(advert) - now_s, _ADVERT_USE_S))

    def _take(self, address: str, relay_id: PublicKey, ttl_s: float) -> None:
        if self._book.found_on_lan(address, relay_id, ttl_s):
            self.search.found[address] = relay_id
        if self._enough(self.search):
            self.over.set()
