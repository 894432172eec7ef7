"""Asking relays the way: where a device is, and which other relays there are (specs/bhumi.md 5, WHERE and RELAYS_REQ).

Each question is an anonymous connection of its own. Nothing of an answer is handed on that its owner has not signed,
that is not about what was asked, or that has ended; a relay can leave out and delay, but not invent.
"""

import asyncio
import random
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from waystation.core.errors import HostError, WaystationError
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.bhumi.client_base import Greeted, Unsent
from waystation.protocols.bhumi.extension_messages import Presence, RelayAd, WhereEntry
from waystation.protocols.bhumi.guide_client import Found, GuideClient, Heard, NoGuide
from waystation.protocols.bhumi.places import is_open_place
from waystation.protocols.bhumi.signed_records import is_signed, untimely
from waystation.sdk.bhumi_relay_book import RelayBook, RelayEntry
from waystation.sdk.errors import RelayUnreachableError
from waystation.sdk.link import Link, no_greeting, now
from waystation.transport.dial import RelayUrl

__all__ = ["ADVERTS_MAX", "PLACES_MAX", "REFRESH_ASKS", "Guide", "Place", "Refreshed"]

PLACES_MAX: Final = 8
"""Presences of one answer that are looked at; as many as our relay gives."""
ADVERTS_MAX: Final = 64
"""Adverts of one answer that are looked at; as many as our relay gives."""
REFRESH_ASKS: Final = 3
"""Relays that a refresh of the book asks."""
_TIMEOUT_S: Final = 10.0


class Place(NamedTuple):
    """Where a device says that it is."""

    presence: Presence
    """Verified: signed by the device that was asked for, and live."""
    address: str
    """What the relay that answered says about that relay; not verified, may be empty."""


@dataclass(slots=True)
class Refreshed:
    """What a refresh of the book came to."""

    asked: list[str] = field(default_factory=list)
    """Relays that answered."""
    learnt: int = 0
    """Adverts that were believed."""
    private: set[str] = field(default_factory=set)
    """Addresses that were left out because they are private."""
    troubles: dict[str, str] = field(default_factory=dict)
    """Why another did not answer, by address."""


class Guide:
    """Asks relays; keeps no connection."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = _TIMEOUT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Describe how to ask.

        Args:
            tls: Context for ``tls`` addresses; None means the system's authorities.
            timeout_s: For one question with everything that it takes.
            clock: Unix seconds, by which signed records are judged.
        """
        self._tls = tls
        self._timeout_s = timeout_s
        self._clock = clock

    async def where(self, address: str, identity: PublicKey, *, only_public: bool = False) -> tuple[Place, ...]:
        """Ask the relay at ``address`` where a device is; see ``transport.dial`` for ``only_public``.

        Returns:
            What can be believed, the newest first, one a relay; empty when this relay knows nothing.

        Raises:
            LocalError: The address is none.
            HostError: The relay cannot be reached, does not answer in time, or knows no such questions.
        """
        answer = await self._asked(address, lambda machine, at: machine.where(identity, at), Found, only_public)
        newest: dict[PublicKey, Place] = {}
        for entry in answer.entries[:PLACES_MAX]:
            place = self._believed(entry, identity)
            known = newest.get(entry.presence.relay_id)
            if place is not None and (known is None or known.presence.issued_at_s < place.presence.issued_at_s):
                newest[entry.presence.relay_id] = place
        return tuple(sorted(newest.values(), key=lambda place: -place.presence.issued_at_s))

    async def relays(self, address: str, *, only_public: bool = False) -> tuple[RelayAd, ...]:
        """Ask the relay at ``address`` which relays there are.

        Args:
            address: As others write it.
            only_public: See ``transport.dial``.

        Returns:
            Adverts that are signed and live, in the order they came in. Where they lead has not been judged;
            ``RelayBook.learn`` does.

        Raises:
            LocalError, HostError: As ``where``.
        """
        answer = await self._asked(address, lambda machine, at: machine.relays(at), Heard, only_public)
        now_s = int(self._clock())
        return tuple(
            advert for advert in answer.adverts[:ADVERTS_MAX] if untimely(advert, now_s) is None and is_signed(advert)
        )

    async def refresh(self, book: RelayBook, score: Callable[[str], float], rng: random.Random) -> Refreshed:
        """Ask up to three relays of the book for others, all at once, and enter what they say.

        Whom neither the user nor the local network named is dialled on the open internet only, wherever a name leads.

        Args:
            book: Gives whom to ask, in its order.
            score: As ``RelayBook.order`` takes it.
            rng: As above.
        """
        refreshed = Refreshed()
        asked = book.order(score, rng)[:REFRESH_ASKS]
        answers = await asyncio.gather(*(self._tried(entry, book) for entry in asked))
        for entry, answer in zip(asked, answers, strict=True):
            if isinstance(answer, WaystationError):
                refreshed.troubles[entry.address] = str(answer)
            else:
                refreshed.asked.append(entry.address)
                refreshed.learnt += sum(book.learn(advert) for advert in answer)
                if not book.allows_private:
                    refreshed.private.update(each.address for each in answer if not is_open_place(each.address))
        return refreshed

    async def _tried(self, entry: RelayEntry, book: RelayBook) -> tuple[RelayAd, ...] | WaystationError:
        try:
            return await self.relays(entry.address, only_public=not (entry.may_be_private or book.allows_private))
        except WaystationError as error:
            return error

    def _believed(self, entry: WhereEntry, identity: PublicKey) -> Place | None:
        presence = entry.presence
        if presence.identity != identity or untimely(presence, int(self._clock())) is not None:
            return None
        return Place(presence, entry.address) if is_signed(presence) else None

    async def _asked(
        self,
        address: str,
        ask: Callable[[GuideClient, Instant], Unsent | None],
        kind: type[Any],
        only_public: bool = False,
    ) -> Any:
        """Return the answer, of type ``kind``, to one question; raises as ``where``."""
        url = RelayUrl.parse(address)
        # Half of the time, so that a relay that ignores OPTIONS is told from one that does not answer at all.
        machine = GuideClient(answer_timeout_ms=max(int(self._timeout_s * 500), 1))
        events: asyncio.Queue[Any] = asyncio.Queue()  # a guide has two events: that it may be asked, and the answer
        link = Link(machine, events.put_nowait)
        link.ended.add_done_callback(lambda ended: events.put_nowait(_Ended(ended.result())))
        try:
            async with asyncio.timeout(self._timeout_s):
                await link.open(url, self._tls, self._timeout_s, only_public=only_public)
                _expect(Greeted, await events.get(), url)
                ask(machine, now())
                link.flush()
                return _expect(kind, await events.get(), url)
        except TimeoutError as error:
            raise RelayUnreachableError(f"{url} did not answer within {self._timeout_s:g} s") from error
        finally:
            link.close()
            await link.wait_closed()


class _Ended(NamedTuple):
    reason: str


def _expect(kind: type[Any], event: Any, url: RelayUrl) -> Any:
    if isinstance(event, kind):
        return event
    if isinstance(event, NoGuide):
        raise HostError(f"{url} answers no questions about other relays")
    if kind is Greeted:
        raise RelayUnreachableError(no_greeting(url, event.reason))
    raise RelayUnreachableError(f"{url} did not answer: {event.reason}")
