"""Sends messages to tenants of one LPRP host: seals and splits them, does the demanded proof of work, and retries.

Programs open it for an identity's folder; ``LprpTenant`` sends through one. Payloads are sealed for the recipient,
since the host could read them. ``send`` returns what the host answered.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.crypto.agreement import SECRET_BYTES, WeakKeyError
from waystation.protocols.lprp.client.events import (
    HostAnswered,
    LeaseGranted,
    PacketArrived,
    RelayFinished,
    RequestOutcome,
    WhitelistAgreed,
)
from waystation.protocols.lprp.client.seen_packets import SeenPackets
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.messages import PAYLOAD_BYTES_MAX
from waystation.protocols.lprp.payload.fragments import MESSAGE_BYTES_MAX, MESSAGE_ID_BYTES, cut
from waystation.protocols.lprp.payload.sealing import ONE_TIME_PLAINTEXT_MAX, seal_once
from waystation.sdk.connection import now
from waystation.sdk.errors import LockedError
from waystation.sdk.life import Client, Life
from waystation.sdk.lprp.connection import ConnectionEvent, HostConnection, WorkEnded, Working
from waystation.sdk.lprp.delivery import Delivery
from waystation.sdk.lprp.host import HostUrl
from waystation.sdk.lprp.outcome import SendProgress, Sent
from waystation.sdk.lprp.solver import WorkPool
from waystation.sdk.lprp.state import LprpState
from waystation.sdk.store_news import StoreWatch

__all__ = ["LprpSender"]

LONG_AT_ONCE: Final = 8  # messages of several packets to one recipient: with more, their first packets block each other
DISK_AGAIN_S: Final = 1.0
"""How often a disk that refuses is tried."""
_NO_HOST: Final = "name the host once, as lprp://KEY@host:port; from then on it is the default of this folder"


class LprpSender(Client):
    """Sends from one folder's identity to the tenants of one host; use it in ``async with``.

    Any number of senders may use a folder at the same time, also beside the one tenant. While our disk refuses, it
    sends on; what must be kept waits in memory.
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
            works: Whether to do the work that a host demands.
            pool: Processes for that work; None means our own, ended with us.
            settings: Of the protocol; None means the defaults. What the host's address says goes before them.
            on_event: Gets ``Working``, ``WorkEnded``, ``HostUnreachable``, ``PacketDropped``, ``StoreFailed`` and what
                else happens.
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
        self._report = on_event if on_event is not None else lambda _event: None
        self._rng = rng if rng is not None else random.SystemRandom()
        self._clock = clock
        self._life = Life("the LPRP client")
        self._deliveries: set[Delivery] = set()
        self._turns: WeakValueDictionary[bytes, asyncio.Semaphore] = WeakValueDictionary()
        self._state: LprpState | None = None
        self._connection: HostConnection | None = None
        self._host: HostUrl | None = None
        self._disk = StoreWatch(self._report)
        self._trying: asyncio.Task[None] | None = None
        self._has_worked = False
        self._is_remembered = False

    # Life

    def reconnect(self) -> None:
        """Make a new socket now, as after a change of the network; what is under way goes on."""
        self._life.part(self._connection).reconnect()

    async def aclose(self) -> None:
        """Stop; what was not accepted by now may or may not be. Safe to call twice."""
        for delivery in tuple(self._deliveries):
            delivery.fail(HostError("the sender was closed"))
        if self._connection is not None:
            await self._connection.aclose()
            self._connection = None
        if self._trying is not None:
            self._trying.cancel()
            await asyncio.gather(self._trying, return_exceptions=True)
        if self._owns_pool:
            self._pool.close()
        if self._state is not None:
            await self._state.unlocked()
            self._end_state(self._state)
            self._state.close()
            self._state = None
        self._life.close()

    @property
    def public_key(self) -> PublicKey:
        """Who we are, 32 bytes; known inside ``async with``."""
        return PublicKey(self.state.identity)

    @property
    def host(self) -> HostUrl:
        """Whom we talk to; known inside ``async with``."""
        return self._life.part(self._host)

    @property
    def state(self) -> LprpState:
        """The folder; open inside ``async with``."""
        return self._life.part(self._state)

    @property
    def connection(self) -> HostConnection:
        """The way to the host; there inside ``async with``."""
        return self._life.part(self._connection)

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
            recipient: A tenant of the host: its public key, in any spelling that ``PublicKey.parse`` reads.
            content: Text or bytes, at most 65,536 of them; unsealed at most 364.
            seal: Encrypt to the recipient. Unsealed content is one packet, as it is, which everybody on the way reads.
            message_id: 16 bytes; give that of an earlier ``Sent`` to send the same content again without a second
                arrival. Other content under an old id never arrives. Sealed messages only.
            timeout_s: Give up after so long; None leaves it to the retransmissions, 79 s a packet with the defaults.
            on_progress: Called while work is done, and after each packet that was accepted.

        Raises:
            LocalError: The content is too long or of a wrong type, or something is no key.
            WeakKeyError: Nothing can be sealed for this key.
            HostError: The sender was closed.
        """
        self._life.check()
        key = PublicKey.parse(recipient)
        body = _bytes_of(content)
        if seal:
            chosen = self._rng.randbytes(MESSAGE_ID_BYTES) if message_id is None else message_id
            payloads = self._sealed(body, key, chosen)
        elif message_id is not None:
            raise LocalError("an unsealed message has no id that could be chosen: each time it is sent it is another")
        elif len(body) > PAYLOAD_BYTES_MAX:
            most = f"at most {PAYLOAD_BYTES_MAX} bytes, not {len(body)}"
            raise LocalError(f"an unsealed message is one packet of {most}")
        else:
            chosen, payloads = None, [body]
        delivery = Delivery(self.connection, key, payloads, chosen, on_progress)
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

    async def _open(self) -> None:
        await self._prepare()
        await self.connection.reach()

    def _seen(self, state: LprpState) -> SeenPackets | None:  # noqa: ARG002 - a sender leaves packets to the tenant
        """Return the packets that need no event any more."""
        return None

    async def _prepare(self) -> None:
        """Open the folder and make the connection, which is not open yet."""
        state = self._state = LprpState(self._home, clock=self._clock)
        await state.unlocked()
        if self._given is None:
            last = state.last_host()
            if last is None:
                raise LocalError(f"no host was named, and {self._home} has used none yet; {_NO_HOST}")
            self._host = HostUrl.parse(last)
        else:
            self._host = self._given  # remembered once it has answered
        self._settings = self._host.settings(self._settings)
        self._connection = HostConnection(
            state,
            self._host,
            self._settings,
            self._on_event,
            on_refused=self._refused,
            pool=self._pool,
            works=self._works,
            seen=self._seen(state),
            rng=self._rng,
        )

    def _end_state(self, state: LprpState) -> None:
        """Let a tenant of this folder know that the host may have taken our address for its own."""
        if self._has_worked:
            with contextlib.suppress(HostError):  # without it the tenant is found again with its next heartbeat
                state.change_later(state.nudge)

    # The disk

    def _note(self, change: Callable[[], object]) -> None:
        """Make durable what has happened, now or once the disk takes it."""
        try:
            self.state.change_later(change)
        except HostError as error:
            self._refused(error)

    def _refused(self, error: HostError) -> None:
        """Take a write that the disk has refused: it is tried until it takes what waits."""
        if self._trying is None or self._trying.done():
            self._trying = asyncio.get_running_loop().create_task(self._try_disk(error))

    async def _try_disk(self, error: HostError) -> None:
        if not isinstance(error, LockedError):
            self._disk.refused(error)
            await asyncio.sleep(DISK_AGAIN_S)
        while True:
            await self.state.unlocked()
            try:
                self._write_waiting()
            except HostError as again:
                self._disk.refused(again)
            else:
                self._disk.written()
                return
            await asyncio.sleep(DISK_AGAIN_S)

    def _write_waiting(self) -> None:
        """Write everything that waits for the disk; raises HostError."""
        self.state.try_write()

    # What happens

    def _on_event(self, event: ConnectionEvent) -> None:
        if isinstance(event, RelayFinished | Working | WorkEnded):
            self._has_worked = self._has_worked or not isinstance(event, RelayFinished)
            for delivery in tuple(self._deliveries):
                delivery.take(event)
        elif isinstance(event, PacketArrived):
            self._on_packet(event)
            return
        if not self._is_remembered and _is_answer(event):
            self._is_remembered = True
            self._note(partial(self.state.remember_host, str(self.host)))
        if not isinstance(event, RelayFinished):
            self._report(event)

    def _on_packet(self, event: PacketArrived) -> None:
        """Leave a packet to the tenant of this folder: the host sends it again."""
        self.connection.machine.hand_back(event.packet.signature, now())


def _is_answer(event: ConnectionEvent) -> bool:
    """Return whether an event can only be one of a host that has the key its address says."""
    if isinstance(event, RelayFinished):
        return event.outcome in (RequestOutcome.ACCEPTED, RequestOutcome.REFUSED, RequestOutcome.WORK_FAILED)
    return isinstance(event, HostAnswered | LeaseGranted | WhitelistAgreed | Working)


def _bytes_of(content: str | bytes) -> bytes:
    if not isinstance(content, str | bytes):
        raise LocalError(f"a message is text or bytes, not {type(content).__name__}")
    try:
        return content.encode() if isinstance(content, str) else content
    except UnicodeEncodeError as error:
        raise LocalError(f"this is no text that can be written as UTF-8 ({error.reason}); send it as bytes") from error
