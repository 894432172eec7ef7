"""Carries BSP bundles (sealed records) over MERK: each is one encrypted message, delivered now or reported as failed.

``waystation bsp --merk`` and programs give it to ``BspPeer.attach``. MERK relays store nothing, so bundles for an
offline peer are lost. A client that connects therefore sends a five-byte hello to all its peers. They send what is due
at once instead of waiting for their timers. A hello is not part of BSP; a forged one only causes an early repetition.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Final

from waystation.core.errors import HostError, WaystationError
from waystation.core.ids import PublicKey
from waystation.crypto.hashing import hkdf_sha256
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.links import LinkTerms
from waystation.sdk.backoff import CAP_S, FIRST_S
from waystation.sdk.bridges.carrier import BUNDLE_BEGINS, RelayCarrier, ignore
from waystation.sdk.bsp.carrier import CarrierSession
from waystation.sdk.bsp.identities import Identities
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

__all__ = ["HELLO", "MERK_BUNDLE_BYTES_MAX", "MERK_TERMS", "BspOverMerk", "merk_keys_of"]

MERK_TERMS: Final = LinkTerms("merk", base_ms=10_000)
"""A message may take one look-up across the mesh, 5 s (specs/merk.md 5), and is delivered within it or not at all;
twice that is the base (BSP-D11)."""
MERK_BUNDLE_BYTES_MAX: Final = 131_072
"""One such frame fits the 256 KiB that a relay keeps while it looks for a recipient (specs/merk.md 5)."""
HELLO: Final = b"BSPM\x01"
"""Says that its sender has just connected."""
_HELLOS_AT_ONCE: Final = 8  # each may wait for a look-up
_CONNECT_S: Final = 10.0  # longer than a redial takes when the relay is there
_MERK_INFO: Final = b"waystation/bsp/merk/1"


class BspOverMerk(RelayCarrier):
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
        connect_s: float = _CONNECT_S,
        retry_first_s: float = FIRST_S,
        retry_cap_s: float = CAP_S,
    ) -> None:
        """Describe a carrier.

        Args:
            urls: ``wss://host/merk``, one or several, as for ``MerkClient``.
            keys: Who we are at the relays; ``merk_keys_of`` makes them of the device's key. A key is
                connected once at a time: no other program may use it there.
            identities: Who the peers are at the relays; None means by the same keys.
            servers: The list of relays; None begins with an empty one in memory.
            only: Try nothing but ``urls``.
            recipients: Pinned agreement keys; None begins without any, in memory.
            tls: Context for ``wss``; None means the system's authorities.
            on_event: Gets ``CarrierFailure`` and the events of ``MerkClient``.
            on_message: Gets messages that are no bundles, from any sender.
            connect_s: How long ``carry`` waits for a connection.
            retry_first_s: First pause between connections.
            retry_cap_s: Longest pause between connections.

        Raises:
            LocalError: An address is none.
        """
        super().__init__("MERK", MERK_TERMS, MERK_BUNDLE_BYTES_MAX, identities, on_event)
        self._on_message = on_message if on_message is not None else ignore
        self._connect_s = connect_s
        self.merk: Final = MerkClient(
            urls,
            keys=keys,
            servers=servers,
            only=only,
            recipients=recipients,
            tls=tls,
            receipts=False,  # the peer's acknowledgement comes in a bundle
            salvage=True,  # original relays mutilate messages; what a bundle says is proved by itself
            on_event=self._on_event,
            retry_first_s=retry_first_s,
            retry_cap_s=retry_cap_s,
        )
        """The client, for its state and for messages of another kind."""
        self._hellos: asyncio.Task[None] | None = None
        self._is_connected = False
        self._breaks_count = 0

    async def open(self, session: CarrierSession) -> None:
        """Begin to connect, and go on for ever; a relay that is away is no error."""
        self._session = session
        self._stack.push_async_callback(self.merk.aclose)
        self.merk.start()
        self._begin(self._receive())

    async def _send(self, peer: PublicKey, bundle: bytes) -> None:
        """Return once the peer's relay has written a bundle to the peer.

        An original relay reports no outcomes; an established connection has to be enough then.
        """
        breaks_count = self._breaks_count
        target = self._identities.relay_key_of(peer)
        sent = await self.merk.send(target, bundle, timeout_s=self._connect_s)
        is_connected = self.merk.relay is not None and self._breaks_count == breaks_count
        if not sent.ok and not (sent.outcome is Outcome.UNKNOWN and is_connected):
            raise self._not_carried(peer, sent.sentence)

    # Receiving

    async def _receive(self) -> None:
        try:
            async for message in self.merk.messages():
                await self._on_any(message)
        except HostError as error:  # no relay will be tried any more
            self._failed(error)

    async def _on_any(self, message: Message) -> None:
        content = message.content
        if not isinstance(content, Raw) or not content.data.startswith((BUNDLE_BEGINS, HELLO)):
            self._on_message(message)
        elif content.data == HELLO:
            peer = self._identities.peer_of(message.sender)
            if message.auth is Auth.BOUND and not message.late and peer in self._session.peers():
                self._session.reached(peer)
        else:  # what our disk does not take, no relay keeps: the peer repeats what is not acknowledged
            await self._take(content.data)

    # Saying hello

    def _on_event(self, event: object) -> None:
        if isinstance(event, Connected) and not self._is_connected:
            self._is_connected = True
            if self._hellos is not None:
                self._hellos.cancel()
            self._hellos = self._begin(self._greet())
        elif isinstance(event, Disconnected):
            self._breaks_count += self._is_connected
            self._is_connected = False
        self._report(event)

    async def _greet(self) -> None:
        """Say hello to every peer, and send what went out on the connection of before."""
        peers = self._session.peers()
        for peer in peers:
            self._session.reached(peer)
        room = asyncio.Semaphore(_HELLOS_AT_ONCE)

        async def say_hello(peer: PublicKey) -> None:
            # Who is away, or unknown to the mesh, will say hello to us.
            async with room:
                with contextlib.suppress(WaystationError):
                    await self.merk.send(self._identities.relay_key_of(peer), HELLO, timeout_s=self._connect_s)

        await asyncio.gather(*map(say_hello, peers))


def merk_keys_of(key_pair: KeyPair) -> Keys:
    """Return a device's identity as a MERK client: its own key, and an agreement key that grows from the same seed.

    Others pin agreement keys, so it must be the same at every start.
    """
    return Keys.from_seeds(key_pair.seed, hkdf_sha256(key_pair.seed, salt=b"", info=_MERK_INFO))
