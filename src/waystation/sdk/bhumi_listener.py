"""One connection of a Bhumi device: what its relay knows of us, and which answers still have to leave by it.

A device has one such connection as a rule, and two for a moment while it moves. Each keeps count for itself of the
commits that its relay has been told.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
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
from waystation.protocols.bhumi.messages import Feature
from waystation.protocols.bhumi.signed_records import is_signed, untimely
from waystation.sdk.bhumi_state import BhumiState
from waystation.sdk.link import Link, no_greeting
from waystation.transport.dial import RelayUrl

__all__ = ["Listener"]

_CONNECT_TIMEOUT_S: Final = 10.0
_ADVERTS_VERIFIED_MAX: Final = 4  # ours: adverts that claim the address we dialled; an honest relay lists one


class Listener:
    """A connection by which requests come."""

    def __init__(
        self,
        state: BhumiState,
        relay: RelayUrl,
        features: Feature,
        *,
        original_relay: bool = False,
        relay_id: PublicKey | None = None,
        on_event: Callable[["Listener", Any], None],
    ) -> None:
        """Describe a connection; ``open`` makes it.

        Args:
            state: What goes into the I_AM, as it is now.
            relay: Where to.
            features: What the relay is asked for besides the preimage.
            original_relay: It puts the preimage into every DELIVER unasked.
            relay_id: Key that the relay must have, see ``DeviceClient``.
            on_event: Gets this connection, and what its machine tells.
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
        self.link = Link(self.machine, self._take)
        self._told = set(preimages)
        self._greeted = False
        self.registered: asyncio.Future[Registered] = asyncio.get_running_loop().create_future()
        """Done when the relay has taken us; never when the connection ends before."""
        self.relay_id: PublicKey | None = None
        """Key of the relay, once it is known; it names the place in our presence."""
        self.handling: set[asyncio.Task[None]] = set()
        """Deliveries whose answer has not left yet."""

    async def open(self, tls: ssl.SSLContext | None) -> None:
        """Connect; raises HostError."""
        await self.link.open(self.relay, tls, _CONNECT_TIMEOUT_S)

    @property
    def is_open(self) -> bool:
        """Whether the relay has greeted us and the connection stands."""
        return self.machine.is_open

    @property
    def has_ended(self) -> bool:
        """Whether the connection is over."""
        return self.link.ended.done()

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
        while self.handling and not self.has_ended:
            left_s = give_up_at - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            waiting: list[asyncio.Future[Any]] = [*self.handling, self.link.ended]
            await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
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

    def assert_presence(self, presence: Presence) -> bool:
        """Hand a presence to the relay and return whether it takes such things."""
        unsent = self.machine.assert_presence(presence)
        self.link.flush()
        return unsent is None

    def ask_name(self) -> None:
        """Ask a relay that does not name itself for its own advert; ``find_name`` reads it."""
        self.machine.ask_relays()
        self.link.flush()

    def find_name(self, adverts: Sequence[RelayAd], now_s: int) -> None:
        """Take the relay's key from the advert that names the address we dialled, if there is one to be believed."""
        ours = [advert for advert in adverts if advert.address == str(self.relay) and untimely(advert, now_s) is None]
        self.relay_id = next((each.relay_id for each in ours[:_ADVERTS_VERIFIED_MAX] if is_signed(each)), None)

    def _introduce(self, preimages: Sequence[bytes]) -> None:
        self._told = set(preimages)
        self.machine.replace([commit_of(each) for each in preimages], self._state.recent_responses())

    def _take(self, event: Greeted | Registered | Delivered | RelayNamed | RelaysTold | ProbeAsked) -> None:
        if isinstance(event, Greeted):
            self._greeted = True
        elif isinstance(event, RelayNamed):
            self.relay_id = event.relay_id
        elif isinstance(event, Registered):
            self.registered.set_result(event)
        self._on_event(self, event)
