"""Being there for messages: a lease at a host, an inbox that loses nothing, and a whitelist of friends.

What is promised: once the host has accepted all packets of a message, and while this tenant comes back before its lease
ends, the program gets the message from ``messages``, again and again over any crash, until it is done; after that never
again. Between what a program does with a message and its ``done`` there is a moment in which a crash makes it come
twice; its ``id`` is then the same. Nothing is promised about order.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

from waystation.core.errors import HostError
from waystation.protocols.lprp.client_events import (
    HostHeard,
    LeaseGranted,
    LeaseRefused,
    PacketArrived,
    RequestOutcome,
    WhitelistAgreed,
    WhitelistDiffers,
    WhitelistFailed,
)
from waystation.protocols.lprp.client_settings import ClientSettings
from waystation.protocols.lprp.seen_packets import SeenPackets
from waystation.sdk.errors import RelayUnreachableError
from waystation.sdk.home_lock import hold
from waystation.sdk.link import now
from waystation.sdk.lprp_errors import LeaseRefusedError
from waystation.sdk.lprp_friends import Friends
from waystation.sdk.lprp_host import HostUrl, parse_key
from waystation.sdk.lprp_inbox import Inbox
from waystation.sdk.lprp_line import LineEvent
from waystation.sdk.lprp_mail import Mail
from waystation.sdk.lprp_message import Message
from waystation.sdk.lprp_sender import LprpSender
from waystation.sdk.lprp_solver import WorkPool
from waystation.sdk.lprp_state import Lease, LprpState

__all__ = ["LprpTenant", "TenantStatus"]

LOOK_S: Final = 0.5  # how often what other programs of this folder have written is looked for
TIDY_S: Final = 3_600.0
ANSWER_S: Final = 10.0  # a host that answers at all does so within a retransmission or two
LOCK_FILE: Final = "lprp.lock"
_BUSY_WAIT_S: Final = 1.0  # a program that is just ending
_Result = TypeVar("_Result")


class TenantStatus(NamedTuple):
    """How a tenant stands."""

    public_key: bytes
    host: HostUrl
    lease_until_ms: int | None
    """When the lease ends at the earliest, Unix milliseconds; None without one."""
    is_doubted: bool
    """Whether the host has been silent for three heartbeats."""
    heard_ms: int | None
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
    ) -> None:
        """Describe a tenant.

        Args:
            home: Folder of the identity, made if absent.
            host: ``lprp://KEY@host:port``, with ``?lease_ms=…`` where its leases do not last 2**29 ms; None means
                the host that this folder used last.
            keep_trying: Begin although the host cannot be reached, or gives no lease yet; messages of before come
                meanwhile.
            pool: Processes for work; None means our own, ended with us.
            settings: Of the protocol; None means the defaults. What the host's address says goes before them.
            on_event: Gets ``LeaseGranted``, ``LeaseDoubted``, ``HostHeard``, ``PacketDropped`` and what else happens.
            rng: Source of keys, ids and padding; anything but the default is for tests.
            clock: Unix seconds.

        Raises:
            LocalError: ``host`` is no such address.
        """
        super().__init__(home, host, pool=pool, settings=settings, on_event=on_event, rng=rng, clock=clock)
        self._keep_trying = keep_trying
        self._inbox: Inbox | None = None
        self._mail: Mail | None = None
        self._friends: Friends | None = None
        self._stack = contextlib.AsyncExitStack()
        self._watching: asyncio.Task[None] | None = None
        self._standing: list[asyncio.Future[None]] = []
        self._renewals: list[asyncio.Future[Lease]] = []
        self._heard_ms: int | None = None

    # Life

    async def __aenter__(self) -> Self:
        try:
            await self._open()
            if not self._keep_trying:
                await self._stand()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def aclose(self) -> None:
        """Stop listening; what has arrived and is not done comes at the next start. Safe to call twice."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._inbox is not None:
            self._inbox.end()
        if self._friends is not None:
            self._friends.close()
        self._fail(HostError("the tenant was closed"))
        await super().aclose()
        await self._stack.aclose()

    async def _open(self) -> None:
        try:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise HostError(f"cannot use {self._home}: {error}") from error
        busy = (
            f"another program listens with the identity in {self._home}; end it, or use another home"
            " (sending, and changing the whitelist, work beside it)"
        )
        await self._stack.enter_async_context(hold(self._home / LOCK_FILE, busy, _BUSY_WAIT_S))
        self._prepare(self._make_inbox)
        self._friends = Friends(self.state, self.host, self.line)
        if self._keep_trying:
            self.line.start()
        else:
            await self.line.open()
        self._begin()
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def _stand(self) -> None:
        """Return once the host has shown that we have a lease."""
        stands: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._standing.append(stands)
        await asyncio.wait([stands], timeout=ANSWER_S)
        if not stands.done() and not self._has_worked:
            raise self._silence()
        await stands

    def _silence(self) -> RelayUnreachableError:
        nobody = " (the network says that nobody listens there)" if self.line.complaints else ""
        return RelayUnreachableError(
            f"{self.host} does not answer{nobody}; check that it runs, its address and its key, which must be right too"
        )

    def _make_inbox(self, state: LprpState) -> SeenPackets:
        life_ms = self._settings.mail_age_ms_max
        self._mail = Mail(state, life_ms=life_ms)
        self._inbox = Inbox(state, self._mail, life_ms=life_ms, confirm=self._confirm, hand_back=self._hand_back)
        return self._mail

    def _begin(self) -> None:
        """Ask for a lease, or hold the one of before; bring the whitelist into step."""
        machine, lease = self.line.machine, self._known_lease()
        if lease is not None and lease.until_ms > self.state.now_ms():
            machine.hold_lease(now(), lease.until_ms)
        else:
            machine.ask_lease(now())
        self.friends.begin()
        self.line.flush()

    def _known_lease(self) -> Lease | None:
        """Return the lease of before, as long as leases last by what we know today."""
        lease = self.state.lease(self.host.key)
        if lease is None or lease.until_ms == lease.asked_ms + self._settings.lease_ms:
            return lease
        mended = lease._replace(until_ms=lease.asked_ms + self._settings.lease_ms)
        self.state.set_lease(self.host.key, mended)
        return mended

    def _end_state(self, state: LprpState) -> None:
        """Do nothing: it is our own address that the host has."""

    @property
    def friends(self) -> Friends:
        """The whitelist as a part of its own; there inside ``async with``."""
        assert self._friends is not None, "not open"
        return self._friends

    # Receiving

    def messages(self) -> AsyncGenerator[Message, None]:
        """Return an iterator over messages as they come; it ends when the tenant is closed.

        A message is done when the next one is asked for, or when the program has called its ``done``. A loop that is
        left by ``break`` or an error has not done the message that it was at, unless it called ``done``.

        The whitelist saves its members work and is no filter: whether to read a message, its ``sender`` tells.

        Raises:
            HostError: The disk says no.
        """
        assert self._inbox is not None, "not open"
        return self._inbox.messages()

    def status(self) -> TenantStatus:
        """Return how we stand."""
        machine = self.line.machine
        assert self._inbox is not None
        return TenantStatus(
            self.public_key,
            self.host,
            machine.lease_until_ms,
            machine.is_doubted,
            self._heard_ms,
            self._inbox.waiting_count,
            machine.whitelist,
        )

    async def renew(self) -> Lease:
        """Ask for the lease anew, ahead of time, and return it; it is done in time without this.

        Raises:
            LeaseRefusedError: The host says no.
            RelayUnreachableError: The host is silent.
            HostError: The tenant was closed meanwhile.
        """
        renewed: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._renewals.append(renewed)
        self.line.machine.ask_lease(now())
        self.line.flush()
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
            HostError: The tenant was closed meanwhile.
        """
        await self.friends.change(add=[parse_key(key) for key in keys])

    async def disallow(self, *keys: str | bytes) -> None:
        """Demand work of these keys again; raises as ``allow``."""
        await self.friends.change(remove=[parse_key(key) for key in keys])

    async def set_whitelist(self, keys: Iterable[str | bytes]) -> None:
        """Let just these keys through; raises as ``allow``."""
        await self.friends.change(add=[parse_key(key) for key in keys], clear=True)

    async def check_whitelist(self) -> bool:
        """Return whether the host has just the keys of ``whitelist``, and change nothing; raises as ``allow``."""
        return await self.friends.compare()

    # What happens

    def _on_event(self, event: LineEvent) -> None:
        if isinstance(event, HostHeard | LeaseGranted | LeaseRefused):
            self._on_lease(event)
        elif isinstance(event, WhitelistAgreed | WhitelistDiffers | WhitelistFailed):
            self.friends.take(event)
        elif isinstance(event, HostError) and self._inbox is not None:
            self._inbox.end(event)
        super()._on_event(event)

    def _on_packet(self, event: PacketArrived) -> None:
        assert self._inbox is not None
        self._inbox.take(event.packet)

    def _on_lease(self, event: HostHeard | LeaseGranted | LeaseRefused) -> None:
        if isinstance(event, LeaseRefused):
            silent = event.outcome is RequestOutcome.UNANSWERED
            self._fail(self._silence() if silent else LeaseRefusedError(str(self.host), event.outcome))
            return
        if isinstance(event, LeaseGranted):
            lease = Lease(event.asked_ms, event.until_ms)
            self.state.set_lease(self.host.key, lease)
            _resolve(self._renewals, lease)
        else:
            self._heard_ms = event.time_ms
        _resolve(self._standing, None)

    def _fail(self, error: Exception) -> None:
        """Tell those who wait for a lease that there is none."""
        waiting: list[asyncio.Future[Any]] = [*self._standing, *self._renewals]
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever has stopped waiting need not hear of it
        self._standing.clear()
        self._renewals.clear()

    def _confirm(self, signatures: list[bytes]) -> None:
        for signature in signatures:
            self.line.machine.confirm(signature, now())
        self.line.flush()

    def _hand_back(self, signatures: list[bytes]) -> None:
        for signature in signatures:
            self.line.machine.hand_back(signature, now())

    async def _watch(self) -> None:
        """Take over what other programs of this folder want; forget what is old."""
        try:
            await self._look_and_tidy()
        except HostError as error:
            self._on_event(error)

    async def _look_and_tidy(self) -> None:
        state, loop = self.state, asyncio.get_running_loop()
        seen, nudges, tidy_at = state.changes(), state.nudges(), loop.time() + TIDY_S
        while True:
            await asyncio.sleep(LOOK_S)
            changes = state.changes()
            if changes != seen:
                seen = changes
                self.friends.look()
                if state.nudges() != nudges:
                    nudges = state.nudges()
                    self.line.hurry()
            if loop.time() >= tidy_at and self._mail is not None:
                tidy_at = loop.time() + TIDY_S
                self._mail.tidy()


def _resolve(futures: list[asyncio.Future[_Result]], result: _Result) -> None:
    """Give all of them one result, and forget them."""
    for future in futures:
        if not future.done():
            future.set_result(result)
    futures.clear()
