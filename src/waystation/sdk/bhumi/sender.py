"""A Bhumi sender: it pairs with a peer by invite, and sends requests that no device handles twice.

The preimage (the 32-byte secret that permits one request) and the request bytes are on disk before sending. They stay
there until the peer's answer opens, so ``recover`` works after a crash, and no relay can end a doubt. Retries repeat
both, and relay and device answer from their caches.

Requests to one peer are sent one after the other, those to different peers side by side, each over its own connection.
Other programs may send as the same participant at the same time. A call that is cancelled leaves its request behind:
what has left goes on until it has an outcome or its time is up, and ``recover`` returns the outcome.
"""

import asyncio
import contextlib
import random
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar

from waystation.core.errors import LocalError, WaystationError
from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.payload.contents import Command, ContentType, DeviceMessage, encode_command
from waystation.protocols.bhumi.payload.invite import decode_invite
from waystation.protocols.bhumi.payload.suites import SharedSecrets
from waystation.protocols.bhumi.relay_addresses import is_open_place
from waystation.sdk.bhumi.connection import CONNECT_TIMEOUT_S
from waystation.sdk.bhumi.dialect import Dialect, command_result, write_request
from waystation.sdk.bhumi.events import SenderEvent, Trouble
from waystation.sdk.bhumi.finder import Finder
from waystation.sdk.bhumi.guide import Guide
from waystation.sdk.bhumi.moves import RelayChoice
from waystation.sdk.bhumi.outcome import ENDS, Reply, failed
from waystation.sdk.bhumi.pairing.named import dialect_for
from waystation.sdk.bhumi.pairing.relay_authorities import HomeTrust, RelayAuthorities
from waystation.sdk.bhumi.quality import RelayQuality
from waystation.sdk.bhumi.relay_book import RelayBook
from waystation.sdk.bhumi.sending.delivery import Deliveries
from waystation.sdk.bhumi.sending.exchange import Exchanges, Work, nothing_sent
from waystation.sdk.bhumi.sending.handshakes import Handshake, Handshakes
from waystation.sdk.bhumi.sending.liveness import Liveness
from waystation.sdk.bhumi.sending.outgoing import Outgoing
from waystation.sdk.bhumi.sending.owner import owned
from waystation.sdk.bhumi.sending.reading import AnswerReader
from waystation.sdk.bhumi.sending.recovery import Recovered, Recovery
from waystation.sdk.bhumi.sending.retry import Timeouts, Verdict
from waystation.sdk.bhumi.state import BhumiState, PeerRecord
from waystation.sdk.errors import AnswerError, NotSentError, UncertainError
from waystation.sdk.life import Life
from waystation.transport.tls import TlsContext

__all__ = ["Sender"]

_BOOK_RELAYS: Final = 3
_LOOK_UP_TIMEOUT_S: Final = 3.0  # ours: a request to a peer that is offline must not wait long for nothing
_END_S: Final = 1.0  # ours: for spares that are being asked for when the sender closes; a device that is awake needs ms


class _Waited(Protocol):
    """A request or handshake that somebody may wait for."""

    @property
    def may_have_arrived(self) -> bool:
        """Whether the peer may have it, or may get it yet."""


_Result = TypeVar("_Result")


