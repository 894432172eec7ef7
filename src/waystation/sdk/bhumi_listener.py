"""One connection of a Bhumi device: what its relay knows of us, and which answers still have to leave by it.

A device has one such connection as a rule, and two for a moment while it moves. Each keeps count for itself of the
commits that its relay has been told.
"""

import asyncio
import contextlib
import math
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.client_base import Greeted, Unsent, commit_of
from waystation.protocols.bhumi.device_client import (
    Delivered,
    DeviceClient,
    ProbeAsked,
    Registered,
    RelayNamed,
    RelaysTold,
)
from waystation.protocols.bhumi.extension_messages import Presence, RelayAd
from waystation.protocols.bhumi.messages import Feature, RecentResponse
from waystation.protocols.bhumi.signed_records import is_signed, untimely
from waystation.sdk.bhumi_moves import PRESENCE_EVERY_S, Presences
from waystation.sdk.link import Link, no_greeting
from waystation.transport.dial import RelayUrl

__all__ = ["Introduction", "Listener"]

_CONNECT_TIMEOUT_S: Final = 10.0
_NAME_TIMEOUT_S: Final = 2.0  # for the advert of a relay that does not name itself
_ADVERTS_VERIFIED_MAX: Final = 4  # ours: adverts that claim the address we dialled; an honest relay lists one


class Introduction(Protocol):
    """What an I_AM is made of; ``BhumiState`` is one."""

    @property
    def key_pair(self) -> KeyPair:
        """Who the device is."""

    def preimages(self) -> list[bytes]:
        """Return every preimage somebody may still use to reach us."""

    def recent_responses(self) -> list[RecentResponse]:
        """Return the answers a relay may still be asked for."""

    def changes(self) -> tuple[int, int]:
        """Return a value that differs when any of it has changed."""


