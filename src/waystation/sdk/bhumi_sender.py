"""A Bhumi sender: pairs by invite, asks, and retries without asking twice.

Before a request leaves, its preimage and its exact bytes are on disk as pending; they stay there until the outcome is
known, so a process that dies can ``recover``. Tries repeat the same preimage and bytes, and relay and device answer
from memory. Only when the relay says that the commit is gone is the next spare preimage spent; a request that may have
been delivered under an earlier preimage stays in doubt, and only an answer ends that doubt. Requests to different peers
run side by side, those to one peer one after the other.
"""

import asyncio
import contextlib
import random
import ssl
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from waystation.core.errors import HostError, LocalError, RemoteError, WaystationError
from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.invite import decode_invite
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES
from waystation.protocols.bhumi.payloads import (
    NO_PREIMAGE,
    Command,
    ContentType,
    DeviceMessage,
    HandshakeComplete,
    HandshakeInit,
    MessageResponse,
    ResponseStatus,
    encode_command,
)
from waystation.protocols.bhumi.places import is_open_place
from waystation.protocols.bhumi.suites import SharedSecrets
from waystation.sdk.bhumi_answers import SPARES_COMMAND
from waystation.sdk.bhumi_delivery import Deliveries, Ended
from waystation.sdk.bhumi_dialect import Answer, Dialect, command_result, dialect_of, read_answer, write_request
from waystation.sdk.bhumi_finder import Finder
from waystation.sdk.bhumi_guide import Guide
from waystation.sdk.bhumi_quality import RelayQuality, neutral_score
from waystation.sdk.bhumi_relay_book import RelayBook
from waystation.sdk.bhumi_retry import Patience, Verdict
from waystation.sdk.bhumi_state import BhumiState, HandshakeFacts, PeerRecord, Pending, PendingKind
from waystation.sdk.errors import (
    AnswerError,
    InviteRefusedError,
    NoPreimageError,
    OfflineError,
    RelayUnreachableError,
    UncertainError,
)
from waystation.sdk.home_lock import hold
from waystation.transport.dial import RelayUrl

__all__ = ["SPARES_WANTED", "Recovered", "Reply", "Sender"]

