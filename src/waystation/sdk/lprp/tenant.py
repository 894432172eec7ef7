"""An LPRP tenant: a client with a lease at one host, a crash-safe inbox, and a whitelist of senders.

A message is never lost if the host has accepted all its packets and the tenant reconnects before its lease ends. Then
``messages`` delivers it, again after every restart, until the program calls ``done``; after that never again. A crash
just before ``done`` delivers it twice, with the same ``id``. The order of messages is not guaranteed.

A disk that refuses writes ends nothing. What arrives is not confirmed until it is on the disk, leases hold in memory,
and all of it is written once the disk takes writes again (``StoreFailed``, ``StoreRecovered``).
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from waystation.core.errors import HostError
from waystation.core.ids import PublicKey
from waystation.protocols.lprp.client.events import (
    HostAnswered,
    LeaseGranted,
    LeaseRefused,
    PacketArrived,
    RequestOutcome,
    WhitelistAgreed,
    WhitelistDiffers,
    WhitelistFailed,
)
from waystation.protocols.lprp.client.seen_packets import SeenPackets
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.sdk.connection import now
from waystation.sdk.errors import LeaseRefusedError, RelayUnreachableError, WhitelistFailedError
from waystation.sdk.home_lock import hold
from waystation.sdk.life import Reading
from waystation.sdk.lprp.connection import ConnectionEvent
from waystation.sdk.lprp.host import HostUrl
from waystation.sdk.lprp.inbox import Inbox
from waystation.sdk.lprp.mail import Mail
from waystation.sdk.lprp.message import Message
from waystation.sdk.lprp.sender import LprpSender
from waystation.sdk.lprp.solver import WorkPool
from waystation.sdk.lprp.state import Lease, LprpState
from waystation.sdk.private_database import private_folder
from waystation.transport.silence import SILENCE_S, SilencePolicy

__all__ = ["LprpTenant", "TenantStatus"]

LOOK_S: Final = 0.5  # how often what other programs of this folder have written is looked for
TIDY_S: Final = 3_600.0
ANSWER_S: Final = 10.0  # a host that answers at all does so within a retransmission or two
LOCK_FILE: Final = "lprp.lock"
_BUSY_WAIT_S: Final = 1.0  # a program that is just ending
_WHITELIST_WAITS: Final = "the tenant was closed; its whitelist goes to the host at the next start"
_Result = TypeVar("_Result")


class TenantStatus(NamedTuple):
    """The status of a tenant."""

    public_key: bytes
    host: HostUrl
    lease_until_ms: int | None
    """When the lease ends at the earliest, Unix milliseconds; None without one."""
    is_doubted: bool
    """Whether the host has been silent for three heartbeats."""
    answered_ms: int | None
    """When the host last answered a heartbeat, by its clock."""
    waiting_count: int
    """Messages that the program is not done with."""
    whitelist: frozenset[bytes] | None
    """Whom the host lets through without work, as far as we know."""


class LprpTenant(LprpSender):
    """The one tenant of a folder; use it in ``async with``. It sends as well, see ``LprpSender``."""

    def __init__(
        self,
        home: Path | str,
        host: HostUrl | str | None = None,
        *,
        keep_trying: bool = False,
        pool: WorkPool | None = None,
        settings: ClientSettings | None = None,
        on_event: Callable[[object], None] | None = None,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.time,
        silence_s: float = SILENCE_S,
    ) -> None:
        """Describe a tenant.

        Args:
            home: Folder of the identity, made if absent.
            host: ``lprp://KEY@host:port``, with ``?lease_ms=…`` where its leases do not last 2**29 ms; None means
                the host that this folder used last.
            keep_trying: Begin although the host cannot be reached, or gives no lease yet; messages of before come
                meanwhile.
            pool: Processes for work; None means our own, ended with us.
            settings: Of the protocol; None means those of ``silence_s``. What the host's address says goes before them.
            on_event: Gets ``LeaseGranted``, ``LeaseDoubted``, ``HostAnswered``, ``PacketDropped``, ``StoreFailed`` and
                other events.
            rng: Source of keys, ids and padding; anything but the default is for tests.
            clock: Unix seconds.
            silence_s: A host from which nothing comes for so long is in doubt (``LeaseDoubted``) and is asked for the
                lease again, 1 to 3,600 seconds; after 142 s at the latest.

        Raises:
            LocalError: ``host`` is no such address, or ``silence_s`` is out of range.
        """
        silence = SilencePolicy.of_seconds(silence_s)
        settings = ClientSettings.of_silence(silence.limit_ms) if settings is None else settings
        super().__init__(home, host, pool=pool, settings=settings, on_event=on_event, rng=rng, clock=clock)
        self._keep_trying = keep_trying
        self._inbox: Inbox | None = None
        self._mail: Mail | None = None
        self._stack = contextlib.AsyncExitStack()
        self._watching: asyncio.Task[None] | None = None
        self._leased: list[asyncio.Future[None]] = []
        self._renewals: list[asyncio.Future[Lease]] = []
        self._wanted: frozenset[bytes] = frozenset()
        self._agreements: list[asyncio.Future[None]] = []
        self._comparisons: list[asyncio.Future[bool]] = []
        self._answered_ms: int | None = None

    # Life

    async def aclose(self) -> None:
        """Stop listening; what has arrived and is not done comes at the next start. Safe to call twice."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._inbox is not None:
            self._inbox.end()
        try:
            await super().aclose()
        finally:  # after it no call can begin to wait
            _fail(HostError("the tenant was closed"), self._leased, self._renewals)
            _fail(HostError(_WHITELIST_WAITS), self._agreements, self._comparisons)
            await self._stack.aclose()

    async def _open(self) -> None:
        busy = (
            f"another program listens with the identity in {self._home}; end it, or use another home"
            " (sending, and changing the whitelist, work beside it)"
        )
        with private_folder(self._home):
            await self._stack.enter_async_context(hold(self._home / LOCK_FILE, busy, _BUSY_WAIT_S))
        await self._prepare()
        if self._keep_trying:
            self.connection.start()
        else:
            await self.connection.reach()
        self._begin()
        self._watching = asyncio.get_running_loop().create_task(self._watch())
        if not self._keep_trying:
            await self._stand()

    async def _stand(self) -> None:
        """Return once the host has shown that we have a lease."""
        leased = _another(self._leased)
        await asyncio.wait([leased], timeout=ANSWER_S)
        if not leased.done() and not self._has_worked:
            raise self._silence()
        await leased

    def _silence(self) -> RelayUnreachableError:
        nobody = " (the network says that nobody listens there)" if self.connection.complaints else ""
        return RelayUnreachableError(
            f"{self.host} does not answer{nobody}; check that it runs, its address and its key, which must be right too"
        )

    def _seen(self, state: LprpState) -> SeenPackets:
        self._mail = Mail(state, life_ms=self._settings.mail_age_ms_max)
        self._inbox = Inbox(state, self._mail, confirm=self._confirm, hand_back=self._hand_back, refused=self._refused)
        return self._mail

    def _begin(self) -> None:
        """Ask for a lease, or hold the one of before; bring the host into step with what was wished before."""
        machine, lease = self.connection.machine, self._known_lease()
        if lease is not None and lease.until_ms > self.state.now_ms():
            machine.hold_lease(now(), lease.until_ms)
        else:
            machine.ask_lease(now())
        wish = self.state.whitelist(self.host.key)
        if wish.wanted or wish.agreed is not None:
            self._want(wish.wanted)
        self.connection.flush()

    def _known_lease(self) -> Lease | None:
        """Return the lease of before, as long as leases last by what we know today."""
        lease = self.state.lease(self.host.key)
        if lease is None or lease.until_ms == lease.asked_ms + self._settings.lease_ms:
            return lease
        corrected = lease._replace(until_ms=lease.asked_ms + self._settings.lease_ms)
        self._note(partial(self.state.set_lease, self.host.key, corrected))
        return corrected

    def _end_state(self, state: LprpState) -> None:
        """Do nothing: it is our own address that the host has."""

    # Receiving

    def messages(self) -> Reading[Message]:
        """Return an iterator over messages as they come; it ends when the tenant is closed.

        A message is done when the next one is asked for, or when the program has called its ``done``. A loop that is
        left by ``break`` or an error has not done the message that it was at, unless it called ``done``.

        The whitelist saves its members work and is no filter: read a message or not by its ``sender``.
        """
        return self._life.read("messages()", self._life.part(self._inbox).messages)

    def status(self) -> TenantStatus:
        """Return how we stand."""
        machine = self.connection.machine
        return TenantStatus(
            self.public_key,
            self.host,
            machine.lease_until_ms,
            machine.is_doubted,
            self._answered_ms,
            self._life.part(self._mail).waiting_count,
            machine.whitelist,
        )

    async def renew(self) -> Lease:
        """Ask for the lease anew, ahead of time, and return it; it is done in time without this.

        Raises:
            LeaseRefusedError: The host says no.
            RelayUnreachableError: The host is silent.
            HostError: The tenant was closed meanwhile.
        """
        connection, renewed = self.connection, _another(self._renewals)
        connection.machine.ask_lease(now())
        connection.flush()
        return await renewed

    # Whom the host lets through

    def whitelist(self) -> frozenset[bytes]:
        """Return the keys that the host shall let through without work."""
        return self.state.whitelist(self.host.key).wanted

    async def allow(self, *keys: str | bytes) -> None:
        """Let these keys write to us without work; returns once the host knows.

        Raises:
            LocalError: One is no key, or there are more than 256.
            WhitelistFailedError: The host does not agree, or is silent; the wish is kept.
            HostError: The tenant was closed meanwhile, or the disk refuses the wish, and nothing is changed.
        """
        await self._change_whitelist(add=keys)

    async def disallow(self, *keys: str | bytes) -> None:
        """Demand work of these keys again; raises as ``allow``."""
        await self._change_whitelist(remove=keys)

    async def set_whitelist(self, keys: Iterable[str | bytes]) -> None:
        """Let just these keys through; raises as ``allow``."""
        await self._change_whitelist(add=keys, clear=True)

    async def check_whitelist(self) -> bool:
        """Return whether the host has just the keys of ``whitelist``, and change nothing; raises as ``allow``."""
        connection, compared = self.connection, _another(self._comparisons)
        if len(self._comparisons) == 1:
            connection.machine.compare_whitelist(now())
            connection.flush()
        return await compared

    async def _change_whitelist(
        self, add: Iterable[str | bytes] = (), remove: Iterable[str | bytes] = (), *, clear: bool = False
    ) -> None:
        """Change the wish and return once the host has it; see ``LprpState.change_whitelist``."""
        added, removed = ([PublicKey.parse(key) for key in keys] for keys in (add, remove))
        await self.state.unlocked()
        wish = self.state.change_whitelist(self.host.key, added, removed, clear=clear)
        agreed = _another(self._agreements)
        self._want(wish.wanted)
        await agreed

    def _want(self, keys: frozenset[bytes]) -> None:
        self._wanted = keys
        self.connection.machine.want_whitelist(keys, now())
        self.connection.flush()

    # What happens

    def _on_event(self, event: ConnectionEvent) -> None:
        if isinstance(event, HostAnswered | LeaseGranted | LeaseRefused):
            self._on_lease(event)
        elif isinstance(event, WhitelistAgreed | WhitelistDiffers | WhitelistFailed):
            self._on_whitelist(event)
        super()._on_event(event)

    def _on_packet(self, event: PacketArrived) -> None:
        assert self._inbox is not None
        self._inbox.take(event.packet)

    def _on_lease(self, event: HostAnswered | LeaseGranted | LeaseRefused) -> None:
        if isinstance(event, LeaseRefused):
            silent = event.outcome is RequestOutcome.UNANSWERED
            error = self._silence() if silent else LeaseRefusedError(str(self.host), event.outcome)
            _fail(error, self._leased, self._renewals)
            return
        if isinstance(event, LeaseGranted):
            lease = Lease(event.asked_ms, event.until_ms)
            self._note(partial(self.state.set_lease, self.host.key, lease))
            _resolve(self._renewals, lease)
        else:
            self._answered_ms = event.time_ms
        _resolve(self._leased, None)

    def _on_whitelist(self, event: WhitelistAgreed | WhitelistDiffers | WhitelistFailed) -> None:
        """Answer who waits for the host; a wish that was overtaken by another is met with that one."""
        if isinstance(event, WhitelistFailed):
            error = WhitelistFailedError(str(self.host), event.outcome)
            self._note(partial(self.state.fail_whitelist, self.host.key, str(error)))
            _fail(error, self._agreements, self._comparisons)
            return
        if isinstance(event, WhitelistAgreed):
            self._note(partial(self.state.agree_whitelist, self.host.key, frozenset(event.keys)))
            if event.keys == self._wanted:
                _resolve(self._agreements, None)
        _resolve(self._comparisons, isinstance(event, WhitelistAgreed))

    def _confirm(self, signatures: list[bytes]) -> None:
        for signature in signatures:
            self.connection.machine.confirm(signature, now())
        self.connection.flush()

    def _hand_back(self, signatures: list[bytes]) -> None:
        for signature in signatures:
            self.connection.machine.hand_back(signature, now())

    def _write_waiting(self) -> None:
        super()._write_waiting()
        if self._inbox is not None:
            self._inbox.store()

    async def _watch(self) -> None:
        """Take over what other programs of this folder want; forget what is old."""
        try:
            while True:
                try:
                    await self._look_and_tidy()
                except HostError as error:
                    self._refused(error)
                await asyncio.sleep(LOOK_S)
        except Exception as error:  # noqa: BLE001 - whoever waits for messages gets it, instead of waiting for ever
            if self._inbox is not None:
                self._inbox.end(error)

    async def _look_and_tidy(self) -> None:
        state, loop = self.state, asyncio.get_running_loop()
        seen, nudges, tidy_at = None, state.nudges(), loop.time() + TIDY_S
        while True:
            await asyncio.sleep(LOOK_S)
            changes = state.changes()
            if changes != seen:
                seen = changes
                wanted = state.whitelist(self.host.key).wanted
                if wanted != self._wanted:
                    self._want(wanted)
                if state.nudges() != nudges:
                    nudges = state.nudges()
                    self.connection.hurry()
            if loop.time() >= tidy_at and self._mail is not None:
                tidy_at = loop.time() + TIDY_S
                self._mail.tidy()


def _another(futures: list[asyncio.Future[_Result]]) -> asyncio.Future[_Result]:
    """Return what one more call waits for."""
    futures.append(asyncio.get_running_loop().create_future())
    return futures[-1]


def _resolve(futures: list[asyncio.Future[_Result]], result: _Result) -> None:
    """Give all of them one result, and forget them."""
    for future in futures:
        if not future.done():
            future.set_result(result)
    futures.clear()


def _fail(error: Exception, *waiting: list[asyncio.Future[Any]]) -> None:
    """Raise an error in all calls that wait, and forget them."""
    for futures in waiting:
        for future in futures:
            if not future.done():
                future.set_exception(error)
                future.exception()  # the caller may have stopped waiting
        futures.clear()