class Listener:
    """A connection by which requests come."""

    def __init__(
        self,
        state: Introduction,
        relay: RelayUrl,
        features: Feature,
        *,
        original_relay: bool = False,
        relay_id: PublicKey | None = None,
        on_event: Callable[["Listener", Any], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Describe a connection; ``open`` makes it.

        Args:
            state: What goes into the I_AM, as it is now.
            relay: Where to.
            features: What the relay is asked for besides the preimage.
            original_relay: It puts the preimage into every DELIVER unasked.
            relay_id: Key that the relay must have, see ``DeviceClient``.
            on_event: Gets this connection, and what its machine tells.
            clock: Unix seconds.
        """
        self.relay = relay
        self._state = state
        self._changes = state.changes()
        preimages = state.preimages()
        self.machine = DeviceClient(
            state.key_pair,
            [commit_of(preimage) for preimage in preimages],
            state.recent_responses(),
            always_preimage=original_relay,
            features=features,
            relay_id=relay_id,
        )
        self._on_event = on_event
        self._clock = clock
        self.link = Link(self.machine, self._take)
        self._told = set(preimages)
        self._greeted = False
        self._began_s = 0.0
        self._heard_adverts = asyncio.Event()
        self._registered_s = math.inf
        self.greeting_s = 0.0
        """Seconds from dialling to HELLO."""
        self.presence_due_s = math.inf
        """When our presence here is due again, by the loop's clock."""
        self.registered: asyncio.Future[Registered] = asyncio.get_running_loop().create_future()
        """Done when the relay has taken us; never when the connection ends before."""
        self.relay_id: PublicKey | None = None
        """Key of the relay, once it is known; it names the place in our presence."""
        self.handling: set[asyncio.Task[None]] = set()
        """Deliveries whose answer has not left yet."""

    async def open(self, tls: ssl.SSLContext | None, *, only_public: bool = False) -> None:
        """Connect; raises HostError. See ``transport.dial`` for ``only_public``."""
        self._began_s = asyncio.get_running_loop().time()
        await self.link.open(self.relay, tls, _CONNECT_TIMEOUT_S, only_public=only_public)

    @property
    def is_open(self) -> bool:
        """Whether the relay has greeted us and the connection stands."""
        return self.machine.is_open

    @property
    def has_ended(self) -> bool:
        """Whether the connection is over."""
        return self.link.ended.done()

    def stood_s(self) -> float:
        """Return for how many seconds the relay has had us; 0 when it has not taken us."""
        return max(asyncio.get_running_loop().time() - self._registered_s, 0.0)

    def reason(self) -> str:
        """Return why the connection ended, for people."""
        reason = self.link.ended.result()
        return reason if self._greeted else no_greeting(self.relay, reason)

    async def wait_registered(self) -> Registered:
        """Wait until the relay has taken us; raises HostError when the connection ends before."""
        first: list[asyncio.Future[Any]] = [self.registered, self.link.ended]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not self.registered.done():
            raise HostError(self.reason())
        return self.registered.result()

    async def close(self) -> None:
        """End the connection and wait until nothing is left of it."""
        self.link.close()
        await self.link.wait_closed()

    async def leave(self, patience_s: float) -> None:
        """Close once every request under way is answered, after ``patience_s`` seconds in any case."""
        give_up_at = asyncio.get_running_loop().time() + patience_s
        try:
            while self.handling and not self.has_ended:
                left_s = give_up_at - asyncio.get_running_loop().time()
                if left_s <= 0:
                    break
                waiting: list[asyncio.Future[Any]] = [*self.handling, self.link.ended]
                await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self.close()

    def register_new(self) -> None:
        """Tell the relay about every preimage that it does not know yet; sweep the dead ones when its room ends."""
        changes = self._state.changes()
        if changes == self._changes:
            return
        self._changes = changes
        preimages = self._state.preimages()
        new = [preimage for preimage in preimages if preimage not in self._told]
        if not new:
            return
        if len(self._told) + len(new) > wire.COMMITS_MAX:
            self._introduce(preimages)
            return
        self._told.update(new)
        self.machine.add_commits(commit_of(preimage) for preimage in new)

    def refresh(self) -> None:
        """Replace what the relay knows by what is valid now, recent answers included.

        Commits can be withdrawn, and answers handed over, in no other way (BHUMI-8).
        """
        self._changes = self._state.changes()
        self._introduce(self._state.preimages())

    def acknowledge(self, message_id: int, answer: bytes) -> Unsent | None:
        """Send new commits, then the ACK, in one write; return why the ACK could not leave."""
        self.register_new()
        unsent = self.machine.answer(message_id, answer)
        if unsent is Unsent.TOO_LARGE:  # stored when another relay took more: no retry could ever get it
            self.machine.answer(message_id, b"")
        self.link.flush()
        return unsent

    async def find_and_assert(self, presences: Presences, probable_id: PublicKey | None) -> Presence | None:
        """Assert presence here, and return it; None when the relay has no name, or takes no presence.

        The relay's name is what it says in BIND, else what we know, else what its own advert says.

        Args:
            presences: Sign it.
            probable_id: What is known of the relay elsewhere.
        """
        if not self.machine.accepts(Feature.PRESENCE):
            return None
        self.relay_id = self.relay_id or probable_id
        if self.relay_id is None:
            await self._ask_name()
        return self.renew_presence(presences)

    def renew_presence(self, presences: Presences) -> Presence | None:
        """Assert presence here once more, and return it; None when the relay has no name, or takes no presence."""
        if self.relay_id is None or not self.is_open or not self.machine.accepts(Feature.PRESENCE):
            return None
        presence = presences.sign(self.relay_id)
        self.assert_presence(presence)
        self.presence_due_s = asyncio.get_running_loop().time() + PRESENCE_EVERY_S
        return presence

    def assert_presence(self, presence: Presence) -> None:
        """Hand a presence to the relay, of this place or of another one, if it takes such things."""
        self.machine.assert_presence(presence)
        self.link.flush()

    def refuse_probe(self, probe_id: int) -> None:
        """Tell the relay that a probe it asked for is not made."""
        self.machine.refuse_probe(probe_id)
        self.link.flush()

    async def _ask_name(self) -> None:
        self.machine.ask_relays()
        self.link.flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NAME_TIMEOUT_S):
                await self._heard_adverts.wait()

    def _find_name(self, adverts: Sequence[RelayAd], now_s: int) -> None:
        """Take the relay's key from the advert that names the address we dialled, if there is one to be believed."""
        ours = [advert for advert in adverts if advert.address == str(self.relay) and untimely(advert, now_s) is None]
        self.relay_id = next((each.relay_id for each in ours[:_ADVERTS_VERIFIED_MAX] if is_signed(each)), None)
        self._heard_adverts.set()

    def _introduce(self, preimages: Sequence[bytes]) -> None:
        self._told = set(preimages)
        self.machine.replace([commit_of(each) for each in preimages], self._state.recent_responses())

    def _take(self, event: Greeted | Registered | Delivered | RelayNamed | RelaysTold | ProbeAsked) -> None:
        if isinstance(event, Greeted):
            self._greeted = True
            self.greeting_s = asyncio.get_running_loop().time() - self._began_s
        elif isinstance(event, RelayNamed):
            self.relay_id = event.relay_id
        elif isinstance(event, RelaysTold):
            self._find_name(event.adverts, int(self._clock()))
        elif isinstance(event, Registered):
            self._registered_s = asyncio.get_running_loop().time()
            self.registered.set_result(event)
        self._on_event(self, event)
