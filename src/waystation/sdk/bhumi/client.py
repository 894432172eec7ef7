"""``BhumiClient`` sends requests to peers and answers their requests, with one identity.

The identity is stored in a folder. The sender starts with the first ``send`` and the listener with the first
``requests`` or ``serve``. So another program may do the other part with the same folder.
"""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.client.sender import SenderClient
from waystation.protocols.bhumi.payload.contents import ContentType
from waystation.protocols.bhumi.payload.invite import Invite, decode_invite
from waystation.sdk.bhumi.connection import CONNECT_TIMEOUT_S, RelayConnection
from waystation.sdk.bhumi.device import Device
from waystation.sdk.bhumi.dialect import Dialect
from waystation.sdk.bhumi.events import DeviceEvent, Handler, Request
from waystation.sdk.bhumi.moves import RelayChoice
from waystation.sdk.bhumi.outcome import Reply
from waystation.sdk.bhumi.pairing.inviting import authority_of, check_end, home_context, invitation, learn_authority
from waystation.sdk.bhumi.pairing.relay_authorities import HomeTrust, RelayAuthorities
from waystation.sdk.bhumi.quality import RelayQuality
from waystation.sdk.bhumi.relay_book import RelayBook
from waystation.sdk.bhumi.seeds import seed_relays
from waystation.sdk.bhumi.sender import Sender
from waystation.sdk.bhumi.sending.recovery import Recovered
from waystation.sdk.bhumi.sending.retry import Timeouts
from waystation.sdk.bhumi.state import BhumiState, PeerRecord
from waystation.sdk.errors import InUseError, RelayUnreachableError
from waystation.sdk.life import Client, Life, Reading
from waystation.transport.http_get import TlsContext
from waystation.transport.silence import SILENCE_S

__all__ = ["BhumiClient", "IncomingRequest"]

_REACH_TRIES_MAX: Final = 8  # ours: a book may have hundreds of relays, and a program waits for this


@dataclass(frozen=True, slots=True)
class IncomingRequest(Request):
    """What a peer asks, with the place for the answer; a peer that gets none sees a timeout."""

    _answer: asyncio.Future[object]

    def answer(self, content: object) -> None:
        """Answer the peer: with text or bytes, a command with anything that JSON can say, too.

        Raises:
            InUseError: The request was answered already.
        """
        if self._is_open():
            self._answer.set_result(content)

    def fail(self, reason: str) -> None:
        """Let the peer know that the request could not be handled, and why (256 characters). Raises as ``answer``."""
        if self._is_open():
            self._answer.set_exception(LocalError(reason))

    def _is_open(self) -> bool:
        """Return whether an answer can still leave; one request is answered once."""
        if self._answer.done() and not self._answer.cancelled():
            raise InUseError(f"the request of {self.alias} was answered already")
        return not self._answer.cancelled()


