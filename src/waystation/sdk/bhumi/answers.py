"""Produces the answers of a Bhumi device: stored answers, answers still being computed, or new ones from its handler.

A request that is delivered twice is handled once and gets identical bytes, over any connection or relay. While the
handler runs, the repeated request waits for it; afterwards the last answer to each peer is in the database. An answer
and the preimages it grants (32-byte secrets that permit one request each) are on disk before it is sent (BHUMI-D).

A request that cannot be opened, or is in a weaker form than its peer was paired in, reaches no handler and spends
nothing: whoever carries requests can make such ones at will. It gets an empty answer, and its preimage stays valid
(BHUMI-PAIR).
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.crypto.agreement import WeakKeyError
from waystation.protocols.bhumi.client.device import Delivered
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES
from waystation.protocols.bhumi.payload.contents import (
    NO_PREIMAGE,
    CommandAnswer,
    ContentType,
    DeviceMessage,
    HandshakeComplete,
    HandshakeInit,
    MalformedPayloadError,
    MessageResponse,
    ResponseStatus,
    decode_command,
    encode_command_answer,
)
from waystation.protocols.bhumi.payload.envelope import HINT_BYTES
from waystation.protocols.bhumi.payload.pairing import root_with
from waystation.protocols.bhumi.payload.suites import SharedSecrets, suite_number_of
from waystation.sdk.bhumi.dialect import (
    Answer,
    Dialect,
    Inquiry,
    command_content,
    dialect_of,
    read_request,
    write_answer,
)
from waystation.sdk.bhumi.events import Denied, DeviceEvent, Handled, Handler, PeerJoined, Request, Trouble
from waystation.sdk.bhumi.pairing.admission import Grant
from waystation.sdk.bhumi.state import BhumiState, HandshakeFacts

__all__ = ["KEPT_VALID_MAX", "SPARES_COMMAND", "SPARES_MAX", "Answers", "Done"]

SPARES_COMMAND: Final = "spares"
SPARES_MAX: Final = 8  # ours: half of what is kept per peer, bhumi_state.ISSUED_PER_PEER_MAX
KEPT_VALID_MAX: Final = 16
"""How often a preimage is registered again after a request that could not be opened; then only by the next I_AM."""
_KEPT_VALID_TABLE_MAX: Final = 4_096  # ours: as many as a relay keeps commits of
UNKEPT_MAX: Final = 64  # answers of at most 64 KiB that the disk has refused; the oldest is computed anew
_DEFAULT_PAYLOAD_BYTES: Final = 65_536  # BHUMI-M, HELLO
_REASON_CHARS_MAX: Final = 256  # ours: an error must fit where its request did


class Done(NamedTuple):
    """An answer that is on disk, and what to report once it has left."""

    answer: bytes
    """Opaque payload of the ACK; empty when there is nothing to say."""
    event: DeviceEvent | None
    again: bytes | None = None
    """A preimage to be registered again behind the ACK, because the request has not spent it."""


class _Asked(NamedTuple):
    """A request that could be opened."""

    grant: Grant
    dialect: Dialect
    payload: bytes
    request: Inquiry | None
    """None when it makes no sense."""
    root: bytes
    """What it is sealed with; empty in a legacy dialect."""


class Answers:
    """Turns deliveries into answers, once for each preimage."""

    def __init__(
        self,
        state: BhumiState,
        handler: Handler,
        dialect: Dialect,
        rng: random.Random,
        admit: Callable[[PublicKey, str], bool] | None,
        report: Callable[[DeviceEvent], None],
    ) -> None:
        """Describe what answers; the arguments are those of ``Device``."""
        self._state = state
        self._handler = handler
        self._dialect = dialect
        self._secrets = SharedSecrets(state.key_pair)
        self._rng = rng
        self._admit = admit
        self._report = report
        self._running: dict[bytes, asyncio.Task[Done]] = {}
        self._kept_valid: dict[bytes, int] = {}
        self._unkept: dict[bytes, tuple[_Asked, MessageResponse]] = {}
        """What the handler has said and the disk has refused, and to which request, so that it is not asked twice."""
        self.relay = ""
        """Where peers learn that we can be reached."""
        self.payload_bytes_max = _DEFAULT_PAYLOAD_BYTES
        """Largest opaque payload that the relay takes."""

    async def stop(self) -> None:
        """End all work; what has no answer yet will be asked again."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def answer_to(self, delivered: Delivered) -> Done:
        """Return the answer's bytes: stored ones, those of the work under way, or those of new work."""
        preimage = delivered.preimage or self._state.find_by_hint(delivered.payload[:HINT_BYTES])
        if preimage is None:
            return Done(b"", Trouble("a request came without a preimage that we gave out"))
        stored = self._state.response_to(preimage)
        if stored is not None:
            return Done(stored, None)
        work = self._running.get(preimage)
        if work is not None:
            return Done((await asyncio.shield(work)).answer, None)
        # Opened before anything waits: what cannot be opened must not be what a true request waits for.
        asked = self._open(preimage, delivered.payload)
        if isinstance(asked, Done):
            return asked
        work = asyncio.get_running_loop().create_task(self._work(asked))
        self._running[preimage] = work
        work.add_done_callback(lambda _: self._running.pop(preimage, None))
        return await asyncio.shield(work)

    def _open(self, preimage: bytes, payload: bytes) -> _Asked | Done:
        """Open a request that is not answered yet; what is not taken spends nothing."""
        grant = self._state.grant_of(preimage)
        if grant is None:
            return Done(b"", Trouble("a request came with a preimage that we did not give out, or that is spent"))
        if grant.is_expired:
            return Done(b"", Trouble("an invite was used after its end"))
        spoken = dialect_of(preimage, payload)
        if spoken is None:
            return self._not_taken(
                preimage, f"a request came in suite {suite_number_of(payload)}, which is unknown here"
            )
        dialect = self._read_as(spoken)
        weakest = self._weakest_of(grant)
        if dialect.strength < weakest.strength:
            return self._not_taken(
                preimage,
                f"a request in the name of {self._holder(grant)} came in {dialect.value}, weaker than {weakest.value}, "
                "and was not taken",
            )
        asked = self._read(dialect, grant, payload)
        if asked is None:
            return self._not_taken(preimage, f"a request in the name of {self._holder(grant)} could not be opened")
        return asked

    def _read(self, dialect: Dialect, grant: Grant, payload: bytes) -> _Asked | None:
        """Return what a request asks; None when it cannot be opened."""
        roots = [b""] if dialect.is_legacy or grant.peer is None else self._state.roots_of(grant.peer)
        for root in roots:
            try:
                request = read_request(
                    *(dialect, self._secrets, grant.peer, grant.preimage, payload), root=root, secret=grant.secret
                )
            except MalformedPayloadError:
                return _Asked(grant, dialect, payload, None, root)
            if request is not None:
                return _Asked(grant, dialect, payload, request, root or self._new_root(dialect, grant, request))
        return None

    def _new_root(self, dialect: Dialect, grant: Grant, request: Inquiry) -> bytes:
        """Return the root of a pairing that begins with this request; empty in a legacy dialect."""
        if dialect.is_legacy or not isinstance(request, HandshakeInit):
            return b""
        return root_with(self._secrets, request.sender, grant.secret)

    def _read_as(self, spoken: Dialect) -> Dialect:
        """Return in which dialect to read a request; the device's own dialect concerns legacy ones only."""
        if not spoken.is_legacy or (self._dialect is Dialect.E2E and spoken is not Dialect.NONE):
            return spoken
        return self._dialect

    def _weakest_of(self, grant: Grant) -> Dialect:
        """Return the weakest dialect that the holder of a grant may use: what it was paired in."""
        if grant.peer is None:
            return Dialect.SUITE_3 if grant.secret else Dialect.NONE
        return self._paired_in(grant.peer)

    def _paired_in(self, peer: bytes) -> Dialect:
        """Return what a peer was paired in; ``NONE`` for an unknown peer."""
        if self._state.roots_of(peer):
            return Dialect.SUITE_3
        known = self._state.peer(peer)
        return Dialect.NONE if known is None else known.dialect

    def _not_taken(self, preimage: bytes, reason: str) -> Done:
        """Leave a preimage valid; the relay has consumed its commit, so it is registered again, within a bound."""
        count = self._kept_valid.pop(preimage, 0)
        if len(self._kept_valid) >= _KEPT_VALID_TABLE_MAX:
            del self._kept_valid[next(iter(self._kept_valid))]
        self._kept_valid[preimage] = count + 1
        return Done(b"", Trouble(reason), preimage if count < KEPT_VALID_MAX else None)

    async def _work(self, asked: _Asked) -> Done:
        """Handle a request seen for the first time and return the answer, which is on disk by then."""
        if asked.grant.peer is None:
            return await self._pair(asked)
        if isinstance(asked.request, DeviceMessage):
            return await self._respond(asked, asked.grant.peer, asked.request)
        refusal: Answer = HandshakeComplete(ResponseStatus.REFUSED)
        if not isinstance(asked.request, HandshakeInit):
            refusal = self._failure("the request makes no sense", is_command=True)  # the right to send is renewed
        trouble = Trouble(f"{self._holder(asked.grant)} sent something that makes no sense here")
        return Done(await self._keep(asked, asked.grant.peer, refusal, None), trouble)

    async def _pair(self, asked: _Asked) -> Done:
        """Answer a request that uses an invite."""
        request, grant, dialect = asked.request, asked.grant, asked.dialect
        if not isinstance(request, HandshakeInit) or request.sender == self._state.identity:
            return self._not_taken(grant.preimage, "an invite was used for something that is no handshake")
        sender = request.sender
        if dialect.strength < self._paired_in(sender).strength:
            return self._not_taken(
                grant.preimage,
                f"a legacy invite was used in the name of {self._name_of(sender)}, who is paired in a stronger form",
            )
        is_blocked = self._state.is_blocked(sender)
        admitted = not is_blocked and (self._admit is None or self._admit(sender, grant.alias))
        answer = HandshakeComplete(ResponseStatus.REFUSED)
        facts = None
        if admitted:
            answer = HandshakeComplete(ResponseStatus.OK, self._rng.randbytes(PREIMAGE_BYTES), self.relay)
            facts = HandshakeFacts(grant.alias, request.url, request.preimage, dialect, asked.root, grant.allow)
        try:
            sealed = await self._keep(asked, sender, answer, facts)
        except WeakKeyError as error:
            return self._not_taken(grant.preimage, f"an invite was used with an identity that cannot be: {error}")
        if not admitted:
            blocked = Trouble(f"{self._name_of(sender)} is blocked, and has used an invite in vain")
            return Done(sealed, blocked if is_blocked else None)
        return Done(sealed, PeerJoined(sender, self._name_of(sender), is_legacy=dialect.is_legacy))

    async def _respond(self, asked: _Asked, peer: PublicKey, message: DeviceMessage) -> Done:
        spares_count = _spares_asked(message)
        if spares_count:
            spares = [self._rng.randbytes(PREIMAGE_BYTES) for _ in range(spares_count)]
            data = {"spares": [spare.hex() for spare in spares]}
            content = encode_command_answer(CommandAnswer(ok=True, data=data))
            response = self._response(ResponseStatus.OK, content)
            return Done(await self._keep(asked, peer, response, None, spares), None)
        is_legacy = asked.dialect.is_legacy
        request = Request(peer, self._name_of(peer), message.content_type, message.content, is_legacy=is_legacy)
        denial = _denial(self._state.allowed(peer), request)
        if denial is not None:
            response = self._failure(denial, is_command=request.content_type is ContentType.COMMAND)
            return Done(await self._keep(asked, peer, response, None), Denied(request, denial))
        preimage = asked.grant.preimage
        # An answer belongs to one request: a second one with this preimage gets the answer to the first.
        asked, response = self._unkept.get(preimage) or (asked, await self._call_handler(request))
        handled = Handled(request, response.status == ResponseStatus.OK)
        try:
            sealed = await self._keep(asked, peer, response, None)
        except HostError:
            self._unkept[preimage] = asked, response
            if len(self._unkept) > UNKEPT_MAX:
                del self._unkept[next(iter(self._unkept))]
            raise
        self._unkept.pop(preimage, None)
        return Done(sealed, handled)

    async def _call_handler(self, request: Request) -> MessageResponse:
        is_command = request.content_type is ContentType.COMMAND
        try:
            content = _content_of(await self._handler(request), is_command=is_command)
        except Exception as error:  # noqa: BLE001 - the application's code must not end the device; the peer gets an error
            self._report(Trouble(f"the handler failed: {error!r}"))
            return self._failure(_encodable(str(error)) or type(error).__name__, is_command=is_command)
        response = self._response(ResponseStatus.OK, content)
        room = self.payload_bytes_max - len(self.relay) - _ANSWER_OVERHEAD_BYTES
        if len(content) > room:
            self._report(Trouble(f"the answer has {len(content)} bytes, this relay takes {room}"))
            return self._failure("the answer is larger than the relay takes", is_command=is_command)
        return response

    def _failure(self, reason: str, *, is_command: bool) -> MessageResponse:
        """Return the refusal of a request: its reason is the content, in a command's form for a command."""
        cut = reason[:_REASON_CHARS_MAX]
        content = encode_command_answer(CommandAnswer(ok=False, error=cut)) if is_command else cut.encode()
        return self._response(ResponseStatus.REFUSED, content)

    def _response(self, status: ResponseStatus, content: bytes) -> MessageResponse:
        return MessageResponse(status, self._rng.randbytes(PREIMAGE_BYTES), content, self.relay)

    async def _keep(
        self,
        asked: _Asked,
        peer: PublicKey,
        answer: Answer,
        joined: HandshakeFacts | None,
        spares: Sequence[bytes] = (),
    ) -> bytes:
        """Seal an answer, record it with what it promises, and return its bytes."""
        preimage = asked.grant.preimage
        sealed = write_answer(
            *(asked.dialect, self._secrets, peer, preimage, answer, self._rng), root=asked.root, request=asked.payload
        )
        given = answer.preimage if isinstance(answer, HandshakeComplete) else answer.next_preimage
        issued = [*spares] if given == NO_PREIMAGE else [given, *spares]
        await self._state.unlocked()
        self._state.answered(preimage, peer, sealed, issued, joined)
        self._kept_valid.pop(preimage, None)
        return sealed

    def _holder(self, grant: Grant) -> str:
        """Return whose preimage a grant is, for people."""
        return f"the one invited as {grant.alias!r}" if grant.peer is None else self._name_of(grant.peer)

    def _name_of(self, peer: PublicKey) -> str:
        known = self._state.peer(peer)
        return known.name if known is not None else peer.hex()[:8]


