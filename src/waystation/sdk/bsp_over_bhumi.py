"""BSP over Bhumi: a bundle in each request, and a bundle back in its response.

A peer that answers has the request's bundle on disk, and puts into its response what is due to the asker, such as the
ACKs for what it has just read. Preimages are renewed as always: each response brings the next one.

A participant that listens is asked by its peers whenever they have something for it. It says hello to all of them when
the relay has taken its registration, with a request that holds no bundle. One that only asks is never told anything
unasked; it polls with such requests: a second after each bundle that went, then at doubled pauses up to a minute.

A request is four letters, flags (bit 0: I listen) and a bundle or nothing; a response is a bundle or nothing. Who asks
is known by the preimage, which was given to that peer alone.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from waystation.core.errors import HostError, LocalError, RemoteError
from waystation.core.ids import PublicKey
from waystation.protocols.bsp.links import LinkTerms
from waystation.sdk.bhumi import (
    Backoff,
    BhumiState,
    ContentType,
    Device,
    Invite,
    Listening,
    Patience,
    Request,
    ResponseStatus,
    Sender,
    encode_invite,
)
from waystation.sdk.bsp_carrier import Desk
from waystation.sdk.bsp_identities import Identities
from waystation.sdk.bsp_trouble import CarrierFailure, NotCarriedError
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
_PATIENCE: Final = Patience(doubt_s=35.0)  # the relay gives up after 30 s, and may still have the answer then
_BEGIN_S: Final = 0.5  # longer than it takes to see that another program listens with this folder


class BspOverBhumi:
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
        patience: Patience | None = None,
        backoff: Backoff | None = None,
        rng: random.Random | None = None,
        poll_first_s: float = _POLL_FIRST_S,
        poll_cap_s: float = _POLL_CAP_S,
        look_s: float = _LOOK_S,
    ) -> None:
        """Describe a carrier.

        Args:
            state: Its folder, which stays the caller's to close; ``bsp_identities.put_key`` gives it the device's key.
            relays: Address or addresses, as for ``Device`` and ``Sender``.
            listens: Whether peers can ask us; else we poll them.
            identities: Who the peers are at the relays; None means by the same keys.
            tls: Context for ``tls://`` addresses; None trusts the system's authorities.
            on_event: Gets ``CarrierFailure`` and all that ``Device`` tells.
            on_request: Answers requests of peers that are not about BSP; None refuses them.
            patience: How long one request may take.
            backoff: Delays between the listener's connections.
            rng: Source of secrets and jitter; anything but the default is for tests.
            poll_first_s: Longest first pause between polls.
            poll_cap_s: Longest pause between polls.
            look_s: How soon the relay hears of an invite or a pairing.

        Raises:
            LocalError: An address cannot be read.
        """
        self._state = state
        self._listens = listens
        self._identities = identities or Identities()
        self._tell = on_event if on_event is not None else _ignore
        self._on_request = on_request
        self._rng = rng or random.SystemRandom()
        self._poll_first_s = poll_first_s
        self._poll_cap_s = poll_cap_s
        self._device = Device(
            state,
            relays,
            self._answer,
            tls=tls,
            on_event=self._on_event,
            rng=self._rng,
            backoff=backoff,
            poll_s=look_s,
        )
        self._sender = Sender(state, relays, tls=tls, patience=patience or _PATIENCE, rng=self._rng)
        self._desk: Desk | None = None
        self._stack = contextlib.AsyncExitStack()
        self._begun = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._recovering: asyncio.Task[None] | None = None
        self._in_touch: dict[PublicKey, asyncio.Task[None]] = {}
        self._hopes: dict[PublicKey, asyncio.Event] = {}
        self._answering: set[PublicKey] = set()
        self._failure: HostError | None = None

    @property
    def terms(self) -> LinkTerms:
        """The same for every relay."""
        return BHUMI_TERMS

    @property
    def bundle_bytes_max(self) -> int:
        """63 KiB."""
        return BHUMI_BUNDLE_BYTES_MAX

    def reaches(self, peer: PublicKey) -> bool:
        """Return whether a peer has shown that it can be asked; one that only polls gets everything in responses."""
        return peer in self._answering or (not self._listens and self._is_paired(peer))

    async def open(self, desk: Desk) -> None:
        """Begin to listen, or to poll; a relay that is away is no error.

        Raises:
            HomeBusyError: Another program listens or sends with this folder.
            HostError: The folder cannot be used.
        """
        self._desk = desk
        await self._stack.enter_async_context(self._sender)
        self._recovering = asyncio.create_task(self._recover(desk))
        if self._listens:
            self._listening = asyncio.create_task(self._listen())
            await self._begin(self._listening)
        else:
            self._touch_all()

    async def close(self) -> None:
        """Ask and answer no more; safe to call twice."""
        tasks = [task for task in (self._listening, self._recovering, *self._in_touch.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._stack.aclose()

    # Pairing

    def invite(self, alias: str = "") -> str:
        """Return a token by which one peer can pair with us, while we listen; raises as ``BhumiState.add_invite``."""
        return encode_invite(Invite(self._state.identity, self._state.add_invite(alias, self._rng)))

    async def accept(self, token: str, alias: str = "") -> PublicKey:
        """Pair with the peer whose token this is, and return its key; raises as ``Sender.accept``."""
        assert self._desk is not None, "not open"
        record = await self._sender.accept(token, alias=alias)
        peer = self._identities.peer_of(record.identity)
        self._touch(peer)
        return peer

    def _is_paired(self, peer: PublicKey) -> bool:
        return self._state.peer(self._identities.relay_key_of(peer)) is not None

    # Asking

    async def carry(self, peer: PublicKey, bundle: bytes) -> None:
        """Ask a peer with a bundle, and return once it has it on disk and its own bundle, if any, was taken here.

        Raises:
            LocalError: The bundle is too long.
            RelayUnreachableError: No relay was reached.
            RemoteError: The peer is away or has refused it, no right to ask is left, or there was no answer in time.
        """
        if len(bundle) > BHUMI_BUNDLE_BYTES_MAX:
            raise LocalError(f"a bundle over Bhumi has at most {BHUMI_BUNDLE_BYTES_MAX} bytes, this has {len(bundle)}")
        if self._failure is not None:
            raise self._failure
        await self._ask(peer, bundle)
        self._hope_of(peer).set()

    async def _ask(self, peer: PublicKey, bundle: bytes) -> bool:
        """Send a request, with a bundle or without, and return whether a bundle came back."""
        assert self._desk is not None, "not open"
        record = self._state.peer(self._identities.relay_key_of(peer))
        if record is None:
            raise NotCarriedError("Bhumi", peer, "no invite has paired us")
        content = REQUEST_BEGINS + bytes((_LISTENS if self._listens else 0,)) + bundle
        try:
            reply = await self._sender.send(record, content, ContentType.BINARY)
        except LocalError as error:
            raise NotCarriedError("Bhumi", peer, str(error)) from error
        if reply.status != ResponseStatus.OK:
            raise NotCarriedError("Bhumi", peer, "the peer has not taken it")
        self._can_be_asked(peer)
        if reply.content:
            await self._take_answer(self._desk, reply.content)
        return bool(reply.content)

    async def _take_answer(self, desk: Desk, bundle: bytes) -> None:
        try:
            await desk.take(bundle)
        except HostError as error:  # what we asked with has arrived all the same
            self._tell(CarrierFailure("bhumi", None, str(error)))

    def _can_be_asked(self, peer: PublicKey) -> None:
        if peer not in self._answering:
            self._answering.add(peer)
            if self._desk is not None:
                self._desk.reached(peer)

    async def _recover(self, desk: Desk) -> None:
        """Take the answers to what a former process asked."""
        try:
            for recovered in await self._sender.recover():
                if recovered.reply is not None and recovered.reply.content:
                    await self._take_answer(desk, recovered.reply.content)
        except HostError as error:
            self._tell(CarrierFailure("bhumi", None, str(error)))

    # Answering

    async def _answer(self, request: Request) -> bytes | str:
        if not request.content.startswith(REQUEST_BEGINS):
            if self._on_request is None:
                raise NotCarriedError("Bhumi", request.peer, "this is no request of BSP")
            return await self._on_request(request)
        assert self._desk is not None
        peer = self._identities.peer_of(request.peer)
        flags, bundle = request.content[_FLAGS_AT : _FLAGS_AT + 1], request.content[_FLAGS_AT + 1 :]
        taken = await self._desk.take(bundle) if bundle else peer
        if taken != peer or peer not in self._desk.peers() or not flags:
            raise NotCarriedError("Bhumi", peer, "this is not what a known peer says")
        if not flags[0] & _LISTENS:
            self._answering.discard(peer)
        elif not bundle:
            self._answering.add(peer)
            self._desk.reached(peer)
        else:
            self._can_be_asked(peer)
        return await self._desk.make(peer, BHUMI_BUNDLE_BYTES_MAX) or b""

    async def _listen(self) -> None:
        try:
            await self._device.run()
        except HostError as error:
            self._failure = error
            self._tell(CarrierFailure("bhumi", None, str(error)))

    async def _begin(self, listening: asyncio.Task[None]) -> None:
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
        self._tell(event)

    # Keeping in touch

    def _touch_all(self) -> None:
        for record in self._state.peers():
            self._touch(self._identities.peer_of(record.identity))

    def _touch(self, peer: PublicKey) -> None:
        """Say hello to a peer, or begin to poll it, unless that is under way: it goes on until it was heard."""
        before = self._in_touch.get(peer)
        if before is None or before.done():
            self._in_touch[peer] = asyncio.get_running_loop().create_task(
                self._say_hello(peer) if self._listens else self._poll(peer)
            )

    async def _say_hello(self, peer: PublicKey) -> None:
        """Tell a peer that we listen; one that is away will say hello to us."""
        backoff = self._backoff()
        while True:
            try:
                await self._touch_once(peer)
            except (OfflineError, NoPreimageError):
                return
            except (HostError, RemoteError) as error:
                self._tell(CarrierFailure("bhumi", peer, str(error)))
                await asyncio.sleep(backoff.next_s())
            else:
                return

    async def _poll(self, peer: PublicKey) -> None:
        """Ask for ever: soon after a bundle went or came, then less and less often."""
        backoff, hope = self._backoff(), self._hope_of(peer)
        while True:
            try:
                if await self._touch_once(peer):
                    backoff.reset()
            except (HostError, RemoteError) as error:
                self._tell(CarrierFailure("bhumi", peer, str(error)))
            while await _is_set_within(hope, backoff.next_s()):
                hope.clear()
                backoff.reset()

    async def _touch_once(self, peer: PublicKey) -> bool:
        assert self._desk is not None
        if peer not in self._desk.peers():
            raise NotCarriedError("Bhumi", peer, "the device does not know this peer")
        return await self._ask(peer, b"")

    def _hope_of(self, peer: PublicKey) -> asyncio.Event:
        return self._hopes.setdefault(peer, asyncio.Event())

    def _backoff(self) -> Backoff:
        return Backoff(self._rng, first_s=self._poll_first_s, cap_s=self._poll_cap_s)


async def _is_set_within(event: asyncio.Event, timeout_s: float) -> bool:
    """Return whether an event is set before the time is over."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _ignore(_event: object) -> None:
    """Do nothing; for what nobody watches."""
