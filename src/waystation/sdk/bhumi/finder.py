"""Finds the relay of a peer that has moved: asks relays and accepts only locations that the peer has signed.

A relay can omit or delay a location, or give a wrong address for a relay that the peer did sign. A host at a wrong
address gets only a sealed request and its preimage, as any relay does. An address outside the public internet is
accepted only by a client that already uses such relays itself (BHUMI-AFAR).
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.extension_messages import WhereEntry
from waystation.protocols.bhumi.relay_addresses import is_open_place
from waystation.sdk.bhumi.guide import Guide
from waystation.sdk.bhumi.moves import RelayChoice
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

    def __init__(self, guide: Guide, relays: RelayChoice, trusted: Iterable[RelayUrl], *, dials_private: bool) -> None:
        """Describe how to ask.

        Args:
            guide: Puts the questions.
            relays: Know further relays to ask, and the addresses of relays.
            trusted: Relays that are asked wherever they lead.
            dials_private: Take places that are not on the open internet.
        """
        self._guide = guide
        self._relays = relays
        self._trusted = {str(relay) for relay in trusted}
        self._silent: dict[str, float] = {}
        self.dials_private = dials_private
        """Whether places that are not on the open internet are taken."""

    async def find(self, identity: PublicKey, known: Sequence[RelayUrl]) -> Findings:
        """Ask the relays ``known`` where a device is, and three of the book when they know no place but these.

        Who could not be reached, or knows no such questions, is not asked again for a while; nothing is raised.
        """
        findings = Findings()
        await self._ask(known, identity, findings)
        if not set(findings.places) - set(known):
            others = [relay for relay in self._relays.from_book() if relay not in known]
            await self._ask(others[:BOOK_ASKS], identity, findings)
        return findings

    def judge(self, address: str, scheme: str = "tls") -> RelayUrl | None:
        """Return a place that a user or peer named, if it may be dialled; None for no address, or a private one.

        Args:
            address: As they wrote it.
            scheme: What an address without one means.
        """
        try:
            relay = RelayUrl.parse(address if "://" in address else f"{scheme}://{address}")
        except LocalError:
            return None
        return relay if self.dials_private or is_open_place(str(relay)) else None

    async def _ask(self, relays: Iterable[RelayUrl], identity: PublicKey, findings: Findings) -> None:
        now_s = asyncio.get_running_loop().time()
        asked = [str(relay) for relay in relays if self._silent.get(str(relay), now_s) <= now_s]
        answers = await asyncio.gather(*(self._where(address, identity) for address in asked))
        newest = sorted((place for answer in answers for place in answer), key=lambda each: -each.presence.issued_at_s)
        for address in (address for place in newest for address in self._addresses_of(place)):
            relay = self.judge(address)
            if relay is None:
                findings.refused += [] if address in findings.refused else [address]
            elif relay not in findings.places:
                findings.places.append(relay)

    async def _where(self, address: str, identity: PublicKey) -> tuple[WhereEntry, ...]:
        try:
            return await self._guide.where(address, identity, only_public=not self._may_be_private(address))
        except HostError:
            self._silent.pop(address, None)
            if len(self._silent) >= _SILENT_MAX:
                del self._silent[next(iter(self._silent))]
            self._silent[address] = asyncio.get_running_loop().time() + SILENT_S
            return ()

    def _may_be_private(self, address: str) -> bool:
        """Return whether a relay may lead anywhere: the user allows or names it, or the local network shows it."""
        known = self._relays.entry(address)
        return self.dials_private or address in self._trusted or (known is not None and known.may_be_private)

    def _addresses_of(self, place: WhereEntry) -> list[str]:
        """Return where a relay is: first by its own signed advert, if the book has it, then by an unverified claim."""
        signed = [entry.address for entry in self._relays.entries() if entry.relay_id == place.presence.relay_id]
        return [*signed, *([place.address] if place.address and place.address not in signed else [])]
