"""One connection of a Bhumi device to a relay: it registers commits, receives requests and sends their answers.

A commit is the hash of a preimage, by which the relay recognises a permitted request. Each connection tracks which
commits its relay has. A device has one connection, or two while it moves.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.client.base import AuthorityShown, Greeted, Unsent, commit_of
from waystation.protocols.bhumi.client.device import (
    DEVICE_FEATURES,
    Delivered,
    DeviceClient,
    ProbeAsked,
    Registered,
    RelayNamed,
    RelaysReceived,
)
from waystation.protocols.bhumi.extension_messages import Presence, RelayAd
from waystation.protocols.bhumi.messages import Feature, RecentResponse
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.signed_records import is_signed, untimely
from waystation.sdk.bhumi.connection import RelayConnection
from waystation.sdk.bhumi.moves import PRESENCE_EVERY_S, Presences
from waystation.sdk.connection import NOT_ADMITTED
from waystation.transport.dial import RelayUrl
from waystation.transport.silence import SilencePolicy

__all__ = ["Introduction", "Listener"]

_NAME_TIMEOUT_S: Final = 2.0  # for the advert of a relay that does not name itself
_LOOK_S: Final = 60.0  # what time alone changes: an invite's end, an answer that relays have forgotten
_LOOK_CROWDED_S: Final = 2.0  # ours: ranking 10,000 peers takes some 50 ms
_ADVERTS_VERIFIED_MAX: Final = 4  # ours: adverts that claim the address we dialled; an honest relay lists one


class Introduction(Protocol):
    """What an I_AM is made of; ``BhumiState`` is one."""

    @property
    def key_pair(self) -> KeyPair:
        """Who the device is."""

    def preimages(self) -> list[bytes]:
        """Return every preimage that a peer may still use to reach us, the most important first."""

    def recent_responses(self) -> list[RecentResponse]:
        """Return the answers a relay may still be asked for."""

    def issued_from(self, position: int) -> list[tuple[int, bytes]]:
        """Return the preimages issued from a position on, with theirs; the last position is used again when free."""

    def changes(self) -> tuple[int, int]:
        """Return a value that differs when any of it has changed."""


class Listener(RelayConnection):
    """A connection by which requests come."""

    def __init__(
        self,
        state: Introduction,
        relay: RelayUrl,
        *,
        original_relay: bool = False,
        relay_id: PublicKey | None = None,
        on_event: Callable[["Listener", Any], None],
        clock: Callable[[], float] = time.time,
        silence: SilencePolicy = SilencePolicy(),  # noqa: B008 - immutable
    ) -> None:
        """Describe a connection; ``dial`` makes it.

        Args:
            state: What goes into the I_AM, as it is now.
            relay: Where to.
            original_relay: It puts the preimage into every DELIVER unasked, and knows no feature.
            relay_id: Key that the relay must have, see ``DeviceClient``.
            on_event: Gets this connection, and the events of its machine.
            clock: Unix seconds.
            silence: How long the relay may be silent.
        """
        self._state = state
        self._is_original = original_relay
        self._changes = state.changes()
        self.is_crowded = False
        """Whether there are more preimages than a relay takes commits of."""
        self._issued_at = 0
        preimages = self._valid()
        self.machine = DeviceClient(
            state.key_pair,
            [commit_of(preimage) for preimage in preimages],
            state.recent_responses(),
            always_preimage=original_relay,
            features=_features(relay, original_relay=original_relay),
            relay_id=relay_id,
            silence_ms=silence.limit_ms,
        )
        super().__init__(self.machine, relay, partial(on_event, self), clock=clock, silence=silence)
        self._known_to_relay = set(preimages)
        self._used_up: set[bytes] = set()
        self._look_at = self._loop.time() + self._look_every_s
        self._adverts_arrived = asyncio.Event()
        self._registered_s = math.inf
        self.presence_due_s = math.inf
        """When our presence here is due again, by the loop's clock."""
        self.registered: asyncio.Future[Registered] = self._loop.create_future()
        """Done when the relay has taken us; never when the connection ends before."""
        self.relay_id: PublicKey | None = None
        """Key of the relay, once it is known; it names the place in our presence."""
        self.handling: set[asyncio.Task[None]] = set()
        """Deliveries whose answer has not left yet."""

    @property
    def is_open(self) -> bool:
        """Whether the relay has said HELLO and the connection is established."""
        return self.machine.is_open

    @property
    def is_refused(self) -> bool:
        """Whether the relay ended the connection when it learnt who we are; that is all it says to who is refused."""
        if not (self.ended.done() and self.greeted.done()) or self.registered.done():
            return False
        return self.ended.result().is_by_relay

    def reason(self) -> str:
        """Return why the connection ended, for people."""
        if self.is_refused:
            return f"{self.relay} {NOT_ADMITTED}: it closed the connection as soon as it knew our key"
        # Lengths that do not fit, from a relay that has answered no OPTIONS: it writes the other layout of DELIVER.
        is_other_layout = self.ended.done() and self.ended.result().refusal is Refusal.INNER_LENGTH
        if is_other_layout and not self.machine.can_revoke and not self._is_original:
            return f"{super().reason()}; is {self.relay} the original relay? then listen with --original-relay"
        return super().reason()

    def stood_s(self) -> float:
        """Return for how many seconds the relay has had us; 0 when it has not taken us."""
        return max(self._loop.time() - self._registered_s, 0.0)

    async def wait_registered(self) -> Registered:
        """Wait until the relay has taken us; raises HostError when the connection ends before."""
        if not await self.first(self.registered):
            raise HostError(self.reason())
        return self.registered.result()

    async def leave(self, timeout_s: float) -> None:
        """Close once every request under way is answered, after ``timeout_s`` seconds in any case."""
        give_up_at = self._loop.time() + timeout_s
        try:
            while self.handling and not self.has_ended:
                left_s = give_up_at - self._loop.time()
                if left_s <= 0:
                    break
                waiting: list[asyncio.Future[Any]] = [*self.handling, self.ended]
                await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self.aclose()

    def register_new(self) -> None:
        """Register every preimage that the relay does not know yet, and revoke those that are withdrawn.

        Of more than a relay takes, the most important ones are registered; which these are is looked at now and then,
        and what was issued meanwhile is registered as far as there is room.
        """
        is_due = self._loop.time() >= self._look_at
        changes = self._state.changes()
        if not is_due and (changes == self._changes or self.is_crowded):
            if changes != self._changes:
                self._register_issued()
            return
        self._changes = changes
        preimages = self._valid()
        self._look_at = self._loop.time() + self._look_every_s
        if not self._revoke_all_but(set(preimages)):
            self.refresh()
            return
        new = [preimage for preimage in preimages if preimage not in self._known_to_relay]
        if len(self._known_to_relay) + len(new) > wire.COMMITS_MAX:  # of a relay that takes no REVOKE_COMMITS
            self.refresh()
            return
        self._add(new)

    def _valid(self) -> list[bytes]:
        """Return the preimages to be registered, as many as a relay takes."""
        preimages = self._state.preimages()
        self.is_crowded = len(preimages) > wire.COMMITS_MAX
        self._issued_at = max((position for position, _ in self._state.issued_from(self._issued_at)), default=0)
        return preimages[: wire.COMMITS_MAX]

    @property
    def _look_every_s(self) -> float:
        return _LOOK_CROWDED_S if self.is_crowded else _LOOK_S

    def _register_issued(self) -> None:
        """Register what was issued since the last look, as far as the relay has room: each request has made some."""
        issued = [each for each in self._state.issued_from(self._issued_at) if each[1] not in self._known_to_relay]
        room = wire.COMMITS_MAX - len(self._known_to_relay - self._used_up)
        if issued and room > 0:
            self._issued_at = issued[:room][-1][0]
            self._add([preimage for _, preimage in issued[:room]])

    def _add(self, preimages: Sequence[bytes]) -> None:
        if preimages:
            self._known_to_relay.update(preimages)
            self.machine.add_commits(commit_of(preimage) for preimage in preimages)

    def register_again(self, preimage: bytes) -> None:
        """Register a preimage once more that a delivery has used up at the relay, and that is still valid."""
        if self.is_open:
            self._used_up.discard(preimage)
            self.machine.add_commits([commit_of(preimage)])
            self.flush()

    def _revoke_all_but(self, valid: set[bytes]) -> bool:
        """Revoke what the relay still permits and we do not; return False when it takes no REVOKE_COMMITS."""
        gone = self._known_to_relay - valid
        revoked = sorted(commit_of(preimage) for preimage in gone - self._used_up)
        if revoked and self.machine.revoke_commits(revoked) is not None:
            return False
        if self.machine.can_revoke:
            self._known_to_relay -= gone
            self._used_up -= gone
        return True

    def refresh(self) -> None:
        """Replace what the relay knows by what is valid now, recent answers included.

        Commits can be withdrawn, and answers handed over, in no other way (BHUMI-8).
        """
        self._changes = self._state.changes()
        preimages = self._valid()
        self._known_to_relay = set(preimages)
        self._used_up.clear()
        self.machine.replace([commit_of(each) for each in preimages], self._state.recent_responses())

    def acknowledge(self, message_id: int, answer: bytes) -> Unsent | None:
        """Send new commits, then the ACK, in one write; return why the ACK could not leave."""
        self.register_new()
        unsent = self.machine.answer(message_id, answer)
        if unsent is Unsent.TOO_LARGE:  # stored when another relay took more: no retry could ever get it
            self.machine.answer(message_id, b"")
        self.flush()
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
        self.presence_due_s = self._loop.time() + PRESENCE_EVERY_S
        return presence

    def assert_presence(self, presence: Presence) -> None:
        """Hand a presence to the relay, of this place or of another one, if it takes such things."""
        self.machine.assert_presence(presence)
        self.flush()

    def refuse_probe(self, probe_id: int) -> None:
        """Refuse a probe that the relay asked for."""
        self.machine.refuse_probe(probe_id)
        self.flush()

    async def _ask_name(self) -> None:
        self.machine.ask_relays()
        self.flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NAME_TIMEOUT_S):
                await self._adverts_arrived.wait()

    def _find_name(self, adverts: Sequence[RelayAd], now_s: int) -> None:
        """Take the relay's key from the advert that names the address we dialled, if there is one to be believed."""
        ours = [advert for advert in adverts if advert.address == str(self.relay) and untimely(advert, now_s) is None]
        self.relay_id = next((each.relay_id for each in ours[:_ADVERTS_VERIFIED_MAX] if is_signed(each)), None)
        self._adverts_arrived.set()

    def _on_machine_event(
        self, event: Greeted | Registered | Delivered | RelayNamed | RelaysReceived | ProbeAsked | AuthorityShown
    ) -> None:
        if isinstance(event, Delivered) and event.preimage is not None:
            self._used_up.add(event.preimage)  # its commit is used up there
        elif isinstance(event, RelayNamed):
            self.relay_id = event.relay_id
        elif isinstance(event, RelaysReceived):
            self._find_name(event.adverts, int(self._clock()))
        elif isinstance(event, Registered):
            self._registered_s = self._loop.time()
            self.registered.set_result(event)
        super()._on_machine_event(event)


def _features(relay: RelayUrl, *, original_relay: bool) -> Feature:
    """Return what to ask a relay for; its authorities only where there is a certificate."""
    if original_relay:
        return Feature(0)
    return DEVICE_FEATURES | (Feature.AUTHORITY if relay.scheme == "tls" else Feature(0))
