"""A Bhumi device: connected for as long as it can be, answering what its peers ask.

An answer is persisted before anything leaves; then the commits of the preimages it gives out go to the relay, then the
answer itself (BHUMI-D). A request that is delivered twice gets the same bytes and is handled once: from memory
while the handler works, from the state afterwards. An answer that is ready after its connection ended is
carried to the next one as a recent response (6.6).
"""

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.crypto.agreement import WeakKeyError
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.client_base import Greeted, Unsent, commit_of
from waystation.protocols.bhumi.device_client import Delivered, DeviceClient, Registered
from waystation.protocols.bhumi.envelope import HINT_BYTES
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES
from waystation.protocols.bhumi.payloads import (
    NO_PREIMAGE,
    Command,
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
from waystation.protocols.bhumi.suites import SharedSecrets, suite_number_of
from waystation.sdk.bhumi_dialect import Answer, Dialect, command_content, dialect_of, read_request, write_answer
from waystation.sdk.bhumi_retry import Backoff
from waystation.sdk.bhumi_state import BhumiState, Grant, HandshakeFacts
from waystation.sdk.home_lock import hold
from waystation.sdk.link import Link, no_greeting
from waystation.transport.dial import RelayUrl

__all__ = [
    "SPARES_COMMAND",
    "SPARES_MAX",
    "Device",
    "DeviceEvent",
    "Disconnected",
    "Handled",
    "Handler",
    "Listening",
    "PeerJoined",
    "Request",
    "Trouble",
]

SPARES_COMMAND: Final = "spares"
SPARES_MAX: Final = 8  # ours: half of what is kept per peer, bhumi_state.ISSUED_PER_PEER_MAX
_CONNECT_TIMEOUT_S: Final = 10.0
_LOCK_TIMEOUT_S: Final = 0.2  # a listener that is just ending
_DEFAULT_PAYLOAD_BYTES: Final = 65_536  # BHUMI-M, HELLO
_REASON_CHARS_MAX: Final = 256  # ours: an error must fit where its request did


@dataclass(frozen=True, slots=True)
class Request:
    """What a peer asks."""

    peer: PublicKey
    """32-byte key."""
    alias: str
    """How we call the peer; its id52's beginning when it has no alias."""
    content_type: ContentType
    content: bytes

    @property
    def text(self) -> str:
        """The content as text; bytes that are no UTF-8 are replaced."""
        return self.content.decode("utf-8", errors="replace")

    def command(self) -> Command:
        """Return the content as a command; raises MalformedPayloadError when it is none."""
        return decode_command(self.content)


Handler = Callable[[Request], Awaitable[bytes | str]]


@dataclass(frozen=True, slots=True)
class Listening:
    """The relay has taken our registration."""

    relay: str
    confirmed: bool
    """False when this rests on the relay's silence, as with the original relay."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection ended, or could not be made."""

    relay: str
    reason: str
    retry_s: float
    """Seconds until the next try."""


@dataclass(frozen=True, slots=True)
class PeerJoined:
    """Somebody used an invite."""

    peer: PublicKey
    alias: str


@dataclass(frozen=True, slots=True)
class Handled:
    """A request was answered for the first time; the ACK has left if the connection stands."""

    request: Request
    ok: bool
    """False when the handler raised."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something could not be answered."""

    reason: str


DeviceEvent = Listening | Disconnected | PeerJoined | Handled | Trouble


class _Done(NamedTuple):
    """An answer that is on disk, and what to tell about it once it has left."""

    answer: bytes
    event: DeviceEvent | None


@dataclass(slots=True, eq=False)
class _Connection:
    link: Link
    machine: DeviceClient
    registered: set[bytes] = field(default_factory=set)
    """Preimages whose commits this connection has told the relay since its last I_AM, dead ones included."""
    greeted: bool = False


class Device:
    """Keeps one identity reachable; run it with ``run`` until cancelled."""

    def __init__(
        self,
        state: BhumiState,
        relays: str | Sequence[str],
        handler: Handler,
        *,
        tls: ssl.SSLContext | None = None,
        dialect: Dialect = Dialect.E2E,
        original_relay: bool = False,
        admit: Callable[[PublicKey, str], bool] | None = None,
        on_event: Callable[[DeviceEvent], None] | None = None,
        rng: random.Random | None = None,
        backoff: Backoff | None = None,
        poll_s: float = 0.5,
    ) -> None:
        """Describe a device.

        Args:
            state: Its folder.
            relays: Address or addresses; the next one is taken when one fails.
            handler: Answers requests; several may run at once. When it raises, the peer gets an error.
            tls: Context for ``tls://`` addresses; None trusts the system's authorities.
            dialect: What the peers speak; bhumi-v1 understands the suites, too, and a suite insists on itself.
            original_relay: The relay is the original one, which puts the preimage into every DELIVER unasked.
            admit: Asked with key and alias of whoever uses an invite; None admits everybody.
            on_event: Told what happens.
            rng: Source of secrets; the system's by default.
            backoff: Delays between connections; half a second up to 30 s by default.
            poll_s: How soon an invite made by another program can be used.

        Raises:
            LocalError: An address cannot be read.
        """
        self._state = state
        self._relays = [RelayUrl.parse(text) for text in ([relays] if isinstance(relays, str) else relays)]
        self._handler = handler
        self._tls = tls
        self._dialect = dialect
        self._secrets = SharedSecrets(state.key_pair)
        self._original_relay = original_relay
        self._admit = admit
        self._on_event = on_event or _ignore
        self._rng = rng or random.SystemRandom()
        self._backoff = backoff or Backoff(self._rng, first_s=0.5, cap_s=30.0)
        self._poll_s = poll_s
        self._connection: _Connection | None = None
        self._relay = ""
        self._payload_bytes_max = _DEFAULT_PAYLOAD_BYTES
        self._changes = (0, 0)
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[bytes, asyncio.Task[_Done]] = {}

    async def run(self) -> None:
        """Listen and answer, reconnecting for ever.

        Raises:
            HomeBusyError: Another program listens for this identity.
        """
        busy = f"another program listens for the identity in {self._state.home}; stop it first"
        async with hold(self._state.home / "device.lock", busy, _LOCK_TIMEOUT_S):
            try:
                turn = 0
                while True:
                    relay = self._relays[turn % len(self._relays)]
                    reason = await self._stay_connected(relay)
                    retry_s = self._backoff.next_s()
                    self._on_event(Disconnected(str(relay), reason, retry_s))
                    await asyncio.sleep(retry_s)
                    turn += 1
            finally:
                await self._stop()

    async def _stop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.link.close()
            await connection.link.wait_closed()
        tasks = [*self._tasks, *self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _stay_connected(self, relay: RelayUrl) -> str:
        """Connect, serve until the connection ends, and return why it did."""
        preimages = self._state.preimages()
        machine = DeviceClient(
            self._state.key_pair,
            [commit_of(preimage) for preimage in preimages],
            self._state.recent_responses(),
            always_preimage=self._original_relay,
        )
        link = Link(machine, lambda event: self._on_machine_event(connection, event))
        connection = _Connection(link, machine, set(preimages))
        self._relay = str(relay)
        try:
            await link.open(relay, self._tls, _CONNECT_TIMEOUT_S)
        except HostError as error:
            return str(error)
        self._connection = connection
        while not link.ended.done():
            await asyncio.wait([link.ended], timeout=self._poll_s)
            if self._state.changes() != self._changes:
                self._register_new(connection)
                link.flush()
        self._connection = None
        await link.wait_closed()
        reason = link.ended.result()
        return reason if connection.greeted else no_greeting(relay, reason)

    def _register_new(self, connection: _Connection) -> None:
        """Tell the relay about every preimage that it does not know yet; sweep the dead ones when its room ends."""
        self._changes = self._state.changes()
        preimages = self._state.preimages()
        new = [preimage for preimage in preimages if preimage not in connection.registered]
        if not new:
            return
        if len(connection.registered) + len(new) > wire.COMMITS_MAX:
            self._refresh(connection, preimages)
            return
        connection.registered.update(new)
        connection.machine.add_commits(commit_of(preimage) for preimage in new)

    def _refresh(self, connection: _Connection, preimages: Sequence[bytes]) -> None:
        """Replace what the relay knows by what is valid now: commits can be withdrawn in no other way (BHUMI-8)."""
        connection.registered = set(preimages)
        connection.machine.replace([commit_of(each) for each in preimages], self._state.recent_responses())

    def _on_machine_event(self, connection: _Connection, event: Any) -> None:
        if isinstance(event, Greeted):
            connection.greeted = True
            self._payload_bytes_max = event.max_payload_bytes
        elif isinstance(event, Registered):
            self._backoff.reset()
            self._on_event(Listening(self._relay, event.confirmed))
        elif isinstance(event, Delivered):
            task = asyncio.get_running_loop().create_task(self._handle(connection, event))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _handle(self, connection: _Connection, delivered: Delivered) -> None:
        event: DeviceEvent | None
        try:
            answer, event = await self._answer_to(delivered)
            self._acknowledge(connection, delivered.message_id, answer)
        except HostError as error:  # without the promise on disk there is no answer: the sender sees a timeout
            event = Trouble(str(error))
        except Exception as error:  # noqa: BLE001 - a task that nobody awaits must not end unseen; the peer is told
            connection.machine.answer(delivered.message_id, b"")
            connection.link.flush()
            event = Trouble(f"a request could not be answered: {error!r}")
        if event is not None:
            self._on_event(event)

    async def _answer_to(self, delivered: Delivered) -> _Done:
        """Return the answer's bytes: stored ones, those of the work under way, or those of new work."""
        preimage = delivered.preimage
        if preimage is None and self._dialect is not Dialect.NONE:
            preimage = self._state.find_by_hint(delivered.payload[:HINT_BYTES])
        if preimage is None:
            return _Done(b"", Trouble("a request came without a preimage that we gave out"))
        stored = self._state.response_to(preimage)
        if stored is not None:
            return _Done(stored, None)
        work = self._running.get(preimage)
        if work is not None:
            return _Done((await asyncio.shield(work)).answer, None)
        work = asyncio.get_running_loop().create_task(self._work(preimage, delivered.payload))
        self._running[preimage] = work
        work.add_done_callback(lambda _: self._running.pop(preimage, None))
        return await asyncio.shield(work)

    def _acknowledge(self, connection: _Connection, message_id: int, answer: bytes) -> None:
        """Send new commits, then the ACK, in one write; hand the answer to the next connection if this one is over."""
        if connection.machine.is_open:
            self._register_new(connection)
            unsent = connection.machine.answer(message_id, answer)
            if unsent is Unsent.TOO_LARGE:  # stored when another relay took more: no retry could ever get it
                connection.machine.answer(message_id, b"")
            connection.link.flush()
            if unsent is not None:
                self._on_event(Trouble(f"an answer could not leave: {unsent.value}"))
            return
        current = self._connection
        if current is not None and current.machine.is_open:
            self._refresh(current, self._state.preimages())
            current.link.flush()

    async def _work(self, preimage: bytes, payload: bytes) -> _Done:
        """Handle a request seen for the first time and return the answer, which is on disk by then."""
        grant = self._state.grant_of(preimage)
        if grant is None:
            return _Done(b"", Trouble("a request came with a preimage that we did not give out, or that is spent"))
        dialect = self._dialect_of(preimage, payload)
        if dialect is None:
            self._state.withdraw(preimage)
            return _Done(b"", Trouble(f"a request came in suite {suite_number_of(payload)}, which is unknown here"))
        request = read_request(dialect, self._secrets, grant.peer, preimage, payload)
        if grant.peer is None:
            return self._welcome(dialect, grant, request)
        if not isinstance(request, DeviceMessage):
            trouble = Trouble(f"{self._name_of(grant.peer)} sent something that makes no sense here")
            return _Done(self._keep(dialect, grant.peer, preimage, self._refusal(request), None), trouble)
        return await self._respond(dialect, grant.peer, preimage, request)

    def _dialect_of(self, preimage: bytes, payload: bytes) -> Dialect | None:
        """Return in which dialect to read and answer a request; None for a suite that is unknown."""
        if self._dialect is not Dialect.E2E:
            return self._dialect
        spoken = dialect_of(preimage, payload)
        return self._dialect if spoken is Dialect.NONE else spoken

    def _welcome(self, dialect: Dialect, grant: Grant, request: object) -> _Done:
        """Answer whoever uses an invite."""
        if not isinstance(request, HandshakeInit) or request.sender == self._state.identity:
            self._state.withdraw(grant.preimage)
            return _Done(b"", Trouble("an invite was used for something that is no handshake"))
        sender = request.sender
        admitted = self._admit is None or self._admit(sender, grant.alias)
        answer = HandshakeComplete(ResponseStatus.REFUSED)
        facts = None
        if admitted:
            answer = HandshakeComplete(ResponseStatus.OK, self._rng.randbytes(PREIMAGE_BYTES), self._relay)
            facts = HandshakeFacts(grant.alias, request.url, request.preimage, dialect)
        try:
            sealed = self._keep(dialect, sender, grant.preimage, answer, facts)
        except WeakKeyError as error:
            self._state.withdraw(grant.preimage)
            return _Done(b"", Trouble(f"an invite was used with an identity that cannot be: {error}"))
        return _Done(sealed, PeerJoined(sender, self._name_of(sender)) if admitted else None)

    async def _respond(self, dialect: Dialect, peer: PublicKey, preimage: bytes, message: DeviceMessage) -> _Done:
        spares_count = _spares_asked(message)
        if spares_count:
            spares = [self._rng.randbytes(PREIMAGE_BYTES) for _ in range(spares_count)]
            data = {"spares": [spare.hex() for spare in spares]}
            content = encode_command_answer(CommandAnswer(ok=True, data=data))
            response = self._response(ResponseStatus.OK, content)
            return _Done(self._keep(dialect, peer, preimage, response, None, spares), None)
        request = Request(peer, self._name_of(peer), message.content_type, message.content)
        response = await self._call_handler(request)
        handled = Handled(request, response.status == ResponseStatus.OK)
        return _Done(self._keep(dialect, peer, preimage, response, None), handled)

    async def _call_handler(self, request: Request) -> MessageResponse:
        is_command = request.content_type is ContentType.COMMAND
        try:
            content = _content_of(await self._handler(request), is_command=is_command)
        except Exception as error:  # noqa: BLE001 - somebody else's code must not end the device; the peer is told
            self._on_event(Trouble(f"the handler failed: {error!r}"))
            return self._failure(_encodable(str(error)) or type(error).__name__, is_command=is_command)
        response = self._response(ResponseStatus.OK, content)
        room = self._payload_bytes_max - len(self._relay) - _ANSWER_OVERHEAD_BYTES
        if len(content) > room:
            self._on_event(Trouble(f"the answer has {len(content)} bytes, this relay takes {room}"))
            return self._failure("the answer is larger than the relay takes", is_command=is_command)
        return response

    def _failure(self, reason: str, *, is_command: bool) -> MessageResponse:
        content = (
            encode_command_answer(CommandAnswer(ok=False, error=reason[:_REASON_CHARS_MAX])) if is_command else b""
        )
        return self._response(ResponseStatus.REFUSED, content)

    def _response(self, status: ResponseStatus, content: bytes) -> MessageResponse:
        return MessageResponse(status, self._rng.randbytes(PREIMAGE_BYTES), content, self._relay)

    def _refusal(self, request: object) -> Answer:
        """Return the answer to something that a known peer should not have sent; its right to send is renewed."""
        if isinstance(request, HandshakeInit):
            return HandshakeComplete(ResponseStatus.REFUSED)
        return self._failure("the request makes no sense", is_command=True)

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


def _ignore(event: DeviceEvent) -> None:
    """Do nothing; for devices nobody watches."""


_ANSWER_OVERHEAD_BYTES: Final = 80 + 40  # envelope and MESSAGE_RESPONSE around the content