class Sender:
    """Sends as one participant; use it as ``async with Sender(...) as sender``."""

    def __init__(
        self,
        state: BhumiState,
        relays: str | Sequence[str],
        *,
        book: RelayBook | None = None,
        quality: RelayQuality | None = None,
        find: bool = True,
        dials_private: bool = False,
        tls: TlsContext | None = None,
        dialect: Dialect | None = None,
        timeouts: Timeouts | None = None,
        rng: random.Random | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        on_event: Callable[[SenderEvent], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Describe a sender.

        Args:
            state: Its folder.
            relays: Address or addresses; tries go round them. Peers learn the first one as ours. With a book there
                may be none: then its first ones are taken.
            book: Further relays, asked where a peer is when the others do not know.
            quality: Where to keep what is observed of relays.
            find: Ask where a peer is that is not connected where it was, or whose relay cannot be reached.
            dials_private: Go to places outside the open internet that others name; so we do in any case when one of
                ``relays`` is such a place.
            tls: Context for ``tls://`` addresses; None trusts the system's authorities.
            dialect: What the peers speak; None for what each one's handshake was in, bhumi-v1 for a new one.
            timeouts: How long to go on trying.
            rng: Source of secrets; the system's by default.
            connect_timeout_s: For one connection.
            on_event: Gets ``PeerOffline`` and ``PeerOnline`` as requests find peers, ``AuthorityLearned``, and
                ``Trouble``.
            clock: Unix seconds, for what is signed with a date, and for events.

        Raises:
            LocalError: An address cannot be read, or no relay is known.
        """
        self._state = state
        source = rng or random.SystemRandom()
        choice = RelayChoice(relays, book, quality, source)
        urls = choice.named or choice.from_book()[:_BOOK_RELAYS]
        if not urls:
            raise LocalError("no relay is known; name one, or look for some on the local network")
        trusted = [url for url in urls if not choice.by_gossip(url)]
        self._dialect = dialect
        self._secrets = SharedSecrets(state.key_pair)
        self._timeouts = timeouts or Timeouts()
        self._rng = source
        self._url = str(urls[0])
        self._book = book
        self._report = on_event or (lambda _: None)
        trust = HomeTrust(tls, RelayAuthorities(state), on_event=self._report)
        finder = None
        if find:
            guide = Guide(tls=trust, timeout_s=min(connect_timeout_s, _LOOK_UP_TIMEOUT_S), clock=clock)
            dials_private = dials_private or not all(is_open_place(str(url)) for url in trusted)
            finder = Finder(guide, choice, trusted, dials_private=dials_private)
        only_public = frozenset() if dials_private else frozenset(urls).difference(trusted)
        self._liveness = Liveness(state, self._report, clock=clock)
        self._deliveries = Deliveries(
            *(state, urls, finder, choice.reached, source, trust, connect_timeout_s, only_public), self._liveness.note
        )
        self._life = Life("the Bhumi sender")
        self._reported: dict[bytes, str] = {}
        self._turns: defaultdict[bytes, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._parts: _Parts | None = None
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._life.open()
        owner = await self._stack.enter_async_context(owned(self._state.home))
        self._stack.push_async_callback(self._state.unlocked)  # for what waits to be written
        self._stack.push_async_callback(self._deliveries.close)
        self._stack.push_async_callback(self._end_tasks)
        state, outgoing = self._state, Outgoing(self._state, owner)
        reader = AnswerReader(outgoing, self._secrets)
        exchanges = Exchanges(state, outgoing, self._deliveries, reader, self._write, self._note_url, self._report)
        handshakes = Handshakes(state, outgoing, exchanges, self._secrets, self._dialect, self._url, self._rng)
        recovery = Recovery(state, outgoing, exchanges, handshakes, self._liveness, self._timeouts, self._start_quietly)
        self._parts = _Parts(outgoing, exchanges, handshakes, recovery)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._life.close()
        await self._stack.aclose()

    async def accept(self, token: str, *, alias: str = "") -> PeerRecord:
        """Use an invite: shake hands with the inviter, who becomes a peer.

        Nothing is sent for an invite whose handshake is complete; the known peer is returned as it is.

        Args:
            token: 86 characters.
            alias: How to call the inviter.

        Raises:
            LocalError: The token cannot be read, or is our own.
            InviteRefusedError: It was used already, or is unknown to the inviter.
            OfflineError: The inviter is not connected; the token stays good.
            RelayUnreachableError: No relay was reached; the token stays good.
            UncertainError: No outcome; calling ``accept`` again with the same token goes on.
        """
        parts = self._opened()
        invite = decode_invite(token)
        if invite.identity == self._state.identity:
            raise LocalError("this is your own invite; give it to somebody else")
        async with self._turns[invite.identity]:
            paired = self._state.inviter_of(invite.preimage)
            if paired is not None:
                return paired
            handshake = Handshake(invite, alias, self._timeouts)
            task = self._start(parts.handshakes.run(handshake))
            record = await self._wait_for(task, handshake)
        parts.recovery.look_after(record.identity)
        return record

    async def send(
        self,
        peer: PeerRecord | str | bytes,
        content: str | bytes,
        content_type: ContentType = ContentType.TEXT,
        *,
        repeatable: bool = False,
        timeout_s: float | None = None,
    ) -> Reply:
        """Ask a peer, and return what became of it with the peer's answer, as soon as it is there.

        The device handles the request once or never. A call that is cancelled takes its request back if it has not
        left; else the request goes on, for as long as ``Timeouts`` say, and ``recover`` returns its outcome.

        Args:
            peer: A record, an alias, an id52 or the 32 bytes of a key.
            content: Text (UTF-8) or bytes.
            content_type: How the peer shall read it; COMMAND wants the JSON of ``payloads.encode_command``.
            repeatable: The peer may handle this content twice. Then it is sent with the next permission when a relay
                does not know the one before, even where the content may have arrived.
            timeout_s: How long the call may take, in seconds above 0; None for as long as ``Timeouts`` say. A request
                that has left by then goes on as if the call was cancelled.

        Raises:
            UnknownPeerError: No peer goes by that name.
            LocalError: The peer or content has a wrong type, or the content is larger than the relay takes, or has no
                words in this dialect.
            RelayUnreachableError: No relay was reached; nothing was delivered.
            HostError: The disk refuses to note the request; nothing was sent. An answer is returned whatever it says.
        """
        parts = self._opened()
        record = self._record_of(peer)
        if not isinstance(content, str | bytes):
            raise LocalError(f"a request is text or bytes, not {type(content).__name__}")
        if timeout_s is not None and not timeout_s > 0:
            raise LocalError(f"timeout_s is {timeout_s}; it has to be above 0 s")
        raw = content.encode() if isinstance(content, str) else content
        work = Work(record, DeviceMessage(content_type, raw, self._url), self._timeouts, repeatable=repeatable)
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(timeout_s):
                await self._turns[record.identity].acquire()
        except TimeoutError:
            return failed(_not_sent(record, timeout_s, "an earlier request of this program has its turn"))
        try:
            left_s = None if timeout_s is None else max(timeout_s - (asyncio.get_running_loop().time() - began), 0.0)
            return await self._wait_for(self._start(self._ask(parts, work)), work, left_s)
        except ENDS as error:
            return failed(error)
        finally:
            self._turns[record.identity].release()

    async def command(
        self,
        peer: PeerRecord | str | bytes,
        cmd: str,
        args: object = None,
        *,
        repeatable: bool = False,
        timeout_s: float | None = None,
    ) -> object:
        """Send a command and return the ``data`` of its answer; ``repeatable`` and ``timeout_s`` as in ``send``.

        Raises:
            AnswerError: The peer says that it failed.
            RemoteError: There is no answer; see ``send``.
        """
        content = encode_command(Command(cmd, args))
        reply = await self.send(peer, content, ContentType.COMMAND, repeatable=repeatable, timeout_s=timeout_s)
        if reply.failure is not None:
            raise reply.failure
        return command_result(reply.content)

    def watch(self, peer: PeerRecord | str | bytes) -> None:
        """Report by ``PeerOffline`` and ``PeerOnline`` when a peer leaves and comes back, until ``unwatch``.

        It costs a connection to each of two relays where the peer may be. A peer counts as online until a relay reports
        something else; a relay that knows no watches reports nothing. Spec: BHUMI-WATCH.

        Raises:
            UnknownPeerError: No peer goes by that name.
            LocalError: 16 peers are watched already.
        """
        self._opened()
        self._deliveries.watching.begin(self._record_of(peer).identity)

    async def unwatch(self, peer: PeerRecord | str | bytes) -> None:
        """End a watch; a peer that is not watched is no news."""
        self._opened()
        await self._deliveries.watching.end(self._record_of(peer).identity)

    async def recover(self) -> list[Recovered]:
        """Return the outcomes of cancelled calls, and ask again for those of all requests that have none.

        They are asked for side by side, with the very same bytes. What another living program works on is left to it.

        Raises:
            HostError: The disk refuses to note outcomes that are known already.
        """
        parts = self._opened()
        await self._state.unlocked()
        self._state.settle()
        return await parts.recovery.recover()

    # Work that goes on by itself

    async def _ask(self, parts: "_Parts", work: Work) -> Reply:
        await self._state.unlocked()
        with nothing_sent():
            self._state.settle()
        if self._state.next_right(work.peer.identity) is None:
            await parts.recovery.free_permission(work.peer.identity)
        reply = await parts.exchanges.run(work)
        parts.recovery.look_after(work.peer.identity)
        return reply

    async def _wait_for(self, task: asyncio.Task[_Result], work: _Waited, timeout_s: float | None = None) -> _Result:
        """Return what a task returns, or raise what it raises; a caller that leaves lets it go on if it has to."""
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout_s)
        except asyncio.CancelledError:
            self._leave(task, work)
            raise
        if not done and not work.may_have_arrived:
            task.cancel()
            done, _ = await asyncio.wait({task})
        if not done:
            self._leave(task, work)
            raise UncertainError(
                f"no outcome within {timeout_s:.3g} s: the request may have arrived; it stays pending, and goes on "
                "until this program closes"
            )
        if not task.cancelled():
            return task.result()
        self._life.check()
        if work.may_have_arrived:
            raise UncertainError("the sender was closed before the outcome came; the request stays pending")
        assert isinstance(work, Work)
        raise _not_sent(work.peer, timeout_s, _last_of(work))

    def _leave(self, task: asyncio.Task[Any], work: _Waited) -> None:
        """Let a request go on that may have arrived, and keep its outcome; take one back that has not left."""
        if not work.may_have_arrived:
            task.cancel()
        elif isinstance(work, Work):
            task.add_done_callback(lambda done: self._keep_outcome(done, work))

    def _keep_outcome(self, task: asyncio.Task[Reply], work: Work) -> None:
        if task.cancelled() or work.delivery is None or self._parts is None:
            return
        error = task.exception()
        if isinstance(error, UncertainError | AnswerError):
            return  # it stays pending: ``recover`` asks on
        reply = task.result() if error is None else None
        if isinstance(error, ENDS):
            reply = failed(error)
        if reply is not None:
            keep = partial(self._parts.outgoing.keep_outcome, work.delivery.pending, reply, reply.sentence)
            self._parts.outgoing.note(keep)

    def _start(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _start_quietly(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._start(self._quietly(work))

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except WaystationError as error:  # nobody waits for this: what the disk refuses is reported
            self._report(Trouble(str(error)))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled():
            task.exception()  # seen: who waits for it gets it, and else ``_keep_outcome`` does

    async def _end_tasks(self) -> None:
        assert self._parts is not None
        await self._parts.recovery.end(_END_S)
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What the parts need

    def _record_of(self, peer: PeerRecord | str | bytes) -> PeerRecord:
        return peer if isinstance(peer, PeerRecord) else self._state.find_peer(peer)

    def _opened(self) -> "_Parts":
        self._life.check()
        return self._life.part(self._parts)

    def _write(self, peer: PeerRecord, preimage: bytes, message: DeviceMessage) -> bytes:
        dialect = dialect_for(self._dialect, peer)
        return write_request(*(dialect, self._secrets, peer.identity, preimage, message, self._rng), root=peer.root)

    def _note_url(self, peer: PublicKey, url: str) -> None:
        """Note where a peer says that it is, once for each new place."""
        if not url or self._reported.get(peer) == url:
            return
        self._reported[peer] = url
        self._state.note_url(peer, url)
        if self._book is not None:
            self._book.note_peer_place(url)


class _Parts(NamedTuple):
    """What a sender has while it is open."""

    outgoing: Outgoing
    exchanges: Exchanges
    handshakes: Handshakes
    recovery: Recovery


def _last_of(work: Work) -> str:
    """Return what a request that has not arrived was waiting for."""
    last = None if work.delivery is None else work.delivery.last
    if last is Verdict.OFFLINE:
        return f"{work.peer.name} is not connected"
    if last is Verdict.UNREACHABLE:
        return "no relay could be reached"
    return "no relay has taken it" if work.delivery is not None else "every permission is in use"


def _not_sent(peer: PeerRecord, timeout_s: float | None, reason: str) -> NotSentError:
    return NotSentError(f"nothing was delivered to {peer.name} within {timeout_s or 0:.3g} s: {reason}")
