"""A Bhumi sender: it pairs with a peer by invite, sends requests, and retries without a second execution.

The preimage (the 32-byte secret that permits one request) and the request bytes are on disk before sending. They stay
there until the outcome is known, so ``recover`` works after a crash. Retries repeat both, and relay and device answer
from their caches. The next preimage is used only when the relay reports the commit as gone. A request that may have
been delivered under an earlier preimage stays in doubt until an answer arrives. Requests to one peer run one after the
other, those to different peers in parallel.
"""

import asyncio
import contextlib
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Self

from waystation.core.errors import HostError, LocalError, RemoteError, WaystationError
from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES
from waystation.protocols.bhumi.payload.contents import (
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
from waystation.protocols.bhumi.payload.invite import Invite, decode_invite
from waystation.protocols.bhumi.payload.pairing import root_with
from waystation.protocols.bhumi.payload.suites import SharedSecrets
from waystation.protocols.bhumi.relay_addresses import is_open_place
from waystation.sdk.bhumi.answers import SPARES_COMMAND
from waystation.sdk.bhumi.connection import CONNECT_TIMEOUT_S
from waystation.sdk.bhumi.delivery import Deliveries, Ended
from waystation.sdk.bhumi.dialect import Answer, Dialect, command_result, dialect_of, read_answer, write_request
from waystation.sdk.bhumi.finder import Finder
from waystation.sdk.bhumi.guide import Guide
from waystation.sdk.bhumi.moves import RelayChoice
from waystation.sdk.bhumi.outcome import ENDS, Outcome, Reply, failed
from waystation.sdk.bhumi.quality import RelayQuality
from waystation.sdk.bhumi.relay_book import RelayBook
from waystation.sdk.bhumi.retry import Timeouts, Verdict
from waystation.sdk.bhumi.state import BhumiState, HandshakeFacts, PeerRecord, Pending, PendingKind
from waystation.sdk.errors import (
    AnswerError,
    InviteRefusedError,
    NoPreimageError,
    OfflineError,
    RelayUnreachableError,
    UncertainError,
)
from waystation.sdk.home_lock import hold
from waystation.sdk.life import Life
from waystation.transport.tls import TlsContext

__all__ = ["SPARES_WANTED", "Recovered", "Sender"]

SPARES_WANTED: Final = 2  # BHUMI-D: keep at least two spares
_SPARES_TIMEOUTS: Final = Timeouts(doubt_s=5.0, settle_s=0.5)  # spares are a comfort, not worth a long wait
_LOCK_TIMEOUT_S: Final = 30.0
_BOOK_RELAYS: Final = 3
_LOOK_UP_TIMEOUT_S: Final = 3.0  # ours: a request to a peer that is offline must not wait long for nothing


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
        tls: TlsContext | None = None,
        dialect: Dialect | None = None,
        timeouts: Timeouts | None = None,
        rng: random.Random | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
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
        finder = None
        if find:
            guide = Guide(tls=tls, timeout_s=min(connect_timeout_s, _LOOK_UP_TIMEOUT_S))
            dials_private = dials_private or not all(is_open_place(str(url)) for url in trusted)
            finder = Finder(guide, choice, trusted, dials_private=dials_private)
        only_public = frozenset() if dials_private else frozenset(urls).difference(trusted)
        self._deliveries = Deliveries(state, urls, finder, choice.reached, source, tls, connect_timeout_s, only_public)
        self._life = Life("the Bhumi sender")
        self._reported: dict[bytes, str] = {}
        self._turns: defaultdict[bytes, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._active: set[bytes] = set()
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Wait until no other program sends as this participant; raises HomeBusyError after 30 s."""
        self._life.open()
        busy = f"another program is sending as the identity in {self._state.home}; try again when it is done"
        await self._stack.enter_async_context(hold(self._state.home / "sender.lock", busy, _LOCK_TIMEOUT_S))
        self._stack.push_async_callback(self._deliveries.close)
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
        self._life.check()
        invite = decode_invite(token)
        peer, preimage = invite.identity, invite.preimage
        if peer == self._state.identity:
            raise LocalError("this is your own invite; give it to somebody else")
        async with self._turns[peer]:
            paired = self._state.inviter_of(preimage)
            if paired is not None:
                return paired
            pending = next((each for each in self._state.pending() if each.preimage == preimage), None)
            back = b""
            if pending is None:
                back = self._rng.randbytes(PREIMAGE_BYTES)
                request = HandshakeInit(self._state.identity, back, self._url)
                dialect = self._dialect_of(invite)
                root = b"" if invite.is_legacy else root_with(self._secrets, peer, invite.secret)
                payload = write_request(
                    *(dialect, self._secrets, peer, preimage, request, self._rng), secret=invite.secret
                )
                with _nothing_sent():
                    pending = self._state.begin_handshake(preimage, peer, payload, alias, back, root)
            ended = await self._deliver(pending, in_doubt=not back)
            self._finish_handshake(pending, ended, back)
            await self._top_up(peer)
        known = self._state.peer(peer)
        assert known is not None
        return known

    async def send(
        self, peer: PeerRecord | str | bytes, content: str | bytes, content_type: ContentType = ContentType.TEXT
    ) -> Reply:
        """Ask a peer, and return what became of it with the peer's answer.

        Args:
            peer: A record, an alias, an id52 or the 32 bytes of a key.
            content: Text (UTF-8) or bytes.
            content_type: How the peer shall read it; COMMAND wants the JSON of ``payloads.encode_command``.

        Raises:
            UnknownPeerError: No peer goes by that name.
            LocalError: The peer or content has a wrong type, or the content is larger than the relay takes, or has no
                words in this dialect.
            RelayUnreachableError: No relay was reached; nothing was delivered.
            NoPreimageError: No permission is left; nothing was attempted.
            HostError: The disk refuses to note the request; nothing was sent. An answer is returned whatever it says.
        """
        self._life.check()
        record = peer if isinstance(peer, PeerRecord) else self._state.find_peer(peer)
        if not isinstance(content, str | bytes):
            raise LocalError(f"a request is text or bytes, not {type(content).__name__}")
        raw = content.encode() if isinstance(content, str) else content
        message = DeviceMessage(content_type, raw, self._url)
        async with self._turns[record.identity]:
            with _nothing_sent():
                self._state.settle()
            if self._state.next_right(record.identity) is None:
                await self._recover(record.identity)
            if self._state.next_right(record.identity) is None:
                raise _no_right_left(record)
            try:
                reply = await self._exchange(record, message, self._timeouts)
            except ENDS as error:
                return failed(error)
            await self._top_up(record.identity)
        return reply

    async def command(self, peer: PeerRecord | str | bytes, cmd: str, args: object = None) -> object:
        """Send a command and return the ``data`` of its answer.

        Raises:
            AnswerError: The peer says that it failed.
            RemoteError: There is no answer; see ``send``.
        """
        reply = await self.send(peer, encode_command(Command(cmd, args)), ContentType.COMMAND)
        if reply.failure is not None:
            raise reply.failure
        return command_result(reply.content)

    async def recover(self) -> list[Recovered]:
        """Ask again, with the very same bytes, for the outcome of every request that has none.

        Raises:
            HostError: The disk refuses to note outcomes that are known already.
        """
        self._life.check()
        self._state.settle()
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

    async def _exchange(self, peer: PeerRecord, message: DeviceMessage, timeouts: Timeouts) -> Reply:
        """Send with the oldest preimage, and with the next one whenever one turns out to be gone."""
        began = time.monotonic()
        tries_count = 0
        in_doubt = False
        while (preimage := self._state.next_right(peer.identity)) is not None:
            dialect = self._dialect_for(peer)
            payload = write_request(
                *(dialect, self._secrets, peer.identity, preimage, message, self._rng), root=peer.root
            )
            pending = self._begin(peer, preimage, payload, in_doubt=in_doubt)
            try:
                ended = await self._deliver(pending, in_doubt=False, timeouts=timeouts)
            except LocalError:
                self._note(partial(self._state.give_back, preimage, peer.identity))
                raise
            tries_count += ended.tries_count
            in_doubt = in_doubt or ended.in_doubt
            if ended.verdict is Verdict.ANSWERED:
                reply = self._finish_message(pending, ended)
                return replace(reply, latency_s=time.monotonic() - began, tries_count=tries_count)
            if ended.verdict in {Verdict.OFFLINE, Verdict.UNREACHABLE}:  # it certainly did not arrive
                self._note(partial(self._state.give_back, preimage, peer.identity))
            if ended.verdict is not Verdict.SPENT:
                raise self._error_of(peer, ended, in_doubt=in_doubt)
            self._note(partial(self._state.finish, preimage, peer.identity, ()))
        if in_doubt:
            raise UncertainError(
                f"{peer.name} may have handled the request, but the answer is lost and no permission to send is left; "
                "ask them for a new invite"
            )
        raise _no_right_left(peer)

    def _begin(self, peer: PeerRecord, preimage: bytes, payload: bytes, *, in_doubt: bool) -> Pending:
        """Note a request before it leaves; raises HostError when the disk refuses, and UncertainError after a doubt."""
        try:
            with _nothing_sent():
                return self._state.begin_message(preimage, peer.identity, payload, peer.root)
        except HostError as error:
            if not in_doubt:
                raise
            raise UncertainError(f"{peer.name} may have handled the request before; now {error}") from error

    def _note(self, change: Callable[[], object]) -> None:
        """Note what has happened at the peer whatever our disk says; no request is sent before it is there."""
        with contextlib.suppress(HostError):
            self._state.change_later(change)

    async def _deliver(self, pending: Pending, *, in_doubt: bool, timeouts: Timeouts | None = None) -> Ended:
        """Try until the request has an outcome or time runs out."""
        self._active.add(pending.preimage)
        try:
            return await self._deliveries.deliver(pending, timeouts or self._timeouts, in_doubt=in_doubt)
        finally:
            self._active.discard(pending.preimage)

    def _dialect_of(self, invite: Invite) -> Dialect:
        """Return what to write a handshake in; raises LocalError when the invite is not for what was asked for."""
        named = self._dialect
        if invite.is_legacy:
            if named is not None and not named.is_legacy:
                raise LocalError(f"this token has no secret, which {named.value} needs; ask for a new invitation")
            known = self._state.peer(invite.identity)
            if named is None and known is not None and known.is_legacy:
                return known.dialect
            return named or Dialect.E2E
        assert invite.suite is not None
        if named is not None and named.is_legacy:
            raise LocalError(f"the invitation is for suite-{invite.suite}; {named.value} is weaker and not taken")
        return named or Dialect(f"suite-{invite.suite}")

    def _dialect_for(self, peer: PeerRecord) -> Dialect:
        """Return what to write a request in; raises LocalError when the peer was not paired for what was asked for."""
        named = self._dialect
        if named is None or named is peer.dialect:
            return peer.dialect
        if named.is_legacy and not peer.is_legacy:
            raise LocalError(f"{peer.name} was paired in {peer.dialect.value}, and takes nothing in {named.value}")
        if not named.is_legacy and not peer.root:
            raise LocalError(
                f"{peer.name} was paired without a secret, which {named.value} needs; ask for a new invite"
            )
        return named

    def _read_answer(self, pending: Pending, ended: Ended) -> tuple[Dialect, Answer]:
        """Return an answer and its dialect, which is that of the request's own bytes; raises AnswerError."""
        dialect = dialect_of(pending.preimage, pending.payload)
        if dialect is None:
            raise AnswerError("the request was written in a suite that is unknown here")
        answer = read_answer(
            *(dialect, self._secrets, pending.peer, pending.preimage, ended.answer),
            root=pending.root,
            request=pending.payload,
        )
        return dialect, answer

    def _finish_message(self, pending: Pending, ended: Ended) -> Reply:
        """Take over what the answer gives, and return the reply."""
        try:
            _, answer = self._read_answer(pending, ended)
            if not isinstance(answer, MessageResponse):
                raise AnswerError("the answer is one to a handshake")
        except AnswerError:
            self._note(partial(self._state.finish, pending.preimage, pending.peer, ()))
            raise
        gained = [] if answer.next_preimage == NO_PREIMAGE else [answer.next_preimage]
        self._note(partial(self._state.finish, pending.preimage, pending.peer, gained))
        with contextlib.suppress(HostError):
            self._note_url(pending.peer, answer.url)
        outcome = Outcome.FAILED if answer.status else Outcome.ANSWERED
        return Reply(outcome, answer.status, answer.content, ended.latency_s, ended.tries_count)

    def _note_url(self, peer: PublicKey, url: str) -> None:
        """Note where a peer says that it is, once for each new place."""
        if not url or self._reported.get(peer) == url:
            return
        self._reported[peer] = url
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
                    facts = HandshakeFacts(pending.alias, answer.url, dialect=dialect, root=pending.root)
                    try:
                        self._state.finish(preimage, peer, gained, facts)
                    except HostError as error:
                        sentence = (
                            f"the inviter has accepted, and it cannot be noted; accept the same token again: {error}"
                        )
                        raise HostError(sentence, exit_code=error.exit_code) from error
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
            reply = await self._exchange(record, message, _SPARES_TIMEOUTS)
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


@contextlib.contextmanager
def _nothing_sent() -> Iterator[None]:
    try:
        yield
    except HostError as error:
        raise HostError(f"nothing was sent: {error}", exit_code=error.exit_code) from error


def _no_right_left(peer: PeerRecord) -> NoPreimageError:
    return NoPreimageError(f"no permission to send to {peer.name} is left; ask them for a new invite")


def _spares_of(reply: Reply) -> list[bytes]:
    """Return the spare preimages of an answer; none when the peer does not know them or lists nonsense."""
    with contextlib.suppress(AnswerError, LookupError, TypeError, ValueError):
        spares = [bytes.fromhex(text) for text in command_result(reply.content)["spares"][:SPARES_WANTED]]
        if all(len(spare) == PREIMAGE_BYTES for spare in spares):
            return spares
    return []
