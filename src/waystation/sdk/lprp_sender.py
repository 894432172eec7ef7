"""Leaving messages at a host for its tenants: sealed, cut and sent again as needed, with work where it is demanded."""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self
from weakref import WeakValueDictionary

from waystation.core.errors import HostError, LocalError
from waystation.crypto.agreement import SECRET_BYTES, WeakKeyError
from waystation.protocols.lprp.client_events import (
    HostHeard,
    LeaseGranted,
    PacketArrived,
    RelayFinished,
    RequestOutcome,
    WhitelistAgreed,
)
from waystation.protocols.lprp.client_settings import ClientSettings
from waystation.protocols.lprp.fragments import MESSAGE_BYTES_MAX, MESSAGE_ID_BYTES, cut
from waystation.protocols.lprp.messages import PAYLOAD_BYTES_MAX
from waystation.protocols.lprp.sealing import ONE_TIME_PLAINTEXT_MAX, seal_once
from waystation.protocols.lprp.seen_packets import SeenPackets
from waystation.sdk.link import now
from waystation.sdk.lprp_delivery import Delivery
from waystation.sdk.lprp_host import HostUrl, parse_key
from waystation.sdk.lprp_line import Line, LineEvent, WorkEnded, Working
from waystation.sdk.lprp_outcome import SendProgress, Sent
from waystation.sdk.lprp_solver import WorkPool
from waystation.sdk.lprp_state import LprpState

__all__ = ["LprpSender"]

LONG_AT_ONCE: Final = 8  # messages of several packets to one recipient: with more, their first packets block each other
_NO_HOST: Final = "name the host once, as lprp://KEY@host:port; from then on it is the default of this folder"


