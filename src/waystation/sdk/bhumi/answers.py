"""Produces the answers of a Bhumi device: stored answers, answers still being computed, or new ones from its handler.

A request that is delivered twice is handled once and gets identical bytes, over any connection or relay. While the
handler runs, the repeated request waits for it; afterwards the last answer to each peer is in the database. An answer
and the preimages it grants (32-byte secrets that permit one request each) are on disk before it is sent (BHUMI-D).
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
from waystation.protocols.bhumi.payload.suites import SharedSecrets, suite_number_of
from waystation.sdk.bhumi.dialect import Answer, Dialect, command_content, dialect_of, read_request, write_answer
from waystation.sdk.bhumi.events import DeviceEvent, Handled, Handler, PeerJoined, Request, Trouble
from waystation.sdk.bhumi.state import BhumiState, Grant, HandshakeFacts

__all__ = ["SPARES_COMMAND", "SPARES_MAX", "Answers", "Done"]

SPARES_COMMAND: Final = "spares"
SPARES_MAX: Final = 8  # ours: half of what is kept per peer, bhumi_state.ISSUED_PER_PEER_MAX
UNKEPT_MAX: Final = 64  # answers of at most 64 KiB that the disk has refused; the oldest is computed anew
_DEFAULT_PAYLOAD_BYTES: Final = 65_536  # BHUMI-M, HELLO
_REASON_CHARS_MAX: Final = 256  # ours: an error must fit where its request did


class Done(NamedTuple):
    """An answer that is on disk, and what to report once it has left."""

    answer: bytes
    """Opaque payload of the ACK; empty when there is nothing to say."""
    event: DeviceEvent | None


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
        self._unkept: dict[bytes, MessageResponse] = {}
        """What the handler has said and the disk has refused, so that it is not asked twice."""
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
        preimage = delivered.preimage
        if preimage is None and self._dialect is not Dialect.NONE:
            preimage = self._state.find_by_hint(delivered.payload[:HINT_BYTES])
        if preimage is None:
            return Done(b"", Trouble("a request came without a preimage that we gave out"))
        stored = self._state.response_to(preimage)
        if stored is not None:
            return Done(stored, None)
        work = self._running.get(preimage)
        if work is not None:
            return Done((await asyncio.shield(work)).answer, None)
        work = asyncio.get_running_loop().create_task(self._work(preimage, delivered.payload))
        self._running[preimage] = work
        work.add_done_callback(lambda _: self._running.pop(preimage, None))
        return await asyncio.shield(work)

    async def _work(self, preimage: bytes, payload: bytes) -> Done:
        """Handle a request seen for the first time and return the answer, which is on disk by then."""
        grant = self._state.grant_of(preimage)
        if grant is None:
            return Done(b"", Trouble("a request came with a preimage that we did not give out, or that is spent"))
        dialect = self._dialect_of(preimage, payload)
        if dialect is None:
            self._state.withdraw(preimage)
            return Done(b"", Trouble(f"a request came in suite {suite_number_of(payload)}, which is unknown here"))
        request = read_request(dialect, self._secrets, grant.peer, preimage, payload)
        if grant.peer is None:
            return self._pair(dialect, grant, request)
        if not isinstance(request, DeviceMessage):
            refusal: Answer = HandshakeComplete(ResponseStatus.REFUSED)
            if not isinstance(request, HandshakeInit):
                refusal = self._failure("the request makes no sense", is_command=True)  # the right to send is renewed
            trouble = Trouble(f"{self._name_of(grant.peer)} sent something that makes no sense here")
            return Done(self._keep(dialect, grant.peer, preimage, refusal, None), trouble)
        return await self._respond(dialect, grant.peer, preimage, request)

    def _dialect_of(self, preimage: bytes, payload: bytes) -> Dialect | None:
        """Return in which dialect to read and answer a request; None for a suite that is unknown."""
        if self._dialect is not Dialect.E2E:
            return self._dialect
        spoken = dialect_of(preimage, payload)
        return self._dialect if spoken is Dialect.NONE else spoken

    def _pair(self, dialect: Dialect, grant: Grant, request: object) -> Done:
        """Answer a request that uses an invite."""
        if not isinstance(request, HandshakeInit) or request.sender == self._state.identity:
            self._state.withdraw(grant.preimage)
            return Done(b"", Trouble("an invite was used for something that is no handshake"))
        sender = request.sender
        admitted = self._admit is None or self._admit(sender, grant.alias)
        answer = HandshakeComplete(ResponseStatus.REFUSED)
        facts = None
        if admitted:
            answer = HandshakeComplete(ResponseStatus.OK, self._rng.randbytes(PREIMAGE_BYTES), self.relay)
            facts = HandshakeFacts(grant.alias, request.url, request.preimage, dialect)
        try:
            sealed = self._keep(dialect, sender, grant.preimage, answer, facts)
        except WeakKeyError as error:
            self._state.withdraw(grant.preimage)
            return Done(b"", Trouble(f"an invite was used with an identity that cannot be: {error}"))
        return Done(sealed, PeerJoined(sender, self._name_of(sender)) if admitted else None)

    async def _respond(self, dialect: Dialect, peer: PublicKey, preimage: bytes, message: DeviceMessage) -> Done:
        spares_count = _spares_asked(message)
        if spares_count:
            spares = [self._rng.randbytes(PREIMAGE_BYTES) for _ in range(spares_count)]
            data = {"spares": [spare.hex() for spare in spares]}
            content = encode_command_answer(CommandAnswer(ok=True, data=data))
            response = self._response(ResponseStatus.OK, content)
            return Done(self._keep(dialect, peer, preimage, response, None, spares), None)
        request = Request(peer, self._name_of(peer), message.content_type, message.content)
        response = self._unkept.get(preimage) or await self._call_handler(request)
        handled = Handled(request, response.status == ResponseStatus.OK)
        try:
            sealed = self._keep(dialect, peer, preimage, response, None)
        except HostError:
            self._unkept[preimage] = response
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
        content = (
            encode_command_answer(CommandAnswer(ok=False, error=reason[:_REASON_CHARS_MAX])) if is_command else b""
        )
        return self._response(ResponseStatus.REFUSED, content)

    def _response(self, status: ResponseStatus, content: bytes) -> MessageResponse:
        return MessageResponse(status, self._rng.randbytes(PREIMAGE_BYTES), content, self.relay)

    def _keep(
        self,
        dialect: Dialect,
        peer: PublicKey,
        preimage: bytes,
        answer: Answer,
        joined: HandshakeFacts | None,
        spares: Sequence[bytes] = (),
    ) -> bytes:
        """Seal an answer, record it with what it promises, and return its bytes."""
        sealed = write_answer(dialect, self._secrets, peer, preimage, answer, self._rng)
        given = answer.preimage if isinstance(answer, HandshakeComplete) else answer.next_preimage
        issued = [*spares] if given == NO_PREIMAGE else [given, *spares]
        self._state.answered(preimage, peer, sealed, issued, joined)
        return sealed

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


def _content_of(given: object, *, is_command: bool) -> bytes:
    """Return the content of an answer; raises TypeError when a handler has returned neither text nor bytes."""
    if isinstance(given, str):
        given = _encodable(given)
    elif not isinstance(given, bytes):
        raise TypeError(f"it returned {type(given).__name__}, not text or bytes")
    if is_command:
        return command_content(given)
    return given.encode() if isinstance(given, str) else given


def _encodable(text: str) -> str:
    """Return text without lone surrogates, which UTF-8 has no bytes for; each becomes a question mark."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


_ANSWER_OVERHEAD_BYTES: Final = 80 + 40  # envelope and MESSAGE_RESPONSE around the content
