"""A BSP device for programs: groups of messages kept the same with other devices, over whatever reaches them.

What is promised: ``add`` returns once the message is on this disk; each peer that shares the group gets it, once, after
everything it depends on, however often connections, programs or machines end on the way; and ``messages`` gives them in
an order in which no message stands before one that it depends on. Nothing is promised about when.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.core.records import Record
from waystation.protocols.bsp.bundle import BUNDLE_BYTES_USUAL
from waystation.protocols.bsp.device import BspDevice
from waystation.protocols.bsp.formats import FORMATS, ClientFormat
from waystation.protocols.bsp.graph import State
from waystation.protocols.bsp.groups import Group
from waystation.protocols.bsp.links import Mode, Visibility
from waystation.protocols.bsp.machine import BspMachine
from waystation.protocols.bsp.messages import ID_BYTES
from waystation.protocols.bsp.orders import LOOK_MS, Order, OrderTaker
from waystation.protocols.bsp.why import Explanation, explain
from waystation.sdk.bsp_bundles import Bundles
from waystation.sdk.bsp_carrier import Carrier
from waystation.sdk.bsp_courier import Courier
from waystation.sdk.bsp_desk import CarrierDesk
from waystation.sdk.bsp_files import ExportResult, ImportResult
from waystation.sdk.bsp_formats import check_own, guarded
from waystation.sdk.bsp_home import LOCK_FILE, BspHome, HomePeer
from waystation.sdk.bsp_hosting import Hosting
from waystation.sdk.bsp_lines import Lines
from waystation.sdk.bsp_message import GroupMessage, Status, group_message, group_status, peer_status
from waystation.sdk.bsp_news import News, OrderRefused, PeerUnreachable
from waystation.sdk.bsp_tables import Tables
from waystation.sdk.bsp_url import TLS, BspUrl, parse_key
from waystation.sdk.home_lock import hold
from waystation.sdk.link import now

__all__ = ["BspPeer"]

_BUSY_WAIT_S: Final = 1.0  # a program that is just ending
_DELIVERED: Final = State.DELIVERED


class BspPeer:
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
        shares_delivered: bool = True,
        owners: Collection[PublicKey] = (),
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Describe a peer.

        Args:
            home: Its folder, made if absent; an open home stays open behind us.
            formats: What reads the messages of groups, by name; ``FORMATS`` and those of applications.
            mode: How messages are handed over where the way leaves a choice.
            dials: Whether peers are dialled whose address the home has; else only those of ``connect``.
            shares_delivered: Share every message as it is delivered; else ``share_message`` says which.
            owners: Who may have us keep groups for them, as a mailbox (``bsp_mailbox``).
            rng: Source of keys, nonces and jitter; anything but the default is for tests.
            clock: Unix seconds.

        Raises:
            LocalError: A format lacks something.
        """
        self._given_home = home
        self._news = News()
        self._formats = guarded(formats, self._news.tell)
        self._mode = mode
        self._dials = dials
        self._shares_delivered = shares_delivered
        self._owners = owners
        self._rng = rng if rng is not None else random.SystemRandom()
        self._clock = clock
        self._stack = contextlib.AsyncExitStack()
        self._desks: list[CarrierDesk] = []
        self._urls: list[str] = []
        self._certificate: tuple[Path, Path] | None = None
        self._bundle_number = 0
        self._added_ms = 0
        self._looking: asyncio.TimerHandle | None = None
        self._parts: _Parts | None = None

    # Life

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

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
                ending.push_async_callback(self._parts.lines.aclose)
            for desk in self._desks:
                ending.push_async_callback(desk.close)
            self._desks = []

    async def _open(self) -> None:
        given = self._given_home
        home = given if isinstance(given, BspHome) else BspHome(given, rng=self._rng)
        if home is not given:
            self._stack.callback(home.close)
        busy = f"another program works with {home.path}; end it, or use another home"
        await self._stack.enter_async_context(hold(home.path / LOCK_FILE, busy, _BUSY_WAIT_S))
        hosting = Hosting(home, self._owners)
        device = BspDevice(
            home.profile,
            home.store,
            mode=self._mode,
            formats={**FORMATS, **self._formats} if self._owners else self._formats,
            shares_delivered=self._shares_delivered,
            admits=hosting.admits,
        )
        machine = BspMachine(device, home.key_pair, self._rng)
        lines = Lines(
            machine,
            device,
            home.store,
            on_event=self._on_event,
            on_turn=self._pump,
            on_unreachable=lambda peer, url, why: self._news.tell(PeerUnreachable(peer, url, why)),
            on_failure=self._news.end,
        )
        told = self._news.tell
        tables = Tables(home, device, machine, dials=self._dials, on_refused=self._refuse, on_left_out=told)
        hosting.begin(device, machine, tables, changed=lines.changed, on_failure=self._news.end)
        orders = OrderTaker(home.store, tables.carry_out, device.keep, tables.refused)
        bundles = Bundles(device, lines, home.key_pair, self._rng)
        courier = Courier(home, device, lines, bundles, self._clock)
        self._parts = _Parts(home, device, lines, tables, hosting, orders, bundles, courier)
        self._look()
        await lines.durable()

    def _look(self) -> None:
        """Do what other programs have written down or asked for since the last look."""
        parts, at = self._running, now()
        wall_us = int(self._clock() * MICROSECONDS_PER_SECOND)
        parts.device.set_wall(at, wall_us)
        parts.tables.align(at)
        parts.hosting.look(at, wall_us)
        parts.orders.wake(at)
        for desk in self._desks:
            desk.meet_all()
        parts.lines.changed()
        self._looking = asyncio.get_running_loop().call_later(LOOK_MS / 1_000, self._look_again)

    def _look_again(self) -> None:
        try:
            self._look()
        except (HostError, LocalError) as error:
            self._news.end(error if isinstance(error, HostError) else HostError(str(error)))

    def _refuse(self, order: Order | None, reason: str) -> None:
        self._news.tell(OrderRefused(order, reason))

    def _on_event(self, event: Any) -> None:
        self._news.tell(event)
        self._running.hosting.on_event(event)

    def _pump(self) -> None:
        for desk in self._desks:
            desk.pump()

    @property
    def _running(self) -> "_Parts":
        assert self._parts is not None, "not open"
        return self._parts

    # Who and where

    @property
    def home(self) -> BspHome:
        """The folder; change it through this peer's methods only while it runs."""
        return self._running.home

    @property
    def key(self) -> PublicKey:
        """Our public key."""
        return self.home.key

    @property
    def failure(self) -> HostError | None:
        """What the disk said when it refused; nothing is durable from then on."""
        return self._running.lines.failure

    @property
    def is_carrying(self) -> bool:
        """Whether a carrier is at work with something of ours."""
        return any(desk.is_carrying for desk in self._desks)

    def news(self) -> AsyncGenerator[Any, None]:
        """Return an iterator over what happens from now on: events of ``protocols.bsp.events`` and of ``bsp_news``.

        It ends when the peer is closed. What it tells of a message is on disk.

        Raises:
            HostError: The disk says no.
        """
        return self._news.listen()

    # Groups and peers

    async def create_group(self, name: str = "", *, format: str = "opaque", descriptor: bytes = b"") -> Group:  # noqa: A002 - as in Group
        """Make a new group with a random client identifier, and become its first member.

        Raises:
            LocalError: The descriptor or name is too long, a group has the name already, or nothing reads this format.
        """
        if name and any(entry.name == name for entry in self.home.groups()):
            raise LocalError(f"there is a group {name!r} already: `group({name!r})` returns it")
        group = self.home.profile.group(self._rng.randbytes(ID_BYTES), descriptor, format)
        await self.join(group, name)
        return group

    async def join(self, group: Group, name: str | None = None) -> None:
        """Become a member of a group; once more changes its name, unless that is None. Raises as ``create_group``."""
        if group.format not in self._formats:
            raise LocalError(f"no format {group.format!r} here; known: {', '.join(sorted(self._formats))}")
        self._running.tables.check_free(group.group_id)
        if name is None:
            name = next((entry.name for entry in self.home.groups() if entry.group == group), "")
        await self._write([self.home.put_group(name, group)])

    async def leave(self, group: Group | bytes | str) -> None:
        """Forget a group with all its messages; raises LocalError when it is unknown."""
        await self._write(self.home.remove_group(self.group(group).group_id))

    async def meet(self, peer: bytes | str, name: str | None = None, url: str | None = None) -> PublicKey:
        """Make a peer known, or change its name and address; return its key.

        Args:
            peer: Its key.
            name: For people; None leaves it as it is.
            url: Where to dial it, from now on and for ever; "" for one that comes to us; None leaves it as it is.

        Raises:
            LocalError: One of them is not of its form.
        """
        key = parse_key(peer)
        before = next((entry for entry in self.home.peers() if entry.key == key), HomePeer("", key, ""))
        name, url = (old if new is None else new for old, new in ((before.name, name), (before.url, url)))
        await self._write([self.home.put_peer(name, key, url)])
        return key

    async def part(self, peer: bytes | str) -> None:
        """Make a peer unknown; raises LocalError when it is."""
        await self._write(self.home.remove_peer(self.peer(peer)))

    async def share(
        self, group: Group | bytes | str, peer: bytes | str, visibility: Visibility = Visibility.SHARED
    ) -> None:
        """Share a group with a peer, or stop (``INVISIBLE``); raises LocalError when one of them is unknown."""
        await self._write([self.home.put_share(self.group(group).group_id, self.peer(peer), visibility)])

    def group(self, group: Group | bytes | str) -> Group:
        """Return a group of ours; raises LocalError when there is none of this name."""
        return self.home.group(group if isinstance(group, str) else _id_of(group).hex()).group

    def _group_id(self, group: Group | bytes | str) -> bytes:
        return self.home.group(group).group.group_id if isinstance(group, str) else _id_of(group)

    def peer(self, peer: bytes | str) -> PublicKey:
        """Return the key of a known peer; raises LocalError when there is none of this name."""
        return self.home.peer(peer if isinstance(peer, str) else peer.hex()).key

    async def _write(self, records: list[Record]) -> None:
        """Change the tables of the home, and do what they say."""
        parts = self._running
        for record in records:
            parts.device.keep(record)
        parts.lines.changed()
        await parts.lines.durable()
        parts.tables.align(now())
        for desk in self._desks:
            desk.meet_all()
        parts.lines.changed()

    # Messages

    async def add(
        self, group: Group | bytes | str, body: bytes, *, timestamp: int | None = None, share: bool = True
    ) -> GroupMessage:
        """Create a message, and return it once it is on disk.

        Args:
            group: Where.
            body: At most 32 KiB, as the group's format has it; what it depends on must be delivered here.
            timestamp: Unix milliseconds; None means now, and later than what was added before.
            share: Whether peers get it; else ``share_message`` later.

        Raises:
            LocalError: The group is unknown, or the body is not as it should be.
            HostError: The disk says no.
        """
        parts, group_id = self._running, self._group_id(group)
        at_ms = self._next_ms() if timestamp is None else timestamp
        found = next((each for each in parts.device.groups() if each.group_id == group_id), None)
        if found is not None:
            check_own(parts.device, self._formats.get(found.format) or FORMATS[found.format], found, at_ms, body)
        message_id = parts.device.add(group_id, at_ms, body, now(), share=share)
        await self._settle()
        return self.message(group_id, message_id)

    def _next_ms(self) -> int:
        """Return the time of day, or a little more: peers put what stands alone into the order of its time."""
        self._added_ms = max(self._added_ms + 1, int(self._clock() * 1_000))
        return self._added_ms

    async def share_message(self, group: Group | bytes | str, message_id: bytes) -> None:
        """Share a message and all that it depends on; raises LocalError when it is unknown or not delivered."""
        self._running.device.share_message(self._group_id(group), message_id, now())
        await self._settle()

    async def delete(self, group: Group | bytes | str, message_id: bytes) -> None:
        """Remove a message's body here; those who have it keep it. Raises LocalError when it is unknown."""
        self._running.device.delete(self._group_id(group), message_id)
        await self._settle()

    def message(self, group: Group | bytes | str, message_id: bytes) -> GroupMessage:
        """Return one message; raises LocalError when it is unknown."""
        group_id = self._group_id(group)
        device = self._running.device
        vertex = device.vertex(group_id, message_id)
        if vertex is None:
            raise LocalError(f"there is no message {message_id.hex()} in this group")
        return group_message(device, group_id, vertex)

    def messages(self, group: Group | bytes | str, *, after: int = 0, every: bool = False) -> list[GroupMessage]:
        """Return delivered messages in their order.

        Args:
            group: Of which group.
            after: Only those with a higher ``order``: what a program goes on from.
            every: Those behind them too that wait or are invalid.
        """
        group_id, device = self._group_id(group), self._running.device
        found = device.messages(group_id)
        wanted = [each for each in found if (each.order > after if each.state is _DELIVERED else every)]
        return [group_message(device, group_id, each) for each in wanted]

    async def _settle(self) -> None:
        self._running.lines.changed()
        await self._running.lines.durable()

    # Ways to peers

    async def listen(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Accept bsp+tls, and return the address to hand out, with our key in it.

        Raises:
            HostError: The port cannot be had.
        """
        if self._certificate is None:
            self._certificate = self.home.make_certificate(host, self._clock())
        taken = await self._running.lines.listen(host, port, *self._certificate)
        url = str(BspUrl(TLS, host, taken, key=self.key))
        self._urls.append(url)
        return url

    def connect(self, peer: bytes | str, url: str) -> None:
        """Dial a known peer, now and whenever it is lost, while we run; ``news`` tells what comes of it.

        Raises:
            LocalError: The peer is unknown, or the address is none or has another key in it.
        """
        key, place = self.peer(peer), BspUrl.parse(url)
        if place.key not in (None, key):
            raise LocalError(f"{url} has another key than {key.hex()}")
        self._running.tables.dial(key, place.place)
        self._running.lines.changed()

    async def attach(self, carrier: Carrier) -> None:
        """Use a carrier for every peer that it reaches; it is closed with us. Raises what its ``open`` raises."""
        parts = self._running
        desk = CarrierDesk(
            carrier,
            parts.device,
            parts.bundles,
            changed=parts.lines.changed,
            tell=self._news.tell,
            number=self._next_bundle,
            rng=self._rng,
        )
        await desk.open()
        self._desks.append(desk)
        parts.lines.changed()

    def _next_bundle(self) -> int:
        self._bundle_number = max(self._bundle_number + 1, int(self._clock() * 1_000))
        return self._bundle_number

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
        write, kept_for = self._running.courier.write, self._running.hosting.peers()
        key = PublicKey(peer) if isinstance(peer, bytes) and peer in kept_for else self.peer(peer)
        return await write(key, Path(path), bytes_max=bytes_max, again=again, replace=replace)

    async def import_file(self, path: Path | str) -> ImportResult:
        """Read a file that a peer wrote for us; reading it twice changes nothing.

        Raises:
            MalformedError: It is not for us, of a stranger, damaged, or no such file; nothing was changed.
            HostError: It cannot be read, or our disk says no.
        """
        return await self._running.courier.read(Path(path))

    # How it stands

    def status(self) -> Status:
        """Return how we stand with every group and peer."""
        parts = self._running
        device, home = parts.device, self.home
        joined = [entry for entry in home.groups() if device.is_member(entry.group.group_id)]
        groups = tuple(group_status(device, name, group) for name, group in joined)
        known = (*home.peers(), *parts.hosting.guests())
        peers = tuple(peer_status(device, entry) for entry in known if device.knows(entry.key))
        refused, left_out = sum(desk.refused_count for desk in self._desks), tuple(parts.tables.left_out.values())
        sizes = device.sizes() | parts.hosting.sizes()
        return Status(self.key, tuple(self._urls), groups, peers, refused, sizes, left_out)

    def why(self, group: Group | bytes | str, message_id: bytes) -> Explanation:
        """Return what a message waits for, here and with each peer; raises LocalError when the group is unknown."""
        return explain(self._running.device, self._group_id(group), message_id, now())


class _Parts(NamedTuple):
    """What a running peer is made of."""

    home: BspHome
    device: BspDevice
    lines: Lines
    tables: Tables
    hosting: Hosting
    orders: OrderTaker
    bundles: Bundles
    courier: Courier


def _id_of(group: Group | bytes) -> bytes:
    return group.group_id if isinstance(group, Group) else group