class LprpSender:
    """Sends from one folder's identity to the tenants of one host; use it in ``async with``.

    Any number of senders may use a folder at the same time, also beside the one tenant.
    """

    def __init__(
        self,
        home: Path | str,
        host: HostUrl | str | None = None,
        *,
        works: bool = True,
        pool: WorkPool | None = None,
        settings: ClientSettings | None = None,
        on_event: Callable[[object], None] | None = None,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Describe a sender.

        Args:
            home: Folder of the identity, made if absent.
            host: ``lprp://KEY@host:port``; None means the host that this folder used last.
            works: Whether to do the work that a host demands of strangers.
            pool: Processes for that work; None means our own, ended with us.
            settings: Of the protocol; None means the defaults. What the host's address says goes before them.
            on_event: Gets ``Working``, ``WorkEnded``, ``HostUnreachable``, ``PacketDropped`` and what else happens.
            rng: Source of keys, ids and padding; anything but the default is for tests.
            clock: Unix seconds.

        Raises:
            LocalError: ``host`` is no such address.
        """
        self._home = Path(home)
        self._given = HostUrl.parse(host) if isinstance(host, str) else host
        self._works = works
        self._owns_pool = pool is None
        self._pool = WorkPool() if pool is None else pool
        self._settings = ClientSettings() if settings is None else settings
        self._tell = on_event if on_event is not None else lambda _event: None
        self._rng = rng if rng is not None else random.SystemRandom()
        self._clock = clock
        self._deliveries: set[Delivery] = set()
        self._turns: WeakValueDictionary[bytes, asyncio.Semaphore] = WeakValueDictionary()
        self._state: LprpState | None = None
        self._line: Line | None = None
        self._host: HostUrl | None = None
        self._has_worked = False
        self._is_remembered = False

    # Life

    async def __aenter__(self) -> Self:
        try:
            self._prepare(None)
            await self.line.open()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop; what was not accepted by now may or may not be. Safe to call twice."""
        for delivery in tuple(self._deliveries):
            delivery.fail(HostError("the sender was closed"))
        if self._line is not None:
            await self._line.aclose()
            self._line = None
        if self._owns_pool:
            self._pool.close()
        if self._state is not None:
            self._end_state(self._state)
            self._state.close()
            self._state = None

    @property
    def public_key(self) -> bytes:
        """Who we are, 32 bytes; known inside ``async with``."""
        return self.state.identity

    @property
    def host(self) -> HostUrl:
        """Whom we talk to; known inside ``async with``."""
        assert self._host is not None, "not open"
        return self._host

    @property
    def state(self) -> LprpState:
        """The folder; open inside ``async with``."""
        assert self._state is not None, "not open"
        return self._state

    @property
    def line(self) -> Line:
        """The way to the host; there inside ``async with``."""
        assert self._line is not None, "not open"
        return self._line

    # Sending

    async def send(
        self,
        recipient: str | bytes,
        content: str | bytes,
        *,
        seal: bool = True,
        message_id: bytes | None = None,
        timeout_s: float | None = None,
        on_progress: Callable[[SendProgress], None] | None = None,
    ) -> Sent:
        """Leave a message at the host and return what became of it; cancelling it stops the work as well.

        Args:
            recipient: A tenant of the host: its public key as 32 bytes, 64 hexadecimal digits, or an id52.
            content: Text or bytes, at most 65,536 of them; unsealed at most 364.
            seal: Encrypt to the recipient. Unsealed content is one packet, as it is, which everybody on the way reads.
            message_id: 16 bytes; give that of an earlier ``Sent`` to send the same content again without a second
                arrival. Other content under an old id never arrives. Sealed messages only.
            timeout_s: Give up after so long; None leaves it to the retransmissions, 79 s a packet with the defaults.
            on_progress: Called while work is done, and after each packet that was accepted.

        Raises:
            LocalError: The content is too long, or something is no key.
            WeakKeyError: Nothing can be sealed for this key.
            HostError: The disk says no, or the sender was closed.
        """
        key = parse_key(recipient)
        body = _bytes_of(content)
        if seal:
            chosen = self._rng.randbytes(MESSAGE_ID_BYTES) if message_id is None else message_id
            payloads = self._sealed(body, key, chosen)
        elif message_id is None:
            chosen, payloads = None, [_unsealed(body)]
        else:
            raise LocalError("an unsealed message has no id that could be chosen: each time it is sent it is another")
        delivery = Delivery(self.line, key, payloads, chosen, on_progress)
        self._deliveries.add(delivery)
        try:
            async with asyncio.timeout(timeout_s), self._turn(key, len(payloads)):
                return await delivery.run()
        except TimeoutError:
            return delivery.timed_out()
        finally:
            self._deliveries.discard(delivery)

    def _turn(self, recipient: bytes, packets_count: int) -> contextlib.AbstractAsyncContextManager[None]:
        """Return what a message to a recipient waits in until few others of several packets are on their way."""
        if packets_count == 1:
            return contextlib.nullcontext()
        return self._turns.setdefault(recipient, asyncio.Semaphore(LONG_AT_ONCE))

    def _sealed(self, body: bytes, key: bytes, message_id: bytes) -> list[bytes]:
        if len(message_id) != MESSAGE_ID_BYTES:
            raise LocalError(f"a message id has {MESSAGE_ID_BYTES} bytes, this has {len(message_id)}")
        if len(body) > MESSAGE_BYTES_MAX:
            raise LocalError(f"a message has at most {MESSAGE_BYTES_MAX} bytes, this has {len(body)}")
        own = self.state.identity
        try:
            return [
                seal_once(part, own, key, ephemeral_secret=self._rng.randbytes(SECRET_BYTES))
                for part in cut(body, ONE_TIME_PLAINTEXT_MAX, message_id)
            ]
        except WeakKeyError as error:
            raise LocalError(f"{key.hex()} is no key that anything can be sealed for; is it complete?") from error

    # For this class and those above it

    def _prepare(self, seen_of: "Callable[[LprpState], SeenPackets] | None") -> None:
        """Open the folder and make the line, which is not open yet."""
        state = self._state = LprpState(self._home, clock=self._clock)
        if self._given is None:
            last = state.last_host()
            if last is None:
                raise LocalError(f"no host was named, and {self._home} has used none yet; {_NO_HOST}")
            self._host = HostUrl.parse(last)
        else:
            self._host = self._given
            if state.last_host() is None:
                state.remember_host(str(self._given))
        self._settings = self._host.settings(self._settings)
        self._line = Line(
            state,
            self._host,
            self._settings,
            self._on_event,
            pool=self._pool,
            works=self._works,
            seen=None if seen_of is None else seen_of(state),
            rng=self._rng,
        )

    def _end_state(self, state: LprpState) -> None:
        """Tell a tenant of this folder that the host may have taken our address for its own."""
        if self._has_worked:
            state.nudge()

    def _on_event(self, event: LineEvent) -> None:
        if isinstance(event, RelayFinished | Working | WorkEnded):
            self._has_worked = self._has_worked or not isinstance(event, RelayFinished)
            for delivery in tuple(self._deliveries):
                delivery.take(event)
        elif isinstance(event, HostError):
            for delivery in tuple(self._deliveries):
                delivery.fail(event)
        elif isinstance(event, PacketArrived):
            self._on_packet(event)
            return
        if not self._is_remembered and _is_answer(event):
            self._is_remembered = True
            self.state.remember_host(str(self.host))
        if not isinstance(event, RelayFinished):
            self._tell(event)

    def _on_packet(self, event: PacketArrived) -> None:
        """Leave a packet to the tenant of this folder: the host sends it again."""
        self.line.machine.hand_back(event.packet.signature, now())


def _is_answer(event: LineEvent) -> bool:
    """Return whether an event can only be one of a host that has the key its address says."""
    if isinstance(event, RelayFinished):
        return event.outcome in (RequestOutcome.ACCEPTED, RequestOutcome.REFUSED)
    return isinstance(event, HostHeard | LeaseGranted | WhitelistAgreed | Working)


def _bytes_of(content: str | bytes) -> bytes:
    try:
        return content.encode() if isinstance(content, str) else bytes(content)
    except UnicodeEncodeError as error:
        raise LocalError(f"this is no text that can be written as UTF-8 ({error.reason}); send it as bytes") from error


def _unsealed(body: bytes) -> bytes:
    if len(body) > PAYLOAD_BYTES_MAX:
        raise LocalError(f"an unsealed message is one packet of at most {PAYLOAD_BYTES_MAX} bytes, not {len(body)}")
    return body
