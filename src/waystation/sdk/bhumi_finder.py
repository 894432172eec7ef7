"""Finding the relay of a peer that is not where it was: asked of relays, believed only where the peer has signed it.

A relay can leave out and delay, and it can name a wrong address for a relay that the peer has truly signed for. What
stands at that address gets a sealed request and its preimage, as every relay does, and no more. It may not, however,
send us into a network that is none of its business: places that are not on the open internet are taken only from
somebody who talks to such places anyway (BHUMI-AFAR).
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.places import is_open_place
from waystation.sdk.bhumi_guide import Guide, Place
from waystation.sdk.bhumi_relay_book import RelayBook
from waystation.transport.dial import RelayUrl

__all__ = ["BOOK_ASKS", "SILENT_S", "Finder", "Findings"]

BOOK_ASKS: Final = 3
"""Relays of the book that are asked when those one has to do with know nothing."""
SILENT_S: Final = 30.0
"""How long a relay that could not be asked is left in peace."""
_SILENT_MAX: Final = 64


@dataclass(slots=True)
class Findings:
    """What a look-up came to."""

    places: list[RelayUrl] = field(default_factory=list)
    """Where the peer says that it is, the newest first."""
    refused: list[str] = field(default_factory=list)
    """Places that it says it is at and that are private."""


class Finder:
    """Asks for one participant; keeps no connection."""

    def __init__(
        self,
        guide: Guide,
        book: RelayBook | None,
        score: Callable[[str], float],
        rng: random.Random,
        *,
        named: Iterable[RelayUrl],
        dials_private: bool,
    ) -> None:
        """Describe how to ask.

        Args:
            guide: Puts the questions.
            book: Knows further relays to ask, and the addresses of relays; None for none.
            score: See ``RelayBook.order``.
            rng: See ``RelayBook.order``.
            named: Relays that the user named, wherever they lead.
            dials_private: Take places that are not on the open internet.
        """
        self._guide = guide
        self._book = book
        self._score = score
        self._rng = rng
        self._named = {str(relay) for relay in named}
        self._silent: dict[str, float] = {}
        self.dials_private = dials_private
        """Whether places that are not on the open internet are taken."""

    async def find(self, identity: PublicKey, known: Sequence[RelayUrl]) -> Findings:
        """Ask the relays ``known`` where somebody is, and three of the book when they know no place but these.

        Who could not be reached, or knows no such questions, is not asked again for a while; nothing is raised.
        """
        findings = await self._ask([str(relay) for relay in known], identity)
        if self._book is not None and not set(findings.places) - set(known):
            asked = {str(relay) for relay in known}
            others = [entry.address for entry in self._book.order(self._score, self._rng)]
            more = await self._ask([each for each in others if each not in asked][:BOOK_ASKS], identity)
            findings.places += [place for place in more.places if place not in findings.places]
            findings.refused += [place for place in more.refused if place not in findings.refused]
        return findings

    def judge(self, address: str) -> RelayUrl | None:
        """Return a place that somebody named, if it may be dialled; None for no address, or a private one."""
        try:
            relay = RelayUrl.parse(address)
        except LocalError:
            return None
        return relay if self.dials_private or is_open_place(str(relay)) else None

    async def _ask(self, addresses: Iterable[str], identity: PublicKey) -> Findings:
        now_s = asyncio.get_running_loop().time()
        asked = [address for address in addresses if self._silent.get(address, now_s) <= now_s]
        answers = await asyncio.gather(*(self._where(address, identity) for address in asked))
        newest = sorted((place for answer in answers for place in answer), key=lambda each: -each.presence.issued_at_s)
        findings = Findings()
        for address in (address for place in newest for address in self._addresses_of(place)):
            relay = self.judge(address)
            if relay is None:
                findings.refused += [] if address in findings.refused else [address]
            elif relay not in findings.places:
                findings.places.append(relay)
        return findings

    async def _where(self, address: str, identity: PublicKey) -> tuple[Place, ...]:
        try:
            is_open = self.dials_private or address in self._named or self._has_as_own(address)
            return await self._guide.where(address, identity, only_public=not is_open)
        except HostError:
            self._silent.pop(address, None)
            if len(self._silent) >= _SILENT_MAX:
                del self._silent[next(iter(self._silent))]
            self._silent[address] = asyncio.get_running_loop().time() + SILENT_S
            return ()

    def _has_as_own(self, address: str) -> bool:
        """Return whether the book has a relay from the user or the local network, so that it may lead anywhere."""
        if self._book is None:
            return False
        return any(entry.address == address and entry.may_be_private for entry in self._book.entries())

    def _addresses_of(self, place: Place) -> list[str]:
        """Return where a relay is: first by its own signed word, if the book has it, then by hearsay."""
        signed = [
            entry.address
            for entry in (self._book.entries() if self._book is not None else ())
            if entry.relay_id == place.presence.relay_id
        ]
        return [*signed, *([place.address] if place.address and place.address not in signed else [])]
