"""Carries BSP bundles over Bhumi: one bundle in each request, and one bundle or none in its response.

A program gives it to ``BspPeer.attach``; bundles are BSP records sealed for one peer. The peer stores the request's
bundle on disk before it responds. Its response carries the records due to the sender, such as ACKs. Each response also
renews the preimage (the 32-byte secret that permits one request).

A participant that listens gets requests from its peers whenever they have data for it. After registering at the relay
it sends every peer a hello: a request without a bundle. A participant that only sends must poll with such requests. The
first poll follows one second after a bundle; the pauses then double up to a minute.

A request is four letters, flags (bit 0: sender listens) and an optional bundle; a response is an optional bundle. The
preimage identifies the sender, because it was given to that peer alone.
"""

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from waystation.core.errors import HostError, RemoteError
from waystation.core.ids import PublicKey
from waystation.protocols.bsp.device.links import LinkTerms
from waystation.sdk.bhumi import (
    Backoff,
    BhumiState,
    ContentType,
    Device,
    Listening,
    Request,
    ResponseStatus,
    Sender,
    Timeouts,
)
from waystation.sdk.bridges.carrier import RelayCarrier
from waystation.sdk.bsp.carrier import CarrierSession
from waystation.sdk.bsp.identities import Identities
from waystation.sdk.errors import NoPreimageError, OfflineError
from waystation.transport.http_get import TlsContext

__all__ = ["BHUMI_BUNDLE_BYTES_MAX", "BHUMI_TERMS", "REQUEST_BEGINS", "BspOverBhumi"]

BHUMI_TERMS: Final = LinkTerms("bhumi", base_ms=60_000)
"""A relay waits 30 s for a response (BHUMI-L), so that is how long the slowest way takes; twice that is the base
(BSP-D11). What was answered needs no repetition: its ACKs came with the answer."""
BHUMI_BUNDLE_BYTES_MAX: Final = 64_512
"""63 KiB: what is left of 65,536 bytes of payload after envelope, message fields, our flags and a relay's address."""
REQUEST_BEGINS: Final = b"BSPB"
_FLAGS_AT: Final = len(REQUEST_BEGINS)
_LISTENS: Final = 0x01
_POLL_FIRST_S: Final = 1.0
_POLL_CAP_S: Final = 60.0
_LOOK_S: Final = 0.5  # as a Device by itself
_TIMEOUTS: Final = Timeouts(doubt_s=35.0)  # the relay gives up after 30 s, and may still have the answer then
_RNG: Final = random.SystemRandom()
_BEGIN_S: Final = 0.5  # longer than it takes to see that another program listens with this folder