SPARES_WANTED: Final = 2  # BHUMI-D: keep at least two spares
_SPARES_PATIENCE: Final = Patience(doubt_s=5.0, settle_s=0.5)  # spares are a comfort: nobody waits long for them
_LOCK_TIMEOUT_S: Final = 30.0
_CONNECT_TIMEOUT_S: Final = 10.0
_BOOK_RELAYS: Final = 3
_LOOK_UP_TIMEOUT_S: Final = 3.0  # ours: whoever waits for a peer that is offline shall not wait long for nothing


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a peer."""

    status: int
    """0 when the peer's handler was content; see ``payloads.ResponseStatus``."""
    content: bytes
    latency_s: float
    """From the call to the answer, retries included."""
    tries_count: int
    """How many SENDs it took; more than one means that the answer may come from a cache."""

    @property
    def text(self) -> str:
        """The content as text; bytes that are no UTF-8 are replaced."""
        return self.content.decode("utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of a request that a former process left without an outcome."""

    peer: PublicKey
    kind: PendingKind
    reply: Reply | None
    """None for a handshake, and when the request has ended without an answer or still has no outcome."""
    note: str
    """A sentence for people."""


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
        tls: ssl.SSLContext | None = None,
        dialect: Dialect | None = None,
        patience: Patience | None = None,
        rng: random.Random | None = None,
        connect_timeout_s: float = _CONNECT_TIMEOUT_S,
    ) -> None:
        """Describe a sender.

        Args:
            state: Its folder.
            relays: Address or addresses; tries go round them. Peers are told the first one as ours. With a book there
                may be none: then its first ones are taken.
            book: Further relays, asked where a peer is when the others do not know.
            quality: Where to keep what is observed of relays.
            find: Ask where a peer is that is not connected where it was, or whose relay cannot be reached.
            dials_private: Go to places outside the open internet that others name; so we do in any case when one of
                ``relays`` is such a place.
            tls: Context for ``tls://`` addresses; None trusts the system's authorities.
            dialect: What the peers speak; None for what each one's handshake was in, bhumi-v1 for a new one.
            patience: How long to go on trying.
            rng: Source of secrets; the system's by default.
            connect_timeout_s: For one connection.

        Raises:
            LocalError: An address cannot be read, or no relay is known.
        """
        self._state = state
        source = rng or random.SystemRandom()
        score = quality.score if quality is not None else neutral_score
        named = [relays] if isinstance(relays, str) else list(relays)
        hearsay: set[RelayUrl] = set()
        if not named and book is not None:
            named = [entry.address for entry in book.order(score, source)[:_BOOK_RELAYS]]
            hearsay = {RelayUrl.parse(address) for address in named if book.is_hearsay(address)}
        if not named:
            raise LocalError("no relay is known; name one, or look for some on the local network")
        urls = [RelayUrl.parse(text) for text in named]
        trusted = [url for url in urls if url not in hearsay]
        self._dialect = dialect
        self._secrets = SharedSecrets(state.key_pair)
        self._patience = patience or Patience()
        self._rng = source
        self._url = str(urls[0])
        self._book = book
        finder = None
        if find:
            guide = Guide(tls=tls, timeout_s=min(connect_timeout_s, _LOOK_UP_TIMEOUT_S))
            dials_private = dials_private or not all(is_open_place(str(url)) for url in trusted)
            finder = Finder(guide, book, score, self._rng, named=trusted, dials_private=dials_private)
        only_public = frozenset() if dials_private else frozenset(hearsay)
        self._deliveries = Deliveries(state, urls, finder, quality, self._rng, tls, connect_timeout_s, only_public)
        self._told: dict[bytes, str] = {}
        self._turns: defaultdict[bytes, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._active: set[bytes] = set()
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Wait until no other program sends as this participant; raises HomeBusyError after 30 s."""
        busy = f"another program is sending as the identity in {self._state.home}; try again when it is done"
        await self._stack.enter_async_context(hold(self._state.home / "sender.lock", busy, _LOCK_TIMEOUT_S))
        self._stack.push_async_callback(self._deliveries.close)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        invite = decode_invite(token)
        peer, preimage = invite.identity, invite.preimage
        if peer == self._state.identity:
            raise LocalError("this is your own invite; give it to somebody else")
        async with self._turns[peer]:
            paired = self._state.inviter_of(preimage)
            if paired is not None:
                return paired
            waiting = [each for each in self._state.pending() if each.preimage == preimage]
            back = b""
            if not waiting:
                back = self._rng.randbytes(PREIMAGE_BYTES)
                request = HandshakeInit(self._state.identity, back, self._url)
                dialect = self._dialect_for(self._state.peer(peer))
                payload = write_request(dialect, self._secrets, peer, preimage, request, self._rng)
                self._state.begin_handshake(preimage, peer, payload, alias, back)
                waiting = [each for each in self._state.pending() if each.preimage == preimage]
            ended = await self._deliver(waiting[0], in_doubt=not back)
            self._finish_handshake(waiting[0], ended, back)
            await self._top_up(peer)
        known = self._state.peer(peer)
        assert known is not None
        return known

    async def send(
        self, peer: PeerRecord | str, content: str | bytes, content_type: ContentType = ContentType.TEXT
    ) -> Reply:
        """Ask a peer and return its answer.

        Args:
            peer: A record, an alias or an id52.
            content: Text (UTF-8) or bytes.
            content_type: How the peer shall read it; COMMAND wants the JSON of ``payloads.encode_command``.

        Raises:
            UnknownPeerError: Nobody goes by that name.
            LocalError: The content is larger than the relay takes, or has no words in this dialect.
            OfflineError: The peer is not connected; nothing was delivered.
            RelayUnreachableError: No relay was reached; nothing was delivered.
            NoPreimageError: No permission is left; nothing was delivered.
            UncertainError: The request may have been handled: there was no outcome in time, and ``recover`` goes on
                asking, or its preimage is gone and no other one got it answered.
            AnswerError: The answer cannot be opened.
        """
        record = self._state.find_peer(peer) if isinstance(peer, str) else peer
        raw = content.encode() if isinstance(content, str) else content
        message = DeviceMessage(content_type, raw, self._url)
        async with self._turns[record.identity]:
            if self._state.next_right(record.identity) is None:
                await self._recover(record.identity)
            reply = await self._exchange(record, message, self._patience)
            await self._top_up(record.identity)
        return reply

    async def command(self, peer: PeerRecord | str, cmd: str, args: object = None) -> object:
        """Send a command and return the ``data`` of its answer; raises AnswerError when the peer says it failed."""
        reply = await self.send(peer, encode_command(Command(cmd, args)), ContentType.COMMAND)
        return command_result(reply.content)

    async def recover(self) -> list[Recovered]:
        """Ask again, with the very same bytes, for the outcome of every request that has none."""
        return await self._recover(None)

    async def _recover(self, peer: bytes | None) -> list[Recovered]:
        waiting = [each for each in self._state.pending() if peer in (None, each.peer)]
        return [await self._resume(each) for each in waiting if each.preimage not in self._active]

    async def _resume(self, pending: Pending) -> Recovered:
        reply = None
        note = "has no outcome yet"
        try:
            ended = await self._deliver(pending, in_doubt=True)
            if pending.kind is PendingKind.HANDSHAKE:
                self._finish_handshake(pending, ended, b"")
                note = "the handshake is complete"
            elif ended.verdict is Verdict.ANSWERED:
                reply = self._finish_message(pending, ended)
                note = "was answered"
            elif ended.verdict is Verdict.SPENT:
                self._state.finish(pending.preimage, pending.peer, ())
                note = "has ended, and its answer is lost"
        except WaystationError as error:  # one request that cannot be recovered must not keep the others
            note = str(error)
        return Recovered(pending.peer, pending.kind, reply, note)

    async def _exchange(self, peer: PeerRecord, message: DeviceMessage, patience: Patience) -> Reply:
        """Send with the oldest preimage, and with the next one whenever one turns out to be gone."""
        began = time.monotonic()
        tries_count = 0
        in_doubt = False
        while (preimage := self._state.next_right(peer.identity)) is not None:
            dialect = self._dialect_for(peer)
            payload = write_request(dialect, self._secrets, peer.identity, preimage, message, self._rng)
            self._state.begin_message(preimage, peer.identity, payload)
            pending = Pending(preimage, peer.identity, PendingKind.MESSAGE, payload, "", 0.0)
            ended = await self._deliver_or_give_back(pending, patience)
            tries_count += ended.tries_count
            in_doubt = in_doubt or ended.in_doubt
            if ended.verdict is Verdict.ANSWERED:
                reply = self._finish_message(pending, ended)
                return Reply(reply.status, reply.content, time.monotonic() - began, tries_count)
            if ended.verdict is not Verdict.SPENT:
                raise self._error_of(peer, ended, in_doubt=in_doubt)
            self._state.finish(preimage, peer.identity, ())
        if in_doubt:
            raise UncertainError(
                f"{peer.name} may have handled the request, but the answer is lost and no permission to send is left; "
                "ask them for a new invite"
            )
        raise NoPreimageError(f"no permission to send to {peer.name} is left; ask them for a new invite")

    async def _deliver_or_give_back(self, pending: Pending, patience: Patience) -> Ended:
        """Deliver; a request that certainly did not arrive leaves its preimage usable."""
        try:
            ended = await self._deliver(pending, in_doubt=False, patience=patience)
        except LocalError:
            self._state.give_back(pending.preimage, pending.peer)
            raise
        if ended.verdict in {Verdict.OFFLINE, Verdict.UNREACHABLE}:
            self._state.give_back(pending.preimage, pending.peer)
        return ended

    async def _deliver(self, pending: Pending, *, in_doubt: bool, patience: Patience | None = None) -> Ended:
        """Try until the request has an outcome or patience ends."""
        self._active.add(pending.preimage)
        try:
            return await self._deliveries.deliver(pending, patience or self._patience, in_doubt=in_doubt)
        finally:
            self._active.discard(pending.preimage)

    def _dialect_for(self, peer: PeerRecord | None) -> Dialect:
        """Return what to write a new request in; None is somebody we have not met."""
        if self._dialect is not None:
            return self._dialect
        return Dialect.E2E if peer is None else peer.dialect

    def _read_answer(self, pending: Pending, ended: Ended) -> tuple[Dialect, Answer]:
        """Return an answer and its dialect, which is that of the request's own bytes; raises AnswerError."""
        dialect = dialect_of(pending.preimage, pending.payload)
        if dialect is None:
            raise AnswerError("the request was written in a suite that is unknown here")
        return dialect, read_answer(dialect, self._secrets, pending.peer, pending.preimage, ended.answer)

    def _finish_message(self, pending: Pending, ended: Ended) -> Reply:
        """Take over what the answer gives, and return the reply."""
        try:
            _, answer = self._read_answer(pending, ended)
            if not isinstance(answer, MessageResponse):
                raise AnswerError("the answer is one to a handshake")
        except AnswerError:
            self._state.finish(pending.preimage, pending.peer, ())
            raise
        self._note_url(pending.peer, answer.url)
        gained = [] if answer.next_preimage == NO_PREIMAGE else [answer.next_preimage]
        self._state.finish(pending.preimage, pending.peer, gained)
        return Reply(answer.status, answer.content, ended.latency_s, ended.tries_count)

    def _note_url(self, peer: PublicKey, url: str) -> None:
        """Note where a peer says that it is, once for each new place."""
        if not url or self._told.get(peer) == url:
            return
        self._told[peer] = url
        self._state.note_url(peer, url)
        if self._book is not None:
            self._book.note_peer_place(url)

    def _finish_handshake(self, pending: Pending, ended: Ended, back: bytes) -> None:
        """Record the peer, or undo and raise."""
        preimage, peer = pending.preimage, pending.peer
        if ended.verdict is Verdict.UNCERTAIN:
            raise UncertainError(f"the handshake got no outcome ({ended.reason}); accept the same token again")
        if ended.verdict is Verdict.ANSWERED:
            with contextlib.suppress(AnswerError):  # an unreadable answer ends like a refusal
                dialect, answer = self._read_answer(pending, ended)
                if isinstance(answer, HandshakeComplete) and answer.status is ResponseStatus.OK:
                    gained = () if answer.preimage == NO_PREIMAGE else (answer.preimage,)
                    facts = HandshakeFacts(pending.alias, answer.url, dialect=dialect)
                    self._state.finish(preimage, peer, gained, facts)
                    return
        self._state.finish(preimage, peer, ())
        self._state.withdraw(back)
        if ended.verdict is Verdict.OFFLINE:
            raise OfflineError(f"the inviter is not connected to {ended.places}; try the token again later")
        if ended.verdict is Verdict.UNREACHABLE:
            raise RelayUnreachableError(ended.reason)
        raise InviteRefusedError(
            "the invite was refused: it was used already, the inviter does not know it, or uses another --e2e; "
            "ask for a new invite"
        )

    async def _top_up(self, peer: bytes) -> None:
        """Ask a peer for spare preimages when there are fewer than two besides the next one."""
        record = self._state.peer(peer)
        if record is None or not record.gives_spares or not 0 < record.rights <= SPARES_WANTED:
            return
        wanted = SPARES_WANTED + 1 - record.rights
        message = DeviceMessage(ContentType.COMMAND, encode_command(Command(SPARES_COMMAND, {"n": wanted})))
        # Without spares everything works; a request in doubt stays pending like any other.
        with contextlib.suppress(RemoteError, HostError):
            reply = await self._exchange(record, message, _SPARES_PATIENCE)
            spares = _spares_of(reply)
            if spares:
                self._state.gain(peer, spares)
            else:
                self._state.stop_spares(peer)

    def _error_of(self, peer: PeerRecord, ended: Ended, *, in_doubt: bool) -> Exception:
        """Return the error for a request that ended without an answer, doubts about earlier preimages included."""
        if in_doubt and not ended.in_doubt:
            return UncertainError(
                f"{peer.name} may have handled the request, but the answer is lost and it could not be asked again "
                f"({ended.reason})"
            )
        if ended.verdict is Verdict.OFFLINE:
            return OfflineError(f"{peer.name} is not connected to {ended.places}; nothing was delivered")
        if ended.verdict is Verdict.UNREACHABLE:
            return RelayUnreachableError(ended.reason)
        return UncertainError(
            f"no outcome in time ({ended.reason}): {peer.name} may have got the request; it stays pending"
        )


def _spares_of(reply: Reply) -> list[bytes]:
    """Return the spare preimages of an answer; none when the peer does not know them or lists nonsense."""
    try:
        data = command_result(reply.content)
    except AnswerError:
        return []
    listed = data.get("spares") if isinstance(data, dict) else None
    if not isinstance(listed, list):
        return []
    with contextlib.suppress(ValueError, TypeError):
        spares = [bytes.fromhex(text) for text in listed[:SPARES_WANTED]]
        if all(len(spare) == PREIMAGE_BYTES for spare in spares):
            return spares
    return []
