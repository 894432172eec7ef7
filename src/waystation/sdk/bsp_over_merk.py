"""BSP over MERK: each bundle is one encrypted message, delivered now or reported as not delivered.

Relays of the mesh keep nothing, so what was sent while a peer was away is gone. Whoever gets a connection therefore
says hello to all its peers: a message of five bytes, upon which they send what is due to it at once instead of when
their timers say so. A hello is a matter of MERK alone; whoever forges one gains an early repetition.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable
from typing import Final

from waystation.core.errors import HostError, LocalError, WaystationError
from waystation.core.ids import PublicKey
from waystation.protocols.bsp.links import LinkTerms
from waystation.sdk.bsp_carrier import Desk
from waystation.sdk.bsp_identities import Identities
from waystation.sdk.bsp_trouble import CarrierFailure, NotCarriedError
from waystation.sdk.merk import (
    Auth,
    Connected,
    Disconnected,
    Keys,
    MerkClient,
    Message,
    Outcome,
    Raw,
    Recipients,
    Servers,
)
from waystation.transport.http_get import TlsContext

__all__ = ["HELLO", "MERK_BUNDLE_BYTES_MAX", "MERK_TERMS", "BspOverMerk"]

MERK_TERMS: Final = LinkTerms("merk", base_ms=10_000)
"""A message may take one look-up across the mesh, 5 s (specs/merk.md 5), and is delivered within it or not at all;
twice that is the base (BSP-D11)."""
MERK_BUNDLE_BYTES_MAX: Final = 131_072
"""One such frame fits the 256 KiB that a relay keeps while it looks for a recipient (specs/merk.md 5)."""
HELLO: Final = b"BSPM\x01"
"""Says that its sender has just connected."""
_BUNDLE_BEGINS: Final = b"BSPF"  # specs/bsp.md 5
_GREETINGS_AT_ONCE: Final = 8  # each may wait for a look-up
_CONNECT_S: Final = 10.0  # longer than a redial takes when the relay is there


class BspOverMerk:
    """Carries bundles as one MERK client; it owns that client, and connects again by itself."""

    def __init__(
        self,
        urls: str | Iterable[str] = (),
        *,
        keys: Keys,
        identities: Identities | None = None,
        servers: Servers | None = None,
        only: bool = False,
        recipients: Recipients | None = None,
        tls: TlsContext | None = None,
        on_event: Callable[[object], None] | None = None,
        on_message: Callable[[Message], None] | None = None,
        rng: random.Random | None = None,
        connect_s: float = _CONNECT_S,
        retry_first_s: float = 0.5,
        retry_cap_s: float = 30.0,
    ) -> None:
        """Describe a carrier.

        Args:
            urls: ``wss://host/merk``, one or several, as for ``MerkClient``.
            keys: Who we are at the relays; ``bsp_identities.merk_keys_of`` makes them of the device's key. A key is
                connected once at a time: no other program may use it there.
            identities: Who the peers are at the relays; None means by the same keys.
            servers: The list of relays; None begins with an empty one in memory.
            only: Try nothing but ``urls``.
            recipients: Pinned agreement keys; None begins without any, in memory.
            tls: Context for ``wss``; None means the system's authorities.
            on_event: Gets ``CarrierFailure`` and all that ``MerkClient`` tells.
            on_message: Gets messages that are no bundles, from whoever sent them.
            rng: Source of keys and jitter; anything but the default is for tests.
            connect_s: How long ``carry`` waits for a connection.
            retry_first_s: First pause between connections.
            retry_cap_s: Longest pause between connections.

        Raises:
            LocalError: An address is none.
        """
        self._identities = identities or Identities()
        self._tell = on_event if on_event is not None else _ignore
        self._on_message = on_message if on_message is not None else _ignore
        self._connect_s = connect_s
        self.merk: Final = MerkClient(
            urls,
            keys=keys,
            servers=servers,
            only=only,
            recipients=recipients,
            tls=tls,
            salvage=True,  # original relays mutilate messages; what a bundle says is proved by itself
            on_event=self._on_event,
            rng=rng,
            retry_first_s=retry_first_s,
            retry_cap_s=retry_cap_s,
        )
        """The client, for its state and for messages of another kind."""
        self._desk: Desk | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._greeting: asyncio.Task[None] | None = None
        self._is_connected = False
        self._breaks_count = 0

    @property
    def terms(self) -> LinkTerms:
        """The same for every relay."""
        return MERK_TERMS

    @property
    def bundle_bytes_max(self) -> int:
        """128 KiB."""
        return MERK_BUNDLE_BYTES_MAX

    def reaches(self, peer: PublicKey) -> bool:  # noqa: ARG002 - the mesh takes messages to anybody
        """Return True: whether somebody is there now, only a message tells."""
        return True

    async def open(self, desk: Desk) -> None:
        """Begin to connect, and go on for ever; a relay that is away is no error."""
        self._desk = desk
        self.merk.start()
        self._tasks.append(asyncio.create_task(self._receive(desk)))

    async def close(self) -> None:
        """End the connection; safe to call twice."""
        tasks = [*self._tasks, *([self._greeting] if self._greeting is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.merk.aclose()

    async def carry(self, peer: PublicKey, bundle: bytes) -> None:
        """Send a bundle, and return once the peer's relay has written it to the peer.

        An original relay tells no outcomes; then it has to be enough that the connection stands.

        Raises:
            LocalError: The bundle is too long.
            RelayUnreachableError: There is no connection.
            RemoteError: It was not delivered, or nobody can say.
        """
        if len(bundle) > MERK_BUNDLE_BYTES_MAX:
            raise LocalError(f"a bundle over MERK has at most {MERK_BUNDLE_BYTES_MAX} bytes, this has {len(bundle)}")
        target = self._identities.relay_key_of(peer)
        breaks_count = self._breaks_count
        try:
            outcome = await self.merk.send_bytes(target, bundle, timeout_s=self._connect_s)
        except LocalError as error:
            raise NotCarriedError("MERK", peer, str(error)) from error
        stands = self.merk.relay is not None and self._breaks_count == breaks_count
        if not outcome.delivered and not (outcome is Outcome.UNKNOWN and stands):
            raise NotCarriedError("MERK", peer, outcome.sentence)

    # Receiving

    async def _receive(self, desk: Desk) -> None:
        try:
            async for message in self.merk.messages():
                await self._take(desk, message)
        except HostError as error:  # no relay will be tried any more
            self._tell(CarrierFailure("merk", None, str(error)))

    async def _take(self, desk: Desk, message: Message) -> None:
        content = message.content
        if not isinstance(content, Raw) or not content.data.startswith((_BUNDLE_BEGINS, HELLO)):
            self._on_message(message)
        elif content.data == HELLO:
            self._on_hello(desk, message)
        else:
            await self._take_bundle(desk, content.data)

    def _on_hello(self, desk: Desk, message: Message) -> None:
        peer = self._identities.peer_of(message.sender)
        if message.auth is Auth.BOUND and not message.late and peer in desk.peers():
            desk.reached(peer)

    async def _take_bundle(self, desk: Desk, bundle: bytes) -> None:
        try:
            await desk.take(bundle)
        except HostError as error:  # nobody keeps it for us: the peer will repeat what it does not hear about
            self._tell(CarrierFailure("merk", None, str(error)))

    # Saying hello

    def _on_event(self, event: object) -> None:
        if isinstance(event, Connected) and not self._is_connected:
            self._is_connected = True
            if self._greeting is not None:
                self._greeting.cancel()
            self._greeting = asyncio.get_running_loop().create_task(self._greet())
        elif isinstance(event, Disconnected):
            self._breaks_count += self._is_connected
            self._is_connected = False
        self._tell(event)

    async def _greet(self) -> None:
        """Tell everybody that we are here, and send what went out on the connection of before."""
        assert self._desk is not None
        peers = self._desk.peers()
        for peer in peers:
            self._desk.reached(peer)
        room = asyncio.Semaphore(_GREETINGS_AT_ONCE)

        async def say_hello(peer: PublicKey) -> None:
            # Who is away, or unknown to the mesh, will say hello to us.
            async with room:
                with contextlib.suppress(WaystationError):
                    await self.merk.send_bytes(self._identities.relay_key_of(peer), HELLO, timeout_s=self._connect_s)

        await asyncio.gather(*map(say_hello, peers))


def _ignore(_event: object) -> None:
    """Do nothing; for what nobody watches."""