class BspOverBhumi(RelayCarrier):
    """Carries bundles as one Bhumi participant, paired with each of its peers by an invite."""

    def __init__(
        self,
        state: BhumiState,
        relays: str | Sequence[str],
        *,
        listens: bool = True,
        identities: Identities | None = None,
        tls: TlsContext | None = None,
        on_event: Callable[[object], None] | None = None,
        on_request: Callable[[Request], Awaitable[bytes | str]] | None = None,
        timeouts: Timeouts | None = None,
        backoff: Backoff | None = None,
        poll_first_s: float = _POLL_FIRST_S,
        poll_cap_s: float = _POLL_CAP_S,
        look_s: float = _LOOK_S,
    ) -> None:
        """Describe a carrier.

        Args:
            state: Its folder, which stays the caller's to close; ``sdk.identity.put_key`` gives it the device's key.
            relays: Address or addresses, as for ``Device`` and ``Sender``.
            listens: Whether peers can ask us; else we poll them.
            identities: Who the peers are at the relays; None means by the same keys.
            tls: Context for ``tls://`` addresses; None trusts the system's authorities.
            on_event: Gets ``CarrierFailure`` and the events of ``Device``.
            on_request: Answers requests of peers that are not about BSP; None refuses them.
            timeouts: How long one request may take.
            backoff: Delays between the listener's connections.
            poll_first_s: Longest first pause between polls.
            poll_cap_s: Longest pause between polls.
            look_s: How soon the relay learns of an invite or a pairing.

        Raises:
            LocalError: An address cannot be read.
        """
        super().__init__("Bhumi", BHUMI_TERMS, BHUMI_BUNDLE_BYTES_MAX, identities, on_event)
        self._state = state
        self._listens = listens
        self._on_request = on_request
        self._poll_first_s = poll_first_s
        self._poll_cap_s = poll_cap_s
        self._device = Device(
            state, relays, self._answer, tls=tls, on_event=self._on_event, backoff=backoff, poll_s=look_s
        )
        self._sender = Sender(state, relays, tls=tls, timeouts=timeouts or _TIMEOUTS)
        self._begun = asyncio.Event()
        self._in_touch: dict[PublicKey, asyncio.Task[None]] = {}
        self._exchanged: defaultdict[PublicKey, asyncio.Event] = defaultdict(asyncio.Event)
        self._answering: set[PublicKey] = set()
        self._failure: HostError | None = None

    def reaches(self, peer: PublicKey) -> bool:
        """Return whether a peer has shown that it can be asked; one that only polls gets everything in responses."""
        is_paired = self._state.peer(self._identities.relay_key_of(peer)) is not None
        return peer in self._answering or (not self._listens and is_paired)

    async def open(self, session: CarrierSession) -> None:
        """Begin to listen, or to poll; a relay that is away is no error.

        Raises:
            HomeBusyError: Another program listens with this folder.
            HostError: The folder cannot be used.
        """
        self._session = session
        await self._stack.enter_async_context(self._sender)
        self._begin(self._recover())
        if self._listens:
            await self._until_begun(self._begin(self._listen()))
        else:
            self._touch_all()

    # Pairing

    def invite(self, alias: str = "") -> str:
        """Return a token by which one peer can pair with us, while we listen; raises as ``Device.invite``."""
        return self._device.invite(alias)

    async def accept(self, token: str, alias: str = "") -> PublicKey:
        """Pair with the peer whose token this is, and return its key; raises as ``Sender.accept``."""
        record = await self._sender.accept(token, alias=alias)
        peer = self._identities.peer_of(record.identity)
        self._touch(peer)
        return peer

    # Asking

    async def _send(self, peer: PublicKey, bundle: bytes) -> None:
        """Ask a peer, and return once it has a bundle on disk, and its own, if any, was taken here.

        A request without a bundle says hello, or asks for what is due.
        """
        if bundle and self._failure is not None:
            raise self._failure
        if peer not in self._session.peers():
            raise self._not_carried(peer, "the device does not know this peer")
        record = self._state.peer(self._identities.relay_key_of(peer))
        if record is None:
            raise self._not_carried(peer, "no invite has paired us")
        content = REQUEST_BEGINS + bytes((_LISTENS if self._listens else 0,)) + bundle
        reply = await self._sender.send(record, content, ContentType.BINARY, repeatable=True)  # as bundles are
        if reply.failure is not None:
            raise reply.failure
        if reply.status != ResponseStatus.OK:
            raise self._not_carried(peer, "the peer has not taken it")
        self._can_be_asked(peer)
        if reply.content:
            await self._take(reply.content)
        if bundle or reply.content:
            self._exchanged[peer].set()

    def _can_be_asked(self, peer: PublicKey, *, is_back: bool = False) -> None:
        if is_back or peer not in self._answering:
            self._answering.add(peer)
            self._session.reached(peer)

    async def _recover(self) -> None:
        """Take the answers to what a former process asked."""
        try:
            for recovered in await self._sender.recover():
                if recovered.reply is not None and recovered.reply.content:
                    await self._take(recovered.reply.content)
        except HostError as error:
            self._failed(error)

    # Answering

    async def _answer(self, request: Request) -> bytes | str:
        if not request.content.startswith(REQUEST_BEGINS):
            if self._on_request is None:
                raise self._not_carried(request.peer, "this is no request of BSP")
            return await self._on_request(request)
        peer = self._identities.peer_of(request.peer)
        flags, bundle = request.content[_FLAGS_AT : _FLAGS_AT + 1], request.content[_FLAGS_AT + 1 :]
        taken = await self._session.take(bundle) if bundle else peer
        if taken != peer or peer not in self._session.peers() or not flags:
            raise self._not_carried(peer, "this is not what a known peer says")
        if flags[0] & _LISTENS:
            self._can_be_asked(peer, is_back=not bundle)
        else:
            self._answering.discard(peer)
        return await self._session.make(peer, BHUMI_BUNDLE_BYTES_MAX) or b""

    async def _listen(self) -> None:
        try:
            await self._device.run()
        except HostError as error:
            self._failure = error
            self._failed(error)

    async def _until_begun(self, listening: asyncio.Task[None]) -> None:
        """Return once the listener is at work; raise what has ended it at once."""
        begun = asyncio.ensure_future(self._begun.wait())
        await asyncio.wait([listening, begun], timeout=_BEGIN_S, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if self._failure is not None:
            raise self._failure

    def _on_event(self, event: object) -> None:
        self._begun.set()
        if isinstance(event, Listening):
            self._touch_all()
        self._report(event)

    # Keeping in touch

    def _touch_all(self) -> None:
        for record in self._state.peers():
            self._touch(self._identities.peer_of(record.identity))

    def _touch(self, peer: PublicKey) -> None:
        """Say hello to a peer, or begin to poll it, unless that is under way: it goes on until one arrives."""
        before = self._in_touch.get(peer)
        if before is None or before.done():
            self._in_touch[peer] = self._begin(self._keep_in_touch(peer))

    async def _keep_in_touch(self, peer: PublicKey) -> None:
        """Say hello; who does not listen asks for ever: soon after a bundle went or came, then less and less often."""
        backoff, exchanged = Backoff(_RNG, first_s=self._poll_first_s, cap_s=self._poll_cap_s), self._exchanged[peer]
        while True:
            try:
                await self.carry(peer, b"")
                if self._listens:
                    return
            except (HostError, RemoteError) as error:
                if self._listens and isinstance(error, OfflineError | NoPreimageError):
                    return  # one that is away will say hello to us
                self._failed(error, peer)
            with contextlib.suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(backoff.next_s()):
                        await exchanged.wait()
                    exchanged.clear()
                    backoff.reset()
