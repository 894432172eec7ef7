"""A BSP device for programs: it synchronises groups of messages with other devices by connections, carriers and files.

``send`` returns once the message is on this disk. Each peer that shares the group gets it once, after all messages that
it depends on, despite any crash or lost connection. ``history`` lists every message after those that it depends on.
There is no guarantee about the time of delivery.

A disk that refuses ends nothing: peers get no acknowledgement, and what changes something raises HostError, until the
disk takes writes again. ``news`` yields ``StoreFailed`` and ``StoreRecovered``.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from waystation.core.errors import HostError, LocalError, StoreFault
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.protocols.bsp.bundle import BUNDLE_BYTES_USUAL
from waystation.protocols.bsp.device.dials import Redial
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.links import FILE_TERMS, Mode, Visibility
from waystation.protocols.bsp.device.orders import LOOK_MS, OrderTaker
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.device.why import Explanation, explain
from waystation.protocols.bsp.graph.formats import FORMATS, ClientFormat
from waystation.protocols.bsp.graph.order import State
from waystation.protocols.bsp.home.alignment import Tables
from waystation.protocols.bsp.home.guarded_formats import check_own, guarded
from waystation.protocols.bsp.home.status import GroupMessage, Status, group_message, group_status, peer_status
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.stream.machine import BspMachine
from waystation.protocols.bsp.url import TLS, BspUrl
from waystation.sdk.backoff import CAP_S, STABLE_S
from waystation.sdk.bsp.bundles import Bundles
from waystation.sdk.bsp.carrier import Carrier, CarrierSession
from waystation.sdk.bsp.connections import BspConnections
from waystation.sdk.bsp.files import ExportResult, ImportResult, read_bundle_file, write_bundle_file
from waystation.sdk.bsp.following import follow, until
from waystation.sdk.bsp.home import LOCK_FILE, BspHome
from waystation.sdk.bsp.hosting import Hosting
from waystation.sdk.bsp.membership import Membership, Parts
from waystation.sdk.bsp.news import News, OrderRefused
from waystation.sdk.bsp.outcome import Outcome, Sent
from waystation.sdk.connection import now
from waystation.sdk.home_lock import hold
from waystation.sdk.life import Client, Reading
from waystation.sdk.renamed import warn_renamed
from waystation.transport.silence import SILENCE_S, SilencePolicy

__all__ = ["BspPeer"]

_REDIAL: Final = Redial(round(CAP_S * 1_000), round(STABLE_S * 1_000))
_BUSY_WAIT_S: Final = 1.0  # a program that is just ending
_DELIVERED: Final = State.DELIVERED


class BspPeer(Membership, Client):
    """The one program that works with a home; use it in ``async with``.

    Groups are named by ``Group``, identifier, or name in the home; peers by key, its text, or name in the home.
    """

    def __init__(
        self,
        home: BspHome | Path | str,
        *,
        formats: Mapping[str, ClientFormat] = FORMATS,
        mode: Mode = Mode.AUTO,
        dials: bool = True,
        owners: Collection[PublicKey] = (),
        on_event: Callable[[Any], None] | None = None,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.time,
        silence_s: float = SILENCE_S,
    ) -> None:
        """Describe a peer.

        Args:
            home: Its folder, made if absent; an open home stays open afterwards.
            formats: What reads the messages of groups, by name; ``FORMATS`` and those of applications.
            mode: How messages are handed over where the way leaves a choice.
            dials: Whether peers are dialled whose address the home has; else only those of ``connect``.
            owners: Who may have us keep groups for them, as a mailbox (``bsp_mailbox``).
            on_event: Gets what ``news`` reports.
            rng: Source of keys, nonces and jitter; anything but the default is for tests.
            clock: Unix seconds.
            silence_s: A peer from which nothing comes for so long is disconnected, 1 to 3,600 seconds.

        Raises:
            LocalError: A format lacks something, or ``silence_s`` is out of range.
        """
        self._silence = SilencePolicy.of_seconds(silence_s)
        self._given_home = home
        self._news = News(on_event)
        super().__init__(guarded(formats, self._news.report), rng if rng is not None else random.SystemRandom())
        self._mode = mode
        self._dials = dials
        self._owners = owners
        self._clock = clock
        self._stack = contextlib.AsyncExitStack()
        self._urls: list[str] = []
        self._certificate: tuple[Path, Path] | None = None
        self._added_ms = 0
        self._looking: asyncio.TimerHandle | None = None

    # Life

    async def aclose(self) -> None:
        """Commit what waits, and close every connection and carrier; safe to call twice."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        async with contextlib.AsyncExitStack() as ending:  # the last one first, each whatever became of the others
            ending.push_async_callback(self._stack.aclose)
            ending.callback(self._news.end)
            if self._parts is not None:
                ending.callback(self._parts.hosting.close)
                ending.push_async_callback(self._parts.connections.aclose)
            for session in self._carrier_sessions:
                ending.push_async_callback(session.close)
            self._carrier_sessions = []
        self._life.close()

    async def _open(self) -> None:
        given = self._given_home
        home = given if isinstance(given, BspHome) else BspHome(given, rng=self._rng)
        if home is not given:
            self._stack.callback(home.close)
        busy = f"another program works with {home.path}; end it, or use another home"
        await self._stack.enter_async_context(hold(home.path / LOCK_FILE, busy, _BUSY_WAIT_S))
        if home.key in self._owners:
            raise LocalError("an owner is another device than its mailbox; this is our own key")
        device = BspDevice(
            home.profile,
            home.store,
            mode=self._mode,
            formats={**FORMATS, **self._formats} if self._owners else self._formats,
            admits=self._admits,
        )
        machine = BspMachine(device, home.key_pair, self._rng)
        machine.redials.redial = _REDIAL
        report, fail = self._news.report, self._news.end
        connections = BspConnections(
            machine,
            device,
            home.store,
            on_event=self._on_event,
            on_turn=self._pump,
            silence=self._silence,
        )
        tables = Tables(home, device, machine, dials=self._dials, on_left_out=report)
        changed = connections.changed
        hosting = Hosting(home, self._owners, device, machine, tables, changed=changed, on_failure=fail)
        orders = OrderTaker(
            home.store, tables.carry_out, device.keep, lambda order, why: report(OrderRefused(order, why))
        )
        bundles = Bundles(device, connections, home.key_pair, self._rng, self._now_ms)
        self._parts = Parts(home, device, connections, tables, hosting, orders, bundles)
        self._look()
        await connections.durable()

    def _look(self) -> None:
        """Do what other programs have written down or asked for since the last look."""
        parts, at = self._running, now()
        wall_us = int(self._clock() * MICROSECONDS_PER_SECOND)
        parts.device.set_wall(at, wall_us)
        parts.tables.align(at)
        parts.hosting.look(at, wall_us)
        parts.orders.wake(at)
        for session in self._carrier_sessions:
            session.meet_all()
        parts.connections.changed()
        self._looking = asyncio.get_running_loop().call_later(LOOK_MS / 1_000, self._look_again)

    def _look_again(self) -> None:
        try:
            self._look()
        except StoreFault:  # what is written meanwhile is answered by its commit
            self._looking = asyncio.get_running_loop().call_later(LOOK_MS / 1_000, self._look_again)
        except (HostError, LocalError) as error:
            self._news.end(error if isinstance(error, HostError) else HostError(str(error)))

    def _admits(self, group_id: bytes, size_bytes: int) -> Refusal | None:
        return self._parts.hosting.admits(group_id, size_bytes) if self._parts is not None else None

    def _on_event(self, event: Any) -> None:
        self._news.report(event)
        if self._parts is not None:
            self._parts.hosting.on_event(event)

    def _pump(self) -> None:
        for session in self._carrier_sessions:
            session.pump()

    def reconnect(self) -> None:
        """Dial every peer without a connection now, and end the pauses of carriers; what stands stays."""
        for session in self._carrier_sessions:
            session.resume_all()
        self._running.connections.reconnect()

    # Who and where

    @property
    def public_key(self) -> PublicKey:
        """Who we are."""
        return self.home.key

    @property
    def key(self) -> PublicKey:
        """Who we are; the short form of ``public_key``."""
        return self.home.key

    @property
    def failure(self) -> HostError | None:
        """What the disk says while it refuses writes; None when it takes them."""
        return self._life.part(self._parts).connections.failure

    @property
    def is_carrying(self) -> bool:
        """Whether a carrier is at work with something of ours."""
        return any(session.is_carrying for session in self._carrier_sessions)

    def news(self) -> AsyncGenerator[Any, None]:
        """Return an iterator over what happens from now on: events of ``protocols.bsp.events`` and of ``bsp_news``.

        It ends when the peer is closed. A message that it reports is on disk.

        Raises:
            HostError: The disk says no.
        """
        return self._news.listen()

    # Messages

    async def send(
        self, group: Group | bytes | str, body: bytes, *, timestamp: int | None = None, share: bool = True
    ) -> Sent:
        """Create a message, and return once it is on disk; ``settled`` of the result waits for the peers.

        Args:
            group: Where.
            body: At most 32 KiB, as the group's format has it; what it depends on must be delivered here.
            timestamp: Unix milliseconds; None means now, and later than what was sent before.
            share: Whether peers get it; else ``share_message`` later.

        Raises:
            LocalError: The group is unknown, or the body is not as it should be.
            HostError: The disk says no, and nothing was kept. When the disk refuses this very message as its first, it
                is kept and goes out once the disk takes writes again; the sentence says which.
        """
        parts, group_id = self._writing, self._group_id(group)
        at_ms = self._next_ms() if timestamp is None else timestamp
        found = next((each for each in parts.device.groups() if each.group_id == group_id), None)
        if found is not None:
            check_own(parts.device, self._formats.get(found.format) or FORMATS[found.format], found, at_ms, body)
        message_id = parts.device.add(group_id, at_ms, body, now(), share=share)
        await self._settle()
        message = self.message(group_id, message_id)
        return Sent(Outcome.STORED, message, lambda: until(self._news, lambda: self._is_held(group_id, message_id)))

    async def add(self, group: Group | bytes | str, body: bytes, **options: Any) -> GroupMessage:
        """Create a message; the old name of ``send``."""
        warn_renamed("BspPeer.add", "BspPeer.send")
        return (await self.send(group, body, **options)).message

    def _is_held(self, group_id: bytes, message_id: bytes) -> bool:
        """Return whether every peer that shares the group holds a message."""
        peers = [each.status for each in self.why(group_id, message_id).peers]
        return all(each.holds for each in peers if each.visibility is Visibility.SHARED)

    def _next_ms(self) -> int:
        """Return the time of day, or a little more: peers put what stands alone into the order of its time."""
        self._added_ms = max(self._added_ms + 1, self._now_ms())
        return self._added_ms

    async def share_message(self, group: Group | bytes | str, message_id: bytes) -> None:
        """Share a message and all that it depends on; raises LocalError when it is unknown or not delivered."""
        self._writing.device.share_message(self._group_id(group), message_id, now())
        await self._settle()

    async def delete(self, group: Group | bytes | str, message_id: bytes) -> None:
        """Remove a message's body here; those who have it keep it. Raises LocalError when it is unknown."""
        self._writing.device.delete(self._group_id(group), message_id)
        await self._settle()

    def message(self, group: Group | bytes | str, message_id: bytes) -> GroupMessage:
        """Return one message; raises LocalError when it is unknown."""
        group_id = self._group_id(group)
        device = self._running.device
        vertex = device.vertex(group_id, message_id)
        if vertex is None:
            raise LocalError(f"there is no message {message_id.hex()} in this group")
        return group_message(device, group_id, vertex)

    def messages(self, group: Group | bytes | str | None = None, *, after: int | None = None) -> Reading[GroupMessage]:
        """Return an iterator over messages as they are delivered, each group's in its order; it ends with the peer.

        Args:
            group: Of which group; None for all of them.
            after: Begin with those of a higher ``order`` that are here already; None for those from now on.

        Raises:
            HostError: The disk says no.
        """
        device, only = self._running.device, None if group is None else self._group_id(group)
        orders = dict.fromkeys((each.group_id for each in device.groups()), after or 0)
        if after is None:
            orders = {each: max((found.order for found in device.messages(each)), default=0) for each in orders}
        return Reading(
            set(),
            "messages() of the BSP client",
            lambda: follow(device, self._news, orders, lambda group_id: only in (None, group_id)),
        )

    def history(self, group: Group | bytes | str, *, after: int = 0, every: bool = False) -> list[GroupMessage]:
        """Return the messages of a group that are delivered here, in their order.

        Args:
            group: Of which group.
            after: Only those with a higher ``order``: what a program goes on from.
            every: Those behind them too that wait or are invalid.
        """
        device, group_id = self._running.device, self._group_id(group)
        found = device.messages(group_id)
        wanted = [each for each in found if (each.order > after if each.state is _DELIVERED else every)]
        return [group_message(device, group_id, each) for each in wanted]

    def _now_ms(self) -> int:
        return int(self._clock() * 1_000)

    async def _settle(self) -> None:
        self._running.connections.changed()
        await self._running.connections.durable()

    # Ways to peers

    async def listen(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Accept bsp+tls, and return the address to hand out, with our key in it.

        Raises:
            HostError: The port cannot be had.
        """
        if self._certificate is None:
            self._certificate = self.home.make_certificate(host, self._clock())
        taken = await self._running.connections.listen(host, port, *self._certificate)
        url = str(BspUrl(TLS, host, taken, key=self.key))
        self._urls.append(url)
        return url

    def connect(self, peer: bytes | str, url: str) -> None:
        """Dial a known peer, now and whenever it is lost, while we run; ``news`` reports what comes of it.

        Raises:
            LocalError: The peer is unknown, or the address is none or has another key in it.
        """
        key, place = self.peer(peer), BspUrl.parse(url)
        if place.key not in (None, key):
            raise LocalError(f"{url} has another key than {key.hex()}")
        self._running.tables.dial(key, place.place)
        self._running.connections.changed()

    async def attach(self, carrier: Carrier) -> None:
        """Use a carrier for every peer that it reaches; it is closed with us. Raises what its ``open`` raises."""
        parts = self._running
        session = CarrierSession(
            carrier,
            parts.device,
            parts.bundles,
            changed=parts.connections.changed,
            report=self._news.report,
            rng=self._rng,
        )
        await session.open()
        self._carrier_sessions.append(session)
        parts.connections.changed()

    # Files

    async def export_file(
        self,
        peer: bytes | str,
        path: Path | str,
        *,
        bytes_max: int = BUNDLE_BYTES_USUAL,
        again: bool = False,
        replace: bool = False,
    ) -> ExportResult:
        """Write what is due for a peer into a file that only it can read.

        What is in the file counts as sent from the moment at which the file is safe on its disk, and goes into another
        one only after a day without an acknowledgement, or with ``again``.

        Args:
            peer: Who shall read it.
            path: Where; nothing is written when nothing is due.
            bytes_max: Most bytes of the file, 64 KiB to 4 MiB.
            again: Put in all that the peer is not known to hold: an earlier file was lost.
            replace: Whether a file of this name may be overwritten.

        Raises:
            LocalError: The peer is unknown, or there is such a file.
            HostError: The disk says no.
        """
        parts, path = self._running, Path(path)
        kept_for = parts.hosting.peers()
        key = PublicKey(peer) if isinstance(peer, bytes) and peer in kept_for else self.peer(peer)
        await self._settle()  # what was added a moment ago goes with it
        with parts.bundles.drafted(key, FILE_TERMS, bytes_max, again=again) as draft:
            if not draft.records:
                return ExportResult(None, key, 0, 0, 0, 0, 0, complete=True)
            number, record = parts.home.next_file_number(self._now_ms())
            parts.device.keep(record)
            await self._settle()
            data = parts.bundles.seal(draft, key, number)
            await asyncio.to_thread(write_bundle_file, path, data, replace=replace)
        await self._settle()
        counts = (len(draft.bodies), len(draft.acks), len(draft.requests))
        return ExportResult(path, key, number, len(data), *counts, complete=self._is_all_said(key))

    def _is_all_said(self, peer: PublicKey) -> bool:
        """Return whether another file would hold nothing: over a faster way all goes out as if there were no file."""
        device = self._running.device
        link = device.link_of(peer)
        terms = device.link_terms(link) if link is not None else None
        return (terms is not None and terms.base_ms < FILE_TERMS.base_ms) or not device.is_due(peer, now())

    async def import_file(self, path: Path | str) -> ImportResult:
        """Read a file that a peer wrote for us; reading it twice changes nothing.

        Raises:
            MalformedError: It is not for us, of an unknown sender, damaged, or no such file; nothing was changed.
            HostError: It cannot be read, or our disk says no.
        """
        bundles = self._running.bundles
        data = await asyncio.to_thread(read_bundle_file, Path(path))
        bundle = bundles.open(data)
        return ImportResult(bundle.sender, bundle.number, len(data), *await bundles.receive(bundle))

    # Status

    def status(self) -> Status:
        """Return how we stand with every group and peer."""
        parts = self._running
        device, home = parts.device, self.home
        joined = [entry for entry in home.groups() if device.is_member(entry.group.group_id)]
        groups = tuple(group_status(device, name, group) for name, group in joined)
        known = (*home.peers(), *parts.hosting.unnamed())
        peers = tuple(peer_status(device, entry) for entry in known if device.knows(entry.key))
        refused = sum(session.refused_count for session in self._carrier_sessions)
        left_out = tuple(parts.tables.left_out.values())
        sizes = device.sizes() | parts.hosting.sizes()
        return Status(self.key, tuple(self._urls), groups, peers, refused, sizes, left_out)

    def why(self, group: Group | bytes | str, message_id: bytes) -> Explanation:
        """Return what a message waits for, here and with each peer; raises LocalError when the group is unknown."""
        return explain(self._running.device, self._group_id(group), message_id, now())
