"""Asks relays where a device is and which other relays exist (specs/bhumi.md 5, WHERE and RELAYS_REQ).

Each question uses an anonymous connection of its own. An answer is accepted only if its owner has signed it, it
matches the question, and it has not expired. So a relay can omit or delay an answer, but not forge one.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from waystation.core.errors import HostError, WaystationError
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.bhumi.client.base import Greeted, Unsent
from waystation.protocols.bhumi.client.guide import Found, GuideClient, NoGuide, RelaysListed
from waystation.protocols.bhumi.extension_messages import Presence, RelayAd, WhereEntry
from waystation.protocols.bhumi.relay_addresses import is_open_place
from waystation.protocols.bhumi.signed_records import is_signed, untimely
from waystation.sdk.bhumi.connection import CONNECT_TIMEOUT_S, RelayConnection
from waystation.sdk.bhumi.pairing.relay_authorities import Trust
from waystation.sdk.bhumi.relay_book import RelayBook
from waystation.sdk.connection import now
from waystation.sdk.errors import RelayUnreachableError
from waystation.transport.dial import RelayUrl

__all__ = ["ADVERTS_MAX", "PLACES_MAX", "REFRESH_ASKS", "Guide", "Refreshed"]

PLACES_MAX: Final = 8
"""Presences of one answer that are looked at; as many as our relay gives."""
ADVERTS_MAX: Final = 64
"""Adverts of one answer that are looked at; as many as our relay gives."""
REFRESH_ASKS: Final = 3
"""Relays that a refresh of the book asks."""


@dataclass(slots=True)
class Refreshed:
    """What a refresh of the book came to."""

    asked: list[str] = field(default_factory=list)
    """Relays that answered."""
    private: set[str] = field(default_factory=set)
    """Addresses that were left out because they are private."""
    troubles: dict[str, str] = field(default_factory=dict)
    """Why another did not answer, by address."""


class Guide:
    """Asks relays; keeps no connection."""

    def __init__(
        self,
        *,
        tls: Trust = None,
        timeout_s: float = CONNECT_TIMEOUT_S,
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

    async def where(self, address: str, identity: PublicKey, *, only_public: bool = False) -> tuple[WhereEntry, ...]:
        """Ask the relay at ``address`` where a device is; see ``transport.dial`` for ``only_public``.

        Returns:
            What can be believed, the newest first, one a relay; empty when this relay knows nothing. The presences
            are verified, the addresses are what the relay says.

        Raises:
            LocalError: The address is none.
            HostError: The relay cannot be reached, does not answer in time, or knows no such questions.
        """
        answer = await self._asked(address, lambda machine, at: machine.where(identity, at), only_public)
        newest: dict[PublicKey, WhereEntry] = {}
        for entry in answer.entries[:PLACES_MAX]:
            known = newest.get(entry.presence.relay_id)
            is_newer = known is None or known.presence.issued_at_s < entry.presence.issued_at_s
            if is_newer and self._is_believed(entry.presence, identity):
                newest[entry.presence.relay_id] = entry
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
        answer = await self._asked(address, lambda machine, at: machine.relays(at), only_public)
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
        asking = (
            self.relays(each.address, only_public=not (each.may_be_private or book.allows_private)) for each in asked
        )
        answers = await asyncio.gather(*asking, return_exceptions=True)
        for entry, answer in zip(asked, answers, strict=True):
            if isinstance(answer, WaystationError):
                refreshed.troubles[entry.address] = str(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                refreshed.asked.append(entry.address)
                for advert in answer:
                    book.learn(advert)
                if not book.allows_private:
                    refreshed.private.update(each.address for each in answer if not is_open_place(each.address))
        return refreshed

    def _is_believed(self, presence: Presence, identity: PublicKey) -> bool:
        is_live = presence.identity == identity and untimely(presence, int(self._clock())) is None
        return is_live and is_signed(presence)

    async def _asked(
        self,
        address: str,
        ask: Callable[[GuideClient, Instant], Unsent | None],
        only_public: bool,
    ) -> Any:
        """Return the answer to one question; raises as ``where``."""
        url = RelayUrl.parse(address)
        # Half of the time, so that a relay that ignores OPTIONS differs from one that does not answer at all.
        machine = GuideClient(answer_timeout_ms=max(int(self._timeout_s * 500), 1))
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def on_event(event: Greeted | Found | RelaysListed | NoGuide) -> None:
            if isinstance(event, Greeted):
                ask(machine, now())
            elif isinstance(event, NoGuide):
                answer.set_exception(HostError(f"{url} answers no questions about other relays"))
            else:
                answer.set_result(event)

        connection = RelayConnection(machine, url, on_event)
        try:
            async with asyncio.timeout(self._timeout_s):
                await connection.dial(self._tls, self._timeout_s, only_public=only_public)
                if await connection.first(answer):
                    return answer.result()
                what = f"{url} did not answer: " if connection.greeted.done() else ""
                raise RelayUnreachableError(f"{what}{connection.reason()}")
        except TimeoutError as error:
            raise RelayUnreachableError(f"{url} did not answer within {self._timeout_s:g} s") from error
        finally:
            await connection.aclose()