class BhumiClient(Client):
    """Asks and answers as one identity; use it in ``async with``."""

    def __init__(
        self,
        home: Path | str,
        relays: str | Sequence[str] = (),
        *,
        tls: TlsContext | None = None,
        on_event: Callable[[DeviceEvent], None] | None = None,
        book: RelayBook | None = None,
        quality: RelayQuality | None = None,
        findable: bool = True,
        dialect: Dialect | None = None,
        admit: Callable[[PublicKey, str], bool] | None = None,
        timeouts: Timeouts | None = None,
        keep_trying: bool = False,
        silence_s: float = SILENCE_S,
    ) -> None:
        """Describe a client.

        Args:
            home: Folder of the identity, made if absent.
            relays: Address or addresses, the preferred one first. Without any, and without a book, those of the
                invitations that were accepted are used, else the seed relays (``seeds``).
            tls: Context for ``tls://`` addresses; None trusts the system's authorities and those of invitations.
            on_event: Gets what happens to the listening half, such as ``Disconnected`` with its reason, and
                ``PeerOffline`` and ``PeerOnline``, as ``send`` finds peers.
            book: Further relays, used when the named ones fail.
            quality: Where to keep what is observed of relays.
            findable: Let the relays answer questions where this identity is.
            dialect: What the peers speak; None for bhumi-v1 with new ones, and for each other one its own.
            admit: Called with key and alias of a peer that uses an invite; None admits every peer.
            timeouts: How long ``send`` goes on trying.
            keep_trying: Begin although no relay can be reached yet, and listen although one refuses us.
            silence_s: A relay from which nothing comes for so long is left, 1 to 3,600 seconds; for the listening half.

        Raises:
            LocalError: An address cannot be read.
            RelayUnreachableError: On entering: no relay could be reached, and ``keep_trying`` is false.
        """
        self._home = Path(home)
        self._make_sender = partial(
            Sender,
            relays=relays,
            book=book,
            quality=quality,
            tls=tls,
            dialect=dialect,
            timeouts=timeouts,
            on_event=on_event,
        )
        self._make_device = partial(
            Device,
            relays=relays,
            handler=self._hand_over,
            book=book,
            quality=quality,
            findable=findable,
            tls=tls,
            dialect=dialect or Dialect.E2E,
            admit=admit,
            on_event=on_event,
            gives_up=not keep_trying,
            silence_s=silence_s,
        )
        self._choice = RelayChoice(relays, book, quality, random.SystemRandom())
        self._has_relays = bool(relays) or book is not None
        self._tls = tls
        self._keep_trying = keep_trying
        self._life = Life("the Bhumi client")
        self._stack = contextlib.AsyncExitStack()
        self._state: BhumiState | None = None
        self._sender: Sender | None = None
        self._opening = asyncio.Lock()
        self._device: Device | None = None
        self._running: asyncio.Task[None] | None = None
        self._asked: deque[IncomingRequest] = deque()
        self._changed = asyncio.Event()

    # Life

    async def _open(self) -> None:
        self._state = BhumiState(self._home)
        self._stack.callback(self._state.close)
        if not self._keep_trying and self._has_relays:
            await self._reach()

    async def aclose(self) -> None:
        """Leave the relay, send no more, and close the folder; safe to call twice."""
        self._life.close()
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        self._changed.set()
        await self._stack.aclose()

    def reconnect(self) -> None:
        """Connect the listening half now, as after a change of the network; a connection that stands stays."""
        self._life.check()
        if self._device is not None:
            self._device.reconnect()

    async def _reach(self) -> None:
        """Return once a relay has said HELLO to an anonymous connection.

        Raises:
            LocalError: No relay is known.
            RelayUnreachableError: None of them could be reached; has the reason of each.
        """
        choice = self._choice
        trust = HomeTrust(self._tls, RelayAuthorities(self.state))
        reasons: list[str] = []
        while (relay := choice.next()) is not None and len(reasons) < _REACH_TRIES_MAX:
            connection = RelayConnection(SenderClient(), relay, lambda _: None)
            try:
                await connection.reach(trust, only_public=choice.by_gossip(relay))
            except HostError as error:
                reasons.append(str(error))
            else:
                return
            finally:
                await connection.aclose()
            choice.passed(relay)
            if not choice.has_others:
                break
        if not reasons:
            raise LocalError("no relay is known; name one, or look for some on the local network")
        raise RelayUnreachableError("; ".join(reasons))

    @property
    def state(self) -> BhumiState:
        """The folder."""
        self._life.check()
        return self._life.part(self._state)

    @property
    def public_key(self) -> PublicKey:
        """Who we are."""
        return PublicKey(self.state.identity)

    # Peers

    def invite(self, alias: str = "", *, expires_s: int | None = None, allow: Iterable[str] | None = None) -> str:
        """Return an invitation: with it one peer can pair with us, once, while we listen.

        The text names our relays and their authority, so that its holder needs nothing else.

        Args:
            alias: How to call that peer.
            expires_s: For how many seconds it is good; 0 for ever, None for 7 days.
            allow: What that peer may send: names of commands, ``text`` and ``binary``; None for everything.

        Raises:
            LocalError: Too many invites wait to be used, or an argument is out of its range.
        """
        place, _ = self.state.own_place()
        relays = [str(url) for url in self._choice.named] or ([place] if place else [])
        return invitation(*(self.state, alias, relays, authority_of(self._tls)), expires_s=expires_s, allow=allow)

    async def accept(self, token: str, *, alias: str = "") -> PeerRecord:
        """Pair with the peer that made a token; see ``Sender.accept``.

        Where the client was given no relays, those of the token are used and kept for the peer, and where it was given
        no ``tls``, the authority that the token names is trusted from then on.

        Raises:
            InviteRefusedError: As ``Sender.accept``, or the token has ended; then nothing is sent.
            RelayUnreachableError: As ``Sender.accept``, or no relay of the token shows the authority that it names.
        """
        invite = decode_invite(token)
        check_end(invite)
        await self._prepare(invite)
        return await (await self._sending()).accept(token, alias=alias)

    async def _prepare(self, invite: Invite) -> None:
        """Keep the relays and the authority of an invitation, as far as the program has named none."""
        state = self.state
        await state.unlocked()
        has_news = self._tls is None and await learn_authority(state, invite, CONNECT_TIMEOUT_S) is not None
        if not self._has_relays and state.relays_of(invite.identity) != list(invite.relays):
            state.remember_relays(invite.identity, invite.relays)
            has_news = True
        if has_news:
            async with self._opening:
                self._sender = None  # the one before goes on with what it has, until the client is closed

    def peers(self) -> list[PeerRecord]:
        """Return whom we can talk to."""
        return self.state.peers()

    # Asking

    async def send(
        self,
        peer: PeerRecord | str | bytes,
        content: str | bytes,
        content_type: ContentType = ContentType.TEXT,
        *,
        repeatable: bool = False,
        timeout_s: float | None = None,
    ) -> Reply:
        """Ask a peer, and return what became of it with the peer's answer; see ``Sender.send``."""
        sender = await self._sending()
        return await sender.send(peer, content, content_type, repeatable=repeatable, timeout_s=timeout_s)

    async def command(
        self,
        peer: PeerRecord | str | bytes,
        cmd: str,
        args: object = None,
        *,
        repeatable: bool = False,
        timeout_s: float | None = None,
    ) -> object:
        """Send a command and return the ``data`` of its answer; see ``Sender.command``."""
        sender = await self._sending()
        return await sender.command(peer, cmd, args, repeatable=repeatable, timeout_s=timeout_s)

    async def watch(self, peer: PeerRecord | str | bytes) -> None:
        """Let ``on_event`` know when a peer leaves and comes back; see ``Sender.watch``."""
        (await self._sending()).watch(peer)

    async def unwatch(self, peer: PeerRecord | str | bytes) -> None:
        """End a watch."""
        await (await self._sending()).unwatch(peer)

    async def recover(self) -> list[Recovered]:
        """Return the outcomes of cancelled calls, and ask for those that are missing; see ``Sender.recover``."""
        return await (await self._sending()).recover()

    async def _sending(self) -> Sender:
        state = self.state
        async with self._opening:
            if self._sender is None:
                make = self._make_sender
                if not self._has_relays:
                    make = partial(make, relays=state.relays_of() or seed_relays(self._home))
                made = make(state, tls=self._tls or home_context(state))
                self._sender = await self._stack.enter_async_context(made)
            return self._sender

    # Answering

    def requests(self) -> Reading[IncomingRequest]:
        """Return an iterator over what peers ask, from now on; we listen until the client is closed.

        Raises:
            HomeBusyError: Another program listens for this identity.
            RelayUnreachableError: The only relay refuses this identity, and ``keep_trying`` is false.
            LocalError: An address cannot be read.
        """
        reading = self._life.read("requests()", self._requests)
        if self._running is None:
            make = self._make_device
            self._device = make(self.state) if self._has_relays else make(self.state, relays=seed_relays(self._home))
            self._running = asyncio.get_running_loop().create_task(self._device.run())
            self._running.add_done_callback(lambda _: self._changed.set())
        return reading

    async def serve(self, handler: Handler) -> None:
        """Answer every request with what ``handler`` returns, several at once, until this is cancelled.

        Args:
            handler: When it raises, the peer learns that the request could not be handled.

        Raises:
            HomeBusyError: Another program listens for this identity.
        """
        answering: set[asyncio.Task[None]] = set()
        try:
            async for request in self.requests():
                task = asyncio.get_running_loop().create_task(_answer(request, handler))
                answering.add(task)
                task.add_done_callback(answering.discard)
        finally:
            for task in answering:
                task.cancel()
            await asyncio.gather(*answering, return_exceptions=True)

    async def move(self, address: str) -> None:
        """Go to another relay without a gap; see ``Device.move``. Raises LocalError unless the client listens."""
        self._life.check()
        if self._device is None:
            raise LocalError("the client does not listen; begin with requests() or serve()")
        await self._device.move(address)

    async def _requests(self) -> AsyncGenerator[IncomingRequest, None]:
        while True:
            while self._asked:
                yield self._asked.popleft()
            assert self._running is not None
            if self._running.done():
                if not self._running.cancelled():
                    self._running.result()
                return
            self._changed.clear()
            await self._changed.wait()

    async def _hand_over(self, request: Request) -> object:
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._asked.append(
            IncomingRequest(
                request.peer,
                request.alias,
                request.content_type,
                request.content,
                answer,
                is_legacy=request.is_legacy,
            )
        )
        self._changed.set()
        return await answer


async def _answer(request: IncomingRequest, handler: Callable[[Request], Any]) -> None:
    try:
        request.answer(await handler(request))
    except Exception as error:  # noqa: BLE001 - whatever the program's handler raises, its peer gets an answer
        request.fail(repr(error))