def _spares_asked(message: DeviceMessage) -> int:
    """Return how many spare preimages a message asks for; 0 when it asks for something else."""
    if message.content_type is not ContentType.COMMAND:
        return 0
    try:
        command = decode_command(message.content)
    except MalformedPayloadError:
        return 0
    wanted = command.args.get("n") if isinstance(command.args, dict) else None
    if command.cmd != SPARES_COMMAND or not isinstance(wanted, int):
        return 0
    return max(0, min(wanted, SPARES_MAX))


def _denial(allowed: frozenset[str] | None, request: Request) -> str | None:
    """Return why a peer may not send a request, or None; a role permits what it names and nothing else."""
    if allowed is None:
        return None
    name = request.content_type.name.lower()
    if request.content_type is ContentType.COMMAND:
        try:
            name = request.command().cmd
        except MalformedPayloadError:
            return "this peer may send certain commands only, and this is none"
    return None if name in allowed else f"this peer may not send {name!r}"


def _content_of(given: object, *, is_command: bool) -> bytes:
    """Return the content of an answer.

    Raises:
        TypeError: A handler has returned neither text nor bytes, nor for a command what JSON can say.
    """
    if is_command:
        return command_content(given)
    if isinstance(given, str):
        return _encodable(given).encode()
    if not isinstance(given, bytes):
        raise TypeError(f"it returned {type(given).__name__}, not text or bytes")
    return given


def _encodable(text: str) -> str:
    """Return text without lone surrogates, which UTF-8 has no bytes for; each becomes a question mark."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


_ANSWER_OVERHEAD_BYTES: Final = 80 + 40  # envelope and MESSAGE_RESPONSE around the content
